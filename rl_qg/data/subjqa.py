"""SubjQA: questions about reviews, as the CSV files of its authors (`SubjQA/<domain>/splits/{train,dev,test}.csv`).

Source: Bjerva et al., "SubjQA: A Dataset for Subjectivity and Review Comprehension" (EMNLP 2020). A question about a
review (`q_review_id`) has a row for each person who answered it. Counted so, its answerable questions are as many as
QG-Bench publishes (Table 1: restaurants 823, 129 and 136).
"""

import re
from collections.abc import Iterator
from typing import Any

from rl_qg.data.formats import IMPOSSIBLE, RawRecord, Rows, field_of, malformed_record, text_field
from rl_qg.runtime.errors import InputError

NOT_FOUND = "ANSWERNOTFOUND"
"""The last word of every review, to which the spans of unanswerable questions point."""
_SPAN = re.compile(r"\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")


def is_subjqa(row: object) -> bool:
    """Whether a row has SubjQA's columns."""
    return isinstance(row, dict) and {"review", "human_ans_spans", "human_ans_indices"} <= row.keys()


def subjqa_records(rows: Rows, stem: str) -> Iterator[RawRecord]:
    """Yield one record a question with its distinct answers; first the malformed rows. The rows are held in memory:
    those of a question are not together.

    Of an answer the text at its indices counts: the column `human_ans_spans` has it tokenised. The passage ends before
    the word `ANSWERNOTFOUND`.
    """
    questions: dict[str, RawRecord] = {}
    for where, number, row in rows:
        try:
            record = _record(row, where, f"{stem}-{number}")
        except InputError as error:
            yield malformed_record(f"{stem}-{number}", error)
            continue
        known = questions.get(record.id, record)
        answers = tuple(dict.fromkeys([*known.answers, *record.answers]))
        questions[record.id] = RawRecord(
            record.id, record.title, record.context, record.question, answers, "" if answers else IMPOSSIBLE
        )
    yield from questions.values()


def _record(row: Any, where: str, key: str) -> RawRecord:
    """One row, with one answer or none."""
    if isinstance(row, InputError):
        raise row
    review = text_field(row, "review", where)
    context = review.rstrip().removesuffix(NOT_FOUND).rstrip()
    answers: tuple[tuple[str, int], ...] = ()
    if text_field(row, "human_ans_spans", where).strip() != NOT_FOUND:
        answers = (_answer(row, where, context),)
    return RawRecord(
        id=text_field(row, "q_review_id", where, optional=True) or key,
        title=text_field(row, "item_id", where, optional=True),
        context=context,
        question=text_field(row, "question", where),
        answers=answers,
    )


def _answer(row: Any, where: str, context: str) -> tuple[str, int]:
    indices = field_of(row, "human_ans_indices", where)
    match = _SPAN.fullmatch(indices.strip()) if isinstance(indices, str) else None
    if match is None:
        raise InputError(
            f"{where}: field 'human_ans_indices' must be (start, end), two whole numbers, got {indices!r:.40}"
        )
    start, end = int(match[1]), int(match[2])
    text = context[start:end]
    return text.strip(), start + len(text) - len(text.lstrip())
