"""Question-answer pairs in the formats of other programs."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from rl_qg.asking.pairs import QAPair
from rl_qg.data.examples import Answer, QAExample, squad_text
from rl_qg.runtime.errors import InputError
from rl_qg.text.tables import as_csv

Row = dict[str, Any]
"""A pair: `id`, `title`, `context`, `question`, `answer`, `answer_start` (in the context), `score`, `reason`, …"""

ENDINGS = {
    ".jsonl": "jsonl",
    ".squad.json": "squad",
    ".json": "json",
    ".csv": "csv",
    ".anki.txt": "anki",
    ".gift": "gift",
}
AUTO = "auto"  # the format is that of the ending
COLUMNS = ("question", "answer", "answer_start", "score", "title", "context", "reason")  # of CSV
SET_COLUMNS = ("question", "type", "start", "end", "score", "title", "context", "reason")
_GIFT = str.maketrans({sign: f"\\{sign}" for sign in "\\~=#{}:"} | {"\n": "\\n"})


def format_of(name: str, chosen: str = AUTO) -> str:
    """The format of an output: the chosen one, else that of the ending of its name.

    Raises:
        InputError: the ending is that of no format.
    """
    endings = (form for ending, form in ENDINGS.items() if name.lower().endswith(ending))
    found = next(endings, None) if chosen == AUTO else chosen
    if found is None:
        raise InputError(f"output={name}: name a file that ends in {', '.join(ENDINGS)}, or set format=")
    return found


def row_of(pair: QAPair, *, identity: str, title: str, context: str, passage_start: int = 0) -> Row:
    """A pair as a row; `context` is the text that it was asked about, which begins at character `passage_start` of its
    document.
    """
    about = {"id": identity, "title": title, "context": context}
    return {**about, **pair.to_dict(), "passage_start": passage_start}


def export(rows: Sequence[Row], form: str) -> str:
    """The rows in one of `FORMATS`, as the text of a file in UTF-8."""
    return FORMATS[form](rows)


def _as_json_lines(rows: Sequence[Row]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _as_json(rows: Sequence[Row]) -> str:
    return json.dumps(list(rows), ensure_ascii=False, indent=2) + "\n"


def _as_csv(rows: Sequence[Row]) -> str:
    return as_csv([{column: row.get(column, "") for column in COLUMNS} for row in rows])


def sets_as_csv(rows: Sequence[Row]) -> str:
    """Questions of sets, one a row with its passage: `start` and `end` are those of its unit in the passage."""
    questions = [{**row, **question} for row in rows for question in row["questions"]]
    return as_csv([{column: question[column] for column in SET_COLUMNS} for question in questions])


def _as_squad(rows: Sequence[Row]) -> str:
    """SQuAD v1.1 JSON."""
    return squad_text(
        QAExample(
            row["id"], row["title"], row["context"], row["question"], (Answer(row["answer"], row["answer_start"]),)
        )
        for row in rows
    )


def _as_anki(rows: Sequence[Row]) -> str:
    """A text file for Anki's import: front and back of a card. Every field is in quotes, because a line that begins
    with `#` would be a comment; line feeds within quotes are part of the field.
    """
    stream = io.StringIO()
    stream.write("#separator:tab\n#html:false\n#columns:Question\tAnswer\n")
    writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([line_feeds(row["question"]), line_feeds(row["answer"])] for row in rows)
    return stream.getvalue()


def _as_gift(rows: Sequence[Row]) -> str:
    """Moodle GIFT: a category for each title, and a question with a short answer for each row.

    `[plain]` and the weight are written out, because a text that begins with a bracket or with `%` would be taken for
    them. A star is a wildcard in Moodle's short answers unless a backslash precedes it. GIFT has no way to write `->`
    in an answer, where it marks a matching question; it becomes `→`.
    """
    parts = []
    for title, group in groupby(rows, key=lambda row: row["title"]):
        parts.append(f"$CATEGORY: {' '.join(title.split()).replace('/', '//') or 'rl-qg'}\n")
        for row in group:
            answer = line_feeds(row["answer"]).replace("->", "→").replace("*", "\\*")
            name, question, answer = (
                text.translate(_GIFT) for text in (row["id"], line_feeds(row["question"]), answer)
            )
            parts.append(f"::{name}::[plain]{question} {{=%100%{answer}}}\n")
    return "\n".join(parts)


def line_feeds(text: str) -> str:
    """The text with line feeds alone as line ends; browsers send forms with CR LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


FORMATS: dict[str, Callable[[Sequence[Row]], str]] = {
    "jsonl": _as_json_lines,
    "json": _as_json,
    "csv": _as_csv,
    "squad": _as_squad,
    "anki": _as_anki,
    "gift": _as_gift,
}
