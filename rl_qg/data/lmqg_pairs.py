"""Question-answer pairs in lmqg's form: all pairs of a passage as one text, `question: q, answer: a | question: …`.

Its data sets (`lmqg/qag_*`) have it in the field `questions_answers`, its prediction files have one passage a line.
Source: lmqg 0.1.2 (`qa_aligned_f1_score.py`, `language_model.py`). A `|` or `, answer: ` within a question or an
answer loses pairs in this form; the project's own models use separators of their own, which cannot.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rl_qg.data.formats import RawRecord, Rows, find_once, id_field, records_of_rows, text_field

FIELD = "questions_answers"
SEPARATOR = " | "
QUESTION, ANSWER = "question: ", ", answer: "
MALFORMED = "malformed question-answer pair"

Rule = Literal["metric", "model"]


@dataclass(frozen=True)
class LmqgPairs:
    """The pairs of one passage.

    Args:
        pairs: question and answer, in the order of the text, exact repetitions included.
        malformed: the parts that are no pair, which lmqg leaves out without a word.
    """

    pairs: list[tuple[str, str]]
    malformed: list[str]


def split_pairs(text: str, rule: Rule = "metric") -> LmqgPairs:
    """Read the pairs of a text as lmqg does, which has two rules.

    Args:
        text: of one passage; a blank one has no pairs.
        rule: `metric`, that of its QAAligned score: parts are cut at ` | `, begin with `question: ` and have
            `, answer: ` exactly once; nothing is stripped. `model`, that of its models' output: parts are cut at `|`,
            have `question: ` anywhere (each is taken out) and `, answer: ` exactly once; both texts are stripped.
    """
    segments = (text.split(SEPARATOR if rule == "metric" else SEPARATOR.strip())) if text.strip() else []
    pairs, malformed = list[tuple[str, str]](), list[str]()
    for segment in segments:
        question, *answers = segment.split(ANSWER)
        is_question = segment.startswith(QUESTION) if rule == "metric" else QUESTION in segment
        if len(answers) != 1 or not is_question:
            malformed.append(segment)
        elif rule == "metric":
            pairs.append((question[len(QUESTION) :], answers[0]))
        else:
            pairs.append((question.replace(QUESTION, "").strip(), answers[0].strip()))
    return LmqgPairs(pairs, malformed)


def is_lmqg(row: object) -> bool:
    """Whether a row has pairs in this form, and no question of its own."""
    return isinstance(row, dict) and FIELD in row and "question" not in row


def lmqg_records(rows: Rows, stem: str) -> Iterator[RawRecord]:
    """Yield one record a pair, with an offset where the answer occurs once; parts that are no pair are unusable."""

    def parse(row: Any, where: str, key: str) -> Iterator[RawRecord]:
        context = text_field(row, "paragraph" if "paragraph" in row else "context", where)
        read = split_pairs(text_field(row, FIELD, where))
        name = id_field(row, where) or key
        for at, (question, answer) in enumerate(read.pairs, 1):
            place = find_once(answer, context)
            yield RawRecord(f"{name}-{at}", "", context, question, ((answer, place if place >= 0 else -1),))
        for at, _ in enumerate(read.malformed, 1):
            yield RawRecord(f"{name}-malformed-{at}", "", context, "", (), unusable=MALFORMED)

    return records_of_rows(rows, stem, parse)
