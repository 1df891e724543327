"""Load on `rl-qg serve` with passages of real text: throughput, latency, memory, and whether each answer is right.

    python experiments/serving/load.py MODEL --data new_wiki_v1.0.json.gz --output results.json

Each part is one entry of the output, made once: the same command goes on after the last whole part.
"""

import argparse
import asyncio
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from rl_qg.data.passages import Passages
from rl_qg.runtime.files import read_json, write_json

CLIENTS = (1, 8, 32, 128)
CORES = 2
CHECKED = 10_000  # requests whose answers are compared
CHECKED_IN_A_PART = 2_000


@dataclass
class Outcomes:
    """What became of requests."""

    seconds: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    pairs: int = 0


@contextmanager
def server(
    model: str, threads: int, *options: str, gpu: bool = False
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A ready server: its address and its process."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-c", "from rl_qg.commands.cli import main; main()", "serve", f"model.path={model}"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [*command, f"port={port}", f"threads={threads}", f"training.use_cpu={str(not gpu).lower()}", *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        while not _is_ready(address):
            if process.poll() is not None:
                raise SystemExit(f"the server has ended; see what {' '.join(command[3:])} says")
            time.sleep(0.1)
        yield address, process
    finally:
        process.kill()
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def peak_memory(process: subprocess.Popen[bytes]) -> float:
    """The largest resident memory of a process so far, in MiB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


async def ask_for(
    addresses: Sequence[str],
    bodies: Iterator[tuple[int, dict[str, Any]]],
    clients: int,
    outcomes: Outcomes,
    check: Callable[[int, bytes], str] = lambda number, answer: "answered",
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Let clients ask, each the next question when it has its answer, until `bodies` ends or `stop` says so."""

    async def client(address: str) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=600) as connection:
            for number, body in bodies:
                if stop():
                    return
                begun = time.perf_counter()
                try:
                    answer = await connection.post("/v1/pairs", json=body)
                except httpx.ConnectError:
                    outcomes.counts["refused"] += 1
                    return
                except httpx.TransportError as error:
                    outcomes.counts[f"lost ({type(error).__name__})"] += 1
                    return
                if answer.status_code == 503:  # as it says, later
                    outcomes.counts["status 503"] += 1
                    await asyncio.sleep(0.1)
                elif answer.status_code == 200:
                    outcomes.seconds.append(time.perf_counter() - begun)
                    outcomes.pairs += len(answer.json()["pairs"])
                    outcomes.counts[check(number, answer.content)] += 1
                else:
                    outcomes.counts[f"status {answer.status_code}"] += 1

    await asyncio.gather(*(client(addresses[number % len(addresses)]) for number in range(clients)))


def summary(outcomes: Outcomes, seconds: float) -> dict[str, Any]:
    """Throughput, and latency in milliseconds."""
    p50, p95, p99 = np.percentile(np.array(outcomes.seconds) * 1000, (50, 95, 99)).round(1).tolist()
    return {
        "seconds": round(seconds, 1),
        "counts": dict(outcomes.counts),
        "requests_per_second": round(len(outcomes.seconds) / seconds, 2),
        "pairs_per_second": round(outcomes.pairs / seconds, 2),
        **{"p50_ms": p50, "p95_ms": p95, "p99_ms": p99},
    }


class Load:
    """The parts of the experiment, with the options of the command line."""

    def __init__(self, options: argparse.Namespace) -> None:
        shortest, longest = options.characters
        texts = [one.context for one in Passages([options.data]) if shortest <= len(one.context) <= longest]
        if len(texts) < options.passages:
            raise SystemExit(f"{options.data} has {len(texts)} passages of {shortest} to {longest} characters")
        chosen = random.Random(0).sample(texts, options.passages)
        self.bodies = [{"text": text, "number": options.number} for text in chosen]
        self.options = options
        self.expected: list[bytes] = []

    def endless(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The requests in turn, for ever."""
        while True:
            yield from enumerate(self.bodies)

    def plain(self) -> dict[str, Any]:
        """One request at a time, one answer at a time, through `generate` of transformers, in one process.

        The same answers are asked about, and the same pairs chosen, as by the server.
        """
        import torch

        from rl_qg.asking.models import generator_path
        from rl_qg.asking.question_generator import QuestionGenerator
        from rl_qg.generation.generator import CandidateGenerator

        torch.set_num_threads(CORES)
        library = CandidateGenerator(generator_path(self.options.model), device=torch.device("cpu"), engine="library")
        generator = QuestionGenerator(library, batch_size=1)
        outcomes, begun = Outcomes(), time.perf_counter()
        for _, body in self.endless():
            asked = time.perf_counter()
            outcomes.pairs += len(generator.ask(body["text"], number=body["number"]))
            outcomes.seconds.append(time.perf_counter() - asked)
            outcomes.counts["answered"] += 1
            if time.perf_counter() - begun > self.options.seconds:
                break
        peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
        return summary(outcomes, time.perf_counter() - begun) | {"peak_mib": round(int(peak) / 1024, 1)}

    def clients(self, number: int, *, processes: int = 1, threads: int = 1) -> dict[str, Any]:
        """Clients of one server, or of several between which they are divided; `threads` of each."""
        with ExitStack() as stack:
            gpu = self.options.gpu
            servers = [stack.enter_context(server(self.options.model, threads, gpu=gpu)) for _ in range(processes)]
            addresses = [address for address, _ in servers]
            warm, outcomes = Outcomes(), Outcomes()
            asyncio.run(ask_for(addresses, iter(list(enumerate(self.bodies))[: 2 * number]), number, warm))
            begun = time.perf_counter()
            end = begun + self.options.seconds
            asyncio.run(ask_for(addresses, self.endless(), number, outcomes, stop=lambda: time.perf_counter() > end))
            seconds = time.perf_counter() - begun
            return summary(outcomes, seconds) | {"peak_mib": [peak_memory(process) for _, process in servers]}

    def check(self, part: int) -> dict[str, Any]:
        """Requests in random order from 32 clients: each answer must be, byte for byte, that of the request alone."""
        order = random.Random(part)
        requests = [order.randrange(len(self.bodies)) for _ in range(min(CHECKED_IN_A_PART, self.options.checked))]
        with server(self.options.model, 1) as (address, _):
            expected = [httpx.post(f"{address}/v1/pairs", json=body, timeout=600).content for body in self.bodies]

            def compared(number: int, answer: bytes) -> str:
                return "same as alone" if answer == expected[number] else "other than alone"

            outcomes, begun = Outcomes(), time.perf_counter()
            bodies = iter([(number, self.bodies[number]) for number in requests])
            asyncio.run(ask_for([address], bodies, 32, outcomes, compared))
            distinct = len({*expected})
            return summary(outcomes, time.perf_counter() - begun) | {"distinct_answers": distinct}

    def sigterm(self) -> dict[str, Any]:
        """SIGTERM while 32 clients ask: what became of every request that was sent."""
        outcomes = Outcomes()

        async def run(address: str, process: subprocess.Popen[bytes]) -> None:
            asking = asyncio.create_task(ask_for([address], self.endless(), 32, outcomes))
            await asyncio.sleep(5)
            process.send_signal(signal.SIGTERM)
            await asking

        with server(self.options.model, 1) as (address, process):
            asyncio.run(run(address, process))
            return {"counts": dict(outcomes.counts), "exit_code": process.wait(60)}

    def parts(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """All parts, in the order in which they are made."""
        checks = range(math.ceil(self.options.checked / CHECKED_IN_A_PART))
        return {
            "plain": self.plain,
            "clients 32, two threads": lambda: self.clients(32, threads=CORES),
            **{f"clients {number}": lambda number=number: self.clients(number) for number in CLIENTS},  # type: ignore[misc]
            **{
                f"clients {number}, two processes": lambda number=number: self.clients(number, processes=CORES)  # type: ignore[misc]
                for number in CLIENTS[1:]
            },
            **{f"check {part}": lambda part=part: self.check(part) for part in checks},  # type: ignore[misc]
            "sigterm": self.sigterm,
        }


def main() -> None:
    """Make the parts that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True, help="QA data or a text file")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--characters", type=int, nargs=2, default=(400, 1200), help="of a passage, least and most")
    parser.add_argument("--passages", type=int, default=200, help="distinct ones")
    parser.add_argument("--number", type=int, default=5, help="pairs of each request")
    parser.add_argument("--seconds", type=float, default=60, help="of each timed part")
    parser.add_argument("--checked", type=int, default=CHECKED)
    parser.add_argument("--gpu", action="store_true", help="for the servers of the timed parts")
    parser.add_argument("--only", default="", help="the parts whose names begin with this, such as check")
    options = parser.parse_args()
    results = read_json(options.output) if options.output.exists() else {}
    load = Load(options)
    for name, make in load.parts().items():
        if not name.startswith(options.only):
            continue
        if name not in results:
            results[name] = make()
            write_json(options.output, results)
        print(f"{name}: {json.dumps(results[name])}", flush=True)


if __name__ == "__main__":
    main()
