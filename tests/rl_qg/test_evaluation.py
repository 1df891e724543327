"""Generators side by side: the same examples, the same reward, paired."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import torch

from rl_qg.evaluation import evaluate_generators
from rl_qg.policy import Policy
from tests.tiny import example, tiny_bart, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(20))


class Length:
    signature = "length"

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        return SimpleNamespace(scores=[float(len(question)) for question in questions])


def test_numbers_are_those_of_the_models_and_pairs_are_kept(tmp_path: Path) -> None:
    rows = [example(f"w{k} w{k + 1} w{k + 2}", f"w{k + 1}", f"w{k} w3", id=str(k)) for k in range(10)]
    models = {}
    for name, seed in (("ce", 1), ("scst", 2)):
        tokenizer = word_tokenizer(WORDS)
        tiny_bart(len(tokenizer), seed=seed).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        models[name] = tmp_path / name
    options: dict[str, Any] = {"max_new_tokens": 6, "batch_size": 3, "device": torch.device("cpu")}
    result = evaluate_generators(models, rows, Length(), tmp_path / "evaluation.json", **options)
    texts = {
        name: Policy(path, device=torch.device("cpu")).greedy(rows, max_new_tokens=6) for name, path in models.items()
    }
    lengths = {name: [len(text) for text in found] for name, found in texts.items()}
    for name in models:
        part = result["models"][name]
        assert part["reward"]["mean"] == pytest.approx(sum(lengths[name]) / 10)
        gold = [[row.question for row in rows]]
        assert part["bleu4"]["mean"] == pytest.approx(sacrebleu.corpus_bleu(texts[name], gold).score)
    paired = [b - a for a, b in zip(lengths["ce"], lengths["scst"], strict=True)]
    assert result["difference"]["reward"]["mean"] == pytest.approx(sum(paired) / 10)
    assert result["models"]["gold"]["reward"]["mean"] == pytest.approx(5.0)
    for sample, row in zip(result["samples"], rows, strict=True):
        assert sample["id"] == row.id and sample["gold"] == row.question
        assert sample["reward_scst"] == len(sample["scst"])
    assert json.loads((tmp_path / "evaluation.json").read_text()) == result
