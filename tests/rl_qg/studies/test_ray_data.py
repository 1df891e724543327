"""Parts as tasks of Ray, on this machine; they run where the extra `ray` is installed."""

import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rl_qg.miniatures.cache import SHIPPED
from tests.processes import user_environment

STAGES = (
    ("answers", "in.txt", "batch_size=4", "output=a.jsonl"),
    ("generate", f"model.path={SHIPPED / 'bart'}", "data.train=a.jsonl", "max_answers=12", "output=q.jsonl"),
    ("score", "input=q.jsonl", "reward=form", "output=s.jsonl"),
    ("augment", "questions=q.jsonl", "filters=distinct", "num_samples=5", "output=t.json"),
)
COMPARED = ("a.jsonl", "q.jsonl", "s.jsonl", "t.json")


@pytest.mark.parametrize("words", [(), ("generate", "output=q.jsonl"), ("0", "generate"), ("4",)])
def test_the_number_of_parts_comes_first(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ray_data", *words])
    with pytest.raises(SystemExit, match=r"^error: give the number of parts, then the commands, such as"):
        runpy.run_module("rl_qg.studies.ray_data", run_name="__main__")


@pytest.mark.slow
def test_stages_in_parts_by_ray_are_those_of_the_commands_after_a_kill(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    folders = one, place = tmp_path / "one", tmp_path / "ray"
    environment = user_environment(tmp_path) | {"RAY_AUTH_MODE": "disabled", "PYTHONUNBUFFERED": "1"}
    for folder in folders:
        folder.mkdir()
        texts = (f"House {k} was built in {1900 + k} by Anna Berg." for k in range(600))
        (folder / "in.txt").write_text("\n".join(texts))
    words = [word for stage in STAGES for word in ("--", *stage)][1:]
    command = [sys.executable, "-c", RUN, "2", *words]
    running = subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.PIPE, text=True)
    part, lock = place / "a.part-2-of-2.jsonl", place / ".a.part-2-of-2.jsonl.lock"
    while not (lock.exists() and part.exists() and part.stat().st_size):
        assert running.poll() is None, running.communicate()[1]
        time.sleep(0.02)
    process = int(re.findall(r"process (\d+)", lock.read_text())[0])
    psutil.Process(process).parent().send_signal(signal.SIGKILL)  # type: ignore[union-attr]
    left = part.stat().st_size
    said = running.communicate()[1]
    assert running.returncode == 0, said
    assert left < part.stat().st_size
    for stage in STAGES:  # one part, whose merge has the bytes of any number
        output = stage[-1].removeprefix("output=")
        only = f"{Path(output).stem}.part-1-of-1.jsonl"
        for words in ([*stage, "part=1/1"], ["merge", only, stage[-1]]):
            subprocess.run([sys.executable, "-m", "rl_qg", *words], cwd=one, env=environment, check=True)
    for name in COMPARED:
        assert (place / name).read_bytes() == (one / name).read_bytes()
        assert (place / name).stat().st_size > 100


RUN = """
import runpy, ray
ray.init(num_cpus=2, include_dashboard=False)
runpy.run_module("rl_qg.studies.ray_data", run_name="__main__")
"""
