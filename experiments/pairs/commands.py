"""Commands of `rl-qg` in processes of one thread each, with their output in files."""

import os
import subprocess
import sys
from pathlib import Path


def run(command: str, *options: str) -> None:
    """Run one command of rl-qg; its output goes to a file beside its folder."""
    target = next(value.partition("=")[2] for value in options if value.startswith(("output_dir=", "output=")))
    start(f"{command} {target}", Path(f"{target}.{command}.log"), ["-m", "rl_qg", command, *options])


def start(name: str, log: Path, arguments: list) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as stream:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, *map(str, arguments)], stdout=stream, stderr=stream, env=environment)
    print(f"{'done' if done.returncode == 0 else 'FAILED'}: {name}", flush=True)
    done.check_returncode()
