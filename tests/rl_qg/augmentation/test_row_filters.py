"""Row filters, by worked cases."""

from typing import Any

import pytest

from rewards.words import ends_as_question
from rl_qg.augmentation.funnel import FilterResources, RowFilter
from rl_qg.augmentation.row_filters import (
    AnswerInQuestion,
    Duplicates,
    Empty,
    GoldDuplicates,
    Length,
    PassageScript,
    WellFormed,
    is_balanced,
    repeats_itself,
)
from rl_qg.data.examples import Answer, QAExample
from rl_qg.text.languages import scripts
from tests.questions import PASSAGE, record

GOLD = [QAExample("g", "", PASSAGE, "Who met Charles Babbage?", (Answer("Ada", 0),))]


def first_reason(filters: list[RowFilter], *candidates: dict[str, Any]) -> list[str]:
    """For each candidate, the reason of the first rule that rejects it, or ""."""
    rules: list[tuple[str, Any]] = []
    for filter_ in filters:
        filter_.prepare(FilterResources(gold=GOLD))
        rules += filter_.rules().items()
    return [next((reason for reason, rejects in rules if rejects(one)), "") for one in candidates]


def paper(min_words: int = 3) -> list[RowFilter]:
    return [Empty(), Length(min_words, 5), AnswerInQuestion(), GoldDuplicates(), Duplicates()]


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("? ? ? ?", "empty"),
        ("Why so?", "too short"),
        ("Why so ?", "too short"),  # a question mark is not a word
        ("Why is so ?", ""),
        ("Who met Ada then now?", ""),
        ("Who met Ada then and now?", "too long"),
        ("Is London London", "answer in question"),
        ("London?", "too short"),  # the first rule names the reason
        ("who met CHARLES babbage", "duplicate of gold"),
        ("Who met Ada Lovelace?", ""),
    ],
)
def test_filters_of_the_paper(question: str, reason: str) -> None:
    assert first_reason(paper(), record(question)) == [reason]


def test_a_question_without_words_is_empty_even_when_short_ones_are_allowed() -> None:
    assert first_reason(paper(0), record("?"), record("Why?")) == ["empty", ""]


def test_duplicates_have_the_same_passage_and_words_and_the_first_passes() -> None:
    reasons = first_reason(
        paper(1),
        record("Where was it?"),
        record("where was  it"),  # the same words
        record("Where was it?", answer="party"),  # another answer, the same question
        record("Where was it?", context="Another passage in London."),
        record("Was London it?"),
        record("Where was it?"),
    )
    same = "duplicate of candidate"
    assert reasons == ["", same, same, "", "answer in question", same]


def test_a_duplicate_of_a_dropped_candidate_passes() -> None:
    reasons = first_reason(paper(1), record("Was Ada there?", answer="Ada"), record("Was Ada there?"))
    assert reasons == ["answer in question", ""]


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Who met Charles Babbage in London?", ""),
        ("In which city did they meet ?", ""),
        ("Did Ada meet him?", ""),
        ("Who met him", "no question mark"),
        ("Who met him? In London.", "no question mark"),
        ("Ada met whom, exactly?", ""),
        ("Ada met him?", "no question word"),
        ("Name the city?", "no question word"),
        ("Who (the engineer met him?", "unbalanced brackets or quotes"),
        ('Who is "the engineer?', "unbalanced brackets or quotes"),
        ("Who met whom where met whom where?", "repeated words"),
        ("Who met met him?", "repeated words"),
        ("Who met <extra_id_0>?", "special tokens"),
        ("Who met [UNK] here?", "special tokens"),
        ("Who met ##bage here?", "special tokens"),
        ("Is 3 < 4 or 5 > 4, as in [1]?", ""),
    ],
)
def test_well_formed_questions(question: str, reason: str) -> None:
    assert first_reason([WellFormed()], record(question)) == [reason]


def test_special_tokens_that_are_in_the_passage_are_allowed() -> None:
    malta, masks = "The Ġgantija temples stand on Gozo.", "BERT reads [MASK] in place of a word."
    questions = [record("Where are the Ġgantija temples?", "Gozo", malta), record("What is [MASK]?", "BERT", masks)]
    assert first_reason([WellFormed()], *questions) == ["", ""]
    questions = [record("Where are the Ġgantija temples?"), record("What is [MASK] or [UNK]?", "BERT", masks)]
    assert first_reason([WellFormed()], *questions) == ["special tokens"] * 2


def test_each_test_of_form_can_be_switched_off() -> None:
    bad = {
        "special_tokens": "Who met <pad>?",
        "question_mark": "Who met him",
        "question_word": "Ada met him?",
        "balanced": "Who met (him?",
        "repeated_ngram": "Who met met him?",
    }
    for option, question in bad.items():
        assert first_reason([WellFormed()], record(question)) != [""]
        off: dict[str, Any] = {option: 0 if option == "repeated_ngram" else False}
        assert first_reason([WellFormed(**off)], record(question)) == [""]
        assert len(WellFormed(**off).rules()) == 4


def test_a_language_without_a_table_needs_no_question_word() -> None:
    question = record("彼は誰ですか？", "東京", "彼は東京に住む。")
    assert first_reason([WellFormed(language="eu")], question) == [""]
    assert first_reason([WellFormed(language="en")], question) == ["no question word"]


@pytest.mark.parametrize("question", ["Who?", "Who ？", "من هو؟", 'He asked "who?"', "(Who?)", "Ποιος\u037e", "Who?»"])
def test_question_marks_of_other_scripts_count(question: str) -> None:
    assert ends_as_question(question)


@pytest.mark.parametrize(
    "question", ["Ποιος κέρδισε;", "Ποιος είναι ο Newton;", "Πότε, το 1980;»", "Ո՞վ գրել է գիրքը։"]
)
def test_greek_and_armenian_question_marks_count(question: str) -> None:
    assert ends_as_question(question)


@pytest.mark.parametrize("question", ["", "Who", "Who?!?.", '"', "? Who", "Who wrote it;", ";", "1980;"])
def test_questions_without_a_question_mark_at_the_end(question: str) -> None:
    assert not ends_as_question(question)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a (b [c] d) 「e」", True),
        ("a (b [c) d]", False),
        ("a) b (", False),
        ("„a“ or “a” or «a» or »a«", True),
        ("“a", False),
        ("", True),
    ],
)
def test_balanced_brackets_and_quotes(text: str, expected: bool) -> None:
    assert is_balanced(text) is expected


@pytest.mark.parametrize(
    ("question", "context", "length", "expected"),
    [
        ("Who is in Duran Duran?", "Duran Duran is a band.", 3, False),
        ("Who is in Duran Duran?", "Duran is a band.", 3, True),
        ("What is the name of the name of it?", PASSAGE, 4, False),
        ("What is the name of the name of it?", PASSAGE, 3, True),
        ("Was it one of the few, one of the many?", PASSAGE, 3, True),
        ("Was it one of the few, one of the many?", "One of the few is one of the many.", 3, False),
        ("Who cried no more war no more war?", "They cried no more war no more war in May.", 3, False),
        ("Who cried no more war no more war?", "They cried no more war in May.", 3, True),
        ("Who said na na na?", "He said na na na na.", 2, False),  # three pairs that overlap
        ("Who said na na na?", "He said na na.", 2, True),
    ],
)
def test_repetition_counts_unless_the_passage_repeats_too(
    question: str, context: str, length: int, expected: bool
) -> None:
    assert repeats_itself(question, context, length) is expected


def test_scripts_of_letters() -> None:
    assert scripts("Ab, 12 жя ン漢 é") == {"LATIN": 3, "CYRILLIC": 2, "KANA": 1, "CJK": 1}
    assert scripts("カーは々ｶ") == {"KANA": 4, "CJK": 1}
    assert scripts("e\u0301") == scripts("é") == {"LATIN": 1}
    assert scripts("12 — ?") == {}


@pytest.mark.parametrize(
    ("question", "context", "dropped"),
    [
        ("Who met him?", PASSAGE, False),
        ("Кто его встретил?", PASSAGE, True),
        ("Кто встретил Ada?", PASSAGE, True),  # 3 letters of 14 are in the passage's script
        ("Кто встретил Ada?", "Ada встретила Чарльза в Лондоне.", False),
        ("Who?", "1815 — 1852", False),  # a passage without letters has no script
        ("1815?", PASSAGE, False),
        ("東京はどこですか？", "東京はにぎやかな町。", False),
        ("スーパーのオーナーは？", "東京は日本の首都であり、江戸の町である。", False),
        ("人々の代々の国々は？", "東京は日本の首都であり、江戸の町である。", False),
        ("Broncos在哪里赢了AFC？", f"{'丹佛野马队' * 60} Broncos 赢得了 AFC。", False),  # names from the passage
        ("Panthers在哪里赢了？", f"{'丹佛野马队' * 60} Broncos 赢得了 AFC。", True),
        ("Where did the AFC win it?", f"{'丹佛野马队' * 60} Broncos 赢得了 AFC。", True),
    ],
)
def test_questions_in_another_script_than_the_passage_are_dropped(question: str, context: str, dropped: bool) -> None:
    answer = context[:3]
    expected = "other script than the passage" if dropped else ""
    assert first_reason([PassageScript()], record(question, answer, context)) == [expected]


@pytest.mark.parametrize(
    ("given", "code"),
    [({}, "en"), *[({"language": other}, "en") for other in (None, "", 3, ["de"])], ({"language": "de_DE"}, "de")],
)
def test_a_record_that_names_no_language_has_that_of_its_passage(given: dict[str, Any], code: str) -> None:
    """Other data sets have a field `language` for other things."""
    german = record("Wer hat die Brücke über den Fluss gebaut, und warum?")
    for auto in ("auto", "AUTO"):
        assert Length(language=auto).language_of({**german, **given}) == code
    assert Length(language="FRA").language_of({**german, **given}) == "fr"


def test_limits_of_the_script_filter() -> None:
    mixed = record("Кто встретил Ada?")
    assert first_reason([PassageScript(min_share=0.2)], mixed) == [""]
    rare = record("жа?", context=PASSAGE + " ж")  # one letter of 45 makes no script of the passage
    assert first_reason([PassageScript()], rare) == ["other script than the passage"]
    assert first_reason([PassageScript(passage_share=0.01)], rare) == [""]
