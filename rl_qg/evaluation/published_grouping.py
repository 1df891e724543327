"""The rows that lmqg scores: one question for each distinct sentence, against all human questions about it.

Source: asahi417/lm-question-generation, `automatic_evaluation.py`. The published tables of question generation are of
level `sentence`, with the first question of each sentence; `answer` scores every question against its own reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rewards.base import MetricResult
from rewards.pair_sets import PUBLISHED_OPTIONS
from rl_qg.data.answer_sentence import sentence_of
from rl_qg.evaluation.metric_scores import MetricRow
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError


def grouped_rows(rows: Sequence[MetricRow], level: str, aggregation: str) -> list[MetricRow]:
    """Return one row for each distinct sentence or passage (in lower case), in the order of their first rows.

    Args:
        rows: with their references.
        level: answer (the rows as they are), sentence or paragraph.
        aggregation: which of a group's questions is scored: first, last, long, short or middle (of the questions by
            length in bytes the one after half of them).

    Raises:
        InputError: a row without references, or without what it is grouped by.
    """
    for row in rows:
        if not row.references:
            raise InputError(f"{row.where}: 'references' is missing, and compat=lmqg needs it; add references=FILE")
    if level == "answer":
        return [*rows]
    groups: dict[str, list[MetricRow]] = {}
    for row in rows:
        key = row.sentence if level == "sentence" else row.context
        if key is None:
            column = "sentence" if level == "sentence" else "context"
            raise InputError(
                f"{row.where}: {column!r} is missing or no text, and level={level} needs it; add it "
                f"(columns.{column}=… names another field), or score with level=answer"
            )
        groups.setdefault(key.strip().lower(), []).append(row)
    return [_one_row(group, aggregation) for group in groups.values()]


def stated_sentence(fields: Mapping[str, Any], context: str | None, answer: str | None) -> str | None:
    """Return the sentence of the answer of a row that says where in its passage it is (`answer_start`), else None."""
    start = fields.get("answer_start")
    if type(start) is not int or start < 0 or not context or not answer or not context.startswith(answer, start):
        return None
    first, end = sentence_of(context, start, start + len(answer))
    return context[first:end]


def _one_row(group: Sequence[MetricRow], aggregation: str) -> MetricRow:
    questions = [row.question for row in group]
    by_length = sorted(questions, key=lambda text: len(text.strip().encode()))
    chosen = {
        "first": questions[0],
        "last": questions[-1],
        "long": by_length[-1],
        "short": by_length[0],
        "middle": by_length[len(by_length) // 2],
    }[aggregation]
    references = tuple(text for row in group for text in row.references or ())
    return replace(group[0], question=chosen, references=references)


class FirstReference:
    """A metric that is given the first of several references alone, as lmqg gives its BERTScore and MoverScore."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric
        self.signature = f"{getattr(metric, 'signature', type(metric).__name__)}|references:first"

    def __getattr__(self, name: str) -> Any:
        if name == "metric":
            raise AttributeError(name)  # of a copy that is being made
        return getattr(self.metric, name)  # what it needs, which side is better, whether it scores all rows at once

    def score(self, *columns: Any, references: Sequence[Sequence[str]] | None = None, **named: Any) -> MetricResult:
        """The scores against the first reference of each row."""
        first = None if references is None else [group[:1] for group in references]
        result: MetricResult = self.metric.score(*columns, references=first, **named)
        return result


def as_published(metrics: Mapping[str, Reward]) -> dict[str, Reward]:
    """Return the metrics by label; those that lmqg gives one reference alone get the first, others are as they are."""
    return {
        label: FirstReference(metric) if getattr(metric, "name", "") in PUBLISHED_OPTIONS else metric
        for label, metric in metrics.items()
    }
