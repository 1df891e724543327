"""Retrievers: measures by their definitions, the loss by hand, negatives, refusals, the same bytes after a kill."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import BertModel

from rl_qg.commands.cli import run_command
from rl_qg.readers import retriever
from rl_qg.readers.retriever import RetrieverTrainer, _items, judge, measures, read_questions
from rl_qg.runtime.errors import InputError
from rl_qg.settings import RetrieveSettings
from tests.questions import example
from tests.tiny_models import save, tiny
from tests.toy_metrics import write_lines
from tests.toy_reader import toy_tokenizer

WORDS = ["fox", "paris", "city", "saw"]


def rows(count: int, start: int = 0) -> list[dict[str, str]]:
    """A question a passage."""
    return [
        {"question": f"which {WORDS[at % 4]} {at} ?", "context": f"the {WORDS[at % 4]} saw {WORDS[at % 3]} {at}"}
        for at in range(start, start + count)
    ]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    tokenizer = toy_tokenizer()
    bert = save(tmp_path / "bert", tokenizer, tiny(BertModel, len(tokenizer), spread=0.1))
    write_lines(tmp_path / "taught.jsonl", rows(12))
    write_lines(tmp_path / "human.jsonl", rows(6, start=20))
    return [
        *(f"questions={tmp_path}/taught.jsonl", f"data={tmp_path}/human.jsonl", f"retrieve.model.path={bert}"),
        *("training.use_cpu=true", "max_steps=4", "save_steps=1", "batch_size=4", "max_length=16"),
        *("learning_rate=1e-2", "preset=smoke"),
    ]


def test_measures_are_their_definitions() -> None:
    """Of one right passage: its discounted gain, its reciprocal rank and whether it is there, from lists of gains."""
    ranks = [1, 2, 10, 11, 100, 101]
    for at, rank in enumerate(ranks):
        gains = [float(place == rank) for place in range(1, 200)]
        dcg = sum(gain / math.log2(1 + place) for place, gain in enumerate(gains[:10], 1))
        reciprocal = sum(gain / place for place, gain in enumerate(gains[:10], 1))
        expected = {"ndcg@10": dcg, "mrr@10": reciprocal, "recall@100": sum(gains[:100])}
        assert {name: values[at] for name, values in measures(ranks).items()} == pytest.approx(expected)


def test_differences_are_paired() -> None:
    found = judge({"taught": [1, 2, 1], "untaught": [2, 4, 20], "bm25": [1, 2, 1]}, ["a", "b", "c"])
    assert found["systems"]["taught"]["mrr@10"]["mean"] == pytest.approx(2.5 / 3)
    assert found["taught minus"]["untaught"]["mrr@10"]["mean"] == pytest.approx((0.5 + 0.25 + 1) / 3)
    assert [found["taught minus"]["bm25"]["ndcg@10"][end] for end in ("mean", "low", "high")] == [0.0, 0.0, 0.0]


def test_a_negative_is_another_passage_and_the_seed_decides_which() -> None:
    examples = [example(row["context"], "saw", row["question"]) for row in rows(60)]
    found = [_items(examples, toy_tokenizer(), RetrieveSettings(max_length=16), seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert all(own != negative for own, negative in (item["numbers"] for item in found[0]))
    alone = _items(examples, toy_tokenizer(), RetrieveSettings(max_length=16, mined=False), 1)
    assert [item["numbers"] for item in alone] == [[at] for at in range(60)]


def test_the_loss_is_that_of_the_cosines_without_the_own_passage_twice() -> None:
    vectors = {"questions": torch.eye(3)[:2], "passages": torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 0, 0], [0, 1, 1]])}

    def model(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return SimpleNamespace(last_hidden_state=input_ids[:, None].float() * attention_mask[..., None])

    inputs: dict[str, Any] = {
        name: {"input_ids": value, "attention_mask": torch.ones(len(value), 1)} for name, value in vectors.items()
    }
    # The third passage is the first question's own once more; the fourth is negative to both.
    inputs["numbers"] = torch.tensor([7, 8, 7, 9])
    loss = RetrieverTrainer.compute_loss(None, model, inputs)  # type: ignore[arg-type]

    def of(own: float, others: Sequence[float]) -> float:
        return -own / 0.05 + math.log(sum(math.exp(score / 0.05) for score in (own, *others)))

    half = math.sqrt(0.5)
    assert float(loss) == pytest.approx((of(1, [half, 0]) + of(half, [0, 0, half])) / 2, rel=1e-5)


def test_shared_passages_are_refused_and_shared_questions_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taught, human = tmp_path / "taught.jsonl", tmp_path / "human.jsonl"
    given = RetrieveSettings(questions=str(taught), data=str(human))
    write_lines(taught, rows(5))
    write_lines(human, [*rows(2), *rows(3, start=9)])
    with pytest.raises(InputError, match=r"retrieve\.data: 2 of its 5 passages are also in retrieve\.questions"):
        read_questions(given)
    write_lines(human, [{**rows(1)[0], "context": "elsewhere"}, *rows(3, start=9), {"question": " ", "context": "a"}])
    write_lines(taught, [*rows(5), {**rows(6)[5], "is_impossible": True}, {**rows(7)[6], "answers": {"text": []}}])
    splits = read_questions(given)
    assert "retrieve.questions: 2 questions that their passage does not answer; left out" in caplog.text
    assert (len(splits.gold), len(splits.validation)) == (5, 4)
    assert splits.leakage["shared_questions"] == 1
    assert "1 of 4 questions are also asked" in caplog.text and "1 of 5 rows have no question" in caplog.text


@pytest.mark.slow
def test_the_same_bytes_twice_and_after_a_kill(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def result(name: str) -> list[bytes]:
        run_command("retrieve", [*words, f"output_dir={tmp_path / name}"])
        files = ("retrieval.json", "ranks.json", "model.safetensors")
        return [(tmp_path / name / file).read_bytes() for file in files]

    first = result("a")
    found = json.loads(first[0])
    assert (found["questions"], found["passages"], found["taught with"], found["updates"]) == (6, 18, 12, 4)
    assert set(found["systems"]) == {"taught", "untaught", "bm25"}
    assert first[2] != (tmp_path / "bert" / "model.safetensors").read_bytes()
    compute, calls = RetrieverTrainer.compute_loss, iter(range(9))

    def killed(*given: Any, **options: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return compute(*given, **options)

    monkeypatch.setattr(retriever.RetrieverTrainer, "compute_loss", killed)
    with pytest.raises(BaseException):  # noqa: B017
        result("b")
    assert not (tmp_path / "b" / "retrieval.json").exists()
    monkeypatch.undo()
    assert result("b") == first == result("a")
