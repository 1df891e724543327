"""The rules for candidate questions, by worked cases and against a slow reference."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_qg.filters import Funnel, Rule, contains_words, paper_rules, question_key, words

PASSAGE = "Ada Lovelace met Charles Babbage at a party in London."


def record(question: str, answer: str = "London", context: str = PASSAGE) -> dict[str, Any]:
    return {"context": context, "question": question, "answer": answer}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who's THAT?", ["who", "s", "that"]),
        ("  a\tb\n c ", ["a", "b", "c"]),
        ("the cost: 1,000.50 or 5.5%", ["the", "cost", "1,000.50", "or", "5.5"]),
        ("at 10:30.", ["at", "10:30"]),
        ("state-of-the-art", ["state", "of", "the", "art"]),
        ("U.S.", ["u", "s"]),
        ("CAFE\u0301 caf\u00e9", ["café", "café"]),  # composed and decomposed
        ("\uff26\uff35ll width \ufb01ne", ["full", "width", "fine"]),
        ("Straße", ["strasse"]),
        ("?! -- …", []),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        ("art", "Who threw the party?", False),
        ("art", "What kind of ART is it?", True),
        ("art", "Is it state-of-the-art?", True),
        ("New York", "Who runs New York's zoo?", True),
        ("New York", "Is York new?", False),
        ("New York", "Is new, old York far?", False),
        ("new york", "Why New, York?", True),  # punctuation does not count
        ("The Who", "Who is the drummer?", False),
        ("The Who", "When did the Who split?", True),
        ("5", "How is 5.5 written?", False),
        ("5", "Is it 5?", True),
        ("$5", "Is it 5 euros?", True),
        ("%", "What does % mean?", False),  # no words in it
        ("", "Why?", False),
        ("a much longer answer", "longer answer", False),
        ("London", "London", True),
        ("what", "So what", True),
    ],
)
def test_an_answer_stands_in_a_question_as_whole_words(part: str, whole: str, expected: bool) -> None:
    assert contains_words(part, whole) is expected


@given(
    part=st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3),
    whole=st.lists(st.sampled_from(["a", "b", "ab"]), max_size=8),
)
def test_containing_words_is_containing_padded_text(part: list[str], whole: list[str]) -> None:
    expected = bool(part) and f" {' '.join(part)} " in f" {' '.join(whole)} "
    assert contains_words(" ".join(part), "? ".join(whole)) is expected


def test_a_key_is_the_passage_and_the_words_of_the_question() -> None:
    key = question_key("One  passage.", "Who is it?")
    assert len(key) == 16
    assert key == question_key("One\npassage. ", "who is IT ?")
    others = [("Two passage.", "Who is it?"), ("One passage.", "Who it is?"), ("One passage. who", "is it?")]
    assert len({key, *(question_key(*other) for other in others)}) == 4


def first_reason(question: str, answer: str = "London", **settings: int) -> str:
    limits = {"min_words": 3, "max_words": 5, **settings}
    funnel = Funnel(paper_rules({question_key(PASSAGE, "Who met Charles Babbage?")}, **limits))
    assert funnel.keeps(record(question, answer)) is not any(funnel.counts.values())
    return next((reason for reason, count in funnel.counts.items() if count), "")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("? ? ? ?", "empty"),
        ("Why so?", "too short"),
        ("Why so ?", ""),  # three runs between white space
        ("Who met Ada then now?", ""),
        ("Who met Ada then and now?", "too long"),
        ("Is London London", "answer in question"),
        ("London?", "too short"),  # the first rule names the reason
        ("who met CHARLES babbage", "duplicate of gold"),
        ("Who met Ada Lovelace?", ""),
    ],
)
def test_each_rule_of_the_paper(question: str, reason: str) -> None:
    assert first_reason(question) == reason


def test_a_question_without_words_is_empty_even_when_short_ones_are_allowed() -> None:
    assert first_reason("?", min_words=0) == "empty"
    assert first_reason("Why?", min_words=0) == ""


def test_duplicates_are_counted_by_passage_and_question() -> None:
    funnel = Funnel(paper_rules(set(), min_words=1, max_words=9))
    candidates = [
        record("Where was it?"),
        record("where was  it"),  # the same words
        record("Where was it?", answer="party"),  # another answer, the same question
        record("Where was it?", context="Another passage in London."),
        record("Was London it?"),
        record("Where was it?"),
    ]
    assert [funnel.keeps(candidate) for candidate in candidates] == [True, False, False, True, False, False]
    assert (funnel.seen, funnel.kept) == (6, 2)
    assert funnel.counts == {
        "empty": 0,
        "too short": 0,
        "too long": 0,
        "answer in question": 1,
        "duplicate of gold": 0,
        "duplicate of candidate": 3,
    }


def test_a_candidate_dropped_for_another_reason_does_not_shade_its_equals() -> None:
    funnel = Funnel(paper_rules(set(), min_words=1, max_words=9))
    assert not funnel.keeps(record("Was Ada there?", answer="Ada"))
    assert funnel.keeps(record("Was Ada there?", answer="London"))


def test_rules_compose() -> None:
    seen = []

    def confident(candidate: Any) -> bool:
        seen.append(candidate["question"])
        return bool(candidate["logprob"] < -5)

    funnel = Funnel([*paper_rules(set(), min_words=2, max_words=9)[:2], Rule("unsure", confident)])
    answers = [funnel.keeps({**record(q), "logprob": p}) for q, p in (("Why so?", -6), ("Why so?", -4), ("Why?", -9))]
    assert answers == [False, True, False]
    assert seen == ["Why so?", "Why so?"]  # a dropped record costs no later rule
    assert funnel.counts == {"empty": 0, "too short": 1, "unsure": 1}
