"""A study: a grid of generators, filters, amounts, resources and seeds, and the reading scores of each cell.

    rl-qg study experiments/augmentation/study.yaml
    rl-qg study study.yaml output_dir=runs/mine seeds=[1,2] devices=[0,1]
    rl-qg study study.yaml --dry-run        print the jobs, run none
    rl-qg study study.yaml --tables         tables and page of what is done so far

Every job is a plain `rl-qg` command, written to `jobs.jsonl` and beside its results (`command.txt`). After an
interruption the same command goes on; a changed study file runs what it changes. `docs/how-to/study.md` explains the
file and the statistics.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from rewards.loading import own_code_only
from rl_qg.commands.compose import compose
from rl_qg.commands.load_miniatures import pretraining_text
from rl_qg.miniatures.cache import ensure_miniatures, is_miniature
from rl_qg.readers.reader_comparison import count_updates
from rl_qg.reports.page import write_report
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import append_json_line
from rl_qg.runtime.locks import locked
from rl_qg.settings import Settings
from rl_qg.settings.data import WORLD
from rl_qg.studies.analysis import StudyResults
from rl_qg.studies.grid import KINDS, Grid, Job, is_done, make_grid
from rl_qg.studies.job_pool import JobOutcomes, job_outcomes, run_jobs
from rl_qg.studies.study_data import StudyExamples, load_examples, write_examples
from rl_qg.studies.study_file import Study, read_study
from rl_qg.studies.study_output import write_study_output

log = logging.getLogger(__name__)


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
        _check(study, grid)
        if dry_run:
            _print_jobs(grid)
            return study.output_dir
        _write_jobs(study, grid)
        _log_plan(study, examples, grid)
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


def _check(study: Study, grid: Grid) -> None:
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


def _log_plan(study: Study, examples: StudyExamples, grid: Grid) -> None:
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
