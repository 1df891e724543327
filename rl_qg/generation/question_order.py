"""The order in which a model itself would write the questions of a set (`ask.order=best`).

A set has no order, but cross-entropy needs one, and punishes a model that writes the right questions in another. Here
human questions are assigned, one to one and with the highest sum of word F1, to those that the model writes greedily,
and take their order; those that are assigned to none follow in their own. This is the matching of set prediction
(Carion et al. 2020, DETR, section 3.1). The permutation with the lowest loss would need n! passes for n questions.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from rewards.words import answer_f1
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.question_units import join_questions, question_parts
from rl_qg.generation.tasks import TaskRow
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError


def in_order_of_model(
    rows: Sequence[TaskRow], generator: CandidateGenerator, granularity: str, *, batch_size: int = 16
) -> list[TaskRow]:
    """Rows of `one2many` with their questions in the order of the model; those of one question as they are.

    Raises:
        InputError: the generator has not learned to write the sets of these rows.
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
    for start in ProgressBar(range(0, len(several), batch_size), desc="order of questions", unit="batches"):
        numbers = several[start : start + batch_size]
        texts = generator.greedy([rows[number] for number in numbers], max_new_tokens=prompt.max_target_length)
        for number, text in zip(numbers, texts, strict=True):
            ordered[number] = _in_order(rows[number], question_parts(text))
    return ordered


def _in_order(row: TaskRow, written: Sequence[str]) -> TaskRow:
    sources = [row.sources[number] for number in assigned_order([s.question for s in row.sources], written)]
    return replace(row, sources=tuple(sources), question=join_questions(source.question for source in sources))


def assigned_order(questions: Sequence[str], written: Sequence[str]) -> list[int]:
    """The numbers of `questions` in the order of the `written` ones that they are assigned to; those without one, or
    with one that shares no word with them, follow in their own order.
    """
    overlap = np.array([[answer_f1(text, question) for text in written] for question in questions])
    pairs = zip(*linear_sum_assignment(overlap.reshape(len(questions), -1), maximize=True), strict=True)
    place = {question: text for question, text in pairs if overlap[question, text] > 0}
    return sorted(range(len(questions)), key=lambda number: (place.get(number, len(written)), number))
