"""Clients of an application without sockets, and of a server process."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx

from rl_qg.serving.application import create_app
from rl_qg.serving.service import AskingService
from rl_qg.settings import ServeSettings
from rl_qg.web.requests import APIKeys
from tests.rl_qg.serving.fake_model import FakeModel

TEXT = "Ada Lovelace wrote the first program in London in 1843."


@asynccontextmanager
async def serving(
    model: Any | None = None, *, keys: list[str] | None = None, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, AskingService]]:
    """A client of a ready service, which is closed at the end."""
    used = model or FakeModel()
    options = ServeSettings(**{"max_wait_ms": 0.0, **settings})
    service = AskingService(lambda: used, options)
    service.start()
    assert service.wait(30)
    transport = httpx.ASGITransport(create_app(service, options, keys=APIKeys(keys or [])))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            yield client, service
    finally:
        if isinstance(used, FakeModel):
            used.go.set()
        await asyncio.to_thread(service.close, 30)


def run(function: Callable[[], Coroutine[Any, Any, None]], seconds: float = 60) -> None:
    """Run a test that is a coroutine."""
    asyncio.run(asyncio.wait_for(function(), seconds))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what will be true."""
    for _ in range(12_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited two minutes in vain")


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream: name and data."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def is_problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """The problem that a response must be."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == status and problem["title"] and problem["type"] == "about:blank"
    assert problem["detail"] and "\n" not in problem["detail"]
    assert "Traceback" not in response.text
    return problem
