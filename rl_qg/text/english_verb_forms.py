"""Forms of English verbs by spelling rules and a list of irregular verbs: the base form of a form, and back.

Rules rather than a dictionary that some machines have and others lack: a text always gets the same form.
"""

import re

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
