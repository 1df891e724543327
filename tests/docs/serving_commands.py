"""`rl-qg serve` as a page shows it: it does not end by itself, so it runs in a process of its own."""

import socket
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from tests.processes import command_line, start


def serve_until_ready(words: list[str]) -> None:
    """Start a server as written, but for its port, in a process of its own; end it as soon as it takes requests."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    Path("keys.txt").write_text("0123456789abcdef\n")  # what the page makes with openssl
    given = [word for word in words if not word.startswith("port=")]
    server = start(command_line, *given, f"port={port}", "training.use_cpu=true", folder=Path.cwd())
    try:
        for _ in range(1200):
            assert server.poll() is None, f"{words}: the server has ended"
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                assert answer.status == 200
                break
            time.sleep(0.1)
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()
