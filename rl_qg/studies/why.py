"""Why a study came out as it did: what the filters dropped, what the added questions are like, how the rewards moved,
and which questions of the evaluation gained.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.data.examples import QAExample, read_examples
from rl_qg.generation.answers.rules import rule_spans
from rl_qg.reports.run_files import read_metrics
from rl_qg.reports.study_plots import NONE
from rl_qg.runtime.json_files import read_json, read_json_lines
from rl_qg.studies.analysis import Group, Results, differences, reward_gains
from rl_qg.studies.grid import Cell, signature_of
from rl_qg.text.question_types import question_type

SYNTHETIC = "synthetic-"
MOVED = ("reward_greedy", "held_out", "bleu4", "length_words", "kl")  # of the evaluations while a reward was learned
FEWEST = 20  # questions of a type, below which its gain is not shown
OTHER = "other"


def explain(results: Results) -> dict[str, list[dict[str, Any]]]:
    """One list of rows for each table."""
    largest = [group for group in results.groups if group.generator != NONE and group.amount == _most(results, group)]
    return {
        "filters": [_funnel(group) for group in largest],
        "questions": list(_questions(results, largest)),
        "rewards": list(_rewards(results)),
        "gain_by_question_type": list(_gains(results, largest, "question type", _asked)),
        "gain_by_answer_type": list(_gains(results, largest, "answer type", answer_type)),
        "gain_by_answer_length": list(_gains(results, largest, "answer words", _length)),
    }


def answer_type(example: QAExample) -> str:
    """What the first answer is by the rules that propose answers (date, number, name, …); `other` for a span that they
    would not propose.
    """
    answer = example.answers[0]
    return _kinds(example.context).get((answer.start, answer.start + len(answer.text)), OTHER)


@lru_cache(maxsize=1024)
def _kinds(context: str) -> dict[tuple[int, int], str]:
    return {(span.start, span.end): span.kind for span in rule_spans(context)}


def _asked(example: QAExample) -> str:
    return question_type(example.question)


def _length(example: QAExample) -> str:
    words = len(example.answers[0].text.split())
    return "1" if words == 1 else "2–3" if words <= 3 else "4 or more"


def _most(results: Results, group: Group) -> float:
    """The largest amount that is done for a generator and filter."""
    key = (group.resource, group.generator, group.filter)
    return max(other.amount for other in results.groups if (other.resource, other.generator, other.filter) == key)


def _report(cell: Cell) -> dict[str, Any]:
    assert cell.augment is not None
    found: dict[str, Any] = read_json(cell.augment.out / "augmented.report.json")
    return found


def _funnel(group: Group) -> dict[str, Any]:
    """Shares of the candidates, means over seeds: what each reason dropped and what was kept."""
    reports = [_report(cell) for cell in group.cells]
    reasons = dict.fromkeys(reason for report in reports for reason in report["dropped"])
    shares = {
        reason: _mean(report["dropped"].get(reason, 0) / report["candidates"] for report in reports)
        for reason in reasons
    }
    row: dict[str, Any] = {**group.name, "seeds": list(group.seeds)}
    row |= {"candidates": _mean(report["candidates"] for report in reports), "dropped": shares}
    row |= {"kept": _mean(report["kept"] / report["candidates"] for report in reports)}
    return row | {"sampled": _mean(report["sampled"] for report in reports), "measures": _measures(reports)}


def _measures(reports: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means over the candidates of what models measured on them (round-trip F1, a reward), where every seed has it."""
    found = [_measured(report) for report in reports]
    common = [name for name in found[0] if all(name in means for means in found)]
    return {name: _mean(means[name] for means in found) for name in common}


def _measured(report: dict[str, Any]) -> dict[str, float]:
    """The mean of each measure that a report names, from the measure's file beside the questions."""
    means = {}
    for name, measure in report.get("measures", {}).items():
        path = Path(measure["file"])
        lines = read_json_lines(path) if path.exists() else iter(())
        values = [line["value"] for _, line in lines if line["value"] is not None]
        if values:
            means[name] = _mean(values)
    return means


def _questions(results: Results, groups: Sequence[Group]) -> Iterable[dict[str, Any]]:
    """What the questions are like that readers learned from, those that are judged, and the human ones."""
    for name, data in results.examples.resources.items():
        yield {"resource": name, "questions": "gold", **_described(data.gold)}
    yield {"resource": "", "questions": "evaluation", **_described(results.examples.validation)}
    for group in groups:
        made = [example for cell in group.cells for example in _synthetic(cell)]
        yield {"resource": group.resource, "questions": f"{group.generator}, {group.filter}", **_described(made)}


def _synthetic(cell: Cell) -> list[QAExample]:
    assert cell.augment is not None
    found = read_examples(cell.augment.out / "augmented.json", role="train").examples
    return [example for example in found if example.id.startswith(SYNTHETIC)]


def _described(examples: Sequence[QAExample]) -> dict[str, Any]:
    if not examples:
        return {"count": 0}
    lengths = [len(example.question.split()) for example in examples]
    return {
        "count": len(examples),
        "words": _mean(lengths),
        "answer_words": _mean(len(example.answers[0].text.split()) for example in examples),
        "distinct": len({example.question for example in examples}) / len(examples),
        "question_types": _shares(_asked(example) for example in examples),
        "answer_types": _shares(answer_type(example) for example in examples),
    }


def _rewards(results: Results) -> Iterable[dict[str, Any]]:
    """What each generator's training did to its reward and to what it does not see, on the development passages; and
    beside it what its questions did for the reader, against those of the generator it started from.
    """
    for resource, generator in dict.fromkeys((group.resource, group.generator) for group in results.groups):
        cells = [
            cell
            for group in results.groups
            if (group.resource, group.generator) == (resource, generator)
            for cell in group.cells
            if signature_of(cell.run)
        ]
        courses = [_course(cell) for cell in {cell.seed: cell for cell in cells}.values()]
        if not courses:
            continue
        row: dict[str, Any] = {"resource": resource, "generator": generator, "seeds": len(courses)}
        for measure in MOVED:
            pairs = [course[measure] for course in courses if measure in course]
            if pairs:
                row[measure] = {"from": _mean(pair[0] for pair in pairs), "to": _mean(pair[1] for pair in pairs)}
        for group, against, found in reward_gains(results, "f1"):
            if (group.resource, group.generator, group.amount) == (resource, generator, _most(results, group)):
                gain = {"mean": found.mean, "low": found.low, "high": found.high}
                row[f"F1 over {against.generator}, {group.filter} {group.amount:g} ×"] = gain
        yield row


def _course(cell: Cell) -> dict[str, tuple[float, float]]:
    """Each measure when the stage began, and its last value."""
    assert cell.run is not None
    metrics = read_metrics(cell.run / "metrics.jsonl")
    courses = {measure: metrics.self_critical(f"eval_{measure}") for measure in MOVED}
    return {measure: (values[0], values[-1]) for measure, values in courses.items() if values}


def _gains(
    results: Results, groups: Sequence[Group], label: str, kind: Callable[[QAExample], str]
) -> Iterable[dict[str, Any]]:
    """F1 over gold alone on the evaluation questions of each kind; rare kinds are put together."""
    kinds = [kind(example) for example in results.examples.validation]
    counts = Counter(kinds)
    kinds = [name if counts[name] >= FEWEST else f"{OTHER} (rare)" for name in kinds]
    for name, count in Counter(kinds).most_common():
        places = np.array([place for place, one in enumerate(kinds) if one == name])
        for group in groups:
            found = differences(results, places, f"{label} {name}", group, "f1")
            if found is not None and count >= FEWEST:
                yield {**group.name, label: name, "count": count, **asdict(found)}


def _shares(names: Iterable[str]) -> dict[str, float]:
    counts = Counter(names)
    return {name: count / counts.total() for name, count in counts.most_common()}


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
