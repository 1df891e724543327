"""The report: one page about a run, made from the files of its folder alone.

Any file of a run folder may be missing: the page says so. The page is one file without scripts, and loads nothing.
Rewards, BLEU-4 and ROUGE-L have the unit of their metric in `rewards/`, and shares of pairs in order are from 0 to 1,
as an area under a ROC curve is; reading scores and shares of questions are in percent.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from rl_qg.pages.plots import RUN_COLOURS, ReportedMean
from rl_qg.pages.results import page_environment
from rl_qg.reports import run_files
from rl_qg.reports.study_view import is_study, study_view
from rl_qg.reports.training_plots import overlay_plot
from rl_qg.reports.views import digits_of, estimate_cell, means_of, number_text, percent, run_view
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json, write_text
from rl_qg.stats.intervals import PERCENT, SHARE, Bounds, mean_of_seeds

FREE, POINTS = (-inf, inf), (-100.0, 100.0)  # bounds of a reward, of a difference of percentages


def write_report(runs: Sequence[Path], output: Path) -> None:
    """Write `output`, a page about one run or several, or studies; in the folder of its run, `summary.json` too.

    Raises `InputError` for a folder without a run and for a broken file, with its name.
    """
    if not runs:
        raise InputError("no run folder given: rl-qg report RUN [RUN ...] output=report.html")
    studies = [Path(folder) for folder in runs if is_study(Path(folder))]
    reported = [run_files.read_run(Path(folder)) for folder in runs if not is_study(Path(folder))]
    names = [run.folder.resolve().name for run in reported]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in reported]
    summaries = [run_summary(run) for run in reported]
    views = [
        {"name": name, "anchor": f"run-{number}", "summary": summary, **run_view(run, f"run-{number}", summary)}
        for number, (name, run, summary) in enumerate(zip(names, reported, summaries, strict=True), 1)
    ]
    comparison = _comparison(reported, views) if len(reported) > 1 else None
    study_views = [study_view(folder, f"study-{number}") for number, folder in enumerate(studies, 1)]
    title = " · ".join([*(view["name"] for view in study_views), *names])
    page = _template().render(title=title, runs=views, comparison=comparison, studies=study_views)
    # A page elsewhere may be about the runs of other people: nothing is written there.
    if len(reported) == 1 and Path(output).resolve().parent == reported[0].folder.resolve():
        write_json(reported[0].folder / "summary.json", summaries[0])
    write_text(Path(output), page)


@cache
def _template() -> Any:
    environment = page_environment("rl_qg.reports", "report_template.html", "study_template.html")
    environment.filters["thousands"] = lambda number: "–" if number is None else f"{number:,.0f}"
    environment.filters |= {"number": number_text, "shown": estimate_cell, "percent": percent}
    environment.globals["tables"] = run_files.TABLES
    return environment.get_template("report_template.html")


def run_summary(run: run_files.ReportedRun) -> dict[str, Any]:
    """The main numbers of one run, as `summary.json` has them; missing ones are null."""
    evaluation, augmentation = run.evaluation, run.augmentation
    bleu4 = _of_models(run, "bleu4")
    del bleu4["gold"]  # human questions are what it compares with
    compared = evaluation.part("models", "ce" if evaluation.get("models", "ce") else "scst")
    shares = {model: evaluation.part("models", model, "oracle").value for model in run_files.MODELS}
    shares["difference"] = evaluation.part("difference", "oracle").value
    seconds = {part: run.metrics.series(f"seconds_{part}")[1] for part in ("rollout", "reward", "update")}
    return {
        "run": run.folder.resolve().name,
        "seed": run.record.get("seed"),
        "commit": run.record.get("code", "commit"),
        "examples": evaluation.count("examples"),
        "passages": evaluation.count("passages"),
        **({"model_choice": choice} if (choice := evaluation.get("model_choice")) else {}),
        "bleu4": bleu4 | {"signature": compared.get("bleu_signature")},
        "reward": {"signature": run.signature, **_of_models(run, "reward")},
        "held_out": {"signature": evaluation.get("held_out_signature"), **_of_models(run, "held_out")},
        "oracle": {
            model: {name: _plain(run.measured(model, "oracle", name), model == "difference") for name in names} or None
            for model, names in shares.items()
        },
        "diverging": {measure: vars(change) for measure, change in run_files.diverging(run).items()},
        "every_held_out_measure_fell": bool(run_files.fallen_measures(run)),
        "questions": {
            "candidates": augmentation.count("candidates") or run.questions,
            **{key: augmentation.count(key) for key in ("kept", "sampled", "requested", "gold")},
            "dropped": augmentation.get("dropped"),
        },
        "qa": {
            **{name: _reader(run, name) for name in run.qa},
            "augmented": _reader(run, run.final_reader) if run.final_reader else None,
            "difference": _differences(run, "difference"),
            "differences": {
                pair: _differences(run, "differences", pair) for pair in run.comparison.part("differences").value
            },
        },
        "training": {
            "steps": run.trained.count("steps") or run.metrics.last_step or None,
            "boundary": run.metrics.boundary,
            **{f"seconds_{part}": round(sum(values), 1) if values else None for part, values in seconds.items()},
        },
        "leakage": run.record.get("leakage"),
    }


def _plain(estimate: ReportedMean | None, difference: bool = False) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {**vars(estimate), **({"excludes_zero": estimate.excludes_zero} if difference else {})}


def _of_models(run: run_files.ReportedRun, field: str) -> dict[str, Any]:
    return {model: _plain(mean, model == "difference") for model, mean in means_of(run, field).items()}


def _differences(run: run_files.ReportedRun, *keys: str) -> dict[str, Any]:
    return {score: _plain(run.comparison.estimate(*keys, score), difference=True) for score in run_files.SCORES}


def _reader(run: run_files.ReportedRun, name: str) -> dict[str, Any] | None:
    record = run.qa[name]
    if not record.value:
        return None
    return {
        **{score: _plain(run.reader_score(name, score)) for score in run_files.SCORES},
        "total": record.count("total"),
        "seeds": [row.get("seed") for row in record.list("seeds")],
        "updates": record.count("updates"),
    }


def _comparison(runs: Sequence[run_files.ReportedRun], views: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row for each run. Rewards are marked by signature: those of two signatures never share an axis."""
    signatures, names = [_signature(run) for run in runs], [view["name"] for view in views]
    marks = {text: chr(ord("A") + number) for number, text in enumerate(dict.fromkeys(filter(None, signatures)))}
    colours = [RUN_COLOURS[number % len(RUN_COLOURS)] for number in range(len(runs))]
    curves = {name: (colour, run.metrics) for name, colour, run in zip(names, colours, runs, strict=True)}
    plots = [overlay_plot("Loss", ("loss", "eval_loss"), curves)]
    for signature, mark in marks.items():
        group = {name: curves[name] for name, own in zip(names, signatures, strict=True) if own == signature}
        title = f"Greedy reward {mark}" if len(marks) > 1 else "Greedy reward"
        plots.append(overlay_plot(title, ("reward_greedy", "eval_reward_greedy"), group))
    words = list(dict.fromkeys(run.words["scst"] for run in runs))
    columns = _columns(runs, words[0] if len(words) == 1 else "final")
    cells = [
        [estimate_cell(mean, digits, signed=heading.endswith(("difference", "(points)"))) for mean in values]
        for heading, digits, values in columns
    ]
    rows = [
        {
            **view,
            "colour": colours[number],
            "mark": marks.get(signatures[number], "") if len(marks) > 1 else "",
            "generator": view["words"]["scst"] if len(words) > 1 else "",
            "cells": [column[number] for column in cells],
        }
        for number, view in enumerate(views)
    ]
    data = {tuple(sorted(map(str, hashes.values()))) for run in runs if (hashes := run.record.part("data").value)}
    first, *others = (_recipe(run.settings) for run in runs)
    alike = bool(first) and others == [first] * len(others) and len(marks) < 2  # a metric may have changed meanwhile
    apart = len({run.settings.get("seed") for run in runs}) == len(runs)  # the same run twice is no other draw
    return {
        "rows": rows,
        "headings": [heading for heading, *_ in columns],
        "means": [column[-1] for column in cells] if alike and apart else None,
        "signatures": [(mark, signature) for signature, mark in marks.items()],
        "different_data": len(data) > 1,
        "resampled": " or ".join(dict.fromkeys(run.evaluation.resampled for run in runs)),
        "plots": [plot for plot in plots if plot],
    }


def _mean(means: Sequence[ReportedMean | None], bounds: Bounds) -> ReportedMean | None:
    """Over runs, each of which counts once, with Student's interval; None where a run lacks it."""
    known = [value.mean for value in means if value is not None]
    return ReportedMean(*mean_of_seeds(known, bounds), n=len(known)) if len(known) == len(means) else None


def _columns(runs: Sequence[run_files.ReportedRun], final: str) -> list[tuple[str, int, list[ReportedMean | None]]]:
    """Heading, decimals, the mean of each run, and over all. `right` is known of the embedded corpus alone."""

    def of_questions(*field: str) -> list[list[ReportedMean | None]]:
        return [[run.measured(part, *field) for run in runs] for part in ("ce", "scst", "difference")]

    rewards = of_questions("reward")
    right = [list(map(percent, means)) for means in of_questions("oracle", "right")]
    of_readers = [[run.reader_score(name, "f1") for run in runs] for name in ("gold", "ce")]
    of_readers += [
        [run.reader_score(run.final_reader, "f1") for run in runs],
        [run.reader_difference("scst", "ce", "f1") for run in runs],
        [run.comparison.estimate("difference", "f1") for run in runs],
    ]
    readers = ("Reader F1 (%), gold", "+ CE", f"+ {final}", f"{final} − CE (points)", "last − gold (points)")
    digits = digits_of([mean for means in rewards for mean in means])
    groups = [
        (("Reward, CE", final, "difference"), digits, rewards, [FREE] * 3),
        (("BLEU-4 (0–1), CE", final), 3, of_questions("bleu4")[:2], [SHARE] * 2),
        (("Right (%), CE", final, "difference"), 1, right if any(right[0]) else [], [PERCENT, PERCENT, POINTS]),
        (readers, 1, of_readers, [PERCENT, PERCENT, PERCENT, POINTS, POINTS]),
    ]
    return [
        (heading, digits, [*values, _mean(values, bounds)])
        for headings, digits, means, limits in groups
        for heading, values, bounds in zip(headings, means, limits, strict=bool(means))
    ]


def _recipe(value: Any) -> Any:
    """Settings but for seeds and folders: runs whose recipe is the same differ in these alone."""
    if not isinstance(value, Mapping):
        return value
    return {key: _recipe(part) for key, part in value.items() if key not in ("seed", "seeds", "output_dir")}


def _signature(run: run_files.ReportedRun) -> str:
    has_reward = any(run.metrics.series(key)[0] for key in ("reward_greedy", "eval_reward_greedy"))
    has_reward |= any(run.measured(model, "reward") for model in run_files.MODELS)
    return (run.signature or "signature not recorded") if has_reward else ""
