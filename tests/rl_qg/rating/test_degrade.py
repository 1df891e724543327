"""Degraded questions: the three tables, what stays, where the words come from."""

import random

import pytest

from rl_qg.rating.planning.questions import Degrader, replaced_words

# For questions of 1 to 30 words, written out by hand from the papers and scripts.
TABLES = {
    "qascore": [1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 4, 4, 4, 4, 5, 5, 5, 5, 5, 6],
    "appraise": [1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7],
    "crowd_alone": [0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6],
}
OWN = "own " * 40
OTHER = " ".join(f"new{number}" for number in range(40))
HAN = "这座古老的桥在洪水之后禁止汽车通行只有行人和骑自行车的人使用它"


@pytest.mark.parametrize("table", TABLES)
def test_lengths_of_the_tables(table: str) -> None:
    assert [replaced_words(count, table) for count in range(1, 31)] == TABLES[table]


@pytest.mark.parametrize("table", ["qascore", "appraise"])
@pytest.mark.parametrize("count", range(1, 31))
def test_a_run_of_words_comes_from_another_passage(table: str, count: int) -> None:
    words = [f"w{number}" for number in range(count)]
    degrader = Degrader({"own": OWN, "other": OTHER}, table)
    starts = set()
    for seed in range(30):
        text = degrader.degraded(" ".join(words) + "?", "own", random.Random(seed))
        assert text is not None
        assert text.endswith("?")
        found = text[:-1].split()
        changed = [place for place, word in enumerate(found) if word.startswith("new")]
        allowed = count if count <= 2 else count - 2
        assert len(found) == count
        assert len(changed) == min(TABLES[table][count - 1], allowed)
        assert changed == [*range(changed[0], changed[0] + len(changed))], "the run is one"
        drawn = [int(found[place].removeprefix("new")) for place in changed]
        assert drawn == [*range(drawn[0], drawn[0] + len(drawn))], "consecutive words of the passage"
        kept = [word for place, word in enumerate(words) if place not in changed]
        assert [word for word in found if word.startswith("w")] == kept
        if count > 2:
            assert (found[0], found[-1]) == (words[0], words[-1])
        starts.add(changed[0])
    assert len(starts) >= min(3, allowed - len(changed) + 1), "the place is drawn"


@pytest.mark.parametrize("count", range(1, 31))
def test_crowd_alone_leaves_words_out_and_keeps_the_first(count: int) -> None:
    words = [f"w{number}" for number in range(count)]
    text = Degrader({}, "crowd_alone").degraded(" ".join(words) + " ?", "own", random.Random(count))
    if count == 1:
        assert text is None
        return
    assert text is not None
    assert text.endswith(" ?") and "  " not in text
    left = text.removesuffix(" ?").split()
    assert left[0] == "w0"
    assert len(left) == count - TABLES["crowd_alone"][count - 1]
    assert [word for word in words if word in left] == left


@pytest.mark.parametrize(("table", "replaced"), [("qascore", 4), ("appraise", 8)])
def test_characters_count_in_scripts_without_spaces(table: str, replaced: int) -> None:
    question = "谁在一九一一年发现它？"  # ten characters and the mark
    degrader = Degrader({"own": "谁" * 30, "other": HAN}, table)
    for seed in range(20):
        text = degrader.degraded(question, "own", random.Random(seed))
        assert text is not None
        assert len(text) == len(question)
        assert (text[0], text[-2:]) == ("谁", "它？")
        inner = range(1, 9)
        assert any(text[at : at + replaced] in HAN for at in inner), "one run of the other passage"
        differing = [at for at in inner if text[at] != question[at]]
        assert 0 <= max(differing) - min(differing) < replaced


def test_a_character_keeps_its_marks_and_latin_names_stay_whole() -> None:
    question = "ใครเป็นผู้เขียนหนังสือเล่มนี้ของ NASA"
    other = "น้ำท่วมครั้งใหญ่ทำลายสะพานเก่าในปีนั้น"
    text = Degrader({"other": other}, "qascore").degraded(question, "own", random.Random(3))
    assert text is not None
    assert text != question
    assert text.endswith("NASA")


def test_marks_around_a_question_stay() -> None:
    degrader = Degrader({"other": OTHER}, "qascore")
    for question, ends in (("¿Quién?", ("¿", "?")), ("من كتب هذا؟", ("", "؟")), ("Who wrote it ?", ("", " ?"))):
        text = degrader.degraded(question, "own", random.Random(1))
        assert text is not None
        assert "new" in text
        assert text.startswith(ends[0]) and text.endswith(ends[1])


def test_it_is_drawn_again_until_it_differs() -> None:
    # All passages but one word repeat the question's middle, so that most draws change nothing.
    degrader = Degrader({"other": "was " * 30 + "cheese"}, "qascore")
    texts = {degrader.degraded("Who Was here?", "own", random.Random(seed)) for seed in range(20)}
    assert texts == {"Who cheese here?"} or texts == {"Who cheese here?", None}
    assert Degrader({"other": "was " * 30}, "qascore").degraded("Who Was here?", "own", random.Random(1)) is None


def test_what_cannot_be_degraded_is_none() -> None:
    rng = random.Random(1)
    assert Degrader({"own": OWN}, "qascore").degraded("Who was it?", "own", rng) is None  # no other passage
    assert Degrader({"other": "one"}, "qascore").degraded("a b c d e f g", "own", rng) is None  # too short a passage
    assert Degrader({"other": OTHER}, "qascore").degraded("?", "own", rng) is None


def test_the_seed_decides() -> None:
    degrader = Degrader({"own": OWN, "other": OTHER}, "qascore")
    drawn = [degrader.degraded("Who was it that wrote the book?", "own", random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
