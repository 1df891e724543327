"""What a study found: scores of every cell with intervals, differences between them, and tests of these.

Every number comes from the files of finished jobs, so that a part of the grid can be looked at while the rest runs.

A difference is taken question by question and seed by seed. Its interval is that of the bootstrap over passages and
seeds (`rl_qg.confidence_intervals.Resampling`), and so is its p-value. Three questions are asked, each with differences of its
own: does augmentation help (each cell against the reader on gold alone), does a reward help (each generator against
the one it started from), and which of two generators is better (the pairs that the study file names). The differences
of one kind in one score on one validation set are one family; Holm's correction is over the whole family.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Interval, Resampling, holm, interval_of, two_sided_p
from rl_qg.data.examples import passage_hash
from rl_qg.reports.study_plots import NONE
from rl_qg.runtime.json_files import read_json
from rl_qg.studies.data import StudyExamples
from rl_qg.studies.file import ALL, Study
from rl_qg.studies.grid import Cell, Grid, is_done, signature_of

SCORES = ("exact_match", "f1")
QUESTIONS = {"augmentation": "gain over gold alone", "reward": "gain by reward", "pair": "difference of generators"}


@dataclass(frozen=True)
class Group:
    """The readers of one cell of the grid over all its seeds, those that are done."""

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
        """What the tables say of it."""
        return {
            "resource": self.resource,
            "generator": self.generator,
            "filter": self.filter,
            "amount": self.amount,
        }


class Results:
    """The scores of all finished readers, and the draws that all of them share."""

    def __init__(self, study: Study, examples: StudyExamples, grid: Grid) -> None:
        self.study, self.examples = study, examples
        self.ids = [example.id for example in examples.validation]
        self.passages = [passage_hash(example.context) for example in examples.validation]
        self.groups = tuple(_groups(grid))
        self._tables: dict[str, dict[str, np.ndarray]] = {}
        self._draws: dict[tuple[str, int], Resampling] = {}

    @cached_property
    def sets(self) -> dict[str, np.ndarray]:
        """The places of each validation set's questions; all of them together where there are several sets."""
        names = [self.examples.sets[key] for key in self.ids]
        found = {
            name: np.array([place for place, one in enumerate(names) if one == name]) for name in dict.fromkeys(names)
        }
        return {ALL: np.arange(len(names)), **found} if len(found) > 1 else {ALL: np.arange(len(names))}

    def scores(self, group: Group, score: str, seeds: Sequence[int]) -> np.ndarray:
        """Percent, (seeds, questions)."""
        return np.stack([self._of(cell)[score] for cell in group.cells if cell.seed in seeds])

    def _of(self, cell: Cell) -> dict[str, np.ndarray]:
        name = cell.reader.name
        if name not in self._tables:
            table = read_json(cell.reader.out / "question_scores.json")
            self._tables[name] = {
                score: 100 * np.array([table[key][score] for key in self.ids], dtype=np.float64) for score in SCORES
            }
        return self._tables[name]

    def draws(self, places: np.ndarray, key: str, seeds: int) -> Resampling:
        """The draws for these questions, made once."""
        if (key, seeds) not in self._draws:
            groups = [self.passages[place] for place in places]
            self._draws[key, seeds] = Resampling(groups, seeds=seeds, resamples=self.study.resamples)
        return self._draws[key, seeds]


def find_results(study: Study, examples: StudyExamples, grid: Grid) -> Results:
    """Gather what is done so far."""
    return Results(study, examples, grid)


def cell_rows(results: Results) -> list[dict[str, Any]]:
    """One row for each cell: what was asked for and got, and each score on each set, over seeds and passages."""
    rows = []
    for group in results.groups:
        got = [_sampled(cell) for cell in group.cells]
        row: dict[str, Any] = {**group.name, "gold": group.cells[0].gold, "asked": group.cells[0].asked}
        row |= {"got": got, "short": min(got) < group.cells[0].asked, "seeds": list(group.seeds), "scores": {}}
        for name, places in results.sets.items():
            draws = results.draws(places, name, len(group.seeds))
            row["scores"][name] = {}
            for score in SCORES:
                values = results.scores(group, score, group.seeds)[:, places]
                row["scores"][name][score] = {
                    **asdict(interval_of(draws.means(values), values)),
                    "by_seed": [round(float(mean), 4) for mean in values.mean(axis=1)],
                }
        rows.append(row)
    return rows


def test_rows(results: Results) -> list[dict[str, Any]]:
    """One row for each difference, score and set, with its p-value before and after Holm's correction."""
    rows = []
    for question, group, against in _pairs(results):
        seeds = [seed for seed in group.seeds if seed in against.seeds]
        if not seeds:
            continue
        for name, places in results.sets.items():
            draws = results.draws(places, name, len(seeds))
            for score in SCORES:
                table = results.scores(group, score, seeds) - results.scores(against, score, seeds)
                means = draws.means(table[:, places])
                found = interval_of(means, table[:, places])
                rows.append(
                    {
                        "question": question,
                        **group.name,
                        "against": against.generator,
                        "set": name,
                        "score": score,
                        **asdict(found),
                        "seeds": seeds,
                        "by_seed": [round(float(mean), 4) for mean in table[:, places].mean(axis=1)],
                        "p": two_sided_p(means),
                    }
                )
    _correct(rows)
    return rows


def differences(results: Results, places: np.ndarray, key: str, group: Group, score: str) -> Interval | None:
    """What a cell gains over gold alone on some of the questions; None without common seeds."""
    baseline = _baseline(results, group.resource)
    seeds = [seed for seed in group.seeds if baseline is not None and seed in baseline.seeds]
    if baseline is None or not seeds or not len(places):
        return None
    table = (results.scores(group, score, seeds) - results.scores(baseline, score, seeds))[:, places]
    return interval_of(results.draws(places, key, len(seeds)).means(table), table)


def reward_gains(results: Results, score: str) -> Iterator[tuple[Group, Group, Interval]]:
    """Each cell of a generator that learned by reward, that of the generator it started from, and the difference."""
    places = np.arange(len(results.ids))
    for question, group, against in _pairs(results):
        seeds = [seed for seed in group.seeds if seed in against.seeds]
        if question == "reward" and seeds:
            table = results.scores(group, score, seeds) - results.scores(against, score, seeds)
            yield group, against, interval_of(results.draws(places, ALL, len(seeds)).means(table), table)


def signatures(results: Results) -> dict[str, str | None]:
    """The reward that each generator learned from, as its metric prints it; None for those that learned from none."""
    found: dict[str, str | None] = {}
    for group in results.groups:
        if group.generator != NONE:
            found[group.generator] = signature_of(group.cells[0].run)
    return found


def _groups(grid: Grid) -> Iterator[Group]:
    cells: dict[tuple[str, str, str, float], list[Cell]] = {}
    for cell in grid.cells:
        found = cells.setdefault((cell.resource, cell.generator, cell.filter, cell.amount), [])
        if is_done(cell.reader):
            found.append(cell)
    for (resource, generator, rules, amount), found in cells.items():
        if found:
            yield Group(resource, generator, rules, amount, tuple(found))


def _pairs(results: Results) -> Iterator[tuple[str, Group, Group]]:
    """What is compared with what, under which question."""
    found = {(group.resource, group.filter, group.amount, group.generator): group for group in results.groups}
    starts = _starts(results.study)
    for (resource, rules, amount, generator), group in found.items():
        if generator != NONE and (baseline := _baseline(results, resource)) is not None:
            yield "augmentation", group, baseline
        if against := found.get((resource, rules, amount, starts.get(generator, ""))):
            yield "reward", group, against
        for first, second in results.study.comparisons:
            if generator == first and (against := found.get((resource, rules, amount, second))):
                yield "pair", group, against


def _starts(study: Study) -> dict[str, str]:
    """The generator that each one trained by reward is compared with: the one it started from."""
    return {item.name: item.start for item in study.generators if item.start}


def _baseline(results: Results, resource: str) -> Group | None:
    return next((group for group in results.groups if group.resource == resource and group.generator == NONE), None)


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
    report: Mapping[str, Any] = read_json(cell.augment.out / "augmented.report.json")
    return int(report["sampled"])
