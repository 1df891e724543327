"""Sets of questions: what they are asked about, the rows that teach them, pools to choose from, and their order.

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
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from rewards.words import answer_f1
from rl_qg.data.examples import QAExample, by_key, passage_hash, seeded_rank
from rl_qg.generation.decoding import DecodingRules, uniform_draws
from rl_qg.generation.generator import CandidateGenerator, Kept, text_parts
from rl_qg.generation.tasks import QUESTION, TaskRow, Unit, escape, taught, tokens_of, unescape
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.text.question_types import NINE_TYPES, nine_type
from rl_qg.text.spans import sentence_at, sentence_spans
from rl_qg.text.words import normalised_words

GRANULARITIES = ("paragraph", "sentence", "type")
MODES = ("one2one", "one2many")
ORDERS = ("position", "shuffle", "best")
CANDIDATES = {"paragraph": 20, "sentence": 10, "type": 5}  # of the paper, for one2one
TEXTS, TOP_P = 64, 0.9  # that are decoded together; the nucleus of samples
ORDERED_TOGETHER = 16  # rows
log = logging.getLogger(__name__)


def join_questions(questions: Iterable[str]) -> str:
    return f" {QUESTION} ".join(escape(question, tokens_of("sets")) for question in questions)


def question_parts(text: str) -> list[str]:
    """What a text has between `<question>`s, without outer white space; "" for no question; none if blank."""
    return [unescape(part, tokens_of("sets")).strip() for part in text.split(QUESTION)] if text.strip() else []


def units_of(
    context: str, granularity: str, worthy: Sequence[bool] | None = None, types: Sequence[Sequence[str]] | None = None
) -> list[Unit]:
    """The units of a passage, by their places; those of one sentence in the order of `NINE_TYPES`. A sentence without
    a letter or digit, such as `* * *`, is none; a paragraph is one unit in any case.

    `worthy` says which of the sentences (`sentence_spans`) are asked about (None: all), `types` the types of each
    (None: all nine), for the granularity `type` alone.
    """
    _check_choice("ask.granularity", granularity, GRANULARITIES)
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
    name = f"{key}:sets:{unit.start}" + (f":{unit.type}" if unit.type else "")
    return TaskRow(name, "", unit.context, "", (), task="sets", unit=unit)


def set_rows(
    granularity: str, mode: str, examples: Sequence[QAExample], *, order: str = "position", seed: int = 0
) -> list[TaskRow]:
    """The rows of a strategy (`GRANULARITIES`, `MODES`): `one2many` one for each unit that has questions, `one2one`
    one for each question. Units are in the order of their passages, then of their places. The first answer of an
    example says where its question belongs.

    A question that is asked twice about a unit (case and white space make no difference) counts once. Examples without
    a question give one row with nothing to write for each unit that holds an answer, in both modes; at the level of
    types none, since their type is unknown. Both are counted in the log.

    The `order` of the questions of a unit is `position` (of their answers, then that of the examples) or `shuffle`
    (drawn by the `seed` for each passage). For `best`, `in_order_of_model` orders the rows of `position` anew.
    """
    _check_choice("ask.granularity", granularity, GRANULARITIES)
    _check_choice("ask.mode", mode, MODES)
    _check_choice("ask.order", order, ORDERS)
    passages = by_key((example.context, example) for example in examples)
    rows: list[TaskRow] = []
    without_type = repeated = 0
    for context, of_passage in passages.items():
        spans = sentence_spans(context)
        known = [one for one in sorted(of_passage, key=_place) if one.question or granularity != "type"]
        without_type += len(of_passage) - len(known)
        units = by_key((_unit_of(one, granularity, spans), one) for one in known)
        types = (None, *NINE_TYPES)
        for unit, asked in sorted(units.items(), key=lambda item: (item[0].start, types.index(item[0].type))):
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


def _check_choice(key: str, value: str, known: Sequence[str]) -> None:
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


def _distinct(examples: Sequence[QAExample]) -> list[QAExample]:
    """The first example of each question; all of those without one."""
    first: dict[str, QAExample] = {}
    for example in examples:
        key = " ".join(example.question.casefold().split()) or example.id
        first.setdefault(key, example)
    return list(first.values())


def _rows_of_unit(unit: Unit, sources: Sequence[QAExample], mode: str) -> list[TaskRow]:
    asked = all(source.question for source in sources)
    texts = [[source] for source in sources] if mode == "one2one" and asked else [sources]
    return [
        taught(
            unit_row(of_text[0].id, unit), join_questions(one.question for one in of_text) if asked else "", sources
        )
        for of_text in texts
    ]


# --- pools: more questions than are wanted, one decoded greedily, the others by nucleus sampling (section 5.1)


@dataclass(frozen=True)
class PooledQuestion:
    """A question about the characters `start` to `end` of its passage, the span of its unit, and of the `type` that
    was asked for; `logprob` and `tokens` are as in `WrittenPart`. `rank` is 0 for the greedy text, 1, 2, … for the
    samples; the questions of one text of `one2many` share it.
    """

    question: str
    start: int
    end: int
    type: str | None
    logprob: float
    tokens: int
    rank: int


UnitPool = Kept[PooledQuestion]


@torch.inference_mode()
def question_pool(
    generator: CandidateGenerator, units: Sequence[Unit], *, candidates: int | None = None, seed: int = 0
) -> list[UnitPool]:
    """The questions about each unit, by rank, then by their places in the text; of `one2many` the texts are split at
    `<question>`. Left out, and counted, is what is `incomplete` (no word, or cut at the longest text that the model
    has learned) or `repeated` (the same normalised words as an earlier one).

    Random numbers depend on `seed` and the unit alone, so the other units change a pool at most where the rounding of
    padded batches does; the texts of fewer candidates are the first of those of more.

    The generator is of `model.task=sets`, the units of its granularity. Of the `candidates` of a unit one is greedy,
    the others are samples from the nucleus of `TOP_P`; None: for `one2one` as many as in the paper
    (`CANDIDATES`), for `one2many` the greedy one.
    """
    _check_generator(generator, units)
    prompt = generator.encoder.prompt
    if candidates is None:
        candidates = CANDIDATES[prompt.granularity] if prompt.mode == "one2one" else 1
    if candidates < 1:
        raise InputError(f"candidates={candidates} must be at least 1")
    pools = [UnitPool() for _ in units]
    by_length = iter(sorted(range(len(units)), key=lambda number: len(units[number].context)))
    rules = DecodingRules(prompt.max_target_length, top_p=TOP_P)
    while numbers := list(islice(by_length, max(1, TEXTS // candidates))):
        chosen = [units[number] for number in numbers]
        # `unit_row` adds the start and the type
        rows = [unit_row(f"{passage_hash(unit.context)}:{unit.end}", unit) for unit in chosen]
        for number, row, texts in zip(numbers, rows, _texts(generator, rows, candidates, rules, seed), strict=True):
            pools[number] = _pool(generator, row, texts)
    return pools


def _check_generator(generator: CandidateGenerator, units: Sequence[Unit]) -> None:
    granularity = generator.encoder.prompt.granularity
    if generator.task != "sets":
        raise InputError(
            f"the generator was trained with model.task={generator.task}, and asks nothing without an answer; train "
            "one with ask.granularity=sentence, or paragraph, or type"
        )
    if wrong := next((unit for unit in units if (unit.type is not None) != (granularity == "type")), None):
        raise InputError(
            f"the generator was trained with ask.granularity={granularity}, and a unit has the type {wrong.type}; "
            f"make units with units_of(context, {granularity!r})"
        )


def _texts(
    generator: CandidateGenerator, rows: Sequence[TaskRow], count: int, rules: DecodingRules, seed: int
) -> list[list[tuple[Tensor, Tensor]]]:
    """For each row its `count` texts, the greedy one first: token ids (t,) and their log-probabilities (t,)."""
    batch, decoder = generator.batch(rows), generator.decoder
    greedy = decoder.greedy(batch, rules.max_new_tokens)
    texts = [[text] for text in zip(greedy, decoder.token_logprobs(batch, greedy), strict=True)]
    if count > 1:
        draws = uniform_draws([row.id for row in rows], count - 1, rules.max_new_tokens, seed=seed, step=0)
        sampled, _ = decoder.sample(batch, draws.to(generator.device), rules)
        samples = zip(sampled, decoder.token_logprobs(batch, sampled), strict=True)
        for of_row in texts:
            of_row += islice(samples, count - 1)
    return texts


def _pool(generator: CandidateGenerator, row: TaskRow, texts: Sequence[tuple[Tensor, Tensor]]) -> UnitPool:
    unit, seen, pool = row.unit, set[tuple[str, ...]](), UnitPool()
    assert unit is not None
    for rank, (ids, logprobs) in enumerate(texts):
        for part in text_parts(generator, row, ids, logprobs, QUESTION):
            question = "".join(question_parts(part.text))
            words = tuple(normalised_words(question))
            if part.is_cut or not words:
                pool.dropped["incomplete"] += 1
            elif words in seen:
                pool.dropped["repeated"] += 1
            else:
                seen.add(words)
                place = (unit.start, unit.end, unit.type)
                pool.append(PooledQuestion(question, *place, part.logprob, part.tokens, rank))
    return pool


def in_order_of_model(rows: Sequence[TaskRow], generator: CandidateGenerator, granularity: str) -> list[TaskRow]:
    """Rows of `one2many` with their questions in the order of the model (`ask.order=best`).

    A set has no order, but cross-entropy needs one, and punishes a model that writes the right questions in another.
    Human questions are assigned, one to one and with the highest sum of word F1, to those that the model writes
    greedily, and take their order; those that are assigned to none follow in their own. This is the matching of set
    prediction (Carion et al. 2020, DETR, section 3.1). The permutation with the lowest loss would need n! passes.
    """
    prompt = generator.encoder.prompt
    if (prompt.task, prompt.granularity, prompt.mode) != ("sets", granularity, "one2many"):
        raise InputError(
            "ask.order=best: model.path has not learned to write such sets; train with ask.order=position first, and "
            f"give its RUN/ce (ask.granularity={granularity} ask.mode=one2many)"
        )
    several = [number for number, row in enumerate(rows) if len(row.sources) > 1 and row.question]
    several.sort(key=lambda number: len(rows[number].context))
    ordered = list(rows)
    for start in ProgressBar(range(0, len(several), ORDERED_TOGETHER), desc="order of questions", unit="batches"):
        numbers = several[start : start + ORDERED_TOGETHER]
        texts = generator.greedy([rows[number] for number in numbers], max_new_tokens=prompt.max_target_length)
        for number, text in zip(numbers, texts, strict=True):
            row = rows[number]
            order = assigned_order([source.question for source in row.sources], question_parts(text))
            sources = tuple(row.sources[place] for place in order)
            ordered[number] = replace(row, sources=sources, question=join_questions(one.question for one in sources))
    return ordered


def assigned_order(questions: Sequence[str], written: Sequence[str]) -> list[int]:
    """The numbers of `questions` in the order of the `written` ones that they are assigned to; those without one, or
    with one that shares no word with them, follow in their own order.
    """
    overlap = np.array([[answer_f1(text, question) for text in written] for question in questions])
    pairs = zip(*linear_sum_assignment(overlap.reshape(len(questions), -1), maximize=True), strict=True)
    place = {question: text for question, text in pairs if overlap[question, text] > 0}
    return sorted(range(len(questions)), key=lambda number: (place.get(number, len(written)), number))
