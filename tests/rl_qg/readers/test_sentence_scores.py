"""Scores of sentence classifiers by hand, and thresholds against every possible one."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rl_qg.readers.sentences import best_threshold, compared_scores, decisions, label_scores
from rl_qg.stats.intervals import PassageDraws, widening

ACTUAL = np.array([[1, 0], [1, 0], [0, 0], [0, 1], [1, 0], [0, 1]], dtype=bool)
PREDICTED = np.array([[1, 0], [0, 0], [1, 1], [0, 1], [1, 0], [0, 0]], dtype=bool)
# first label: both 2, predicted 3, actual 3, right 4 of 6; second: both 1, predicted 2, actual 2, right 4 of 6
PASSAGES = [0, 0, 1, 1, 2, 2]


def values(row: dict[str, dict[str, float]]) -> dict[str, float]:
    return {name: part["value"] for name, part in row.items() if isinstance(part, dict)}


def test_measures_by_hand() -> None:
    each = label_scores(PREDICTED, ACTUAL, ("a", "b"), PassageDraws(PASSAGES))
    assert values(each["a"]) == pytest.approx({"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "accuracy": 4 / 6})
    assert values(each["b"]) == pytest.approx({"precision": 1 / 2, "recall": 1 / 2, "f1": 1 / 2, "accuracy": 4 / 6})
    assert (each["a"]["support"], each["b"]["support"]) == (3, 2)
    every = np.ones_like(ACTUAL)
    result = compared_scores(PREDICTED, ACTUAL, {"every": every}, PassageDraws(PASSAGES))
    own = {"precision": 3 / 5, "recall": 3 / 5, "f1": 6 / 10, "accuracy": 8 / 12, "macro_f1": (2 / 3 + 1 / 2) / 2}
    all_of_them = {
        "precision": 5 / 12,
        "recall": 1,
        "f1": 10 / 17,
        "accuracy": 5 / 12,
        "macro_f1": (2 / 3 + 1 / 2) / 2,
    }
    assert values(result["scores"]) == pytest.approx(own)
    baseline = result["baselines"]["every"]
    assert values(baseline["scores"]) == pytest.approx(all_of_them)
    assert values(baseline["difference"]) == pytest.approx({name: own[name] - all_of_them[name] for name in own})


def test_intervals_are_those_of_a_plain_bootstrap_over_passages() -> None:
    rng = np.random.default_rng(0)
    passages = np.repeat(np.arange(40), 5)
    actual = rng.random((200, 1)) < rng.random(40)[passages, None]  # passages differ
    predicted = actual ^ (rng.random((200, 1)) < 0.3)
    got = compared_scores(predicted, actual, {"every": np.ones_like(actual)}, PassageDraws(passages.tolist()))
    f1, gaps = [], []
    for _ in range(4000):
        rows = np.concatenate([np.flatnonzero(passages == p) for p in rng.integers(0, 40, 40)])
        a, b = actual[rows], predicted[rows]
        f1.append(2 * (a & b).sum() / (a.sum() + b.sum()))
        gaps.append(f1[-1] - 2 * a.sum() / (a.sum() + len(a)))
    for part, draws in ((got["scores"]["f1"], f1), (got["baselines"]["every"]["difference"]["f1"], gaps)):
        ends = part["value"] + widening(40) * (np.quantile(draws, [0.025, 0.975]) - part["value"])
        assert [part["low"], part["high"]] == pytest.approx(ends, abs=0.01)


def test_what_does_not_exist_is_not_a_number() -> None:
    """Nothing predicted: no precision; a label that no sentence has takes no part in the macro average."""
    actual = np.array([[1, 0], [1, 0]], dtype=bool)
    each = label_scores(np.zeros_like(actual), actual, ("a", "b"), PassageDraws([0, 1]))
    assert each["a"]["precision"]["value"] is None and each["a"]["recall"]["value"] == 0
    assert each["b"]["f1"]["value"] is None
    assert compared_scores(actual, actual, {}, PassageDraws([0, 1]))["scores"]["macro_f1"]["value"] == 1


PAIRS = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.31, 0.5, 0.7, 0.9, 1.0]), st.booleans()), min_size=1)


@given(PAIRS)
def test_the_threshold_is_the_best_of_all(pairs: list[tuple[float, bool]]) -> None:
    probabilities, actual = np.array([p for p, _ in pairs]), np.array([is_it for _, is_it in pairs])

    def f1(threshold: float) -> float:
        chosen = probabilities >= threshold
        return 2 * (chosen & actual).sum() / max(1, chosen.sum() + actual.sum())

    got = best_threshold(probabilities, actual)
    assert f1(got) == max(f1(threshold) for threshold in np.linspace(0, 1, 201))
    assert 0 <= got <= 1 and (actual.any() or got == 0.5)


def test_of_equally_good_thresholds_the_nearest_to_one_half() -> None:
    # F1 is 2/3 from 0.8 (one of two found) and from 0.2 on (both, and two others): 0.75 and 0.1
    probabilities, actual = np.array([0.8, 0.7, 0.6, 0.2]), np.array([True, False, False, True])
    assert best_threshold(probabilities, actual) == pytest.approx(0.75)


def test_decisions_by_hand() -> None:
    rows = np.array([[0.6, 0.2, 0.5], [0.1, 0.3, 0.2]], dtype=np.float32)
    assert decisions(rows, (0.5, 0.5, 0.5), at_least_one=False).tolist() == [[True, False, True], [False] * 3]
    assert decisions(rows, (0.5, 0.5, 0.5), at_least_one=True).tolist()[1] == [False, True, False]
    assert decisions(rows, (0.7, 0.2, 0.6), at_least_one=False).tolist() == [
        [False, True, False],
        [False, True, False],
    ]
