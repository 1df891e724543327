"""lmqg's form of question-answer pairs: how it is read, and the counts of its published outputs."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rl_qg.data.layouts import MALFORMED, LmqgPairs, split_pairs
from rl_qg.data.reading import read_examples
from rl_qg.evaluation.pairs import DISTINCT, EXACT, SHARE, HumanPair, exact_answers, numbers
from tests.lmqg_outputs import all_outputs, human_pairs, join_pairs_as_lmqg, published_outputs

SEGMENTS = {  # a part of a text, and the pair that is read in it
    "question: Who?, answer: Ada": ("Who?", "Ada"),
    " question: Who?, answer: Ada ": None,
    "question: Who? , answer:  Ada": ("Who? ", " Ada"),
    "well question: Who?, answer: Ada": None,
    "question: Who?, answer: Ada, answer: Eve": None,
    "question: Who? answer: Ada": None,
    "Who?, answer: Ada": None,
    "question: a question: b, answer: c": ("a question: b", "c"),
    "question: , answer: ": ("", ""),
}


@pytest.mark.parametrize("segment", SEGMENTS)
def test_a_part_is_read_as_published(segment: str) -> None:
    read, pair = split_pairs(segment), SEGMENTS[segment]
    assert (read.pairs, read.malformed) == (([pair], []) if pair else ([], [segment]))


def test_parts_are_cut_at_a_sign_between_spaces() -> None:
    text = "question: a, answer: b|question: c, answer: d | question: e, answer: f"
    read = split_pairs(text)
    assert read.pairs == [("e", "f")] and len(read.malformed) == 1
    assert split_pairs("  \n") == split_pairs("") == LmqgPairs([], [])


PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="|,"), max_size=12)


@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_texts_without_its_signs_come_back(pairs: list[tuple[str, str]]) -> None:
    assert split_pairs(join_pairs_as_lmqg(pairs)).pairs == pairs


def test_texts_with_its_signs_are_lost_and_counted() -> None:
    read = split_pairs(join_pairs_as_lmqg([("is a | b?", "yes"), ("who, answer: me", "no"), ("fine?", "it is")]))
    assert read.pairs == [("fine?", "it is")] and len(read.malformed) == 3


def test_counts_of_the_published_outputs() -> None:
    reads = [split_pairs(output.text) for output in all_outputs()]
    assert len(reads) == 2429 and sum(not read.pairs for read in reads) == 16
    assert sum(len(read.pairs) for read in reads) == 10_163
    assert sum(len(read.pairs) - len(set(read.pairs)) for read in reads) == 103
    assert not any(read.malformed for read in reads)
    aligned = published_outputs()
    assert len(aligned) == 2413
    answers = [(answer, output.context or "") for output in aligned for _, answer in output.pairs]
    assert sum(answer not in context for answer, context in answers) == 0
    assert sum(context.count(answer) > 1 for answer, context in answers) == 664


def test_human_pairs_of_the_published_outputs() -> None:
    all_outputs()  # skips without the data
    assert len(human_pairs()) == 2429
    assert sum(map(len, human_pairs().values())) / len(human_pairs()) == pytest.approx(4.889667, abs=5e-7)
    repeated = [len(pairs) - len({answer for _, answer in pairs}) for pairs in human_pairs().values()]
    assert sum(map(len, human_pairs().values())) == 11_877 and sum(repeated) == 1362  # a generator's repetitions


def test_exact_answers_of_the_published_outputs() -> None:
    outputs = [output for output in published_outputs() if output.pairs]
    pairs = [output.pairs for output in outputs]
    human = [[HumanPair(question, (answer,)) for question, answer in output.human or []] for output in outputs]
    values = exact_answers(pairs, human)
    assert values[EXACT, "precision"].mean() == pytest.approx(0.2048, abs=5e-5)
    assert values[EXACT, "recall"].mean() == pytest.approx(0.1825, abs=5e-5)
    assert np.nanmean(numbers(pairs, human)[DISTINCT, SHARE]) < 1


def test_a_data_set_of_lmqg_is_qa_data(tmp_path: Path) -> None:
    rows = [
        {
            "paragraph": "Ada wrote notes in 1843. Ada died.",
            "questions": ["Who?", "When?"],
            "answers": ["Ada", "1843"],
            "questions_answers": "question: When?, answer: 1843 | question: Who?, answer: Ada | bad | "
            "question: x?, answer: Eve",
        }
    ]
    path = tmp_path / "qag.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = read_examples(path, role="train")
    assert [(one.question, one.answers[0].text, one.answers[0].start) for one in data.examples] == [
        ("When?", "1843", 19)
    ]
    dropped = {reason: part["count"] for reason, part in data.report["dropped"].items()}
    assert dropped == {"answer misplaced and ambiguous": 1, MALFORMED: 1, "answer not in context": 1}
