"""Commands that take no time, for the pool of a study's workers; a module, so that worker processes can import it."""

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch


def work(command: str, arguments: Sequence[str]) -> None:
    folder, *rest = arguments
    with Path(folder).open("a") as stream:
        stream.write(f"{command} {' '.join(rest)} {os.getpid()}\n")
    globals()[f"do_{command}"](*rest)


def do_write(*rest: str) -> None:
    print("said", *rest)


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


def do_draw(name: str) -> None:
    """Leave random numbers, and then another state of everything that a command may touch."""
    drawn = [torch.rand(1).item(), float(numpy.random.rand()), random.random()]
    seen = [os.environ.get("LEFT_BEHIND"), os.getcwd(), os.environ["CUDA_VISIBLE_DEVICES"], torch.get_num_threads()]
    Path(name).write_text(repr([drawn, seen]))
    os.environ["LEFT_BEHIND"] = "yes"
    os.chdir("/")
