"""The area under the ROC curve against counting pairs."""

from itertools import product

import numpy as np
import pytest

from rl_qg.confidence_intervals import PassageDraws
from rl_qg.evaluation.meta.roc import auc_draws


def counted(scores: np.ndarray, good: np.ndarray) -> float:
    pairs = list(product(scores[good], scores[~good]))
    return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs) if pairs else float("nan")


def test_every_draw_is_that_of_the_questions_repeated() -> None:
    rng = np.random.default_rng(1)
    scores, good = rng.integers(0, 6, 30).astype(float), rng.random(30) < 0.4
    draws = PassageDraws([k // 5 for k in range(30)], resamples=40, seed=0)
    rows = np.sort(rng.permutation(30)[:24])
    found = auc_draws(scores[rows], good[rows], draws, rows)
    for value, weights in zip(found, np.concatenate(list(draws.blocks())).astype(int), strict=True):
        times = weights[draws.passage_index[rows]]
        want = counted(np.repeat(scores[rows], times), np.repeat(good[rows], times))
        assert value == pytest.approx(want, nan_ok=True)


def test_ends_of_the_scale() -> None:
    draws, good = PassageDraws(range(4), resamples=2), np.array([True, True, False, False])
    for scores, area in (([3, 4, 1, 2], 1), ([1, 2, 3, 4], 0), ([1, 1, 1, 1], 0.5), ([1, 3, 1, 2], 0.625)):
        assert auc_draws(np.array(scores, float), good, draws, np.arange(4))[0] == area
    assert np.isnan(auc_draws(np.arange(2.0), good[:2], draws, np.arange(2))[0])
