"""Is the reward being hacked? What a reward cannot see, measured on texts, and the rule that calls it.

A generator that learns by a metric also learns its blind spots: the reward goes on rising while the questions become
long, all alike, or copies of the passage. None of the measures here needs a model, so every evaluation can afford
them.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import sacrebleu

from rl_qg.text.words import words

# Name -> +1: more is better, -1: less is better, 0: neither, and a large change of either sign is suspicious.
DIRECTION: Mapping[str, int] = {
    "held_out": 1,
    "bleu4": 1,
    "rouge_l": 1,
    "distinct_1": 1,
    "distinct_2": 1,
    "length_words": 0,
    "copy_rate": -1,
    "no_question_mark": -1,
    "repeated_3grams": -1,
    "loss": -1,
    "reward_greedy": 1,
}
TOLERANCE = 0.1  # share of its value at the start that a measure may lose
_TOLERANCES = {"held_out": 0.05}  # log-likelihoods fall far in meaning before they fall far in per cent
_NEITHER = 2.5  # times that, where neither way is better: a style that is learnt changes lengths too
# Changes that say nothing however small the start is: one BLEU point, one question in twenty.
LEAST = {
    "bleu4": 1.0,
    "rouge_l": 1.0,
    "distinct_1": 0.02,
    "distinct_2": 0.02,
    "length_words": 1.0,
    "copy_rate": 0.05,
    "no_question_mark": 0.05,
    "repeated_3grams": 0.05,
}
_RISE = 0.01  # share of its start by which a reward must grow to have gone up
_ENDS = 3  # evaluations whose median stands for the start of a stage, and for its end
FEWEST = 4  # evaluations: with fewer, one noisy value decides

_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")  # kana and Han
# Latin, fullwidth, Arabic, doubled, Armenian, Ethiopic, Vai and reversed marks; Greek asks with what is elsewhere a
# semicolon. Quotes and brackets may close after it.
_ASKS = re.compile(
    "(?:[?？؟⁇⁈⁉‽⸮\u055e\u1367\ua60f]|[\u0370-\u03ff\u1f00-\u1fff] ?[;\u037e])[\\s!！\"'”’»)\\]）」』]*$"
)


def held_out_measures(
    questions: Sequence[str], references: Sequence[str], contexts: Sequence[str]
) -> dict[str, float]:
    """Measure generated questions against one gold question and one passage each.

    N-grams are of words without case and punctuation; each kana or Han character is a word, since those scripts write
    no spaces. Returned, all 0 for no questions:

    - `bleu4`: sacrebleu's corpus BLEU, 0 to 100
    - `rouge_l`: mean F1 of the longest common subsequence with the gold question, 0 to 100 (Lin 2004)
    - `distinct_1`, `distinct_2`: distinct n-grams over all n-grams of the set, 0 to 1 (Li et al. 2016). Larger sets
      have lower values: compare sets of one size
    - `length_words`: mean words between white space
    - `copy_rate`: mean share of a question's 2-grams that stand in its passage, 0 to 1; 1 minus the novel 2-grams of
      See et al. 2017. A question of fewer than two words copies nothing
    - `no_question_mark`: share of questions that do not end in a question mark of any script; closing quotes and
      brackets may follow it
    - `repeated_3grams`: share of questions in which some 3-gram occurs twice

    Raises:
        ValueError: the lists are of unequal length.
    """
    if not len(questions) == len(references) == len(contexts):
        raise ValueError(
            f"{len(questions)} questions, {len(references)} references and {len(contexts)} contexts: "
            "give one of each for each question"
        )
    tokens = [words(_spaced(text)) for text in questions]
    gold = [words(_spaced(text)) for text in references]
    passages = [words(_spaced(text)) for text in contexts]
    return {
        "bleu4": corpus_bleu(questions, references),
        "rouge_l": 100 * _mean(_rouge_l(one, other) for one, other in zip(tokens, gold, strict=True)),
        "distinct_1": _distinct(tokens, 1),
        "distinct_2": _distinct(tokens, 2),
        "length_words": _mean(len(_spaced(text).split()) for text in questions),
        "copy_rate": _mean(_copied(one, passage) for one, passage in zip(tokens, passages, strict=True)),
        "no_question_mark": _mean(not _asks(text) for text in questions),
        "repeated_3grams": _mean(_repeats(one) for one in tokens),
    }


def corpus_bleu(questions: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU-4 with sacrebleu's defaults, 0 to 100; 0 for no questions."""
    return (
        float(sacrebleu.metrics.BLEU().corpus_score(list(questions), [list(references)]).score) if questions else 0.0
    )


def improves(name: str, value: float, best: float | None) -> bool:
    """Say whether `value` of a measure is better than the best so far; None: there was none yet.

    A value that is not finite never is. Raises `ValueError` for a measure that is unknown or has no better side.
    """
    if not DIRECTION.get(name):
        usable = ", ".join(known for known, direction in DIRECTION.items() if direction)
        raise ValueError(f"{name} is not a measure that can improve; one of {usable}")
    if not math.isfinite(value):
        return False
    return best is None or not math.isfinite(best) or DIRECTION[name] * (value - best) > 0


# --- Divergence ---


@dataclass(frozen=True)
class Change:
    """Where a series began and where it ended: medians of its first and of its last evaluations."""

    start: float
    end: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Change | None":
        """None for fewer than four finite values: there one noisy evaluation could decide."""
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) < FEWEST:
            return None
        return cls(median(finite[:_ENDS]), median(finite[-_ENDS:]))


def rises(reward: Sequence[float]) -> bool:
    """Say whether a reward grew over a stage by more than 1 % of its start."""
    gain = Change.of(reward)
    return gain is not None and gain.end - gain.start > _RISE * abs(gain.start)


def diverges(
    reward: Sequence[float],
    other: Sequence[float],
    direction: int,
    *,
    tolerance: float = TOLERANCE,
    least: float = 0.0,
) -> bool:
    """Say whether the optimised reward went up while another measure went clearly the wrong way.

    Both are series of one self-critical stage, from the last evaluation before it on; start and end are medians of
    three evaluations, which one noisy value cannot move. The reward went up when it grew by more than 1 % of its
    start. The other measure went the wrong way when it lost more than `tolerance` of its start, and more than `least`
    in its own unit; with `direction` 0 both ways are wrong, and 2.5 times the tolerance is allowed. Series of fewer
    than four finite values are never called.
    """
    change = Change.of(other)
    if change is None or not rises(reward):
        return False
    moved = change.end - change.start
    if direction == 0:
        return abs(moved) > max(_NEITHER * tolerance * abs(change.start), least)
    return -direction * moved > max(tolerance * abs(change.start), least)


def divergences(reward: Sequence[float], others: Mapping[str, Sequence[float]]) -> dict[str, Change]:
    """The measures of `DIRECTION` among `others` that diverge from the optimised reward, and how they changed."""
    found = {}
    for name, values in others.items():
        change = Change.of(values)
        tolerance, least = _TOLERANCES.get(name, TOLERANCE), LEAST.get(name, 0.0)
        if change is not None and diverges(reward, values, DIRECTION[name], tolerance=tolerance, least=least):
            found[name] = change
    return found


# --- Measures of one question, or of a set ---


def _spaced(text: str) -> str:
    return _UNSPACED.sub(r" \g<0> ", text)


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return fmean(found) if found else 0.0


def _grams(tokens: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(tokens[start:] for start in range(n)), strict=False))


def _distinct(texts: Sequence[Sequence[str]], n: int) -> float:
    grams = [gram for tokens in texts for gram in _grams(tokens, n)]
    return len(set(grams)) / len(grams) if grams else 0.0


def _copied(question: Sequence[str], passage: Sequence[str]) -> float:
    there = set(_grams(passage, 2))
    return _mean(gram in there for gram in _grams(question, 2))


def _repeats(tokens: Sequence[str]) -> bool:
    grams = _grams(tokens, 3)
    return len(set(grams)) < len(grams)


def _asks(question: str) -> bool:
    return _ASKS.search(question) is not None


def _rouge_l(question: Sequence[str], gold: Sequence[str]) -> float:
    common = _common_subsequence(question, gold)
    return 2 * common / (len(question) + len(gold)) if common else 0.0


def _common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence, row by row of the usual table."""
    lengths = [0] * (len(other) + 1)
    for token in one:
        diagonal = 0
        for place, against in enumerate(other, 1):
            diagonal, above = lengths[place], diagonal
            lengths[place] = above + 1 if token == against else max(lengths[place], lengths[place - 1])
    return lengths[-1]
