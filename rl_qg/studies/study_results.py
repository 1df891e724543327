"""What a study measured, and the files of it: `study.json` with everything, tables as Markdown and CSV, curves.

Every number comes from the files of finished jobs, so that a part of the grid can be read while the rest runs.

A difference is taken question by question and seed by seed. Its interval is that of the bootstrap over passages and
seeds (`rl_qg.stats.intervals.PassageDraws`), and so is its p-value. Three questions are asked, each with its own
differences: does augmentation help (each cell against the reader on gold questions alone), does a reward help (each
generator against the one it started from), and which of two generators is better (the pairs of the study file). The
differences of one kind in one score on one validation set are one family; Holm's correction is over the family.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.data.examples import QAExample, by_key, passage_hash
from rl_qg.data.reading import read_examples
from rl_qg.generation.answer_rules import rule_spans
from rl_qg.pages.results import as_csv
from rl_qg.reports.run_files import SCORES, read_metrics
from rl_qg.reports.study_view import FILE, NO_GENERATOR, study_markdown, tables, write_curves
from rl_qg.runtime.files import read_record, write_json, write_text
from rl_qg.runtime.run_folder import TRAINED, git_state, hardware, package_versions
from rl_qg.stats.intervals import (
    PERCENT,
    Bounds,
    Interval,
    PassageDraws,
    add_holm,
    bounds_of_difference,
    difference_p,
    seed_interval,
)
from rl_qg.studies.jobs import is_done, seconds_of
from rl_qg.studies.study import ALL, Cell, Grid, Study, StudyExamples
from rl_qg.text.question_types import question_type

QUESTIONS = {"augmentation": "gain over gold alone", "reward": "gain by reward", "pair": "difference of generators"}
SYNTHETIC = "synthetic-"
SHOWN_MEASURES = ("reward_greedy", "held_out", "bleu4", "length_words", "kl")  # `eval_*` of the self-critical stage
FEWEST = 20  # questions of a type, below which its gain is not shown
OTHER = "other"
POINTS = bounds_of_difference(PERCENT)


@dataclass(frozen=True)
class CellGroup:
    """The finished readers of one cell of the grid, one for each seed."""

    resource: str
    generator: str
    filter: str
    amount: float
    cells: tuple[Cell, ...]

    @property
    def seeds(self) -> list[int]:
        return [cell.seed for cell in self.cells]

    @property
    def name(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("resource", "generator", "filter", "amount")}

    def reports(self) -> list[dict[str, Any]]:
        """Those of the filters; none of the reader on gold questions alone."""
        jobs = [cell.augment for cell in self.cells]
        return [read_record(job.results / "augmented.report.json") for job in jobs if job is not None]


@dataclass(frozen=True)
class Measured:
    """A score of a cell, or its difference to that of another cell: (seeds, questions), in percent."""

    seeds: list[int]
    values: np.ndarray
    draws: PassageDraws

    @cached_property
    def means(self) -> np.ndarray:
        return self.draws.means_over_seeds(self.values)

    def interval(self, bounds: Bounds | None) -> Interval:
        return seed_interval(self.means, self.values, self.draws, bounds=bounds)

    def p(self) -> float:
        p = difference_p(self.means, self.draws.units_of(), self.draws.degrees_over_seeds(self.values))
        return 1.0 if p is None else p  # of one passage nothing is certain

    def by_seed(self) -> list[float]:
        return [round(float(mean), 4) for mean in self.values.mean(axis=1)]


class StudyResults:
    """The scores of all finished readers, and the bootstrap draws that they share."""

    def __init__(self, study: Study, examples: StudyExamples, grid: Grid) -> None:
        self.study, self.examples = study, examples
        self.ids = [example.id for example in examples.validation]
        self.passages = np.array([passage_hash(example.context) for example in examples.validation])
        cells = by_key(((one.resource, one.generator, one.filter, one.amount), one) for one in grid.cells)
        done = {name: tuple(one for one in some if is_done(one.reader)) for name, some in cells.items()}
        self.groups = tuple(CellGroup(*name, finished) for name, finished in done.items() if finished)
        self.augmented = [group for group in self.groups if group.generator != NO_GENERATOR]
        self._scores: dict[str, dict[str, np.ndarray]] = {}
        self._draws: dict[tuple[str, int], PassageDraws] = {}

    @cached_property
    def sets(self) -> dict[str, np.ndarray]:
        """The indices of each validation set's questions; of several sets, those of all together too."""
        names = np.array([self.examples.sets[key] for key in self.ids])
        sets = {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}
        return {ALL: np.arange(len(names)), **(sets if len(sets) > 1 else {})}

    def measured(
        self, score: str, key: str, indices: np.ndarray | slice, group: CellGroup, against: CellGroup | None = None
    ) -> Measured:
        """For the questions at these indices, whose draws are made once for each `key` and number of seeds."""
        seeds = [seed for seed in group.seeds if against is None or seed in against.seeds]
        values = self._percent(group, score, seeds)
        if against is not None:
            values = values - self._percent(against, score, seeds)
        if (key, len(seeds)) not in self._draws:
            passages = self.passages[indices].tolist()
            self._draws[key, len(seeds)] = PassageDraws(passages, seeds=len(seeds), resamples=self.study.resamples)
        return Measured(seeds, values[:, indices], self._draws[key, len(seeds)])

    def _percent(self, group: CellGroup, score: str, seeds: Sequence[int]) -> np.ndarray:
        for cell in group.cells:
            if cell.reader.name not in self._scores:
                table = read_record(cell.reader.results / "question_scores.json")
                self._scores[cell.reader.name] = {
                    name: 100 * np.array([table[key][name] for key in self.ids], dtype=np.float64) for name in SCORES
                }
        return np.stack([self._scores[cell.reader.name][score] for cell in group.cells if cell.seed in seeds])

    def baseline(self, group: CellGroup) -> CellGroup | None:
        """The reader on gold questions alone, where it has seeds in common."""
        alone = [one for one in self.groups if one.resource == group.resource and one.generator == NO_GENERATOR]
        return alone[0] if alone and not {*alone[0].seeds}.isdisjoint(group.seeds) else None

    def pairs(self) -> Iterator[tuple[str, CellGroup, CellGroup]]:
        """The question, and two cells to compare that have seeds in common."""
        groups = {(group.resource, group.filter, group.amount, group.generator): group for group in self.groups}
        for group in self.augmented:
            others = [("reward", self.study.generators[group.generator].start)]
            others += [("pair", second) for first, second in self.study.comparisons if first == group.generator]
            cell = (group.resource, group.filter, group.amount)
            candidates = [(question, groups.get((*cell, other or ""))) for question, other in others]
            for question, against in [("augmentation", self.baseline(group)), *candidates]:
                if against is not None and not {*against.seeds}.isdisjoint(group.seeds):
                    yield question, group, against

    def is_largest(self, group: CellGroup) -> bool:
        alike = [one for one in self.groups if one.name | {"amount": 0} == group.name | {"amount": 0}]
        return group.amount == max(one.amount for one in alike)


def cell_rows(results: StudyResults) -> list[dict[str, Any]]:
    rows = []
    for group in results.groups:
        added = [report["sampled"] for report in group.reports()] or [0] * len(group.cells)
        requested = group.cells[0].requested
        row: dict[str, Any] = {**group.name, "gold": group.cells[0].gold, "asked": requested}
        row |= {"got": added, "short": min(added) < requested, "seeds": group.seeds, "scores": {}}
        for name, indices in results.sets.items():
            scores = {score: results.measured(score, name, indices, group) for score in SCORES}
            row["scores"][name] = {
                score: asdict(one.interval(PERCENT)) | {"by_seed": one.by_seed()} for score, one in scores.items()
            }
        rows.append(row)
    return rows


def test_rows(results: StudyResults) -> list[dict[str, Any]]:
    """One row for each difference, score and set, with its p-value before and after Holm's correction."""
    rows: list[dict[str, Any]] = []
    for question, group, against in results.pairs():
        for name, indices in results.sets.items():
            for score in SCORES:
                one = results.measured(score, name, indices, group, against)
                row = {"question": question, **group.name, "against": against.generator, "set": name, "score": score}
                row |= {**asdict(one.interval(POINTS)), "seeds": one.seeds, "by_seed": one.by_seed(), "p": one.p()}
                rows.append(row)
    for family in by_key(((row["question"], row["score"], row["set"]), row) for row in rows).values():
        add_holm(family)
    return rows


def explain(results: StudyResults) -> dict[str, list[dict[str, Any]]]:
    """One list of rows for each table, about the largest finished amount of each generator and filter."""
    largest = [group for group in results.augmented if results.is_largest(group)]
    return {
        "filters": [_filter_row(group) for group in largest],
        "questions": list(_question_rows(results, largest)),
        "rewards": list(_reward_rows(results)),
        **{name: list(_gain_rows(results, largest, *kind)) for name, kind in KINDS.items()},
    }


def answer_type(example: QAExample) -> str:
    """The kind of the first answer by the rules that propose answers (date, name, …); `other`: they would not."""
    answer = example.answers[0]
    return _kinds(example.context).get((answer.start, answer.start + len(answer.text)), OTHER)


@lru_cache(maxsize=1024)
def _kinds(context: str) -> dict[tuple[int, int], str]:
    return {(span.start, span.end): span.kind for span in rule_spans(context)}


def answer_length(example: QAExample) -> str:
    words = len(example.answers[0].text.split())
    return "1" if words == 1 else "2–3" if words <= 3 else "4 or more"


# Kinds of evaluation questions: for each table a column, and what is in it.
KINDS: dict[str, tuple[str, Callable[[QAExample], str]]] = {
    "gain_by_question_type": ("question type", lambda example: question_type(example.question)),
    "gain_by_answer_type": ("answer type", answer_type),
    "gain_by_answer_length": ("answer words", answer_length),
}


def _filter_row(group: CellGroup) -> dict[str, Any]:
    reports = group.reports()
    reasons = dict.fromkeys(reason for report in reports for reason in report["dropped"])
    measured = [{name: one.get("mean") for name, one in report["measures"].items()} for report in reports]
    common = [name for name in measured[0] if all(means.get(name) is not None for means in measured)]
    candidates = [report["candidates"] for report in reports]

    def share(counts: Iterable[int]) -> float:
        return _mean(count / total for count, total in zip(counts, candidates, strict=True))

    return {
        **group.name,
        "seeds": group.seeds,
        "candidates": _mean(candidates),
        "dropped": {reason: share(report["dropped"].get(reason, 0) for report in reports) for reason in reasons},
        "kept": share(report["kept"] for report in reports),
        "sampled": _mean(report["sampled"] for report in reports),
        "measures": {name: _mean(means[name] for means in measured) for name in common},
    }


def _question_rows(results: StudyResults, groups: Sequence[CellGroup]) -> Iterator[dict[str, Any]]:
    for name, data in results.examples.resources.items():
        yield {"resource": name, "questions": "gold", **_described(data.gold)}
    yield {"resource": "", "questions": "evaluation", **_described(results.examples.validation)}
    for group in groups:
        jobs = [cell.augment for cell in group.cells if cell.augment is not None]
        files = [read_examples(job.results / "augmented.json", role="train").examples for job in jobs]
        added = [[example for example in examples if example.id.startswith(SYNTHETIC)] for examples in files]
        yield {"resource": group.resource, "questions": f"{group.generator}, {group.filter}", **_described(*added)}


def _described(*sets: Sequence[QAExample]) -> dict[str, Any]:
    """Of the sets of some seeds; number and share of distinct questions are means, for two seeds may ask the same."""
    examples = [*chain.from_iterable(sets)]
    if not examples:
        return {"count": 0}
    return {
        "count": round(len(examples) / len(sets)),
        "words": _mean(len(example.question.split()) for example in examples),
        "answer_words": _mean(len(example.answers[0].text.split()) for example in examples),
        "distinct": _mean(len({example.question for example in one}) / len(one) for one in sets if one),
        "question_types": _fractions(question_type(example.question) for example in examples),
        "answer_types": _fractions(map(answer_type, examples)),
    }


def _reward_rows(results: StudyResults) -> Iterator[dict[str, Any]]:
    """How training changed rewards and held-out measures on development passages; F1 gained over where it began."""
    for resource, generator in dict.fromkeys((group.resource, group.generator) for group in results.groups):
        groups = [group for group in results.groups if (group.resource, group.generator) == (resource, generator)]
        runs = dict.fromkeys(cell.run for group in groups for cell in group.cells)  # one may be that of several seeds
        metrics = [read_metrics(run / "metrics.jsonl") for run in runs if run is not None and _signature_of(run)]
        if not metrics:
            continue
        row: dict[str, Any] = {"resource": resource, "generator": generator, "seeds": len(metrics)}
        for measure in SHOWN_MEASURES:
            series = [values for one in metrics if (values := one.self_critical(f"eval_{measure}"))]
            if series:
                row[measure] = {"from": _mean(values[0] for values in series), "to": _mean(one[-1] for one in series)}
        for question, group, against in results.pairs():
            if question == "reward" and group in groups and results.is_largest(group):
                gain = results.measured("f1", ALL, slice(None), group, against).interval(POINTS)
                name = f"F1 over {against.generator}, {group.filter} {group.amount:g} ×"
                row[name] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
        yield row


def _gain_rows(
    results: StudyResults, groups: Sequence[CellGroup], label: str, kind: Callable[[QAExample], str]
) -> Iterator[dict[str, Any]]:
    kinds = [kind(example) for example in results.examples.validation]
    counts = Counter(kinds)
    kinds = [name if counts[name] >= FEWEST else f"{OTHER} (rare)" for name in kinds]
    for name, count in Counter(kinds).most_common():
        indices = np.flatnonzero(np.array(kinds) == name)
        for group in groups if count >= FEWEST else ():
            if baseline := results.baseline(group):
                gain = results.measured("f1", f"{label} {name}", indices, group, baseline).interval(POINTS)
                yield {**group.name, label: name, "count": count, **asdict(gain)}


def _fractions(names: Iterable[str]) -> dict[str, float]:
    counts = Counter(names)
    return {name: count / counts.total() for name, count in counts.most_common()}


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _signature_of(run: Path | None) -> str | None:
    """The signature of the reward that a generator learned from; None for cross-entropy and where no file says."""
    return read_record(run / TRAINED).get("reward") if run is not None and (run / TRAINED).exists() else None


def write_study_output(
    results: StudyResults, grid: Grid, failed: Mapping[str, str], skipped: Sequence[str]
) -> dict[str, Any]:
    """Write everything about the jobs done so far to the study's folder, and return what `study.json` holds."""
    study, folder = results.study, results.study.output_dir
    done = [job for job in grid.jobs if is_done(job)]
    seconds = by_key((job.kind, seconds_of(job)) for job in done)
    several = len({one.resource for one in results.augmented}) > 1
    of_file = ("file", "preset", "settings", "seeds", "amounts", "filters", "resamples")
    record: dict[str, Any] = {
        "study": {key: getattr(study, key) for key in of_file},
        "code": git_state(Path(__file__)),
        "versions": package_versions(),
        "hardware": hardware(),
        "data": {"counts": dict(results.examples.counts), "sha256": dict(results.examples.sources)},
        "jobs": {
            "total": len(grid.jobs),
            "done": len(done),
            "failed": dict(failed),
            "left_out": list(skipped),
            "seconds": {kind: round(sum(each), 1) for kind, each in seconds.items()},
        },
        "rewards": {  # by resource too: miniatures learn from its text
            f"{one.generator}, resource {one.resource}" if several else one.generator: _signature_of(one.cells[0].run)
            for one in results.augmented
        },
        "questions": QUESTIONS,
        "sets": {name: len(indices) for name, indices in results.sets.items()},
        "cells": cell_rows(results),
        "tests": test_rows(results),
        "why": explain(results),
    }
    write_json(folder / FILE, record)
    for name, rows in tables(record).items():
        write_text(folder / "tables" / f"{name}.csv", as_csv(rows))
    write_text(folder / "tables.md", study_markdown(record))
    write_curves(record["cells"], len(study.seeds), folder)
    return record
