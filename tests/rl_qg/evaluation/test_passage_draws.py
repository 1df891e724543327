"""Draws of passages: the sums of whole passages, counted by hand; p-values that Holm's correction can use."""

import numpy as np
import pytest

from rl_qg.confidence_intervals import two_sided_p
from rl_qg.evaluation import passage_draws
from rl_qg.evaluation.passage_draws import Draws, difference, difference_p, estimate, few_passages
from rl_qg.runtime.errors import InputError

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
    found = estimate(values, 7, passages=5)
    assert (found.value, found.undefined, found.n) == (0.5, 2, 7)
    assert found.low == pytest.approx(0.025) and found.high == pytest.approx(0.975)
    nothing = estimate(np.array([np.nan, 1.0]), 7, passages=5, why="all ratings are equal").to_dict()
    assert nothing == {"value": None, "low": None, "high": None, "n": 7, "why": "all ratings are equal"}


def test_an_interval_needs_two_passages_and_a_draw() -> None:
    alone = estimate(np.full(50, 0.5), 7, passages=1).to_dict()
    assert alone == {"value": 0.5, "low": None, "high": None, "n": 7, "why": "no interval: one passage alone"}
    no_draw = estimate(np.array([0.5]), 7, passages=7)
    assert (no_draw.value, no_draw.low) == (0.5, None) and str(no_draw.why).startswith("no interval: no draws")


def test_weights_are_kept_one_byte_each_and_used_as_numbers() -> None:
    draws = Draws(range(300), resamples=40)
    assert draws._kept is not None and sum(block.nbytes for block in draws._kept) == 41 * 300
    assert {block.dtype for block in draws.blocks()} == {np.dtype(float)}  # sums of bytes would run over


def test_p_values() -> None:
    rng = np.random.default_rng(0)
    near, far = rng.normal(1, 1, 1000), rng.normal(6, 1, 1000)
    assert difference_p(np.append(1.0, near), 50) == two_sided_p(near)
    tail = difference_p(np.append(6.0, far), 50)
    assert tail is not None and 1e-11 < tail < 1e-7  # two-sided normal tail at 6: 2e-9; the draws alone end at 0.002
    assert difference_p(np.zeros(10), 50) == 1.0
    assert difference_p(np.full(10, np.nan), 50) is None
    for rounding in (0.0, 1e-16):  # no spread, or one of rounding: no normal tail
        constant = np.full(1001, 0.5) + rounding * rng.normal(size=1001)
        assert difference_p(constant, 50) == pytest.approx(2 / 1001)


def test_few_passages_cannot_be_certain() -> None:
    far = np.append(6.0, np.random.default_rng(0).normal(6, 1, 1000))
    assert difference_p(far, 1) is None
    assert [difference_p(far, passages) for passages in (2, 3, 6)] == [0.5, 0.25, 2**-5]
    assert difference_p(far, 19) == pytest.approx(2 / 1001)  # the draws, without the normal tail
    assert few_passages(10) is None and "Only 9 passages" in str(few_passages(9))
    assert "One passage" in str(few_passages(1))


def test_exchangeable_passages_are_called_different_no_more_than_one_time_in_twenty() -> None:
    rng, hits, times = np.random.default_rng(1), {2: 0, 4: 0, 8: 0}, 150
    for passages in hits:
        for seed in range(times):
            draws = Draws(range(passages), resamples=200, seed=seed)
            gaps = draws.sums(rng.normal(size=(passages, 1)))[:, 0]
            p = difference_p(gaps, passages)
            assert p is not None and (passages > 2 or p >= 0.5)
            hits[passages] += p < 0.05
    assert hits[2] == hits[4] == 0 and hits[8] / times < 0.2  # percentile intervals of eight are too narrow


def test_differences_that_are_rounding_are_none() -> None:
    first = np.array([0.3, 1e6, 0.2])
    gap = difference(first, np.array([0.3 + 1e-16, 1e6 + 1e-7, 0.1]))
    assert gap.tolist() == [0, 0, 0.1]
    assert difference_p(difference(np.full(100, 0.1) * 3, np.full(100, 0.3)), 50) == 1.0


def test_nothing_to_draw() -> None:
    with pytest.raises(InputError, match="at least one question"):
        Draws([])
