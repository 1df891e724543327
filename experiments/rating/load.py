"""Load on `rl-qg rate serve`: raters without thinking time against one process; every rating is compared afterwards.

python experiments/rating/load.py --output experiments/rating/results/load.json
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from rl_qg.rating.plan_files import Hit, Item, TaskPassage, write_plan_files
from rl_qg.rating.protocol import Protocol, load_protocol
from rl_qg.rating.study.store import open_store
from rl_qg.runtime.files import write_json
from rl_qg.settings.yaml_files import CONFIGS

ITEMS = 20
CSRF = re.compile(r'name="csrf" value="([^"]+)"')
TASK = re.compile(r"/task/(a\d+)/(\d+)")
CONTEXT = (
    "The mill at Alden burned in 1204. Anna Weaver built it again with stones from the old bridge, and her sons "
    "ground corn there for forty years. In 1340 Thomas Miller paid for a new bridge, which still stands. "
) * 3


@dataclass
class Measured:
    """What raters saw: seconds of each kind of request, answers by status, and what they were told was saved."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    saved: dict[tuple[str, int, str], int] = field(default_factory=dict)


@dataclass
class Rater:
    """One rater, who acts as soon as there is an answer."""

    number: int
    protocol: Protocol
    client: httpx.AsyncClient
    measured: Measured
    csrf: str = ""

    async def work(self) -> None:
        """From the first page to the end of the last task."""
        place = await self.send("other", "POST", "/begin")
        while not place.endswith("/done"):
            place = await self.step(place)

    async def step(self, place: str) -> str:
        """Look at a page and do what it asks; the next page."""
        at = TASK.fullmatch(place)
        shown = await self.get("page" if at else "other", place)
        if shown.status_code == 303:
            return shown.headers["location"]
        if "csrf" in shown.text:
            self.csrf = CSRF.findall(shown.text)[0]
        if at:
            return await self.rate(place, at[1], int(at[2]))
        if place == "/consent":
            return await self.send("other", "POST", place, answer="agree", version=self.protocol.consent_version)
        if place.endswith("/feedback"):
            return await self.send("submit", "POST", place, text=f"I am {self.number}", action="submit")
        if place == "/instructions":
            return await self.send("other", "POST", place)
        raise SystemExit(f"{place}: an unexpected page ({shown.status_code})")

    async def rate(self, place: str, assignment: str, position: int) -> str:
        """Rate one item; its values are noted only when the server has said that they are kept."""
        values = {
            criterion.name: (31 * self.number + 7 * position + 3 * number) % 101
            for number, criterion in enumerate(self.protocol.criteria)
        }
        fields = {f"value-{number}": str(value) for number, value in enumerate(values.values(), 1)}
        fields |= {f"set-{number}": "1" for number in range(1, len(values) + 1)}
        to = await self.send("save", "POST", place, action="next", **fields)
        self.measured.saved |= {(assignment, position, name): value for name, value in values.items()}
        return to

    async def get(self, kind: str, place: str) -> httpx.Response:
        """One request, timed."""
        begun = time.perf_counter()
        response = await self.client.get(place)
        self._note(kind, response, begun)
        return response

    async def send(self, kind: str, method: str, place: str, **fields: str) -> str:
        """A form, timed; where it leads."""
        begun = time.perf_counter()
        response = await self.client.request(method, place, data={"csrf": self.csrf, **fields})
        self._note(kind, response, begun)
        if response.status_code != 303:
            raise SystemExit(f"{place}: {response.status_code} for a form")
        return response.headers["location"]

    def _note(self, kind: str, response: httpx.Response, begun: float) -> None:
        self.measured.seconds[kind].append(time.perf_counter() - begun)
        self.measured.statuses[f"{kind} {response.status_code}"] += 1


def make_plan(folder: Path, tasks: int, raters: int) -> Protocol:
    """Tasks of 20 questions on one passage with the four statements of QAScore, without practice."""
    protocol = replace(load_protocol("qascore", CONFIGS / "protocol"), practice=())
    hits = [
        Hit(
            f"h{number:04d}",
            "en",
            (TaskPassage(f"passage{number}", "", CONTEXT),),
            tuple(
                Item(
                    at, "ordinary", 0, f"Who built mill {number} ({at})?", "Anna Weaver", 34, ("ce",), f"item{number}"
                )
                for at in range(1, ITEMS + 1)
            ),
        )
        for number in range(1, tasks + 1)
    ]
    settings = {"study": "load", "seed": 1, "language": "en", "raters_per_hit": raters, "retention_days": 30}
    write_plan_files(folder, settings, protocol, hits)
    return protocol


@contextmanager
def server(plan: Path, study: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """One process that serves a plan: its address."""
    command = [sys.executable, "-c", "from rl_qg.commands.cli import main; main()", "rate", "serve", f"plan={plan}"]
    limits = ["rate=null", "address_rate=null", "address_tasks=null", "tasks_per_rater=null", "volunteers=true"]
    process = subprocess.Popen(
        [*command, f"study='{study}'", "port=0", *limits],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().rsplit(" ", 1)[-1].strip(), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def load(address: str, protocol: Protocol, raters: int) -> tuple[Measured, float]:
    """All raters at once; what they saw, and how long it took."""
    measured = Measured()
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
    options: dict[str, Any] = {"base_url": address, "timeout": 120, "limits": limits, "headers": {"Origin": address}}
    clients = [httpx.AsyncClient(**options) for _ in range(raters)]
    begun = time.perf_counter()
    await asyncio.gather(*(Rater(number, protocol, client, measured).work() for number, client in enumerate(clients)))
    seconds = time.perf_counter() - begun
    for client in clients:
        await client.aclose()
    return measured, seconds


def check(study: str, measured: Measured, wanted: Mapping[str, int]) -> dict[str, Any]:
    """Compare the study with what raters were told."""
    store = open_store(study)
    with store.snapshot() as snapshot:
        kept = {(one["assignment"], one["position"], one["criterion"]): one["value"] for one in snapshot.ratings()}
        done = Counter(one["hit"] for one in snapshot.assignments() if one["state"] == "submitted")
        states = Counter(one["state"] for one in snapshot.assignments())
    store.close()
    said = measured.saved
    return {
        "ratings_acknowledged": len(said),
        "ratings_lost": sum(key not in kept for key in said),
        "ratings_wrong": sum(key in kept and kept[key] != value for key, value in said.items()),
        "ratings_nobody_sent": sum(key not in said for key in kept),
        "tasks_with_a_wrong_count": sum(done[hit] != count for hit, count in wanted.items()),
        "assignments": dict(states),
    }


def table(measured: Measured) -> dict[str, dict[str, float]]:
    """Percentiles of each kind of request, in milliseconds."""
    return {
        kind: {
            "requests": len(values),
            **{f"p{level}_ms": round(1000 * float(np.percentile(values, level)), 1) for level in (50, 95, 99)},
            "longest_ms": round(1000 * max(values), 1),
        }
        for kind, values in sorted(measured.seconds.items())
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raters", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--raters-per-task", type=int, default=2)
    parser.add_argument("--study", default="", help="a database; by default a new SQLite file")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        protocol = make_plan(Path(folder) / "plan", given.tasks, given.raters_per_task)
        study = given.study or str(Path(folder) / "study.db")
        with server(Path(folder) / "plan", study) as (address, process):
            measured, seconds = asyncio.run(load(address, protocol, given.raters))
            status = Path(f"/proc/{process.pid}/status").read_text()
            wanted = {f"h{number:04d}": given.raters_per_task for number in range(1, given.tasks + 1)}
        found = check(study, measured, wanted)
    requests = sum(map(len, measured.seconds.values()))
    result = {
        "raters": given.raters,
        "tasks": given.tasks,
        "raters_per_task": given.raters_per_task,
        "database": urlsplit(study).scheme or "sqlite",
        "seconds": round(seconds, 1),
        "requests_a_second": round(requests / seconds, 1),
        "peak_mib": int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024,
        "statuses": dict(sorted(measured.statuses.items())),
        "times": table(measured),
        **found,
    }
    write_json(given.output, result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
