"""A study served by a process of its own, as `rl-qg rate serve` does, without the start of the whole command line."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_qg.rating.plan_files import StudyPlan, write_plan_files

ROOT = Path(__file__).parents[3]
SERVE = (
    "import json, logging, sys; logging.basicConfig(level=logging.INFO, stream=sys.stderr)\n"
    "from rl_qg.rating.pages.server import serve_study; from rl_qg.settings.web import RateServeSettings\n"
    "serve_study(RateServeSettings(**json.loads(sys.argv[1])))\n"
)


class ServedStudy:
    """A process that has printed its first lines: `address`, `lines`, and the folder of plan and study."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        import json

        given = {"plan": str(folder), "study": str(folder / "study.db"), "port": 0, "volunteers": True} | settings
        self.log = folder / "log.txt"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVE, json.dumps(given)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        while not self.lines or not self.lines[-1].startswith("owner: "):
            line = self.process.stdout.readline().rstrip("\n")
            assert line, f"the server has ended: {self.log.read_text()}"
            self.lines.append(line)
        self.address = self.lines[0].rpartition(" at ")[2]
        self.port = int(self.address.rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def served_study(folder: Path, plan: StudyPlan | None = None, **settings: Any) -> Iterator[ServedStudy]:
    """Serve a plan, which is written first; None: it is there."""
    if plan is not None:
        write_plan_files(folder, plan.settings, plan.protocol, plan.hits)
    server = ServedStudy(folder, **settings)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        if server.process.stdout:
            server.process.stdout.close()
