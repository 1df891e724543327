"""Selection of sets against values worked by hand and brute force."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings, strategies as st

from rl_qg.asking.set_pool import cover, mmr, random_choice, ranked

# Questions 0 and 1 are nearly the same; 2 is worse and new; 3 is bad and half new.
QUALITY = np.array([0.9, 0.85, 0.6, 0.2])
SIMILARITY = np.array([[1, 0.9, 0.0, 0.5], [0.9, 1, 0.1, 0.5], [0.0, 0.1, 1, 0.0], [0.5, 0.5, 0.0, 1]])


def test_ranked_and_random() -> None:
    assert ranked(np.array([0.2, 0.9, 0.9, 0.5]), 3) == [1, 2, 3]
    assert ranked(QUALITY, None) == [0, 1, 2, 3]
    draws = [random_choice(20, 5, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert all(len(set(chosen)) == 5 and max(chosen) < 20 for chosen in draws)
    assert sorted(random_choice(3, 5, np.random.default_rng(0))) == [0, 1, 2]
    counts = np.bincount([random_choice(4, 1, np.random.default_rng(seed))[0] for seed in range(2000)], minlength=4)
    assert (abs(counts - 500) < 90).all()  # 4.6 standard deviations


def test_mmr_by_hand() -> None:
    # After 0: 1 has .7·.85 − .3·.9 = .325, 2 has .42, 3 has −.01; after 2: 1 .325 (0 is still nearest), 3 −.01.
    assert mmr(QUALITY, SIMILARITY, 3) == [0, 2, 1]
    assert mmr(QUALITY, SIMILARITY, 9, relevance=1.0) == [0, 1, 2, 3]
    # At relevance 0 all begin equal: the first index; then 2 (similarity 0); then 3 (.5) before 1 (.9).
    assert mmr(QUALITY, SIMILARITY, 4, relevance=0.0) == [0, 2, 3, 1]


def test_cover_by_hand() -> None:
    coverage = np.array([[1.0, 0.2, 0.0], [0.0, 0.9, 0.0], [0.9, 0.0, 0.0], [0.0, 0.0, 0.1]])
    # Gains at first 1.29, .985, .96, .12; then 1 has .7 + .085; then 2 has .06, 3 has .1 + .02.
    assert cover(QUALITY, coverage, 4) == [0, 1, 3, 2]
    assert cover(QUALITY, coverage, None) == [0, 1]
    assert cover(QUALITY, coverage, None, least=0.1) == [0, 1, 3]
    assert cover(QUALITY, coverage, 1, weights=np.array([0.1, 1.0, 0.1])) == [1]
    assert cover(np.array([0.01]), np.zeros((1, 2)), None) == [0]  # one question at least
    assert cover(np.zeros(0), np.zeros((0, 2)), None) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 5), st.integers(1, 4))
def test_cover_reaches_its_bound(seed: int, count: int, number: int, sentences: int) -> None:
    draws = np.random.default_rng(seed)
    quality, coverage = draws.random(count), draws.random((count, sentences))

    def value(chosen: tuple[int, ...]) -> float:
        return float(coverage[list(chosen)].max(0).sum() + 0.1 * quality[list(chosen)].sum())

    best = max(value(one) for one in combinations(range(count), min(number, count)))
    assert value(tuple(cover(quality, coverage, number))) >= (1 - 1 / np.e) * best - 1e-12
