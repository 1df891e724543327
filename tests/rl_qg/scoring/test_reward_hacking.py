"""The rule that compares an optimised reward with other measures, on constructed series."""

import math

import numpy as np
import pytest

from rl_qg.scoring.held_out import SeriesChange, divergences, diverges

RISING = [0.30, 0.31, 0.32, 0.35, 0.37, 0.40]
FLAT = [0.30, 0.31, 0.29, 0.30, 0.30, 0.30]
FALLING = [0.180, 0.175, 0.170, 0.140, 0.130, 0.120]


@pytest.mark.parametrize(
    ("reward", "other", "direction", "expected"),
    [
        pytest.param(RISING, FALLING, 1, True, id="reward up, measure down"),
        pytest.param(RISING, FALLING, -1, False, id="down is the right way"),
        pytest.param(RISING, FALLING[::-1], 1, False, id="both up"),
        pytest.param(RISING, FALLING[::-1], -1, True, id="up is the wrong way"),
        pytest.param(FLAT, FALLING, 1, False, id="the reward did not rise"),
        pytest.param(RISING[::-1], FALLING, 1, False, id="both down"),
        pytest.param(RISING, [0.180, 0.179, 0.177, 0.175, 0.173, 0.170], 1, False, id="a small loss"),
        pytest.param(
            RISING, [0.180, 0.179, 0.182, 0.181, 0.178, 0.020], 1, False, id="one noisy evaluation at the end"
        ),
        pytest.param(
            RISING, [0.400, 0.179, 0.182, 0.181, 0.178, 0.180], 1, False, id="one noisy evaluation at the start"
        ),
        pytest.param(RISING, [0.180, 0.179, 0.182, 0.181, 0.020, 0.021], 1, True, id="two low evaluations"),
        pytest.param([0.3, 0.3, 0.3, 0.3, 0.3, 0.9], FALLING, 1, False, id="a reward of one noisy evaluation"),
        pytest.param([-3.0, -2.9, -2.8, -2.5], [-2.0, -2.1, -2.4, -2.6], 1, True, id="negative log-likelihoods"),
        pytest.param([-3.0, -2.9, -2.8, -2.5], [-2.0, -1.9, -1.8, -1.7], 1, False, id="negative and improving"),
        pytest.param(RISING, [10, 10, 10, 13, 14, 14], 0, True, id="longer by far"),
        pytest.param(RISING, [10, 10, 10, 7, 6, 6], 0, True, id="shorter by far"),
        pytest.param(RISING, [10, 10, 10, 11.5, 12, 12], 0, False, id="a little longer"),
        pytest.param(RISING[:3], FALLING[-3:], 1, False, id="too few to say"),
        pytest.param([], [], 1, False, id="nothing"),
        pytest.param([*RISING, math.nan], [math.nan, *FALLING], 1, True, id="missing values are skipped"),
    ],
)
def test_divergence_of_constructed_series(reward, other, direction, expected):
    assert diverges(reward, other, direction) is expected


def test_noise_alone_is_no_divergence():
    rng = np.random.default_rng(0)
    for _ in range(200):
        reward = 0.3 + 0.01 * np.arange(8) + rng.normal(0, 0.005, 8)
        other = 0.18 + rng.normal(0, 0.004, 8)
        assert not diverges(reward.tolist(), other.tolist(), 1)


def test_a_fraction_that_starts_at_zero_needs_more_than_a_few_questions():
    assert diverges(RISING, [0, 0, 0, 0.02, 0.02, 0.02], -1)
    assert not divergences(RISING, {"no_question_mark": [0, 0, 0, 0.02, 0.02, 0.02]})
    assert divergences(RISING, {"no_question_mark": [0, 0, 0, 0.2, 0.3, 0.3]}) == {
        "no_question_mark": SeriesChange(0, 0.3)
    }


def test_divergences_name_the_measures_that_got_worse():
    diverging = divergences(RISING, {"bleu4": FALLING, "rouge_l": FALLING[::-1], "length_words": [10.0] * 6})
    assert diverging == {"bleu4": SeriesChange(start=0.175, end=0.130)}


def test_a_second_reward_may_lose_less_than_other_measures():
    lost = [2.0, 2.0, 2.0, 1.85, 1.85, 1.85]  # 7.5 %
    assert set(divergences(RISING, {"held_out": lost, "bleu4": [value / 10 for value in lost]})) == {"held_out"}


def test_four_evaluations_are_needed_to_speak_of_a_change():
    assert SeriesChange.of([1.0, 2.0, math.nan, 3.0]) is None
    assert SeriesChange.of([1.0, 2.0, 3.0, 4.0]) == SeriesChange(2.0, 3.0)


def test_a_change_below_one_bleu_point_is_too_small_to_matter():
    falling = [0.020, 0.020, 0.020, 0.012, 0.012, 0.012]  # 40 % of its start, 0.8 points
    assert diverges(RISING, falling, 1)
    assert not divergences(RISING, {"bleu4": falling})
    assert divergences(RISING, {"bleu4": [2 * value for value in falling]})
