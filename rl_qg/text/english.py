"""The position of the verb in a question whose subject is its question word, as in `Who wrote it?`.

English, without a tagger: of words that can be verbs, those that may be a noun or an adjective in their position are
skipped.
"""

import re
from collections.abc import Sequence

# Closed word classes of English for the rules of `rl_qg.generation.answer_rules`: without a tagger they bound what
# may be an answer. Lower case; English unless a comment says otherwise.


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


DETERMINERS = _words("a an the this that these those its his her their our my your whose each every some any no such")
PREPOSITIONS = _words(
    "about above across after against along amid among around at before behind below beneath beside besides between",
    "beyond by despite down during except for from in inside into like near of off on onto out outside over past per",
    "since through throughout to toward towards under underneath unlike until up upon via with within without versus",
)
CONJUNCTIONS = _words(
    "and or but nor so yet although though because if unless whereas while when where which who whom what why how",
    "whether than as that whenever wherever whichever whoever once both either neither",
)
PRONOUNS = _words(
    "i you he she it we they me him us them one ones himself herself itself themselves ourselves mine yours hers ours",
    "theirs there here something anything nothing everything someone anyone everyone others another",
)
AUXILIARIES = _words(
    "is are was were be been being am has have had having do does did doing will would shall should can could may",
    "might must ought cannot won't don't doesn't didn't isn't aren't wasn't weren't can't couldn't wouldn't not n't",
)
ADVERBS = _words(
    "about abroad according accordingly additionally again ago ahead all almost already also altogether always",
    "apart approximately away back commonly consequently currently due earlier else especially etc even",
    "eventually ever far few finally first fully further furthermore generally hence highly however indeed",
    "initially instead just largely last later least less likewise mainly many maybe meanwhile more moreover",
    "most mostly much nearly never nevertheless next no nonetheless not now often only originally other",
    "otherwise overall own particularly partly perhaps previously quite rather recently roughly same several",
    "similarly sometimes soon specifically still subsequently then therefore thus today together too typically",
    "usually very well yes",
)
# Frequent verbs whose forms no suffix reveals.
VERBS = _words(
    "allow allows appear appears argue argues became become becomes began begin begins begun believe believes",
    "borne bring brings brought build builds built call calls came cause causes come comes consist consists",
    "contain contains continue continues cost costs create creates cut decide depend depends describe describes",
    "develop die dies draw drawn draws drew eat eats ensure enter exist exists extend extends fall falls",
    "feature features feel feels fell felt fight find finds flew focus follow follows forced form forms fought",
    "found gain gave get gets give given gives go goes gone got grew grow grows happen happens held help helps",
    "hold holds include includes increase increases indicate indicates involve involves keep keeps kept knew",
    "know known knows lack lacks lead leads learn leave leaves led left let lets lie lies live lives lose loses",
    "lost made maintain make makes mean means meant meet meets met move moves need needs occur occurs offer",
    "offers operate operates paid pass passed passes pay pays play plays produce produces provide provides put",
    "puts ran reach read receive receives reduce refer refers rely remain remains represent represents require",
    "requires rise rises rose run runs said sat saw say says see seek seem seems seen sell send sent serve",
    "serves set sets show shown shows sold speak speaks spent spoke spread stand stands start starts stood",
    "struck suggest suggests support supports take taken takes taught teach tell tells tend tends think thinks",
    "thought threw told took tries try turn turns use uses varies vary want wants went win wins won work works",
    "write writes written wrote",
)
CLOSED = DETERMINERS | PREPOSITIONS | CONJUNCTIONS | PRONOUNS | AUXILIARIES | ADVERBS

# Inside names, of several languages: "University of Notre Dame", "Ludwig van Beethoven", "Vasco da Gama".
PARTICLES = _words(
    "of the de del della di da do dos das du des la le les van von der den zu y e al el bin ibn abu & for"
)
JOINING = _words("of de del della di da do dos das du des van von zu bin ibn al &")  # may stand alone between capitals
MONTHS = _words(
    "january february march april may june july august september october november december jan feb mar apr jun jul",
    "aug sep sept oct nov dec",
)
WEEKDAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
NUMBERS = _words(
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen",
    "nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen",
    "half one-third two-thirds one-half three-quarters",
)
UNITS = _words(
    "percent % per cent percentage points million billion trillion thousand hundred dozen km km2 km² kilometres",
    "kilometers kilometre m metres meters metre meter cm mm centimetres centimeters miles mile feet foot ft inches",
    "inch yards yard acres acre hectares hectare kg kilograms kilogram g grams tons ton tonnes tonne pounds pound lb",
    "ounces litres liters gallons seconds second minutes minute hours hour days day weeks week months month years",
    "year decades centuries °c °f degrees mph hz khz mhz ghz bits bytes kb mb gb tb watts kw mw gw volts dollars",
    "euros yen pence cents square cubic times people students degrees",
)


# Forms of English verbs by spelling rules and a list of irregular verbs: the base form of a form, and back.
#
# Rules rather than a dictionary that some machines have and others lack: a text always gets the same form.


# Base form, past tense and participle of irregular verbs; verbs whose past is the base form (cut, set) are left out,
# because the form alone does not tell the tense.
_IRREGULAR = tuple(
    tuple(line.split("/"))
    for line in (
        "arise/arose/arisen awake/awoke/awoken bear/bore/borne beat/beat/beaten become/became/become "
        "begin/began/begun bend/bent/bent bind/bound/bound bite/bit/bitten bleed/bled/bled blow/blew/blown "
        "break/broke/broken breed/bred/bred bring/brought/brought build/built/built buy/bought/bought "
        "catch/caught/caught choose/chose/chosen cling/clung/clung come/came/come creep/crept/crept deal/dealt/dealt "
        "dig/dug/dug do/did/done draw/drew/drawn drink/drank/drunk drive/drove/driven eat/ate/eaten fall/fell/fallen "
        "feed/fed/fed feel/felt/felt fight/fought/fought find/found/found flee/fled/fled fling/flung/flung "
        "fly/flew/flown forbid/forbade/forbidden foresee/foresaw/foreseen forget/forgot/forgotten "
        "forgive/forgave/forgiven freeze/froze/frozen get/got/gotten give/gave/given go/went/gone grind/ground/ground "
        "grow/grew/grown hang/hung/hung have/had/had hear/heard/heard hide/hid/hidden hold/held/held keep/kept/kept "
        "know/knew/known lay/laid/laid lead/led/led leave/left/left lend/lent/lent lie/lay/lain light/lit/lit "
        "lose/lost/lost make/made/made mean/meant/meant meet/met/met mislead/misled/misled mistake/mistook/mistaken "
        "outgrow/outgrew/outgrown overcome/overcame/overcome oversee/oversaw/overseen "
        "overthrow/overthrew/overthrown overtake/overtook/overtaken pay/paid/paid rebuild/rebuilt/rebuilt "
        "ride/rode/ridden ring/rang/rung rise/rose/risen run/ran/run say/said/said see/saw/seen seek/sought/sought "
        "sell/sold/sold send/sent/sent shake/shook/shaken shine/shone/shone shoot/shot/shot show/showed/shown "
        "shrink/shrank/shrunk sing/sang/sung sink/sank/sunk sit/sat/sat slay/slew/slain sleep/slept/slept "
        "speak/spoke/spoken speed/sped/sped spend/spent/spent spin/spun/spun spring/sprang/sprung stand/stood/stood "
        "steal/stole/stolen stick/stuck/stuck strike/struck/struck swear/swore/sworn sweep/swept/swept "
        "swim/swam/swum swing/swung/swung take/took/taken teach/taught/taught tear/tore/torn tell/told/told "
        "think/thought/thought throw/threw/thrown undergo/underwent/undergone understand/understood/understood "
        "undertake/undertook/undertaken wake/woke/woken wear/wore/worn weave/wove/woven win/won/won "
        "wind/wound/wound withdraw/withdrew/withdrawn withhold/withheld/withheld withstand/withstood/withstood "
        "write/wrote/written rewrite/rewrote/rewritten"
    ).split()
)
_FORMS = {base: forms for base, *forms in _IRREGULAR}
_BASES = {form: base for base, *forms in _IRREGULAR for form in forms if form != base} | {
    **{
        "has": "have",
        "does": "do",
        "goes": "go",
        "is": "be",
        "are": "be",
        "was": "be",
        "were": "be",
        "born": "bear",
        "lies": "lie",
        "ties": "tie",
    },
    **{"lied": "lie", "died": "die", "dies": "die", "tied": "tie", "lay": "lie", "laid": "lay"},
}
# Of a regular form without -ed or -ing: what is the base form although the next rule would add an e, what lacks an e,
# and what has its last consonant doubled.
_WHOLE = re.compile(
    r"(?:bias|canvas|focus|market|target|rocket|picket|covet|plummet|interpret|budget|comfort|ballot|pilot|pivot|ruin|"
    r"limit|visit|edit|exit|debut|hibit|habit|herit|credit|audit|orbit|posit|merit|profit|licit|vomit|benefit|"
    r"[ai]son|[st]ion|[bglmrt]on|andon|ardon|ckon|develop|envelop|gallop|worship|gossip|honor|[vm]or|color|abor|arbor|"
    r"author|[cinu]tor|nsor|anchor|mirror|pillar|orphan|[^aeiouc]al|[^i]vil|peril|pencil|program|bottom|custom|murmur|"
    r"^hang|^bang|"
    r"belong|th[aeiou]ng|volunteer|pioneer|engineer|cheer|steer|premier)$"
)
_LACKS_E = re.compile(
    r"(?:[cvz]|[^ow]u|[^s]s|dg|[aeiou]g|[lr]g|[^b]ang|eng|ung|fring|ting|[bcdfgkptz]l|styl|[ct]r|[iu]at|creat|"
    r"[^aeiou][aiou][kmnptbdlr]|qu[aio][rt]|uad|uid|[^aeiou]et|[cprs]ed|conven|terven|traven|hem|hrown|hon|"
    r"ea[sv]|past|wast|hast|rever|adher|interfer|rout|yp|breath|loath|cloth|cach|^ach|^ow)$"
)
_DOUBLED = re.compile(r"(?:[^aeiou]|^|qu)[aeiouy]([bdgklmnprtv])\1$")
_NOT_DOUBLED = re.compile(r"(?:^add|^odd|[^cbpvud]ell|[aiu]ll|(?<!ntr)(?<!patr)oll|spell|^egg|^err|^purr|^inn|ebb)$")


def base_form(word: str) -> str:
    """The base form of a verb, lower case: `wrote`, `writes` and `writing` give `write`; a base form gives itself."""
    word = word.casefold()
    if word in _BASES:
        return _BASES[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if re.search(r"(?:ss|sh|ch|x|zz|[^aeiou]o)es$", word):
        return word[:-2]
    if re.search(r"[^s]s$", word):
        return word[:-1]
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("eed"):
        return word if word in ("exceed", "proceed", "succeed", "need", "feed", "bleed", "breed") else word[:-1]
    if word.endswith("ed") and len(word) > 3:
        return _whole(word[:-2])
    if word.endswith("ing") and re.search("[aeiouy]", word[:-3]):
        return _whole(word[:-3])
    return word


def _whole(stem: str) -> str:
    """The base form of what is left of a regular form without -ed or -ing."""
    if _DOUBLED.search(stem) and not _NOT_DOUBLED.search(stem):
        return stem[:-1]
    return stem + "e" if _LACKS_E.search(stem) and not _WHOLE.search(stem) else stem


def in_the_form_of(base: str, word: str, *, participle: bool) -> str:
    """A base form put into the form of another verb's `word`: `fall` like `rose` is `fell`.

    Args:
        base: lower case.
        word: a base form, or one in -s, -ing, or the past.
        participle: whether a past `word` is a participle (`was lost`), where the form does not tell.
    """
    word = word.casefold()
    if word == base_form(word):
        return base
    if word.endswith("ing"):
        if base.endswith("ie"):
            return base[:-2] + "ying"
        return (base if base.endswith(("ee", "oe", "ye")) else _stem(base)) + "ing"
    if word.endswith("s"):
        if re.search("[^aeiou]y$", base):
            return base[:-1] + "ies"
        return base + ("es" if re.search(r"(?:s|sh|ch|x|z|[^aeiou]o)$", base) else "s")
    if base in _FORMS:
        return _FORMS[base][participle]
    return base[:-1] + "ied" if re.search("[^aeiou]y$", base) else _stem(base) + "ed"


def _stem(base: str) -> str:
    """What -ed and -ing are added to: without a final e, the last consonant of a short verb doubled."""
    if base.endswith("e"):
        return base[:-1]
    short = re.fullmatch(r"[^aeiou]*[aeiou][bdgklmnprt]", base) or re.search(
        r"(?:mit|cur|fer|pel|trol|cel|gin|get)$", base
    )
    return base + base[-1] if short else base


ASKING = frozenset("who what which when where why how whom whose".split())
_WINDOW = 4  # words after the question word
_THIRD = frozenset(word for word in VERBS if word.endswith("s") and not word.endswith("ss"))
_BASE = frozenset(
    "cut decide develop ensure enter fight gain learn maintain reach read reduce rely see seek sell send spread teach"
    " go do".split()
) | {word for word in VERBS if {word + "s", word + "es", word[:-1] + "ies"} & _THIRD}
_PARTICIPLES = frozenset("begun borne drawn forced given gone known seen shown taken written".split())
PAST = VERBS - _THIRD - _BASE - _PARTICIPLES
_NOT_VERBS = frozenset(
    "advanced aged alleged armed beloved bleed breed combined crooked deed embed exceed feed greed hatred hundred"
    " indeed kindred limited naked need proceed ragged red rugged sacred seed shed so-called speed succeed supposed"
    " united unprecedented weed wicked".split()
)


def is_past(word: str) -> bool:
    """Return whether a word is the past tense of a frequent verb (`wrote`, `caused`), and nothing else."""
    if word in PAST:
        return True
    return word.endswith("ed") and bool({word[:-1], word[:-2], word[:-3] + "y"} & _BASE)


def subject_verb(words: Sequence[str]) -> int | None:
    """Return the position of the verb among the words of a question, at most four after the question word; None where
    it is uncertain.
    """
    start = next((index for index, word in enumerate(words) if word.casefold() in ASKING), None)
    if start is None:
        return None
    question_word = words[start].casefold()
    for index in range(start + 1, min(start + 1 + _WINDOW, len(words))):
        before = words[index - 1].casefold() if index > start + 1 else ""
        after = words[index + 1] if index + 1 < len(words) else ""
        if _is_verb(words[index], question_word, before, after):
            return index
    if (question_word == "what" and start == 0) or question_word == "who":
        return start + 1 if _is_lone_third(words[start + 1 :], 3 - (question_word == "who")) else None
    return None


def _is_lone_third(words: Sequence[str], fewest: int) -> bool:
    """Return whether the first of the words after `who` or `what` is the verb of the question (`controls wages in a
    state`): it ends in -s, the words are not too few, and none of the others can be a verb.
    """
    if len(words) < fewest or not re.fullmatch("[a-z]+[^siu’']s", words[0]) or words[1] == "of":
        return False
    others = [word.casefold() for word in words[1:]]
    return not any(word in AUXILIARIES | VERBS or word.endswith("ed") or is_past(word) for word in others)


def _is_verb(word: str, question_word: str, before: str, after: str) -> bool:
    """Return whether a word is the verb; `before` is "" directly after the question word."""
    if word != word.casefold() or word in _NOT_VERBS or after == "of" or before in DETERMINERS | PREPOSITIONS:
        return False
    if is_past(word):
        return not (question_word == "how" and not before)
    first = not before
    if word.endswith("ed") and len(word) > 4:
        if before in ("many", "much", "most", "more") or (first and question_word not in ("who", "what")):
            return False
        return not first or question_word == "who" or _begins_an_object(after)
    if word in _THIRD:
        return (not first or question_word in ("who", "what")) and not (after in VERBS or after.endswith("ed"))
    plural = before.endswith("s") or before in ("people", "men", "women", "children")
    return word in _BASE and plural and after not in VERBS


def _begins_an_object(word: str) -> bool:
    """Return whether a word may begin an object, so that the word before it is a verb: an article, a name."""
    return word.casefold() in DETERMINERS | PREPOSITIONS | PRONOUNS or word[:1].isupper() or word[:1].isdigit()


def is_noun(word: str) -> bool:
    """Return whether a word after `what` may be a noun according to these lists."""
    return not (word in CLOSED or word in VERBS or word.endswith(("ed", "ly")))
