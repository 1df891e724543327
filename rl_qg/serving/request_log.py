"""Around everything: one JSON line for each request, counts, headers that browsers heed, and answers to failures."""

import logging
import re
import time
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_qg.serving.log_lines import SECURITY, described
from rl_qg.serving.problems import ProblemError
from rl_qg.serving.requests import ClientLeftError
from rl_qg.serving.service import AskingService

log = logging.getLogger(__name__)
PROBES = ("/healthz", "/readyz", "/metrics")  # asked every few seconds by machines: only their failures are logged
ID = re.compile(r"[\w.-]{1,64}")


class RequestLog:
    """Logs and counts requests, adds headers, and turns unexpected errors into the problem 500.

    The log names no text, no question and no key unless `log_texts` is set: of an error it has the type and the places
    in the code, not the message.

    Args:
        app: answers the requests.
        service: has the metrics.
        log_texts: write the bodies of requests too, but not of forms with a field for the key, and messages of errors.
    """

    def __init__(self, app: ASGIApp, service: AskingService, *, log_texts: bool = False) -> None:
        self._app, self._service, self._log_texts = app, service, log_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, given = time.monotonic(), Headers(scope=scope).get("x-request-id", "")
        name = given if ID.fullmatch(given) else uuid4().hex
        entry: dict[str, Any] = {"request": name, "method": scope["method"], "path": scope["path"], "status": None}
        body = bytearray()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry["status"] = message["status"]
                self._add_headers(MutableHeaders(raw=message.setdefault("headers", [])), name)
            await send(message)

        async def received() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        self._service.metrics.under_way.inc()
        try:
            await self._app(scope, received if self._log_texts else receive, sent)
        except ClientLeftError:
            entry["status"] = 499  # as web servers log it; nobody gets an answer
        except Exception as error:
            entry["error"] = described(error, message=self._log_texts)
            if entry["status"] is None:
                detail = f"an unexpected error; the log of the server has it as request {name}"
                await ProblemError(500, detail).response()(scope, receive, sent)
        finally:
            self._service.metrics.under_way.dec()
            self._finish(scope, entry, time.monotonic() - begun, bytes(body))

    def _add_headers(self, headers: MutableHeaders, name: str) -> None:
        for key, value in SECURITY.items():
            headers.setdefault(key, value)
        headers["X-Request-ID"] = name
        if self._service.is_draining:
            headers["Connection"] = "close"  # the next request goes to another process

    def _finish(self, scope: Scope, entry: dict[str, Any], seconds: float, body: bytes) -> None:
        route = getattr(scope.get("route"), "path", "none")  # not the path, of which there may be any number
        metrics = self._service.metrics
        metrics.requests.labels(route, str(entry["status"])).inc()
        metrics.seconds.labels(route).observe(seconds)
        entry |= {"seconds": round(seconds, 4), "client": (scope.get("client") or ["unknown"])[0]}
        if key := scope.get("state", {}).get("key"):
            entry["key"] = key
        if self._log_texts:
            hidden = scope.get("state", {}).get("has_key_field")
            entry["body"] = "a form that may have a key" if hidden else body.decode(errors="replace")
        level = logging.ERROR if "error" in entry else logging.INFO
        if scope["path"] in PROBES and entry["status"] == 200:
            level = logging.DEBUG
        log.log(level, "request", extra={"fields": entry})
