"""A server in a process of its own: signals, connections that end, and the whole command."""

import asyncio
import errno
import json
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from unittest.mock import patch
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import httpx
import pytest

from rl_qg.asking.pairs import AskRequest
from rl_qg.runtime.errors import InputError
from rl_qg.serving.application import create_app
from rl_qg.serving.server import run_server
from rl_qg.serving.service import AskingService
from rl_qg.settings import ServeSettings
from rl_qg.web import server
from rl_qg.web.requests import APIKeys
from rl_qg.web.server import begin_no_connections, listen
from tests.processes import Forked, start
from tests.rl_qg.serving.clients import TEXT, is_problem, run, until
from tests.rl_qg.serving.fake_model import FakeModel, pairs_of

pytestmark = pytest.mark.slow


def serve_fake(port: int, seconds: float, options: dict[str, float]) -> None:
    """What `rl-qg serve` does, with a model that takes `seconds` for a batch."""
    settings = ServeSettings(port=port, **options)  # type: ignore[arg-type]
    service = AskingService(lambda: FakeModel(seconds), settings)
    run_server(create_app(service), service, settings, listen("127.0.0.1", port))
    sys.exit(0)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def serve_few(port: int, seconds: float, options: dict[str, float]) -> None:
    """The same where 256 files may be open, and headers have ten minutes to arrive."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with patch.object(server, "HEADER_SECONDS", 600.0):
        serve_fake(port, seconds, options)


def serve_hasty(port: int, seconds: float, options: dict[str, float]) -> None:
    """The same where headers have to arrive in a second."""
    with patch.object(server, "HEADER_SECONDS", 1.0):
        serve_fake(port, seconds, options)


KEY = "a-key-of-this-server"


def serve_known(port: int, seconds: float, options: dict[str, float]) -> None:
    """The same for those who have a key and name this machine."""
    settings = ServeSettings(port=port, **options)  # type: ignore[arg-type]
    service = AskingService(lambda: FakeModel(seconds), settings)
    application = create_app(service, keys=APIKeys([KEY]), hosts=frozenset({"127.0.0.1"}))
    run_server(application, service, settings, listen("127.0.0.1", port))
    sys.exit(0)


@contextmanager
def fake_server(
    seconds: float, serve: Callable[[int, float, dict[str, float]], None] = serve_fake, **options: float
) -> Iterator[tuple[str, Forked]]:
    """The address of a ready server, and its process."""
    port = free_port()
    process = start(serve, port, seconds, options)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1200):
            assert process.poll() is None, "the server has ended"
            try:
                if httpx.get(f"{address}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield address, process
    finally:
        process.kill()


def metric(address: str, name: str) -> float:
    """A value of the server's metrics."""
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def test_sigterm_under_load_loses_no_request() -> None:
    outcomes: Counter[str] = Counter()

    async def client(address: str, number: int) -> None:
        """Ask until the server is gone; every answer must be that of its own request."""
        async with httpx.AsyncClient(base_url=address, timeout=60) as connection:
            for count in range(10_000):
                text = f"{TEXT} Client {number} asks {count}."
                try:
                    answer = await connection.post("/v1/pairs", json={"text": text, "number": 1})
                except httpx.ConnectError:
                    outcomes["refused"] += 1
                    return
                if answer.status_code == 503:
                    assert "shutting down" in is_problem(answer, 503)["detail"]
                    assert answer.headers["connection"] == "close" and answer.headers["retry-after"] == "1"
                    outcomes["unavailable"] += 1
                    await asyncio.sleep(0.05)
                else:
                    [pair] = answer.json()["pairs"]
                    assert pair["question"] == pairs_of(AskRequest(text, number=1))[0].question
                    outcomes["answered"] += 1

    with fake_server(0.2, drain_seconds=0.5) as (address, process):

        async def test() -> None:
            clients = [asyncio.create_task(client(address, number)) for number in range(16)]
            await until(lambda: outcomes["answered"] >= 32)
            process.terminate()
            await asyncio.gather(*clients)  # any other end of a request, such as a closed connection, is raised here

        run(test)
        assert process.wait(60) == 0
    assert outcomes["refused"] == 16 and outcomes["unavailable"] >= 16


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can filter the packets of a listening socket")
def test_a_port_that_begins_no_connections_keeps_those_that_have_begun() -> None:
    with listen("127.0.0.1", 0) as bound:
        bound.listen()
        address = bound.getsockname()
        with socket.create_connection(address) as begun:
            assert begin_no_connections(bound)
            with pytest.raises(TimeoutError):
                socket.create_connection(address, timeout=0.3)
            begun.sendall(b"question")
            accepted, _ = bound.accept()
            with accepted:
                assert accepted.recv(100) == b"question"
                accepted.sendall(b"answer")
            assert begun.recv(100) == b"answer"
        with ThreadPoolExecutor() as threads:  # the first packet is sent again, and then refused
            waiting = threads.submit(socket.create_connection, address, timeout=60)
            time.sleep(0.2)
            bound.close()
            with pytest.raises(ConnectionRefusedError):
                waiting.result()


def test_a_second_signal_does_not_wait() -> None:
    with fake_server(60.0, shutdown_seconds=60) as (address, process):
        connection = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        connection.sendall(request(TEXT))
        while not metric(address, "rl_qg_requests_under_way") >= 2:  # this one, and that for the metrics
            time.sleep(0.02)
        process.terminate()
        while httpx.get(f"{address}/readyz").status_code != 503:  # two signals at once may arrive as one
            time.sleep(0.02)
        process.terminate()
        assert process.wait(20) == 0
        connection.close()


def request(text: str) -> bytes:
    """A request for pairs, byte by byte."""
    body = json.dumps({"text": text}).encode()
    head = (
        f"POST /v1/pairs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def test_closed_connections_leave_the_queue_and_broken_ones_hurt_nobody() -> None:
    with fake_server(0.5, batch_size=1, body_seconds=0.3) as (address, _):
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(request(TEXT)[:-5])
            assert b" 400 " in slow.recv(1000)  # the rest did not arrive in time
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
        for connection in connections:
            connection.sendall(request(TEXT))
        while not metric(address, "rl_qg_queue_length") >= 4:
            time.sleep(0.01)
        for connection in connections:
            connection.close()
        while metric(address, "rl_qg_queue_length"):
            time.sleep(0.01)
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"NONSENSE\r\n\r\n", request(TEXT)[:30]):
            with socket.create_connection(("127.0.0.1", port)) as broken:
                broken.sendall(garbage)
        assert httpx.post(f"{address}/v1/pairs", json={"text": TEXT}, timeout=60).status_code == 200
        assert metric(address, "rl_qg_cancelled_total") >= 4
        assert metric(address, "rl_qg_pairs_total") <= 5 * 3  # the one above, and at most two that had begun


def test_ten_megabytes_are_refused_by_a_real_server_with_and_without_their_length() -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(160):
            yield b" " * 65_536

    with fake_server(0.0) as (address, _):
        for content in (b" " * 10_000_000, chunks()):
            headers = {"Content-Type": "application/json"}
            is_problem(httpx.post(f"{address}/v1/pairs", content=content, headers=headers, timeout=60), 413)
        assert httpx.get(f"{address}/healthz").status_code == 200


def status_of(address: str, headers: dict[str, str], size: int = 5_000_000) -> int:
    """The status that urllib gets, which sends all of a body before it reads."""
    sent = Request(address, b" " * size, {"Content-Type": "application/json", **headers})
    with pytest.raises(HTTPError) as refused:
        urlopen(sent, timeout=60)
    assert refused.value.read()
    return int(refused.value.code)


def test_a_client_that_sends_all_before_it_reads_gets_every_early_answer() -> None:
    known = {"X-API-Key": KEY}
    with fake_server(0.0, serve_known, rate=0.001, burst=4) as (address, _):
        pairs = f"{address}/v1/pairs"
        for size in (1_500_000, 5_000_000, 50_000_000):
            assert status_of(pairs, known, size) == 413
        assert status_of(f"{address}/nowhere", known) == 413
        assert status_of(pairs, known) == 429
        assert status_of(pairs, {}) == 401
        assert status_of(pairs, {"Host": "a.example"}) == 421


def test_a_body_that_does_not_arrive_holds_up_no_early_answer() -> None:
    with fake_server(0.0, serve_known, body_seconds=600) as (address, _), ExitStack() as stack:
        host = ("127.0.0.1", int(address.rpartition(":")[2]))
        connection = stack.enter_context(socket.create_connection(host, timeout=60))
        connection.sendall(HALF_BODY)
        assert b" 421 " in connection.recv(4096)


HALF = b"POST /v1/pairs HTTP/1.1\r\nHost: a\r\nX-"
HALF_BODY = b"POST /v1/pairs HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"


@pytest.mark.parametrize("sent", [HALF, HALF_BODY], ids=["headers", "body"])
def test_half_open_requests_keep_nobody_out(sent: bytes) -> None:
    """No deadline helps: all of them are ten minutes."""
    with fake_server(0.0, serve_few, body_seconds=600) as (address, _), ExitStack() as stack:
        host = ("127.0.0.1", int(address.rpartition(":")[2]))
        for _ in range(400):
            stack.enter_context(socket.create_connection(host, timeout=60)).sendall(sent)
        for _ in range(3):
            assert httpx.get(f"{address}/healthz", timeout=60).status_code == 200
        open_now = metric(address, "process_open_fds")
        assert open_now <= 200


def test_slow_headers_are_given_up_at_first_and_on_a_connection_that_was_used() -> None:
    with fake_server(0.0, serve_hasty) as (address, _):
        host = ("127.0.0.1", int(address.rpartition(":")[2]))
        for before in (b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"):
            with socket.create_connection(host, timeout=60) as slow:
                slow.sendall(before)
                assert not before or b" 200 " in slow.recv(4096)
                slow.sendall(HALF)
                while slow.recv(4096):
                    pass  # until the server closes the connection


def test_a_body_with_two_lengths_is_refused() -> None:
    with fake_server(0.0) as (address, _):
        host = ("127.0.0.1", int(address.rpartition(":")[2]))
        with socket.create_connection(host, timeout=60) as connection:
            lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            connection.sendall(b"POST /v1/pairs HTTP/1.1\r\nHost: a\r\n" + lengths)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 400 ") and b"not both" in answer


def test_the_stream_of_a_real_server_comes_passage_by_passage() -> None:
    text = "\n\n".join(f"This is passage {number} of the text." for number in range(4))
    with fake_server(0.3, batch_size=1, passage_characters=40) as (address, _):
        body = {"text": text, "number": 4}
        with httpx.stream("POST", f"{address}/v1/pairs/stream", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: pairs"
            assert metric(address, "rl_qg_pairs_total") < 4  # the others are not made yet
            assert [line for line in lines if line.startswith("event")] == [*["event: pairs"] * 3, "event: done"]


def test_an_address_of_a_family_that_the_machine_lacks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", refused)
    with pytest.raises(InputError, match=r"host=127\.0\.0\.1 port=0: cannot be bound \(Address family not"):
        listen("127.0.0.1", 0)


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        bound.listen()
        with pytest.raises(
            InputError, match=f"port={port}: is in use on 127.0.0.1; use another, such as port={port + 1}"
        ):
            listen("127.0.0.1", port)
    for host in ("no.such.host.invalid", "a" * 70, "203.0.113.7"):
        with pytest.raises(InputError, match=r"use 127\.0\.0\.1"):
            listen(host, 0)
