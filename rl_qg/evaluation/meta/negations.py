"""Questions negated: an auxiliary or modal verb, the main verb by do-support, or a verb replaced by its antonym.

QRelScore, Appendix C: of the auxiliary and modal verbs of the question one is drawn and *not* is added, or WordNet
gives an antonym. The paper's Table 7 contracts (`doesn't`), and so do these rules; where the question is negated
already, it is affirmed.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence

from rl_qg.evaluation.meta.perturbations import WORD, Perturbation, cased, replaced
from rl_qg.runtime.errors import InputError
from rl_qg.text.english_verb_forms import base_form, in_the_form_of
from rl_qg.text.english_verbs import subject_verb
from rl_qg.text.english_words import AUXILIARIES, CLOSED, DETERMINERS

Antonyms = Callable[[str], Sequence[str]]  # of the base form of a verb
_NEGATED = {
    **{"is": "isn't", "are": "aren't", "was": "wasn't", "were": "weren't", "do": "don't", "does": "doesn't"},
    **{"did": "didn't", "has": "hasn't", "have": "haven't", "had": "hadn't", "can": "can't", "could": "couldn't"},
    **{"will": "won't", "would": "wouldn't", "should": "shouldn't", "must": "mustn't", "may": "can't"},
    **{"might": "couldn't", "shall": "won't"},
}
_MAIN_HAVE = {"has": "doesn't have", "have": "don't have", "had": "didn't have"}  # of an article: no auxiliary
_AFFIRMED = {negated: plain for plain, negated in reversed(_NEGATED.items())} | {"cannot": "can"}


def negate(question: str, chance: random.Random | None = None) -> Perturbation | None:
    """Negate an auxiliary or modal verb, or affirm the question where it is negated; without such a verb negate the
    verb of a question word that is its subject (`What doesn't control wages?`). None where there is neither.

    Args:
        question: the text.
        chance: draws one of several verbs; None: the first.
    """
    matches = list(WORD.finditer(question))
    for index, match in enumerate(matches):
        only = _next(matches, index) == "only" or (index and matches[index - 1].group().casefold() == "or")
        if match.group() in ("not", "never", "NOT", "NEVER") and not only:
            start = len(question[: match.start()].rstrip())
            return Perturbation(
                question[:start] + question[match.end() :], question[start : match.end()], "", "affirmed"
            )
    changes = list(_changed_auxiliaries(question, matches))
    if changes:
        return changes[0] if chance is None else chance.choice(changes)
    return _negate_verb(question, matches)


def _changed_auxiliaries(question: str, matches: Sequence[re.Match[str]]) -> Iterator[Perturbation]:
    for index, match in enumerate(matches):
        word = match.group().casefold().replace("’", "'")
        separate = re.match(r"\s+n't\b", question[match.end() :])
        if word in _AFFIRMED:
            yield replaced(question, match, cased(_AFFIRMED[word], match.group()), "affirmed")
        elif word in _NEGATED and _is_auxiliary(matches, index):
            if separate:
                text = question[: match.end()] + question[match.end() + separate.end() :]
                yield Perturbation(text, match.group() + separate.group(), match.group(), "affirmed")
            else:
                new = _MAIN_HAVE.get(word) if _next(matches, index) in DETERMINERS else None
                yield replaced(question, match, cased(new or _NEGATED[word], match.group()), "negated")


def _is_auxiliary(matches: Sequence[re.Match[str]], index: int) -> bool:
    """Whether a word that may be an auxiliary is one: not a month or a name (`in May`, `Will Smith`), not a noun (`the
    will`), not what `to` governs.
    """
    if not index:
        return True
    before = matches[index - 1].group().casefold()
    return matches[index].group().islower() and before != "to" and before not in DETERMINERS


def _next(matches: Sequence[re.Match[str]], index: int) -> str:
    return matches[index + 1].group().casefold() if index + 1 < len(matches) else ""


def _negate_verb(question: str, matches: Sequence[re.Match[str]]) -> Perturbation | None:
    index = subject_verb([match.group() for match in matches])
    if index is None:
        return None
    word = matches[index].group()
    base = base_form(word)
    auxiliary = "don't" if word == base else "doesn't" if word.endswith("s") else "didn't"
    return replaced(question, matches[index], f"{auxiliary} {base}", "negated verb")


def replace_by_antonym(question: str, antonyms: Antonyms, chance: random.Random) -> Perturbation | None:
    """Replace a verb by an antonym in the same form, both drawn; None where no verb has one."""
    matches = list(WORD.finditer(question))
    found = []
    for index, match in enumerate(matches):
        word = match.group()
        if word.islower() and word not in CLOSED and (others := antonyms(base_form(word))):
            found.append((index, match, others))
    if not found:
        return None
    index, match, others = chance.choice(found)
    before = {other.group().casefold() for other in matches[:index]}
    new = in_the_form_of(chance.choice(list(others)), match.group(), participle=bool(before & AUXILIARIES))
    return replaced(question, match, new, "antonym")


def wordnet_antonyms() -> tuple[Antonyms, str]:
    """Antonyms of verbs by WordNet through nltk, and its version. A word that is a verb less often than a noun or an
    adjective (in WordNet's counts) has none.

    Raises:
        InputError: nltk or the data of WordNet are missing.
    """
    try:
        from nltk.corpus import wordnet

        version = f"WordNet {wordnet.get_version()}"
    except (ImportError, LookupError):
        raise InputError(
            "negation: antonyms need WordNet; pip install 'rl-qg[overlap]', then python -m nltk.downloader wordnet "
            "(or set NLTK_DATA to a folder with corpora/wordnet), or negation=not"
        ) from None

    def count(base: str, kind: str) -> int:
        return sum(
            lemma.count()
            for synset in wordnet.synsets(base, kind)
            for lemma in synset.lemmas()
            if lemma.name() == base
        )

    def antonyms(base: str) -> list[str]:
        if not (verb := count(base, "v")) or verb < max(count(base, kind) for kind in ("n", "a")):
            return []
        for synset in wordnet.synsets(base, "v"):  # the most frequent sense first
            lemmas = [lemma for lemma in synset.lemmas() if lemma.name() == base]
            names = [other.name() for lemma in lemmas for other in lemma.antonyms()]
            if single := [name for name in names if name.isalpha()]:
                return single
        return []

    return antonyms, version
