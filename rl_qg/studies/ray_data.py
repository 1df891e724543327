"""Commands in parts as tasks of a Ray cluster, one stage after the other: an example, `pip install 'rl-qg[ray]'`.

    python -m rl_qg.studies.ray_data 64 generate model.path=… data.train=… output=q.jsonl -- score input=q.jsonl …

All nodes see the folder that it is started in. A part is in its files: a task that is tried again goes on from its
last whole batch, and the same command again makes what is missing.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rl_qg.data.parts import DataPart
from rl_qg.runtime.errors import InputError

RETRIES = 3  # of a part whose worker or process was killed


def run_command(arguments: Sequence[str], folder: str) -> None:
    """In a process that ends with this one. Raises `ChildProcessError` where it was killed, else `RuntimeError`."""
    command = [sys.executable, "-m", "rl_qg.studies.job_process", "rl_qg", *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, **pipes) as process:
        assert process.stderr
        last = ""
        for last in process.stderr:
            print(last, end="", file=sys.stderr)
    if process.returncode:
        raise (ChildProcessError if process.returncode < 0 else RuntimeError)(last.strip())


def run_stages(stages: Sequence[Sequence[str]], count: int, **resources: Any) -> None:
    """Run the `count` parts of each command, then their merge; `resources` of a task, such as `num_gpus=1`."""
    try:
        import ray
    except ImportError:
        raise InputError("ray is not installed; pip install 'rl-qg[ray]'") from None
    # Tasks, not `ray.data.map_batches`: rows are in files, so there is nothing for Ray to move or to hold in memory.
    options = {"max_retries": RETRIES, "retry_exceptions": [ChildProcessError], **resources}
    task, folder = ray.remote(**options)(run_command), os.getcwd()
    for stage in stages:
        outputs = [text for text in stage if text.startswith("output=")]
        if not outputs:
            raise InputError(f"{stage[0]}: output has no value; give one, such as output=questions.jsonl")
        parts = [DataPart(number + 1, count) for number in range(count)]
        files = [str(part.path(Path(outputs[-1].removeprefix("output=")), stage[0])) for part in parts]
        try:
            ray.get([task.remote([*stage, f"part={part}"], folder) for part in parts])
            ray.get(task.remote(["merge", *files, outputs[-1]], folder))
        except ray.exceptions.RayTaskError as error:
            raise InputError(str(error.cause)) from None


if __name__ == "__main__":
    number, words = "".join(sys.argv[1:2]), sys.argv[2:]
    if not number.isdecimal() or int(number) < 1 or not words:
        sys.exit("error: give the number of parts, then the commands, such as 64 generate … -- score …")
    try:
        run_stages([[*group] for end, group in groupby(words, "--".__eq__) if not end], int(number))
    except InputError as fault:
        sys.exit(f"error: {fault}")
