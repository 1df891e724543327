"""The two `sbatch` lines of docs/how-to/parts.md, by a stand-in that runs jobs at once on this machine.

It does what `man sbatch` says of the options on the page: `--array` runs the wrapped command with
`SLURM_ARRAY_TASK_ID`; `--requeue` runs a task again that a signal has ended; `--dependency=afterok` runs a job only if
all tasks of the other have ended with 0; `--parsable` prints the number of the job alone.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rl_qg.runtime.files import read_json
from tests.processes import ROOT, user_environment

PAGE = ROOT / "docs" / "how-to" / "parts.md"
ON_PAGE = "rl-qg generate part=$SLURM_ARRAY_TASK_ID/64 model.path=RUN/scst data.train=train.json"
SBATCH = """
import argparse, os, pathlib, signal, subprocess, sys, time
known = argparse.ArgumentParser()
for flag in ("--parsable", "--requeue"):
    known.add_argument(flag, action="store_true")
for option in ("--array", "--dependency", "--kill-on-invalid-dep", "--wrap"):
    known.add_argument(option)
given, jobs = known.parse_args(), pathlib.Path("jobs")
jobs.mkdir(exist_ok=True)
number = 1 + len([*jobs.iterdir()])
kind, _, needed = (given.dependency or ":").partition(":")
assert kind in ("", "afterok"), kind
if needed and (jobs / needed).read_text() != "COMPLETED":
    (jobs / str(number)).write_text("CANCELLED")
    sys.exit(print(number))
first, last = map(int, (given.array or "0-0").split("-"))
state = "COMPLETED"
for task in range(first, last + 1):
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
    process = subprocess.Popen(["sh", "-c", "exec " * bool(given.array) + given.wrap], env=environment)
    if os.environ.get("PREEMPTED") == str(task):  # once it has written something
        part = pathlib.Path(os.environ["WRITES"])
        while process.poll() is None and not (part.exists() and part.stat().st_size):
            time.sleep(0.02)
        process.kill()
    if process.wait() == -signal.SIGKILL and given.requeue:
        pathlib.Path("requeued").write_text(str(part.stat().st_size))
        process = subprocess.Popen(["sh", "-c", given.wrap], env=environment)
    if process.wait():
        state = "FAILED"
(jobs / str(number)).write_text(state)
print(number if given.parsable else f"Submitted batch job {number}")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """An environment with `sbatch` and `rl-qg`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "sbatch.py").write_text(SBATCH)
    scripts = {"sbatch": f"{tmp_path / 'sbatch.py'}", "rl-qg": "-m rl_qg"}
    for name, runs in scripts.items():
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {runs} "$@"\n')
        script.chmod(0o755)
    environment = user_environment(tmp_path)
    return {**environment, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def submit(place: Path, environment: dict[str, str]) -> None:
    """Both lines of the page, for two parts of the answers of `in.txt`."""
    (lines,) = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert lines.count("sbatch ") == 2 and ON_PAGE in lines
    lines = lines.replace(ON_PAGE, "rl-qg answers in.txt part=$SLURM_ARRAY_TASK_ID/64 batch_size=4").replace("64", "2")
    subprocess.run(["sh", "-c", lines], cwd=place, env=environment, check=True, capture_output=True)


@pytest.mark.slow
def test_parts_and_their_merge_are_two_jobs_that_survive_a_kill(tmp_path: Path, cluster: dict[str, str]) -> None:
    texts = "\n".join(f"House {k} was built in {1900 + k} by Anna Berg." for k in range(1_500))
    (place := tmp_path / "run").mkdir()
    (place / "in.txt").write_text("")  # each part ends with an error
    submit(place, cluster)
    assert [(place / "jobs" / number).read_text() for number in "12"] == ["FAILED", "CANCELLED"]
    assert not (place / "questions.jsonl").exists()
    (place / "in.txt").write_text(texts)
    part = place / "questions.part-2-of-2.jsonl"
    submit(place, cluster | {"PREEMPTED": "2", "WRITES": str(part)})
    assert (place / "jobs" / "4").read_text() == "COMPLETED"
    assert 0 < int((place / "requeued").read_text()) < part.stat().st_size  # it was killed within its work
    assert read_json(part.with_name(f"{part.name}.settings.json"))["whole"]["rows"] > 300
    whole = ["rl-qg", "answers", "in.txt", "batch_size=4", "output=whole.jsonl"]
    subprocess.run(whole, cwd=place, env=cluster, check=True, capture_output=True)
    assert (place / "questions.jsonl").read_bytes() == (place / "whole.jsonl").read_bytes()
