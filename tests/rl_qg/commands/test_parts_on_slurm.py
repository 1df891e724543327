"""The parts of a command and their merge as jobs of SLURM, by a stand-in that runs them on this machine.

Submitted are the two `sbatch` lines of docs/how-to/parts.md, or what `launcher=submitit` makes. The stand-in does what
`man sbatch` says of their options: `--array` runs the command or script with `SLURM_ARRAY_TASK_ID`; `--requeue` runs a
task again that a signal has ended; `--dependency=afterok` runs a job only if all tasks of the other have ended with 0;
`--parsable` prints the number of the job alone. A script gives its options in `#SBATCH` lines.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_qg.runtime.files import read_json
from tests.processes import ROOT, user_environment

PAGE = ROOT / "docs" / "how-to" / "parts.md"
ON_PAGE = "rl-qg generate part=$SLURM_ARRAY_TASK_ID/64 model.path=RUN/scst data.train=train.json"
SBATCH = """
import argparse, os, pathlib, shlex, signal, subprocess, sys, time
known = argparse.ArgumentParser()
for flag in ("--parsable", "--requeue"):
    known.add_argument(flag, action="store_true")
for option in ("--array", "--dependency", "--kill-on-invalid-dep", "--wrap"):
    known.add_argument(option)
for option in ("job-name", "time", "nodes", "signal", "output", "error", "open-mode", "wckey", "partition"):
    known.add_argument(f"--{option}")
known.add_argument("script", nargs="?")
given, jobs = known.parse_args(), pathlib.Path("jobs")
command = given.wrap
if given.script:
    command = f"bash {shlex.quote(given.script)}"
    lines = pathlib.Path(given.script).read_text().splitlines()
    given = known.parse_args([shlex.split(line)[1] for line in lines if line.startswith("#SBATCH")])
jobs.mkdir(exist_ok=True)
number = 1 + len([*jobs.iterdir()])
if given.dependency and "REFUSED" in os.environ:
    sys.exit("sbatch: error: " + os.environ["REFUSED"])
def enter(state):
    pathlib.Path(f"state-{number}").write_text(state)
    os.replace(f"state-{number}", jobs / str(number))
enter("PENDING")
print(number if given.parsable else f"Submitted batch job {number}", flush=True)
if os.fork():
    os._exit(0)
for stream in (1, 2):
    os.dup2(os.open("slurm.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
kind, _, needed = (given.dependency or ":").partition(":")
assert kind in ("", "afterok"), kind
while needed and (jobs / needed).read_text() == "PENDING":
    time.sleep(0.1)
if needed and (jobs / needed).read_text() != "COMPLETED":
    assert given.kill_on_invalid_dep == "yes"
    sys.exit(enter("CANCELLED"))
first, last = map(int, (given.array or "0-0").partition("%")[0].split("-"))
ended = "COMPLETED"
for task in range(first, last + 1):
    environment = {**os.environ, "SLURM_JOB_ID": str(number)}
    if given.array:
        environment |= {"SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": str(task)}
    process = subprocess.Popen(["sh", "-c", "exec " + command], env=environment, start_new_session=True)
    if given.array and os.environ.get("PREEMPTED") == str(task):  # once it has written something
        part = pathlib.Path(os.environ["WRITES"])
        while process.poll() is None and not (part.exists() and part.stat().st_size):
            time.sleep(0.02)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if process.wait() == -signal.SIGKILL and given.requeue:
        pathlib.Path("requeued").write_text(str(part.stat().st_size))
        process = subprocess.Popen(["sh", "-c", command], env=environment)
    if process.wait():
        ended = "FAILED"
enter(ended)
"""
SRUN = """
import argparse, os, sys
known = argparse.ArgumentParser()
known.add_argument("--unbuffered", action="store_true")
for option in ("--output", "--error"):
    known.add_argument(option)
given, command = known.parse_known_args()
task = os.environ.get("SLURM_ARRAY_TASK_ID", "")
for stream, name in ((1, given.output), (2, given.error)):
    name = name.replace("%t", "0").replace("%j", os.environ["SLURM_JOB_ID"])
    name = name.replace("%A", os.environ["SLURM_JOB_ID"]).replace("%a", task)
    os.makedirs(os.path.dirname(name), exist_ok=True)
    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
os.execvp(command[0], command)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """An environment with `sbatch`, `srun` and `rl-qg`."""
    (tmp_path / "bin").mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN}.items():
        (tmp_path / f"{name}.py").write_text(text)
    scripts = {"sbatch": f"{tmp_path / 'sbatch.py'}", "srun": f"{tmp_path / 'srun.py'}", "rl-qg": "-m rl_qg"}
    for name, runs in scripts.items():
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {runs} "$@"\n')
        script.chmod(0o755)
    environment = user_environment(tmp_path)
    return {**environment, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def by_page(place: Path, environment: dict[str, str]) -> None:
    """Both lines of the page, for two parts of the answers of `in.txt`."""
    (lines,) = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert lines.count("sbatch ") == 2 and ON_PAGE in lines
    lines = lines.replace(ON_PAGE, "rl-qg answers in.txt part=$SLURM_ARRAY_TASK_ID/64 batch_size=4").replace("64", "2")
    subprocess.run(["sh", "-c", lines], cwd=place, env=environment, check=True, capture_output=True)


def by_launcher(place: Path, environment: dict[str, str]) -> None:
    """The same by one command; tasks are counted from 0."""
    pytest.importorskip("submitit")
    command = "rl-qg answers in.txt launcher=submitit parts=2 batch_size=4 output=questions.jsonl"
    parameters = "cluster.parameters={timeout_min: 60, slurm_partition: gpu}"
    environment = environment | ({"PREEMPTED": "1"} if "PREEMPTED" in environment else {})
    run = subprocess.run([*command.split(), parameters], cwd=place, env=environment, capture_output=True, text=True)
    said = r"submitted: the parts as job (\d); logs: questions.jobs\nsubmitted: their merge as job (\d)\n"
    assert run.returncode == 0 and (ids := re.fullmatch(said, run.stderr)), run.stderr
    assert int(ids[2]) == int(ids[1]) + 1


@pytest.mark.slow
def test_parts_whose_merge_is_refused_are_named(tmp_path: Path, cluster: dict[str, str]) -> None:
    pytest.importorskip("submitit")
    (tmp_path / "in.txt").write_text("House 1 was built in 1901 by Anna Berg.")
    command = "rl-qg answers in.txt launcher=submitit parts=2 output=questions.jsonl"
    environment = cluster | {"REFUSED": "the queue is full"}
    run = subprocess.run(command.split(), cwd=tmp_path, env=environment, capture_output=True, text=True)
    submitted, *_, error = run.stderr.splitlines()
    assert submitted == "submitted: the parts as job 1; logs: questions.jobs"
    assert error.startswith("rl-qg answers: error: cluster: ") and "the queue is full" in error
    assert run.returncode == 2 and ended(tmp_path, "1") == ["COMPLETED"]


def ended(place: Path, *numbers: str) -> list[str]:
    """How jobs have ended; waits for it."""
    states, start = [(place / "jobs" / number) for number in numbers], time.monotonic()
    while "PENDING" in (found := [state.read_text() for state in states]) and time.monotonic() < start + 250:
        time.sleep(0.1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("submit", [by_page, by_launcher])
def test_parts_and_their_merge_are_two_jobs_that_survive_a_kill(
    tmp_path: Path, cluster: dict[str, str], submit: Callable[[Path, dict[str, str]], None]
) -> None:
    texts = "\n".join(f"House {k} was built in {1900 + k} by Anna Berg." for k in range(1_500))
    (place := tmp_path / "run").mkdir()
    (place / "in.txt").write_text("")  # each part ends with an error
    submit(place, cluster)
    assert ended(place, "1", "2") == ["FAILED", "CANCELLED"]
    assert not (place / "questions.jsonl").exists()
    (place / "in.txt").write_text(texts)
    part = place / "questions.part-2-of-2.jsonl"
    submit(place, cluster | {"PREEMPTED": "2", "WRITES": str(part)})
    assert ended(place, "3", "4") == ["COMPLETED", "COMPLETED"]
    assert 0 < int((place / "requeued").read_text()) < part.stat().st_size  # it was killed within its work
    assert read_json(part.with_name(f"{part.name}.settings.json"))["whole"]["rows"] > 300
    whole = ["rl-qg", "answers", "in.txt", "batch_size=4", "output=whole.jsonl"]
    subprocess.run(whole, cwd=place, env=cluster, check=True, capture_output=True)
    assert (place / "questions.jsonl").read_bytes() == (place / "whole.jsonl").read_bytes()
