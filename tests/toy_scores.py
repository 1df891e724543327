"""A toy metric and files of questions for it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from accelerate import PartialState

from rl_qg.data.question_tables import QuestionTable
from rl_qg.scoring.score_file import score_file


class Length:
    """A reward that says nothing of its needs. Its part `block` tells with how many rows a row was scored."""

    signature = "length"

    def __init__(self) -> None:
        self.seen = 0
        self.answers: Any = ()

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.seen += len(questions)
        self.answers = answers
        parts = {"answer": answers or ["-"] * len(questions), "block": [[len(questions), at] for at in range(99)]}
        parts["block"] = parts["block"][: len(questions)]
        return SimpleNamespace(scores=[len(q) / 3 for q in questions], parts=parts)


def rows(path: Path, count: int = 7, **changes: Any) -> Path:
    lines = [{"question": "ß" * k, "context": f"c{k}", "answer": f"a{k}", "id": k, **changes} for k in range(count)]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path


def score(
    source: Any, output: Path, reward: Any = None, *, batch_size: int = 3, accept: bool = False, **columns: str
) -> dict[str, Any]:
    return score_file(
        reward or Length(),
        QuestionTable(source, columns),
        output,
        batch_size=batch_size,
        state=PartialState(cpu=True),
        accept_changed_data=accept,
    )


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
