"""The cleaning of texts in QG-Bench: citation marks and runs of white space, with offsets that stay true.

Source: asahi417/lm-question-generation, `tests/dataset_preparation.py` at e53a89b. Its means of characters are in the
tests.
"""

import re
from dataclasses import replace

from rl_qg.data.examples import Answer, QAExample

LOST = "answer not at its place after cleaning"
_CITATION = re.compile(r"\[\d*\]")
_SPACE = re.compile(r"\s+")


def clean_text(text: str) -> str:
    """A text without marks such as `[12]`, and with single spaces."""
    return _without_marks(text).strip()


def clean_example(example: QAExample) -> QAExample | str:
    """The example with clean texts and answers at their offsets; the reason where its first answer is lost. Other
    answers that are lost are left out.
    """
    context = clean_text(example.context)
    answers = [_clean_answer(answer, example.context, context) for answer in example.answers]
    question = clean_text(example.question)
    if answers[0] is None:
        return LOST
    if not question:
        return "no question"
    kept = tuple(answer for answer in answers if answer is not None)
    return replace(example, context=context, question=question, answers=kept)


def _clean_answer(answer: Answer, before: str, context: str) -> Answer | None:
    text = clean_text(answer.text)
    spaces = len(answer.text) - len(answer.text.lstrip())
    start = len(_without_marks(before[: answer.start + spaces]).lstrip())
    return Answer(text, start) if text and context.startswith(text, start) else None


def _without_marks(text: str) -> str:
    return _SPACE.sub(" ", _CITATION.sub("", text))
