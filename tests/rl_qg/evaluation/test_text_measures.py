"""Measures of texts against reference numbers and slow versions; the rule that calls divergence on made series."""

import math
from itertools import combinations

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_qg.evaluation.text_measures import DIRECTION, Change, divergences, diverges, held_out_measures, improves

# ROUGE-L F1 of these pairs by the package rouge-score 0.1.2, without stemming.
PAIRS = [
    ("Who wrote the famous play in London?", "Who wrote the play that was shown in London?", 0.75),
    ("What is the capital city of France?", "Which city is the capital of France?", 0.7142857142857143),
    ("When did the war end and who won the war?", "Who won the war?", 0.5714285714285715),
    ("Where?", "In which year did it happen?", 0.0),
]
QUESTIONS, GOLD = [pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS]
CONTEXT = "The play was written by Shakespeare in London."
WORDS = st.lists(st.sampled_from("a b c d".split()), max_size=7)


def measure(*questions, gold="What?", context=CONTEXT):
    return held_out_measures(questions, [gold] * len(questions), [context] * len(questions))


def test_rouge_l_is_that_of_the_reference_package():
    found = held_out_measures(QUESTIONS, GOLD, [CONTEXT] * 4)
    assert found["rouge_l"] == pytest.approx(100 * sum(pair[2] for pair in PAIRS) / 4)


@settings(max_examples=60, deadline=None)
@given(WORDS, WORDS)
def test_rouge_l_against_all_subsequences(one, other):
    common = max(size for size in range(len(one) + 1) if set(combinations(one, size)) & set(combinations(other, size)))
    expected = 200 * common / (len(one) + len(other)) if one or other else 0.0
    assert measure(" ".join(one), gold=" ".join(other))["rouge_l"] == pytest.approx(expected)


def test_bleu_is_sacrebleus():
    found = held_out_measures(QUESTIONS, GOLD, [CONTEXT] * 4)["bleu4"]
    assert found == pytest.approx(sacrebleu.corpus_bleu(QUESTIONS, [GOLD]).score)
    assert 0 < found < 100
    assert held_out_measures(GOLD, GOLD, [CONTEXT] * 4)["bleu4"] == pytest.approx(100)


def test_distinct_n_counts_over_the_whole_set():
    found = measure("who won the war?", "Who won the game?")
    assert found["distinct_1"] == 5 / 8  # who won the war game, case and punctuation aside
    assert found["distinct_2"] == 4 / 6
    assert measure("who won?", "who won?")["distinct_2"] == 0.5


def test_copy_rate_is_the_share_of_bigrams_that_stand_in_the_own_passage():
    assert measure("THE PLAY was written by whom?")["copy_rate"] == 4 / 5
    assert measure("written London by play")["copy_rate"] == 0  # the words alone are no copy
    assert measure("Shakespeare")["copy_rate"] == 0
    # A mean over questions, each with its own passage: swapping the passages changes it.
    pair = ["the play was written", "a dog ran"]
    assert held_out_measures(pair, ["?", "?"], [CONTEXT, "A dog ran home."])["copy_rate"] == 1
    assert held_out_measures(pair, ["?", "?"], ["A dog ran home.", CONTEXT])["copy_rate"] == 0


def test_repeated_3grams_count_questions_not_repetitions():
    loop = "what is the what is the what is the name?"
    assert measure(loop, "what is the name of the king?")["repeated_3grams"] == 0.5
    assert measure("the the the")["repeated_3grams"] == 0
    assert measure("the the the the")["repeated_3grams"] == 1


def test_length_is_in_words():
    assert measure("Who won the U.S. Open?", "Why?")["length_words"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "Why?",
        "Why? ",
        "Why？",
        "لماذا؟",
        "Τι είναι;",
        "Τι είναι\u037e",
        'Who said "why?"',
        "Really?!",
        "Quoi ?»",
        "«Quoi ?»",
    ],
)
def test_question_marks_of_every_script(text):
    assert measure(text)["no_question_mark"] == 0


@pytest.mark.parametrize("text", ["", "Why", "Why? Because", "What;", "He asked why."])
def test_texts_without_a_question_mark_at_the_end(text):
    assert measure(text)["no_question_mark"] == 1


def test_scripts_without_spaces_are_measured_by_character():
    found = measure("首都は東京ですか?", gold="東京は首都ですか?", context="日本の首都は東京です。")
    assert found["length_words"] == 9
    assert found["copy_rate"] == pytest.approx(6 / 7)
    assert 50 < found["rouge_l"] < 100


def test_empty_questions_and_empty_sets_have_numbers():
    assert set(measure().values()) == {0.0}
    found = measure("", "Who won the war?")
    assert found["length_words"] == 2 and found["no_question_mark"] == 0.5
    assert all(math.isfinite(value) for value in measure("").values())


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="2 questions, 1 references and 2 contexts"):
        held_out_measures(["a", "b"], ["a"], ["a", "b"])


def test_every_measure_has_a_direction():
    assert set(measure("a")) | {"held_out", "loss", "reward_greedy"} == set(DIRECTION)


# --- Early stopping ---


@pytest.mark.parametrize(
    ("name", "value", "best", "expected"),
    [
        ("bleu4", 2.0, 1.0, True),
        ("bleu4", 1.0, 1.0, False),
        ("loss", 2.0, 1.0, False),
        ("loss", 1.0, 2.0, True),
        ("repeated_3grams", 0.0, 0.1, True),
        ("bleu4", math.nan, 1.0, False),
        ("bleu4", 1.0, math.nan, True),
        ("held_out", -3.0, None, True),
        ("held_out", math.inf, None, False),
    ],
)
def test_improvement_follows_the_direction(name, value, best, expected):
    assert improves(name, value, best) is expected


@pytest.mark.parametrize("name", ["blue4", "length_words", "kl"])
def test_what_cannot_improve_is_refused_with_what_can(name):
    with pytest.raises(ValueError, match=f"{name} is not a measure that can improve; one of held_out, bleu4, rouge_l"):
        improves(name, 1.0, 0.0)


# --- Divergence ---

RISING = [0.30, 0.31, 0.32, 0.35, 0.37, 0.40]
FLAT = [0.30, 0.31, 0.29, 0.30, 0.30, 0.30]
FALLING = [18.0, 17.5, 17.0, 14.0, 13.0, 12.0]


@pytest.mark.parametrize(
    ("reward", "other", "direction", "expected"),
    [
        pytest.param(RISING, FALLING, 1, True, id="reward up, measure down"),
        pytest.param(RISING, FALLING, -1, False, id="down is the right way"),
        pytest.param(RISING, FALLING[::-1], 1, False, id="both up"),
        pytest.param(RISING, FALLING[::-1], -1, True, id="up is the wrong way"),
        pytest.param(FLAT, FALLING, 1, False, id="the reward did not rise"),
        pytest.param(RISING[::-1], FALLING, 1, False, id="both down"),
        pytest.param(RISING, [18.0, 17.9, 17.7, 17.5, 17.3, 17.0], 1, False, id="a small loss"),
        pytest.param(RISING, [18.0, 17.9, 18.2, 18.1, 17.8, 2.0], 1, False, id="one noisy evaluation at the end"),
        pytest.param(RISING, [40.0, 17.9, 18.2, 18.1, 17.8, 18.0], 1, False, id="one noisy evaluation at the start"),
        pytest.param(RISING, [18.0, 17.9, 18.2, 18.1, 2.0, 2.1], 1, True, id="two evaluations are no noise"),
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
def test_divergence_on_made_series(reward, other, direction, expected):
    assert diverges(reward, other, direction) is expected


def test_noise_alone_is_not_called():
    rng = np.random.default_rng(0)
    for _ in range(200):
        reward = 0.3 + 0.01 * np.arange(8) + rng.normal(0, 0.005, 8)
        other = 18 + rng.normal(0, 0.4, 8)
        assert not diverges(reward.tolist(), other.tolist(), 1)


def test_a_share_that_starts_at_zero_needs_more_than_a_few_questions():
    assert diverges(RISING, [0, 0, 0, 0.02, 0.02, 0.02], -1)
    assert not divergences(RISING, {"no_question_mark": [0, 0, 0, 0.02, 0.02, 0.02]})
    assert divergences(RISING, {"no_question_mark": [0, 0, 0, 0.2, 0.3, 0.3]}) == {"no_question_mark": Change(0, 0.3)}


def test_divergences_name_the_measures_that_went_wrong():
    found = divergences(RISING, {"bleu4": FALLING, "rouge_l": FALLING[::-1], "length_words": [10.0] * 6})
    assert found == {"bleu4": Change(start=17.5, end=13.0)}


def test_a_second_reward_may_lose_less_than_other_measures():
    lost = [2.0, 2.0, 2.0, 1.85, 1.85, 1.85]  # 7.5 %
    assert set(divergences(RISING, {"held_out": lost, "bleu4": [10 * value for value in lost]})) == {"held_out"}


def test_four_evaluations_are_needed_to_speak_of_a_change():
    assert Change.of([1.0, 2.0, math.nan, 3.0]) is None
    assert Change.of([1.0, 2.0, 3.0, 4.0]) == Change(2.0, 3.0)
