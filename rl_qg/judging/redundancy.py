"""Which metrics add information to each other: forward selection for a linear regression of the rating.

QRelScore, Appendix D: forward selection in cross-validation with five folds, ten times. The text does not say on
which folds a metric is selected: on `all` of them, as scikit-learn's selector does on what it is given, the error of
the chosen set is slightly too low; under `training` each fold is predicted by the metrics that were selected on the
other folds alone, so that one pass is five selections.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from rl_qg.data.examples import seeded_rank
from rl_qg.stats.intervals import Floats

ALL, TRAINING = "all", "training"


def folds_of(groups: Sequence[str], folds: int, seed: int) -> list[int]:
    """The fold of each question: passages in a seeded order, assigned in turn; at most as many folds as passages."""
    names = sorted(dict.fromkeys(groups), key=lambda name: seeded_rank(seed, name))
    fold = {name: number % folds for number, name in enumerate(names)}
    return [fold[group] for group in groups]


def forward_selection(
    table: Floats,
    ratings: Floats,
    names: Sequence[str],
    folds: Sequence[Sequence[int]],
    steps: int,
    select_on: str = ALL,
) -> list[dict[str, Any]]:
    """One row for each step: the metric added most often, in how many selections (`chosen`, each metric's count), and
    means over the repetitions of `mse` and `r2` on held-out passages, with their standard deviations over repetitions
    (`mse_sd`, `r2_sd`; 0 for one), of `gain_r2`, and of `r2_fitted` on the passages of the fit.

    `r2` is 1 - mse / the error of the training folds' mean rating; it is below 0 for predictions worse than that mean.
    Between metrics that were added equally often the earlier in the alphabet is taken.

    `table`: finite scores (questions, metrics); `ratings` (questions,); `folds`: for each repetition the fold of each
    question, from `folds_of`; `steps`: metrics at most; `select_on`: `all` (one selection a repetition) or `training`
    (one for each fold, of at least three).
    """
    spread, largest = table.std(axis=0), np.abs(table).max(axis=0)
    usable = np.flatnonzero(spread > 1e-12 * np.maximum(1.0, largest)).tolist()
    scaled = (table - table.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    repeats = [_selected(_Regression(scaled, ratings, np.asarray(fold)), usable, steps, select_on) for fold in folds]
    rows: list[dict[str, Any]] = []
    for step in range(min(steps, len(usable)) if all(repeats) else 0):
        chosen = Counter(names[column] for repeat in repeats for column in repeat[step]["columns"])
        values = {key: [repeat[step][key] for repeat in repeats] for key in ("mse", "r2", "r2_fitted")}
        mean = {key: float(np.mean(of_repeats)) for key, of_repeats in values.items()}
        spreads = {f"{key}_sd": float(np.std(values[key], ddof=1)) if len(folds) > 1 else 0.0 for key in ("mse", "r2")}
        ordered = dict(sorted(chosen.items(), key=lambda item: (-item[1], item[0])))
        row = {"step": step + 1, "metric": next(iter(ordered)), "chosen": ordered, "selections": chosen.total()}
        rows.append({**row, **mean, **spreads, "gain_r2": mean["r2"] - (rows[-1]["r2"] if rows else 0.0)})
    return rows


def _selected(problem: "_Regression", usable: Sequence[int], steps: int, select_on: str) -> list[dict[str, Any]]:
    """The steps of one repetition: columns added (one a selection), errors; none where the mean leaves no error."""
    parts = range(len(problem.products))
    base = problem.squares(parts, []) / problem.n
    if base <= 0:
        return []
    nested = select_on == TRAINING
    held_out = [[part] for part in parts] if nested else [[*parts]]
    paths = [problem.path(usable, steps, without=part if nested else ()) for part in held_out]
    rows = []
    for step in range(min(steps, len(usable))):
        chosen = [path[: step + 1] for path in paths]
        squares = sum(problem.squares(part, own) for part, own in zip(held_out, chosen, strict=True))
        row = {"columns": [own[-1] for own in chosen], "mse": squares / problem.n}
        row |= {"r2": 1 - squares / problem.n / base}
        rows.append(row | {"r2_fitted": float(np.mean([problem.fitted(own) for own in chosen]))})
    return rows


class _Regression:
    """Least squares from sums of products, kept by fold: adding a metric costs one small system for each fold."""

    def __init__(self, table: Floats, ratings: Floats, fold: np.ndarray) -> None:
        columns = np.column_stack([np.ones(len(ratings)), table, ratings])
        parts = [columns[fold == number] for number in np.unique(fold)]
        self.products = [part.T @ part for part in parts]
        self.total = np.sum(self.products, axis=0)
        self.n = len(ratings)

    def path(self, usable: Sequence[int], steps: int, without: Sequence[int] = ()) -> list[int]:
        """The metrics in the order of forward selection, as if the folds `without` were not there."""
        parts = [part for part in range(len(self.products)) if part not in without]
        left, chosen = list(usable), list[int]()
        while left and len(chosen) < steps:
            best = min(left, key=lambda column: self.squares(parts, [*chosen, column], without))
            left.remove(best)
            chosen.append(best)
        return chosen

    def squares(self, parts: Sequence[int], chosen: Sequence[int], without: Sequence[int] = ()) -> float:
        """Sum of squared errors on some folds, each predicted from all others except those `without`."""
        columns = self._columns(chosen)
        used = self.total - sum((self.products[part] for part in without), np.zeros_like(self.total))
        total = used[np.ix_(columns, columns)]
        squares = 0.0
        for part in parts:
            held_out = self.products[part][np.ix_(columns, columns)]
            squares += _squared_error(held_out, _weights(total - held_out))
        return squares

    def fitted(self, chosen: Sequence[int]) -> float:
        columns = self._columns(chosen)
        whole = self.total[np.ix_(columns, columns)]
        spread = whole[-1, -1] - whole[0, -1] ** 2 / self.n
        return float(1 - _squared_error(whole, _weights(whole)) / spread)

    def _columns(self, chosen: Sequence[int]) -> list[int]:
        return [0, *(number + 1 for number in chosen), len(self.total) - 1]


def _weights(products: Floats) -> Floats:
    """Coefficients of intercept and metrics, the smallest ones where metrics are linearly dependent."""
    return np.asarray(np.linalg.lstsq(products[:-1, :-1], products[:-1, -1], rcond=1e-10)[0])


def _squared_error(products: Floats, weights: Floats) -> float:
    signed = np.append(weights, -1.0)
    return max(0.0, float(signed @ products @ signed))
