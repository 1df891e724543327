"""One run for the report's page: numbers as text with intervals; a part is empty when its file is missing."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rl_qg.evaluation.separation import ABOVE, told
from rl_qg.reports.estimates import digits_of, estimate_cell
from rl_qg.reports.measures import diverging
from rl_qg.reports.outcome_view import outcome_view
from rl_qg.reports.reader_view import equal_conditions, readers_view, training_sizes
from rl_qg.reports.reward_hacking_view import flag, held_out_view
from rl_qg.reports.run_files import MODELS, JsonObject, ReportedMean, ReportedRun, is_number
from rl_qg.reports.sample_view import samples_view
from rl_qg.reports.training_plots import training_plots

LISTED = 20
DATA_KEYS = ("data", "data_report", "examples", "leakage")  # shown in a section of their own


def run_view(run: ReportedRun, summary: Mapping[str, Any], *, name: str, anchor: str) -> dict[str, Any]:
    """Everything the template shows of one run; `anchor` is its id on the page."""
    return {
        "name": name,
        "anchor": anchor,
        "words": run.words,
        "outcome": outcome_view(run, anchor),
        "separation": _separation(run),
        "parts": _reward_parts(run),
        "summary": summary,
        "headline": headline(run, summary),
        "facts": _facts(run, summary),
        "held_out": _held_out(summary),
        "hacking": held_out_view(run, anchor),
        "plots": training_plots(run, anchor),
        **samples_view(run),
        "funnel": _funnel(run),
        "kept_of_ce": run.augmentation_ce.count("kept"),
        "qa": readers_view(run, anchor),
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
    digits = digits_of([*reward.values(), difference])
    return {
        "reward": {model: estimate_cell(value, digits) for model, value in reward.items()},
        "reward_difference": estimate_cell(difference, digits, signed=True),
        "held_out_difference": estimate_cell(held_out, digits_of([held_out]), signed=True),
        "flag": flag(diverging(run), 1),
        "bleu4": {model: estimate_cell(estimate("models", model, "bleu4"), 3) for model in MODELS[1:]},
        "qa_f1": {name: estimate_cell(run.reader_score(name, "f1"), 1) for name in run.qa},
        "qa_final": run.final_reader,
        "qa_difference": estimate_cell(run.difference.estimate("f1"), 1, signed=True),
        "qa_by_reward": estimate_cell(run.reader_difference("scst", "ce", "f1"), 1, signed=True),
        "qa_conditions": equal_conditions(run),
        "qa_sizes": training_sizes(run),
        "questions": summary["questions"],
        "seed": summary["seed"],
        "commit": str(summary["commit"] or "")[:10],
    }


def _facts(run: ReportedRun, summary: Mapping[str, Any]) -> list[str]:
    """Stages, algorithm, data, steps, seed, commit and time, for the line below the run's name."""
    stages = " → ".join(dict.fromkeys(str(line.get("stage")).upper() for line in run.metrics.lines))
    steps, seed, commit = summary["training"]["steps"], summary["seed"], summary["commit"]
    changed = " with uncommitted changes" if run.record.get("code", "dirty") else ""
    facts = {
        stages: stages,
        f"algorithm {run.settings.get('algorithm')}": run.settings.get("algorithm"),
        unlabelled_use(run): unlabelled_use(run),
        f"{steps or 0:,.0f} steps": steps,
        f"seed {seed}": seed is not None,
        f"commit {str(commit)[:10]}{changed}": commit,
        f"started {str(run.record.get('started')).replace('T', ' ')}": run.record.get("started"),
    }
    return [text for text, known in facts.items() if known]


def unlabelled_use(run: ReportedRun) -> str:
    """How training used the answers without questions; empty where there are none, or none was trained by reward."""
    known, used = run.record.count("examples", "unlabelled"), run.trained.part("unlabelled")
    if used.value:
        share = used.number("share")
        part = "" if share is None else f", {100 * share:.0f} % of its examples"
        return f"{used.count('examples') or 0:,} answers without questions learned from by the reward{part}"
    if not known or run.trained.get("model") != "scst":
        return ""
    if run.settings.get("algorithm") == "best_of_n":
        return f"{known:,} answers without questions sampled for too"
    return f"{known:,} answers without questions, not used in training"


def _held_out(summary: Mapping[str, Any]) -> str:
    if summary["examples"] is None:
        return ""
    passages = f", {summary['passages']:,} passages" if summary["passages"] else ""
    return f"{summary['examples']:,} held-out questions{passages}"


# Columns of the table of generators, those that were measured: field, heading, format (None: with an interval).
COLUMNS = (
    ("reward", "reward", None),
    ("held_out", "held-out reward", None),
    ("bleu4", "BLEU-4 (0–1)", None),
    ("rouge_l", "ROUGE-L (0–1)", "{:.3f}"),
    ("length_words", "words per question", "{:.1f}"),
    ("distinct_questions", "distinct questions (%)", "{:.1%}"),
    ("distinct_2", "distinct 2-grams (%)", "{:.1%}"),
    ("copy_rate", "copied 2-grams (%)", "{:.1%}"),
    ("no_question_mark", "no question mark (%)", "{:.1%}"),
    ("repeated_3grams", "repeated 3-grams (%)", "{:.1%}"),
    ("unsupported", "unsupported names (%)", "{:.1%}"),
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
        digits = 3 if field == "bleu4" else digits_of(list(estimates.values()))
        for model, estimate in estimates.items():
            cells[model].append(estimate_cell(estimate, digits) if form is None else _without_interval(estimate, form))
    return {
        "headings": [heading for _, heading, _ in columns],
        "rows": [{"model": model, "cells": cells[model]} for model in parts],
        "held_out_signature": run.evaluation.get("held_out_signature"),
        "resampled": run.evaluation.resampled,
        "choice": run.evaluation.choice_text,
    }


def _reward_parts(run: ReportedRun) -> list[dict[str, Any]]:
    """The parts of the reward, one row each, for human questions and those of both generators."""
    parts = {model: run.evaluation.part("models", model, "reward_parts") for model in MODELS}
    names = list(dict.fromkeys(name for part in parts.values() for name in part.value))
    rows = []
    for name in names:
        estimates = {model: part.estimate(name) for model, part in parts.items()}
        digits = digits_of(list(estimates.values()))
        cells = [estimate_cell(estimate, digits) for estimate in estimates.values()]
        rows.append({"name": name, "cells": cells})
    return rows


def _separation(run: ReportedRun) -> dict[str, Any] | None:
    """How often the reward puts the right question above a wrong one: for each kind, and over all."""
    pairs = run.separation.part("pairs")
    rows = [(kind.replace("_", " "), pairs.part(kind)) for kind in pairs.value]
    rows += [("all kinds", run.separation.part("auc"))] if run.separation.get("auc") is not None else []
    known = [(kind, estimate) for kind, part in rows if (estimate := _share(part)) is not None]
    if not known:
        return None
    return {
        "signature": run.separation.get("reward"),
        "rows": [
            {
                "kind": kind,
                "share": estimate_cell(estimate, 3),
                "width": 100 * estimate.mean,
                "n": estimate.n,
                "doubt": _doubt(estimate),
            }
            for kind, estimate in known
        ],
    }


def _share(part: JsonObject) -> ReportedMean | None:
    share = part.number("auc")
    return None if share is None else ReportedMean(share, part.number("low"), part.number("high"), part.count("n"))


def _doubt(share: ReportedMean) -> str:
    """In words, that the reward does not prefer the right question; empty where it does, or without an interval."""
    verdict = told(share.low, share.high)
    return "" if share.low is None or verdict == ABOVE else verdict


def _without_interval(estimate: ReportedMean | None, form: str) -> dict[str, Any] | None:
    """A number without an interval, for a cell of the table."""
    return None if estimate is None else {"value": form.format(estimate.mean).removesuffix("%"), "interval": ""}


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
