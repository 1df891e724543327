"""What stands before the application: keys, rates, and bodies of limited size that arrive in time (pure ASGI)."""

import asyncio
import math
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_qg.serving.keys import LONGEST, APIKeys, TokenBuckets
from rl_qg.serving.problems import ProblemError
from rl_qg.settings.serving import ServeSettings

OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/favicon.ico"})
OPEN_FOLDER = "/page/"
UNLIMITED = frozenset({"/healthz", "/readyz", "/metrics"})
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Gate:
    """Refuses what has no key, comes too often, is too long or too slow, and hands on requests with whole bodies.

    Args:
        app: gets the requests.
        settings: the limits.
        keys: none: no key is asked for.
        hosts: the names in the header `Host` that are answered; None: all.
    """

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, keys: APIKeys, hosts: frozenset[str] | None = None
    ) -> None:
        self._app, self._settings, self._keys, self._hosts = app, settings, keys, hosts
        self._buckets = TokenBuckets(settings.rate, settings.burst) if settings.rate else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or answer with a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_host(Headers(scope=scope).get("host", ""))
            client = self._client(scope)
            self._check_rate(scope, client)
            whole = await self._body(scope, receive)
        except ProblemError as problem:
            await problem.response()(scope, receive, send)
            return
        if whole is not None:
            await self._app(scope, _once(whole, receive), send)

    def _check_host(self, given: str) -> None:
        """Refuse a page of another site whose name leads to this machine (DNS rebinding)."""
        if self._hosts is not None and _name_of(given) not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            raise ProblemError(421, f"this server answers to {names} alone; with another Host, set trusted_proxies")

    def _client(self, scope: Scope) -> str:
        """The number of the key, or the address where none is asked for.

        Raises:
            ProblemError: 401 for no key, or an unknown one.
        """
        address = scope["client"][0] if scope.get("client") else "unknown"
        path = scope["path"]
        is_open = scope["method"] in ("GET", "HEAD") and (path in OPEN or path.startswith(OPEN_FOLDER))
        if not self._keys or is_open:
            return f"address {address}"
        number = self._keys.number_of(given_key(Headers(scope=scope)))
        if number is None:
            raise ProblemError(
                401,
                "this server asks for a key; send it as Authorization: Bearer KEY",
                headers={"WWW-Authenticate": 'Bearer realm="rl-qg"'},
            )
        scope.setdefault("state", {})["key"] = number
        return f"key {number}"

    def _check_rate(self, scope: Scope, client: str) -> None:
        path = scope["path"]
        if self._buckets is None or path in UNLIMITED or (path.startswith(OPEN_FOLDER) and scope["method"] == "GET"):
            return  # a page takes ten files to show
        if wait := self._buckets.wait(client):
            seconds = math.ceil(wait)
            raise ProblemError(
                429,
                f"more than {self._settings.rate:g} requests a second; ask again in {seconds} s",
                headers={"Retry-After": str(seconds)},
            )

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body, or None when the client has left before its end.

        Raises:
            ProblemError: 413 for a long one, whatever its header says; 400 for a slow one.
        """
        longest = self._settings.max_body_bytes
        too_long = ProblemError(413, f"the body has more than {longest} bytes, which is all this server takes")
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > longest:
            raise too_long
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                parts = bytearray()
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts += message.get("body", b"")
                    if len(parts) > longest:
                        raise too_long
                    if not message.get("more_body", False):
                        return bytes(parts)
        except TimeoutError:
            limit = self._settings.body_seconds
            raise ProblemError(
                400, f"the body did not arrive within {limit:g} s", headers={"Connection": "close"}
            ) from None


def hosts_of(settings: ServeSettings) -> frozenset[str] | None:
    """The names in the header `Host` that a server answers: where it listens on this machine alone, and neither
    `origins` nor `trusted_proxies` say that others come, those of this machine; else None, for all.
    """
    is_local = settings.host in LOOPBACK and not settings.origins and not settings.trusted_proxies
    return LOOPBACK if is_local else None


def _name_of(host: str) -> str:
    """The name in a header `Host`: without the port, and the brackets of an IPv6 address."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def given_key(headers: Headers) -> str:
    """The key of a request: `Authorization: Bearer KEY` or `X-API-Key: KEY`; "" for none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    given = key if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    return given.strip()[: LONGEST + 1]


def _once(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body, then what comes after it: that the client leaves."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return next_message
