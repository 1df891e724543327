"""The files that a study writes: `study.json` with everything, tables as Markdown and CSV, curves as pictures."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.data.reading import read_examples
from rl_qg.generation.answer_rules import rule_spans
from rl_qg.pages.results import as_csv
from rl_qg.reports.run_files import read_metrics
from rl_qg.reports.study_view import FILE, NO_GENERATOR, study_markdown, tables, write_curves
from rl_qg.runtime.files import atomic_writer, read_json, read_json_lines, write_json
from rl_qg.runtime.run_folder import git_state, hardware, package_versions
from rl_qg.stats.intervals import PERCENT, Interval, PassageDraws, difference_p, holm, seed_interval
from rl_qg.studies.jobs import is_done, job_record
from rl_qg.studies.study import ALL, Study, StudyExamples
from rl_qg.studies.study_grid import Cell, Grid, signature_of
from rl_qg.text.question_types import question_type

# What a study measured: scores of every cell with intervals, differences between cells, and tests of these.
#
# Every number comes from the files of finished jobs, so that a part of the grid can be read while the rest runs.
#
# A difference is taken question by question and seed by seed. Its interval is that of the bootstrap over passages and
# seeds (`rl_qg.stats.intervals.PassageDraws`), and so is its p-value. Three questions are asked, each with its
# own differences: does augmentation help (each cell against the reader on gold questions alone), does a reward help
# (each generator against the one it started from), and which of two generators is better (the pairs of the study
# file). The differences of one kind in one score on one validation set are one family; Holm's correction is over the
# family.


SCORES = ("exact_match", "f1")
QUESTIONS = {"augmentation": "gain over gold alone", "reward": "gain by reward", "pair": "difference of generators"}


@dataclass(frozen=True)
class CellGroup:
    """The finished readers of one cell of the grid, one for each seed."""

    resource: str
    generator: str
    filter: str
    amount: float
    cells: tuple[Cell, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(cell.seed for cell in self.cells)

    @property
    def name(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "generator": self.generator,
            "filter": self.filter,
            "amount": self.amount,
        }


class StudyResults:
    """The scores of all finished readers, and the bootstrap draws that they share."""

    def __init__(self, study: Study, examples: StudyExamples, grid: Grid) -> None:
        self.study, self.examples = study, examples
        self.ids = [example.id for example in examples.validation]
        self.passages = [passage_hash(example.context) for example in examples.validation]
        self.groups = tuple(_groups(grid))
        self._scores: dict[str, dict[str, np.ndarray]] = {}
        self._draws: dict[tuple[str, int], PassageDraws] = {}

    @cached_property
    def sets(self) -> dict[str, np.ndarray]:
        """The indices of each validation set's questions; of several sets, those of all together too."""
        names = np.array([self.examples.sets[key] for key in self.ids])
        sets = {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}
        return {ALL: np.arange(len(names)), **(sets if len(sets) > 1 else {})}

    def scores(self, group: CellGroup, score: str, seeds: Sequence[int]) -> np.ndarray:
        """Percent, (seeds, questions)."""
        return np.stack([self._of_reader(cell)[score] for cell in group.cells if cell.seed in seeds])

    def difference(self, group: CellGroup, against: CellGroup, score: str, seeds: Sequence[int]) -> np.ndarray:
        """Percentage points, (seeds, questions)."""
        return self.scores(group, score, seeds) - self.scores(against, score, seeds)

    def _of_reader(self, cell: Cell) -> dict[str, np.ndarray]:
        name = cell.reader.name
        if name not in self._scores:
            table = read_json(cell.reader.results / "question_scores.json")
            self._scores[name] = {
                score: 100 * np.array([table[key][score] for key in self.ids], dtype=np.float64) for score in SCORES
            }
        return self._scores[name]

    def draws(self, indices: np.ndarray, key: str, seeds: int) -> PassageDraws:
        """The draws for the questions at these indices, made once for each `key` and number of seeds."""
        if (key, seeds) not in self._draws:
            passages = [self.passages[index] for index in indices]
            self._draws[key, seeds] = PassageDraws(passages, seeds=seeds, resamples=self.study.resamples)
        return self._draws[key, seeds]


def cell_rows(results: StudyResults) -> list[dict[str, Any]]:
    rows = []
    for group in results.groups:
        added = [_sampled(cell) for cell in group.cells]
        requested = group.cells[0].requested
        row: dict[str, Any] = {**group.name, "gold": group.cells[0].gold, "asked": requested}
        row |= {"got": added, "short": min(added) < requested, "seeds": list(group.seeds), "scores": {}}
        for name, indices in results.sets.items():
            draws = results.draws(indices, name, len(group.seeds))
            row["scores"][name] = {}
            for score in SCORES:
                values = results.scores(group, score, group.seeds)[:, indices]
                row["scores"][name][score] = {
                    **asdict(seed_interval(draws.means_over_seeds(values), values, draws, bounds=PERCENT)),
                    "by_seed": _means_by_seed(values),
                }
        rows.append(row)
    return rows


def test_rows(results: StudyResults) -> list[dict[str, Any]]:
    """One row for each difference, score and set, with its p-value before and after Holm's correction."""
    rows = []
    for question, group, against in _pairs(results):
        seeds = _common_seeds(group, against)
        for name, indices in results.sets.items():
            draws = results.draws(indices, name, len(seeds))
            for score in SCORES:
                values = results.difference(group, against, score, seeds)[:, indices]
                means = draws.means_over_seeds(values)
                p = difference_p(means, draws.units_of(), draws.degrees_over_seeds(values))
                rows.append(
                    {
                        "question": question,
                        **group.name,
                        "against": against.generator,
                        "set": name,
                        "score": score,
                        **asdict(seed_interval(means, values, draws)),
                        "seeds": seeds,
                        "by_seed": _means_by_seed(values),
                        "p": 1.0 if p is None else p,  # of one passage nothing is certain
                    }
                )
    _correct(rows)
    return rows


def gain_over_gold(
    results: StudyResults, indices: np.ndarray, key: str, group: CellGroup, score: str
) -> Interval | None:
    """What a cell gains over gold questions alone on the validation questions at `indices`; None without common
    seeds. About `key` see `StudyResults.draws`.
    """
    baseline = _baseline(results, group.resource)
    seeds = _common_seeds(group, baseline) if baseline is not None else []
    if baseline is None or not seeds or not len(indices):
        return None
    values = results.difference(group, baseline, score, seeds)[:, indices]
    draws = results.draws(indices, key, len(seeds))
    return seed_interval(draws.means_over_seeds(values), values, draws)


def reward_gains(results: StudyResults, score: str) -> Iterator[tuple[CellGroup, CellGroup, Interval]]:
    """Each cell of a generator that learned by reward, that of the generator it started from, and the difference."""
    indices = np.arange(len(results.ids))
    for question, group, against in _pairs(results):
        if question == "reward":
            seeds = _common_seeds(group, against)
            values, draws = results.difference(group, against, score, seeds), results.draws(indices, ALL, len(seeds))
            yield group, against, seed_interval(draws.means_over_seeds(values), values, draws)


def signatures(results: StudyResults) -> dict[str, str | None]:
    return {
        group.generator: signature_of(group.cells[0].run)
        for group in results.groups
        if group.generator != NO_GENERATOR
    }


def _groups(grid: Grid) -> Iterator[CellGroup]:
    groups: dict[tuple[str, str, str, float], list[Cell]] = {}
    for cell in grid.cells:
        finished = groups.setdefault((cell.resource, cell.generator, cell.filter, cell.amount), [])
        if is_done(cell.reader):
            finished.append(cell)
    for name, cells in groups.items():
        if cells:
            yield CellGroup(*name, tuple(cells))


def _pairs(results: StudyResults) -> Iterator[tuple[str, CellGroup, CellGroup]]:
    """The question, and two cells to compare that have seeds in common."""
    study = results.study
    groups = {(group.resource, group.filter, group.amount, group.generator): group for group in results.groups}
    for (*cell, generator), group in groups.items():
        start = study.generators[generator].start if generator != NO_GENERATOR else None
        others = [("reward", start), *(("pair", second) for first, second in study.comparisons if first == generator)]
        candidates = [(question, groups.get((*cell, other))) for question, other in others]  # type: ignore[arg-type]
        if generator != NO_GENERATOR:
            candidates.insert(0, ("augmentation", _baseline(results, group.resource)))
        for question, against in candidates:
            if against is not None and _common_seeds(group, against):
                yield question, group, against


def _baseline(results: StudyResults, resource: str) -> CellGroup | None:
    return next(
        (group for group in results.groups if group.resource == resource and group.generator == NO_GENERATOR), None
    )


def _common_seeds(group: CellGroup, other: CellGroup) -> list[int]:
    return [seed for seed in group.seeds if seed in other.seeds]


def _means_by_seed(values: np.ndarray) -> list[float]:
    return [round(float(mean), 4) for mean in values.mean(axis=1)]


def _correct(rows: Sequence[dict[str, Any]]) -> None:
    families: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        families.setdefault((row["question"], row["score"], row["set"]), []).append(row)
    for family in families.values():
        for row, corrected in zip(family, holm([row["p"] for row in family]), strict=True):
            row |= {"p_holm": corrected, "family": len(family)}


def _sampled(cell: Cell) -> int:
    """How many generated questions a reader learned from."""
    if cell.augment is None:
        return 0
    report: Mapping[str, Any] = read_json(cell.augment.results / "augmented.report.json")
    return int(report["sampled"])


# Why readers gained or lost: what the filters dropped, what the added questions are like, how the rewards moved, and
# which evaluation questions gained.


SYNTHETIC = "synthetic-"
SHOWN_MEASURES = ("reward_greedy", "held_out", "bleu4", "length_words", "kl")  # `eval_*` of the self-critical stage
FEWEST = 20  # questions of a type, below which its gain is not shown
OTHER = "other"


def explain(results: StudyResults) -> dict[str, list[dict[str, Any]]]:
    """One list of rows for each table, about the largest finished amount of each generator and filter."""
    largest = [
        group
        for group in results.groups
        if group.generator != NO_GENERATOR and group.amount == _largest_amount(results, group)
    ]
    return {
        "filters": [_filter_row(group) for group in largest],
        "questions": list(_question_rows(results, largest)),
        "rewards": list(_reward_rows(results)),
        "gain_by_question_type": list(_gain_rows(results, largest, "question type", _question_type)),
        "gain_by_answer_type": list(_gain_rows(results, largest, "answer type", answer_type)),
        "gain_by_answer_length": list(_gain_rows(results, largest, "answer words", _answer_length)),
    }


# --- Types of questions and answers ---


def answer_type(example: QAExample) -> str:
    """The kind of the first answer by the rules that propose answers (date, number, name, …); `other` for a span that
    they would not propose.
    """
    answer = example.answers[0]
    return _kinds(example.context).get((answer.start, answer.start + len(answer.text)), OTHER)


@lru_cache(maxsize=1024)
def _kinds(context: str) -> dict[tuple[int, int], str]:
    return {(span.start, span.end): span.kind for span in rule_spans(context)}


def _question_type(example: QAExample) -> str:
    return question_type(example.question)


def _answer_length(example: QAExample) -> str:
    words = len(example.answers[0].text.split())
    return "1" if words == 1 else "2–3" if words <= 3 else "4 or more"


# --- Filters ---


def _filter_row(group: CellGroup) -> dict[str, Any]:
    reports = [_augmentation_report(cell) for cell in group.cells]
    reasons = dict.fromkeys(reason for report in reports for reason in report["dropped"])
    dropped = {
        reason: _mean(report["dropped"].get(reason, 0) / report["candidates"] for report in reports)
        for reason in reasons
    }
    measured = [_measured(report) for report in reports]
    common = [name for name in measured[0] if all(name in means for means in measured)]
    return {
        **group.name,
        "seeds": list(group.seeds),
        "candidates": _mean(report["candidates"] for report in reports),
        "dropped": dropped,
        "kept": _mean(report["kept"] / report["candidates"] for report in reports),
        "sampled": _mean(report["sampled"] for report in reports),
        "measures": {name: _mean(means[name] for means in measured) for name in common},
    }


def _augmentation_report(cell: Cell) -> dict[str, Any]:
    assert cell.augment is not None
    report: dict[str, Any] = read_json(cell.augment.results / "augmented.report.json")
    return report


def _measured(report: dict[str, Any]) -> dict[str, float]:
    """The mean over candidates of what models measured on them (round-trip F1, a reward), from the measures' files."""
    means = {}
    for name, measure in report.get("measures", {}).items():
        path = Path(measure["file"])
        lines = read_json_lines(path) if path.exists() else iter(())
        values = [line["value"] for _, line in lines if line["value"] is not None]
        if values:
            means[name] = _mean(values)
    return means


# --- Questions ---


def _question_rows(results: StudyResults, groups: Sequence[CellGroup]) -> Iterator[dict[str, Any]]:
    """What human questions, evaluation questions and added questions are like."""
    for name, data in results.examples.resources.items():
        yield {"resource": name, "questions": "gold", **_described(data.gold)}
    yield {"resource": "", "questions": "evaluation", **_described(results.examples.validation)}
    for group in groups:
        added = [example for cell in group.cells for example in _synthetic(cell)]
        yield {"resource": group.resource, "questions": f"{group.generator}, {group.filter}", **_described(added)}


def _synthetic(cell: Cell) -> list[QAExample]:
    assert cell.augment is not None
    examples = read_examples(cell.augment.results / "augmented.json", role="train").examples
    return [example for example in examples if example.id.startswith(SYNTHETIC)]


def _described(examples: Sequence[QAExample]) -> dict[str, Any]:
    if not examples:
        return {"count": 0}
    return {
        "count": len(examples),
        "words": _mean(len(example.question.split()) for example in examples),
        "answer_words": _mean(len(example.answers[0].text.split()) for example in examples),
        "distinct": len({example.question for example in examples}) / len(examples),
        "question_types": _fractions(_question_type(example) for example in examples),
        "answer_types": _fractions(answer_type(example) for example in examples),
    }


# --- Rewards ---


def _reward_rows(results: StudyResults) -> Iterator[dict[str, Any]]:
    """How training changed each generator's reward and held-out measures on the development passages; with what its
    questions gained for the reader, against those of the generator it started from.
    """
    for resource, generator in dict.fromkeys((group.resource, group.generator) for group in results.groups):
        groups = [group for group in results.groups if (group.resource, group.generator) == (resource, generator)]
        runs = {cell.seed: cell.run for group in groups for cell in group.cells if signature_of(cell.run)}
        changes = [_changes(run) for run in runs.values() if run is not None]
        if not changes:
            continue
        row: dict[str, Any] = {"resource": resource, "generator": generator, "seeds": len(changes)}
        for measure in SHOWN_MEASURES:
            ends = [change[measure] for change in changes if measure in change]
            if ends:
                row[measure] = {"from": _mean(start for start, _ in ends), "to": _mean(end for _, end in ends)}
        for group, against, gain in reward_gains(results, "f1"):
            if group in groups and group.amount == _largest_amount(results, group):
                name = f"F1 over {against.generator}, {group.filter} {group.amount:g} ×"
                row[name] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
        yield row


def _changes(run: Path) -> dict[str, tuple[float, float]]:
    metrics = read_metrics(run / "metrics.jsonl")
    series = {measure: metrics.self_critical(f"eval_{measure}") for measure in SHOWN_MEASURES}
    return {measure: (values[0], values[-1]) for measure, values in series.items() if values}


# --- Gains ---


def _gain_rows(
    results: StudyResults, groups: Sequence[CellGroup], label: str, kind: Callable[[QAExample], str]
) -> Iterator[dict[str, Any]]:
    """F1 gained over gold alone on the evaluation questions of each kind; rare kinds are put together."""
    kinds = [kind(example) for example in results.examples.validation]
    counts = Counter(kinds)
    kinds = [name if counts[name] >= FEWEST else f"{OTHER} (rare)" for name in kinds]
    for name, count in Counter(kinds).most_common():
        indices = np.flatnonzero(np.array(kinds) == name)
        for group in groups:
            gain = gain_over_gold(results, indices, f"{label} {name}", group, "f1")
            if gain is not None and count >= FEWEST:
                yield {**group.name, label: name, "count": count, **asdict(gain)}


def _largest_amount(results: StudyResults, group: CellGroup) -> float:
    """The largest finished amount of a group's resource, generator and filter."""
    key = (group.resource, group.generator, group.filter)
    return max(other.amount for other in results.groups if (other.resource, other.generator, other.filter) == key)


def _fractions(names: Iterable[str]) -> dict[str, float]:
    counts = Counter(names)
    return {name: count / counts.total() for name, count in counts.most_common()}


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def write_study_output(
    results: StudyResults, grid: Grid, failed: Mapping[str, str], skipped: Sequence[str]
) -> dict[str, Any]:
    """Write everything about the jobs done so far to the study's folder, and return what `study.json` holds."""
    study, folder = results.study, results.study.output_dir
    done = [job for job in grid.jobs if is_done(job)]
    record: dict[str, Any] = {
        "study": {
            "file": study.file,
            "preset": study.preset,
            "settings": study.settings,
            "seeds": study.seeds,
            "amounts": study.amounts,
            "filters": study.filters,
            "resamples": study.resamples,
        },
        "code": git_state(Path(__file__)),
        "versions": package_versions(),
        "hardware": hardware(),
        "data": {"counts": dict(results.examples.counts), "sha256": dict(results.examples.sources)},
        "jobs": {
            "total": len(grid.jobs),
            "done": len(done),
            "failed": dict(failed),
            "left_out": list(skipped),
            "seconds": _seconds(grid),
        },
        "rewards": signatures(results),
        "questions": QUESTIONS,
        "sets": {name: len(indices) for name, indices in results.sets.items()},
        "cells": cell_rows(results),
        "tests": test_rows(results),
        "why": explain(results),
    }
    write_json(folder / FILE, record)
    for name, rows in tables(record).items():
        with atomic_writer(folder / "tables" / f"{name}.csv") as stream:
            stream.write(as_csv(rows))
    with atomic_writer(folder / "tables.md") as stream:
        stream.write(study_markdown(record))
    write_curves(record["cells"], folder)
    return record


def _seconds(grid: Grid) -> dict[str, float]:
    totals: dict[str, float] = {}
    for job in grid.jobs:
        if is_done(job):
            totals[job.kind] = round(totals.get(job.kind, 0.0) + job_record(job)["seconds"], 1)
    return totals
