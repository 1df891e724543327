"""Sets of questions: all questions of a file about a passage against all human questions about it.

Multi-M for every metric M that compares a question with references, Self-BLEU, and the difference in number
(`rewards.question_sets`), as means over passages with intervals; and `rl_qg.evaluation.set_measures`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rewards.base import Metric
from rewards.errors import MetricInputError
from rewards.question_sets import (
    Multi,
    cardinality_difference,
    cardinality_signature,
    self_bleu,
    self_bleu_signature,
)
from rl_qg.confidence_intervals import PassageDraws, estimate
from rl_qg.data.examples import passage_hash
from rl_qg.evaluation import set_measures
from rl_qg.evaluation.metric_scores import MetricRow, kept_scores, texts_hash
from rl_qg.evaluation.references import GoldQuestions
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError

PASSAGES_AT_ONCE = 32
PARTS = ("precision", "recall", "f1", "averaged")
SELF_BLEU, MISSING = "self-BLEU2", "references less questions"
Rows = list[dict[str, Any]]
Questions = list[list[str]]


@dataclass(frozen=True)
class PassageSets:
    """For each passage, in the same order: its text, the human questions, and the questions of each file (none where
    only another file asks about it); and the number of passages with human questions that no file asks about.
    """

    contexts: list[str]
    references: Questions
    predictions: dict[str, Questions]
    left_out: int = 0

    def counts(self) -> dict[str, Any]:
        """Of passages: all in the sets, those that a file does not ask about, and those that no file does."""
        without = {name: sum(not questions for questions in sets) for name, sets in self.predictions.items()}
        return {"passages": len(self.contexts), "without_questions": without, "left_out": self.left_out}


def passage_sets(
    files: Mapping[str, Sequence[MetricRow]], gold: GoldQuestions | None, empty: Sequence[MetricRow] = ()
) -> PassageSets:
    """The sets of every passage that some file asks about, and of those of `empty`, rows of passages about which some
    file says that it asks nothing.

    With `gold` the references are all its questions about the passage, else those of the rows. A reference that is
    repeated in `gold` or in a row counts as often, as in `rewards.match_sets`; several rows may name the same one.

    Raises:
        InputError: a row without a passage, or a passage without references.
    """
    first: dict[str, MetricRow] = {}
    questions: dict[str, dict[str, list[str]]] = {name: {} for name in files}
    references: dict[str, Counter[str]] = {}
    for name, row in [*((name, row) for name, rows in files.items() for row in rows), *((None, row) for row in empty)]:
        if row.context is None:
            raise InputError(f"{row.where}: no 'context', and sets=true takes questions together by it")
        passage = passage_hash(row.context)
        first.setdefault(passage, row)
        if name is not None:
            questions[name].setdefault(passage, []).append(row.question)
        human = row.references or () if gold is None else gold.of_passage(row.context)
        references[passage] = references.get(passage, Counter()) | Counter(human)  # of each the larger number
    for passage, row in first.items():
        if not references[passage]:
            raise InputError(f"{row.where}: no references, and sets=true compares with them; give references=")
    predictions = {name: [sets.get(passage, []) for passage in first] for name, sets in questions.items()}
    contexts = [row.context or "" for row in first.values()]
    left_out = 0 if gold is None else gold.passages - len(first)
    return PassageSets(contexts, [list(references[passage].elements()) for passage in first], predictions, left_out)


def set_record(
    sets: PassageSets,
    metrics: Mapping[str, Reward],
    folder: Path,
    *,
    resamples: int,
    seed: int,
    gap: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Means over passages: `sets`, one row for each file, metric and part; `set_counts`; `set_signatures`;
    `not_in_sets`, why metrics are left out; `set_measures` and their signatures (`rl_qg.evaluation.set_measures`),
    with Multi-M of one half of the human questions against the other, and with `gap`, the names of the files of random
    and oracle choice, the share of their difference in F1 that every other file has.

    The parts of Multi-M are precision, recall, their F1, and the score against all references at once (`averaged`).
    Scores below 0, as embeddings may have them, count as 0, like pairs that are left out. Those of each passage are
    kept in `folder`, so that a command that was killed goes on.
    """
    draws = PassageDraws(range(len(sets.contexts)), resamples=resamples, seed=seed)
    halves = _halves(sets, seed)
    draws_of_halves = (
        PassageDraws(range(len(halves.contexts)), resamples=resamples, seed=seed) if halves.contexts else None
    )
    measures = set_measures.measure_rows(sets.predictions, sets.references, sets.contexts, draws)
    rows: Rows = []
    signatures = {SELF_BLEU: self_bleu_signature(), MISSING: cardinality_signature()}
    left_out: dict[str, str] = {}
    for label, metric in metrics.items():
        try:
            multi = multi_of(metric)
            columns = {
                name: _scores(multi, sets, questions, folder / quote(name, safe="") / f"{label}.jsonl")
                for name, questions in sets.predictions.items()
            }
        except MetricInputError as error:
            left_out[label] = str(error)
            continue
        signatures[label] = multi.signature
        for name, scores in columns.items():
            rows += _means(name, label, scores, draws)
        if draws_of_halves is not None:
            ((name, questions),) = halves.predictions.items()
            scores = _scores(multi, halves, questions, folder.with_name("set_halves") / f"{label}.jsonl")
            measures += _means(name, label, scores, draws_of_halves)
        if gap is not None:
            f1 = {name: np.asarray(scores["f1"]) for name, scores in columns.items()}
            measures += set_measures.gap_rows(label, f1, gap, draws)
    for name, questions in sets.predictions.items():
        rows += _means(name, SELF_BLEU, {"mean": self_bleu(questions)}, draws)
        rows += _means(name, MISSING, {"mean": cardinality_difference(questions, sets.references)}, draws)
    return {
        **{"sets": rows, "set_counts": sets.counts(), "set_signatures": signatures, "not_in_sets": left_out},
        **{"set_measures": measures, "set_measure_signatures": dict(set_measures.SIGNATURES)},
    }


def _halves(sets: PassageSets, seed: int) -> PassageSets:
    """One half of the human questions as predictions, the other as references, of passages with at least two."""
    drawn = set_measures.halves(sets.references, sets.contexts, seed)
    contexts = [sets.contexts[number] for number, _, _ in drawn]
    return PassageSets(contexts, [other for _, _, other in drawn], {set_measures.HALVES: [one for _, one, _ in drawn]})


def multi_of(metric: Any) -> Multi:
    """Multi-M of a metric; `MetricInputError` where it cannot judge sets."""
    if not isinstance(metric, Metric):
        raise MetricInputError(
            "it is no rewards.Metric, which names the columns it needs and the bounds of its scores"
        )
    if "answers" in metric.needs:
        raise MetricInputError("it needs an answer, and the questions of a set have several")
    return Multi(metric, clip=metric.bounds[0] < 0)


def _scores(multi: Multi, sets: PassageSets, questions: Questions, path: Path) -> dict[str, list[float]]:
    """Each part, of each passage."""
    texts = texts_hash(zip(questions, sets.references, sets.contexts, strict=True))
    note = {"signature": multi.signature, "passages": len(questions), "texts": texts}

    def batch(start: int, end: int) -> list[list[float]]:
        multi.metric.reset_cache()
        scores = multi.score(questions[start:end], sets.references[start:end], sets.contexts[start:end])
        return [list(parts) for parts in zip(*(getattr(scores, part) for part in PARTS), strict=True)]

    rows = kept_scores(path, note, len(questions), batch, batch_size=PASSAGES_AT_ONCE, unit="passage")
    return dict(zip(PARTS, map(list, zip(*rows, strict=True)), strict=True))


def _means(name: str, label: str, columns: Mapping[str, Sequence[float]], draws: PassageDraws) -> Rows:
    sums = draws.sums(np.column_stack([*columns.values()])) / draws.passages
    return [
        {
            **{"predictions": name, "metric": label, "part": part},
            **estimate(sums[:, column], draws.passages, passages=draws.passages).to_dict(),
        }
        for column, part in enumerate(columns)
    ]
