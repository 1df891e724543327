"""A process that serves: a socket to listen on, uvicorn, and an orderly end that loses no connection."""

import asyncio
import ctypes
import errno
import logging
import resource
import socket
import struct
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any, Literal

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rl_qg.runtime.errors import InputError
from rl_qg.web.requests import JsonLines

_SO_ATTACH_FILTER = 26
"""Linux's option of a socket that attaches a filter; the module `socket` does not name it."""

_FLAGS, _SYN, _SYN_OR_ACK = 13, 0x02, 0x12
"""The byte of a TCP header that holds its flags, the flag of a first packet, and what tells it from an answer."""

_DROP_FIRST_PACKETS = (
    (0x30, 0, 0, _FLAGS),  # load the byte
    (0x54, 0, 0, _SYN_OR_ACK),  # and
    (0x15, 0, 1, _SYN),  # if it is a first packet
    (0x06, 0, 0, 0),  # drop it
    (0x06, 0, 0, 0xFFFFFFFF),  # else let it pass
)
"""Instructions of the classic Berkeley packet filter: code, jumps if true and false, and operand."""
HEADER_SECONDS = 10.0
MOST_READ = 64_000_000
REST_SECONDS, PAUSE_SECONDS = 20.0, 2.0  # for the rest of a body in all, and without any of it


def listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InputError(f"host={host}: is no address of this machine; use 127.0.0.1, or 0.0.0.0 for all") from None
    bound = None
    try:
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        if isinstance(error, PermissionError):
            raise InputError(f"port={port}: needs more rights ({error.strerror}); use one above 1023") from None
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port={port}: is in use on {host}; use another, such as port={port + 1}") from None
        raise InputError(f"host={host} port={port}: cannot be bound ({error.strerror}); use 127.0.0.1") from None
    return bound


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def begin_no_connections(listening: socket.socket) -> bool:
    """Let a listening socket begin no more connections; those that have begun can still be accepted.

    A port that is closed while clients connect resets each connection that the kernel has established and the process
    has not accepted, with the request on it. After this call the kernel drops the first packet of each new connection.
    Its client sends it again after a second, and is refused if the port is closed by then.
    False where the system cannot do so; only Linux can.
    """
    if sys.platform != "linux":
        return False
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_FIRST_PACKETS)
    buffer = ctypes.create_string_buffer(program)
    try:
        option = struct.pack("HL", len(_DROP_FIRST_PACKETS), ctypes.addressof(buffer))
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
    except OSError:  # a sandbox may refuse it
        return False
    return True


def most_connections() -> int:
    """How many connections may be open: half of the files that the process may have open, the model's among them."""
    return max(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class LimitedConnection(H11Protocol):
    """A connection whose headers have to arrive in `HEADER_SECONDS`. Where more than `most_connections` are open, one
    that waits for its client is closed, the one first whose last answer is the longest ago.
    """

    _timer: asyncio.TimerHandle | None = None
    _begun = 0.0  # when it was opened, or had its last answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begun = self.loop.time()
        self._await_headers()
        if len(self.connections) > most_connections():
            others = [one for one in self.connections if isinstance(one, LimitedConnection) and one.waits_for_client]
            closed = min(others, key=lambda one: one._begun)  # there is one: this
            self.connections.discard(closed)  # now: several may come before it is told
            closed.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_headers()

    def on_response_complete(self) -> None:
        self._begun = self.loop.time()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # no request is under way

    @property
    def waits_for_client(self) -> bool:
        """For a request, for the rest of its body, or until an answer is read."""
        return self.is_idle or self.cycle.more_body or self.flow.write_paused

    def _await_headers(self) -> None:
        if self._timer is not None and not self.is_idle:
            self._timer.cancel()
            self._timer = None
        elif self._timer is None and self.is_idle:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        if self.is_idle:
            self.transport.close()


def of_one_length(application: ASGIApp) -> ASGIApp:
    """An application that refuses a body with two lengths: a proxy may have taken the other (request smuggling)."""
    refused = PlainTextResponse("send Content-Length or Transfer-Encoding, not both\n", 400, {"Connection": "close"})

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        has_both = {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope.get("headers", ())}
        await (refused if has_both else application)(scope, receive, send)

    return checked


def after_bodies(application: ASGIApp) -> ASGIApp:
    """An application that answers when the body has arrived: most clients read no answer before they have sent all,
    and one that is sent earlier is lost when the connection closes.

    Of what the application has not read, up to `MOST_READ` bytes are read and forgotten while they arrive.
    """

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        names, rest = {name for name, _ in scope.get("headers", ())}, MOST_READ
        if b"expect" in names or not names & {b"content-length", b"transfer-encoding"}:
            rest = 0  # there is no body, or its client waits for the answer before it sends one

        async def received() -> Message:
            nonlocal rest
            message = await receive()
            rest = max(0, rest - len(message.get("body", b""))) if message.get("more_body", False) else 0
            return message

        async def sent(message: Message) -> None:
            end = time.monotonic() + REST_SECONDS
            with suppress(TimeoutError):
                while message["type"] == "http.response.start" and rest and (left := end - time.monotonic()) > 0:
                    await asyncio.wait_for(received(), min(left, PAUSE_SECONDS))
            await send(message)

        await application(scope, received, sent)

    return answered


class OrderlyServer(uvicorn.Server):
    """Uvicorn that ends with exit code 0 on SIGTERM or Ctrl-C: what is under way is answered, nothing new begun."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in sockets or []:
            begin_no_connections(listening)
        await super().shutdown(sockets)


def configuration(
    application: Any, trusted_proxies: str, *, lifespan: Literal["on", "off"], closing_seconds: int | None = None
) -> uvicorn.Config:
    """How an application is served, and logged as lines of JSON; `closing_seconds` are those of requests under way."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # it logs starts, stops and each connection
    return uvicorn.Config(
        after_bodies(of_one_length(application)),
        lifespan=lifespan,
        http=LimitedConnection,
        backlog=max(4, most_connections() // 4),  # so many are accepted at once
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies or None,
        timeout_graceful_shutdown=closing_seconds,
    )
