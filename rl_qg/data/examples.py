"""QA examples: the schema of all packages, their hashes, and what is written of them: SQuAD JSON, QG-Bench rows."""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeVar

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer
from rl_qg.text.spans import sentence_at, sentence_spans

Role = Literal["train", "validation", "test"]
Key = TypeVar("Key")
Item = TypeVar("Item")
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
    """Return the example itself, or build it from a row of a `datasets.Dataset` with SQuAD's columns."""
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
    except (TypeError, ValueError):
        raise InputError(
            f"training row {row.get('id', '')!r}: its answers are no columns text and answer_start of equal length"
        ) from None


def answer_place(example: QAExample) -> tuple[int, int]:
    """Start and end of the first answer in the context; raise `InputError` if it is not there."""
    answer = example.answers[0]
    end = answer.start + len(answer.text)
    if example.context[answer.start : end] != answer.text:
        raise InputError(
            f"example {example.id}: answer {answer.text!r} is not at offset {answer.start} of its context"
        )
    return answer.start, end


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


@lru_cache(1 << 6)  # of neighbours in a file, which are often about the same passage
def passage_hash(context: str) -> str:
    """SHA-256 of the passage in hexadecimal; every run of white space counts as one space."""
    return hashlib.sha256(" ".join(context.split()).encode()).hexdigest()


def seeded_rank(seed: int, key: str) -> bytes:
    """Sort key for a random order that depends on the seed and the key alone, not on the order of the data."""
    return hashlib.sha256(f"{seed}\0{key}".encode()).digest()


def by_key(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """The items of each key, as of each passage, in their order; the keys in the order of their first items."""
    found: dict[Key, list[Item]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


def report_limit(key: str, limit: object, used: int, total: int, what: str = "questions are used") -> None:
    """Say on one line how many of `total` rows are left by a limit of the settings, where it leaves any out."""
    if used < total:
        log.info("%s=%s: %s of %s %s", key, limit, f"{used:,}", f"{total:,}", what)


def write_squad(path: str | Path, examples: Iterable[QAExample]) -> int:
    """Write SQuAD v1.1 JSON atomically, one paragraph at a time, and return the number of questions.

    The order is kept: only neighbours with the same title share an article, and only neighbours with the same context
    a paragraph.
    """
    count = 0
    with atomic_writer(Path(path)) as stream:
        for text, questions in _squad_parts(examples):
            stream.write(text)
            count += questions
    return count


def squad_text(examples: Iterable[QAExample], impossible: Mapping[str, str] | None = None) -> str:
    """SQuAD v1.1 JSON; v2.0 where `impossible` maps the ids of questions without an answer, whose answers are only
    plausible, to the kinds of these questions.
    """
    return "".join(text for text, _ in _squad_parts(examples, impossible))


def _squad_parts(
    examples: Iterable[QAExample], impossible: Mapping[str, str] | None = None
) -> Iterator[tuple[str, int]]:
    yield f'{{"version": "{"1.1" if impossible is None else "v2.0"}", "data": [', 0
    for number, (title, article) in enumerate(groupby(examples, key=lambda example: example.title)):
        yield f'{"," if number else ""}\n{{"title": {json.dumps(title, ensure_ascii=False)}, "paragraphs": [', 0
        for place, (context, group) in enumerate(groupby(article, key=lambda example: example.context)):
            paragraph = {"context": context, "qas": [_squad_question(example, impossible) for example in group]}
            yield (", " if place else "") + json.dumps(paragraph, ensure_ascii=False), len(paragraph["qas"])
        yield "]}", 0
    yield "\n]}\n", 0


def _squad_question(example: QAExample, impossible: Mapping[str, str] | None) -> dict[str, Any]:
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in example.answers]
    language = {"language": example.language} if example.language else {}
    question = {"id": example.id, "question": example.question, "answers": answers, **language}
    if impossible is None:
        return question
    if example.id not in impossible:
        return {**question, "is_impossible": False}
    none = {"answers": [], "plausible_answers": answers, "is_impossible": True}
    return {**question, **none, "kind": impossible[example.id]}


# --- rows of QG-Bench's schema: a question, its answer, and the texts that a generator may be given, with `<hl>` on
# both sides of what the question is about
# Source: Ushio et al., "Generative Language Models for Paragraph-Level Question Generation" (EMNLP 2022), Table 1 and
# lmqg 0.1.2 (`language_model.py`). Their code marks the first place at which the answer's text occurs, which is
# another than the annotator's in 0.6 to 10.8 % of the rows of a data set. Here the mark is where the answer is.

HIGHLIGHT = "<hl>"
COLUMNS = (
    *("paragraph", "sentence", "question", "answer"),
    *("paragraph_answer", "sentence_answer", "paragraph_sentence", "paragraph_question"),
)


def sentence_of(context: str, start: int, end: int) -> tuple[int, int]:
    """What QG-Bench calls `sentence`: start and end of the sentence that holds the characters `start` to `end` (one
    past the last) of a passage, without the white space around it; of an answer in several sentences, of all from its
    first to its last. The part is never smaller than the answer, even where that begins or ends with white space.
    """
    if not 0 <= start < end <= len(context):
        raise ValueError(f"an answer from {start} to {end} is not in a passage of {len(context)} characters")
    spans = sentence_spans(context)
    if not spans:
        return start, end
    first, last = spans[sentence_at(spans, start)], spans[sentence_at(spans, end - 1)]
    return min(first[0], start), max(last[1], end)


def unified_row(example: QAExample) -> dict[str, str | int]:
    """The row of an example's first answer: `COLUMNS`, and `id`, `title`, `answer_start` (characters into the
    paragraph) and `language` if it is known, with which `rl_qg.data.reading` reads it back as it was. Raises
    `ValueError` where the answer is empty or not at its offset.
    """
    paragraph, answer = example.context, example.answers[0]
    start, end = answer.start, answer.start + len(answer.text)
    if not paragraph.startswith(answer.text, start):
        raise ValueError(f"{example.id}: the answer {answer.text!r} is not at character {start} of its paragraph")
    first, last = sentence_of(paragraph, start, end)
    sentence = paragraph[first:last]
    return {
        "id": example.id,
        "title": example.title,
        "paragraph": paragraph,
        "sentence": sentence,
        "question": example.question,
        "answer": answer.text,
        "answer_start": start,
        "paragraph_answer": marked(paragraph, start, end),
        "sentence_answer": marked(sentence, start - first, end - first),
        "paragraph_sentence": marked(paragraph, first, last),
        "paragraph_question": f"question: {example.question}, context: {paragraph}",
        **({"language": example.language} if example.language else {}),
    }


def marked(text: str, start: int, end: int) -> str:
    """The text with `<hl>` on both sides of the characters `start` to `end` (one past the last)."""
    return f"{text[:start]}{HIGHLIGHT} {text[start:end]} {HIGHLIGHT}{text[end:]}"
