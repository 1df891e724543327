"""Why readers gained or lost: what the filters dropped, what the added questions are like, how the rewards moved, and
which evaluation questions gained.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.generation.answers.rules import rule_spans
from rl_qg.reports.run_files import read_metrics
from rl_qg.reports.study_plots import NO_GENERATOR
from rl_qg.runtime.json_files import read_json, read_json_lines
from rl_qg.studies.analysis import CellGroup, StudyResults, gain_over_gold, reward_gains
from rl_qg.studies.grid import Cell, signature_of
from rl_qg.text.question_types import question_type

SYNTHETIC = "synthetic-"
SHOWN_MEASURES = ("reward_greedy", "held_out", "bleu4", "length_words", "kl")  # `eval_*` of the self-critical stage
FEWEST = 20  # questions of a type, below which its gain is not shown
OTHER = "other"


def explain(results: StudyResults) -> dict[str, list[dict[str, Any]]]:
    """One list of rows for each table, about the largest finished amount of each generator and filter."""
    largest = [
        group
        for group in results.groups
        if group.generator != NO_GENERATOR and group.amount == _largest_amount(results, group)
    ]
    return {
        "filters": [_filter_row(group) for group in largest],
        "questions": list(_question_rows(results, largest)),
        "rewards": list(_reward_rows(results)),
        "gain_by_question_type": list(_gain_rows(results, largest, "question type", _question_type)),
        "gain_by_answer_type": list(_gain_rows(results, largest, "answer type", answer_type)),
        "gain_by_answer_length": list(_gain_rows(results, largest, "answer words", _answer_length)),
    }


# --- Types of questions and answers ---


def answer_type(example: QAExample) -> str:
    """The kind of the first answer by the rules that propose answers (date, number, name, …); `other` for a span that
    they would not propose.
    """
    answer = example.answers[0]
    return _kinds(example.context).get((answer.start, answer.start + len(answer.text)), OTHER)


@lru_cache(maxsize=1024)
def _kinds(context: str) -> dict[tuple[int, int], str]:
    return {(span.start, span.end): span.kind for span in rule_spans(context)}


def _question_type(example: QAExample) -> str:
    return question_type(example.question)


def _answer_length(example: QAExample) -> str:
    words = len(example.answers[0].text.split())
    return "1" if words == 1 else "2–3" if words <= 3 else "4 or more"


# --- Filters ---


def _filter_row(group: CellGroup) -> dict[str, Any]:
    """Fractions of the candidates, means over seeds: what was dropped for each reason and what was kept."""
    reports = [_augmentation_report(cell) for cell in group.cells]
    reasons = dict.fromkeys(reason for report in reports for reason in report["dropped"])
    dropped = {
        reason: _mean(report["dropped"].get(reason, 0) / report["candidates"] for report in reports)
        for reason in reasons
    }
    measured = [_measured(report) for report in reports]
    common = [name for name in measured[0] if all(name in means for means in measured)]
    return {
        **group.name,
        "seeds": list(group.seeds),
        "candidates": _mean(report["candidates"] for report in reports),
        "dropped": dropped,
        "kept": _mean(report["kept"] / report["candidates"] for report in reports),
        "sampled": _mean(report["sampled"] for report in reports),
        "measures": {name: _mean(means[name] for means in measured) for name in common},
    }


def _augmentation_report(cell: Cell) -> dict[str, Any]:
    assert cell.augment is not None
    report: dict[str, Any] = read_json(cell.augment.results / "augmented.report.json")
    return report


def _measured(report: dict[str, Any]) -> dict[str, float]:
    """The mean over candidates of what models measured on them (round-trip F1, a reward), from the measures' files."""
    means = {}
    for name, measure in report.get("measures", {}).items():
        path = Path(measure["file"])
        lines = read_json_lines(path) if path.exists() else iter(())
        values = [line["value"] for _, line in lines if line["value"] is not None]
        if values:
            means[name] = _mean(values)
    return means


# --- Questions ---


def _question_rows(results: StudyResults, groups: Sequence[CellGroup]) -> Iterator[dict[str, Any]]:
    """What human questions, evaluation questions and added questions are like."""
    for name, data in results.examples.resources.items():
        yield {"resource": name, "questions": "gold", **_described(data.gold)}
    yield {"resource": "", "questions": "evaluation", **_described(results.examples.validation)}
    for group in groups:
        added = [example for cell in group.cells for example in _synthetic(cell)]
        yield {"resource": group.resource, "questions": f"{group.generator}, {group.filter}", **_described(added)}


def _synthetic(cell: Cell) -> list[QAExample]:
    assert cell.augment is not None
    examples = read_examples(cell.augment.results / "augmented.json", role="train").examples
    return [example for example in examples if example.id.startswith(SYNTHETIC)]


def _described(examples: Sequence[QAExample]) -> dict[str, Any]:
    if not examples:
        return {"count": 0}
    return {
        "count": len(examples),
        "words": _mean(len(example.question.split()) for example in examples),
        "answer_words": _mean(len(example.answers[0].text.split()) for example in examples),
        "distinct": len({example.question for example in examples}) / len(examples),
        "question_types": _fractions(_question_type(example) for example in examples),
        "answer_types": _fractions(answer_type(example) for example in examples),
    }


# --- Rewards ---


def _reward_rows(results: StudyResults) -> Iterator[dict[str, Any]]:
    """How training changed each generator's reward and held-out measures on the development passages; with what its
    questions gained for the reader, against those of the generator it started from.
    """
    for resource, generator in dict.fromkeys((group.resource, group.generator) for group in results.groups):
        groups = [group for group in results.groups if (group.resource, group.generator) == (resource, generator)]
        runs = {cell.seed: cell.run for group in groups for cell in group.cells if signature_of(cell.run)}
        changes = [_changes(run) for run in runs.values() if run is not None]
        if not changes:
            continue
        row: dict[str, Any] = {"resource": resource, "generator": generator, "seeds": len(changes)}
        for measure in SHOWN_MEASURES:
            ends = [change[measure] for change in changes if measure in change]
            if ends:
                row[measure] = {"from": _mean(start for start, _ in ends), "to": _mean(end for _, end in ends)}
        for group, against, gain in reward_gains(results, "f1"):
            if group in groups and group.amount == _largest_amount(results, group):
                name = f"F1 over {against.generator}, {group.filter} {group.amount:g} ×"
                row[name] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
        yield row


def _changes(run: Path) -> dict[str, tuple[float, float]]:
    """Each measure at the start of the self-critical stage, and its last value."""
    metrics = read_metrics(run / "metrics.jsonl")
    series = {measure: metrics.self_critical(f"eval_{measure}") for measure in SHOWN_MEASURES}
    return {measure: (values[0], values[-1]) for measure, values in series.items() if values}


# --- Gains ---


def _gain_rows(
    results: StudyResults, groups: Sequence[CellGroup], label: str, kind: Callable[[QAExample], str]
) -> Iterator[dict[str, Any]]:
    """F1 gained over gold alone on the evaluation questions of each kind; rare kinds are put together."""
    kinds = [kind(example) for example in results.examples.validation]
    counts = Counter(kinds)
    kinds = [name if counts[name] >= FEWEST else f"{OTHER} (rare)" for name in kinds]
    for name, count in Counter(kinds).most_common():
        indices = np.flatnonzero(np.array(kinds) == name)
        for group in groups:
            gain = gain_over_gold(results, indices, f"{label} {name}", group, "f1")
            if gain is not None and count >= FEWEST:
                yield {**group.name, label: name, "count": count, **asdict(gain)}


def _largest_amount(results: StudyResults, group: CellGroup) -> float:
    """The largest finished amount of a group's resource, generator and filter."""
    key = (group.resource, group.generator, group.filter)
    return max(other.amount for other in results.groups if (other.resource, other.generator, other.filter) == key)


def _fractions(names: Iterable[str]) -> dict[str, float]:
    counts = Counter(names)
    return {name: count / counts.total() for name, count in counts.most_common()}


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
