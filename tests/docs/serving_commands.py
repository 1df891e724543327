"""Servers as a page shows them: they do not end by themselves, so they run in processes of their own."""

import socket
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from rl_qg.rating.protocol import DEGRADED
from rl_qg.rating.study.store import open_store
from tests.processes import command_line, start


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def serve_until_ready(words: list[str]) -> None:
    """Start a server as written, but for its port, in a process of its own; end it as soon as it takes requests."""
    Path("keys.txt").write_text("0123456789abcdef\n")  # what the page makes with openssl
    _serve_until([*words, "training.use_cpu=true"], "readyz")


def serve_study_until_ready(words: list[str]) -> None:
    """Start the application for raters as written, but for its port; end it as soon as it answers. What its raters
    would have done is then in the study that it serves.
    """
    Path("token.txt").write_text("0123456789abcdef\n")
    _serve_until(words, "healthz")
    studies = [word.removeprefix("study=") for word in words if word.startswith("study=")]
    rate_all_tasks(studies[0] if studies else "rate-demo/study.db")


def _serve_until(words: list[str], path: str) -> None:
    """Serve until a path answers with 200, then end the process, which must say that all went well."""
    port = free_port()
    given = [word for word in words if not word.startswith("port=")]
    server = start(command_line, *given, f"port={port}", folder=Path.cwd())
    try:
        for _ in range(1200):
            assert server.poll() is None, f"{words}: the server has ended"
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
                assert answer.status == 200
                break
            time.sleep(0.1)
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()


def rate_all_tasks(study: str) -> None:
    """Eight raters, the first of whom rates every task, and degraded questions worst."""
    store = open_store(study)
    raters = [store.new_rater() for _ in range(8)]
    store.give_consent(raters[0], "1", "en")
    while assignment := store.claim(raters[0]):
        for item in assignment.hit.items:
            store.shown(assignment.id, raters[0], item.position)
            value = 10 if item.kind == DEGRADED else 60 + item.position
            values = {criterion.name: value for criterion in store.plan.protocol.criteria}
            store.save(assignment.id, raters[0], item.position, values)
        store.submit(assignment.id, raters[0])
    store.close()
