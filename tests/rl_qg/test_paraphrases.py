"""The same question in other words."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_qg.errors import InputError
from rl_qg.filters import words
from rl_qg.paraphrases import by_model, by_rules, read_pairs
from rl_qg.question_types import question_type
from tests.judging import write_lines
from tests.tiny import tiny_bart, word_tokenizer


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What was the name of the river?", "What was the river named?"),
        ("Who wrote Grey Water in 1931?", "In 1931, which person wrote Grey Water?"),
        ("How many people live in Lorn?", "What number of people live in Lorn?"),
        ("What river crosses Lorn?", "Which river crosses Lorn?"),
        ("What is a bell?", "What's a bell?"),
        ("what did n't sink ?", None),
        ("Which ships didn't sink?", "Which ships did not sink?"),
        ("When did the war begin?", ("At what time did the war start?", "At which point in time did the war start?")),
        ("Who were the founders?", None),
        ("Name it.", None),
    ],
)
def test_rules(question: str, said: str | tuple[str, ...] | None) -> None:
    for seed in range(4):
        found = by_rules(question, random.Random(seed))
        if said is None:
            assert found is None
        else:
            assert found is not None and found[0] in ((said,) if isinstance(said, str) else said)


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_text_survives_and_a_paraphrase_has_other_words(text: str, seed: int) -> None:
    found = by_rules(text, random.Random(seed))
    assert found is None or words(found[0]) != words(text)


def test_rules_leave_who_asks_for_people() -> None:
    found = by_rules("Who built the town hall in 1900?", random.Random(0))
    assert found is not None and question_type(found[0]) == "who"


def test_pairs(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", [{"question": "a?", "paraphrase": "b?"}])
    assert read_pairs(path) == {"a?": "b?"}
    write_lines(path, [{"question": "a?", "paraphrase": "b?"}, {"question": "a?"}])
    with pytest.raises(InputError, match=r"p\.jsonl: line 2: give question and paraphrase"):
        read_pairs(path)
    with pytest.raises(InputError, match="no such file"):
        read_pairs(tmp_path / "no.jsonl")


def test_a_model(tmp_path: Path) -> None:
    tokenizer = word_tokenizer("who wrote it ?")
    model = tiny_bart(len(tokenizer))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    questions = ["who wrote it ?", "who ?", "it ?"]
    together = list(by_model(str(tmp_path), "", questions, batch_size=2, max_new_tokens=4))
    assert len(together) == 3 and together[2:] == list(by_model(str(tmp_path), "", questions[2:], max_new_tokens=4))
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"paraphraser=.*cannot be loaded"):
        list(by_model(str(empty), "", questions))
