"""Jobs on a cluster by its scheduler, with submitit: the jobs of one run are one job of the cluster, in their order.

The results are in the same folders as on one machine, which all nodes must see. A search that was killed waits for the
jobs that its scheduler still runs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json, write_json
from rl_qg.studies.grid import Job, is_done
from rl_qg.studies.job_pool import JobOutcomes, job_outcomes, run_jobs

MINUTES = 24 * 60  # of a job, where the parameters say nothing


def run_on_cluster(
    jobs: Sequence[Job],
    on_done: Callable[[Job], None],
    *,
    kind: str,
    parameters: Mapping[str, Any],
    folder: Path,
    device: str,
    threads: int | None = None,
    program: str = "rl_qg",
) -> JobOutcomes:
    """Submit what is not done, wait, and return what the folders of the jobs say.

    Args:
        jobs: each after those it needs; those with the same `exclusive` are one job of the cluster.
        on_done: called on the node when a job's command has ended well, before it is recorded as done.
        kind: `slurm`, or `local` for processes of this machine.
        parameters: of `submitit.AutoExecutor.update_parameters`, such as `timeout_min` and `slurm_partition`.
        folder: for the files of submitit.
        device: of every job on its node: `cpu`, or the number of a GPU.
        threads: of each job on the CPU.
        program: the module that is run with a job's command and arguments.

    Raises:
        InputError: submitit is not installed, or refuses the parameters.
    """
    try:
        import submitit
    except ImportError:
        raise InputError("cluster: submitit is not installed; pip install 'rl-qg[cluster]'") from None
    try:
        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=kind)
        executor.update_parameters(name="rl-qg", **{"timeout_min": MINUTES, **parameters})
    except Exception as error:  # submitit's own kinds, about a parameter or a scheduler that is not there
        raise InputError(f"cluster: {' '.join(str(error).split())}") from None
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.exclusive or job.name, []).append(job)
    work = partial(run_jobs, devices=[device], on_done=on_done, program=program, threads=threads)
    waiting = {}
    for name, group in groups.items():
        if all(is_done(job) for job in group):
            continue
        note = folder / f"{name}.json"
        submitted = _still_there(submitit, note, kind) or executor.submit(work, group)
        write_json(note, {"job": str(submitted.job_id), "folder": str(submitted.paths.folder)})
        waiting[name] = submitted
    with ProgressBar(total=len(groups), initial=len(groups) - len(waiting), desc="search", unit="run") as bar:
        for submitted in waiting.values():
            submitted.wait()
            bar.update()
    return job_outcomes(jobs)


def _still_there(submitit: Any, note: Path, kind: str) -> Any:
    """The job of the cluster that an earlier search submitted and that has not ended; else None."""
    if kind != "slurm" or not note.exists():
        return None
    earlier = read_json(note)
    job = submitit.SlurmJob(folder=earlier["folder"], job_id=earlier["job"])
    return None if job.done(force_check=True) else job
