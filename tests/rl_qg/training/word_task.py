"""A small training task: questions of known words, a reward whose best question is known, and a trainer for it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rl_qg.data.examples import QAExample
from rl_qg.training.trainer import SelfCriticalConfig, SelfCriticalTrainer
from tests.questions import example
from tests.tiny_models import tiny_bart, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(20))


def data(count: int) -> list[QAExample]:
    return [
        example(
            " ".join(f"w{(k + j) % 20}" for j in range(4 + k % 5)),
            f"w{(k + 1) % 20}",
            " ".join(f"w{(k * j) % 20}" for j in range(1, 2 + k % 4)),
            id=f"e{k}",
        )
        for k in range(count)
    ]


class WordReward:
    """1 for every `w3` among the first two words: the best question is `w3 w3`."""

    signature = "word-reward"
    needs = frozenset[str]()

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        return SimpleNamespace(scores=[float(question.split()[:2].count("w3")) for question in questions])


def trainer(folder: Path, model: Any = None, **options: Any) -> SelfCriticalTrainer:
    tokenizer = word_tokenizer(WORDS)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "ce_epochs": 1,
        "scst_epochs": 1,
        "learning_rate": 1e-2,
        "scst_learning_rate": 1e-2,
        "normalise_advantage": "none",
        "max_new_tokens": 6,
        "logging_steps": 1,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "max_grad_norm": 0.0,
        "seed": 3,
    }
    rest = {
        key: options.pop(key)
        for key in ("reward", "held_out", "train_dataset", "unlabelled", "eval_dataset")
        if key in options
    }
    return SelfCriticalTrainer(
        model=model or tiny_bart(len(tokenizer), seed=1),
        args=options.pop("args", None) or SelfCriticalConfig(output_dir=str(folder), **{**settings, **options}),
        **{"reward": WordReward(), "train_dataset": data(16), "eval_dataset": data(5), **rest},
        processing_class=tokenizer,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
