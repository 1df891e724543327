"""The process that serves a study: what it prints, how it ends and goes on, and what it refuses."""

import logging
import re
import signal
import socket
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import httpx
import pytest

from rl_qg.commands.cli import run_command
from rl_qg.rating.pages import server
from rl_qg.rating.pages.server import VARIABLE, admin_token
from rl_qg.rating.plan_files import write_plan_files
from rl_qg.rating.study.store import open_store
from rl_qg.runtime.errors import InputError
from tests.rl_qg.rating.page_studies import page_plan, protocol
from tests.rl_qg.rating.serving_study import served_study


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plan = page_plan(protocol(practice=()))
    write_plan_files(tmp_path / "plan", plan.settings, plan.protocol, plan.hits)
    return tmp_path


def serve(folder: Path, *settings: str) -> None:
    run_command("rate serve", [f"plan={folder / 'plan'}", f"study={folder / 'study.db'}", "port=0", *settings])


def test_the_token_of_a_file_of_the_environment_or_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-of-a-file-1234\n")
    assert admin_token(str(tmp_path / "token"), {VARIABLE: "x" * 40}) == ("a-token-of-a-file-1234", False)
    assert admin_token("", {VARIABLE: "x" * 40}) == ("x" * 40, False)
    first, is_new = admin_token("", {})
    assert is_new and len(first) >= 43 and first != admin_token("", {})[0]
    for given, fault in (
        ("short", "must have 16 to 200"),
        ("has a space in its middle", "no space"),
        ("é" * 20, "ASCII"),
    ):
        with pytest.raises(InputError, match=fault):
            admin_token("", {VARIABLE: given})
    with pytest.raises(InputError, match="cannot be read"):
        admin_token(str(tmp_path / "none"), {})


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (["plan=''"], "plan: is empty"),
        (["plan=nowhere"], "nowhere: no plan"),
        (["language=xx"], "language=xx: there is en"),
        (["redirect=true"], "redirect=true needs completion_url"),
        (["admin_token=nowhere.txt"], "admin_token=nowhere.txt: cannot be read"),
        (["host=no.such.host.invalid"], "is no address of this machine"),
        (["study=''"], "study: is empty"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(folder: Path, settings: list[str], fault: str) -> None:
    with pytest.raises(InputError, match=re.escape(fault)) as raised:
        serve(folder, *settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({}, ""),
        ({"host": "0.0.0.0"}, "without encryption; put a proxy with HTTPS before it, and set public_url"),
        ({"host": "0.0.0.0", "public_url": "http://192.0.2.1:8080"}, "without encryption"),
        ({"public_url": "https://rate.example.org"}, "all raters have one address for limits, unless trusted_proxies"),
        ({"public_url": "https://rate.example.org", "trusted_proxies": "127.0.0.1"}, ""),
        ({"host": "0.0.0.0", "public_url": "https://rate.example.org", "trusted_proxies": "10.0.0.0/8"}, ""),
    ],
)
def test_a_server_that_others_reach_says_what_it_lacks(
    folder: Path,
    settings: dict[str, str],
    warning: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It asks for the owner's token wherever it listens; a loopback address alone checks the header `Host`."""
    monkeypatch.setattr(server.OrderlyServer, "run", lambda *_, sockets: sockets[0].close())
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler])
    serve(folder, *(f"{name}={value}" for name, value in settings.items()))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == bool(warning) and all(warning in line for line in warnings)
    *_, owner = capsys.readouterr().out.splitlines()
    address = settings.get("public_url") or f"http://{settings.get('host', '127.0.0.1')}:"
    assert owner.startswith(f"owner: {address}") and len(owner.rpartition("/admin token ")[2]) >= 43


def test_a_port_in_use_and_another_plan(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="is in use"):
            serve(folder, f"port={taken.getsockname()[1]}")
    plan = page_plan(protocol(practice=()), items=4)
    write_plan_files(folder / "other", plan.settings, plan.protocol, plan.hits)
    with pytest.raises(InputError, match="belongs to another plan"):
        serve(folder, f"plan={folder / 'other'}")


@pytest.mark.slow
def test_it_prints_addresses_ends_on_a_signal_and_goes_on(tmp_path: Path) -> None:
    with served_study(tmp_path, page_plan(protocol(practice=())), invites=2, volunteers=False) as server:
        panel = (
            "{}/s/mill?PROLIFIC_PID={{{{%PROLIFIC_PID%}}}}&STUDY_ID={{{{%STUDY_ID%}}}}&SESSION_ID={{{{%SESSION_ID%}}}}"
        )
        assert server.lines[0] == f"rl-qg rate serve: study mill at {server.address}"
        assert server.lines[1] == f"panel prolific: {panel.format(server.address)}"
        invitations = [line.removeprefix("invitation: ") for line in server.lines[2:4]]
        token = server.lines[4].removeprefix(f"owner: {server.address}/admin token ")
        with httpx.Client(follow_redirects=True) as rater:
            page = rater.get(invitations[0])
            assert page.url.path == "/consent" and page.status_code == 200
            assert httpx.get(f"{server.address}/healthz").json() == {"status": "ok"}
            assert "server" not in page.headers
            owner = rater.post(f"{server.address}/admin/login", data={"token": token})
            assert "Study mill" in owner.text
            assert server.end() == 0
            with served_study(tmp_path, port=server.port, volunteers=False) as again:
                assert rater.get(f"{again.address}/next").url.path == "/consent", "the session goes on"
                assert "Token" in rater.get(f"{again.address}/admin").text, "another token, so another session"
                assert again.end(signal.SIGINT) == 0
        log = server.log.read_text()
    assert token not in log and not any(link.rpartition("/")[2] in log for link in invitations)
    assert len(invitations) == len({*invitations}) == 2


@pytest.mark.slow
def test_requests_under_way_are_answered_when_it_ends(tmp_path: Path) -> None:
    """Whoever has an answer that says "saved" finds it in the study."""
    with served_study(tmp_path, page_plan(protocol(practice=()), items=20), rate=None, address_rate=None) as server:
        with httpx.Client(base_url=server.address, follow_redirects=True) as rater:
            rater.post("/begin")
            form = {"csrf": re.search(r'name="csrf" value="(\w+)"', rater.get("/consent").text)[1]}  # type: ignore[index]
            rater.post("/consent", data=form | {"answer": "agree", "version": "1"})
            assert rater.post("/instructions", data=form).url.path == "/task/a00001/1"
            threading.Timer(0.3, server.process.send_signal, [signal.SIGTERM]).start()
            saved = 0
            try:
                for value in range(101):
                    fields = form | {"action": "autosave", "value-1": value, "set-1": 1}
                    saved = value if rater.post("/task/a00001/1", data=fields).status_code == 204 else saved
            except httpx.TransportError:
                pass
        assert server.process.wait(30) == 0
    store = open_store(str(tmp_path / "study.db"))
    found = store.ratings_of("a00001", "r0001")[1, "understandability"]
    store.close()
    assert saved > 0 and found in (saved, saved + 1)


@pytest.mark.slow
def test_a_client_that_sends_all_before_it_reads_gets_the_refusal(tmp_path: Path) -> None:
    with served_study(tmp_path, page_plan(protocol(practice=()))) as server:
        for host, status in (("a.example", 421), ("localhost", 413)):
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"{server.address}/begin", b" " * 5_000_000, {"Host": host}), timeout=60)
            assert refused.value.code == status and b"<html" in refused.value.read()


def test_two_lengths_are_refused_and_half_requests_keep_nobody_out(tmp_path: Path) -> None:
    with served_study(tmp_path, page_plan(protocol(practice=()))) as study:
        host = ("127.0.0.1", int(study.address.rstrip("/").rpartition(":")[2]))
        with socket.create_connection(host, timeout=60) as connection:
            lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            connection.sendall(b"POST /begin HTTP/1.1\r\nHost: a\r\n" + lengths)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 400 ") and b"not both" in answer
        half = [socket.create_connection(host, timeout=60) for _ in range(200)]
        for connection in half:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        assert httpx.get(f"{study.address}/healthz", timeout=30).status_code == 200
        for connection in half:
            connection.close()
