"""QA examples, and candidate questions as `rl-qg generate` writes them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rl_qg.data.examples import Answer, QAExample

PASSAGE = "Ada Lovelace met Charles Babbage at a party in London."


def example(context: str, answer: str, question: str, id: str = "x", start: int | None = None) -> QAExample:
    """A question about the first occurrence of `answer`, or the one at `start`."""
    start = context.index(answer) if start is None else start
    return QAExample(id, "title", context, question, (Answer(answer, start),))


def record(
    question: str, answer: str = "London", context: str = PASSAGE, *, id: str = "q", candidate: int = 0, **more: Any
) -> dict[str, Any]:
    """One candidate about `answer`, with a log-probability of its rank."""
    return {
        "id": id,
        "candidate": candidate,
        "title": "Ada",
        "context": context,
        "answer": answer,
        "answer_start": context.find(answer),
        "question": question,
        "logprob": -float(candidate),
        **more,
    }


def write_questions(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    """One line for each record."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in records), encoding="utf-8")
    return path
