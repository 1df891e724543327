"""Entities and pronouns exchanged within their groups, as QRelScore, Appendix C, has it.

Entities of the reference question and of the passage are pooled by group; one of the question is replaced by another
of its group. Of the pronouns those with a gender are replaced, by another of the same grammatical group.
"""

import random
import re
from collections.abc import Mapping

from rl_qg.evaluation.meta.perturbations import WORD, EntityFinder, Perturbation, cased, replaced
from rl_qg.text.english_words import AUXILIARIES, CONJUNCTIONS, PREPOSITIONS
from rl_qg.text.words import normalised_words

_PERSON = ("person", "per")
_PLACE = ("gpe", "loc", "fac")
_ORGANISATION = ("org",)
_NUMBER = ("cardinal", "ordinal", "quantity", "percent", "money", "date", "time", "number")
_NAME = ("name",)  # of the rules, which do not tell persons from places


def _groups(**kinds: tuple[str, ...]) -> dict[str, str]:
    return {kind: group for group, those in kinds.items() for kind in those}


# The paper speaks of "four groups" and names persons, location/institution/organization and numbers: both readings.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "three": _groups(person=_PERSON, place=_PLACE + _ORGANISATION, number=_NUMBER, name=_NAME),
    "four": _groups(person=_PERSON, place=_PLACE, organisation=_ORGANISATION, number=_NUMBER, name=_NAME),
}


def swap_in_group(
    question: str, context: str, find: EntityFinder, groups: Mapping[str, str], chance: random.Random
) -> Perturbation | None:
    """Replace an entity of the question by another of its group, drawn from question and context; None where no entity
    of the question has another. Entities of a kind without a group (works, events) stay.
    """
    inside = [(span, groups[span.kind]) for span in find(question) if span.kind in groups]
    pool = {(group, question[span.start : span.end]) for span, group in inside}
    pool |= {(groups[span.kind], context[span.start : span.end]) for span in find(context) if span.kind in groups}
    chance.shuffle(inside)
    for span, group in inside:
        old = question[span.start : span.end]
        others = sorted(
            text for other, text in pool if other == group and normalised_words(text) != normalised_words(old)
        )
        if others:
            new = chance.choice(others)
            return Perturbation(question[: span.start] + new + question[span.end :], old, new, f"{group} group")
    return None


_SUBJECT = "you he she we they".split()
_OBJECT = "me you him her us them".split()
_POSSESSIVE = "my your his her its our their".split()
_ALONE = "mine yours his hers ours theirs".split()
_REFLEXIVE = "myself yourself himself herself itself ourselves themselves".split()
_WITH_GENDER = {"he": _SUBJECT, "she": _SUBJECT, "him": _OBJECT, "hers": _ALONE, "himself": _REFLEXIVE} | {
    "herself": _REFLEXIVE
}
_SINGULAR = re.compile(r"(?:is|was|has|does)(?:n['’]t)?")
_ENDS_A_PHRASE = PREPOSITIONS | CONJUNCTIONS | AUXILIARIES


def swap_pronoun_in_group(question: str, chance: random.Random) -> Perturbation | None:
    """Replace a pronoun that has a gender by another of its group (subject, object, possessive, reflexive), both
    drawn; None where the question has none. A subject whose verb is singular stays singular.
    """
    found = [(match, others) for match in WORD.finditer(question) if (others := _others(question, match))]
    if not found:
        return None
    match, others = chance.choice(found)
    return replaced(question, match, cased(chance.choice(others), match.group()), "pronoun group")


def _others(question: str, match: re.Match[str]) -> list[str]:
    """What may replace a word; nothing where it is no pronoun with a gender."""
    before = (WORD.findall(question[: match.start()].casefold()) or [""])[-1]
    after = (WORD.findall(question[match.end() :].casefold()) or [""])[0]
    word = match.group().casefold()
    if word in ("his", "her"):
        alone = not after or after in _ENDS_A_PHRASE
        group = _POSSESSIVE if not alone else _ALONE if word == "his" else _OBJECT
    else:
        group = _WITH_GENDER.get(word, [])
    if group is _SUBJECT and any(_SINGULAR.fullmatch(near) for near in (before, after)):
        group = ["he", "she"]
    if group is _SUBJECT and after.endswith("s"):
        group = ["he", "she"]
    return [other for other in group if other != word]
