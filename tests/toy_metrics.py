"""Toy metrics and files of rated questions."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np


class WordCount:
    """The number of words of a question, or minus it; counts the rows that it has scored."""

    needs = frozenset[str]()
    higher_is_better = True

    def __init__(self, sign: int = 1, needs: Sequence[str] = ()) -> None:
        self.sign, self.needs = sign, frozenset(needs)
        self.signature = f"words|sign:{sign}"
        self.seen = 0

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.seen += len(questions)
        return SimpleNamespace(scores=[self.sign * len(question.split()) for question in questions], parts={})


class SharedWords(WordCount):
    """The fraction of a question's words that are in its references; its corpus form sums both counts first."""

    def __init__(self) -> None:
        super().__init__(needs=("references",))
        self.signature = "shared"

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        counts = self.statistics(questions, references)
        return SimpleNamespace(scores=(counts[:, 0] / counts[:, 1]).tolist(), parts={})

    def statistics(self, questions, references) -> np.ndarray:
        rows = []
        for question, gold in zip(questions, references, strict=True):
            known = {word for text in gold for word in text.split()}
            rows.append((sum(word in known for word in question.split()), len(question.split())))
        return np.array(rows, dtype=float)

    def corpus(self, total: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return total[..., 0] / total[..., 1]


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def rated(passages: int = 12, systems: Sequence[str] = ("a", "b", "c", "d"), seed: int = 0) -> list[dict[str, Any]]:
    """Questions whose ratings grow with their length, up to chance; three raters."""
    rng = np.random.default_rng(seed)
    rows = []
    for passage in range(passages):
        for number, system in enumerate(systems):
            words = 3 + number + int(rng.integers(0, 4))
            scores = [float(min(5, max(1, words - 3 + rng.integers(-1, 2)))) for _ in range(3)]
            rows.append(
                {
                    "question": "Who " + "was " * (words - 2) + f"x{passage}?",
                    "context": f"passage {passage}",
                    "references": [f"Who was x{passage}?"],
                    "system": system,
                    "item": f"i{passage}",
                    "human": {"good": sum(scores) / 3, "same": 3},
                    "ratings": {"good": [*scores[:2], scores[2] if number else None]},
                    "metrics": {"given": float(rng.normal())},
                }
            )
    return rows
