"""A process that serves: one socket, uvicorn, and an orderly end on SIGTERM."""

import asyncio
import logging
import socket
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from rl_qg.serving.service import AskingService
from rl_qg.settings.web import ServeSettings
from rl_qg.web.server import OrderlyServer, begin_no_connections, configuration

log = logging.getLogger(__name__)


class DrainingServer(OrderlyServer):
    """Uvicorn that does not close its port at SIGTERM at once.

    First new requests get 503, for `drain_seconds` at least, while those under way are answered, for at most
    `shutdown_seconds`; answers close their connections, so that clients turn to another process. Then the port begins
    no new connections, those that have begun get their answer, the port closes and the process ends. A second signal
    ends it without waiting.
    """

    def __init__(self, config: uvicorn.Config, service: AskingService, settings: ServeSettings) -> None:
        super().__init__(config)
        self._service, self._settings = service, settings
        self._signalled: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signalled is None:
            self._signalled = time.monotonic()
            self._service.drain()
            return
        self.should_exit = self.force_exit = True
        self._service.hurry()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether it is time to close the port."""
        if self._service.failure is not None:
            self.should_exit = True
        if self._signalled is not None:
            seconds, is_idle = time.monotonic() - self._signalled, not self.server_state.tasks
            if seconds >= self._settings.drain_seconds and (is_idle or seconds >= self._settings.shutdown_seconds):
                self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port; what is under way has the time that is left of `shutdown_seconds`, and at least a second."""
        for listening in sockets or []:
            begin_no_connections(listening)
        await self._answer_begun_connections()
        self.config.timeout_graceful_shutdown = max(1, round(self._service.seconds_left))
        closing = asyncio.ensure_future(super().shutdown(sockets))
        while not closing.done() and not self.force_exit:
            await asyncio.wait([closing], timeout=0.1)
        if not closing.done():
            closing.cancel()  # uvicorn would wait for open connections, and for the lifespan
            await asyncio.wait([closing])

    async def _answer_begun_connections(self) -> None:
        """Wait until no connection is open; for a second at most, since idle ones do not end by themselves."""
        closed = 0
        for _ in range(10):
            await asyncio.sleep(0.1)
            closed = 0 if self.server_state.connections else closed + 1
            if closed == 2 or self.force_exit:  # once is not enough: a connection may be between accepted and counted
                return


def run_server(application: FastAPI, service: AskingService, settings: ServeSettings, bound: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C. What loading the model raised is raised here."""
    config = configuration(application, settings.trusted_proxies, lifespan="on")
    host, port = bound.getsockname()[:2]
    log.info("listening", extra={"fields": {"host": host, "port": port}})
    DrainingServer(config, service, settings).run(sockets=[bound])
    if service.failure is not None:
        raise service.failure
    log.info("stopped")
