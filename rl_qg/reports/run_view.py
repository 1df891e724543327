"""One run for the report's page: numbers as text with intervals; a part is empty when its file is missing."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl_qg.reports.measures import diverging
from rl_qg.reports.plots import interval_plot
from rl_qg.reports.reward_hacking_view import flag, held_out_view
from rl_qg.reports.run_files import MODELS, SCORES, JsonObject, ReportedMean, ReportedRun, is_number
from rl_qg.reports.training_plots import training_plots

READERS = {"gold": ("gold only", "gold"), "augmented": ("gold + generated", "scst")}
SAMPLES_SHOWN = 24
EXCERPT = 150
LISTED = 20
DATA_KEYS = ("data", "data_report", "examples", "leakage")  # shown in a section of their own
MINUS = "\N{MINUS SIGN}"


def run_view(run: ReportedRun, summary: Mapping[str, Any], *, name: str, anchor: str) -> dict[str, Any]:
    """Everything the template shows of one run; `anchor` is its id on the page."""
    return {
        "name": name,
        "anchor": anchor,
        "summary": summary,
        "headline": headline(run, summary),
        "facts": _facts(run, summary),
        "held_out": _held_out(summary),
        "hacking": held_out_view(run, anchor),
        "plots": training_plots(run.metrics, anchor),
        **_samples(run),
        "funnel": _funnel(run),
        "qa": _qa(run, anchor),
        "evaluation": _evaluation(run),
        "leakage": _leakage(run.record.part("leakage")),
        "data": list(run.record.part("data").value.items()),
        "reading": _reading(run.record.part("data_report")),
        "examples": run.record.part("examples").value,
        "record": list(_record_rows({key: run.record.value[key] for key in run.record.value if key not in DATA_KEYS})),
        "config": run.config,
    }


def headline(run: ReportedRun, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the cards and of the comparison table, as text."""
    estimate = run.evaluation.estimate
    reward = {model: estimate("models", model, "reward") for model in MODELS}
    difference, held_out = estimate("difference", "reward"), estimate("difference", "held_out")
    digits = _digits([*reward.values(), difference])
    return {
        "reward": {model: _text(value, digits) for model, value in reward.items()},
        "reward_difference": _text(difference, digits, signed=True),
        "held_out_difference": _text(held_out, _digits([held_out]), signed=True),
        "flag": flag(diverging(run), 1),
        "bleu4": {model: _text(estimate("models", model, "bleu4"), 3) for model in MODELS[1:]},
        "qa_f1": {name: _text(run.reader_score(name, "f1"), 1) for name in run.qa},
        "qa_difference": _text(run.difference.estimate("f1"), 1, signed=True),
        "qa_seeds": max(len(record.list("seeds")) for record in run.qa.values()),
        "questions": summary["questions"],
        "seed": summary["seed"],
        "commit": (summary["commit"] or "")[:10],
    }


def _facts(run: ReportedRun, summary: Mapping[str, Any]) -> list[str]:
    """Stages, steps, seed, commit and time, for the line below the run's name."""
    stages = " → ".join(dict.fromkeys(str(line.get("stage")).upper() for line in run.metrics.lines))
    steps, seed, commit = summary["training"]["steps"], summary["seed"], summary["commit"]
    changed = " with uncommitted changes" if run.record.get("code", "dirty") else ""
    facts = {
        stages: stages,
        f"{steps or 0:,.0f} steps": steps,
        f"seed {seed}": seed is not None,
        f"commit {str(commit)[:10]}{changed}": commit,
        f"started {str(run.record.get('started')).replace('T', ' ')}": run.record.get("started"),
    }
    return [text for text, known in facts.items() if known]


def _held_out(summary: Mapping[str, Any]) -> str:
    if summary["examples"] is None:
        return ""
    passages = f", {summary['passages']:,} passages" if summary["passages"] else ""
    return f"{summary['examples']:,} held-out questions{passages}"


def _text(estimate: ReportedMean | None, digits: int, *, signed: bool = False) -> dict[str, Any] | None:
    """A mean as text: value, interval, n, and for a difference on which side of 0 the interval is."""
    if estimate is None:
        return None
    value, low, high = (
        None if number is None else _number(number, digits, signed=signed)
        for number in (estimate.mean, estimate.low, estimate.high)
    )
    verdict = ""
    if signed and estimate.excludes_zero is not None:
        direction = "up" if estimate.mean > 0 else "down"
        verdict = direction if estimate.excludes_zero else "unclear"
    interval = f"[{low}, {high}]" if low is not None and high is not None else ""
    return {"value": value, "interval": interval, "n": estimate.n, "verdict": verdict}


def _number(value: float, digits: int, *, signed: bool = False) -> str:
    return format(value, f"{'+' if signed else ''},.{digits}f").replace("-", MINUS)


def _digits(estimates: Sequence[ReportedMean | None]) -> int:
    """How many decimals show one digit of the narrowest interval's half-width, from 2 to 5; 3 without intervals."""
    widths = [(e.high - e.low) / 2 for e in estimates if e and e.low is not None and e.high is not None]
    widths = [width for width in widths if 0 < width < math.inf]
    return min(5, max(2, -math.floor(math.log10(min(widths))))) if widths else 3


# Columns of the table of generators, those that were measured: field, heading, format (None: with an interval).
COLUMNS = (
    ("reward", "reward", None),
    ("held_out", "held-out reward", None),
    ("bleu4", "BLEU-4", None),
    ("rouge_l", "ROUGE-L", "{:.3f}"),
    ("length_words", "words per question", "{:.1f}"),
    ("distinct_questions", "distinct questions", "{:.1%}"),
    ("distinct_2", "distinct 2-grams", "{:.1%}"),
    ("copy_rate", "copied 2-grams", "{:.1%}"),
    ("no_question_mark", "no question mark", "{:.1%}"),
    ("repeated_3grams", "repeated 3-grams", "{:.1%}"),
)


def _evaluation(run: ReportedRun) -> dict[str, Any] | None:
    """The table of human, CE and SCST questions, with the columns that any of them has."""
    parts = {model: part for model in MODELS if (part := run.evaluation.part("models", model)).value}
    if not parts:
        return None
    columns = [column for column in COLUMNS if any(part.get(column[0]) is not None for part in parts.values())]
    cells: dict[str, list[Any]] = {model: [] for model in parts}
    for field, _, form in columns:
        estimates = {model: part.estimate(field) for model, part in parts.items()}
        digits = 3 if field == "bleu4" else _digits(list(estimates.values()))
        for model, estimate in estimates.items():
            cells[model].append(_text(estimate, digits) if form is None else _without_interval(estimate, form))
    return {
        "headings": [heading for _, heading, _ in columns],
        "rows": [{"model": model, "cells": cells[model]} for model in parts],
        "held_out_signature": run.evaluation.get("held_out_signature"),
        "resampled": run.evaluation.resampled,
    }


def _without_interval(estimate: ReportedMean | None, form: str) -> dict[str, Any] | None:
    """A number without an interval, for a cell of the table."""
    return None if estimate is None else {"value": form.format(estimate.mean).replace("%", " %"), "interval": ""}


def _samples(run: ReportedRun) -> dict[str, Any]:
    """The samples to show, and in how many of all samples each generator has the higher reward."""
    samples = [JsonObject(run.evaluation.path, sample) for sample in run.evaluation.list("samples")]
    rewards = [_rewards(sample) for sample in samples]
    known = [reward for row in rewards for reward in row.values() if reward is not None]
    span = (min(known), max(known)) if known else (0.0, 1.0)
    pairs = [(row["ce"], row["scst"]) for row in rewards if row["ce"] is not None and row["scst"] is not None]
    wins = {
        "scst": sum(scst > ce for ce, scst in pairs),
        "ce": sum(ce > scst for ce, scst in pairs),
        "equal": sum(ce == scst for ce, scst in pairs),
    }
    return {
        "samples": [_sample(sample, span) for sample in samples[:SAMPLES_SHOWN]],
        "samples_total": len(samples),
        "wins": wins if pairs else None,
    }


def _rewards(sample: JsonObject) -> dict[str, float | None]:
    rewards = {model: sample.number(f"reward_{model}") for model in MODELS}
    return {
        model: reward if reward is not None and math.isfinite(reward) else None for model, reward in rewards.items()
    }


def _sample(sample: JsonObject, span: tuple[float, float]) -> dict[str, Any]:
    """One row: the passage and three questions; `bar` is the reward's position within `span`, in percent."""
    low, high = span
    rewards = _rewards(sample)
    known = {model: reward for model, reward in rewards.items() if reward is not None}
    winners = [model for model, reward in known.items() if reward == max(known.values())]
    texts = {model: sample.get(model) for model in MODELS}
    return {
        "context": _context(sample),
        "questions": [
            {
                "model": model,
                "text": texts[model],
                "same": model == "scst" and texts["scst"] is not None and texts["scst"] == texts["ce"],
                "reward": None if reward is None else _number(reward, 3),
                "bar": 0 if reward is None or low == high else 100 * (reward - low) / (high - low),
                "winner": len(winners) < len(known) and model in winners,
            }
            for model, reward in rewards.items()
        ],
    }


def _context(sample: JsonObject) -> dict[str, str]:
    """The passage split at the answer: whole (before, answer, after), and an excerpt around the answer."""
    context, answer = str(sample.get("context") or ""), str(sample.get("answer") or "")
    start = sample.count("answer_start")
    if start is None or start < 0 or not context.startswith(answer, start):
        start = context.find(answer)
    if start < 0 or not answer:
        return {"before": context, "answer": "", "after": "", "near_before": context[: 2 * EXCERPT], "near_after": ""}
    before, after = context[:start], context[start + len(answer) :]
    near_before, near_after = before, after
    if len(before) > EXCERPT:
        near_before = "… " + re.sub(r"^\S*\s+", "", before[-EXCERPT:])
    if len(after) > EXCERPT:
        near_after = re.sub(r"\s+\S*$", "", after[:EXCERPT]) + " …"
    return {"before": before, "answer": answer, "after": after, "near_before": near_before, "near_after": near_after}


def _funnel(run: ReportedRun) -> list[dict[str, Any]]:
    """Bars from all candidates to the sampled ones; `left` and `width` are percent of all candidates."""
    total = run.augmentation.count("candidates")
    if not total:
        return []
    bars = [{"label": "candidates", "count": total, "kind": "all", "left": 0.0, "width": 100.0}]
    remaining = total
    for reason, count in run.augmentation.part("dropped").value.items():
        if not is_number(count):
            raise run.augmentation.error(("dropped", reason), "a number", count)
        remaining -= count
        position = {"left": 100 * max(remaining, 0) / total, "width": 100 * count / total}
        bars.append({"label": reason, "count": count, "kind": "dropped", **position})
    for kind in ("kept", "sampled"):
        count = run.augmentation.count(kind)
        if count is not None:
            bars.append({"label": kind, "count": count, "kind": kind, "left": 0.0, "width": 100 * count / total})
    return bars


def _qa(run: ReportedRun, anchor: str) -> dict[str, Any] | None:
    """Rows of the readers' table, their differences, and the plot of each."""
    readers = [name for name, record in run.qa.items() if record.value]
    if not readers:
        return None
    differences = {score: run.difference.estimate(score) for score in SCORES}
    levels = [
        (f"{SCORES[score]}, {READERS[name][0]}", READERS[name][1], estimate, _seed_scores(run.qa[name], score))
        for score in SCORES
        for name in readers
        if (estimate := run.reader_score(name, score))
    ]
    gains = [
        (SCORES[score], "greedy" if estimate.excludes_zero else "muted", estimate, ())
        for score, estimate in differences.items()
        if estimate
    ]
    return {
        "rows": [_reader_row(run, name) for name in readers],
        "difference": [_text(estimate, 1, signed=True) for estimate in differences.values()],
        "resampled": run.qa[readers[0]].resampled,
        "levels": interval_plot(levels, anchor) if levels else None,
        "gains": interval_plot(gains, anchor, zero=True) if gains else None,
    }


def _reader_row(run: ReportedRun, name: str) -> dict[str, Any]:
    record = run.qa[name]
    seeds = [row.get("seed") for row in record.list("seeds")]
    columns = [[_number(value, 1) for value in _seed_scores(record, score)] for score in SCORES]
    return {
        "label": READERS[name][0],
        "scores": [_text(run.reader_score(name, score), 1) for score in SCORES],
        "seeds": [(seed, scores) for seed, *scores in zip(seeds, *columns, strict=True)],
        "total": record.count("total"),
    }


def _seed_scores(record: JsonObject, score: str) -> list[float]:
    rows = record.list("seeds")
    values = [JsonObject(record.path, row).number(score) for row in rows]
    if None in values:
        raise record.error(("seeds", score), "a number for each seed", None)
    return [value for value in values if value is not None]


def _leakage(leakage: JsonObject) -> dict[str, Any] | None:
    """The counts of the leakage check and what follows; shared passages are harmless when training leaves them out."""
    if not leakage.value:
        return None
    shared = leakage.count("shared_passages")
    verdict = "unknown" if shared is None else "clean"
    if shared:
        verdict = "cleaned" if leakage.count("train_examples_dropped") else "leaking"
    counts = [(key.replace("_", " "), value) for key, value in leakage.value.items() if is_number(value)]
    return {"verdict": verdict, "counts": counts}


def _reading(report: JsonObject) -> list[dict[str, Any]]:
    """For each role's data: records read and kept, and the count of each kind of change and drop."""
    rows = []
    for role in report.value:
        part = report.part(role)
        changes = {key: part.count(key, "count") for key in part.value if isinstance(part.value[key], Mapping)}
        drops = {reason: part.count("dropped", reason, "count") for reason in part.part("dropped").value}
        notes = [f"{count:,} {key.replace('_', ' ')}" for key, count in changes.items() if count]
        notes += [f"{count:,} dropped ({reason})" for reason, count in drops.items() if count]
        rows.append({"role": role, "read": part.count("read"), "kept": part.count("kept"), "notes": ", ".join(notes)})
    return rows


def _record_rows(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The run record as (dotted key, text) rows."""
    for key, part in value.items():
        name = f"{prefix}{key}"
        if isinstance(part, Mapping):
            yield from _record_rows(part, f"{name}.")
        elif key == "command" and isinstance(part, list):
            yield name, shlex.join(map(str, part))
        elif isinstance(part, list):
            more = f" … ({len(part):,} in all)" if len(part) > LISTED else ""
            yield name, ", ".join(map(str, part[:LISTED])) + more or "none"
        else:
            yield name, "unknown" if part is None else str(part)
