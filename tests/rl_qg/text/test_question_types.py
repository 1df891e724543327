"""What questions ask for, by hand."""

import pytest

from rl_qg.runtime.errors import InputError
from rl_qg.settings import CorrelateSettings, EvaluateSettings, Settings
from rl_qg.text.question_types import TYPE_TABLES, TYPES, asks, language_fault, question_type


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("What did she write?", "what"),
        ("What's the name?", "what"),
        ("What’s the name?", "what"),
        ("Who wrote it?", "who"),
        ("By whom was it written?", "who"),
        ("Whose idea was it?", "who"),
        ("When did it end?", "when"),
        ("In what year did it end?", "when"),
        ("In which city did it end?", "where"),
        ("Where is it?", "where"),
        ("Why did it end?", "why"),
        ("For what reason did it end?", "why"),
        ("How come it ended?", "why"),
        ("How did it end?", "how"),
        ("How many ended?", "how many"),
        ("About how long did it take?", "how many"),
        ("What percentage of it is left?", "how many"),
        ("Which river is longer?", "which"),
        ("Of the two, which is longer?", "which"),
        ("Did it end?", "yes/no"),
        ("In 1972, did Norway join?", "yes/no"),
        ("In 1972, when did Norway join?", "when"),
        ("When's the game?", "when"),
        ("Who’d have won?", "who"),
        ("It began in May, on the 3rd?", "other"),
        ("ISN'T it over?", "yes/no"),
        ("The end came because of what?", "what"),
        ("Name the river.", "other"),
        ("The show is over?", "other"),
        ("", "other"),
        ("Somewhat whoever?", "other"),  # no words of their own
    ],
)
def test_types_of_english_questions(question: str, kind: str) -> None:
    assert question_type(question) == kind


@pytest.mark.parametrize(
    ("language", "question", "kind"),
    [
        ("de", "In welchem Jahr starb er?", "when"),
        ("de", "Wie viele kamen?", "how many"),
        ("de", "Wie groß ist er?", "how many"),  # ß is ss when case is folded
        ("de", "Ist er tot?", "yes/no"),
        ("de", "Woraus besteht das Wasser?", "what"),
        ("de", "Worum geht es?", "what"),
        ("de", "Wonach ist sie benannt?", "what"),
        ("de", "Wogegen war er?", "what"),
        ("fr", "Combien sont venus ?", "how many"),
        ("fr", "Qu'est-ce que c'est ?", "what"),
        ("fr", "D'où vient le nom ?", "where"),
        ("fr", "Jusqu’où va le fleuve ?", "where"),
        ("fr", "Qu'émet le savant ?", "what"),
        ("fr", "Auquel des deux appartient-elle ?", "which"),
        ("fr", "Y a-t-il un pont ?", "yes/no"),
        ("fr", "Pasteur a-t-il découvert le vaccin ?", "yes/no"),
        ("fr", "Les rois étaient-ils riches ?", "yes/no"),
        ("fr", "Quand Pasteur est-il mort ?", "when"),
        ("fr", "Le fleuve naît là-haut ?", "other"),
        ("es", "¿Por qué murió?", "why"),
        ("es", "¿En qué año murió?", "when"),
        ("es", "¿Cuán largo es?", "how many"),
        ("DE", "Wer kam?", "who"),
        ("ja", "誰ですか？", "other"),
        ("other", "Who came?", "other"),
    ],
)
def test_types_in_other_languages(language: str, question: str, kind: str) -> None:
    assert question_type(question, language) == kind


def test_tables_name_types_that_there_are() -> None:
    for language in TYPE_TABLES.values():
        assert set(language.phrases.values()) <= set(TYPES) - {"other", "yes/no"}
        assert all(text == text.casefold() for text in (*language.phrases, *language.verbs))


def test_asking() -> None:
    assert asks("Who?", "en")
    assert not asks("Name it.", "en")
    assert asks("何でも", "ja")
    assert not asks("Nenne ihn.", "DE")


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "other", "EN", "Other"])
def test_languages_whose_questions_can_be_sorted(language: str) -> None:
    assert language_fault(language) == ""
    Settings(evaluate=EvaluateSettings(language=language), correlate=CorrelateSettings(language=language)).check()


@pytest.mark.parametrize("language", ["english", "xx", "ja", ""])
def test_a_language_without_a_table_is_one_line(language: str) -> None:
    """`correlate` only has tables by type; `evaluate` takes any code, and leaves these tables out."""
    with pytest.raises(InputError, match=rf"correlate\.language={language} .* en, de, fr, es, or other") as error:
        Settings(correlate=CorrelateSettings(language=language)).check()
    assert "\n" not in str(error.value) and str(error.value).count("language=") == 1


@pytest.mark.parametrize("language", ["english", "", "d"])
def test_what_is_no_code_is_one_line(language: str) -> None:
    with pytest.raises(InputError, match=rf"evaluate\.language={language} is no code .* such as de, auto") as error:
        Settings(evaluate=EvaluateSettings(language=language)).check()
    assert "\n" not in str(error.value)
    Settings(evaluate=EvaluateSettings(language="xx")).check()
