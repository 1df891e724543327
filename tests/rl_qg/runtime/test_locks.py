"""One running command for each output: who holds it is named, and a kill or an end frees it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import locked

HOLD = """
import sys
from pathlib import Path
from rl_qg.runtime.files import locked
with locked([("output", Path(sys.argv[1]))]):
    print("held", flush=True)
    sys.stdin.read()
"""
COUNT = """
import sys, time
from pathlib import Path
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import locked
counter, done = Path(sys.argv[1]), 0
while done < 30:
    try:
        with locked([("output", counter)]):
            value = int(counter.read_text())
            time.sleep(0.001)
            counter.write_text(str(value + 1))
            done += 1
    except InputError:
        pass
"""
Holder = Callable[[Path], subprocess.Popen[str]]


@pytest.fixture
def holder() -> Iterator[Holder]:
    """Starts a process that holds a path until its input is closed."""
    started = []

    def start(path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_process_is_refused_and_the_first_is_named(tmp_path: Path, holder: Holder) -> None:
    output = tmp_path / "questions.jsonl"
    process = holder(output)
    line = rf"output=.*questions\.jsonl: process {process.pid} \(rl-qg .*\) writes there; wait for it, or stop it"
    with pytest.raises(InputError, match=line), locked([("output", output)]):
        pass
    with locked([("output", tmp_path / "other.jsonl")]):
        pass


@pytest.mark.parametrize("end", ["kill", "end"])
def test_the_lock_ends_with_its_process(tmp_path: Path, holder: Holder, end: str) -> None:
    output = tmp_path / "questions.jsonl"
    process = holder(output)
    if end == "kill":
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with locked([("output", output)]):
        assert (tmp_path / ".questions.jsonl.lock").exists()
    assert not list(tmp_path.iterdir())


def test_two_names_of_one_output_are_one(tmp_path: Path, holder: Holder) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    holder(tmp_path / "runs" / "a")
    with pytest.raises(InputError, match="writes there"), locked([("output_dir", tmp_path / "link" / "." / "a")]):
        pass


def test_no_update_is_lost_between_four_processes(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", COUNT, str(counter)]) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert counter.read_text() == "120"


def test_a_folder_that_cannot_be_made_is_left_to_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with locked([("output", tmp_path / "file" / "questions.jsonl")]):
        pass


@pytest.mark.parametrize(
    ("command", "options", "output"),
    [
        ("generate", ["data.train=world", "data.validation=world"], "output=questions.jsonl"),
        ("augment", ["questions=q.jsonl", "gold=g.json"], "output=questions.jsonl"),
        ("train", ["preset=smoke"], "output_dir=questions.jsonl"),
        ("pipeline", ["preset=smoke"], "output_dir=questions.jsonl"),
        ("qa", ["preset=smoke"], "output_dir=questions.jsonl"),
        ("score", ["input=q.jsonl"], "output=questions.jsonl"),
        ("separate", ["preset=smoke"], "output=questions.jsonl"),
    ],
)
def test_commands_hold_what_they_write(
    tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch, command: str, options: list[str], output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    process = holder(tmp_path / "questions.jsonl")
    with pytest.raises(InputError, match=rf"^{output}: process {process.pid} .* writes there"):
        run_command(command, [*options, output])
    monkeypatch.setenv("RANK", "1")  # the first process of a launch holds it for all
    with pytest.raises(InputError) as caught:
        run_command("score", ["input=q.jsonl", "output=questions.jsonl"])
    assert "writes there" not in str(caught.value)


def test_a_link_in_the_place_of_a_lock_empties_no_file(tmp_path: Path) -> None:
    (other := tmp_path / "other").write_text("of somebody else")
    (tmp_path / ".out.json.lock").symlink_to(other)
    with locked([("output", tmp_path / "out.json")]):
        pass
    assert other.read_text() == "of somebody else"
