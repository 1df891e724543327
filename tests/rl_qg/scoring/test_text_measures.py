"""Held-out measures against the metrics of `rewards`, reference numbers and slow versions."""

import math
from itertools import combinations

import pytest
import sacrebleu
from hypothesis import given, settings, strategies as st

from rewards import load
from rl_qg.scoring.held_out import DIRECTION, held_out_measures, improves, measure_signatures

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
    measures = held_out_measures(QUESTIONS, GOLD, [CONTEXT] * 4)
    assert measures["rouge_l"] == pytest.approx(sum(pair[2] for pair in PAIRS) / 4)


@settings(max_examples=60, deadline=None)
@given(WORDS, WORDS)
def test_rouge_l_against_all_subsequences(one, other):
    common = max(size for size in range(len(one) + 1) if set(combinations(one, size)) & set(combinations(other, size)))
    expected = 2 * common / (len(one) + len(other)) if one or other else 0.0
    assert measure(" ".join(one), gold=" ".join(other))["rouge_l"] == pytest.approx(expected)


def test_bleu_is_sacrebleus():
    bleu4 = held_out_measures(QUESTIONS, GOLD, [CONTEXT] * 4)["bleu4"]
    assert bleu4 == pytest.approx(sacrebleu.corpus_bleu(QUESTIONS, [GOLD]).score / 100)
    assert 0 < bleu4 < 1
    assert held_out_measures(GOLD, GOLD, [CONTEXT] * 4)["bleu4"] == pytest.approx(1)


def test_a_name_means_the_metric_of_that_name_in_rewards():
    """On texts where tokenisers differ: numbers, an accent, a script without spaces."""
    questions = ["Is 1,000.5 more than 5?", "Who is Beyonce\u0301?", "首都は東京ですか?"]
    gold = ["Is 1,000 more than 5.5?", "Is it Beyoncé, who sings?", "東京は首都ですか?"]
    measures = held_out_measures(questions, gold, [CONTEXT] * 3)
    references = [[text] for text in gold]
    bleu4, rouge_l = load("bleu4"), load("rouge_l")
    assert measures["bleu4"] == bleu4.corpus(bleu4.statistics(questions, references).sum(0))
    assert measures["rouge_l"] == pytest.approx(sum(rouge_l.score(questions, references=references).scores) / 3)
    assert measure_signatures() == {
        "bleu4": f"{bleu4.signature}|set:corpus", "rouge_l": f"{rouge_l.signature}|set:mean"
    }  # fmt: skip


def test_distinct_n_counts_over_the_whole_set():
    measures = measure("who won the war?", "Who won the game?")
    assert measures["distinct_1"] == 5 / 8  # who won the war game, case and punctuation aside
    assert measures["distinct_2"] == 4 / 6
    assert measure("who won?", "who won?")["distinct_2"] == 0.5


def test_copy_rate_is_the_fraction_of_2grams_that_occur_in_the_passage_of_the_question():
    assert measure("THE PLAY was written by whom?")["copy_rate"] == 4 / 5
    assert measure("written London by play")["copy_rate"] == 0  # its words in another order
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
    measures = measure("首都は東京ですか?", gold="東京は首都ですか?", context="日本の首都は東京です。")
    assert measures["length_words"] == 8
    assert measures["copy_rate"] == pytest.approx(6 / 7)
    assert 0.5 < measures["rouge_l"] < 1


def test_unsupported_names_and_numbers():
    context = "Paula Eklini painted 3 walls in Ulmburg for Carlo Dornberg."
    right = ("Who painted for Carlo Dornberg?", "What did Paula Eklini paint?", "What did she paint?")
    assert measure(*right, context=context)["unsupported"] == 0
    wrong = ("What did Carlo Eklini paint?", "Who painted 4 walls?", "Who painted in Berlin?")
    assert measure(*wrong, context=context)["unsupported"] == 1
    assert measure(*right, wrong[0], context=context)["unsupported"] == 0.25


def test_empty_questions_and_empty_sets_have_numbers():
    assert set(measure().values()) == {0.0}
    measures = measure("", "Who won the war?")
    assert measures["length_words"] == 2 and measures["no_question_mark"] == 0.5
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
