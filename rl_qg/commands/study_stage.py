"""A study: a grid of generators, filters, amounts, resources and seeds, each cell once, and what they teach a reader.

    rl-qg study experiments/augmentation/study.yaml
    rl-qg study study.yaml output_dir=runs/mine seeds=[1,2] devices=[0,1]
    rl-qg study study.yaml --dry-run        the jobs, without running any
    rl-qg study study.yaml --tables         tables and page of what is done so far

Every job is a plain `rl-qg` command, written down in `jobs.jsonl` and beside its results (`command.txt`). After a kill
the same command goes on; a changed study file runs what it changes. The file's form and the statistics are explained
in `docs/how-to/study.md`.
"""

import fcntl
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from rl_qg.commands.cli import compose
from rl_qg.commands.open_run import pretraining_text
from rl_qg.data.splits import WORLD
from rl_qg.miniatures import cache as miniature
from rl_qg.reports.page import write_report
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import append_json_line
from rl_qg.settings import Settings
from rl_qg.studies.analysis import find_results
from rl_qg.studies.data import StudyExamples, load_examples, write_examples
from rl_qg.studies.file import Study, read_study
from rl_qg.studies.grid import KINDS, Grid, Job, is_done, make_grid
from rl_qg.studies.jobs import Outcome, found_outcome, run_jobs
from rl_qg.studies.record import write_record

log = logging.getLogger(__name__)


def run_study(file: Path, overrides: Sequence[str], *, dry_run: bool = False, tables_only: bool = False) -> Path:
    """Run what is not done, then write tables and page; return the page's path.

    Raises:
        InputError: the file or a setting is wrong, another process works on the study, or jobs have failed: their
            names and logs have then been told, and the tables show the others.
    """
    study = read_study(file, overrides)
    if tables_only:  # also while another process works on the rest
        examples, grid = plan(study)
        return tell(study, examples, grid, found_outcome(grid.jobs))
    with _alone(study.output_dir):
        examples, grid = plan(study)
        _check(study, grid)
        if dry_run:
            _show(grid)
            return study.output_dir
        _write_jobs(study, grid)
        _say(study, examples, grid)
        outcome = run_jobs(grid.jobs, study.devices, work, partial(_tidy, study, grid))
        page = tell(study, examples, grid, outcome)
    if outcome.failed:
        first = next(iter(outcome.failed))
        raise InputError(
            f"{len(outcome.failed)} of {len(grid.jobs)} jobs failed, {len(outcome.skipped)} that need them were left "
            f"out; see {study.output_dir / 'jobs' / first / 'log.txt'}, and give the same command again to go on"
        )
    return page


def plan(study: Study) -> tuple[StudyExamples, Grid]:
    """Prepare the data and the miniatures that the jobs name, and lay out the grid."""
    settings = compose("train", [f"preset={study.preset}", *study.settings, *_data(study), "output_dir=unused"])
    examples = load_examples(study, settings.data.world)
    write_examples(examples)
    models = {name: _miniatures(study, examples, name) for name in examples.resources}
    return examples, make_grid(study, examples, models)


def tell(study: Study, examples: StudyExamples, grid: Grid, outcome: Outcome) -> Path:
    """Write `study.json`, tables, curves and page of what is done so far."""
    results = find_results(study, examples, grid)
    if not results.groups:
        raise InputError(f"{study.output_dir}: no reader is done yet, so there is nothing to show")
    write_record(results, grid, outcome.failed, outcome.skipped)
    page = study.output_dir / "study.html"
    write_report([study.output_dir], page)
    return page


def work(command: str, arguments: Sequence[str]) -> None:
    """One command in a worker, as if it were typed."""
    from rl_qg.commands.cli import main

    sys.argv = ["rl-qg", command, *arguments]  # what the run record shows
    main()


def _data(study: Study) -> list[str]:
    return [f"data.train={WORLD}", f"data.validation={WORLD}"] if study.data.train == WORLD else []


def _miniatures(study: Study, examples: StudyExamples, resource: str) -> list[str]:
    """Overrides that put folders in the place of the miniatures which the settings name for a resource.

    They are pretrained once, on what the resource knows; the jobs' own data would make others of each augmented file.
    """
    options = next(item for item in study.resources if item.name == resource)
    given = [f"preset={study.preset}", *study.settings, *options.settings, *_data(study), "output_dir=unused"]
    settings: Settings = compose("train", given)
    named = {"model.path": settings.model.path, "qa.model.path": settings.qa.model.path}
    named |= {f"reward_models.{key}": path for key, path in settings.reward_models.items()}
    wanted = {key: path for key, path in named.items() if miniature.is_miniature(path)}
    if not wanted:
        return []
    text = pretraining_text(replace(settings.data, train=study.data.train), examples.resources[resource].text)
    folders = miniature.ensure(list(wanted.values()), text, settings.miniature)
    return [f"{key}={folders[path]}" for key, path in wanted.items()]


def _check(study: Study, grid: Grid) -> None:
    """Compose one job of each kind that differs in more than data, so that a wrong override is told at once."""
    seen = set()
    for cell in grid.cells:
        key = (cell.resource, cell.generator, cell.filter)
        for job in (cell.trained, cell.generate, cell.augment, cell.reader):
            if job is not None and (job.kind, *key) not in seen and cell.seed == study.seeds[0] and not is_done(job):
                compose(job.command, job.arguments)
        seen |= {(kind, *key) for kind in KINDS}


def _tidy(study: Study, grid: Grid, job: Job) -> None:
    """Delete what nothing reads any more: checkpoints, and weights of readers that have answered."""
    for checkpoint in [*job.out.rglob("checkpoint-*")]:
        shutil.rmtree(checkpoint)
    baselines = {cell.reader.name for cell in grid.cells if cell.amount == 0}  # filters may ask these
    if job.kind == "reader" and not study.keep_readers and job.name not in baselines:
        for weights in job.out.rglob("*.safetensors"):
            weights.unlink()


def _write_jobs(study: Study, grid: Grid) -> None:
    path = study.output_dir / "jobs.jsonl"
    path.unlink(missing_ok=True)
    for job in grid.jobs:
        append_json_line(path, {"name": job.name, "needs": list(job.needs), "command": job.line()})


def _show(grid: Grid) -> None:
    for job in grid.jobs:
        print(f"{'done' if is_done(job) else 'to do'}  {job.name}\n       {job.line()}")
    print(_counts(grid))


def _say(study: Study, examples: StudyExamples, grid: Grid) -> None:
    for name, data in examples.resources.items():
        log.info("resource %s: %d gold questions, %d answers to ask for", name, len(data.gold), len(data.spans))
    log.info("%s; %d workers: %s", _counts(grid), len(study.devices), ", ".join(study.devices))


def _counts(grid: Grid) -> str:
    counts = Counter(job.kind for job in grid.jobs)
    parts = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
    done = sum(is_done(job) for job in grid.jobs)
    return f"{len(grid.cells)} readers in the grid; {len(grid.jobs)} jobs ({parts}), {done} done"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second runner out of the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / "study.lock").open("a")
    except OSError as error:
        raise InputError(f"output_dir={folder}: cannot be written ({error.strerror}); name another folder") from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"output_dir={folder}: another rl-qg study works there; wait for it, or stop it"
            ) from None
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield
