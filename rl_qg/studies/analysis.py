"""What a study measured: scores of every cell with intervals, differences between cells, and tests of these.

Every number comes from the files of finished jobs, so that a part of the grid can be read while the rest runs.

A difference is taken question by question and seed by seed. Its interval is that of the bootstrap over passages and
seeds (`rl_qg.confidence_intervals.PassageDraws`), and so is its p-value. Three questions are asked, each with its own
differences: does augmentation help (each cell against the reader on gold questions alone), does a reward help (each
generator against the one it started from), and which of two generators is better (the pairs of the study file). The
differences of one kind in one score on one validation set are one family; Holm's correction is over the family.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import PERCENT, Interval, PassageDraws, difference_p, holm, seed_interval
from rl_qg.data.examples import passage_hash
from rl_qg.reports.study_plots import NO_GENERATOR
from rl_qg.runtime.json_files import read_json
from rl_qg.studies.grid import Cell, Grid, is_done, signature_of
from rl_qg.studies.study_data import StudyExamples
from rl_qg.studies.study_file import ALL, Study

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
        """The seeds whose reader is done."""
        return tuple(cell.seed for cell in self.cells)

    @property
    def name(self) -> dict[str, Any]:
        """The fields by which the tables name it."""
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
    """One row for each cell: questions requested and added, and each score on each set, over seeds and passages."""
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
    """The reward that each generator learned from, as its metric prints it; None for those that learned from none."""
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
