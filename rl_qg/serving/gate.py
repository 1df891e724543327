"""What stands before the application: keys, rates, and bodies of limited size that arrive in time (pure ASGI)."""

import logging
import math
import re
import time
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_qg.serving.problems import ProblemError
from rl_qg.serving.requests import ClientLeftError
from rl_qg.serving.service import AskingService
from rl_qg.settings.web import ServeSettings
from rl_qg.web import requests as web

OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/favicon.ico"})
OPEN_FOLDER = "/page/"
FORMS = frozenset({"/", "/page/export"})  # a browser without JavaScript sends its key as a field of these forms
FORM_TYPES = frozenset({"multipart/form-data", "application/x-www-form-urlencoded"})
KEY_FIELD = "key"
MOST_FIELDS = 1020  # of a form: 1,000 pairs of an export, and what else it has
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})  # asked by machines: no limit, and only failures are logged
log = logging.getLogger(__name__)
ID = re.compile(r"[\w.-]{1,64}")


class Gate:
    """Refuses what has no key, comes too often, is too long or too slow, and hands on requests with whole bodies.
    Without keys none is asked for; `hosts`: the names in the header `Host` that are answered; None: all.
    """

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, keys: web.APIKeys, hosts: frozenset[str] | None = None
    ) -> None:
        self._app, self._settings, self._keys, self._hosts = app, settings, keys, hosts
        self._buckets, self._attempts = web.TokenBuckets(settings.rate, settings.burst), web.attempts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_key_field = bool(self._keys) and is_form(scope)
        if has_key_field:
            scope.setdefault("state", {})["has_key_field"] = True  # the log must not show the body
        try:
            if self._hosts is not None and not web.is_answered(scope, self._hosts):
                # A page of another site may have a name that leads to this machine (DNS rebinding).
                names = ", ".join(sorted(self._hosts))
                raise ProblemError(
                    421, f"this server answers to {names} alone; with another Host, set trusted_proxies"
                )
            if has_key_field and not given_key(Headers(scope=scope)):
                whole = await self._form(scope, receive)
            else:
                self._check_rate(scope, self._client(scope))
                whole = await self._body(scope, receive)
        except ProblemError as problem:
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, web.once(whole, receive), send)

    def _client(self, scope: Scope) -> str:
        """The number of the key, or the address where none is asked for."""
        path = web.path_of(scope)
        is_open = scope["method"] in ("GET", "HEAD") and (path in OPEN or path.startswith(OPEN_FOLDER))
        if not self._keys or is_open:
            return f"address {web.network_of(scope)}"
        number = self._number_of(scope, given_key(Headers(scope=scope)))
        if number is None:
            asked = {"WWW-Authenticate": 'Bearer realm="rl-qg"'}
            raise ProblemError(401, "this server asks for a key; send it as Authorization: Bearer KEY", headers=asked)
        scope.setdefault("state", {})["key"] = number
        return f"key {number}"

    def _number_of(self, scope: Scope, given: str) -> int | None:
        """The number of a key, None for an unknown one. An address that has given too many of these waits whatever it
        gives next, since the answer would say whether that is known.
        """
        address = web.network_of(scope)
        if given and (wait := self._attempts.wait(address, take=False)):
            raise _too_often("too many unknown keys", wait)
        number = self._keys.number_of(given)
        if given and number is None:
            self._attempts.wait(address)
        return number

    async def _form(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a form whose key is that of its field `key`. Without a known key it is handed on without
        `state["key"]`: the page says so beside what was typed, and makes nothing (`rl_qg.serving.page`). Its rate is
        that of its address.
        """
        whole = await self._body(scope, receive)
        number = self._number_of(scope, await _key_field(scope, whole, receive))
        if number is not None:
            scope["state"]["key"] = number
        self._check_rate(scope, f"address {web.network_of(scope)}" if number is None else f"key {number}")
        return whole

    def _check_rate(self, scope: Scope, client: str) -> None:
        path = web.path_of(scope)
        if path in PROBES or (path.startswith(OPEN_FOLDER) and scope["method"] == "GET"):
            return  # a page takes ten files to show
        if wait := self._buckets.wait(client):
            raise _too_often(f"more than {self._settings.rate:g} requests a second", wait)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        longest, seconds = self._settings.max_body_bytes, self._settings.body_seconds
        try:
            whole = await web.whole_body(scope, receive, longest, seconds)
        except web.BodyTooLongError:
            detail = f"the body has more than {longest} bytes, which is all this server takes"
            raise ProblemError(413, detail) from None
        except TimeoutError:
            detail = f"the body did not arrive within {seconds:g} s"
            raise ProblemError(400, detail, headers={"Connection": "close"}) from None
        if whole is None:
            raise ClientLeftError
        return whole


def _too_often(what: str, wait: float) -> ProblemError:
    seconds = math.ceil(wait)
    return ProblemError(429, f"{what}; ask again in {seconds} s", headers={"Retry-After": str(seconds)})


def hosts_of(settings: ServeSettings) -> frozenset[str] | None:
    """The names in the header `Host` that a server answers: where it listens on this machine alone, and neither
    `origins` nor `trusted_proxies` say that others come, those of this machine; else None, for all.
    """
    names = web.local_names(settings.host)
    return names if names and not settings.origins and not settings.trusted_proxies else None


def is_form(scope: Scope) -> bool:
    kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    return scope["method"] == "POST" and web.path_of(scope) in FORMS and kind in FORM_TYPES


async def _key_field(scope: Scope, body: bytes, receive: Receive) -> str:
    """The key that a form has as a field; "" where it has none, or is no form that can be read."""
    request = Request(scope, web.once(body, receive))
    try:
        given = (await web.form_of(request, 1, MOST_FIELDS, len(body) + 1)).get(KEY_FIELD)
    except HTTPException:
        return ""
    finally:
        await request.close()
    return given.strip()[: web.LONGEST + 1] if isinstance(given, str) else ""


def given_key(headers: Headers) -> str:
    """The key of a request: `Authorization: Bearer KEY` or `X-API-Key: KEY`; "" for none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    given = key if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    return given.strip()[: web.LONGEST + 1]


class RequestLog:
    """Logs and counts requests, adds headers, and turns unexpected errors into the problem 500.

    The log names no text, no question and no key unless `log_texts` is set: of an error it has the type and the places
    in the code, not the message. With `log_texts` it writes the bodies of requests too, but not of forms with a field
    for the key, and messages of errors.
    """

    def __init__(self, app: ASGIApp, service: AskingService, *, log_texts: bool = False) -> None:
        self._app, self._service, self._log_texts = app, service, log_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, given = time.monotonic(), Headers(scope=scope).get("x-request-id", "")
        name = given if ID.fullmatch(given) else uuid4().hex
        entry: dict[str, Any] = {"request": name, "method": scope["method"], "path": scope["path"], "status": None}
        body = bytearray()

        def add_headers(headers: MutableHeaders) -> None:
            headers["X-Request-ID"] = name
            if self._service.is_draining:
                headers["Connection"] = "close"  # the next request goes to another process

        async def received() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        send = web.noted(send, entry, web.SECURITY, add_headers)
        self._service.metrics.under_way.inc()
        try:
            await self._app(scope, received if self._log_texts else receive, send)
        except ClientLeftError:
            entry["status"] = 499  # as web servers log it; nobody gets an answer
            self._service.metrics.cancelled.inc()
        except Exception as error:
            entry["error"] = web.described(error, message=self._log_texts)
            if entry["status"] is None:
                detail = f"an unexpected error; the log of the server has it as request {name}"
                await ProblemError(500, detail).response()(scope, receive, send)
        finally:
            self._service.metrics.under_way.dec()
            self._finish(scope, entry, time.monotonic() - begun, bytes(body))

    def _finish(self, scope: Scope, entry: dict[str, Any], seconds: float, body: bytes) -> None:
        route = getattr(scope.get("route"), "path", "none")  # not the path, of which there may be any number
        metrics = self._service.metrics
        metrics.requests.labels(route, str(entry["status"])).inc()
        metrics.seconds.labels(route).observe(seconds)
        entry |= {"seconds": round(seconds, 4), "client": web.address_of(scope)}
        if key := scope.get("state", {}).get("key"):
            entry["key"] = key
        if self._log_texts:
            hidden = scope.get("state", {}).get("has_key_field")
            entry["body"] = "a form that may have a key" if hidden else body.decode(errors="replace")
        level = logging.ERROR if "error" in entry else logging.INFO
        if web.path_of(scope) in PROBES and entry["status"] == 200:
            level = logging.DEBUG
        log.log(level, "request", extra={"fields": entry})
