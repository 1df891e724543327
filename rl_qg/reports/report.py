"""The report: one page about a run, made from the files of its folder alone.

    rl-qg report runs/a runs/b --output report.html

Any file of a run folder may be missing: the page says so. The page is one file without scripts, and loads nothing.
Rewards, BLEU-4 and ROUGE-L have the unit of their metric in `rewards/`, and shares of pairs in order are from 0 to 1,
as an area under a ROC curve is; reading scores and shares of questions are in percent.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rl_qg.pages.plots import RUN_COLOURS, ReportedMean
from rl_qg.pages.results import page_environment
from rl_qg.reports.run_files import (
    MODELS,
    SCORES,
    JsonObject,
    ReportedRun,
    diverging,
    fallen_measures,
    is_number,
    read_run,
)
from rl_qg.reports.study_view import is_study, study_view
from rl_qg.reports.training_plots import overlay_plot, training_plots
from rl_qg.reports.views import (
    digits_of,
    equal_conditions,
    estimate_cell,
    flag,
    held_out_view,
    outcome_view,
    percent,
    readers_view,
    samples_view,
    training_sizes,
)
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, write_json
from rl_qg.scoring.separation import ABOVE, FREQUENT, SAMPLED_KINDS, WRONG, is_rare, told
from rl_qg.stats.intervals import FEW, mean_of_seeds

# --- One run: numbers as text with intervals; a part is empty when its file is missing


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
    kinds = run.separation.part("sampled", "kinds")
    written = {kind: share for kind in kinds.value if (share := kinds.part(kind).number("share")) is not None}
    return {
        "signature": run.separation.get("reward"),
        "rows": [
            {
                "kind": kind,
                "share": estimate_cell(estimate, 3),
                "width": 100 * estimate.mean,
                "n": estimate.n,
                "doubt": "" if is_rare(kind.replace(" ", "_"), written) else _doubt(estimate),
            }
            for kind, estimate in known
        ],
        "sampled": _sampled(run),
    }


def _sampled(run: ReportedRun) -> list[dict[str, Any]]:
    """How frequent each kind of question is that the generator samples, and how the reward orders it; none without
    samples.
    """
    sampled = run.separation.part("sampled")
    kinds = sampled.part("kinds")
    parts = [(SAMPLED_KINDS.get(kind, kind), kinds.part(kind)) for kind in kinds.value]
    parts += [(WRONG, sampled.part("wrong"))] if parts else []
    rows = []
    for kind, part in parts:
        share, auc = (
            None if value is None else ReportedMean(value, part.number(f"{ends}low"), part.number(f"{ends}high"), n)
            for value, ends, n in (
                (part.number("share"), "", None),
                (part.number("auc"), "auc_", part.count("answers")),
            )
        )
        frequent = share is not None and share.mean >= FREQUENT and (part.count("passages") or 0) >= FEW
        doubt = _doubt(auc) if auc is not None and frequent else ""
        rows.append({"kind": kind, "share": estimate_cell(share, 3), "auc": estimate_cell(auc, 3), "doubt": doubt})
    return rows


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


def write_report(runs: Sequence[Path], output: Path) -> dict[str, Any]:
    """Write `output`, a page about one run or several, or studies; in the folder of its run, `summary.json` too.

    Returns {"report": path, "runs": [the summaries, in order]}. Raises `InputError` for a folder without a run and
    for a broken file, with its name.
    """
    if not runs:
        raise InputError("no run folder given: rl-qg report RUN [RUN ...] --output report.html")
    studies = [Path(folder) for folder in runs if is_study(Path(folder))]
    reported = [read_run(Path(folder)) for folder in runs if not is_study(Path(folder))]
    names = _names(reported)
    summaries = [run_summary(run) for run in reported]
    views = [
        run_view(run, summary, name=name, anchor=f"run-{number}")
        for number, (name, run, summary) in enumerate(zip(names, reported, summaries, strict=True), 1)
    ]
    comparison = _comparison(reported, summaries, names) if len(reported) > 1 else None
    study_views = [study_view(folder, f"study-{number}") for number, folder in enumerate(studies, 1)]
    title = " · ".join([*(view["name"] for view in study_views), *names])
    page = _template().render(title=title, runs=views, comparison=comparison, studies=study_views)
    # A page elsewhere may be about the runs of other people: nothing is written there.
    if len(reported) == 1 and Path(output).resolve().parent == reported[0].folder.resolve():
        write_json(reported[0].folder / "summary.json", summaries[0])
    with atomic_writer(Path(output)) as stream:
        stream.write(page)
    return {"report": str(output), "runs": summaries}


# --- The numbers ---


def run_summary(run: ReportedRun) -> dict[str, Any]:
    """The main numbers of one run, as `summary.json` has them; missing ones are null."""
    evaluation, augmentation = run.evaluation, run.augmentation
    steps, _ = run.metrics.series("loss")
    return {
        "run": run.folder.resolve().name,
        "seed": run.record.get("seed"),
        "commit": run.record.get("code", "commit"),
        "examples": evaluation.count("examples"),
        "passages": evaluation.count("passages"),
        **({"model_choice": choice} if (choice := evaluation.get("model_choice")) else {}),
        "bleu4": {
            **{model: _plain(evaluation.estimate("models", model, "bleu4")) for model in MODELS[1:]},
            "difference": _plain(evaluation.estimate("difference", "bleu4"), difference=True),
            "signature": evaluation.get("models", "ce", "bleu_signature"),
        },
        "reward": {
            "signature": run.signature,
            **{model: _plain(evaluation.estimate("models", model, "reward")) for model in MODELS},
            "difference": _plain(evaluation.estimate("difference", "reward"), difference=True),
        },
        "held_out": {
            "signature": evaluation.get("held_out_signature"),
            **{model: _plain(evaluation.estimate("models", model, "held_out")) for model in MODELS},
            "difference": _plain(evaluation.estimate("difference", "held_out"), difference=True),
        },
        "oracle": {
            **{model: _shares(evaluation, "models", model) for model in MODELS},
            "difference": _shares(evaluation, "difference", difference=True),
        },
        "diverging": {measure: vars(change) for measure, change in diverging(run).items()},
        "every_held_out_measure_fell": bool(fallen_measures(run)),
        "questions": {
            "candidates": augmentation.count("candidates") or run.questions,
            **{key: augmentation.count(key) for key in ("kept", "sampled", "requested", "gold")},
            "dropped": augmentation.get("dropped"),
        },
        "qa": {
            **{name: _reader(run, name) for name in run.qa},
            "augmented": _reader(run, run.final_reader) if run.final_reader else None,
            "difference": {score: _plain(run.difference.estimate(score), difference=True) for score in SCORES},
            "differences": {
                pair: {
                    score: _plain(run.comparison.estimate("differences", pair, score), difference=True)
                    for score in SCORES
                }
                for pair in run.comparison.part("differences").value
            },
        },
        "training": {"steps": steps[-1] if steps else None, "boundary": run.metrics.boundary, **_seconds(run)},
        "leakage": run.record.get("leakage"),
    }


def _plain(estimate: ReportedMean | None, *, difference: bool = False) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {**vars(estimate), **({"excludes_zero": estimate.excludes_zero} if difference else {})}


def _reader(run: ReportedRun, name: str) -> dict[str, Any] | None:
    record = run.qa[name]
    if not record.value:
        return None
    scores = {score: _plain(run.reader_score(name, score)) for score in SCORES}
    return {
        **scores,
        "total": record.count("total"),
        "seeds": [row.get("seed") for row in record.list("seeds")],
        "updates": record.count("updates"),
    }


def _shares(evaluation: JsonObject, *keys: str, difference: bool = False) -> dict[str, Any] | None:
    """The shares of the oracle's verdicts, fractions; None where the passages are not of the embedded corpus."""
    part = evaluation.part(*keys, "oracle")
    return {name: _plain(part.estimate(name), difference=difference) for name in part.value} or None


def _seconds(run: ReportedRun) -> dict[str, float | None]:
    parts = ("rollout", "reward", "update")
    totals = {part: run.metrics.series(f"seconds_{part}")[1] for part in parts}
    return {f"seconds_{part}": round(sum(values), 1) if values else None for part, values in totals.items()}


# --- Several runs ---


def _names(runs: Sequence[ReportedRun]) -> list[str]:
    names = [run.folder.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder) for run in runs]


def _comparison(
    runs: Sequence[ReportedRun], summaries: Sequence[dict[str, Any]], names: Sequence[str]
) -> dict[str, Any]:
    """One row for each run. Rewards are marked by signature: those of two signatures never share an axis."""
    signatures = list(dict.fromkeys(signature for run in runs if (signature := _signature(run))))
    marks = {signature: chr(ord("A") + number) for number, signature in enumerate(signatures)}
    colours = [RUN_COLOURS[number % len(RUN_COLOURS)] for number in range(len(runs))]
    curves = {name: (colour, run.metrics) for name, colour, run in zip(names, colours, runs, strict=True)}
    plots = [overlay_plot("Loss", ("loss", "eval_loss"), curves)]
    for signature, mark in marks.items():
        group = {name: curves[name] for name, run in zip(names, runs, strict=True) if _signature(run) == signature}
        title = f"Greedy reward {mark}" if len(signatures) > 1 else "Greedy reward"
        plots.append(overlay_plot(title, ("reward_greedy", "eval_reward_greedy"), group))
    words = list(dict.fromkeys(run.words["scst"] for run in runs))
    final = words[0] if len(words) == 1 else "final"
    columns = _columns(runs, final)
    rows = [
        {
            "name": name,
            "anchor": f"run-{number + 1}",
            "colour": colour,
            "mark": marks.get(_signature(run), "") if len(signatures) > 1 else "",
            "generator": run.words["scst"] if len(words) > 1 else "",
            "cells": [column.cell(column.values[number]) for column in columns],
            **headline(run, summary),
        }
        for number, (name, colour, run, summary) in enumerate(zip(names, colours, runs, summaries, strict=True))
    ]
    data = {tuple(sorted(map(str, hashes.values()))) for run in runs if (hashes := run.record.part("data").value)}
    return {
        "rows": rows,
        "headings": [column.heading for column in columns],
        "means": [column.cell(column.mean()) for column in columns] if _differ_in_seeds_alone(runs) else None,
        "signatures": [(mark, signature) for signature, mark in marks.items()],
        "different_data": len(data) > 1,
        "resampled": " or ".join(dict.fromkeys(run.evaluation.resampled for run in runs)),
        "plots": [plot for plot in plots if plot],
    }


@dataclass(frozen=True)
class _Column:
    """A measure of several runs; the difference of two generators if `signed`."""

    heading: str
    values: list[ReportedMean | None]
    digits: int
    signed: bool = False

    def cell(self, value: ReportedMean | None) -> dict[str, Any] | None:
        return estimate_cell(value, self.digits, signed=self.signed)

    def mean(self) -> ReportedMean | None:
        """Over the runs, each of which counts once, with Student's interval; None where a run lacks it."""
        known = [value.mean for value in self.values if value is not None]
        if len(known) < len(self.values):
            return None
        return ReportedMean(*mean_of_seeds(known), n=len(known))


def _columns(runs: Sequence[ReportedRun], final: str) -> list[_Column]:
    """The measures of the table; whether questions are right is known of the embedded corpus alone."""

    def of_questions(*field: str) -> list[list[ReportedMean | None]]:
        """Of CE, of the final generator, and their difference, each for all runs."""
        parts = (("models", "ce"), ("models", "scst"), ("difference",))
        return [[run.evaluation.estimate(*part, *field) for run in runs] for part in parts]

    rewards, bleu4, right = of_questions("reward"), of_questions("bleu4"), of_questions("oracle", "right")
    right = [[percent(value) for value in values] for values in right]
    digits = digits_of([value for values in rewards for value in values])
    readers = [[run.reader_score(name, "f1") for run in runs] for name in ("gold", "ce")]
    last = [run.reader_score(run.final_reader, "f1") if run.final_reader else None for run in runs]
    asked = [
        _Column("Right (%), CE", right[0], 1),
        _Column(final, right[1], 1),
        _Column("difference", right[2], 1, signed=True),
    ]
    return [
        _Column("Reward, CE", rewards[0], digits),
        _Column(final, rewards[1], digits),
        _Column("difference", rewards[2], digits, signed=True),
        _Column("BLEU-4 (0–1), CE", bleu4[0], 3),
        _Column(final, bleu4[1], 3),
        *(asked if any(right[0]) else ()),
        _Column("Reader F1 (%), gold", readers[0], 1),
        _Column("+ CE", readers[1], 1),
        _Column(f"+ {final}", last, 1),
        _Column(f"{final} − CE (points)", [run.reader_difference("scst", "ce", "f1") for run in runs], 1, signed=True),
        _Column("last − gold (points)", [run.difference.estimate("f1") for run in runs], 1, signed=True),
    ]


def _differ_in_seeds_alone(runs: Sequence[ReportedRun]) -> bool:
    """Whether the runs' settings are known and the same, but for seeds and folders."""

    def recipe(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: recipe(part) for key, part in value.items() if key not in ("seed", "seeds", "output_dir")}

    first, *others = (recipe(run.settings) for run in runs)
    return bool(first) and all(other == first for other in others)


def _signature(run: ReportedRun) -> str:
    """The signature of the run's rewards; empty when it has none."""
    has_reward = any(run.metrics.series(key)[0] for key in ("reward_greedy", "eval_reward_greedy"))
    has_reward |= any(run.evaluation.estimate("models", model, "reward") for model in MODELS)
    return (run.signature or "signature not recorded") if has_reward else ""


@cache
def _template() -> Any:
    environment = page_environment("rl_qg.reports", "report_template.html", "study_template.html")
    environment.filters["thousands"] = lambda number: "–" if number is None else f"{number:,.0f}"
    return environment.get_template("report_template.html")
