"""Questions of an uncased model get back the case, accents and spaces of their passage."""

import re
import unicodedata

import pytest
from hypothesis import example, given, strategies as st

from rl_qg.text.casing import restore_case
from rl_qg.text.english import is_english

PASSAGE = (
    'The Académie française was founded in 1635 by Cardinal Richelieu. "Its members", wrote J.-B. Say, "are '
    'well-known" in the U.S. and elsewhere.\n'
    "Members pay $3.50 a year; the members' hall is the Salle d'Or."
)
CASES = {
    "who founded the academie francaise?": "Who founded the Académie française?",
    "which cardinal richelieu founded it ?": "Which Cardinal Richelieu founded it?",
    "what did j. - b. say write of its members ?": "What did J.-B. Say write of its members?",
    "how well - known are they in the u. s. today?": "How well-known are they in the U.S. today?",
    "how much is $ 3. 50?": "How much is $3.50?",
    "where is the members ' hall?": "Where is the members' hall?",
    "what ' s the salle d ' or?": "What's the Salle d'Or?",
    'who wrote " are well - known "?': 'Who wrote "are well-known"?',
    "who was paid by zork?": "Who was paid by zork?",
    "": "",
    "?": "?",
}


@pytest.mark.parametrize("written", CASES)
def test_case_and_spaces_are_those_of_the_passage(written: str) -> None:
    assert restore_case(written, PASSAGE) == CASES[written]


def test_nothing_but_case_accents_and_spaces_is_changed() -> None:
    def plain(text: str) -> str:
        text = unicodedata.normalize("NFD", text.lower())
        return "".join(c for c in text if unicodedata.category(c) != "Mn" and not c.isspace())

    sentences = re.split(r"(?<=\.)\s", PASSAGE)
    for text in [*CASES, *sentences, *(plain(" ".join(pair)) for pair in zip(sentences, CASES, strict=False))]:
        assert plain(restore_case(text, PASSAGE)) == plain(text)


SIGNS = st.text(st.sampled_from("ab ?.'-(\n\u0301\ufe0f❤İßﬁ1二") | st.characters(), max_size=30)


@given(SIGNS, SIGNS)
@example("bad thing?", "Bad thing. ❤\ufe0f So it is with the bad thing of it.")
def test_any_text_about_any_passage_stays_a_text(text: str, passage: str) -> None:
    restored = restore_case(text, passage)
    assert restored == restored.strip() and "  " not in restored
    assert is_english(passage.split(" ")) in (True, False)


def test_a_sentence_of_the_passage_is_restored_to_the_letter() -> None:
    sentence = "Members pay $3.50 a year; the members' hall is the Salle d'Or."
    assert restore_case(sentence.lower().replace("'", " ' ").replace(".", " ."), PASSAGE) == sentence


def test_headings_in_capitals_do_not_tell_how_words_are_written() -> None:
    passage = "THE LAMP OF SALT ROW\n\nNobody in Salt Row saw the lamp. NATO and the UN were far away."
    asked = "who saw the lamp of salt row far from nato and the un?"
    assert restore_case(asked, passage) == "Who saw the lamp of Salt Row far from NATO and the UN?"


@pytest.mark.parametrize(
    ("passage", "asked", "restored"),
    [
        ("Referee: Ann Lee. The match was in Rome.", "who was the referee?", "Who was the referee?"),
        ("Cover the bowl with a cloth.", "what do you cover with a cloth?", "What do you cover with a cloth?"),
        ("Published in May by the city.", "when was it published?", "When was it published?"),
        ("Alfred was a king of the west.", "when was alfred born?", "When was Alfred born?"),
        ("Oslo is the capital of Norway.", "what is oslo?", "What is Oslo?"),
        ("(2) The owner of a well pays.\n(3) A well is deep.", "what must the owner pay?", "What must the owner pay?"),
        ("1.2 For late return the Company pays.", "who pays for late return?", "Who pays for late return?"),
        ("• Do not drink it. • Serve with rice.", "what do you serve with?", "What do you serve with?"),
        ("A tidal organ is in the harbour.", "what is a tidal organ?", "What is a tidal organ?"),
        ("At 9.30 a.m. the Company opens. RULES OF A CLUB", "when is a day over?", "When is a day over?"),
        ("10 Downing Street is the house.", "who is in downing street?", "Who is in Downing Street?"),
        ("United Nations of the world.", "who saw the united nations?", "Who saw the United Nations?"),
        ("Smallest fill: a litre for the pot.", "what is the smallest fill?", "What is the smallest fill?"),
        ("Ann Lee: the best of all.", "who is ann lee?", "Who is Ann Lee?"),
        ("NEW YORK Times readers saw the paper.", "who saw the times?", "Who saw the Times?"),
        ("NASA: The agency is run by an administrator.", "who runs nasa ?", "Who runs NASA?"),
        ("US troops landed. A letter thanked us.", "what did us troops do ?", "What did US troops do?"),
        ("AIDS spread. The fund aids patients.", "when did aids spread ?", "When did AIDS spread?"),
        ("ÉDF: The firm sells power.", "what does edf sell ?", "What does ÉDF sell?"),
        ("Wasser, das kocht, ist warm.", "was ist wasser?", "Was ist Wasser?"),  # German, as it stands
    ],
)
def test_words_that_only_begin_sentences_are_small_unless_they_are_names(
    passage: str, asked: str, restored: str
) -> None:
    assert restore_case(asked, passage) == restored
