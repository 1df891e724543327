"""QA examples: the schema that all packages use, hashes of examples and passages, and SQuAD JSON as output."""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer

Role = Literal["train", "validation", "test"]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """An answer span; `start` counts Unicode characters into the context."""

    text: str
    start: int


@dataclass(frozen=True)
class QAExample:
    """One question about one passage.

    Args:
        question: empty for a passage whose question is unknown.
        source: the file or data set it was read from, or "".
        multi_hop: the answer needs all sentences of the context, as in HotpotQA.
        language: a code such as `de`, or "" if the source names none.
    """

    id: str
    title: str
    context: str
    question: str
    answers: tuple[Answer, ...]
    source: str = field(default="", compare=False)
    multi_hop: bool = field(default=False, compare=False)
    language: str = field(default="", compare=False)


def as_example(row: QAExample | Mapping[str, Any]) -> QAExample:
    """Return the example itself, or build it from a row of a `datasets.Dataset` with SQuAD's columns.

    Raises:
        InputError: a column is missing.
    """
    if isinstance(row, QAExample):
        return row
    try:
        spans = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        answers = tuple(Answer(text, start) for text, start in spans)
        language = row.get("language") or ""
        return QAExample(row["id"], row.get("title", ""), row["context"], row["question"], answers, language=language)
    except KeyError as error:
        raise InputError(
            f"a training row has no column {error}; expected id, context, question, answers{{text, answer_start}}"
        ) from None


def answer_place(example: QAExample) -> tuple[int, int]:
    """Start and end of the first answer in the context.

    Raises:
        InputError: it is not there.
    """
    answer = example.answers[0]
    end = answer.start + len(answer.text)
    if example.context[answer.start : end] != answer.text:
        raise InputError(
            f"example {example.id}: answer {answer.text!r} is not at offset {answer.start} of its context"
        )
    return answer.start, end


# --- hashes


def examples_hash(examples: Iterable[QAExample]) -> str:
    """SHA-256 of the examples' content and order, in hexadecimal; it does not depend on the file format."""
    digest = hashlib.sha256()
    for example in examples:
        answers = [[answer.text, answer.start] for answer in example.answers]
        fields = [example.id, example.title, example.context, example.question, answers]
        if example.language:  # else as before examples had one
            fields.append(example.language)
        digest.update(json.dumps(fields).encode() + b"\n")
    return digest.hexdigest()


def passage_hash(context: str) -> str:
    """SHA-256 of the passage in hexadecimal; every run of white space counts as one space."""
    return hashlib.sha256(" ".join(context.split()).encode()).hexdigest()


def seeded_rank(seed: int, key: str) -> bytes:
    """Sort key for a random order that depends on the seed and the key alone, not on the order of the data."""
    return hashlib.sha256(f"{seed}\0{key}".encode()).digest()


def check_limit(limit: int | None) -> None:
    """Raise `InputError` for a limit below 1."""
    if limit is not None and limit < 1:
        raise InputError(f"a limit of {limit} examples leaves none: give at least 1, or null for all")


def report_limit(key: str, limit: object, used: int, total: int, what: str = "questions are used") -> None:
    """Say on one line how many of `total` rows are left by a limit of the settings, where it leaves any out."""
    if used < total:
        log.info("%s=%s: %s of %s %s", key, limit, f"{used:,}", f"{total:,}", what)


# --- output


def write_squad(path: str | Path, examples: Iterable[QAExample]) -> int:
    """Write SQuAD v1.1 JSON atomically, one article at a time, and return the number of questions.

    The order is kept: only neighbours with the same title share an article, and only neighbours with the same context
    a paragraph.
    """
    count = 0
    with atomic_writer(Path(path)) as stream:
        for text, questions in _squad_parts(examples):
            stream.write(text)
            count += questions
    return count


def squad_text(examples: Iterable[QAExample]) -> str:
    """What `write_squad` writes."""
    return "".join(text for text, _ in _squad_parts(examples))


def _squad_parts(examples: Iterable[QAExample]) -> Iterator[tuple[str, int]]:
    """Parts of the document with the number of questions in each."""
    yield '{"version": "1.1", "data": [', 0
    for number, (title, article) in enumerate(groupby(examples, key=lambda example: example.title)):
        paragraphs = []
        for context, group in groupby(article, key=lambda example: example.context):
            paragraphs.append({"context": context, "qas": [_squad_question(example) for example in group]})
        text = json.dumps({"title": title, "paragraphs": paragraphs}, ensure_ascii=False)
        yield f"{',' if number else ''}\n{text}", sum(len(paragraph["qas"]) for paragraph in paragraphs)
    yield "\n]}\n", 0


def _squad_question(example: QAExample) -> dict[str, Any]:
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in example.answers]
    language = {"language": example.language} if example.language else {}
    return {"id": example.id, "question": example.question, "answers": answers, **language}
