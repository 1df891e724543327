"""Robustness: whether metrics notice that a question has become wrong, and accept it in other words.

Human questions are made wrong by one change, and paraphrased (`rl_qg.judging.alterations`); a metric is
evaluated by the area under the ROC curve of paraphrases against wrong questions. A row without references has the
human question as its reference. Writes `questions.jsonl` (every question made, with what was changed),
`robustness.json`, `.txt`, `.html` and CSV. The same command after a kill goes on.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rl_qg.data.examples import by_key
from rl_qg.data.question_tables import QuestionTable
from rl_qg.evaluation.predictions import passage_groups
from rl_qg.judging.alterations import (
    ORIGINAL,
    PARAPHRASE,
    AlteredQuestion,
    Paraphraser,
    alter_questions,
    check_settings,
    read_questions,
    write_questions,
)
from rl_qg.pages.results import Page, Table, as_text, estimate_text, joined_rows, template_lines, write_results
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml
from rl_qg.scoring.kept_scores import check_rows, comparable_scores
from rl_qg.scoring.reward_scorer import Reward, signature_of
from rl_qg.settings import RobustnessSettings
from rl_qg.stats.correlation import auc_draws
from rl_qg.stats.intervals import SHARE, Floats, PassageDraws, estimate, few_passages, quotient

log = logging.getLogger(__name__)
SHOWN = 3  # examples of each kind on the page
NOTES: dict[str, str] = packaged_yaml(__file__, "notes.yaml")


@dataclass(frozen=True)
class TrainedInFolds:
    """The score of each question (logit of a paraphrase against a wrong question), and the area in each fold."""

    scores: Floats
    areas: list[float]
    signature: str


class Classifier(Protocol):
    """What learns to tell paraphrases from wrong questions, such as those of `experiments/robustness`."""

    @property
    def reads_references(self) -> bool: ...

    def train_in_folds(
        self,
        label: str,
        questions: Sequence[AlteredQuestion],
        groups: Sequence[str],
        folder: Path,
        *,
        seed: int,
        use_cpu: bool,
    ) -> TrainedInFolds:
        """Score each question by a classifier that saw none of its passage (`groups`); `folder` keeps the scores."""


def robustness(
    metrics: Mapping[str, Reward],
    settings: RobustnessSettings,
    folder: Path,
    *,
    classifiers: Mapping[str, Classifier] | None = None,
    paraphraser: Paraphraser | None = None,
    use_cpu: bool = False,
) -> dict[str, Any]:
    """Make questions, score them by metrics and classifiers, write the results to `folder`; return the record."""
    check_settings(settings)
    if both := [label for label in classifiers or {} if label in metrics]:
        raise InputError(f"supervised: there is a metric {both[0]!r} already; give this one another label")
    if not settings.input:
        raise InputError("input has no value; give human questions, such as input=dev.json")
    source = QuestionTable(settings.input, asdict(settings.columns))
    originals, in_file = read_questions(source, settings)
    questions, counts = alter_questions(originals, settings, folder / "translations", paraphraser, use_cpu=use_cpu)
    rows = [question.row for question in questions]
    groups = passage_groups(rows)
    draws = PassageDraws(groups, resamples=settings.resamples, seed=settings.seed)
    check_rows(metrics, rows)
    write_questions(folder / "questions.jsonl", questions)
    scores = comparable_scores(metrics, rows, folder / "scores", batch_size=settings.batch_size)
    signatures = {label: signature_of(metric) for label, metric in metrics.items()}
    of_references = {name for name, metric in metrics.items() if "references" in getattr(metric, "needs", ())}
    supervised: list[dict[str, Any]] = []
    for label, classifier in (classifiers or {}).items():
        trained = classifier.train_in_folds(label, questions, groups, folder, seed=settings.seed, use_cpu=use_cpu)
        scores[label], signatures[label] = trained.scores, trained.signature
        supervised.append({"metric": label, "folds": trained.areas, "mean": float(np.mean(trained.areas))})
        of_references |= {label} if classifier.reads_references else set()
    has_reference = np.array([one.row.references != (originals[one.number].question,) for one in questions])
    results: list[dict[str, Any]] = []
    for label, values in scores.items():
        informative = has_reference if label in of_references else np.ones_like(has_reference)
        results += _areas(label, values, questions, draws, settings.kinds, informative)
    missing = {label: int(np.isnan(values).sum()) for label, values in scores.items()}
    without, total = sum(row.references == (row.question,) for row in originals), counts["questions"]
    counts |= {"in_file": in_file, "passages": draws.passages}
    counts |= {"without_score": {label: count for label, count in missing.items() if count}}
    references = "the human question itself" if without == total else "those of the input"
    if 0 < without < total:
        references += f"; for {without:,} of {total:,} questions the human question itself"
    record = {
        "input": source.hashes(),
        "settings": asdict(settings),
        "counts": {**counts, "without_references": without},
        "references": references,
        "signatures": signatures,
        "results": results,
        "supervised": supervised,
    }
    title = ", ".join(path.name for path in source.paths)
    options = {"kinds": [*settings.kinds, PARAPHRASE], "few": few_passages(draws.passages)}
    facts = template_lines("rl_qg.judging", "robustness_facts.txt", **record, **options)
    page = Page("robustness", title, facts, _tables(record, questions), signatures)
    write_results(folder, "robustness", record, page, {"results": results})
    log.info("%s\ndone: open %s", as_text(page), folder / "robustness.html")
    return record


def _areas(
    label: str,
    scores: Floats,
    questions: Sequence[AlteredQuestion],
    draws: PassageDraws,
    kinds: Sequence[str],
    informative: NDArray[np.bool_],
) -> list[dict[str, Any]]:
    """For each kind, and all of them: the area with paraphrases as the good questions, with the originals, and the
    fraction of questions whose paraphrase scores above their own wrong form.

    `informative` (questions,): whether the metric does not compare the original with itself.
    """
    kind_of = np.array([question.kind for question in questions])
    rows: list[dict[str, Any]] = []
    for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
        bad = np.isin(kind_of, kinds) if kind == "all" else kind_of == kind
        row: dict[str, Any] = {"metric": label, "kind": kind, "wrong": int(bad.sum())}
        for key, usable in ((PARAPHRASE, np.ones_like(informative)), (ORIGINAL, informative)):
            good = kind_of == key
            index = np.flatnonzero((good | bad) & usable & np.isfinite(scores))
            area = auc_draws(scores[index], good[index], draws, index) if len(index) else np.full(2, np.nan)
            why = "one kind alone" if usable.any() else "the question is its own reference"
            row[key] = estimate(area, len(index), passages=draws.units_of(index), why=why, bounds=SHARE).to_dict()
        rows.append(row | {"own_pair": _own_pairs(scores, questions, bad, draws)})
    return rows


def _own_pairs(
    scores: Floats, questions: Sequence[AlteredQuestion], bad: NDArray[np.bool_], draws: PassageDraws
) -> dict[str, Any]:
    """How often a question's paraphrase scores above its own wrong form, ties counted half."""
    paraphrases = by_key((one.number, index) for index, one in enumerate(questions) if one.kind == PARAPHRASE)
    counts = np.zeros((len(questions), 3))  # pairs, paraphrases above (ties half), ties
    for index in map(int, np.flatnonzero(bad)):
        for paraphrase in paraphrases.get(questions[index].number, ()):
            gap = scores[paraphrase] - scores[index]
            if np.isfinite(gap):
                counts[index] += (1, float(gap > 0) + 0.5 * float(gap == 0), float(gap == 0))
    sums = draws.sums(counts)
    fractions, units = quotient(sums[:, 1], sums[:, 0]), draws.units_of(counts[:, 0] > 0)
    statistic = estimate(fractions, int(sums[0, 0]), passages=units, why="no question has both", bounds=SHARE)
    return {**statistic.to_dict(), "ties": int(sums[0, 2])}


def _tables(record: Mapping[str, Any], questions: Sequence[AlteredQuestion]) -> list[Table]:
    results = record["results"]
    note = NOTES["areas"]
    tables = [Table("Paraphrases against wrong questions: area (0–1)", _by_metric(results, PARAPHRASE), note)]
    if any(row[ORIGINAL]["value"] is not None for row in results):
        title = "Questions as they were against wrong questions: area (0–1)"
        tables.append(Table(title, _by_metric(results, ORIGINAL), note))
    if record["supervised"]:
        folds = [
            {"metric": row["metric"]}
            | {f"fold {number}": f"{area:.3f}" for number, area in enumerate(row["folds"], 1)}
            | {"mean": f"{row['mean']:.3f}"}
            for row in record["supervised"]
        ]
        tables.append(Table("Classifiers in each fold: area (0–1)", folds, NOTES["in_folds"]))
    own = "A question's paraphrase against its own wrong form: fraction of pairs (0–1)"
    examples = Table("Examples", _examples(questions))
    return [*tables, Table(own, _by_metric(results, "own_pair"), "Ties count half."), examples]


def _by_metric(results: Sequence[Mapping[str, Any]], part: str) -> list[dict[str, str]]:
    compared = {kind: max(sizes) for kind, sizes in by_key((row["kind"], row[part]["n"]) for row in results).items()}
    return joined_rows(
        results, ("metric",), lambda row: {f"{row['kind']} ({compared[row['kind']]:,})": estimate_text(row[part])}
    )


def _examples(questions: Sequence[AlteredQuestion]) -> list[dict[str, str]]:
    originals = {question.number: question.row.question for question in questions if question.kind == ORIGINAL}
    made = by_key((question.kind, question) for question in questions if question.kind != ORIGINAL)
    return [
        {"kind": kind, "question": originals[one.number], "made": one.row.question}
        for kind, of_kind in made.items()
        for one in of_kind[:SHOWN]
    ]
