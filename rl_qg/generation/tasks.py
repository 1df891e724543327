r"""What a generator writes: questions, answers, both, all pairs of a passage at once, or sets of questions; and the
texts of each task.

| task | input | text that it writes |
| --- | --- | --- |
| `questions` | passage with its answer marked | the question |
| `answers` | passage with a sentence marked | the answers in that sentence: `a <answer> a …` |
| `pairs` | passage | all pairs, by the place of the answer: `q <answer> a <pair> q <answer> a …` |
| `multitask` | `questions` and `answers` by one model, told apart by their prefixes | |
| `sets` | passage, or one with a sentence marked, no answer (`rl_qg.generation.sets`) | its questions |

`<hl>`, `<pair>`, `<answer>`, `<question>` and the types of questions are tokens of their own. Where a text contains
the words of its task's tokens they are written `<\pair>` and so on (one backslash more for each that is there), so no
text can be taken for a token. The prefixes are those of lmqg (Ushio et al. 2023, "An Empirical Comparison of LM-based
Question and Answer Generation Methods"); that of `sets` is ours.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rl_qg.data.examples import HIGHLIGHT, Answer, QAExample
from rl_qg.runtime.errors import InputError
from rl_qg.text.question_types import NINE_TYPES
from rl_qg.text.spans import sentence_spans

TASKS = ("questions", "answers", "multitask", "pairs", "sets")
PREFIXES = {
    "questions": "generate question: ",
    "answers": "extract answers: ",
    "pairs": "generate question and answer: ",
    "sets": "generate questions: ",
}
PAIR, ANSWER, QUESTION = "<pair>", "<answer>", "<question>"
TYPE_TOKENS = {kind: f"<{kind}>" for kind in NINE_TYPES}  # stand before an input, and are never written
log = logging.getLogger(__name__)


def escape(text: str, tokens: Sequence[str] = (HIGHLIGHT, PAIR, ANSWER)) -> str:
    """`text` without anything that a model reads as one of these tokens; `unescape` gives it back."""
    return re.sub(rf"<(\\*)({_words_of(tokens)})>", r"<\\\1\2>", text)


def unescape(text: str, tokens: Sequence[str] = (HIGHLIGHT, PAIR, ANSWER)) -> str:
    return re.sub(rf"<\\(\\*)({_words_of(tokens)})>", r"<\1\2>", text)


def _words_of(tokens: Sequence[str]) -> str:
    return "|".join(token[1:-1] for token in tokens) or "(?!)"  # nothing is one of no tokens


def join_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return f" {PAIR} ".join(f"{escape(question)} {ANSWER} {escape(answer)}" for question, answer in pairs)


def pair_parts(text: str) -> list[tuple[str, str]]:
    """Everything that a text has between `<pair>`s as (question, answer), without white space at the ends; a part
    that is missing, or that has more than one `<answer>`, is empty. Nothing for a blank text.
    """
    if not text.strip():
        return []
    parts = [[unescape(part).strip() for part in segment.split(ANSWER)] for segment in text.split(PAIR)]
    return [(part[0], part[1]) if len(part) == 2 else (part[0] if len(part) == 1 else "", "") for part in parts]


def pair_key(question: str, answer: str) -> tuple[str, str]:
    """What is the same of pairs that differ only in case and white space."""
    return " ".join(question.casefold().split()), " ".join(answer.casefold().split())


def join_answers(answers: Iterable[str]) -> str:
    return f" {ANSWER} ".join(map(escape, answers))


def parse_answers(text: str) -> list[str]:
    """The answers that a model has written, in their order, without blank ones; `<pair>` also separates them."""
    return [part for text in text.replace(PAIR, ANSWER).split(ANSWER) if (part := unescape(text).strip())]


@dataclass(frozen=True)
class Unit:
    """What a set of questions is asked about: characters `start` to `end` of a passage, a sentence or all of it; if
    `type` is given, by questions of that one of `rl_qg.text.question_types.NINE_TYPES`.
    """

    context: str
    start: int
    end: int
    type: str | None = None


@dataclass(frozen=True)
class TaskRow(QAExample):
    """One input of the task `answers`, `pairs` or `sets`, and as its `question` the text that the model is to write
    (empty where it is unknown).

    `answers` is the marked part of the passage, a sentence; none if nothing is marked, and of `sets`, of which `unit`
    says what is marked. `sources` are the examples that the row was made of, by the place of their answers; of `sets`
    all those of the unit, in the order in which they are to be written.
    """

    task: str = "pairs"
    sources: tuple[QAExample, ...] = ()
    unit: Unit | None = None


def task_of(row: QAExample) -> str:
    return row.task if isinstance(row, TaskRow) else "questions"


def shown(row: QAExample, text: str) -> str:
    """The text of a row of another task than `questions`, a space for each separator; a question as it is."""
    if not isinstance(row, TaskRow):
        return text
    for separator in separators_of(row.task):
        text = text.replace(separator, " ")
    return " ".join(unescape(text, tokens_of(row.task)).split())


def row_tasks(task: str) -> tuple[str, ...]:
    """The tasks of the rows that a model of this task reads."""
    if task not in TASKS:
        raise InputError(f"model.task={task} is not one of {', '.join(TASKS)}")
    return ("questions", "answers") if task == "multitask" else (task,)


def separators_of(task: str) -> tuple[str, ...]:
    """The tokens that stand in texts that a model of this task writes."""
    return {"questions": (), "sets": (QUESTION,)}.get(task, (PAIR, ANSWER))


def tokens_of(task: str) -> tuple[str, ...]:
    """All tokens that a model of this task needs."""
    return (HIGHLIGHT, *separators_of(task), *(TYPE_TOKENS.values() if task == "sets" else ()))


def task_rows(task: str, examples: Sequence[QAExample]) -> list[QAExample]:
    """The rows of a task, made of examples in their order: for `questions` the examples; for `answers` one row for
    each sentence with an answer; for `pairs` one for each passage; for `multitask` those of its two tasks. Rows of
    `sets` are made by `rl_qg.generation.sets.set_rows`.

    The first answer of an example counts. Examples without a question give rows with nothing to write, and no rows of
    `answers`, since nobody has chosen their answers. Answers that go beyond a sentence are left out of `answers`, and
    counted in the log.
    """
    makers, rows = {"answers": _answer_rows, "pairs": _pair_rows}, list[QAExample]()
    for name in row_tasks(task):
        rows += makers[name](examples) if name in makers else examples
    return rows


def pairs_row(key: str, context: str) -> TaskRow:
    return TaskRow(key, "", context, "", (), task="pairs")


def sentence_rows(key: str, context: str) -> list[TaskRow]:
    marked = [Answer(context[start:end], start) for start, end in sentence_spans(context)]
    return [TaskRow(f"{key}:answers:{mark.start}", "", context, "", (mark,), task="answers") for mark in marked]


def _by_passage(examples: Sequence[QAExample]) -> list[list[QAExample]]:
    """The distinct examples of each passage by the place of their answers."""
    passages: dict[str, dict[tuple[int, str, str], QAExample]] = {}
    for example in examples:
        answer = example.answers[0]
        passages.setdefault(example.context, {}).setdefault((answer.start, answer.text, example.question), example)
    return [sorted(rows.values(), key=lambda row: row.answers[0].start) for rows in passages.values()]


def _pair_rows(examples: Sequence[QAExample]) -> list[QAExample]:
    rows: list[QAExample] = []
    for sources in _by_passage(examples):
        first, asked = sources[0], all(source.question for source in sources)
        text = join_pairs((source.question, source.answers[0].text) for source in sources) if asked else ""
        rows.append(taught(pairs_row(f"{first.id}:pairs", first.context), text, sources))
    return rows


def _answer_rows(examples: Sequence[QAExample]) -> list[QAExample]:
    rows: list[QAExample] = []
    left_out = 0
    for sources in _by_passage([example for example in examples if example.question]):
        left_out += len(sources)
        for row in sentence_rows(sources[0].id, sources[0].context):
            first, last = row.answers[0].start, row.answers[0].start + len(row.answers[0].text)
            inside = [one for one in sources if first <= one.answers[0].start <= last - len(one.answers[0].text)]
            left_out -= len(inside)
            if inside:
                answers = dict.fromkeys(source.answers[0].text for source in inside)
                rows.append(taught(row, join_answers(answers), inside))
    if left_out:
        log.info("answers: %d answers that go beyond a sentence are left out", left_out)
    return rows


def taught(row: TaskRow, text: str, sources: Sequence[QAExample]) -> TaskRow:
    first = sources[0]
    return replace(row, title=first.title, question=text, sources=tuple(sources), language=first.language)
