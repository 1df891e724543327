"""Pairs of questions about one item, counted by hand."""

import numpy as np
import pytest

from rl_qg.confidence_intervals import PassageDraws
from rl_qg.evaluation.meta.win_loss import win_loss


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
    assert [alike.low, alike.high] == pytest.approx(np.quantile(slow, [0.025, 0.975]).tolist())


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
