"""Pairs of questions about one item, counted by hand."""

import numpy as np
import pytest

from rl_qg.passage_draws import Draws
from rl_qg.win_loss import win_loss


def test_pairs_by_hand() -> None:
    # item a: ratings 3 > 2 > 1, scores order 3>1 alike, 3>2 tied, 2>1 alike; item b: one pair, the wrong way round;
    # item c: equal ratings, no pair; item d: alone
    items = ["a", "a", "a", "b", "b", "c", "c", "d"]
    ratings = np.array([3.0, 2, 1, 5, 4, 2, 2, 9])
    scores = np.array([0.5, 0.5, 0.1, 0.2, 0.3, 0.9, 0.1, 0.0])
    draws = Draws(items, resamples=300, seed=0)
    shares, pairs, accuracy = win_loss(scores, ratings, items, draws, np.arange(8))
    assert pairs == 4
    assert {name: share.value for name, share in shares.items()} == {"wins": 0.5, "ties": 0.25, "losses": 0.25}
    assert accuracy[0] == 0.625
    weights = np.concatenate(list(draws.blocks()))
    for value, (a, b, _, _) in zip(accuracy, weights, strict=True):
        want = 2.5 * a / (3 * a + b) if a + b else np.nan
        assert value == pytest.approx(want, nan_ok=True)


def test_no_pairs() -> None:
    draws = Draws(["a", "b"], resamples=5)
    shares, pairs, accuracy = win_loss(np.array([1.0, 2]), np.array([1.0, 2]), ["a", "b"], draws, np.arange(2))
    assert pairs == 0 and np.isnan(accuracy).all()
    assert shares["wins"].why == "no two questions about one item have different ratings"
