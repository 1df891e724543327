"""What is read of a request before it is answered: who it was sent to and from, and its whole body."""

import asyncio
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class BodyTooLongError(Exception):
    """A body that is longer than a server takes."""


async def whole_body(scope: Scope, receive: Receive, longest: int, seconds: float) -> bytes | None:
    """The whole body of a request, or None when the client has left before its end.

    Raises:
        BodyTooLongError: it has more than `longest` bytes, whatever its header says.
        TimeoutError: it did not arrive within `seconds`.
    """
    length = Headers(scope=scope).get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > longest:
        raise BodyTooLongError
    async with asyncio.timeout(seconds):
        parts = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts += message.get("body", b"")
            if len(parts) > longest:
                raise BodyTooLongError
            if not message.get("more_body", False):
                return bytes(parts)


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
    return origin is None or urlsplit(origin).netloc == headers.get("host")
