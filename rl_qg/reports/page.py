"""The report: one page about a run, made from the files of its folder alone.

    rl-qg report runs/a runs/b --output report.html

Any file of a run folder may be missing: the page says so. The page is one file without scripts, and loads nothing.
Rewards, BLEU-4 and ROUGE-L have the unit of their metric in `rewards/`, and shares of pairs in order are from 0 to 1,
as an area under a ROC curve is; reading scores and shares of questions are in percent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rl_qg.confidence_intervals import mean_of_seeds
from rl_qg.reports.estimates import digits_of, estimate_cell, percent
from rl_qg.reports.measures import diverging, fallen_measures
from rl_qg.reports.plots import RUN_COLOURS
from rl_qg.reports.run_files import (
    MODELS,
    OLDER_READER,
    SCORES,
    JsonObject,
    ReportedMean,
    ReportedRun,
    read_run,
)
from rl_qg.reports.run_view import headline, run_view
from rl_qg.reports.study_view import is_study, study_view
from rl_qg.reports.training_plots import overlay_plot
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer, write_json
from rl_qg.text.pages import page_environment


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
            # What tools of earlier versions read: the reader on gold with the final generator's questions.
            OLDER_READER: _reader(run, run.final_reader) if run.final_reader else None,
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
        """As the template shows it."""
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
