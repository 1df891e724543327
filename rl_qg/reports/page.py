"""The report: one page that shows what a run did, made from the files of its folder alone.

    rl-qg report runs/a runs/b --output report.html

Every file of a run folder may be missing: the page then says so in a line. The page is one file without scripts that
loads nothing. Fractions stay as the metrics publish them; reading scores are in percent.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from rl_qg.reports.plots import RUN_COLOURS, overlay_plot
from rl_qg.reports.reward_hacking_view import diverging
from rl_qg.reports.run_files import MODELS, SCORES, Estimate, Run, read_run
from rl_qg.reports.run_view import headline, run_view, shown
from rl_qg.reports.study_view import is_study, study_view
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer, write_json


def write_report(runs: Sequence[Path], output: Path) -> dict[str, Any]:
    """Write `output`, a self-contained page about one run or several, or studies; for one run, its `summary.json` too.

    Returns {"report": path, "runs": [the summaries, in order]}. Raises `InputError` for a folder that holds no run and
    for a file that is broken, with its name.
    """
    if not runs:
        raise InputError("no run folder given: rl-qg report RUN [RUN ...] --output report.html")
    studies = [Path(folder) for folder in runs if is_study(Path(folder))]
    read = [read_run(Path(folder)) for folder in runs if not is_study(Path(folder))]
    names = _names(read)
    summaries = [_summary(run) for run in read]
    views = [
        run_view(run, summary, name=name, anchor=f"run-{number}")
        for number, (name, run, summary) in enumerate(zip(names, read, summaries, strict=True), 1)
    ]
    comparison = _comparison(read, summaries, names) if len(read) > 1 else None
    shown_studies = [study_view(folder, f"study-{number}") for number, folder in enumerate(studies, 1)]
    title = " · ".join([*(view["name"] for view in shown_studies), *names])
    style = resources.files("rl_qg.text").joinpath("page_style.css").read_text(encoding="utf-8")
    page = _template().render(
        title=title, style=Markup(style), runs=views, comparison=comparison, studies=shown_studies
    )
    if len(read) == 1:  # runs that are compared may be other people's, and not ours to write to
        write_json(read[0].folder / "summary.json", summaries[0])
    with atomic_writer(Path(output)) as stream:
        stream.write(page)
    return {"report": str(output), "runs": summaries}


def write_summary(run: Path) -> dict[str, Any]:
    """Write the headline numbers of one run to its `summary.json`, and return them; what is not there is null."""
    summary = _summary(read_run(Path(run)))
    write_json(Path(run) / "summary.json", summary)
    return summary


# --- The numbers ---


def _summary(run: Run) -> dict[str, Any]:
    evaluation, augmentation = run.evaluation, run.augmentation
    steps, _ = run.metrics.series("loss")
    return {
        "run": run.folder.resolve().name,
        "seed": run.record.get("seed"),
        "commit": run.record.get("code", "commit"),
        "examples": evaluation.count("examples"),
        "passages": evaluation.count("passages"),
        "bleu4": {
            **{model: _plain(evaluation.estimate("models", model, "bleu4")) for model in MODELS[1:]},
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
        "diverging": {measure: vars(change) for measure, change in diverging(run).items()},
        "questions": {
            "candidates": augmentation.count("candidates") or run.questions,
            **{key: augmentation.count(key) for key in ("kept", "sampled", "requested", "gold")},
            "dropped": augmentation.get("dropped"),
        },
        "qa": {
            **{name: _reader(run, name) for name in run.qa},
            "difference": {score: _plain(run.difference.estimate(score), difference=True) for score in SCORES},
        },
        "training": {"steps": steps[-1] if steps else None, "boundary": run.metrics.boundary, **_seconds(run)},
        "leakage": run.record.get("leakage"),
    }


def _plain(estimate: Estimate | None, *, difference: bool = False) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {**vars(estimate), **({"excludes_zero": estimate.excludes_zero} if difference else {})}


def _reader(run: Run, name: str) -> dict[str, Any] | None:
    record = run.qa[name]
    if not record.value:
        return None
    scores = {score: _plain(run.reader_score(name, score)) for score in SCORES}
    return {**scores, "total": record.count("total"), "seeds": [row.get("seed") for row in record.list("seeds")]}


def _seconds(run: Run) -> dict[str, float | None]:
    parts = ("rollout", "reward", "update")
    totals = {part: run.metrics.series(f"seconds_{part}")[1] for part in parts}
    return {f"seconds_{part}": round(sum(values), 1) if values else None for part, values in totals.items()}


# --- Several runs ---


def _names(runs: Sequence[Run]) -> list[str]:
    names = [run.folder.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder) for run in runs]


def _comparison(runs: Sequence[Run], summaries: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """One row for each run. Rewards are marked by signature: two signatures are two units, and never share an axis."""
    signatures = list(dict.fromkeys(signature for run in runs if (signature := _signature(run))))
    marks = {signature: chr(ord("A") + place) for place, signature in enumerate(signatures)}
    colours = [RUN_COLOURS[place % len(RUN_COLOURS)] for place in range(len(runs))]
    curves = {name: (colour, run.metrics) for name, colour, run in zip(names, colours, runs, strict=True)}
    plots = [overlay_plot("Loss", ("loss", "eval_loss"), curves)]
    for signature, mark in marks.items():
        group = {name: curves[name] for name, run in zip(names, runs, strict=True) if _signature(run) == signature}
        title = f"Greedy reward {mark}" if len(signatures) > 1 else "Greedy reward"
        plots.append(overlay_plot(title, ("reward_greedy", "eval_reward_greedy"), group))
    rows = [
        {
            "name": name,
            "anchor": f"run-{number}",
            "colour": colour,
            "mark": marks.get(_signature(run), "") if len(signatures) > 1 else "",
            **headline(run, summary),
        }
        for number, (name, colour, run, summary) in enumerate(zip(names, colours, runs, summaries, strict=True), 1)
    ]
    data = {tuple(sorted(map(str, hashes.values()))) for run in runs if (hashes := run.record.part("data").value)}
    return {
        "rows": rows,
        "signatures": [(mark, signature) for signature, mark in marks.items()],
        "different_data": len(data) > 1,
        "plots": [shown(plot) for plot in plots if plot],
    }


def _signature(run: Run) -> str:
    """The unit of the run's rewards; empty when it has none."""
    has_reward = any(run.metrics.series(key)[0] for key in ("reward_greedy", "eval_reward_greedy"))
    has_reward |= any(run.evaluation.estimate("models", model, "reward") for model in MODELS)
    return (run.signature or "signature not recorded") if has_reward else ""


def _template() -> Any:
    names = ("report_template.html", "study_template.html")
    texts = {name: resources.files("rl_qg.reports").joinpath(name).read_text(encoding="utf-8") for name in names}
    environment = Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["thousands"] = lambda number: "–" if number is None else f"{number:,.0f}"
    return environment.get_template(names[0])
