"""The answers that the rules propose, and properties of every proposal for any text."""

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rl_qg.generation.answer_rules import rule_spans
from rl_qg.text.spans import Span, select_spans, sentences, tokens, trimmed

NOTRE_DAME = (
    "The university founder, Fr. Sorin, and the Rev. William Corby planned the rebuilding of the Main Building in "
    "April 1879. It cost $1.5 million and three years, and 42 km of road. Eventually it hosted “A Midsummer Night’s "
    "Dream” and the music of Ludwig van Beethoven. Tesla lived there from 1914 to 15 June 2015."
)


def proposed(text: str) -> dict[str, str]:
    return {text[span.start : span.end]: span.kind for span in rule_spans(text)}


def test_the_kinds_of_answers_in_an_english_passage() -> None:
    kinds = proposed(NOTRE_DAME)
    expected = {
        "April 1879": "date",
        "1914": "date",
        "15 June 2015": "date",
        "$1.5 million": "number",
        "three years": "number",
        "42 km": "number",
        "Main Building": "name",
        "Rev. William Corby": "name",
        "Fr. Sorin": "name",
        "Ludwig van Beethoven": "name",
        "Tesla": "name",
        "Midsummer Night’s Dream": "title",
        "university founder": "chunk",
    }
    assert expected.items() <= kinds.items(), expected.items() - kinds.items()
    assert "Eventually" not in kinds  # the first word of a sentence has a capital anyway
    assert not {"The", "It", "the"} & kinds.keys()


def test_a_particle_at_the_end_is_not_part_of_a_name() -> None:
    assert "Ludwig" in proposed("They called him Ludwig van")


def test_participles_before_and_after_a_noun() -> None:
    assert proposed("They saw the walled city.") == {"walled city": "chunk"}
    assert proposed("The old city founded a mill.") == {"old city": "chunk", "mill": "word"}


@pytest.mark.parametrize(
    ("text", "answer", "kind"),
    [
        ("He died on 4 July 1826 in his bed.", "4 July 1826", "date"),
        ("It opened on July 4, 1826, at noon.", "July 4, 1826", "date"),
        ("Water is high in April and May, and in October.", "April and May", "date"),
        ("It was shut from June to September 2019.", "June to September 2019", "date"),
        ("It is open Monday to Friday, and Sunday mornings.", "Monday to Friday", "date"),
        ("The match lasted three hours and eight minutes.", "three hours and eight minutes", "number"),
        ("She won in 4 hours 41 minutes 12 seconds, alone.", "4 hours 41 minutes 12 seconds", "number"),
        ("They walked for two and a half hours in rain.", "two and a half hours", "number"),
        ("Some two hundred and five people came to it.", "two hundred and five people", "number"),
        ("The hundred people were there for two hours and a half.", "two hours and a half", "number"),
        ("The hundred people were there for two hours and a half.", "hundred people", "number"),
        ("He was six feet two inches tall.", "six feet two inches", "number"),
        ("When he woke at 04:50 it was dark.", "04:50", "number"),
        ("She ran the course in 2:09:41 last year.", "2:09:41", "number"),
        ('They saw "Hundred and One Days" there.', "Hundred and One Days", "title"),
        ("It stands since the late 19th century there.", "late 19th century", "date"),
        ("They met in the 1990s for a talk.", "1990s", "date"),
        ("The war of 1914–1918 was long.", "1914–1918", "date"),
        ("About 12,500 people came to it.", "12,500 people", "number"),
        ("It grew by 4.5% in a year.", "4.5%", "number"),
        ("They won 24–10 in the end.", "24–10", "number"),
        ("Some twenty-five of them stayed.", "twenty-five", "number"),
        ("The game of Super Bowl 50 was on.", "Super Bowl 50", "name"),
        ("He was taught at the University of Notre Dame for long.", "University of Notre Dame", "name"),
        ("It was John F. Kennedy who came.", "John F. Kennedy", "name"),
        ("This is what NATO said.", "NATO", "acronym"),
        ("Er lebte mit Johann von Goethe in Weimar.", "Johann von Goethe", "name"),
        ("Анна встретила Льва Толстого в Москве.", "Льва Толстого", "name"),
        ("彼は1990年5月に東京大学でニューヨークの本を読んだ。", "1990年5月", "date"),
        ("彼は1990年5月に東京大学でニューヨークの本を読んだ。", "ニューヨーク", "name"),
        ("彼は1990年5月に東京大学でニューヨークの本を読んだ。", "東京大学", "chunk"),
        ("他写了《红楼梦》这本书。", "红楼梦", "title"),
        ("Doors open at 7.30 p.m. in the hall.", "7.30 p.m.", "number"),
        ("Call us at 0800 555 0142 on any day.", "0800 555 0142", "number"),
        ("They walked half an hour to the school.", "half an hour", "number"),
        ("The dough rests for 1 hour 15 minutes in a bowl.", "1 hour 15 minutes", "number"),
        ("The strap can be set from 42 to 52 cm by hand.", "42 to 52 cm", "number"),
        ("The pack measures 68 x 32 x 26 cm when full.", "68 x 32 x 26 cm", "number"),
        ("Fill in between 0.5 and 1.7 litres of water.", "between 0.5 and 1.7 litres", "number"),
        ("It uses 2,200 W at this voltage.", "2,200 W", "number"),
        ("Mix it with 750 ml of water.", "750 ml", "number"),
        ("It was the goal of the 33-year-old defender.", "33-year-old", "number"),
        ("He had done so for forty-one years.", "forty-one years", "number"),
        ('He read "The Old Pier" to them.', "Old Pier", "title"),
    ],
)
def test_one_answer_and_its_kind(text: str, answer: str, kind: str) -> None:
    assert proposed(text).get(answer) == kind, proposed(text)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('"It was a red card," he said. "We had time to win."', {"he said", "It was a red card"}),
        ("“Who will light the rest?” asked the man.", {"Who will light the rest"}),
        ("(2) The fee is due in May.\n\n3. Costs\n\nThey are in paragraph (1).", {"2", "3", "1"}),
        ("Unplug the kettle. Wipe it with a cloth.\n\nNutrition. It has fat.", {"Unplug", "Wipe", "Nutrition"}),
        ("Warning: the lid is hot.", {"Warning"}),
    ],
)
def test_what_is_no_answer(text: str, wrong: set[str]) -> None:
    assert not wrong & proposed(text).keys()


def test_a_first_word_that_may_be_no_name_comes_after_names() -> None:
    text = "Great packs are rare in the shop, and so it is with the old bags of Birgit."
    found = [text[span.start : span.end] for span in rule_spans(text)]
    assert found.index("Birgit") < found.index("old bags") < found.index("Great")


def test_answers_outside_sentences_come_last() -> None:
    text = "Mill Court\n\n4 May 2022\n\nThe boiler of the house broke down on Monday.\n\nYours,\n\nDorothy Flint"
    found = [text[span.start : span.end] for span in rule_spans(text)]
    assert found[0] == "Monday" and set(found[-2:]) == {"Mill Court", "Dorothy Flint"}


def test_a_first_word_is_a_name_if_it_is_one_within_a_sentence() -> None:
    assert "Bread" not in proposed("Bread is what the men of the farm eat, and they like bread.")
    assert "Bread" in proposed(
        "Bread is what the men of the farm eat, and they like it."
    )  # nothing in the text says otherwise
    first = rule_spans("Paris was the first of all, and they came to Paris.")[0]
    assert (first.start, first.end, first.kind) == (0, 5, "name")


def test_sentences_end_at_full_stops_but_not_after_abbreviations() -> None:
    text = "Dr. J. R. Smith of the U.S. came. “Why?” he asked... then left! 終わり。次。 No. 5 is"
    parts = [text[start:end].strip() for start, end in sentences(text)]
    assert parts == [
        "Dr. J. R. Smith of the U.S. came.",
        "“Why?” he asked... then left!",
        "終わり。",
        "次。",
        "No. 5 is",
    ]
    assert "".join(text[start:end] for start, end in sentences(text)) == text


class CountingText(str):
    """A text that counts the characters that are copied from it."""

    copied = 0

    def __getitem__(self, index: Any) -> str:
        part = super().__getitem__(index)
        self.copied += len(part)
        return part


def test_splitting_into_sentences_takes_linear_time() -> None:
    text = CountingText("Dr. Smith came to Lyon. It rained, he said. " * 500)
    assert len(sentences(text)) == 1001  # the last space too
    assert text.copied < 2 * len(text)


def test_a_letter_keeps_its_combining_marks() -> None:
    assert "Zu\u0308rich" in proposed("It is near Zu\u0308rich, they say.")
    assert [token.text for token in tokens("दान O'Ne\u0301ill l-e\u0301l")] == ["दान", "O'Ne\u0301ill", "l-e\u0301l"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the Denver Broncos,", "Denver Broncos"),
        (" (NFC) ", "NFC"),
        ("champion (NFC)", "champion (NFC)"),
        ("NFC)", "NFC"),
        ("“its long name”", "long name"),
        ("U.S.", "U.S."),
        ("in 1990.", "in 1990"),
        ("The The", "The"),
        (" ,. ", ""),
        ("\u202fLes Misérables\u202f", "Les Misérables"),
        ("\u2029in 1990\x0b", "in 1990"),
        ("f(x) and g(x)", "f(x) and g(x)"),
    ],
)
def test_spans_are_trimmed(text: str, expected: str) -> None:
    start, end = trimmed(text, 0, len(text))
    assert text[start:end] == expected


def test_of_overlapping_spans_the_better_and_of_equal_texts_the_first_is_kept() -> None:
    text = "alpha beta gamma delta. Gamma delta"
    spans = [
        Span(0, 10, "a", 1.0),
        Span(6, 16, "b", 2.0),
        Span(11, 22, "c", 2.0),
        Span(24, 35, "d", 1.5),  # the same text as c
        Span(0, 5, "e", 0.4),
        Span(17, 29, "f", 9.0),  # crosses the end of a sentence
    ]
    for order in (spans, spans[::-1]):
        assert [span.kind for span in select_spans(text, order, None)] == ["c", "a"]
    assert [text[span.start : span.end] for span in select_spans(text, spans, 1)] == ["gamma delta"]


WORDS = st.sampled_from(
    [
        "the",
        "Paris",
        "of",
        "1990",
        "won",
        "green",
        "is",
        ".",
        ",",
        "“",
        "”",
        "(",
        ")",
        "東京",
        "ア",
        "5%",
        "U.S.",
        "\n\n",
        "May",
    ]
)


@given(st.one_of(st.text(max_size=120), st.lists(WORDS, max_size=30).map(" ".join)))
def test_properties_of_the_spans_of_any_text(text: str) -> None:
    spans = rule_spans(text)
    assert spans == rule_spans(text)  # deterministic
    bounds = sentences(text)
    assert [start for start, _ in bounds] == [0, *(end for _, end in bounds)][: len(bounds)]
    covering = [0] * len(text)
    for span in spans:
        part = text[span.start : span.end]
        assert any(map(str.isalnum, part)) and part == part.strip()
        assert not re.match(r"(?i)(a|an|the)\s", part)
        assert any(start <= span.start and span.end <= end for start, end in bounds)
        for position in range(span.start, span.end):
            covering[position] += 1
    assert max(covering, default=0) <= 1
    assert len({text[span.start : span.end].casefold() for span in spans}) == len(spans)
    assert [span.score for span in spans] == sorted((span.score for span in spans), reverse=True)
    assert rule_spans(text, 3) == spans[:3]


@pytest.mark.parametrize(
    "text",
    [
        "東京は日本の首都であり、世界最大の都市のひとつである。" * 20,
        "北京是中华人民共和国的首都也是世界上人口最多的城市之一。" * 20,
        "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย" * 5,
        "दिल्ली भारत की राजधानी है और 2011 में इसकी जनसंख्या बहुत थी।",
    ],
)
def test_spans_in_scripts_without_spaces_or_capitals_are_short(text: str) -> None:
    for span in rule_spans(text):
        assert span.end - span.start <= 20


def test_tokens_have_correct_offsets() -> None:
    text = "O'Neill's so-called U.S. plan: 1,000.5 km in 東京 at 10:30"
    parts = tokens(text)
    assert [token.text for token in parts] == [
        *("O'Neill", "'s", "so-called", "U.S.", "plan", ":", "1,000.5", "km", "in", "東京", "at", "10:30")
    ]
    assert all(text[token.start : token.end] == token.text for token in parts)
