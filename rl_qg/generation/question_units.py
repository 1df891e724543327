"""Questions about a passage without given answers: what they are asked about, and the rows that teach them.

Six strategies (Ray Chowdhury et al. 2022, sections 4.1 and 4.2): three granularities times two modes.

| granularity | what a unit is | what the model reads |
| --- | --- | --- |
| `paragraph` | the passage | the passage |
| `sentence` | a sentence | the passage with `<hl> sentence <hl>` |
| `type` | a sentence and one of the nine types | the same after the token of the type, such as `<who>` |

In the mode `one2one` the model writes one question about a unit, in `one2many` all of them: `q <question> q …`.

A question belongs to the sentence in which its first answer begins, by its offset: a sentence that stands in a passage
twice is two units. Sentences are those of `rl_qg.text.spans.sentence_spans`, in training and in use.
"""

import logging
from collections.abc import Iterable, Sequence

from rl_qg.data.examples import QAExample, passage_hash, seeded_rank
from rl_qg.generation.tasks import QUESTION, TaskRow, Unit, escape, unescape
from rl_qg.runtime.errors import InputError
from rl_qg.text.nine_types import NINE_TYPES, nine_type
from rl_qg.text.spans import sentence_at, sentence_spans

__all__ = [
    *("GRANULARITIES", "MODES", "ORDERS", "Unit"),
    *("join_questions", "question_parts", "set_rows", "unit_row", "units_of"),
]

GRANULARITIES = ("paragraph", "sentence", "type")
MODES = ("one2one", "one2many")
ORDERS = ("position", "shuffle", "best")
log = logging.getLogger(__name__)


# --- texts


def join_questions(questions: Iterable[str]) -> str:
    """The text of the questions of a unit, in their order."""
    return f" {QUESTION} ".join(escape(question, "sets") for question in questions)


def question_parts(text: str) -> list[str]:
    """Everything that a text has between `<question>`s, without white space at the ends; a part without a question is
    "". Nothing for a blank text.
    """
    return [unescape(part, "sets").strip() for part in text.split(QUESTION)] if text.strip() else []


# --- units


def units_of(
    context: str,
    granularity: str,
    worthy: Sequence[bool] | None = None,
    types: Sequence[Sequence[str]] | None = None,
) -> list[Unit]:
    """The units of a passage, by their places; those of one sentence in the order of `NINE_TYPES`. A sentence without
    a letter or digit, such as `* * *`, is none.

    Args:
        context: the passage.
        granularity: one of `GRANULARITIES`; a paragraph is one unit, whatever the other arguments.
        worthy: which of its sentences (`sentence_spans`) are asked about; None: all.
        types: the types of each of these sentences; None: all nine. Read for `type` alone.

    Raises:
        InputError: there is no such granularity; there are more or fewer flags or types than sentences; an unknown
            type.
    """
    _check("ask.granularity", granularity, GRANULARITIES)
    if granularity == "paragraph":
        return [Unit(context, 0, len(context))]
    spans = sentence_spans(context)
    for name, values in (("worthy", worthy), ("types", types)):
        if values is not None and len(values) != len(spans):
            raise InputError(f"{name}: {len(values)} for {len(spans)} sentences; give one for each")
    chosen = [
        number
        for number, (start, end) in enumerate(spans)
        if (worthy is None or worthy[number]) and any(map(str.isalnum, context[start:end]))
    ]
    if granularity == "sentence":
        return [Unit(context, *spans[number]) for number in chosen]
    kinds = [NINE_TYPES if types is None else tuple(types[number]) for number in range(len(spans))]
    if unknown := sorted({kind for number in chosen for kind in kinds[number]} - {*NINE_TYPES}):
        raise InputError(f"types: {unknown[0]!r} is not one of {', '.join(NINE_TYPES)}")
    return [Unit(context, *spans[number], kind) for number in chosen for kind in NINE_TYPES if kind in kinds[number]]


def unit_row(key: str, unit: Unit) -> TaskRow:
    """The row that asks for the questions of a unit; its id begins with `key`."""
    return _row(key, "", unit, "", ())


# --- rows to learn from


def set_rows(
    granularity: str, mode: str, examples: Sequence[QAExample], *, order: str = "position", seed: int = 0
) -> list[TaskRow]:
    """The rows of a strategy: `one2many` one for each unit that has questions, `one2one` one for each question. Units
    are in the order of their passages, then of their places.

    A question that is asked twice about a unit (case and white space make no difference) counts once. Examples without
    a question give one row with nothing to write for each unit that holds an answer, in both modes; at the level of
    types none, since their type is unknown. Both are counted in the log.

    Args:
        granularity: one of `GRANULARITIES`.
        mode: one of `MODES`.
        examples: questions with their answers, of which the first says where a question belongs.
        order: of the questions of a unit: `position` (of their answers, then that of the examples) or `shuffle` (drawn
            for each passage). For `best`, rows in the order `position` are put into the one of a model by
            `rl_qg.generation.question_order.in_order_of_model`.
        seed: of `shuffle`.

    Raises:
        InputError: an argument has another value.
    """
    _check("ask.granularity", granularity, GRANULARITIES)
    _check("ask.mode", mode, MODES)
    _check("ask.order", order, ORDERS)
    passages: dict[str, list[QAExample]] = {}
    for example in examples:
        passages.setdefault(example.context, []).append(example)
    rows: list[TaskRow] = []
    without_type = repeated = 0
    for context, of_passage in passages.items():
        spans = sentence_spans(context)
        units: dict[Unit, list[QAExample]] = {}
        for example in sorted(of_passage, key=_place):
            if granularity == "type" and not example.question:
                without_type += 1
                continue
            units.setdefault(_unit_of(example, granularity, spans), []).append(example)
        for unit, asked in sorted(units.items(), key=lambda item: _rank(item[0])):
            sources = _distinct(asked)
            repeated += len(asked) - len(sources)
            if order == "shuffle":
                sources.sort(key=lambda source: seeded_rank(seed, f"{passage_hash(source.context)} {source.question}"))
            rows += _rows_of_unit(unit, sources, mode)
    if repeated:
        log.info("sets: %d questions that are asked twice about a unit count once", repeated)
    if without_type:
        log.info("sets: %d examples without a question are left out: the type to ask for is unknown", without_type)
    return rows


def _check(key: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"{key}={value} is not one of {', '.join(known)}")


def _place(example: QAExample) -> int:
    """Where the answer of an example begins; the beginning of the passage if it has none."""
    return example.answers[0].start if example.answers else 0


def _unit_of(example: QAExample, granularity: str, spans: Sequence[tuple[int, int]]) -> Unit:
    """The unit of a question: that of the sentence in which its answer begins."""
    if granularity == "paragraph":
        return Unit(example.context, 0, len(example.context))
    start, end = spans[sentence_at(spans, _place(example))] if spans else (0, len(example.context))
    answer = example.answers[0].text if example.answers else ""
    kind = nine_type(example.question, answer) if granularity == "type" else None
    return Unit(example.context, start, end, kind)


def _rank(unit: Unit) -> tuple[int, int]:
    return unit.start, -1 if unit.type is None else NINE_TYPES.index(unit.type)


def _distinct(examples: Sequence[QAExample]) -> list[QAExample]:
    """The first example of each question; all of those without one."""
    first: dict[str, QAExample] = {}
    for example in examples:
        key = " ".join(example.question.casefold().split()) or example.id
        first.setdefault(key, example)
    return list(first.values())


def _rows_of_unit(unit: Unit, sources: Sequence[QAExample], mode: str) -> list[TaskRow]:
    first = sources[0]
    if mode == "one2one" and all(source.question for source in sources):
        return [
            _row(source.id, first.title, unit, join_questions([source.question]), tuple(sources)) for source in sources
        ]
    text = join_questions(source.question for source in sources) if all(source.question for source in sources) else ""
    return [_row(first.id, first.title, unit, text, tuple(sources))]


def _row(key: str, title: str, unit: Unit, text: str, sources: tuple[QAExample, ...]) -> TaskRow:
    name = f"{key}:sets:{unit.start}" + (f":{unit.type}" if unit.type else "")
    language = sources[0].language if sources else ""
    return TaskRow(name, title, unit.context, text, (), task="sets", sources=sources, unit=unit, language=language)
