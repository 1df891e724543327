"""Files of sets: a row with the questions of a passage, as `rl-qg ask strategy=…` writes them."""

from typing import Any

from rl_qg.data.question_tables import TableRow
from rl_qg.evaluation.metric_scores import MetricRow
from rl_qg.evaluation.references import BY_PASSAGE, GoldQuestions
from rl_qg.runtime.errors import InputError


def is_set(row: TableRow) -> bool:
    """Whether a row holds the questions of a passage, and not one question."""
    return "questions" in row.fields and not isinstance(row.fields.get("question"), str)


def rows_of_set(
    row: TableRow, context: str | None, references: list[str] | None, gold: GoldQuestions | None
) -> tuple[list[MetricRow], str]:
    """A row for each question of a set, and how its references were found; one without a question for an empty set.

    Its references are all human questions about the passage: those of `gold` if given, else its own.

    Raises:
        InputError: the questions are no list of texts, or of objects with a text `question`; there is no passage.
    """
    questions = [_question(item) for item in _listed(row.fields["questions"])]
    if any(question is None for question in questions):
        raise InputError(
            f"{row.where}: 'questions' is no list of texts, or of objects with a text 'question'; give one of these, "
            "or one row for each question"
        )
    if context is None:
        raise InputError(f"{row.where}: no 'context', and a set of questions is about one; add it")
    how = ""
    found = None if references is None else tuple(references)
    if gold is not None:
        found = gold.of_passage(context)
        how = BY_PASSAGE if found else ""
    asked = [question for question in questions if question is not None] or [""]
    rows = [
        MetricRow(f"{row.where}, question {number}", question, context, None, found)
        for number, question in enumerate(asked, 1)
    ]
    return rows, how


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def _question(item: Any) -> str | None:
    text = item.get("question") if isinstance(item, dict) else item
    return text if isinstance(text, str) else None
