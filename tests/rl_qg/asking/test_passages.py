"""Passages of long texts: they fit, hold the whole text, and stand where they say."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rl_qg.asking.documents import (
    SEPARATOR,
    TextPassage,
    cut_text,
    paragraphs,
    read_document,
    with_full_stops,
    with_separators,
)
from rl_qg.asking.drafts import Draft
from rl_qg.asking.pairs import AskRequest


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_a_text_that_fits_is_one_passage_without_white_space_at_its_ends() -> None:
    (passage,) = cut_text("  One two.\n\nThree. ", words, 3)
    assert (passage.text, passage.start, passage.end) == ("One two.\n\nThree.", 2, 18)


def test_it_is_cut_at_paragraphs_then_sentences_then_words() -> None:
    text = "A b c. D e f.\n\nG h. I j k. L m. N o.\n\nP q r s t u v w x. Y."
    assert [passage.text for passage in cut_text(text, words, 6)] == [
        "A b c. D e f.",
        "G h. I j k.",  # a whole sentence more would be seven words
        "L m. N o.",
        "P q r s t u",
        "v w x.",
        "Y.",
    ]


def test_a_heading_stays_with_its_text() -> None:
    text = "One two three four.\n\nPart II\n\nSection 5\n\nFive six seven eight."
    found = [passage.text for passage in cut_text(text, words, 8)]
    assert found == ["One two three four.", "Part II\n\nSection 5\n\nFive six seven eight."]


@given(
    st.text(
        alphabet="ab .\n!\u3002\u00e9\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), max_size=80
    ),
    st.integers(1, 6),
)
def test_passages_hold_everything_but_white_space_in_its_place(text: str, limit: int) -> None:
    passages = cut_text(text, words, limit)
    assert all(text[passage.start : passage.end] == passage.text == passage.text.strip() for passage in passages)
    assert "".join("".join(passage.text.split()) for passage in passages) == "".join(text.split())
    assert all(words([passage.text])[0] <= limit for passage in passages)
    assert all(one.end <= other.start for one, other in pairwise(passages))


def test_paragraphs_end_with_blank_lines_and_a_heading_goes_with_the_next() -> None:
    text = "Ada\n\nShe wrote notes. They\nare read.\n\n\n  “Why?”\n\nThe end"
    found = [(part.text, part.start) for part in paragraphs(text)]
    assert found == [("Ada\n\nShe wrote notes. They\nare read.", 0), ("“Why?”", 41), ("The end", 49)]
    assert all(text[start : start + len(part)] == part for part, start in found)
    assert paragraphs(" \n\n ") == []


@given(st.text(alphabet="ab.\n ", max_size=60))
def test_paragraphs_hold_everything_but_white_space(text: str) -> None:
    assert "".join("".join(part.text for part in paragraphs(text)).split()) == "".join(text.split())


def test_a_model_reads_headings_and_items_as_sentences_of_their_own() -> None:
    text = "Childhood\n\nAda was born.\n \n- 500 g flour\n\nTasks:\n\n" + "a" * 81 + "\n\nThe end"
    read, place = with_full_stops(text, text.index("Ada"))
    assert read == "Childhood.\n\nAda was born.\n \n- 500 g flour.\n\nTasks:\n\n" + "a" * 81 + "\n\nThe end"
    assert read.startswith("Ada", place)
    assert with_full_stops("東京\n\n日本の首都。", 4) == ("東京\n\n日本の首都。", 4)


@given(st.text(alphabet="ab.\n ", min_size=1, max_size=40), st.data())
def test_full_stops_move_a_place_by_those_before_it(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 1))
    read, moved = with_full_stops(text, place)
    if not text[place].isspace():
        assert read[moved] == text[place] and len(read[:moved].replace(".", "")) == len(text[:place].replace(".", ""))
    assert read.replace(".", "") == text.replace(".", "")


def test_a_text_is_read_as_a_file_of_it_is_and_every_character_keeps_its_place() -> None:
    text = "Room 3\nThe fee is 40 pounds, says Maria\nOrtega, and is paid at the door.\n\nAppeals\n  go to the board."
    read = f"Room 3{SEPARATOR}The fee is 40 pounds, says Maria Ortega, and is paid at the door.\n\nAppeals   go to"
    assert with_separators(text) == f"{read} the board."
    assert with_full_stops(with_separators(text), text.index("The"))[0].startswith("Room 3.\nThe fee")
    assert [part.start for part in paragraphs(with_separators(text))] == [0, text.index("Appeals")]


@given(st.lists(st.text(alphabet="ab. Aé•", max_size=30), max_size=8))
def test_paragraphs_of_a_text_are_those_of_its_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    text = "\n".join(lines)
    read = with_separators(text)
    changed = [(one, other) for one, other in zip(text, read, strict=True) if one != other]
    assert set(changed) <= {("\n", " "), ("\n", SEPARATOR)}
    if text.strip():
        (path := Path(tmp_path_factory.mktemp("file"), "one.txt")).write_text(text, encoding="utf-8")
        parts = re.split(rf"\n\s*\n|{SEPARATOR}", read)
        expected = [" ".join(part.split()) for part in parts if part.strip()]
        assert [" ".join(part.split()) for part in read_document(str(path)).text.split("\n\n")] == expected


def test_the_lines_of_a_text_are_joined_once_for_all_of_its_passages() -> None:
    text = "One line\nand the other.\n\n" * 40
    with_separators.cache_clear()
    whole = Draft(
        0, AskRequest(text), [TextPassage(text[at : at + 23], at) for at in range(0, len(text), 25)], "pipeline"
    )
    parts = [whole.of_passage(0, *one) for one in whole.by_passage()]
    assert (len(parts), with_separators.cache_info().misses) == (40, 1)
