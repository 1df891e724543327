"""SQuAD's JSON, flat rows of the same fields, and QG-Bench rows."""

import re
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_qg.data.formats import (
    IMPOSSIBLE,
    RawRecord,
    Rows,
    field_of,
    find_once,
    id_field,
    known_id,
    list_field,
    malformed_record,
    records_of_rows,
    text_field,
)
from rl_qg.runtime.errors import InputError

_OFFSET = re.compile(r"([+-]?\d{1,15})(\.0*)?")


def squad_records(root: Any, path: Path, stem: str, unlabelled: bool) -> Iterator[RawRecord]:
    """Yield the records of a parsed SQuAD document, an object with `data` or the list of its articles alone, as in
    the raw files of Du et al. (2017); `unlabelled` as in `rl_qg.data.sources.raw_records`.
    """
    for number, part in enumerate(_squad_questions(root, path, unlabelled), 1):
        key = f"{stem}-{number}"
        if isinstance(part, InputError):
            yield malformed_record(key, part)
            continue
        try:
            record = _squad_record(part, key, unlabelled)
        except InputError as error:
            record = malformed_record(known_id(part.question) or key, error)
        yield record


@dataclass(frozen=True)
class _SquadQuestion:
    """A question of a SQuAD document with what holds it, and the positions of these."""

    article: Any
    paragraph: Any
    question: Any
    article_at: str
    paragraph_at: str
    question_at: str


def _squad_questions(root: Any, path: Path, unlabelled: bool) -> Iterator[_SquadQuestion | InputError]:
    """All questions; for an article or a paragraph that has no list of them, what is wrong with it."""
    articles, name = (root, "") if isinstance(root, list) else (list_field(root, "data", f"{path}"), "data")
    for a, article in enumerate(articles):
        article_at = f"{path}: {name}[{a}]"
        try:
            paragraphs = list_field(article, "paragraphs", article_at)
        except InputError as error:
            yield error
            continue
        for p, paragraph in enumerate(paragraphs):
            at = f"{article_at}.paragraphs[{p}]"
            try:
                questions = [] if _lacks(paragraph, "qas", unlabelled) else list_field(paragraph, "qas", at)
            except InputError as error:
                yield error
                continue
            for q, question in enumerate(questions):
                yield _SquadQuestion(article, paragraph, question, article_at, at, f"{at}.qas[{q}]")


def _squad_record(part: _SquadQuestion, key: str, unlabelled: bool) -> RawRecord:
    qa, where = part.question, part.question_at
    impossible = isinstance(qa, dict) and qa.get("is_impossible") is True
    return RawRecord(
        id=id_field(qa, where) or key,
        title=text_field(part.article, "title", part.article_at, optional=True),
        context=text_field(part.paragraph, "context", part.paragraph_at),
        question=text_field(qa, "question", where, optional=unlabelled),
        answers=() if impossible or _lacks(qa, "answers", unlabelled) else _answers(qa, where),
        unusable=IMPOSSIBLE if impossible else "",
        language=_language(qa),
    )


def row_records(rows: Rows, stem: str, unlabelled: bool) -> Iterator[RawRecord]:
    """Yield the records of flat rows; rows with a field `paragraph` are QG-Bench rows."""

    def parse(row: Any, where: str, key: str) -> Iterator[RawRecord]:
        names = row if isinstance(row, dict) else ()
        one = "answers" not in names and ("answer" in names or "paragraph" in names)  # in a field of its own
        yield RawRecord(
            id=id_field(row, where) or key,
            title=text_field(row, "title", where, optional=True),
            context=text_field(row, "paragraph" if "paragraph" in names else "context", where),
            question=text_field(row, "question", where, optional=unlabelled),
            answers=()
            if _lacks(row, "answer" if one else "answers", unlabelled)
            else _one_answer(row, where)
            if one
            else _answers(row, where),
            language=_language(row),
        )

    return records_of_rows(rows, stem, parse)


def _language(record: Any) -> str:
    """The field `language` if it is text; other data sets have a field of this name for other things."""
    value = record.get("language") if isinstance(record, dict) else None
    return value if isinstance(value, str) else ""


def _lacks(record: Any, name: str, unlabelled: bool) -> bool:
    """Whether a field is missing, and may be."""
    return unlabelled and isinstance(record, dict) and name not in record


def _one_answer(row: dict[str, Any], where: str) -> tuple[tuple[str, int], ...]:
    """An answer at `answer_start`; without that at its only occurrence in the passage, else at its first in the
    sentence of a QG-Bench row, else anywhere.
    """
    answer = text_field(row, "answer", where)
    context = text_field(row, "paragraph" if "paragraph" in row else "context", where)
    start = _offset(row, where) if "answer_start" in row else -1
    if start < 0:
        start = find_once(answer, context)
    if start < 0 and row.get("sentence") is not None:
        sentence = text_field(row, "sentence", where)
        sentence_start, offset = find_once(sentence, context), sentence.find(answer)
        start = sentence_start + offset if sentence_start >= 0 and offset >= 0 else -1
    return ((answer, start),)


def _answers(record: Any, where: str) -> tuple[tuple[str, int], ...]:
    """Read `answers`: a list of objects, or an object of lists."""
    value, where = field_of(record, "answers", where), f"{where}: answers"
    if isinstance(value, dict):
        texts, starts = list_field(value, "text", where), list_field(value, "answer_start", where)
        if len(texts) != len(starts):
            raise InputError(f"{where}: {len(texts)} texts but {len(starts)} offsets; give one offset for each text")
        value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if value is not None and not isinstance(value, list):
        raise InputError(f"{where}: must be a list of objects or an object of lists, got {type(value).__name__}")
    return tuple((text_field(item, "text", where), _offset(item, where)) for item in value or ())


def _offset(answer: Any, where: str) -> int:
    """Read `answer_start`: a whole number, also as text (TQuAD) or as a float (pandas writes a column with gaps so);
    null and blank text are an unknown offset.
    """
    value = field_of(answer, "answer_start", where)
    if value is None or (isinstance(value, str) and not value.strip()):
        return -1
    if type(value) is int or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, str) and (match := _OFFSET.fullmatch(value.strip())):
        return int(match[1])
    raise InputError(f"{where}: field 'answer_start' must be a whole number, got {reprlib.repr(value)}")
