"""What sets of questions are like beside their agreement with human ones: how many there are, of which types, about
which sentences, how many repeat others; how well people agree with each other; and what a selector makes of its
candidates.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rewards.question_sets import distinct
from rewards.signature import format_signature
from rl_qg.confidence_intervals import CORRELATION, SHARE, Floats, PassageDraws, estimate
from rl_qg.data.examples import passage_hash
from rl_qg.evaluation import asked_sentences
from rl_qg.runtime.errors import InputError
from rl_qg.text.nine_types import NINE_TYPES, nine_type

NUMBER, TYPES, SENTENCES, REPEATED = "number of questions", "nine types", "sentences", "repeated questions"
HUMAN, HALVES, GAP = "human questions", "human halves", "gap closed"
SIGNATURES = {
    NUMBER: "number|differing questions, references less questions|pearson",
    TYPES: format_signature("nine_types", {"rule": "arXiv 2203.04464, 6.2", "distance": "total variation"}),
    SENTENCES: asked_sentences.SIGNATURE,
    REPEATED: "repeated|same:ptb|over all questions",
}
Rows = list[dict[str, Any]]
Questions = Sequence[Sequence[str]]


def measure_rows(
    predictions: Mapping[str, Questions], references: Questions, contexts: Sequence[str], draws: PassageDraws
) -> Rows:
    """One row for each file, measure (`metric`) and `part`, with intervals over passages.

    - number of questions: `mean` of different ones (of references: of all, as people asked them); `absolute
      difference` to the number of references; `correlation` (Pearson) with it. The mean difference is in the table of
      sets.
    - nine types: the share of each type (`rl_qg.text.nine_types`) among all questions; `distance`: half the sum of the
      absolute differences of these shares from those of the references (0: the same, 1: nothing in common).
    - sentences: `coverage`, the share of the sentences with human questions that are asked about too
      (`rl_qg.evaluation.asked_sentences`), where there are such sentences.
    - repeated questions: `share` of all questions whose words another question of the set has.

    The references, as `human questions`, have the rows that do not compare with references.

    Args:
        predictions: for each file the questions of each passage.
        references: the human questions of each passage.
        contexts: the passages.
        draws: of these passages.
    """
    human_types = _type_counts(references)
    rows: Rows = []
    for name, questions in predictions.items():
        rows += _rows_of(name, questions, references, human_types, contexts, draws)
    human = _rows_of(HUMAN, references, references, human_types, contexts, draws)
    return rows + [row for row in human if row["part"] in ("mean", "share", *NINE_TYPES)]


def _rows_of(
    name: str,
    questions: Questions,
    references: Questions,
    human_types: Floats,
    contexts: Sequence[str],
    draws: PassageDraws,
) -> Rows:
    written, human = (np.array([len(group) for group in sets], float) for sets in (questions, references))
    different = np.array([len(group) for group in distinct(questions)], float)
    numbers = human if questions is references else different  # as in rewards.cardinality_difference
    covered = [
        asked_sentences.coverage(*texts) for texts in zip(questions, references, contexts, strict=True)
    ]  # NaN where people asked about no sentence
    types = _shares(_type_counts(questions), draws)
    sums = draws.sums_of_passages(np.column_stack([written - different, written]))
    values = {
        (NUMBER, "mean"): draws.means(numbers),
        (NUMBER, "absolute difference"): draws.means(np.abs(human - numbers)),
        (NUMBER, "correlation"): _correlation(numbers, human, draws),
        **{(TYPES, kind): types[:, column] for column, kind in enumerate(NINE_TYPES)},
        (TYPES, "distance"): np.abs(types - _shares(human_types, draws)).sum(axis=1) / 2,
        (SENTENCES, "coverage"): draws.means(np.array(covered)),
        (REPEATED, "share"): _ratio(sums[:, 0], sums[:, 1]),
    }
    return [_row(name, metric, part, of_draws, draws) for (metric, part), of_draws in values.items()]


def _row(name: str, metric: str, part: str, values: Floats, draws: PassageDraws) -> dict[str, Any]:
    bounds = {"correlation": CORRELATION, "mean": None, "absolute difference": None, GAP: None}.get(part, SHARE)
    interval = estimate(values, draws.passages, passages=draws.passages, bounds=bounds).to_dict()
    return {"predictions": name, "metric": metric, "part": part, **interval}


def _type_counts(sets: Questions) -> Floats:
    """(passages, 9)."""
    return np.array(
        [[sum(nine_type(question) == kind for question in group) for kind in NINE_TYPES] for group in sets], float
    )


def _shares(counts: Floats, draws: PassageDraws) -> Floats:
    """Of each type in each draw, (1 + resamples, 9)."""
    sums = draws.sums_of_passages(counts)
    return _ratio(sums, sums.sum(axis=1, keepdims=True))


def _ratio(part: Floats, whole: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole != 0, part / whole, np.nan)


def _correlation(first: Floats, second: Floats, draws: PassageDraws) -> Floats:
    """Pearson's in each draw; NaN where either does not vary."""
    columns = np.column_stack([first, second, first**2, second**2, first * second])
    x, y, xx, yy, xy = (draws.sums_of_passages(columns) / draws.passages).T
    spread = np.maximum(xx - x**2, 0) * np.maximum(yy - y**2, 0)
    return _ratio(xy - x * y, np.sqrt(np.where(spread > 1e-12, spread, 0.0)))


# --- people against people, and selectors against the oracle


def halves(references: Questions, contexts: Sequence[str], seed: int) -> list[tuple[int, list[str], list[str]]]:
    """For each passage with two or more human questions its number and two halves of them, drawn by the seed and the
    passage; with an odd number the second, which counts as the references, has one more.
    """
    drawn = []
    for number, (questions, context) in enumerate(zip(references, contexts, strict=True)):
        if len(questions) < 2:
            continue
        shuffled = sorted(questions)
        random.Random(f"{seed} {passage_hash(context)}").shuffle(shuffled)
        middle = len(shuffled) // 2
        drawn.append((number, shuffled[:middle], shuffled[middle:]))
    return drawn


def gap_files(gap: Any, files: Sequence[str]) -> tuple[str, str] | None:
    """The names of the files of random and of oracle choice.

    Raises:
        InputError: they are not both named, or are no files of this command.
    """
    if gap in (None, ""):
        return None
    wanted = "give gap={random: NAME, oracle: NAME}, two names of predictions"
    if not isinstance(gap, Mapping) or gap.keys() != {"random", "oracle"}:
        raise InputError(f"gap={gap}: {wanted}")
    ends = str(gap["random"]), str(gap["oracle"])
    unknown = [name for name in ends if name not in files]
    if unknown or ends[0] == ends[1] or len(files) < 3:
        why = f"{unknown[0]} is none of {', '.join(files)}" if unknown else "needs two files and a third one to judge"
        raise InputError(f"gap={dict(gap)}: {why}; {wanted}")
    return ends


def gap_rows(metric: str, scores: Mapping[str, Floats], ends: tuple[str, str], draws: PassageDraws) -> Iterator[dict]:
    """(file - random) / (oracle - random) of the means of `scores` (passages,), for every other file; undefined where
    the oracle is not above random.
    """
    means = {name: draws.means(values) for name, values in scores.items()}
    low, high = (means[name] for name in ends)
    whole = np.where(high > low, high - low, 0.0)
    for name, values in means.items():
        if name not in ends:
            yield _row(name, metric, GAP, _ratio(values - low, whole), draws)
