"""Draws of passages: the sums of whole passages, counted by hand; p-values that Holm's correction can use."""

import numpy as np
import pytest

from rl_qg import passage_draws
from rl_qg.bootstrap import two_sided_p
from rl_qg.errors import InputError
from rl_qg.passage_draws import Draws, difference_p, estimate

GROUPS = ["a", "b", "a", "c", "c", "c"]


def weights(draws: Draws) -> np.ndarray:
    return np.concatenate(list(draws.blocks()))


def test_the_first_draw_is_the_data_and_the_others_take_whole_passages() -> None:
    draws = Draws(GROUPS, resamples=50, seed=3)
    table = np.arange(12.0).reshape(6, 2)
    found, times = draws.sums(table), weights(draws)
    assert (times[0] == 1).all() and (times.sum(axis=1) == 3).all() and len(times) == 51
    for row, one in zip(found, times, strict=True):
        slow = sum(one["abc".index(group)] * values for group, values in zip(GROUPS, table, strict=True))
        np.testing.assert_allclose(row, slow)


def test_weights_that_are_not_kept_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = weights(Draws(GROUPS, resamples=50, seed=3))
    monkeypatch.setattr(passage_draws, "_NUMBERS_KEPT", 0)
    fresh = Draws(GROUPS, resamples=50, seed=3)
    assert (weights(fresh) == kept).all() and (weights(fresh) == kept).all()
    monkeypatch.setattr(passage_draws, "_NUMBERS_AT_ONCE", 9)
    blocks = [len(block) for block in Draws(GROUPS, resamples=50, seed=3).blocks()]
    assert sum(blocks) == 51 and max(blocks) == 4


def test_an_estimate_leaves_undefined_draws_out_and_counts_them() -> None:
    values = np.array([0.5, *np.linspace(0, 1, 101), np.nan, np.nan])
    found = estimate(values, 7)
    assert (found.value, found.undefined, found.n) == (0.5, 2, 7)
    assert found.low == pytest.approx(0.025) and found.high == pytest.approx(0.975)
    nothing = estimate(np.array([np.nan, 1.0]), 7, why="all ratings are equal").to_dict()
    assert nothing == {"value": None, "low": None, "high": None, "n": 7, "why": "all ratings are equal"}


def test_p_values() -> None:
    rng = np.random.default_rng(0)
    near, far = rng.normal(1, 1, 1000), rng.normal(6, 1, 1000)
    assert difference_p(np.append(1.0, near)) == two_sided_p(near)
    tail = difference_p(np.append(6.0, far))
    assert tail is not None and 1e-11 < tail < 1e-7  # two-sided normal tail at 6: 2e-9; the draws alone end at 0.002
    assert difference_p(np.zeros(10)) == 1.0
    assert difference_p(np.full(10, np.nan)) is None
    assert difference_p(np.full(1001, 0.5)) == pytest.approx(2 / 1001)


def test_nothing_to_draw() -> None:
    with pytest.raises(InputError, match="at least one question"):
        Draws([])
