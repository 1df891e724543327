"""`launcher=submitit` with submitit's executor for processes of this machine; `test_parts_on_slurm.py` has SLURM's."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.errors import InputError
from tests.processes import user_environment

ANSWERS = ("answers", "in.txt", "batch_size=4", "output=a.jsonl")
LAUNCHER = ("launcher=submitit", "parts=2", "cluster.kind=local")
TEXTS = "\n".join(f"House {k} was built in {1900 + k} by Anna Berg." for k in range(1_500))
STAGES = (
    ("generate", f"model.path={SHIPPED / 'bart'}", "data.train=a.jsonl", "max_answers=6", "output=q.parquet"),
    ("score", "input=q.parquet", "reward=form", "output=s.parquet"),
    ("augment", "questions=q.parquet", "filters=distinct", "num_samples=5", "output=t.json"),
)
PARTS = [f"a.part-{number}-of-2.jsonl" for number in (1, 2)]


def rl_qg(place: Path, *arguments: str) -> "subprocess.Popen[str]":
    command, environment = [sys.executable, "-m", "rl_qg", *arguments], user_environment(place.parent)
    return subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.PIPE, text=True)


def process_of_second_part(place: Path) -> int:
    """Once it has written more than there was."""
    part, lock = place / PARTS[1], place / f".{PARTS[1]}.lock"
    before = part.stat().st_size if part.exists() else 0
    while not (lock.exists() and part.exists() and part.stat().st_size > before):
        time.sleep(0.02)
    return int(re.findall(r"process (\d+)", lock.read_text())[0])


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


@pytest.mark.slow
def test_parts_by_a_launcher_are_those_of_the_commands_after_any_signal(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    one, place = tmp_path / "one", tmp_path / "launched"
    for folder in (one, place):
        folder.mkdir()
        (folder / "in.txt").write_text(TEXTS)
    for command in ((*ANSWERS, "part=1/2"), (*ANSWERS, "part=2/2"), ("merge", *PARTS, "output=a.jsonl")):
        assert rl_qg(one, *command).wait() == 0

    launched = rl_qg(place, *ANSWERS, *LAUNCHER)
    os.kill(process_of_second_part(place), signal.SIGKILL)
    said = launched.communicate()[1]
    assert launched.returncode == 2 and not (place / "a.jsonl").exists()
    assert "error: part 2/2: killed; not merged; the same command goes on (log: " in said
    launched = rl_qg(place, *ANSWERS, *LAUNCHER)
    working = process_of_second_part(place)
    launched.terminate()
    said = launched.communicate()[1]
    assert launched.returncode == 143 and "Traceback" not in said
    with pytest.raises(ProcessLookupError):  # the parts end with the command
        os.kill(working, 0)
    left = (place / PARTS[1]).stat().st_size
    assert 0 < left < (one / PARTS[1]).stat().st_size

    launched = rl_qg(place, *ANSWERS, *LAUNCHER)
    os.kill(process_of_second_part(place), signal.SIGUSR2)  # of submitit: its time will soon be over
    said = launched.communicate()[1]
    assert launched.returncode == 0, said
    assert contents(place) == contents(one)
    logs = "".join(path.read_text() for path in (place / "a.jobs").rglob("*_log.out"))
    assert "Requeued job" in logs


@pytest.mark.slow
def test_parts_by_a_launcher_of_all_other_commands_are_those_of_the_commands(tmp_path: Path) -> None:
    """In Parquet where they write it; by hand as one part, whose merge has the bytes of any number."""
    pytest.importorskip("submitit")
    one, place = tmp_path / "one", tmp_path / "launched"
    place.mkdir()
    (place / "in.txt").write_text("\n".join(TEXTS.splitlines()[:40]))
    assert rl_qg(place, "answers", "in.txt", "output=a.jsonl").wait() == 0
    shutil.copytree(place, one)
    for *stage, output in STAGES:
        launched = rl_qg(place, *stage, *LAUNCHER, output)
        said = launched.communicate()[1]
        assert launched.returncode == 0, said
        ending = "parquet" if output.endswith(".parquet") else "jsonl"
        with contextlib.chdir(one):
            run_command(stage[0], [*stage[1:], "part=1/1", output])
            run_command("merge", [f"{Path(output[len('output=') :]).stem}.part-1-of-1.{ending}", output])
    mine, theirs = ({k: v for k, v in contents(folder).items() if ".part-" not in k} for folder in (place, one))
    assert mine == theirs and {"q.parquet", "s.parquet", "t.json"} < mine.keys()


def test_a_launcher_and_its_parts_are_checked_before_anything_is_submitted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"launcher=submitit: is for answers, generate, augment, score; leave it out"):
        compose("train", ["launcher=submitit", "parts=2"])
    for arguments in (["parts=2"], ["launcher=submitit"], ["launcher=submitit", "parts=2", "part=1/2"]):
        with pytest.raises(InputError, match=r"give launcher=submitit parts=n for all parts, or part=i/n for one"):
            compose("answers", arguments)
    with pytest.raises(InputError, match=r"parts=513 is not in \[1, 512\]"):
        compose("answers", ["launcher=submitit", "parts=513"])
    launched = rl_qg(tmp_path, "answers", *LAUNCHER, "outptu=a.jsonl")
    assert "error: settings: there is no key or group 'outptu'" in launched.communicate()[1]
    launched = rl_qg(tmp_path, "answers", "in.txt", *LAUNCHER)
    assert "error: output has no value; give one" in launched.communicate()[1]
    assert not [*tmp_path.iterdir()]
