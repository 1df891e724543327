"""HTTP servers on 127.0.0.1 that stand in for services: JSON answers, in a thread, without a log."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def reply(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        for name, content in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, content)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
