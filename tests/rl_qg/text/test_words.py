"""Words for filters and lengths, and sentences."""

import gzip
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rewards.words import normalise_answer
from rl_qg.data.examples import Answer, QAExample
from rl_qg.text.spans import sentence_texts
from rl_qg.text.words import contains_words, normalised_words, word_count

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


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
        ("दान दिन", ["दान", "दिन"]),  # vowel signs
        ("مَنْ كَتَبَ؟", ["مَنْ", "كَتَبَ"]),
        ("ใครเป็น", ["ใครเป็น"]),
        ("x\u0323y z", ["x\u0323y", "z"]),
        ("?! -- …", []),
        ("", []),
    ],
)
def test_normalised_words(text: str, expected: list[str]) -> None:
    assert normalised_words(text) == expected


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
        ("दान", "दिन कब है", False),
        ("London", "London", True),
        ("what", "So what", True),
    ],
)
def test_an_answer_is_in_a_question_as_whole_words(part: str, whole: str, expected: bool) -> None:
    assert contains_words(part, whole) is expected


@given(
    part=st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3),
    whole=st.lists(st.sampled_from(["a", "b", "ab"]), max_size=8),
)
def test_containing_words_is_containing_padded_text(part: list[str], whole: list[str]) -> None:
    expected = bool(part) and f" {' '.join(part)} " in f" {' '.join(whole)} "
    assert contains_words(" ".join(part), "? ".join(whole)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who's O'Neill, the so-called 1,000.5?", 5),
        ("Who wrote it ?", 3),  # a detached sign is no word
        ("誰が書いたか？", 6),
        ("ใครเป็น", 6),  # marks belong to their letter
        ("Кто написал это?", 3),
        ("", 0),
        ("?! -- …", 0),
    ],
)
def test_length_in_words(text: str, expected: int) -> None:
    assert word_count(text) == expected


def test_sentences_lose_nothing() -> None:
    text = 'One. "Two!" said he. Dr. Three of the U.S. Army? Four'
    assert sentence_texts(text) == ["One.", '"Two!" said he.', "Dr. Three of the U.S. Army?", "Four"]
    assert sentence_texts("  ") == [""]


def test_sentences_of_a_text_without_capitals() -> None:
    """Of tokens, as in Du et al.'s files, and of plain text."""
    tokens = "it was built by john f. kennedy 's u.s. army with a b.s. degree . who paid ? nobody knows , it seems ."
    assert sentence_texts(tokens) == [
        "it was built by john f. kennedy 's u.s. army with a b.s. degree .",
        "who paid ?",
        "nobody knows , it seems .",
    ]
    assert sentence_texts("john f. kennedy came. who paid? nobody.") == [
        "john f. kennedy came.",
        "who paid?",
        "nobody.",
    ]
    with_capital = "He came in e.g. 1858 (no. 3) and left. so they say."
    assert sentence_texts(with_capital) == [with_capital]


def test_sentences_of_the_files_of_du() -> None:
    path = SHARED / "nqg/src-test.txt.gz"
    if not path.is_file():
        pytest.skip("the sentences of Du et al. (../shared/data/nqg) are not here")
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        lines = list(dict.fromkeys(line.strip() for line in islice(stream, 3000)))
    found = sentence_texts(" ".join(lines))
    assert len(lines) > 700 and len({*found} & {*lines}) / len(lines) > 0.88


def test_answers_are_normalised_for_the_metric_and_for_the_reader_alike() -> None:
    from rewards import learned as rquge, words
    from rewards.relevance import reader
    from rl_qg.readers import reader as squad_scores

    assert rquge.normalise_answer is normalise_answer is words.normalise_answer
    assert reader.answer_f1 is words.answer_f1
    example = next(iter(squad_scores.score_predictions({"a": "The Élan!"}, [_asked("a", "élan")]).f1s))
    assert example == 1.0


def _asked(key: str, answer: str) -> QAExample:
    return QAExample(key, "", answer, "What?", (Answer(answer, 0),))
