"""Measures of questions that no reward sees, and the rule that compares the optimised reward with them: a generator
that learns by a metric also learns its weaknesses, and questions become long, all alike, or copies of the passage.
None of the measures needs a model.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from statistics import fmean, median

from rewards import load
from rewards.words import ends_as_question, words
from rl_qg.text.words import ngrams, word_count

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
    "unsupported": -1,
    "loss": -1,
    "reward_greedy": 1,
}
TOLERANCE = 0.1  # fraction of its value at the start that a measure may lose
_TOLERANCES = {"held_out": 0.05}  # log-likelihoods lose much meaning before they lose many percent
_BOTH_WAYS = 2.5  # times that, where neither direction is better: a style that is learnt changes lengths too
# Changes too small to matter however small the start is: one BLEU point in 100, one question in twenty.
LEAST = {
    "length_words": 1.0,
    **dict.fromkeys(("bleu4", "rouge_l"), 0.01),
    **dict.fromkeys(("distinct_1", "distinct_2"), 0.02),
    **dict.fromkeys(("copy_rate", "no_question_mark", "repeated_3grams", "unsupported"), 0.05),
}
_RISE = 0.01  # fraction of its start by which a reward must grow to have gone up
_ENDS = 3  # evaluations whose median is taken for the start of a stage, and for its end
FEWEST = 4  # evaluations: with fewer, one noisy value decides
bleu4, rouge_l, faithfulness = (cache(partial(load, name)) for name in ("bleu4", "rouge_l", "faithfulness"))


def held_out_measures(
    questions: Sequence[str], references: Sequence[str], contexts: Sequence[str]
) -> dict[str, float]:
    """Measure generated questions against one gold question and one passage each.

    N-grams are of the words of `rewards.words.words`, those of ROUGE-L: lower case, no punctuation, each character of
    a script without spaces a word. `ValueError` for lists of unequal length. Returned, all 0 for no questions:

    - `bleu4`: `rewards.load("bleu4")` of the corpus (n-gram counts summed over the questions), 0 to 1
    - `rouge_l`: mean of `rewards.load("rouge_l")`, 0 to 1
    - `distinct_1`, `distinct_2`: distinct n-grams over all n-grams of the set, 0 to 1 (Li et al. 2016). Larger sets
      have lower values: compare sets of one size
    - `length_words`: mean length, see `rl_qg.text.words.word_count`
    - `copy_rate`: mean fraction of a question's 2-grams that occur in its passage, 0 to 1; 1 minus the novel 2-grams
      of See et al. 2017. A question of fewer than two words copies nothing
    - `no_question_mark`: fraction of questions that do not end in a question mark of any script; closing quotes and
      brackets may follow it
    - `repeated_3grams`: fraction of questions in which some 3-gram occurs twice
    - `unsupported`: fraction of questions with a name or number that the passage lacks, by
      `rewards.EntityFaithfulness` and its rules for English
    """
    if not len(questions) == len(references) == len(contexts):
        raise ValueError(
            f"{len(questions)} questions, {len(references)} references and {len(contexts)} contexts: "
            "give one of each for each question"
        )
    gold = [[text] for text in references]
    question_words = [words(text) for text in questions]
    return {
        "bleu4": float(bleu4().corpus(bleu4().statistics(questions, gold).sum(axis=0))),
        "rouge_l": _mean(iter(rouge_l().score(questions, references=gold).scores)),
        "distinct_1": _distinct(question_words, 1),
        "distinct_2": _distinct(question_words, 2),
        "length_words": _mean(word_count(text) for text in questions),
        "copy_rate": _mean(_copied(*pair) for pair in zip(question_words, map(words, contexts), strict=True)),
        "no_question_mark": _mean(not ends_as_question(text) for text in questions),
        "repeated_3grams": _mean(len({*some}) < len(some) for some in (ngrams(each, 3) for each in question_words)),
        "unsupported": _mean(score < 1 for score in faithfulness().score(questions, contexts).scores),
    }


def measure_signatures() -> dict[str, str]:
    """The signatures of the measures that compare with gold questions, with how they treat a set."""
    return {"bleu4": f"{bleu4().signature}|set:corpus", "rouge_l": f"{rouge_l().signature}|set:mean"}


def _mean(values: Iterator[float]) -> float:
    numbers = list(values)
    return fmean(numbers) if numbers else 0.0


def _distinct(texts: Sequence[Sequence[str]], n: int) -> float:
    every = list(chain.from_iterable(ngrams(text_words, n) for text_words in texts))
    return len(set(every)) / len(every) if every else 0.0


def _copied(question: Sequence[str], passage: Sequence[str]) -> float:
    available = set(ngrams(passage, 2))
    return _mean(ngram in available for ngram in ngrams(question, 2))


def improves(name: str, value: float, best: float | None) -> bool:
    """Return whether `value` of a measure is better than the best so far; None: there was none yet.

    A value that is not finite never is. Raises `ValueError` for a measure that is unknown or has no better direction.
    """
    if not DIRECTION.get(name):
        usable = ", ".join(known for known, direction in DIRECTION.items() if direction)
        raise ValueError(f"{name} is not a measure that can improve; one of {usable}")
    if not math.isfinite(value):
        return False
    return best is None or not math.isfinite(best) or DIRECTION[name] * (value - best) > 0


@dataclass(frozen=True)
class SeriesChange:
    """Where a series began and where it ended: medians of its first and of its last evaluations."""

    start: float
    end: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "SeriesChange | None":
        """None for fewer than four finite values: there one noisy evaluation could decide."""
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) < FEWEST:
            return None
        return cls(median(finite[:_ENDS]), median(finite[-_ENDS:]))


def rises(reward: Sequence[float]) -> bool:
    """Return whether a reward grew over a stage by more than 1 % of its start."""
    gain = SeriesChange.of(reward)
    return gain is not None and gain.end - gain.start > _RISE * abs(gain.start)


def diverges(
    reward: Sequence[float],
    other: Sequence[float],
    direction: int,
    *,
    tolerance: float = TOLERANCE,
    least: float = 0.0,
) -> bool:
    """Return whether the optimised reward went up while another measure clearly got worse.

    Both are series of one self-critical stage, from the last evaluation before it on. The other measure got worse when
    it lost more than `tolerance` of its start, and more than `least` in its own unit; with `direction` 0 both ways are
    worse, and 2.5 times the tolerance is allowed. Series of fewer than four finite values never count as diverging.
    """
    change = SeriesChange.of(other)
    if change is None or not rises(reward):
        return False
    moved = change.end - change.start
    if direction == 0:
        return abs(moved) > max(_BOTH_WAYS * tolerance * abs(change.start), least)
    return -direction * moved > max(tolerance * abs(change.start), least)


def divergences(reward: Sequence[float], others: Mapping[str, Sequence[float]]) -> dict[str, SeriesChange]:
    diverging = {}
    for name, values in others.items():
        change = SeriesChange.of(values)
        tolerance, least = _TOLERANCES.get(name, TOLERANCE), LEAST.get(name, 0.0)
        if change is not None and diverges(reward, values, DIRECTION[name], tolerance=tolerance, least=least):
            diverging[name] = change
    return diverging
