"""MS MARCO question answering: real queries with passages and answers, as its JSON columns or as rows of them.

Source: Bajaj et al., "MS MARCO: A Human Generated MAchine Reading COmprehension Dataset" (2016), the Q&A files of
version 1.1 (JSON lines) and 2.1 (one JSON object with a column for each field).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_qg.data.formats import RawRecord, Rows, field_of, id_field, list_field, records_of_rows, text_field
from rl_qg.data.hotpotqa import YES_NO, first_place
from rl_qg.runtime.errors import InputError

COLUMNS = ("query", "query_id", "query_type", "answers", "wellFormedAnswers", "passages")
NO_ANSWER = "no answer present"


def is_ms_marco(root: Any) -> bool:
    """Whether a JSON object has MS MARCO's columns, or a row its fields."""
    return isinstance(root, dict) and "query" in root and "passages" in root


def ms_marco_rows(root: dict[str, Any], path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield the rows of a file of columns, each an object that maps the number of a row to its value.

    Raises:
        InputError: a column is none, or columns do not have the same rows.
    """
    columns = {name: root[name] for name in COLUMNS if name in root}
    for name, column in columns.items():
        if not isinstance(column, dict):
            raise InputError(f"{path}: field {name!r} must map row numbers to values, got {type(column).__name__}")
    for number, key in enumerate(dict.fromkeys(key for column in columns.values() for key in column), 1):
        where = f"{path}: row {key}"
        for name, column in columns.items():
            if key not in column:
                raise InputError(f"{where}: column {name!r} has no such row; download the file again")
        yield where, number, {name: column[key] for name, column in columns.items()}


def ms_marco_records(rows: Rows, stem: str) -> Iterator[RawRecord]:
    """Yield one record a query.

    The passage joins those that the annotators selected; without any of them the record has no context. An answer is
    looked for as a whole word first; it is often not literally there. The extra fields `query_type` and
    `well_formed_answers` are for tables of questions.
    """

    def parse(row: Any, where: str, key: str) -> Iterator[RawRecord]:
        passage = " ".join(_selected(row, where))
        answers = _texts(row, "answers", where)
        present = [answer for answer in answers if answer.strip(" .").lower() != NO_ANSWER]
        yes_no = bool(present) and all(answer.strip(" .").lower() in ("yes", "no") for answer in present)
        extra = {"well_formed_answers": _texts(row, "wellFormedAnswers", where)} if "wellFormedAnswers" in row else {}
        kind = text_field(row, "query_type", where, optional=True)
        yield RawRecord(
            id=id_field(row, where, "query_id") or key,
            title="",
            context=passage,
            question=text_field(row, "query", where),
            answers=tuple((answer, first_place(answer, passage)) for answer in present),
            unusable=YES_NO if yes_no else "" if present else "no answer",
            extra=extra | ({"query_type": kind} if kind else {}),
        )

    return records_of_rows(rows, stem, parse)


def _texts(row: Any, name: str, where: str) -> list[str]:
    """A list of texts; the text `[]`, as version 2.1 has it, is an empty one."""
    value = field_of(row, name, where)
    texts = [] if value in (None, "[]", "") else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where}: field {name!r} must be a list of texts, as in MS MARCO")
    return [text for text in texts if text.strip()]


def _selected(row: Any, where: str) -> Iterator[str]:
    """The selected passages, from a list of objects; or from columns, as on the Hub."""
    passages, at = field_of(row, "passages", where), f"{where}: passages"
    if isinstance(passages, dict):
        texts, selected = list_field(passages, "passage_text", at), list_field(passages, "is_selected", at)
        if len(texts) != len(selected):
            raise InputError(f"{at}: {len(texts)} texts but {len(selected)} marks of selection; give one for each")
        passages = [{"passage_text": text, "is_selected": mark} for text, mark in zip(texts, selected, strict=True)]
    for number, passage in enumerate(list_field({"passages": passages}, "passages", where)):
        mark = field_of(passage, "is_selected", f"{at}[{number}]")
        if mark not in (0, 1):
            raise InputError(f"{at}[{number}]: field 'is_selected' is {mark!r:.40}; give 0 or 1")
        if mark:
            yield text_field(passage, "passage_text", f"{at}[{number}]").strip()
