"""What stands before an application: hosts, bodies of limited size, keys and rates; headers, and lines of the log."""

import asyncio
import hmac
import json
import logging
import os
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib import resources
from ipaddress import ip_address, ip_network
from pathlib import Path
from socket import getaddrinfo
from typing import Any
from urllib.parse import urlsplit

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from rl_qg.runtime.errors import InputError

# Set where a route has not set them: the page has a policy of its own.
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
VARIABLE = "RL_QG_API_KEYS"
SHORTEST, LONGEST = 16, 200  # characters of a key
MOST_BUCKETS = 10_000
ATTEMPTS, ATTEMPT_S = 5, 10.0  # to give a secret that may come at once, and the seconds until another one may
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class BodyTooLongError(Exception):
    """A body that is longer than a server takes."""


async def whole_body(scope: Scope, receive: Receive, longest: int, seconds: float) -> bytes | None:
    """The whole body of a request, or None when the client has left before its end. Raises `BodyTooLongError` where it
    has more than `longest` bytes, whatever its header says, and `TimeoutError` after `seconds`.
    """
    length = Headers(scope=scope).get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > longest:
        raise BodyTooLongError
    body = bytearray()
    async with asyncio.timeout(seconds):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > longest:
                raise BodyTooLongError
            if not message.get("more_body", False):
                return bytes(body)


def once(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body, then what comes after it: that the client leaves."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return next_message


def name_in(host: str) -> str:
    """The name in a header `Host`: without the port, and the brackets of an IPv6 address."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_of_own_page(headers: Headers) -> bool:
    """Whether a form was sent by a page of this server, not by one of another site (cross-site request forgery).

    A browser says where a form comes from in `Sec-Fetch-Site` or at least in `Origin`; other programs need not.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def local_names(host: str) -> frozenset[str]:
    """The names by which a server that listens on `host` is asked where that is of this machine alone: `LOOPBACK`, the
    name and its address. Empty where others reach it.
    """
    try:
        found = [ip_address(str(place[4][0]).partition("%")[0]) for place in getaddrinfo(host, None)]
    except (OSError, UnicodeError):  # `listen` says so
        return frozenset()
    is_local = all((getattr(one, "ipv4_mapped", None) or one).is_loopback for one in found)
    return LOOPBACK | {host.lower(), *map(str, found)} if is_local else frozenset()


def is_answered(scope: Scope, hosts: frozenset[str]) -> bool:
    """Whether the header `Host` has one of these names."""
    return name_in(Headers(scope=scope).get("host", "")) in hosts


async def form_of(request: Request, files: int, fields: int, longest: int) -> FormData:
    """A form of so many files and fields at most, in UTF-8; raises `HTTPException` where it cannot be read.

    Python decodes other charsets, which no browser names, by codecs that may take quadratic time (punycode).
    """
    _, options = parse_options_header(request.headers.get("content-type"))
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":
        raise HTTPException(400, "send it as UTF-8")
    return await request.form(max_files=files, max_fields=fields, max_part_size=longest)


def address_of(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else "unknown"


def path_of(scope: Scope) -> str:
    """The path within this application, which may be mounted in another one."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def network_of(scope: Scope) -> str:
    """What limits count as one address: of IPv6 the network of 64 bits, in which one person has all addresses."""
    given = address_of(scope)
    try:
        address = ip_address(given.partition("%")[0])
    except ValueError:
        return given
    if address.version == 4:
        return given
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))


def noted(
    send: Send,
    entry: dict[str, Any],
    defaults: Mapping[str, str],
    add_headers: Callable[[MutableHeaders], None] | None = None,
) -> Send:
    """A `send` that notes the status of the answer in `entry`, sets headers that it lacks, and calls `add_headers`."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            entry["status"] = message["status"]
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in defaults.items():
                headers.setdefault(name, value)
            if add_headers is not None:
                add_headers(headers)
        await send(message)

    return sent


def described(error: BaseException, *, message: bool = False) -> dict[str, Any]:
    """The type of an error and its last places in the code; its message, which may hold texts, on demand."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]
    return {"type": type(error).__name__, "at": places} | ({"message": str(error)} if message else {})


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, event, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)


class APIKeys:
    """The keys that a server knows. Only their hashes are kept, so no log or traceback can show one."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._hashes = [_hash(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def number_of(self, given: str) -> int | None:
        """The number of a key, from 1, or None for an unknown one. Takes the same time for all that are wrong."""
        found, hashed = None, _hash(given)
        for number, known in enumerate(self._hashes, 1):
            if hmac.compare_digest(hashed, known):
                found = number
        return found


def read_keys(path: str, environment: Mapping[str, str] = os.environ) -> APIKeys:
    """The keys of a file (one a line; `#` begins a comment) and of the variable `RL_QG_API_KEYS` (with commas)."""
    keys = [key.strip() for key in environment.get(VARIABLE, "").split(",") if key.strip()]
    for number, key in enumerate(keys, 1):
        check_secret(key, VARIABLE, f"key {number}")
    if path:
        lines = read_secrets(path, "api_keys", "with one key a line").splitlines()
        of_file = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not of_file:
            raise InputError(f"api_keys={path}: has no key; write one a line, of at least {SHORTEST} characters")
        for number, key in enumerate(of_file, 1):
            check_secret(key, f"api_keys={path}", f"key {number}")
        keys += of_file
    return APIKeys(list(dict.fromkeys(keys)))


def read_secrets(path: str, key: str, what: str) -> str:
    """The text of the file that a settings key names."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"{key}={path}: cannot be read ({reason}); give a file {what}") from None


def check_secret(secret: str, where: str, name: str) -> None:
    if not SHORTEST <= len(secret) <= LONGEST or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InputError(
            f"{where}: {name} must have {SHORTEST} to {LONGEST} ASCII characters and no space; make one with "
            "openssl rand -hex 32"
        )


def _hash(key: str) -> bytes:
    return sha256(key.encode(errors="replace")).digest()


class TokenBuckets:
    """One bucket of tokens for each client: it holds `burst` and gets `rate` a second; a request takes one. With
    `rate` None or 0 a request never waits; the clock counts seconds.
    """

    def __init__(self, rate: float | None, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when; longest unused first

    def wait(self, client: str, *, take: bool = True) -> float:
        """Take a token, or only look: 0, or where there is none the seconds until there will be one."""
        if not self._rate:
            return 0.0
        now = self._clock()
        tokens, then = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        self._buckets[client] = (tokens - 1 if take and tokens >= 1 else tokens, now)
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if tokens >= 1 else (1 - tokens) / self._rate


def attempts() -> TokenBuckets:
    """Of the secrets that each address may try, whatever other limits are."""
    return TokenBuckets(1 / ATTEMPT_S, ATTEMPTS)


def page_files(room: str) -> dict[str, tuple[bytes, str]]:
    """The content and the media type of each file that the pages of a room load, by its name."""
    style = resources.files("rl_qg.pages").joinpath("page_style.css")
    files = [style, *resources.files(room).joinpath("page_files").iterdir()]
    types = {file.name: MEDIA_TYPES.get(file.name[file.name.rfind(".") :]) for file in files}
    return {file.name: (file.read_bytes(), f"{kind}; charset=utf-8") for file in files if (kind := types[file.name])}
