"""The oracle against brute force over all sets and all assignments."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from experiments.sets.selections import oracle
from rewards import RougeL
from rl_qg.asking.learned_selector import gains, reference_scores, worth

SHAPES = (st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))


def table(seed: int, rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(seed).random((rows, columns)).round(2)


def slow_worth(scores: np.ndarray, rows: tuple[int, ...]) -> float:
    """The best of all assignments, one by one."""
    wide = scores[list(rows)]
    wide = wide if wide.shape[0] <= wide.shape[1] else wide.T
    choices = permutations(range(wide.shape[1]), wide.shape[0])
    return max((sum(wide[at, column] for at, column in enumerate(one)) for one in choices), default=0.0)


@settings(max_examples=60, deadline=None)
@given(*SHAPES, st.integers(1, 5))
def test_a_number_of_questions(seed: int, rows: int, columns: int, number: int) -> None:
    scores = table(seed, rows, columns)
    chosen = oracle(scores, number)
    assert len(chosen) == len(set(chosen)) == min(number, rows)
    best = max(slow_worth(scores, one) for one in combinations(range(rows), len(chosen)))
    assert worth(scores[chosen]) == pytest.approx(slow_worth(scores, tuple(chosen))) == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(*SHAPES)
def test_the_best_f_of_all_sets(seed: int, rows: int, columns: int) -> None:
    scores = table(seed, rows, columns)

    def f1(one: tuple[int, ...]) -> float:
        return 2 * slow_worth(scores, one) / (len(one) + columns)

    sets = [one for size in range(1, rows + 1) for one in combinations(range(rows), size)]
    assert f1(tuple(oracle(scores, None))) == pytest.approx(max(map(f1, sets)))


def test_gains_are_differences_of_worth() -> None:
    scores = np.array([[0.9, 0.1], [0.8, 0.0], [0.2, 0.5]])
    assert gains(scores, []) == pytest.approx([0.9, 0.8, 0.5])
    # After 0: with 1 the best pairs are 1–first and 0–second, .9 in all; with 2 it is .9 + .5.
    assert gains(scores, [0]) == pytest.approx([0.0, 0.0, 0.5])


def test_scores_are_those_of_the_metric() -> None:
    questions, gold = ["who built the mill ?", "why ?"], ["who built a mill ?", "when did it burn ?", "why ?"]
    found = reference_scores(questions, gold)
    assert found.shape == (2, 3) and found[1, 2] == 1.0
    assert found[0, 0] == RougeL().score([questions[0]], references=[[gold[0]]]).scores[0] == 0.75
    assert reference_scores([], gold).shape == (0, 3) and reference_scores(questions, []).shape == (2, 0)
    assert oracle(np.zeros((0, 3)), 2) == [] == oracle(np.zeros((0, 3)), None)
    assert oracle(np.zeros((2, 0)), 1) == [0]
