"""Sets of question-answer pairs: all pairs of a file about a passage against all human pairs about it.

QAAligned and the one-to-one assignment for every metric that compares two texts (`rewards.pair_sets`), exact answers,
and counts, as means over passages with intervals, and paired tests between files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rewards.base import Metric
from rewards.errors import MetricInputError
from rewards.pair_sets import Pair, PairScores, QAAligned
from rewards.question_sets import distinct
from rl_qg.confidence_intervals import Floats, PassageDraws, difference, difference_p, estimate, holm
from rl_qg.evaluation.metric_scores import kept_scores, texts_hash
from rl_qg.evaluation.pair_files import HumanPair, HumanPairs, PairFile
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError

PASSAGES_AT_ONCE = 32
EXACT, SHARE, NUMBER = "exact answers", "share", "number"
DISTINCT, REPEATED, MORE = "distinct questions", "repeated pairs", "pairs less human pairs"
UNTESTED = (MORE,)  # neither side is better
LOWER_IS_BETTER = (REPEATED,)
Columns = dict[tuple[str, str], Floats]
"""Values of the passages by metric and part; NaN where a passage has none."""
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class PairSets:
    """For each passage, in the same order: its text, the human pairs, and the pairs of each file (maybe none).

    Args:
        not_asked: passages with human pairs and no row in any file: among the others, without pairs, if all count.
        elsewhere: for each file how many of its passages have no human pairs, and are left out.
    """

    contexts: list[str]
    human: list[list[HumanPair]]
    predictions: dict[str, list[list[Pair]]]
    not_asked: int
    elsewhere: dict[str, int]


def pair_sets(files: Mapping[str, PairFile], human: HumanPairs, *, every_passage: bool = True) -> PairSets:
    """The pairs of every passage that has human pairs, or of those that some file has a row about.

    Raises:
        InputError: no passage of a file has human pairs, or no file has a pair.
    """
    for name, file in files.items():
        if not file.pairs.keys() & human.pairs.keys():
            raise InputError(
                f"{name}: none of its {len(file.pairs):,} passages has human pairs in {', '.join(human.sources)}; "
                "give the file that its passages are from"
            )
    if not any(pairs for file in files.values() for pairs in file.pairs.values()):
        raise InputError(f"{', '.join(files)}: no passage has a pair; check what wrote them")
    asked = {passage for file in files.values() for passage in file.pairs}
    passages = [passage for passage in human.pairs if every_passage or passage in asked]
    return PairSets(
        contexts=[human.contexts[passage] for passage in passages],
        human=[human.pairs[passage] for passage in passages],
        predictions={name: [file.pairs.get(passage, []) for passage in passages] for name, file in files.items()},
        not_asked=len(human.pairs.keys() - asked),
        elsewhere={name: len(file.pairs.keys() - human.pairs.keys()) for name, file in files.items()},
    )


def pair_counts(sets: PairSets, name: str) -> dict[str, Any]:
    """What a file has, on the passages that count."""
    pairs = sets.predictions[name]
    answers = [(answer, context) for group, context in zip(pairs, sets.contexts, strict=True) for _, answer in group]
    return {
        "passages": len(pairs),
        "without_pairs": sum(not group for group in pairs),
        "pairs": len(answers),
        "human_pairs": sum(map(len, sets.human)),
        "repeated": sum(len(group) - len(set(group)) for group in pairs),
        "answers_not_in_passage": sum(answer not in context for answer, context in answers),
        "answers_several_times_in_passage": sum(context.count(answer) > 1 for answer, context in answers),
        "passages_without_human_pairs": sets.elsewhere[name],
    }


def pair_record(
    sets: PairSets, metrics: Mapping[str, Reward], folder: Path, *, resamples: int, seed: int
) -> dict[str, Any]:
    """Means over passages with intervals (`scores`), differences between files (`tests`), `signatures`, and why
    metrics are left out (`left_out`). Scores of each passage are kept in `folder`, so that a killed command goes on.
    """
    draws = PassageDraws(range(len(sets.contexts)), resamples=resamples, seed=seed)
    signatures: dict[str, str] = {}
    left_out: dict[str, str] = {}
    columns: dict[str, Columns] = {name: {} for name in sets.predictions}
    for label, metric in metrics.items():
        try:
            aligned = _aligned(metric)
            for name, pairs in sets.predictions.items():
                path = folder / quote(name, safe="") / f"{label}.jsonl"
                columns[name] |= {
                    (label, part): values for part, values in _scores(aligned, sets, pairs, path).items()
                }
            signatures[label] = aligned.signature
        except MetricInputError as error:
            left_out[label] = str(error)
            columns = {name: {key: v for key, v in of.items() if key[0] != label} for name, of in columns.items()}
    for name, pairs in sets.predictions.items():
        columns[name] |= exact_answers(pairs, sets.human) | numbers(pairs, sets.human)
    draws_of = {name: {key: draws.means(v) for key, v in of.items()} for name, of in columns.items()}
    scores = [
        {"predictions": name, "metric": metric, "part": part, **_estimate(values, columns[name][metric, part], draws)}
        for name, of in draws_of.items()
        for (metric, part), values in of.items()
    ]
    return {"scores": scores, "tests": _tests(draws_of, draws), "signatures": signatures, "left_out": left_out}


def exact_answers(pairs: Sequence[Sequence[Pair]], human: Sequence[Sequence[HumanPair]]) -> Columns:
    """Precision: the share of the pairs, repetitions once, whose answer people gave to some question about the
    passage. Recall: the share of the different human answers (any one of those to a question) that a pair has. Texts
    are compared as they are; 0 without pairs.
    """
    rows = []
    for group, people in zip(pairs, human, strict=True):
        answers = [answer.strip() for _, answer in dict.fromkeys(group)]
        accepted = {frozenset(person.answers) for person in people}
        right = sum(any(answer in gold for gold in accepted) for answer in answers)
        found = sum(not gold.isdisjoint(answers) for gold in accepted)
        precision, recall = right / max(1, len(answers)), found / len(accepted)
        rows.append((precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0))
    table = np.array(rows).T
    return {(EXACT, part): values for part, values in zip(("precision", "recall", "f1"), table, strict=True)}


def numbers(pairs: Sequence[Sequence[Pair]], human: Sequence[Sequence[HumanPair]]) -> Columns:
    """For each passage: the share of its questions that differ in words (none without questions), exact repetitions of
    pairs, and how many more pairs (repetitions once) than human ones there are.
    """
    questions = [[question for question, _ in group] for group in pairs]
    kinds = distinct(questions)
    shares = [len(some) / len(every) if every else np.nan for some, every in zip(kinds, questions, strict=True)]
    once = [len(set(group)) for group in pairs]
    return {
        (DISTINCT, SHARE): np.array(shares),
        (REPEATED, NUMBER): np.array([len(group) - count for group, count in zip(pairs, once, strict=True)], float),
        (MORE, NUMBER): np.array([count - len(people) for count, people in zip(once, human, strict=True)], float),
    }


def _aligned(metric: Any) -> QAAligned:
    if not isinstance(metric, Metric):
        raise MetricInputError("it is no rewards.Metric, which names what it needs and the bounds of its scores")
    return QAAligned(metric)


def _scores(aligned: QAAligned, sets: PairSets, pairs: Sequence[Sequence[Pair]], path: Path) -> dict[str, Floats]:
    """The parts of each passage."""
    human = [[person.pair for person in people] for people in sets.human]
    note = {
        "signature": aligned.signature,
        "passages": len(pairs),
        "texts": texts_hash(zip(pairs, human, strict=True)),
    }

    def batch(start: int, end: int) -> list[list[float]]:
        aligned.metric.reset_cache()
        columns = aligned.score(pairs[start:end], human[start:end]).columns()
        return [list(parts) for parts in zip(*columns.values(), strict=True)]

    rows = kept_scores(path, note, len(pairs), batch, batch_size=PASSAGES_AT_ONCE, unit="passage")
    return dict(zip(PairScores.parts(), np.array(rows).T, strict=True))


def _estimate(means: Floats, values: Floats, draws: PassageDraws) -> dict[str, Any]:
    known = int(np.isfinite(values).sum())
    return estimate(means, known, passages=known if known < 2 else draws.passages, why="no pairs").to_dict()


def _tests(draws_of: Mapping[str, Columns], draws: PassageDraws) -> Rows:
    """The difference of every two files in every measure that has a better side, on the same passages; p before and
    after Holm's correction over all of them. `better` names the better file where p_holm < 0.05.
    """
    rows: Rows = []
    for first, second in combinations(draws_of, 2):
        for (metric, part), values in draws_of[first].items():
            if metric in UNTESTED:
                continue
            gap = difference(values, draws_of[second][metric, part])
            row: dict[str, Any] = {"metric": metric, "part": part, "predictions": first, "against": second}
            row |= estimate(gap, draws.passages, passages=draws.passages, why="no pairs").to_dict()
            rows.append({**row, "p": difference_p(gap, draws.passages)})
    tested = [row for row in rows if row["p"] is not None]
    for row, corrected in zip(tested, holm([row["p"] for row in tested]), strict=True):
        ahead = (row["value"] > 0) != (row["metric"] in LOWER_IS_BETTER)
        better = row["predictions"] if ahead else row["against"]
        row |= {"p_holm": corrected, "family": len(tested), "better": better if corrected < 0.05 else None}
    return rows
