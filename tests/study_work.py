"""A program in place of `rl_qg` for the tests of a study's jobs: commands that take little time, and record their
calls in the file that their first argument names.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

PROGRAM = "tests.study_work"


def main() -> None:
    command, calls, *arguments = sys.argv[1:]
    with Path(calls).open("a") as stream:
        stream.write(f"{command} {' '.join(arguments)} {os.getpid()}\n")
    globals()[f"do_{command}"](*arguments)


def do_write(*words: str) -> None:
    print("wrote", *words)


def do_import(path: str) -> None:
    import rewards
    from rl_qg.augmentation.augment import import_target

    for load in (rewards.load, lambda name: import_target("filters.own", name)):
        try:
            print("imported", load(path))
        except ValueError as error:
            print("refused", error)


def do_fail(reason: str) -> None:
    print(reason, file=sys.stderr)
    sys.exit(2)


def do_crash(reason: str) -> None:
    raise ValueError(reason)


def do_die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def do_wait(seconds: str, name: str) -> None:
    log = Path(name)
    with log.open("a") as stream:
        stream.write(f"begin {time.monotonic()}\n")
    time.sleep(float(seconds))
    with log.open("a") as stream:
        stream.write(f"end {time.monotonic()}\n")


def do_inspect(name: str) -> None:
    """Write down what the process was started with, then change it."""
    seen = {key: os.environ.get(key) for key in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "LEFT_BY_A_JOB")}
    Path(name).write_text(json.dumps({**seen, "folder": os.getcwd(), "command": sys.argv}))
    os.environ["LEFT_BY_A_JOB"] = "yes"
    os.chdir("/")


if __name__ == "__main__":
    main()
