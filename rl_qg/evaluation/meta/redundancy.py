"""Which metrics add information to each other: forward selection for a linear regression of the rating.

Each step adds the metric that lowers the squared error on passages which the regression has not seen the most. The
set is chosen by that error, which is therefore slightly too low.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats
from rl_qg.data.examples import seeded_rank


def folds_of(groups: Sequence[str], folds: int, seed: int) -> list[int]:
    """The fold of each question: passages in a seeded order, assigned in turn; at most as many folds as passages."""
    names = sorted(dict.fromkeys(groups), key=lambda name: seeded_rank(seed, name))
    fold = {name: number % folds for number, name in enumerate(names)}
    return [fold[group] for group in groups]


def forward_selection(
    table: Floats, ratings: Floats, names: Sequence[str], fold: Sequence[int], steps: int
) -> list[dict[str, Any]]:
    """One row for each step: the metric added, `mse` and `r2` on held-out passages, `r2_fitted` on those of the fit.

    `r2` is 1 - mse / the error of the training folds' mean rating; it is below 0 for predictions worse than that mean.

    Args:
        table: scores (questions, metrics), finite.
        ratings: (questions,).
        names: of the metrics.
        fold: of each question, from `folds_of`.
        steps: how many metrics are added at most.
    """
    spread = table.std(axis=0)
    usable = [
        column for column in range(len(names)) if spread[column] > 1e-12 * max(1.0, np.abs(table[:, column]).max())
    ]
    scaled = (table - table.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    problem = _Regression(scaled, ratings, np.asarray(fold))
    base, chosen, rows = problem.error([]), list[int](), list[dict[str, Any]]()
    while usable and len(chosen) < steps and base > 0:
        best = min(usable, key=lambda column: problem.error([*chosen, column]))
        usable.remove(best)
        chosen.append(best)
        error = problem.error(chosen)
        rows.append(
            {
                "step": len(chosen),
                "metric": names[best],
                "mse": error,
                "r2": 1 - error / base,
                "gain_r2": (problem.error(chosen[:-1]) - error) / base,
                "r2_fitted": problem.fitted(chosen),
            }
        )
    return rows


class _Regression:
    """Least squares from sums of products, kept by fold: adding a metric costs one small system for each fold."""

    def __init__(self, table: Floats, ratings: Floats, fold: np.ndarray) -> None:
        columns = np.column_stack([np.ones(len(ratings)), table, ratings])
        parts = [columns[fold == number] for number in np.unique(fold)]
        self.products = [part.T @ part for part in parts]
        self.total = np.sum(self.products, axis=0)
        self.n = len(ratings)

    def error(self, chosen: Sequence[int]) -> float:
        """Mean squared error on held-out folds, each predicted from the others."""
        columns = self._columns(chosen)
        squares = 0.0
        for product in self.products:
            held_out, total = product[np.ix_(columns, columns)], self.total[np.ix_(columns, columns)]
            squares += _squared_error(held_out, _weights(total - held_out))
        return squares / self.n

    def fitted(self, chosen: Sequence[int]) -> float:
        """R² of the regression on the questions that it was fitted to."""
        columns = self._columns(chosen)
        whole = self.total[np.ix_(columns, columns)]
        spread = whole[-1, -1] - whole[0, -1] ** 2 / self.n
        return float(1 - _squared_error(whole, _weights(whole)) / spread)

    def _columns(self, chosen: Sequence[int]) -> list[int]:
        """Columns of the intercept, the chosen metrics and the rating."""
        return [0, *(number + 1 for number in chosen), len(self.total) - 1]


def _weights(products: Floats) -> Floats:
    """Coefficients of intercept and metrics, the smallest ones where metrics are linearly dependent."""
    return np.asarray(np.linalg.lstsq(products[:-1, :-1], products[:-1, -1], rcond=1e-10)[0])


def _squared_error(products: Floats, weights: Floats) -> float:
    """Sum of squared errors of predicting the last column from the others."""
    signed = np.append(weights, -1.0)
    return max(0.0, float(signed @ products @ signed))
