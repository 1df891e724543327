"""The same question in other words."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rl_qg.judging import paraphrases
from rl_qg.judging.alterations import alter_questions
from rl_qg.judging.paraphrases import by_model, by_rules, read_pairs
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.kept_scores import MetricRow
from rl_qg.settings import RobustnessSettings
from rl_qg.text.question_types import question_type
from rl_qg.text.words import normalised_words
from tests.tiny_models import tiny_bart, word_tokenizer
from tests.toy_metrics import write_lines


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What was the name of the river?", "What was the river called?"),
        ("Who wrote Grey Water in 1931?", "In 1931, who wrote Grey Water?"),
        ("Who saw the church built in 1931?", ("Who was it that saw the church constructed in 1931?",)),
        ("What was the name of the ship lost in 1931?", "What was the ship lost in 1931 called?"),
        ("Who ruled in the years before 1931?", "Who was it that ruled in the years before 1931?"),
        ("Who flew the b52 in 1954?", "Who was it that flew the b52 in 1954?"),  # 52 may belong to the year
        ("Who caused the war?", "Who was it that caused the war?"),
        ("What limits it?", None),
        ("How many people live in Lorn?", "What number of people live in Lorn?"),
        ("How many of them live in Lorn?", "What number of them live in Lorn?"),
        ("How much of it is sold?", "What amount of it is sold?"),
        ("How much did it cost?", None),
        ("How much heavier is gold?", None),
        ("What river does the road cross?", "Which river does the road cross?"),
        ("He built a what of stone?", None),
        ("What is a bell?", "What's a bell?"),
        ("What is it?", None),
        ("Who's been there?", None),
        ("what did n't sink ?", None),
        ("Which ships didn't sink?", "Which ships did not sink?"),
        ("Why didn't it sink?", None),
        ("When did the war begin?", ("At what time did the war start?", "At which point in time did the war start?")),
        ("When many people meet, who speaks?", None),
        ("Where did he come from?", None),
        ("Which tool is in use?", None),
        ("Who was used to it?", None),
        ("Which city shows what it gave?", None),
        ("Which country was made and called so?", None),
        ("Who were the founders?", None),
        ("Name it.", None),
    ],
)
def test_rules(question: str, expected: str | tuple[str, ...] | None) -> None:
    for seed in range(4):
        paraphrased = by_rules(question, random.Random(seed))
        if expected is None:
            assert paraphrased is None, question
        else:
            texts = (expected,) if isinstance(expected, str) else expected
            assert paraphrased is not None and paraphrased[0] in texts


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_text_is_accepted_and_a_paraphrase_has_other_words(text: str, seed: int) -> None:
    paraphrased = by_rules(text, random.Random(seed))
    assert paraphrased is None or normalised_words(paraphrased[0]) != normalised_words(text)


def test_rules_keep_the_question_word_who() -> None:
    paraphrased = by_rules("Who built the town hall in 1900?", random.Random(0))
    assert paraphrased is not None and question_type(paraphrased[0]) == "who"


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
    together = list(by_model(str(tmp_path), "", questions, batch_size=2))
    assert len(together) == 3 and together[2:] == list(by_model(str(tmp_path), "", questions[2:]))
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"paraphraser=.*cannot be loaded"):
        list(by_model(str(empty), "", questions))


def test_a_model_stays_on_the_processor_where_the_settings_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[dict[str, Any]]()

    def seq2seq(model: str, key: str, **options: Any) -> Callable[[Sequence[str]], list[str]]:
        asked.append(options)
        return lambda texts: [f"{text} indeed?" for text in texts]

    monkeypatch.setattr(paraphrases, "seq2seq", seq2seq)
    rows = [
        MetricRow("line 1", "Who was born in Paris?", "Ada was born in Paris.", "Ada", ("Who was born in Paris?",))
    ]
    settings = RobustnessSettings(paraphraser="model", kinds=["negation"], negation="not")
    alter_questions(rows, settings, Path(), use_cpu=True)
    assert asked == [{"use_cpu": True}]
