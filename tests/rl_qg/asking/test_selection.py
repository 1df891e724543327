"""Which pairs are chosen: worked by hand."""

from collections import Counter
from dataclasses import replace
from math import exp, log, nan

import pytest

from rl_qg.asking.pairs import AnswerSpan, QAPairs
from rl_qg.asking.selection import ProposedPair, good_enough, select_for_answers, select_pairs, usable
from rl_qg.augmentation.near_duplicates import NearDuplicates
from rl_qg.augmentation.row_filters import RoundTrip

TEXT = "Ada wrote it in 1843. Bob read it in Rome. Cleo sang."


def pair(question: str, answer: str, score: float, **more: float) -> ProposedPair:
    return ProposedPair(question, AnswerSpan(answer, TEXT.index(answer)), 2 * log(score), 2, **more)


def select(
    text: str, pairs: list[ProposedPair], number: int | None, *, min_score: float = 0.0, dropped: Counter[str]
) -> QAPairs:
    return select_pairs(text, good_enough(pairs, min_score, dropped), number, dropped=dropped)


def test_the_score_is_the_mean_probability_of_a_token_times_the_readers_f1() -> None:
    one = ProposedPair("Who?", AnswerSpan("Ada", 0), log(0.5) + log(0.125), 2)
    assert one.score == 0.25
    assert replace(one, round_trip=0.6).score == pytest.approx(0.15)
    assert replace(one, round_trip=0.6).scores == {"probability": 0.25, "round_trip": 0.6}
    assert ProposedPair("Who?", AnswerSpan("Ada", 0), 0.0, 0).score == 1.0
    assert exp(one.logprob) == pytest.approx(0.0625)


def test_empty_and_repeating_questions_and_those_that_tell_the_answer_are_counted() -> None:
    dropped: Counter[str] = Counter()
    questions = ["?!", "Did Ada write it?", "Who wrote?", "Who wrote wrote?", "Who sang of Duran Duran?"]
    kept = usable([pair(text, "Ada", 0.9) for text in questions], "Ada sang of Duran Duran, and wrote.", 0.0, dropped)
    assert [one.question for one in kept] == ["Who wrote?", "Who sang of Duran Duran?"]
    assert dropped == {"empty question": 1, "answer in the question": 1, "words repeated": 1}


def test_what_no_reader_can_save_is_counted_before_one_reads() -> None:
    dropped: Counter[str] = Counter()
    pairs = [pair("Who wrote?", "Ada", 0.6), pair("Who sang?", "Ada", 0.4), pair("Who read?", "Ada", 0.9, support=0.1)]
    assert usable(pairs, TEXT, 0.55, dropped) == [pairs[0]]
    assert usable(pairs, TEXT, 0.5, dropped) == [pairs[0], pairs[2]]  # 0.9 · 0.1^(1/4) = 0.506
    assert dropped == {"score below min_score": 3}


def test_pairs_spread_over_the_sentences_and_come_best_first() -> None:
    pairs = [
        pair("Who wrote that program?", "Ada", 0.9),
        pair("When was the program written?", "1843", 0.8),
        pair("Which person was its author?", "Ada", 0.85),  # a second question about Ada
        pair("Where was something read?", "Rome", 0.3),
        pair("What is the singer called?", "Cleo", 0.2),
    ]
    dropped: Counter[str] = Counter()
    found = select(TEXT, pairs, 3, dropped=dropped)
    assert [(one.answer, one.score) for one in found] == [("Ada", 0.9), ("Rome", 0.3), ("Cleo", 0.2)]
    assert found.dropped == {"beyond the number": 2} and found.reason == ""
    four = select(TEXT, pairs, 4, dropped=Counter())
    assert [one.answer for one in four] == ["Ada", "1843", "Rome", "Cleo"]
    assert [one.reason for one in four][:2] == ["the best pair of sentence 1", "pair 2 of sentence 1"]
    everything = select(TEXT, pairs, None, dropped=Counter())
    assert [one.score for one in everything] == [0.9, 0.85, 0.8, 0.3, 0.2]
    assert everything[1].reason == "question 2 about this answer of sentence 1"


def test_questions_about_one_answer_share_less_than_half_of_their_words() -> None:
    pairs = [
        pair("Who wrote the program?", "Ada", 0.9),
        pair("Who had written the program?", "Ada", 0.8),  # 3 of 6 words
        pair("Who had read the program?", "Bob", 0.7),  # 3 of 6 words, about another answer
        pair("Who was its author?", "Ada", 0.6),  # 1 of 7
    ]
    dropped: Counter[str] = Counter()
    assert [one.score for one in select(TEXT, pairs, None, dropped=dropped)] == [0.9, 0.7, 0.6]
    assert dropped["near duplicate of another question"] == 1
    given = select_for_answers(good_enough(pairs[:2], 0.0, dropped), [pairs[0].span] * 2, 2, dropped=Counter())
    assert [one.score for one in given] == [0.9, 0.8]


def test_one_question_is_not_asked_twice_of_an_answer_that_stands_twice() -> None:
    text = "The hall was opened in 1843, and burned in 1843."
    asked = [
        ("When was the hall opened?", 23, 0.9),
        ("In what year had the hall been opened by him?", 43, 0.8),  # less than half of the words are the same
        ("In what year had the hall burned?", 43, 0.7),
    ]
    pairs = [ProposedPair(one, AnswerSpan("1843", at), 2 * log(score), 2) for one, at, score in asked]
    dropped: Counter[str] = Counter()
    assert [one.score for one in select(text, pairs, None, dropped=dropped)] == [0.9, 0.7]
    assert dropped["near duplicate of another question"] == 1


def test_near_duplicates_low_scores_and_answers_not_given_back_are_left_out_and_said() -> None:
    pairs = [
        pair("Who wrote the program then?", "Ada", 0.9, round_trip=1.0),
        pair("The program, who wrote then?", "Bob", 0.8, round_trip=1.0),  # the same words
        pair("Where did somebody read?", "Rome", 0.7, round_trip=0.4),
        pair("What is she called?", "Cleo", 0.05, round_trip=1.0),
    ]
    found = select(TEXT, pairs, 3, min_score=0.1, dropped=Counter({"empty question": 2}))
    assert [one.answer for one in found] == ["Ada"]
    assert found.reason == (
        "1 of 3 pairs: empty question (2), answer not given back by the reader (1), score below min_score (1), "
        "near duplicate of another question (1)"
    )


def test_who_stands_at_a_limit_stays() -> None:
    """The limits are those of the filters, at which a candidate is kept and a near duplicate is one."""
    subject = pair("Who wrote the program then?", "Ada", 0.25)
    found = {
        f1: len(select(TEXT, [replace(subject, round_trip=f1)], 1, dropped=Counter())) for f1 in (0.49, 0.5, 1.0, nan)
    }
    assert found == {0.49: 0, 0.5: 1, 1.0: 1, nan: 0} and RoundTrip().min_f1 == 0.5
    kept = {low: len(select(TEXT, [subject], 1, min_score=low, dropped=Counter())) for low in (0.25, 0.26)}
    assert kept == {0.25: 1, 0.26: 0}
    alike = {  # 4 of 5 words, and 3 of 4
        more: len(select(TEXT, [pair(text, "Ada", 0.9), pair(more, "Bob", 0.8)], 2, dropped=Counter()))
        for text, more in (("Who did it once?", "Who did it once again?"), ("Who did it?", "Who did it once?"))
    }
    assert list(alike.values()) == [1, 2] and NearDuplicates().threshold == 0.8


def test_given_answers_keep_their_order_and_one_given_twice_gets_two_questions() -> None:
    ada, rome = AnswerSpan("Ada", 0), AnswerSpan("Rome", TEXT.index("Rome"))
    pairs = [
        pair("Who wrote it?", "Ada", 0.9),
        pair("Wrote it who?", "Ada", 0.8),
        pair("Whose work is this?", "Ada", 0.7),
    ]
    pairs += [pair("Where?", "Rome", 0.95)]
    good = good_enough(pairs, 0.0, Counter())
    found = select_for_answers(good, [ada, rome, ada, ada], 5, dropped=Counter())
    assert [one.question for one in found] == ["Who wrote it?", "Where?", "Whose work is this?"]
    assert found.reason.startswith("3 of 5 pairs: near duplicate")
