"""A study: a grid of generators, filters, amounts, resources and seeds, and the reading scores of each cell.

Every job is a plain `rl-qg` command, written to `jobs.jsonl` and beside its results (`command.txt`). After an
interruption the same command goes on; a changed study file runs what it changes. `docs/how-to/study.md` explains the
file and the statistics.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rl_qg.miniatures.cache import ensure_miniatures, is_miniature
from rl_qg.miniatures.in_settings import pretraining_text
from rl_qg.readers.comparison import count_updates
from rl_qg.reports.report import write_report
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import locked, write_json_lines
from rl_qg.settings import Settings
from rl_qg.settings.training import WORLD
from rl_qg.studies import jobs
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.study import KINDS, Grid, Study, StudyExamples, load_examples, make_grid, write_examples
from rl_qg.studies.study_results import StudyResults, write_study_output

log = logging.getLogger(__name__)


def run_study(
    file: str | Path,
    overrides: Sequence[str],
    compose: jobs.Compose,
    *,
    dry_run: bool = False,
    tables_only: bool = False,
    allow_imports: bool = False,
) -> Path:
    """Run what is not done, then write tables and page; return the page's path."""
    study = read_job_file(Study, file, overrides, allow_imports=allow_imports)
    if tables_only:  # also while another process runs the rest
        examples, grid = plan(study, compose)
        return write_results(study, examples, grid, jobs.job_outcomes(grid.jobs))
    with locked([("output_dir", study.output_dir)]):
        examples, grid = plan(study, compose)
        jobs.check_keys(grid.jobs, compose)
        counts = f"{len(grid.cells)} readers in the grid; {jobs.count_jobs(grid.jobs, KINDS)}"
        if dry_run:
            jobs.print_jobs(grid.jobs)
            print(counts)
            return study.output_dir
        lines = ({"name": job.name, "needs": list(job.needs), "command": job.line()} for job in grid.jobs)
        write_json_lines(study.output_dir / "jobs.jsonl", lines)
        for name, data in examples.resources.items():
            what = "resource %s: %d gold questions, questions generated for %d answers"
            log.info(what, name, len(data.gold), len(data.spans))
        log.info("%s; %d at a time: %s", counts, len(study.devices), ", ".join(study.devices))
        baselines = {cell.reader.name for cell in grid.cells if cell.amount == 0}

        def delete_unneeded(job: jobs.Job) -> None:
            """What no other job reads: checkpoints, and the weights of readers that no filter may use."""
            jobs.delete_checkpoints(job)
            if job.kind == "reader" and not study.keep_readers and job.name not in baselines:
                for weights in job.results.rglob("*.safetensors"):
                    weights.unlink()

        outcomes = jobs.run_jobs(grid.jobs, study.devices, delete_unneeded)
        failed = None
        if outcomes.failed:
            log_file = study.output_dir / "jobs" / next(iter(outcomes.failed)) / "log.txt"
            failed = InputError(
                f"{len(outcomes.failed)} of {len(grid.jobs)} jobs failed, {len(outcomes.skipped)} that need them were "
                f"left out; see {log_file}, and give the same command again to go on"
            )
            if not StudyResults(study, examples, grid).groups:
                raise failed
        page = write_results(study, examples, grid, outcomes)
    if failed:
        raise failed
    return page


def plan(study: Study, compose: jobs.Compose) -> tuple[StudyExamples, Grid]:
    data = [f"data.train={WORLD}", f"data.validation={WORLD}"] if study.data.train == WORLD else []

    def composed(specific: Sequence[str] = ()) -> Settings:
        return compose("train", [f"preset={study.preset}", *study.settings, *specific, *data, "output_dir=unused"])

    examples = load_examples(study, composed().data.world)
    write_examples(examples)
    settings = {name: composed(resource.settings) for name, resource in study.resources.items()}
    miniatures = dict[str, list[str]]()
    for name, own in settings.items():
        models = {"model.path": own.model.path, "qa.model.path": own.qa.model.path}
        models |= {f"reward_models.{key}": path for key, path in own.reward_models.items()}
        del models["reward_models.reader"]  # comes with the package or has to be taught: it is not pretrained
        wanted = {key: path for key, path in models.items() if is_miniature(path)}
        # Pretrained once, on the text of the resource: each job would pretrain others, on its own data.
        folders = dict[str, Path]()
        if wanted:
            text = examples.resources[name].text
            passages = pretraining_text(replace(own.data, train=study.data.train), text)
            folders = ensure_miniatures(list(wanted.values()), passages, own.miniature)
        miniatures[name] = [f"{key}={folders[path]}" for key, path in wanted.items()]
    return examples, make_grid(study, examples, miniatures, updates_of_readers(study, examples, settings))


def write_results(study: Study, examples: StudyExamples, grid: Grid, outcomes: jobs.JobOutcomes) -> Path:
    results = StudyResults(study, examples, grid)
    if not results.groups:
        raise InputError(f"{study.output_dir}: no reader is done yet, so there is nothing to show")
    write_study_output(results, grid, outcomes.failed, outcomes.skipped)
    page = study.output_dir / "study.html"
    write_report([study.output_dir], page)
    return page


def updates_of_readers(study: Study, examples: StudyExamples, settings: Mapping[str, Settings]) -> dict[str, int]:
    """For each resource the updates of every reader: those of the reader on most questions, one window a question.

    A resource whose readers have a number of updates of their own (`qa.max_steps`), or train by epochs
    (`qa.equal_updates=false`), is left out.
    """
    updates = {}
    for name, qa in ((name, own.qa) for name, own in settings.items()):
        if qa.equal_updates and qa.max_steps <= 0:
            questions = len(examples.resources[name].gold) * (1 + max(study.amounts))
            updates[name] = count_updates(round(questions * (1 + qa.unanswerable)), qa, processes=1)
    return updates
