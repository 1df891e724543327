"""Transfer between data sets: generators trained on some, tested on others, in one table.

    rl-qg bench transfer transfer.yaml output_dir=runs/transfer
    rl-qg bench transfer transfer.yaml --dry-run        print the jobs, run none

Every job is a plain `rl-qg` command. After an interruption the same command goes on; a changed file runs what it
changes. `docs/reference/bench.md` explains the file.
"""

import logging
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rewards.loading import own_code_only
from rl_qg.bench.transfer_file import Transfer, read_transfer
from rl_qg.bench.transfer_jobs import KINDS, TransferPlan, make_plan
from rl_qg.bench.transfer_table import write_transfer
from rl_qg.commands.compose import compose
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.locks import locked
from rl_qg.studies.grid import Job, is_done
from rl_qg.studies.job_pool import run_jobs

log = logging.getLogger(__name__)


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
        _check(plan)
        _log_plan(plan)
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


def _check(plan: TransferPlan) -> None:
    """Compose the settings of each job, of one seed, so that a wrong override ends the command before it begins."""
    checked = set()
    for job in plan.jobs:
        name = job.name.rpartition("-s")[0]
        if name not in checked and not is_done(job):
            compose(job.command, job.arguments)
            checked.add(name)
    if not plan.jobs:
        raise InputError("no cell can be made: " + "; ".join(f"{cell.name}: {cell.why}" for cell in plan.cells))


def _log_plan(plan: TransferPlan) -> None:
    counts = {kind: sum(job.kind == kind for job in plan.jobs) for kind in KINDS}
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
