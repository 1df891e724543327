"""A mixed model of ratings: score ~ system + (1 | rater) + (1 | item), both effects crossed, fitted by REML.

Beside z-scores it needs no standardisation: a strict rater and an easy passage are effects of the model. The
likelihood is profiled to two parameters, the standard deviations of raters and items relative to the residual's, as in
lme4 (Bates et al., "Fitting linear mixed-effects models using lme4", Journal of Statistical Software 2015). Levels of
the larger factor are eliminated one by one, so only a matrix of the size of the smaller one is decomposed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl_qg.stats.intervals import Floats, Ints


@dataclass(frozen=True)
class MixedModel:
    """Estimated means of systems (s,) and their covariance (s, s), in the unit of the scores; standard deviations of
    raters, items and the residual; of `n` scores. A factor not told from the residual or the other has None.
    """

    systems: tuple[str, ...]
    means: Floats
    covariance: Floats
    rater_sd: float | None
    item_sd: float | None
    residual_sd: float
    n: int
    log_likelihood: float  # restricted

    def error(self, system: int) -> float:
        return float(np.sqrt(self.covariance[system, system]))

    def contrast(self, first: int, second: int) -> tuple[float, float, float]:
        """The difference of two means, its standard error, and the two-sided p of the normal distribution, or NaN."""
        from scipy.stats import norm

        weights = np.zeros(len(self.means))
        weights[first], weights[second] = 1.0, -1.0
        value, error = float(weights @ self.means), float(np.sqrt(weights @ self.covariance @ weights))
        return value, error, float(2 * norm.sf(abs(value) / error)) if error != 0 else float(value == 0)


def fit_mixed_model(
    scores: Floats, member: Floats, systems: tuple[str, ...], rater: Ints, item: Ints
) -> MixedModel | None:
    """The model of scores (n,) of items by raters, both (n,); NaN is left out. None where there are no more scores
    than systems, or scores do not vary within systems.

    `member` (n, systems) tells who asked; a question of several systems is a row of each. A system without a score has
    the estimate NaN.
    """
    from scipy.optimize import minimize

    row, column = np.nonzero((member > 0) & ~np.isnan(scores)[:, None])
    used = np.unique(column)
    n, p = len(row), len(used)
    if n <= p or not p:
        return None
    x = (column[:, None] == used).astype(np.float64)
    y = scores[row]
    scale = float(np.sqrt(((y - x @ (x.T @ y / x.sum(axis=0))) ** 2).sum() / (n - p)))
    if scale <= 1e-9 * max(1.0, float(np.abs(y).max())):
        return None
    factors = _identified(rater[row], item[row])
    likelihood = _Likelihood(x, y / scale, list(factors.values()))
    thetas = np.full(len(factors), 0.7)
    if factors:
        options = {"xatol": 1e-5, "fatol": 1e-8}
        try:
            found = minimize(lambda at: likelihood.fit(np.abs(at))[3], thetas, method="Nelder-Mead", options=options)
        except np.linalg.LinAlgError:  # there is no residual: raters agree in full
            return None
        thetas = np.abs(found.x)
    beta, covariance, variance, deviance = likelihood.fit(thetas)
    if not variance > 1e-10:  # no residual of what varies within systems, or rounding alone
        return None
    sds = dict(zip(factors, np.sqrt(variance) * scale * thetas, strict=True))
    means, matrix = np.full(len(systems), np.nan), np.full((len(systems), len(systems)), np.nan)
    means[used], matrix[np.ix_(used, used)] = beta * scale, covariance * scale**2
    residual, likelihood_of_data = float(np.sqrt(variance) * scale), -deviance / 2 - (n - p) * float(np.log(scale))
    return MixedModel(systems, means, matrix, sds.get("rater"), sds.get("item"), residual, n, likelihood_of_data)


def _identified(rater: Ints, item: Ints) -> dict[str, NDArray[np.intp]]:
    """The factors, as indices of levels, that differ from the residual, from a constant and from each other."""
    both = {"rater": rater, "item": item}
    levels = {name: np.unique(of, return_inverse=True)[1].reshape(-1) for name, of in both.items()}
    kept = {name: of for name, of in levels.items() if 0 < of.max() < len(of) - 1}
    pairs = len({*zip(levels["rater"].tolist(), levels["item"].tolist(), strict=True)})
    if len(kept) == 2 and pairs == levels["rater"].max() + 1 == levels["item"].max() + 1:
        del kept["item"]  # each rater has one item, which no other rater has
    return kept


class _Likelihood:
    """The restricted likelihood of x (n, p), y (n,) and up to two factors (n,), from sums over their levels."""

    def __init__(self, x: Floats, y: Floats, factors: list[NDArray[np.intp]]) -> None:
        from scipy.sparse import csr_array

        self.n, self.p = x.shape
        both = np.column_stack([x, y])
        self.cross = both.T @ both
        self.order = sorted(range(len(factors)), key=lambda at: -int(factors[at].max()))  # the larger is eliminated
        sums = [csr_array((np.ones(self.n), (factors[at], np.arange(self.n)))) for at in self.order]
        self.counts = [np.asarray(matrix.sum(axis=1)) for matrix in sums]
        self.sums = [np.asarray(matrix @ both) for matrix in sums]
        self.joint = (sums[0] @ sums[1].T).tocsr() if len(sums) == 2 else None  # how often two levels meet
        self.turned = None if self.joint is None else self.joint.T.tocsr()

    def fit(self, thetas: Floats) -> tuple[Floats, Floats, float, float]:
        """Coefficients (p,), their covariance, the residual variance and the deviance, -2 log of the restricted
        likelihood, at relative standard deviations `thetas`.
        """
        from scipy.linalg import cho_factor, cho_solve, solve_triangular

        theta = [float(thetas[at]) for at in self.order]
        quadratic, log_det = self.cross.copy(), 0.0
        if theta:
            weight = theta[0] ** 2 * self.counts[0] + 1
            right = theta[0] * self.sums[0]
            scaled = right / weight[:, None]
            quadratic -= right.T @ scaled
            log_det += float(np.log(weight).sum())
        if self.joint is not None and self.turned is not None:
            both = theta[0] * theta[1]
            weighted = self.turned.copy()
            weighted.data *= both**2 / weight[weighted.indices]
            reduced = np.diag(theta[1] ** 2 * self.counts[1] + 1) - (weighted @ self.joint).toarray()
            root = np.linalg.cholesky(reduced)
            rest = solve_triangular(root, theta[1] * self.sums[1] - both * (self.turned @ scaled), lower=True)
            quadratic -= rest.T @ rest
            log_det += 2 * float(np.log(np.diag(root)).sum())
        information = cho_factor(quadratic[:-1, :-1])
        beta = cho_solve(information, quadratic[:-1, -1])
        free = self.n - self.p
        variance = float(quadratic[-1, -1] - beta @ quadratic[:-1, -1]) / free
        log_det += 2 * float(np.log(np.abs(np.diag(information[0]))).sum())
        deviance = log_det + free * (1 + float(np.log(2 * np.pi * max(variance, 1e-300))))
        return beta, variance * cho_solve(information, np.eye(self.p)), variance, deviance
