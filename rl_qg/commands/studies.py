"""`rl-qg bench`: data of a benchmark, tables of transfer, and the leaderboard.

    rl-qg bench data data=squad.json output_dir=bench/squad
    rl-qg bench transfer transfer.yaml output_dir=runs/transfer
    rl-qg bench report runs/eval-en german=runs/eval-de output=leaderboard

Each subcommand reads its own arguments. `docs/reference/bench.md` explains them.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rewards.loading import own_code_only
from rl_qg.commands.catalogue import CONFIGS, suggestion
from rl_qg.commands.compose import compose
from rl_qg.commands.miniatures import pretraining_text
from rl_qg.data.formats import existing_file, is_hub_name
from rl_qg.miniatures.cache import ensure_miniatures, is_miniature
from rl_qg.readers.comparison import count_updates
from rl_qg.reports.report import write_report
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import append_json_line, file_hash, locked
from rl_qg.settings import Settings
from rl_qg.settings.training import WORLD
from rl_qg.studies.halving import Configuration, Halving, NoEffect, Trial
from rl_qg.studies.jobs import JobOutcomes, job_outcomes, run_jobs, run_on_cluster
from rl_qg.studies.search import (
    PAGE,
    RunJobs,
    RunPlan,
    SearchFile,
    SearchRuns,
    best_trial,
    origin_of,
    read_search,
    write_best,
    write_search,
)
from rl_qg.studies.search_space import OptunaProposals, Proposals, grid, randomly
from rl_qg.studies.study import Study, StudyExamples, load_examples, read_study, write_examples
from rl_qg.studies.study_grid import KINDS, Grid, Job, is_done, make_grid
from rl_qg.studies.study_results import StudyResults, write_study_output
from rl_qg.studies.transfer import JOB_KINDS, Transfer, TransferPlan, make_plan, read_transfer, write_transfer

# A search for the best settings of a training: the best of many configurations after little training go on.
#
# rl-qg search search.yaml rl-qg search qg-bench data.train=train.json data.validation=dev.json output_dir=runs/search
# rl-qg search search.yaml --dry-run print the configurations and the commands of the first rung, run none
#
# Every run is a plain `rl-qg train`, and after an interruption the same command goes on. `docs/how-to/search.md`
# explains the file and what is written.


SEARCHES = CONFIGS / "search"
log = logging.getLogger(__name__)


def search(arguments: Sequence[str]) -> None:
    """The command: a search file, `key=value` of that file, and `--dry-run` or `--allow-imports`."""
    flags = {"--dry-run": "dry_run", "--allow-imports": "allow_imports"}
    chosen = {name: flag in arguments for flag, name in flags.items()}
    name, *overrides = [text for text in arguments if text not in flags] or [""]
    if not name or name.startswith("-") or "=" in name:
        raise InputError(f"give a search file first, or one of {', '.join(shipped_searches())}; such as rl-qg search "
                         "search.yaml")  # fmt: skip
    with nullcontext() if chosen["allow_imports"] else own_code_only():
        read = read_search(name, overrides, shipped_searches(), allow_imports=chosen["allow_imports"])
        with locked([("output_dir", read.output_dir)]):
            run_search(read, dry_run=chosen["dry_run"])


def shipped_searches() -> Mapping[str, Path]:
    """The search files that come with the package, by name."""
    return {path.stem: path for path in sorted(SEARCHES.glob("*.yaml"), key=lambda path: path.stem)}


def run_search(search: SearchFile, *, dry_run: bool = False, run: RunJobs | None = None) -> None:
    """Run what is not done and write the results.

    Args:
        search: the search file.
        dry_run: only print what the first rung would run.
        run: runs jobs; None: as the file says, on this machine or on a cluster.

    Raises:
        InputError: a wrong setting; settings of the space had no effect; a configuration has failed, and the others
            are ranked.
    """
    runs = SearchRuns(search, run or _runner(search), _planner(search), _sources(search))
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
    """SHA-256 of the data files; a data set of the Hub or the embedded corpus is named by itself.

    Raises:
        InputError: there is no such file.
    """
    hashes = {}
    for name, value in {"train": search.data.train, "validation": search.data.validation}.items():
        several = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
        for number, source in enumerate(map(str.strip, several), 1):
            if not is_hub_name(source):
                hashes[name if number == 1 else f"{name}-{number}"] = file_hash(existing_file(source))
    return hashes


# --- How a configuration is trained ---


def _planner(search: SearchFile) -> Callable[[Configuration], RunPlan]:
    """Composes the settings of each configuration once, so that a wrong one ends the search before it begins."""
    plans: dict[int, RunPlan] = {}

    def plan_of(configuration: Configuration) -> RunPlan:
        if configuration.number not in plans:
            plans[configuration.number] = _plan(search, configuration)
        return plans[configuration.number]

    return plan_of


def _plan(search: SearchFile, configuration: Configuration) -> RunPlan:
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


# A study: a grid of generators, filters, amounts, resources and seeds, and the reading scores of each cell.
#
# rl-qg study experiments/augmentation/study.yaml rl-qg study study.yaml output_dir=runs/mine seeds=[1,2] devices=[0,1]
# rl-qg study study.yaml --dry-run print the jobs, run none rl-qg study study.yaml --tables tables and page of what is
# done so far
#
# Every job is a plain `rl-qg` command, written to `jobs.jsonl` and beside its results (`command.txt`). After an
# interruption the same command goes on; a changed study file runs what it changes. `docs/how-to/study.md` explains the
# file and the statistics.


def study(arguments: Sequence[str]) -> None:
    """The command: a study file, `key=value` of that file, and `--dry-run`, `--tables` or `--allow-imports`."""
    flags = {"--dry-run": "dry_run", "--tables": "tables_only", "--allow-imports": "allow_imports"}
    chosen = {name: flag in arguments for flag, name in flags.items()}
    file, *overrides = [text for text in arguments if text not in flags] or [""]
    if not file or file.startswith("-") or "=" in file:
        raise InputError("give a study file first, such as rl-qg study experiments/augmentation/study.yaml")
    with nullcontext() if chosen["allow_imports"] else own_code_only():
        log.info("done: see %s", run_study(Path(file), overrides, **chosen))


def run_study(
    file: Path,
    overrides: Sequence[str],
    *,
    dry_run: bool = False,
    tables_only: bool = False,
    allow_imports: bool = False,
) -> Path:
    """Run what is not done, then write tables and page; return the page's path.

    Raises:
        InputError: the file or a setting is wrong, another process runs the study, or jobs have failed; each failed
            job has then been named with its log, and the tables show the others.
    """
    study = read_study(file, overrides, allow_imports=allow_imports)
    if tables_only:  # also while another process runs the rest
        examples, grid = plan(study)
        return write_results(study, examples, grid, job_outcomes(grid.jobs))
    with locked([("output_dir", study.output_dir)]):
        examples, grid = plan(study)
        _check_cells(study, grid)
        if dry_run:
            _print_jobs(grid)
            return study.output_dir
        _write_jobs(study, grid)
        _log_study(study, examples, grid)
        outcomes = run_jobs(grid.jobs, study.devices, partial(_delete_unneeded, study, grid))
        page = write_results(study, examples, grid, outcomes)
    if outcomes.failed:
        first = next(iter(outcomes.failed))
        raise InputError(
            f"{len(outcomes.failed)} of {len(grid.jobs)} jobs failed, {len(outcomes.skipped)} that need them were "
            f"left out; see {study.output_dir / 'jobs' / first / 'log.txt'}, and give the same command again to go on"
        )
    return page


def plan(study: Study) -> tuple[StudyExamples, Grid]:
    """Prepare the data and the miniatures that the jobs name, and lay out the grid."""
    settings = compose("train", [f"preset={study.preset}", *study.settings, *_data(study), "output_dir=unused"])
    examples = load_examples(study, settings.data.world)
    write_examples(examples)
    miniatures = {name: _miniatures(study, examples, name) for name in study.resources}
    return examples, make_grid(study, examples, miniatures, _updates(study, examples))


def write_results(study: Study, examples: StudyExamples, grid: Grid, outcomes: JobOutcomes) -> Path:
    """Write `study.json`, tables, curves and page of what is done so far; return the page's path."""
    results = StudyResults(study, examples, grid)
    if not results.groups:
        raise InputError(f"{study.output_dir}: no reader is done yet, so there is nothing to show")
    write_study_output(results, grid, outcomes.failed, outcomes.skipped)
    page = study.output_dir / "study.html"
    write_report([study.output_dir], page)
    return page


def _data(study: Study) -> list[str]:
    return [f"data.train={WORLD}", f"data.validation={WORLD}"] if study.data.train == WORLD else []


def _updates(study: Study, examples: StudyExamples) -> dict[str, int]:
    """For each resource the updates of every reader: those of the reader on most questions, one window a question.

    A resource whose readers have a number of updates of their own (`qa.max_steps`), or train by epochs
    (`qa.equal_updates=false`), is left out.
    """
    updates = {}
    for name, resource in study.resources.items():
        overrides = [f"preset={study.preset}", *study.settings, *resource.settings, *_data(study), "output_dir=unused"]
        qa = compose("train", overrides).qa
        if qa.equal_updates and qa.max_steps <= 0:
            questions = len(examples.resources[name].gold) * (1 + max(study.amounts))
            updates[name] = count_updates(round(questions * (1 + qa.unanswerable)), qa, processes=1)
    return updates


def _miniatures(study: Study, examples: StudyExamples, resource: str) -> list[str]:
    """Overrides that name the folder of each miniature model in a resource's settings.

    They are pretrained once, on the texts of the resource; each job would pretrain others, on its own data.
    """
    specific = study.resources[resource].settings
    overrides = [f"preset={study.preset}", *study.settings, *specific, *_data(study), "output_dir=unused"]
    settings: Settings = compose("train", overrides)
    models = {"model.path": settings.model.path, "qa.model.path": settings.qa.model.path}
    models |= {f"reward_models.{key}": path for key, path in settings.reward_models.items()}
    del models["reward_models.reader"]  # comes with the package or has to be taught: it is not pretrained on passages
    wanted = {key: path for key, path in models.items() if is_miniature(path)}
    if not wanted:
        return []
    text = pretraining_text(replace(settings.data, train=study.data.train), examples.resources[resource].text)
    folders = ensure_miniatures(list(wanted.values()), text, settings.miniature)
    return [f"{key}={folders[path]}" for key, path in wanted.items()]


def _check_cells(study: Study, grid: Grid) -> None:
    """Compose the settings of each kind of job once, so that a wrong override ends the study before it begins."""
    checked = set()
    for cell in grid.cells:
        key = (cell.resource, cell.generator, cell.filter)
        for job in (cell.trained, cell.generate, cell.augment, cell.reader):
            if job is not None and (job.kind, *key) not in checked and not is_done(job):
                compose(job.command, job.arguments)
                checked.add((job.kind, *key))


def _delete_unneeded(study: Study, grid: Grid, job: Job) -> None:
    """Delete what no other job reads: checkpoints, and the weights of readers on augmented data."""
    for checkpoint in [*job.results.rglob("checkpoint-*")]:
        shutil.rmtree(checkpoint)
    baselines = {cell.reader.name for cell in grid.cells if cell.amount == 0}  # filters may use these
    if job.kind == "reader" and not study.keep_readers and job.name not in baselines:
        for weights in job.results.rglob("*.safetensors"):
            weights.unlink()


def _write_jobs(study: Study, grid: Grid) -> None:
    path = study.output_dir / "jobs.jsonl"
    path.unlink(missing_ok=True)
    for job in grid.jobs:
        append_json_line(path, {"name": job.name, "needs": list(job.needs), "command": job.line()})


def _print_jobs(grid: Grid) -> None:
    for job in grid.jobs:
        print(f"{'done' if is_done(job) else 'to do'}  {job.name}\n       {job.line()}")
    print(_counts(grid))


def _log_study(study: Study, examples: StudyExamples, grid: Grid) -> None:
    for name, data in examples.resources.items():
        log.info(
            "resource %s: %d gold questions, questions generated for %d answers", name, len(data.gold), len(data.spans)
        )
    log.info("%s; %d at a time: %s", _counts(grid), len(study.devices), ", ".join(study.devices))


def _counts(grid: Grid) -> str:
    counts = Counter(job.kind for job in grid.jobs)
    parts = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
    done = sum(is_done(job) for job in grid.jobs)
    return f"{len(grid.cells)} readers in the grid; {len(grid.jobs)} jobs ({parts}), {done} done"


# Transfer between data sets: generators trained on some, tested on others, in one table.
#
# rl-qg bench transfer transfer.yaml output_dir=runs/transfer rl-qg bench transfer transfer.yaml --dry-run print the
# jobs, run none
#
# Every job is a plain `rl-qg` command. After an interruption the same command goes on; a changed file runs what it
# changes. `docs/reference/bench.md` explains the file.


def bench_transfer(arguments: Sequence[str]) -> None:
    """The subcommand: a transfer file, `key=value` of that file, and `--dry-run` or `--allow-imports`."""
    flags = ("--dry-run", "--allow-imports")
    file, *overrides = [text for text in arguments if text not in flags] or [""]
    if not file or file.startswith("-") or "=" in file:
        raise InputError("give a transfer file first, such as rl-qg bench transfer transfer.yaml")
    allow_imports = "--allow-imports" in arguments
    with nullcontext() if allow_imports else own_code_only():
        run_transfer(Path(file), overrides, dry_run="--dry-run" in arguments, allow_imports=allow_imports)


def run_transfer(
    file: Path, overrides: Sequence[str], *, dry_run: bool = False, allow_imports: bool = False, program: str = "rl_qg"
) -> None:
    """Run what is not done, then write the table; `program` is the module that runs the jobs.

    Raises:
        InputError: the file or a setting is wrong, another process works in the folder, or jobs have failed; the
            table then names the cells that are missing, and shows the others.
    """
    transfer = read_transfer(file, overrides, allow_imports=allow_imports)
    with locked([("output_dir", transfer.output_dir)]):
        plan = make_plan(transfer)
        _check_transfer(plan)
        _log_transfer(plan)
        if dry_run:
            for job in plan.jobs:
                print(f"{'done' if is_done(job) else 'to do'}  {job.name}\n       {job.line()}")
            return
        outcomes = run_jobs(plan.jobs, transfer.devices, _delete_checkpoints, program=program, title="transfer")
        table = write_transfer(transfer, plan, outcomes)
    log.info("%s", table)
    if outcomes.failed:
        _raise_failed(transfer, plan, {*outcomes.failed, *outcomes.skipped})
    log.info("done: see %s", transfer.output_dir / "transfer.md")


def _check_transfer(plan: TransferPlan) -> None:
    """Compose the settings of each job, of one seed, so that a wrong override ends the command before it begins."""
    checked = set()
    for job in plan.jobs:
        name = job.name.rpartition("-s")[0]
        if name not in checked and not is_done(job):
            compose(job.command, job.arguments)
            checked.add(name)
    if not plan.jobs:
        raise InputError("no cell can be made: " + "; ".join(f"{cell.name}: {cell.why}" for cell in plan.cells))


def _log_transfer(plan: TransferPlan) -> None:
    counts = {kind: sum(job.kind == kind for job in plan.jobs) for kind in JOB_KINDS}
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    done = sum(map(is_done, plan.jobs))
    log.info("%d cells; %d jobs (%s), %d done", len(plan.cells), len(plan.jobs), parts, done)
    for cell in plan.cells:
        if cell.why:
            log.info("left out: %s: %s", cell.name, cell.why)
        if cell.seen:
            log.warning("%s: %d passages of the test data are in the data it learns from", cell.name, cell.seen)


def _delete_checkpoints(job: Job) -> None:
    for checkpoint in [*job.results.rglob("checkpoint-*")]:
        shutil.rmtree(checkpoint)


def _raise_failed(transfer: Transfer, plan: TransferPlan, unfinished: set[str]) -> None:
    cells = [cell.name for cell in plan.cells if unfinished & {job.name for job in cell.jobs}]
    raise InputError(
        f"{len(cells)} of {len(plan.cells)} cells failed ({'; '.join(cells[:3])}{'; …' if len(cells) > 3 else ''}); "
        f"see {transfer.output_dir / 'transfer.md'} and the logs below {transfer.output_dir / 'jobs'}, and give the "
        "same command again to go on"
    )


def bench(arguments: Sequence[str]) -> None:
    """The command: the name of a subcommand, then its arguments."""
    name, *rest = arguments or [""]
    if name not in SUBCOMMANDS:
        raise InputError(
            f"bench {name}".strip() + f": no such subcommand{suggestion(name, SUBCOMMANDS)}; choose one of "
            f"{', '.join(SUBCOMMANDS)}, such as rl-qg bench data data=squad.json output_dir=bench/squad"
        )
    SUBCOMMANDS[name](rest)


def data(arguments: Sequence[str]) -> None:
    """Read, divide and write data (`rl_qg.bench.benchmark_data`)."""
    from rl_qg.bench.benchmark_data import write_bench_data

    if not any(text.startswith("output_dir=") for text in arguments):
        raise InputError("output_dir has no value; give a folder, such as output_dir=bench/squad")
    settings = compose("bench", arguments)
    folder = Path(settings.output_dir)
    with locked([("output_dir", folder)]):
        write_bench_data(settings.bench, folder)


def report(arguments: Sequence[str]) -> None:
    """One page of results of several models on several data (`rl_qg.bench.leaderboard`)."""
    from rl_qg.bench.leaderboard import write_leaderboard
    from rl_qg.pages.results import check_folder

    outputs = [text.partition("=")[2] for text in arguments if text.startswith("output=")]
    results = [_named_result(text) for text in arguments if not text.startswith("output=")]
    if len(outputs) > 1 or not results or any(name == "" or str(path).startswith("-") for name, path in results):
        raise InputError(
            "give results and one output=FOLDER, such as rl-qg bench report runs/eval-en german=runs/eval-de "
            "output=leaderboard"
        )
    folder = check_folder(outputs[0] if outputs else "", "leaderboard", name="leaderboard")
    with locked([("output", folder)]):
        write_leaderboard(results, folder)


def _named_result(text: str) -> tuple[str | None, Path]:
    """A result, and the name of its data where it has the form NAME=RESULT."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).expanduser().exists():
        return None, Path(text).expanduser()
    return name, Path(path).expanduser()


def transfer(arguments: Sequence[str]) -> None:
    """Generators trained on some data and tested on others (`rl_qg.commands.studies`)."""
    bench_transfer(arguments)


SUBCOMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"data": data, "transfer": transfer, "report": report}
