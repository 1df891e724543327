"""`launcher=submitit parts=n`: the parts of a command as jobs of a scheduler, and their merge as a job after them."""

import logging
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from rl_qg.commands.catalogue import section_of
from rl_qg.commands.outputs import required
from rl_qg.data.parts import DataPart
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.settings import Settings
from rl_qg.studies.jobs import cluster_executor

log = logging.getLogger(__name__)


class CommandLine(NamedTuple):
    """A job of submitit, which is queued again at the end of its time because it has a `checkpoint`."""

    arguments: Sequence[str]

    def __call__(self) -> None:
        if os.environ["SUBMITIT_EXECUTOR"] == "local":  # SLURM's SIGTERM is a warning, which submitit passes over
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.argv = ["rl-qg", *self.arguments]
        runpy.run_module("rl_qg", run_name="__main__")

    def checkpoint(self) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def launch(command: str, arguments: Sequence[str], settings: Settings) -> None:
    """Submit all and return; with `cluster.kind=local` wait, and merge. `settings` are composed of the `arguments`."""
    output = required(getattr(settings, section_of(command)).output, "output", "questions.jsonl")
    kind, parameters, count = settings.cluster.kind, settings.cluster.parameters, settings.parts or 1
    parts, folder = [DataPart(number + 1, count) for number in range(count)], output.with_name(f"{output.stem}.jobs")
    merge = CommandLine(["merge", *(str(part.path(output, command)) for part in parts), f"output={output}"])
    alike = [command, *arguments, "launcher=null", "parts=null"]  # later values replace earlier ones
    more = {"requeue": True, "kill-on-invalid-dep": "yes", **parameters.get("slurm_additional_parameters", {})}
    with cluster_executor(kind, {**parameters, "slurm_additional_parameters": more}, folder) as executor:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # local jobs inherit it: this process alone is interrupted
        jobs = executor.submit_array([CommandLine([*alike, f"part={part}"]) for part in parts])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind == "slurm":
            array = jobs[0].job_id.partition("_")[0]
            log.info("submitted: the parts as job %s; logs: %s", array, folder)  # also if their merge is refused
            executor.update_parameters(slurm_dependency=f"afterok:{array}")
            return log.info("submitted: their merge as job %s", executor.submit(merge).job_id)
    try:
        for job in ProgressBar(jobs, desc="parts", unit="part"):
            job.wait()
    finally:
        for job in (job for job in jobs if not job.done()):
            os.kill(int(job.job_id), signal.SIGTERM)
        for job in jobs:
            job.wait()
    for part, job in zip(parts, jobs, strict=True):
        if not job.paths.result_pickle.exists():
            said = next((x for x in reversed((job.stderr() or "").splitlines()) if x.startswith("rl-qg ")), "killed")
            raise InputError(f"part {part}: {said}; not merged; the same command goes on (log: {job.paths.stderr})")
    import_module("rl_qg.commands.generation").merge(merge.arguments[1:])  # only now: submitting stays quick
