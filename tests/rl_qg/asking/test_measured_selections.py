"""Selections of experiments/sets against values worked by hand, plain greedy search and brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from experiments.sets.selections import dpp, dpp_exact, dpp_greedy, dpp_of_pool, harmonic, harmonic_of_pool
from rl_qg.asking.sets import choose
from tests.rl_qg.asking.test_question_sets import FIRE, MILL, pool as question_pool, taken, texts
from tests.rl_qg.asking.test_set_selection import QUALITY, SIMILARITY


def pool(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Qualities, and Jaccard similarities of random sets of words, which are positive semidefinite."""
    draws = np.random.default_rng(seed)
    words = draws.random((count, 12)) < 0.4
    words[np.arange(count), draws.integers(12, size=count)] = True
    shared = (words[:, None] & words).sum(-1)
    return draws.uniform(0.1, 1, count), shared / (words[:, None] | words).sum(-1)


def determinant(quality: np.ndarray, similarity: np.ndarray, chosen: list[int]) -> float:
    kernel = np.diag(quality) @ similarity @ np.diag(quality)
    return float(np.linalg.det(kernel[np.ix_(chosen, chosen)])) if chosen else 1.0


def test_harmonic_by_hand() -> None:
    # After 0: 1 has 2·.85·.1/.95 = .179, 2 has 2·.6·1/1.6 = .75, 3 has 2·.2·.5/.7 = .286.
    assert harmonic(QUALITY, SIMILARITY, 4) == [0, 2, 3, 1]
    # By itself it stops when only question 1 is left, whose dissimilarity is .1 and not above .2.
    assert harmonic(QUALITY, SIMILARITY, None) == [0, 2, 3]
    assert harmonic(np.zeros(2), np.eye(2), 2) == [0, 1]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 6))
def test_greedy_dpp_takes_the_largest_determinant_at_each_step(seed: int, count: int, number: int) -> None:
    quality, similarity = pool(seed, count)
    chosen = dpp_greedy(quality, similarity, number)
    for rank, best in enumerate(chosen):
        before = chosen[:rank]
        values = {at: determinant(quality, similarity, [*before, at]) for at in range(count) if at not in before}
        assert values[best] == pytest.approx(max(values.values()), rel=1e-6)
    if len(chosen) < min(number, count):  # only repetitions are left
        rest = [at for at in range(count) if at not in chosen]
        assert all(abs(determinant(quality, similarity, [*chosen, at])) < 1e-9 for at in rest)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 5))
def test_small_pools_have_the_best_set(seed: int, count: int, number: int) -> None:
    quality, similarity = pool(seed, count)
    chosen = dpp(quality, similarity, number)
    sets = combinations(range(count), len(chosen))
    best = max(determinant(quality, similarity, list(one)) for one in sets)
    assert determinant(quality, similarity, chosen) == pytest.approx(best, rel=1e-6)
    assert sorted(chosen) == dpp_exact(quality, similarity, number)


def test_greedy_dpp_is_not_always_the_best_set() -> None:
    """The best question is in neither of the best pairs: .9² · .8² · (1 − .7²) = .26 against .8² · .8² = .41."""
    quality = np.array([0.9, 0.8, 0.8])
    similarity = np.array([[1, 0.7, 0.7], [0.7, 1, 0], [0.7, 0, 1]])
    assert np.linalg.eigvalsh(similarity).min() > 0
    assert dpp_greedy(quality, similarity, 2) == [0, 1]
    assert sorted(dpp(quality, similarity, 2)) == [1, 2]


def test_repetitions_end_a_dpp() -> None:
    similarity = np.ones((3, 3))
    assert dpp_greedy(QUALITY[:3], similarity, 2) == [0] == dpp(QUALITY[:3], similarity, 2)
    assert dpp_greedy(np.zeros(2), np.eye(2), 2) == [] == dpp(np.zeros(2), np.eye(2), 2)


def test_a_set_is_chosen_by_a_function() -> None:
    for select in (harmonic_of_pool, dpp_of_pool):
        found = choose(question_pool(), select, 3)
        assert len(set(taken(found))) == len(found.questions) == 3
        assert found.pool == 5 == 3 + sum(found.dropped.values()) and found.reason == ""
        assert [question.rank for question in found.questions] == [0, 1, 2]
    found = choose(question_pool(), harmonic_of_pool, 3)
    assert taken(found)[:2] == texts(MILL, FIRE)
    assert found.questions[0].reason == "number 1 by harmonic_of_pool, about sentence 1"
