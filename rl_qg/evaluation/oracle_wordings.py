"""How the facts of the embedded corpus are asked for: the corpus's own question forms, and paraphrases of them.

Each form is written in words as `normalised` leaves them: lower case, without articles, quotes, commas and the
question mark. `{s}` is whatever names the subject, `(a|b)` a choice, `( a)?` words that may be left out, `{when}` and
the other names in braces are the lexicon below.
"""

import re
from collections.abc import Iterator, Mapping

from rl_qg.data.synthetic_corpus import KINDS

LEXICON: Mapping[str, str] = {
    "when": "(when|(in |during )?(what|which) year|(on |at )?(what|which) date)",
    "wh": "(what|which)",
    "who": "(who|whom)",
    "person": "(who|whom|which person|which teacher|which master)",
    "be": "(is|was)",
    "do": "(does|did|do)",
    "town": "(what |which )(town|city|place|village)",
    "later": "( later in life| later| in later life| late in life| for good| in end)?",
    "prize": "(what |which )(prize|award|honour|honor)",
    "many": "(how many (people|inhabitants|residents|citizens|persons))",
    "workers": "(how many (workers|people|employees|persons|staff))",
    "goods": "(what|what goods|what product|what products|which goods|which product|which products)",
    "river": "(what |which )(river|stream)",
    "open": "(open its doors|open|start|begin|start business|begin its history|go into business)",
}
PARAPHRASES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "person": {
        "birth": (
            "{when} {be} {s} born",
            "{s} was born {when}",
            "{wh} year was {s} born in",
            "(of )?{wh} {be} (year|date) of birth of {s}",
            "{wh} {be} {s} 's (year of birth|date of birth|birth year|birth date|birthday)",
            "{wh} {be} birth (year|date) of {s}",
            "{when} did {s} come into world",
            "{when} was birth of {s}",
            "to {wh} year is birth of {s} dated",
            "{wh} year is birth of {s} dated to",
            "(when|in what year|in which year) is birth of {s} dated",
        ),
        "work": (
            "{wh} {be} (best known|best-known|most famous|famous) work of {s}",
            "{wh} {be} {s} 's (best known|best-known|most famous) work",
            "{wh}( work)? made {s} (famous|known)",
            "{wh}( work)? {be} {s} (best |most )?(known|remembered|famous) for",
            "for {wh}( work)? {be} {s} (best |most )?(known|remembered|famous)",
            "{wh}( work)? did {s} become (famous|known) (with|for|through)",
            "(with|through|for) {wh}( work)? did {s} become (famous|known)",
            "how did {s} become famous",
        ),
        "teacher": (
            "who {be} teacher of {s}",
            "who {be} {s} 's teacher",
            "who (taught|trained|instructed) {s}",
            "who taught {s} craft",
            "(under|with) {person} did {s} (study|train)",
            "{person} did {s} (study|train) (under|with)",
            "from {person} did {s} learn( craft)?",
            "{person} did {s} learn( craft)? from",
            "{wh} {be} name of teacher of {s}",
            "{s} (studied|trained) under whom",
            "{s} learned craft from whom",
            "{who} was {s} taught by",
            "by whom was {s} taught",
        ),
        "residence": (
            "where did {s} (move|settle|live|go|retire){later}",
            "where did {s} later (move|settle|live)",
            "where did {s} (spend|live) last years( of life| of his life| of her life| of their life)?",
            "(in|to) {town} did {s} (move|settle|live|go){later}",
            "{town} did {s} (move to|settle in|live in|go to|move|settle){later}",
            "in {town} did {s} spend last years",
            "{town} did {s} spend last years in",
            "where {be} last years of {s} spent",
        ),
        "prize": (
            "{prize} did {s} (receive|win|get|obtain|earn)",
            "{prize} was (awarded|given|presented) to {s}",
            "(with )?{prize} was {s} (honoured|honored|awarded)( with)?",
            "{prize} was {s} (given|presented)( with)?",
            "{prize} was received by {s}",
            "{prize} honoured {s}",
        ),
        "origin": (
            "where (was|is|did|does) {s} (come from|from|grow up)",
            "where was {s} born",
            "(in|from) {town} (did|does|was) {s} (come|grow up|born)",
            "{town} (was|is|did|does) {s} (from|come from|grow up in|born in)",
        ),
        "trade": ("{wh} {be} (trade|profession|occupation|job) of {s}", "{wh} {be} {s} 's (trade|profession|job)"),
    },
    "town": {
        "founding": (
            "{when} {be} {s} (founded|established|built)",
            "{s} was founded {when}",
            "{wh} year was {s} (founded|established) in",
            "{wh} year does charter of {s} date from",
            "(from {wh} year|from when) does charter of {s} date",
            "{when} {be} charter of {s} (from|dated)",
            "{when} were first houses (of|in) {s} built",
            "{wh} {be} (year of founding|founding year|founding date|date of founding) of {s}",
        ),
        "population": (
            "{many} {do} {s} have",
            "{many} (live|are|are there|are living|reside) in {s}",
            "{wh} {be} (population|number of inhabitants|number of people) of {s}",
            "{wh} {be} {s} 's population",
            "how (large|big|high) {be} population of {s}",
            "{wh} population {do} {s} have",
        ),
        "mayor": (
            "who {be} mayor of {s}",
            "who {be} {s} 's mayor",
            "who (governs|rules|runs|leads) {s}( as (its )?mayor)?",
            "{who} did {s} elect( as (its )?mayor)?",
            "who was elected( as)? mayor (of|by|in) {s}",
            "{wh} {be} name of mayor of {s}",
            "by whom {be} {s} governed( as mayor)?",
        ),
        "product": (
            "{goods} {be} {s} (famous|known|renowned|best known) for",
            "for {wh} {be} {s} (famous|known|renowned)",
            "{goods} {do} people (of|in) {s} live (from|off|on)",
            "from {wh} {do} people (of|in) {s} live",
            "{goods} {do} merchants (come to|buy in) {s}( for)?",
            "for {wh} {do} merchants come to {s}",
            "why do merchants come to {s}",
            "{goods} {do} {s} (make|produce|sell)",
        ),
        "river": (
            "{river} {do} {s} lie on",
            "on {river} {do} {s} (lie|stand)",
            "on {river} {be} {s}( built| situated| located)?",
            "{river} (flows|runs|passes) (through|by|past) {s}",
            "on banks of {river} {be} {s}( built)?",
            "on banks of {river} {do} {s} lie",
            "on {river} 's banks was {s} built",
            "{river} {be} {s} (on|built on|located on|situated on)",
            "{wh} {be} (name of )?river (of|in) {s}",
        ),
        "origin": (
            "(in )?{wh} province {be} {s}( in)?",
            "in {wh} province {do} {s} lie",
            "where (is|does) {s}( lie)?",
        ),
        "trade": ("{wh} kind of town is {s}",),
    },
    "work": {
        "year": (
            "{when} {do} {s} (appear|come out)",
            "{s} appeared {when}",
            "{wh} year did {s} appear in",
            "{when} {be} {s} (published|released|first performed|first published|written)",
            "{when} did public( first)? see {s}( first)?",
            "{when} did first performance of {s} take place",
            "{when} was first performance of {s}",
            "{wh} {be} year of first performance of {s}",
        ),
        "setting": (
            "where {be} {s} set",
            "(in )?{wh} (place|setting) {be} {s} set( in)?",
            "where {do} (story|action|plot) of {s} (take place|unfold|happen|play)",
            "where {be} (story|action|plot) of {s} set",
            "{wh} {be} setting of {s}",
            "where {do} {s} (take place|play|unfold)",
        ),
        "hero": (
            "who {be} (hero|main character|protagonist|central figure) (of|in) {s}",
            "who {be} {s} 's hero",
            "who (stands|is) at cent(re|er) of {s}",
            "whose fate {do} {s} follow",
            "{who} {do} {s} follow",
            "{wh} {be} hero of {s} called",
            "{wh} {be} name of hero of {s}",
            "how {be} hero of {s} called",
        ),
        "place": (
            "where {be} {s} (first )?(shown|performed|premiered|seen)",
            "where {be} {s} (shown|performed|seen) first",
            "in {town} {be} {s} first (shown|performed|seen)",
            "(where|in {town}) {be} premiere of {s}( held)?",
            "where did premiere of {s} take place",
            "where were audiences (first|first ones) to see {s}",
            "where were audiences of {s} first to see it",
            "in {town} were audiences first to see {s}",
            "audiences in {town} were first to see {s}",
        ),
        "origin": (
            "who (wrote|composed|made|created) {s}",
            "who {be} (author|composer|writer|creator) of {s}",
            "by whom was {s} (written|composed)",
        ),
        "trade": ("{wh} kind of (work|piece) is {s}",),
    },
    "company": {
        "founder": (
            "who (founded|started|established|created|set up) {s}",
            "who {be} founder of {s}",
            "who {be} {s} 's founder",
            "by whom was {s} (founded|started|established)",
            "{who} was {s} (founded|started|established) by",
            "{wh} {be} name of founder of {s}",
            "who was it (who|that) started {s}",
        ),
        "goods": (
            "{goods} {do} {s} (make|produce|sell|manufacture)",
            "{goods} {do} workshops of {s} (produce|make)",
            "{goods} {be} (made|produced|sold) by {s}",
            "{goods} {be} (made|produced) (in|by) workshops of {s}",
            "{goods} {do} {s} earn( its)? money with",
            "with {goods} {do} {s} earn( its)? money",
            "how {do} {s} earn( its)? money",
            "{wh} {be} {s} (famous|known) for",
        ),
        "staff": (
            "{workers} {do} {s} (employ|have)",
            "{workers} (work|are working) (for|at|in) {s}",
            "{workers} are employed (by|at) {s}",
            "how (large|big) {be} staff of {s}",
            "{wh} {be} (size of staff|number of workers|number of employees) of {s}",
            "{wh} does staff of {s} number",
        ),
        "start": (
            "{when} {do} {s} {open}( in business)?",
            "{wh} year did {s} {open} in",
            "{when} {be} {s} (founded|started|opened|established)",
            "{when} did history of {s} (begin|start)",
            "since (when|{wh} year) (has|is) {s} (been )?in business",
            "how long has {s} been in business",
            "{when} did business of {s} (begin|start)",
        ),
        "origin": (
            "where (is|was|does|did) {s} (come from|from|based|located)",
            "(in|from) {town} (is|does) {s} (come|based|located)",
            "{town} (is|does) {s} (from|come from|based in|located in)",
        ),
        "trade": ("{wh} kind of company is {s}",),
    },
}
"""`origin` and `trade` are the details of an introduction: the corpus never asks for them, so they are never right."""

_CONTRACTION = re.compile(r"^(who|what|where|when|how)['’]s\b")
_POSSESSIVE = re.compile(r"['’]s(?=\s|$)")
_DROPPED = re.compile(r"[\"“”„«»,]")
_ARTICLES = re.compile(r"\b(?:the|an|a)\b ?")


def words_of(text: str) -> str:
    """A question in lower case with single spaces, without its final mark, with `'s` as a word of its own."""
    text = _CONTRACTION.sub(r"\1 is", " ".join(text.casefold().split()).rstrip("?!. "))
    return _POSSESSIVE.sub(" 's", text)


def normalised(text: str) -> str:
    """`words_of` without quotes, commas and articles: the form in which questions and names are compared."""
    return " ".join(_ARTICLES.sub("", _DROPPED.sub(" ", words_of(text)) + " ").split())


def _own_forms() -> Iterator[tuple[str, str, str]]:
    """Kind, relation and form of every question template of the corpus."""
    for kind in KINDS:
        for relation in kind.relations:
            for question in relation.questions:
                yield kind.name, relation.name, normalised(question.replace("{d}", "{s}"))


def _compiled(form: str) -> re.Pattern[str]:
    for name, words in LEXICON.items():
        form = form.replace(f"{{{name}}}", words)
    return re.compile(form.replace("(", "(?:").replace("{s}", "(?P<s>.+?)"))


FORMS: Mapping[str, tuple[tuple[str, re.Pattern[str]], ...]] = {
    kind.name: tuple(
        dict.fromkeys(
            [(relation, _compiled(form)) for name, relation, form in _own_forms() if name == kind.name]
            + [(relation, _compiled(form)) for relation, forms in PARAPHRASES[kind.name].items() for form in forms]
        )
    )
    for kind in KINDS
}
"""For each kind of subject: the relation and the pattern of each question form; the group `s` names the subject."""
