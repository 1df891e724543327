"""Languages found in texts, and their rules, on sentences in each script and on real questions."""

from contextlib import suppress
from pathlib import Path

import pytest
from accelerate import PartialState

from rewards.words import ends_as_question, lower
from rl_qg.asking.documents import paragraphs, read_document
from rl_qg.augmentation.row_filters import Length
from rl_qg.evaluation.evaluate import language_of_files
from rl_qg.generation.propose_answers import method
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AnswersSettings, EvaluateSettings
from rl_qg.text import languages, words
from rl_qg.text.languages import (
    LANGUAGES,
    check_language,
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


def test_every_command_says_that_a_language_has_no_rules(caplog: pytest.LogCaptureFixture) -> None:
    method(AnswersSettings(language="qa"), PartialState(cpu=True))
    assert language_of_files(EvaluateSettings(language="qb")) == "qb"
    Length(language="qc").rules()["too short"]({"question": "Who?", "context": "Ann."})
    said = [record.message.partition(" (those of ar, cs, de")[0] for record in caplog.records]
    assert said == [f"language={code}: its rules are not known" for code in ("qa", "qb", "qc")]


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


OTHER_TEXTS = {
    "it": "Il forno della via principale è aperto dalle sette del mattino. Non vende più il pane di una volta, ma chi "
    "entra trova anche i dolci che la nonna faceva per la festa di San Martino, e sono buoni come allora.",
    "pt": "A ponte sobre o rio foi construída no século passado e não é mais usada pelos carros. Os moradores da vila "
    "dizem que ela é bonita, mas ninguém sabe quem a desenhou nem quanto custou.",
    "nl": "De oude brug over de rivier is vorig jaar gesloten, omdat de balken niet meer sterk genoeg waren. Voor de "
    "fietsers is er nu een veerboot, maar die vaart alleen overdag en niet op zondag.",
    "pl": "Stary most na rzece został zamknięty w zeszłym roku, ponieważ jego belki nie były już dość mocne. Dla "
    "rowerzystów jest teraz prom, ale kursuje tylko w dzień i nie w niedziele, co wielu się nie podoba.",
    "tr": "Nehrin üzerindeki eski köprü geçen yıl kapatıldı, çünkü kirişler artık yeterince sağlam değildi. "
    "Bisikletliler için şimdi bir vapur var, ama o da sadece gündüz çalışıyor ve pazar günleri hiç gelmiyor.",
    "hi": "नदी पर बना पुराना पुल पिछले साल बंद कर दिया गया, क्योंकि उसकी कड़ियाँ अब मज़बूत नहीं थीं।",
    "sv": "Den gamla bron över floden har varit stängd i ett år, för att balkarna inte längre var starka nog. Vad som "
    "ska hända med den vet ingen, och det är inte heller klart när nästa möte ska vara.",
}


@pytest.mark.parametrize("code", OTHER_TEXTS)
def test_a_text_in_another_language_is_one_line_with_the_way_to_a_model(code: str) -> None:
    name = LANGUAGES[code].name
    with pytest.raises(
        InputError, match=rf"^a\.txt: looks like {name}, .* English .*model\.path=.*rl-qg train"
    ) as error:
        check_language([OTHER_TEXTS[code], "1984"], "a.txt")
    assert "\n" not in str(error.value)
    check_language([OTHER_TEXTS[code]], "a.txt", code)
    check_language([OTHER_TEXTS[code], *[WRITTEN["en"]] * 6], "a.txt")  # a quotation


@pytest.mark.parametrize("code", FILES)
def test_real_passages_in_another_language_are_noticed(code: str) -> None:
    texts = [record.context for record in real_records(code, 100)]

    def refused(passages: list[str]) -> bool:
        with suppress(InputError):
            check_language(passages, "a.txt")
            return False
        return True

    assert sum(refused([text]) for text in texts) >= 98 if code != "en" else not any(refused([text]) for text in texts)
    assert refused(texts) is (code != "en")


@pytest.mark.parametrize(
    "text",
    [
        "Rome.",
        "3.14159 2718 0.5772",
        "Los Angeles, San José, El Salvador, Santiago de la Vega, Ciudad del Este, La Paz y Las Palmas",
        "Jürgen Müller, Käthe Schäfer, Wolfgang von der Heide, Anna zu Straßberg und Söhne, Karl im Hof, Otto Groß",
        "for i in range(n):\n    if a[i] in de: return la(es, el, un)\n",
        "Über den Fluss und in die Wälder is the German title of a novel that was written in Venice.",
        "Спутник means fellow traveller, and it was the first satellite.",
        "",
    ],
)
def test_what_does_not_tell_its_language_passes(text: str) -> None:
    check_language([text], "a.txt")
    check_language([], "a.txt")


def test_the_english_documents_of_the_tests_pass() -> None:
    for path in (Path(__file__).resolve().parents[2] / "documents").iterdir():
        check_language([part.text for part in paragraphs(read_document(str(path)).text)], path.name)
