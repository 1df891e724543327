"""What the pages refuse, keep to themselves, and do when the database fails."""

import asyncio
import hmac
import json
import logging
import re
import sqlite3
import zipfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from rl_qg.commands.cli import run_command
from rl_qg.rating.pages import security, visits
from rl_qg.rating.pages.security import AdminSessions, hosts_of
from rl_qg.rating.pages.server import create_app, panel_path
from rl_qg.rating.study import database
from rl_qg.rating.study.records import StoreFailed
from rl_qg.rating.study.store import Store, open_store
from rl_qg.runtime.errors import InputError
from rl_qg.web.requests import JsonLines
from tests.rl_qg.rating.page_studies import ADMIN_TOKEN, RaterClient, page_plan, protocol, settings_of, study
from tests.rl_qg.rating.studies import Clock, locked

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7*7 }} javascript:alert(3) Who?"
FORMS = ("/consent", "/instructions", "/practice/1", "/task/a00001/1", "/task/a00001/feedback")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = study(tmp_path, page_plan(protocol(practice=())))
    yield opened
    opened.close()


@pytest.mark.parametrize("path", FORMS)
def test_forms_need_the_secret_of_their_session(store: Store, path: str) -> None:
    guest, other = RaterClient(store).begin(), RaterClient(store).begin()
    for fields in ({}, {"csrf": ""}, {"csrf": other.csrf}, {"csrf": guest.csrf[:-1]}):
        page = guest.client.post(path, data=fields | {"value-1": 5, "set-1": 1, "answer": "decline"})
        assert page.status_code == 403 and "not sent by a current page" in page.text
    assert guest.client.post(path, content=b"\xff%%&&=", headers={"Content-Type": "text/plain"}).status_code == 403
    assert not store.ratings_of("a00001", "r0001") and not store.rater("r0001").declined


def test_the_route_decides_which_forms_need_a_secret_not_the_address(store: Store) -> None:
    application = create_app(store, settings_of(), ADMIN_TOKEN)
    mounted = Starlette(routes=[Mount("/administration", application), Mount("/", application)])
    guest = RaterClient(store, application=mounted).begin()
    page = guest.client.post("/administration/task/a00001/1", data={"value-1": 5, "set-1": 1})
    assert page.status_code == 403 and not store.ratings_of("a00001", "r0001")


@pytest.mark.parametrize("path", [*FORMS, "/begin", "/admin/login", "/admin/pause"])
def test_forms_of_other_sites_are_refused(store: Store, path: str) -> None:
    guest = RaterClient(store).begin()
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert guest.client.post(path, data={"csrf": guest.csrf}, headers=headers).status_code == 403
    own = guest.client.post("/task/a00001/1", data={"csrf": guest.csrf}, headers={"Origin": "http://localhost"})
    assert own.status_code == 200


def test_assignments_of_others_and_of_nobody_look_alike(store: Store) -> None:
    RaterClient(store).begin().rate()
    thief = RaterClient(store).begin()
    secret = thief.csrf
    pages = set()
    for name in ("a00001", "a99999", "a1", "x", "a00001%00", "-1", "a٣"):
        for path in (f"/task/{name}/1", f"/task/{name}/feedback", f"/task/{name}/done", f"/task/{name}/99"):
            page = thief.client.get(path)
            assert page.status_code == 404, path
            pages.add(page.text)
            if not path.endswith("/done"):
                posted = thief.client.post(path, data={"csrf": secret, "value-1": 1, "set-1": 1, "text": "x"})
                assert posted.status_code == 404
    assert len(pages) == 1, "nothing tells which of them there are"
    assert set(store.ratings_of("a00001", "r0001").values()) == {61, 62, 63, 64}
    assert store.feedback_of("a00001", "r0001") == ""


def test_positions_and_values_that_cannot_be(store: Store) -> None:
    guest = RaterClient(store).begin()
    for position in ("0", "4", "99999999999999999999", "9" * 5000):
        assert guest.client.get(f"/task/a00001/{position}").status_code == 404
    assert guest.client.get("/task/a00001/-1").status_code == 404
    for value in ("101", "-1", "1e1", "٥", "nan", "1" * 30, "0x1", "50.5"):
        page = guest.client.post("/task/a00001/1", data={"csrf": guest.csrf, "value-1": value, "set-1": 1})
        assert page.status_code == 400, value
    assert not store.ratings_of("a00001", "r0001")


def test_without_a_session_nothing_is_shown(store: Store) -> None:
    RaterClient(store).begin()
    stranger = RaterClient(store)
    stranger.client.cookies.set("rating", "x" * 43)
    for path in (
        "/task",
        "/task/a00001/1",
        "/consent",
        "/instructions",
        "/practice/1",
        "/next",
        "/screened",
        "/declined",
    ):
        stranger.get(path)
        assert stranger.status == 401 and "open your link again" in stranger.text
    assert stranger.post("/task/a00001/1", value_1=1, set_1=1).status == 401


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    plan = page_plan(protocol(practice=()), context=f"{HOSTILE} Anna Weaver <b>x</b>", questions=[HOSTILE])
    guest = RaterClient(study(tmp_path, plan)).begin()
    assert "<script>alert" not in guest.page.text and "<img" not in guest.page.text and "<b>" not in guest.page.text
    assert guest.text.count(HOSTILE) == 2
    assert re.findall(r"<script[^>]*>", guest.page.text) == ['<script defer src="/files/rating.js">']
    guest.rate_all().post(text="</textarea><script>alert(4)</script>", action="back").get("/task/a00001/feedback")
    assert "<script>alert" not in guest.page.text and "&lt;/textarea&gt;" in guest.page.text


FIELDS = {
    "/begin": ("lang",),
    "/consent": ("csrf", "answer", "version", "lang"),
    "/instructions": ("csrf", "lang"),
    "/practice/1": ("csrf", "value-1", "set-1", "lang"),
    "/task/a00001/1": ("csrf", "value-1", "set-1", "action", "lang"),
    "/task/a00001/feedback": ("csrf", "text", "action", "lang"),
    "/admin/login": ("token",),
    "/admin/expire": ("csrf", "assignment"),
    "/admin/let-in": ("csrf", "rater"),
}
ADDRESSES = (
    *("/s/mill?PROLIFIC_PID={}", "/s/mill?PROLIFIC_PID=p&STUDY_ID={}", "/s/{}?PROLIFIC_PID=p", "/invite/{}"),
    *("/?lang={}", "/task/{}/1", "/task/a00001/1?missing=1&value-1={}", "/admin?said={}", "/files/{}", "/{}"),
)
NO_TEXT = ("%00", "a%00b", "%ED%A0%80", "%ED%A0%BD", "%FF")  # NUL, halves of a pair, a byte that is no UTF-8


def test_what_is_no_text_gets_a_page_in_every_field_and_address(study_url: str) -> None:
    """None of them is a failure of the server, on a database that refuses NUL (PostgreSQL) either."""
    store = open_store(study_url, page_plan(protocol(practice=())))
    application = create_app(store, settings_of(), ADMIN_TOKEN)
    guest, owner = (RaterClient(store, application=application) for _ in range(2))
    guest.begin()
    owner.get("/admin").post("/admin/login", token=ADMIN_TOKEN)
    for path, fields in FIELDS.items():
        by = owner if path.startswith("/admin") else guest
        for name, value in product(fields, NO_TEXT):
            given = {name: value} if name == "csrf" else {name: value, "csrf": by.csrf}
            parts = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
            multi = (
                b"".join(parts % (one.encode(), unquote_to_bytes(text)) for one, text in given.items()) + b"--b--\r\n"
            )
            plain = "&".join(f"{one}={text}" for one, text in given.items()).encode()
            for body, kind in (
                (plain, "application/x-www-form-urlencoded"),
                (multi, "multipart/form-data; boundary=b"),
            ):
                page = by.client.post(path, content=body, headers={"Content-Type": kind})
                assert page.status_code < 500 and page.text.startswith("<!doctype html>"), (path, name, value)
                assert name != "csrf" or page.status_code == 403
    for address, value in product(ADDRESSES, NO_TEXT):
        assert guest.client.get(address.format(value)).status_code < 500, (address, value)
    for name in ("rating", "rating-language", "rating-admin"):
        for cookie in (b"\xff", b"\xed\xa0\x80", b"a.b.c", b'"\\000"'):
            assert guest.client.get("/next", headers={b"Cookie": name.encode() + b"=" + cookie}).status_code < 500
    assert "\0" not in store.feedback_of("a00001", "r0001") and not store.ratings_of("a00001", "r0001")
    store.close()


def test_a_form_of_another_charset_is_no_form(store: Store) -> None:
    """Python takes quadratic time for punycode: 2.6 s for 64 kB, in which nobody else is answered."""
    guest = RaterClient(store).begin()
    body = f'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{guest.csrf}\r\n--b--\r\n'.encode()
    for charset, status in (("utf-8", 200), ("punycode", 403), ("undefined", 403), ("unicode_escape", 403)):
        kind = {"Content-Type": f"multipart/form-data; boundary=b; charset={charset}"}
        assert guest.client.post("/task/a00001/1", content=body, headers=kind).status_code == status


def test_every_answer_has_the_headers_and_cookies_are_closed(store: Store) -> None:
    https = settings_of(public_url="https://rate.example.org")
    for settings, host in ((settings_of(), "http://localhost"), (https, "https://rate.example.org")):
        guest = RaterClient(store, settings)
        guest.client.base_url = host
        page = guest.client.get(f"/s/mill?PROLIFIC_PID={host[-3:]}&lang=de", follow_redirects=False)
        cookies = page.headers.get_list("set-cookie")
        assert len(cookies) == 2
        for cookie in cookies:
            attributes = {part.strip().lower() for part in cookie.split(";")}
            assert {"httponly", "samesite=lax", "path=/"} <= attributes
            assert ("secure" in attributes) == cookie.startswith("__Host-") == host.startswith("https")
        for path in ("/consent", "/files/rating.js", "/nothing", "/healthz", "/task/a1/1", "/admin", "/files/../x"):
            headers = guest.client.get(path).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';"), path
            assert "unsafe" not in policy and "frame-ancestors 'none'" in policy and "form-action 'self';" in policy
            assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "same-origin"


def test_long_bodies_and_many_requests_are_refused(store: Store) -> None:
    guest = RaterClient(store).begin().rate_all()
    page = guest.client.post("/task/a00001/feedback", data={"csrf": guest.csrf, "text": "x" * 70_000})
    assert page.status_code == 413 and "too long" in page.text
    quick = RaterClient(store, settings_of(rate=0.001, burst=12)).begin()
    pages = [quick.client.get("/task/a00002/1") for _ in range(20)]
    assert pages[-1].status_code == 429 and int(pages[-1].headers["retry-after"]) > 0
    assert quick.client.get("/healthz").status_code == quick.client.get("/files/rating.css").status_code == 200
    crowd = RaterClient(store, settings_of(address_rate=0.001, address_burst=5))
    assert [crowd.get("/").status for _ in range(7)] == [200] * 5 + [429] * 2


def test_a_body_that_arrives_too_slowly_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "LONGEST_WAIT", 0.1)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"token="
        await asyncio.sleep(30)

    async def send() -> None:
        transport = ASGITransport(create_app(store, settings_of(), ADMIN_TOKEN))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            page = await client.post("/admin/login", content=slowly())
            assert (page.status_code, page.headers["connection"]) == (400, "close")

    asyncio.run(send())


def test_other_hosts_are_refused_where_the_server_is_local(store: Store) -> None:
    guest = RaterClient(store)
    assert guest.client.get("/", headers={"Host": "evil.example:8080"}).status_code == 421
    assert guest.client.get("/", headers={"Host": "127.0.0.1:8080"}).status_code == 200
    assert hosts_of(settings_of(host="0.0.0.0")) is None and hosts_of(settings_of(trusted_proxies="*")) is None
    assert "rate.example.org" in (hosts_of(settings_of(public_url="https://rate.example.org")) or ())


def test_the_log_has_routes_and_neither_identities_nor_tokens(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "rl_qg")
    token = store.add_invites(1)[0]
    guest = RaterClient(store).begin(f"/invite/{token}").rate()
    guest.get("/s/mill?PROLIFIC_PID=somebody-secret").get("/admin").post("/admin/login", token=ADMIN_TOKEN)
    monkeypatch.setattr(store, "progress", lambda: 1 / 0)
    assert guest.get("/admin").status == 500
    lines = "\n".join(JsonLines().format(record) for record in caplog.records if record.name.startswith("rl_qg"))
    routes = {json.loads(line)["route"] for line in lines.splitlines()}
    assert {"/invite/{token}", "/s/{study:path}", "/task/{assignment}/{position:int}"} <= routes
    cookies = [cookie.value or "" for cookie in guest.client.cookies.jar]
    for secret in (token, "somebody-secret", ADMIN_TOKEN, "testclient", *cookies):
        assert secret not in lines
    assert "ZeroDivisionError" in lines and "Traceback" not in guest.page.text


# --- Somebody who knows an id of a panel, or invents ids ---


def test_a_known_id_does_not_take_over_a_task(store: Store) -> None:
    rater = RaterClient(store).begin("/s/mill?PROLIFIC_PID=p1&SESSION_ID=real").rate(61)
    thief = RaterClient(store)
    for _ in range(2):
        assert thief.get("/s/mill?PROLIFIC_PID=p1&SESSION_ID=evil").status == 403 and "another browser" in thief.text
    with store._database.read() as sql:
        assert [json.loads(extra) for (extra,) in sql.rows("SELECT extra FROM identity")] == [{"SESSION_ID": "real"}]
    assert thief.get("/task").status == 401 and rater.get("/s/mill?PROLIFIC_PID=p1").path == "/task/a00001/2"
    owner = RaterClient(store).get("/admin").post("/admin/login", token=ADMIN_TOKEN)
    assert [entry[1:3] for entry in store.log()] == [("signed in", ""), ("other_browser", "r0001")], "once an hour"
    assert "goes on, and no other" in owner.post("/admin/let-in", rater="r0001").text and "let in" in owner.text
    assert rater.get("/task").status == 401
    new = RaterClient(store).get("/s/mill?PROLIFIC_PID=p1")
    assert new.path == "/task/a00001/2" and rater.get("/s/mill?PROLIFIC_PID=p1").status == 403


def test_whom_the_panel_has_signed_comes_from_any_browser_and_nobody_else(store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("0123456789abcdef\n")
    settings = settings_of(panel_secret=str(secret))
    signature = hmac.new(b"0123456789abcdef", b"p1", "sha256").hexdigest()
    for _ in range(2):
        assert RaterClient(store, settings).get(f"/s/mill?PROLIFIC_PID=p1&signature={signature}").path == "/consent"
    for query in (
        "p1",
        "p1&signature=",
        f"p1&signature={signature[:-1]}",
        f"p2&signature={signature}",
        "p1&signature=%E9",
    ):
        assert RaterClient(store, settings).get(f"/s/mill?PROLIFIC_PID={query}").status == 403
    assert [rater for rater, _ in store.raters()] == ["r0001"]
    assert panel_path(settings, "mill").endswith("&signature={{%signature%}}")
    secret.write_text("short")
    with pytest.raises(InputError, match=r"panel_secret=.*must have 16 to 200"):
        create_app(store, settings, ADMIN_TOKEN)
    with pytest.raises(InputError, match="needs panel_parameter"):
        settings_of(panel_secret=str(secret), panel_parameter="")


def test_invented_ids_of_one_address_hold_a_few_tasks_alone(tmp_path: Path) -> None:
    store = study(tmp_path, page_plan(protocol(practice=()), tasks=6))
    application = create_app(store, settings_of(address_tasks=2), ADMIN_TOKEN)
    guests = [RaterClient(store, application=application).begin(f"/s/mill?PROLIFIC_PID=x{at}") for at in range(4)]
    assert [guest.status for guest in guests] == [200, 200, 403, 403] and len(store.open_assignments()) == 2
    assert "crowded" in [kind for _, kind, _, _ in store.log()]
    elsewhere = RaterClient(store, application=application)
    elsewhere.client = TestClient(application, base_url="http://localhost", client=("192.0.2.7", 1))
    assert elsewhere.begin("/s/mill?PROLIFIC_PID=y").path == "/task/a00003/1"
    guests[0].rate_all().post(action="submit")
    assert guests[2].get("/task").path == "/task/a00004/1", "a place is free"


# --- The owner ---


def test_the_owner_signs_in_by_the_token(store: Store) -> None:
    guest = RaterClient(store).begin().rate_all().post(action="submit")
    owner = RaterClient(store).get("/admin")
    assert "Deutsch" not in owner.text, "this page is in English alone"
    assert "mill" not in owner.text and owner.post("/admin/login", token=ADMIN_TOKEN[:-1]).status == 403
    for name in ("pause", "expire", "export", "logout"):
        assert owner.post(f"/admin/{name}", token="x").path == "/admin" and not store.progress()["paused"]
    owner.post("/admin/login", token=f" {ADMIN_TOKEN}\n")
    assert owner.path == "/admin" and "1 of 2" in owner.text and "planted-system-a" in owner.text
    assert "r0001 consented" in owner.text and "USD" in owner.text
    forged = owner.client.post("/admin/pause", data={"csrf": "0" * 64})
    assert forged.status_code == 403 and not store.progress()["paused"]
    assert guest.get("/admin").path == "/admin" and "1 of 2" not in guest.text, "raters do not see it"


def test_pause_expire_and_export(store: Store, tmp_path: Path) -> None:
    owner = RaterClient(store).get("/admin").post("/admin/login", token=ADMIN_TOKEN)
    assert "nothing to export" in owner.post("/admin/export").text
    RaterClient(store).begin().rate_all()
    assert "a00001" in owner.get("/admin").text and "3 of 3" in owner.text
    assert "no longer open" in owner.post("/admin/expire", assignment="nonsense").text
    assert "lease has ended" in owner.post("/admin/expire", assignment="a00001").text
    assert store.assignment("a00001", "r0001").state == "expired" and "Nobody has a task" in owner.text
    assert "(paused)" in owner.post("/admin/pause").text and "Give out tasks again" in owner.text
    assert "(paused)" not in owner.post("/admin/resume").text
    page = owner.client.post("/admin/export", data={"csrf": owner.csrf})
    (tmp_path / "ratings.zip").write_bytes(page.content)
    with zipfile.ZipFile(tmp_path / "ratings.zip") as archive:
        lines = archive.read("ratings/ratings.jsonl").decode().splitlines()
        assert len(lines) == 12 and json.loads(lines[0])["value"] == 61
        assert "ratings/plan.json" in archive.namelist()
    assert owner.post("/admin/logout").path == "/admin" and "1 of 2" not in owner.text


def test_cookies_of_the_owner_expire_and_cannot_be_forged() -> None:
    clock = Clock()
    sessions = AdminSessions(ADMIN_TOKEN, clock)
    cookie = sessions.new_cookie()
    assert sessions.name_of(cookie) and AdminSessions(ADMIN_TOKEN, clock).name_of(cookie)
    assert sessions.name_of(cookie) != sessions.name_of(sessions.new_cookie()), "two in one second"
    until, _, signature = cookie.partition(".")
    for forged in ("", ".", until, f"{int(until) + 9}.{signature}", f"{until}.", f"é.{signature}", cookie + "0"):
        assert not sessions.name_of(forged)
    assert not AdminSessions(ADMIN_TOKEN + "x", clock).name_of(cookie)
    assert not sessions.opens("") and not sessions.opens("é" * 30)
    clock.now += 8 * 3600
    assert not sessions.name_of(cookie)


def test_signing_out_ends_the_session_on_the_server(store: Store) -> None:
    owner = RaterClient(store).get("/admin").post("/admin/login", token=ADMIN_TOKEN)
    (stolen,) = [cookie for cookie in owner.client.cookies.jar if cookie.name == "rating-admin"]
    thief = RaterClient(store)
    thief.client.cookies.set("rating-admin", str(stolen.value))
    assert "Study mill" in thief.get("/admin").text
    owner.post("/admin/logout")
    assert "Study mill" not in thief.get("/admin").text, "also in another process: it is in the database"
    thief.client.post("/admin/pause", data={"csrf": AdminSessions(ADMIN_TOKEN).csrf(str(stolen.value))})
    assert not store.is_paused()
    assert "Study mill" in owner.get("/admin").post("/admin/login", token=ADMIN_TOKEN).text


def test_wrong_tokens_are_slowed_whatever_the_rates_are(store: Store) -> None:
    owner = RaterClient(store, settings_of(rate=None, address_rate=None)).get("/admin")
    statuses = [owner.post("/admin/login", token=f"{ADMIN_TOKEN}{number}").status for number in range(7)]
    assert statuses == [403] * 5 + [429] * 2 and int(owner.page.headers["retry-after"]) in range(1, 11)
    assert owner.post("/admin/login", token=ADMIN_TOKEN).status == 429


def test_addresses_of_one_ipv6_network_are_one_for_every_limit(store: Store) -> None:
    def visitors(*addresses: str, **settings: Any) -> list[RaterClient]:
        application = create_app(store, settings_of(**settings), ADMIN_TOKEN)
        clients = [RaterClient(store, application=application) for _ in addresses]
        for one, address in zip(clients, addresses, strict=True):
            one.client = TestClient(application, base_url="http://localhost", client=(address, 1))
        return clients

    *near, far = visitors(*(f"2001:db8::{number}" for number in range(6)), "2001:db8:0:1::")
    assert [one.post("/admin/login", token="x" * 20).status for one in (*near, far)] == [403] * 5 + [429, 403]
    *near, far = visitors("2001:db8::1", "2001:db8::2", "2001:db8:0:1::", address_rate=0.001, address_burst=1)
    assert [one.get("/").status for one in (*near, far)] == [200, 429, 200]
    *near, far = visitors("2001:db8::1", "2001:db8::2", "2001:db8:0:1::", address_tasks=1)
    assert [one.begin().status for one in (*near, far)] == [200, 403, 200]


def test_the_log_says_who_signed_in_exported_paused_and_forgot(store: Store, tmp_path: Path) -> None:
    RaterClient(store).begin().rate_all()
    RaterClient(store).begin()
    owner = RaterClient(store).get("/admin").post("/admin/login", token=ADMIN_TOKEN)
    for name in ("pause", "resume", "export"):
        owner.client.post(f"/admin/{name}", data={"csrf": owner.csrf})
    owner.post("/admin/expire", assignment="a00001")
    export_to = [f"study={store.place}", f"output={tmp_path}/out", f"payments={tmp_path}/paid.csv"]
    run_command("rate", ["export", *export_to])
    run_command("rate", ["forget", f"study={store.place}", "rater=r0002"])
    kinds = [kind for _, kind, _, _ in reversed(store.log())]
    assert kinds == ["signed in", "paused", "resumed", "exported", "expired", "exported", "forgot"]
    owner.get("/admin")
    assert "ratings and identities by user" in owner.text and "r0002 by user" in owner.text
    name = AdminSessions(ADMIN_TOKEN).name_of(str(owner.client.cookies["rating-admin"]))
    assert f"paused by session {name}" in owner.text and f"a00001 by hand by session {name}" in owner.text


# --- A database that fails ---


def test_what_was_typed_is_kept_when_the_disk_is_full(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = RaterClient(store).begin().rate_all()
    secret = guest.csrf

    def full(*_: Any) -> None:
        raise StoreFailed(28, "the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(store, "save", full)
        broken.setattr(store, "add_feedback", full)
        guest.post("/task/a00001/2", csrf=secret, value_1=7, set_1=1, action="next")
        assert guest.status == 503 and "was not saved" in guest.text and guest.title.startswith("Error: ")
        kept = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', guest.page.text))
        assert kept == {"csrf": secret, "value-1": "7", "set-1": "1", "action": "next"}
        assert guest.client.post("/task/a00001/2", data=kept | {"action": "autosave"}).status_code == 503
        written = guest.client.post("/task/a00001/feedback", data={"csrf": secret, "text": 'a "b" <c>'})
        assert written.status_code == 503 and 'value="a &#34;b&#34; &lt;c&gt;"' in written.text
    action = re.search(r'<form method="post" action="([^"]+)"', guest.page.text)[1]  # type: ignore[index]
    guest.client.post(action, data=kept)  # the button
    assert store.ratings_of("a00001", "r0001")[2, "understandability"] == 7


def test_a_file_that_cannot_grow(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own error, as a full disk gives it."""
    guest, under = RaterClient(store).begin(), store._database
    secret, connect = guest.csrf, under._connect

    def full(until: float) -> Any:
        connection = connect(until)
        connection.execute("PRAGMA max_page_count = 1")  # as large as the file is
        return connection

    with monkeypatch.context() as broken:
        broken.setattr(under, "_connect", full)
        under.close()
        with pytest.raises(StoreFailed):
            for number in range(100):
                store.rater_of_panel("filled", str(number), {"session": "x" * 500})
        assert guest.post("/task/a00001/feedback", csrf=secret, text="y" * 5000).status == 503
        assert "y" * 5000 in guest.page.text and guest.get("/task/a00001/1").status in (200, 503)
        under.close()
    guest.post("/task/a00001/feedback", csrf=secret, text="y" * 5000)
    assert store.feedback_of("a00001", "r0001") == "y" * 5000


def test_a_locked_database_is_said_to_all_at_once_and_health_answers_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More people than there are threads."""
    monkeypatch.setattr(database, "WAIT_S", 3.0)
    application = create_app(store, settings_of(), ADMIN_TOKEN)

    async def crowd() -> None:
        async with AsyncClient(transport=ASGITransport(application), base_url="http://localhost") as client:
            waiting = [asyncio.create_task(client.post("/begin")) for _ in range(60)]
            await asyncio.sleep(0.3)
            healthy = await client.get("/healthz")
            assert healthy.status_code == 200 and not any(task.done() for task in waiting)
            async with asyncio.timeout(60):  # one after another they would take three minutes
                assert {page.status_code for page in await asyncio.gather(*waiting)} == {503}

    with closing(sqlite3.connect(store.place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.run(crowd())
    assert RaterClient(store, application=application).post("/begin").path == "/consent"


def test_health_is_503_where_the_database_does_not_answer(study_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its own time: other requests would wait for an hour."""
    monkeypatch.setattr(database, "WAIT_S", 3600.0)
    monkeypatch.setattr(visits, "HEALTH_S", 0.1)
    with closing(open_store(study_url, page_plan(protocol(practice=())))) as store, ThreadPoolExecutor(1) as threads:
        guest = RaterClient(store)
        with locked(store, study_url):
            assert threads.submit(guest.get, "/healthz").result(60).status == 503
        assert guest.get("/healthz").status == 200


def test_health_waits_for_no_connection_that_others_hold(store: Store) -> None:
    with ExitStack() as held:
        for _ in range(database.CONNECTIONS):
            held.enter_context(store._database.read())
        assert RaterClient(store).get("/healthz").status == 200
