"""Languages found in texts, and their rules, on sentences in each script and on real questions."""

import pytest

from rewards.words import ends_as_question, lower
from rl_qg.text import languages, words
from rl_qg.text.languages import (
    LANGUAGES,
    code_fault,
    contains_text,
    has_question_word,
    knows_question_words,
    language_of,
    length_in_words,
    share_in,
    without_ending,
)
from rl_qg.text.words import normalised_words
from tests.real_languages import FILES, WRITTEN, real_records


@pytest.mark.parametrize("code", WRITTEN)
def test_a_question_tells_its_language_and_that_it_asks(code: str) -> None:
    assert language_of(WRITTEN[code]) == code
    assert has_question_word(WRITTEN[code], code) and knows_question_words(code)
    assert LANGUAGES[code].marks_questions <= ends_as_question(WRITTEN[code])
    assert share_in(WRITTEN[code], LANGUAGES[code].scripts) == 1


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("de", "Die Brücke steht seit hundert Jahren."),
        ("tr", "Köprü yüz yıldır ayakta."),
        ("ru", "Мост стоит сто лет."),
        ("hi", "पुल सौ साल से खड़ा है।"),
        ("th", "สะพานตั้งอยู่มาร้อยปี"),
        ("zh", "这座桥已经有一百年了。"),
        ("ko", "다리는 백 년 동안 서 있다."),
        ("el", "Η γέφυρα στέκεται εκατό χρόνια."),
    ],
)
def test_a_statement_does_not_ask(code: str, text: str) -> None:
    assert not has_question_word(text, code)


@pytest.mark.parametrize("code", FILES)
def test_real_passages_and_questions(code: str) -> None:
    records = real_records(code, 100)
    assert sum(language_of(record.context) == code for record in records) >= 97
    found = [language_of(record.question) for record in records]
    assert found.count(code) >= 85 and found.count(code) + found.count("") >= 97
    assert sum(has_question_word(record.question, code) for record in records) >= 93
    assert language_of(record.context for record in records) == code
    # The mean length of questions in English words is much the same in all languages.
    assert 8 < sum(length_in_words(record.question, code) for record in records) / len(records) < 13


def test_the_language_of_nothing_and_of_most() -> None:
    assert [language_of(text) for text in ("", "1984", "?!", [])] == [""] * 4
    assert language_of(["Wer war das und wann?", "Who was it?", "Das ist nicht der Fluss."]) == "de"


def test_a_tenth_of_kana_tells_japanese_from_chinese() -> None:
    assert [language_of("漢" * count + "の") for count in (10, 11)] == ["ja", "zh"]


def test_codes() -> None:
    assert not any(map(code_fault, ("de", "xx", "auto", "other", "fil")))
    assert all("such as de, auto" in code_fault(code) for code in ("", "english", "d1", "d"))


@pytest.mark.parametrize(
    ("part", "whole", "code", "expected"),
    [
        ("서울", "서울은 어느 나라의 수도인가?", "ko", True),
        ("서울", "서울시청은 어디인가?", "ko", False),  # another word, not a particle
        ("이순신 장군", "왜 이순신 장군이 떠났는가?", "ko", True),
        ("東京", "東京タワーはどこですか", "ja", True),
        ("東", "東京タワーはどこですか", "ja", False),  # a single character is no word
        ("กรุงเทพ", "กรุงเทพอยู่ที่ไหน", "th", True),
        ("NASA", "NASA的总部在哪里？", "zh", True),
        ("NASA", "ナサではないNASADAとは何ですか", "ja", False),
        ("1984年", "1984年に何がありましたか", "ja", True),
        ("1984", "เกิดอะไรขึ้นในปี 1984", "th", True),
        ("84", "1984年发生了什么？", "zh", False),
        ("ISPARTA", "Isparta nerede?", "tr", True),
        ("izmir", "İZMİR nerede?", "tr", True),
        ("art", "Wer kam zur Party?", "de", False),
        ("", "Was?", "de", False),
        ("", "何ですか", "ja", False),
    ],
)
def test_whether_a_text_holds_another_one(part: str, whole: str, code: str, expected: bool) -> None:
    assert contains_text(part, whole, code) is expected


def test_lower_case_of_turkish_and_of_others() -> None:
    assert lower("IŞIK, İzmir", "tr") == "ışık, izmir" and lower("Işık", "az") == "ışık"
    assert lower("INDIA, İzmir") == "india, izmir"  # str.lower leaves a second dot on the i


def test_particles_of_korean_words() -> None:
    assert [without_ending(word, "ko") for word in ("임종석이", "서울에서는", "바다", "나는")] == [
        *("임종석", "서울", "바다", "나는")  # of one syllable nothing would be left to ask about
    ]
    assert without_ending("Ankara", "tr") == "Ankara"


def test_texts_are_split_into_words_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(text: str) -> list[str]:
        calls.append(text)
        return normalised_words(text)

    for module in (languages, words):
        monkeypatch.setattr(module, "normalised_words", counted)
    for code in ("en", "ko", "xx"):
        assert not contains_text("Paris", "Who went to Rome?", code)
    assert len(calls) == 6
