"""Pairs of questions in the right order, counted by hand and one by one."""

from itertools import product

import numpy as np
import pytest

from rl_qg.stats.correlation import auc_draws, win_loss
from rl_qg.stats.intervals import PassageDraws, interval_ends

# --- Pairs about one item ---


def test_pairs_by_hand() -> None:
    # item a: ratings 3 > 2 > 1, scores order 3>1 alike, 3>2 tied, 2>1 alike; item b: one pair, the wrong way round;
    # item c: equal ratings, no pair; item d: alone
    items = ["a", "a", "a", "b", "b", "c", "c", "d"]
    ratings = np.array([3.0, 2, 1, 5, 4, 2, 2, 9])
    scores = np.array([0.5, 0.5, 0.1, 0.2, 0.3, 0.9, 0.1, 0.0])
    draws = PassageDraws(items, resamples=300, seed=0)
    shares, pairs, alike = win_loss(scores, ratings, items, draws, np.arange(8))
    assert pairs == 4
    assert {name: share.value for name, share in shares.items()} == {"wins": 0.5, "ties": 0.25, "losses": 0.25}
    weights = np.concatenate(list(draws.blocks()))[1:]
    slow = [2.5 * a / (3 * a + b) for a, b, _, _ in weights if a + b]
    assert alike.value == 0.625 and alike.undefined == len(weights) - len(slow) > 0
    ends = interval_ends(np.array([0.625, *slow]), 25 / 13, bounds=(0.0, 1.0))  # 3 and 2 questions have pairs
    assert (alike.low, alike.high) == pytest.approx(ends)


def test_pairs_whose_ratings_are_far_apart() -> None:
    # item a: gaps 2.0 and 2.2 and 0.2, where 4.4 - 2.4 is above 2 by rounding; item b: a gap of 3, the wrong way round
    items, ratings = ["a", "a", "a", "b", "b"], np.array([4.4, 2.4, 2.2, 1.0, 4.0])
    assert ratings[0] - ratings[1] != 2
    scores, draws = np.array([0.5, 0.2, 0.1, 0.2, 0.1]), PassageDraws(items, resamples=5)
    for gap, pairs, wins in ((0, 4, 0.75), (1.99, 3, 2 / 3), (2, 2, 0.5), (2.2, 1, 0), (3, 0, None)):
        shares, count, _ = win_loss(scores, ratings, items, draws, np.arange(5), gap)
        assert (count, shares["wins"].value) == (pairs, wins), gap
    assert shares["wins"].why == "no two questions about one item have ratings that differ by more than 3"


def test_pairs_of_one_passage_have_no_interval() -> None:
    draws = PassageDraws(["a", "a", "b"], resamples=50)
    values = np.array([1.0, 2, 3])
    _, pairs, alike = win_loss(values, values, ["a", "a", "b"], draws, np.arange(3))
    assert (pairs, alike.value, alike.low) == (1, 1.0, None)


def test_no_pairs() -> None:
    draws = PassageDraws(["a", "b"], resamples=5)
    shares, pairs, alike = win_loss(np.array([1.0, 2]), np.array([1.0, 2]), ["a", "b"], draws, np.arange(2))
    assert pairs == 0 and alike.value is None
    assert shares["wins"].why == "no two questions about one item have different ratings"


# --- Area under the ROC curve ---


def counted(scores: np.ndarray, good: np.ndarray) -> float:
    pairs = list(product(scores[good], scores[~good]))
    return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs) if pairs else float("nan")


def test_every_draw_is_that_of_the_questions_repeated() -> None:
    rng = np.random.default_rng(1)
    scores, good = rng.integers(0, 6, 30).astype(float), rng.random(30) < 0.4
    draws = PassageDraws([k // 5 for k in range(30)], resamples=40, seed=0)
    rows = np.sort(rng.permutation(30)[:24])
    areas = auc_draws(scores[rows], good[rows], draws, rows)
    for value, weights in zip(areas, np.concatenate(list(draws.blocks())).astype(int), strict=True):
        times = weights[draws.passage_index[rows]]
        expected = counted(np.repeat(scores[rows], times), np.repeat(good[rows], times))
        assert value == pytest.approx(expected, nan_ok=True)


def test_ends_of_the_scale() -> None:
    draws, good = PassageDraws(range(4), resamples=2), np.array([True, True, False, False])
    for scores, area in (([3, 4, 1, 2], 1), ([1, 2, 3, 4], 0), ([1, 1, 1, 1], 0.5), ([1, 3, 1, 2], 0.625)):
        assert auc_draws(np.array(scores, float), good, draws, np.arange(4))[0] == area
    assert np.isnan(auc_draws(np.arange(2.0), good[:2], draws, np.arange(2))[0])
