"""A search for the best settings of a training: the best of many configurations after little training go on.

Every run is a plain `rl-qg train`, and after an interruption the same command goes on. `docs/how-to/search.md`
explains the file and what is written.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rl_qg.data.formats import existing_file, is_hub_name
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.settings import Settings
from rl_qg.studies.halving import Configuration, Halving, NoEffect, Trial
from rl_qg.studies.jobs import Compose, run_jobs, run_on_cluster
from rl_qg.studies.search import (
    PAGE,
    RunJobs,
    RunPlan,
    SearchFile,
    SearchRuns,
    best_trial,
    origin_of,
    write_best,
    write_search,
)
from rl_qg.studies.search_space import OptunaProposals, Proposals, grid, randomly

log = logging.getLogger(__name__)


def run_search(search: SearchFile, compose: Compose, *, dry_run: bool = False, run: RunJobs | None = None) -> None:
    """Run what is not done and write the results.

    Args:
        search: the search file.
        compose: makes the settings of a configuration.
        dry_run: only print what the first rung would run.
        run: runs jobs; None: as the file says, on this machine or on a cluster.
    """
    runs = SearchRuns(search, run or _runner(search), _planner(search, compose), _sources(search))
    proposals = _proposals(search)
    if dry_run:
        return _print_first_rung(search, runs, proposals)
    origin = origin_of(search)

    def after_rung(halving: Halving) -> None:
        write_search(search, runs, halving, origin)
        kept = halving.rungs[-1].kept
        if not search.keep_models:
            runs.tidy(halving, [number for number in halving.configurations if number not in kept])

    halving = Halving(search.plan, runs, after_rung)
    _first_rung(search, halving, proposals)
    if (equal := halving.without_effect()) and not search.allow_equal:
        write_search(search, runs, halving, origin)
        raise InputError(_without_effect(search, equal))
    halving.finish()
    if halving.winner is not None:
        runs.restore(best_trial(search, halving), halving)
        write_search(search, runs, halving, origin)
        if not search.keep_models:
            runs.tidy(halving, [number for number in halving.configurations if number != halving.winner])
        _log_winner(search, halving, write_best(search, runs, halving))
    if halving.failed:
        number, failed = min(halving.failed.items())
        rest = "the others are ranked" if halving.winner is not None else "none is left"
        raise InputError(
            f"{len(halving.failed)} of {len(halving.configurations)} configurations failed and {rest}, see "
            f"{search.output_dir / PAGE}.html; configuration {number}: {failed.fault}"
        )


def _first_rung(search: SearchFile, halving: Halving, proposals: Proposals) -> None:
    """Train all configurations to the first rung, batch by batch where proposals depend on scores."""
    epochs = search.plan.rungs[0][0]
    scores: dict[int, float | None] = {}
    while new := proposals.next(scores):
        halving.start(new)
        for item in new:
            values = halving.values[item.number].get(epochs)
            scores[item.number] = None if values is None else sum(values) / len(values)


def _proposals(search: SearchFile) -> Proposals:
    space = search.dimensions()
    if search.method == "grid":
        return grid(space, search.file)
    assert search.configurations is not None
    if search.method == "random":
        return randomly(space, search.configurations, search.seed)
    return OptunaProposals(space, search.configurations, search.batch, search.seed, higher=search.measure.higher)


def _runner(search: SearchFile) -> RunJobs:
    if search.cluster is None:
        return partial(run_jobs, devices=search.devices, title="search", threads=search.threads)
    cluster = search.cluster
    return partial(
        run_on_cluster,
        kind=cluster.kind,
        parameters=cluster.parameters,
        folder=search.output_dir / "cluster",
        device=search.devices[0],
        threads=search.threads,
    )


def _sources(search: SearchFile) -> dict[str, str]:
    """SHA-256 of the data files; a data set of the Hub or the embedded corpus is named by itself."""
    hashes = {}
    for name, value in {"train": search.data.train, "validation": search.data.validation}.items():
        several = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
        for number, source in enumerate(map(str.strip, several), 1):
            if not is_hub_name(source):
                hashes[name if number == 1 else f"{name}-{number}"] = file_hash(existing_file(source))
    return hashes


# --- How a configuration is trained ---


def _planner(search: SearchFile, compose: Compose) -> Callable[[Configuration], RunPlan]:
    """Composes the settings of each configuration once, so that a wrong one ends the search before it begins."""
    plans: dict[int, RunPlan] = {}

    def plan_of(configuration: Configuration) -> RunPlan:
        if configuration.number not in plans:
            plans[configuration.number] = _plan(search, configuration, compose)
        return plans[configuration.number]

    return plan_of


def _plan(search: SearchFile, configuration: Configuration, compose: Compose) -> RunPlan:
    arguments = [
        f"preset={search.preset}",
        *search.settings,
        *configuration.overrides,
        f"data.train={search.data.train}",
        f"data.validation={search.data.validation}",
        f"stages={search.stages}",
    ]
    settings = compose("train", arguments)
    where, planned = f"{search.file}: configuration {configuration.number}", search.planned_epochs
    if lacking := _lacks_measure(search, settings):
        raise InputError(f"{where}: measure: {search.measure.name} is not measured: {lacking}")
    if search.stages == "ce":
        overrides = [f"ce.epochs={planned}"]
    else:
        first = settings.ce.epochs if search.stages == "both" else 0
        if planned <= first:
            raise InputError(f"{where}: rungs: ce.epochs={first:g} leaves none of {planned} epochs to scst; raise the "
                             "last rung")  # fmt: skip
        overrides = [f"scst.epochs={planned - first:g}"]
    if search.go_on_to is not None and (changing := _depend_on_plan(settings, search.stages)):
        raise InputError(
            f"{where}: go_on_to: {search.go_on_to}: to go on beyond the last rung, schedules must not depend on the "
            f"planned epochs; set {', '.join(changing)}, or go_on_to: null"
        )
    if settings.algorithm == "scst" or (search.stages == "ce" and settings.algorithm == "best_of_n"):
        return RunPlan(tuple(overrides))
    if len(search.rungs) > 1 or search.go_on_to is not None or not search.measure.commands:
        raise InputError(
            f"{where}: algorithm={settings.algorithm} does not stop and go on: give a single rung, go_on_to: null and "
            "measure.commands"
        )
    return RunPlan(tuple(overrides), final="ce" if search.stages == "ce" else "scst")


def _lacks_measure(search: SearchFile, settings: Settings) -> str:
    """What a training needs to measure the criterion, or ""."""
    if not search.measure.commands and search.measure.name == "held_out" and not settings.held_out:
        return "give held_out in settings, such as held_out=bartscore"
    if not search.measure.commands and search.measure.name == "reward_greedy" and search.stages == "ce":
        return "stages: ce has no reward; give stages: scst or both, or measure: held_out"
    return ""


def _depend_on_plan(settings: Settings, stages: str) -> list[str]:
    """What to set so that the first epochs of a longer plan are those of a shorter one."""
    wanted: list[tuple[str, Any, Any]] = [("training.rate_schedule", settings.training.rate_schedule, "constant")]
    if stages != "scst":
        wanted.append(("ce.warmup_fraction", settings.ce.warmup_fraction, 0))
    if stages != "ce":
        wanted.append(("scst.warmup_fraction", settings.scst.warmup_fraction, 0))
        wanted.append(("scst.schedule", settings.scst.schedule, "constant"))
    return [f"{key}={needed}" for key, value, needed in wanted if value != needed]


# --- Words ---


def _without_effect(search: SearchFile, equal: Sequence[NoEffect]) -> str:
    keys = list(dict.fromkeys(key for pair in equal for key in pair.keys))
    first = equal[0]
    return (
        f"{', '.join(keys)} had no effect: after epoch {search.rungs[0][0]} the models of {len(equal)} pairs of "
        f"configurations are equal bit for bit, such as {first.first} and {first.second}; take the key out of the "
        f"space, or give allow_equal: true (see {search.output_dir / PAGE}.html)"
    )


def _log_winner(search: SearchFile, halving: Halving, best: Path) -> None:
    assert halving.winner is not None
    value, epochs = halving.score(halving.winner)
    values = ", ".join(f"{key}={shown}" for key, shown in halving.configurations[halving.winner].values.items())
    log.info(
        "best of %d: configuration %d (%s), %s %.4f after epoch %d: the model is in %s",
        *(len(halving.configurations), halving.winner, values, search.measure.name, value, epochs, best),
    )
    if decided := [tie for tie in halving.ties if tie.decided]:
        log.info("%d ties decided who was kept, by the order of the configurations", len(decided))
    log.info("done: open %s", search.output_dir / f"{PAGE}.html")


def _print_first_rung(search: SearchFile, runs: SearchRuns, proposals: Proposals) -> None:
    configurations = proposals.next({})
    for item in configurations:
        for seed in search.seeds:
            print(f"{item.number}  " + ", ".join(f"{key}={value}" for key, value in item.values.items()))
            for job in runs.chain(Trial(item, seed, search.rungs[0][0])):
                print(f"   {job.line()}")
    print(f"{len(configurations)} configurations, {len(search.seeds)} runs of each; rungs {search.rungs}")
