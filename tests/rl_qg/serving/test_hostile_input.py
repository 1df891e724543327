"""Whatever is sent, the answer is a result or problem JSON with one clear line, never a traceback."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount

from rl_qg.web import requests as web
from rl_qg.web.requests import JsonLines
from tests.rl_qg.serving.clients import TEXT, is_problem, run, serving, until
from tests.rl_qg.serving.fake_model import FakeModel

KEY, OTHER = "k" * 32, "o" * 32
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"", 400, "the body is empty"),
        (b"{", 400, "the body is no valid JSON"),
        (b"\xff\xff", 400, "the body cannot be read as JSON"),
        (b"[" * 200_000, 400, "the body cannot be read as JSON"),
        (b'{"text":' * 50_000, 400, "the body cannot be read as JSON"),
        (b"[]", 400, "send a JSON object"),
        (b"null", 400, "send a JSON object"),
        (b'"text"', 400, "send a JSON object"),
        (b"{}", 422, "text: is missing"),
        (b'{"text": null}', 422, "text: input should be a valid string"),
        (b'{"text": 3}', 422, "text: input should be a valid string"),
        (b'{"text": ["a"]}', 422, "text: input should be a valid string"),
        (b'{"text": " \\n "}', 422, "text: is blank"),
        (b'{"text": "a\\u0000b"}', 422, "text: has a NUL character; remove it"),
        (b'{"text": "a\\ud800b"}', 422, "text: has half of a surrogate pair"),
        (b'{"text": "a", "number": 0}', 422, "number: input should be greater than or equal to 1"),
        (b'{"text": "a", "number": "5"}', 422, "number: input should be a valid integer"),
        (b'{"text": "a", "number": true}', 422, "number: input should be a valid integer"),
        (b'{"text": "a", "number": 1e400}', 422, "number: input should be a valid integer"),
        (b'{"text": "a", "number": 51}', 422, "number: is 51; this server gives at most 50"),
        (b'{"text": "a", "number": 99999999999999999999999999}', 422, "number: "),
        (b'{"text": "a", "min_score": NaN}', 422, "min_score: input should be a finite number"),
        (b'{"text": "a", "min_score": Infinity}', 422, "min_score: input should be a finite number"),
        (b'{"text": "a", "min_score": 2}', 422, "min_score: input should be less than or equal to 1"),
        (b'{"text": "a", "seed": -1}', 422, "seed: input should be greater than or equal to 0"),
        (b'{"text": "a", "way": "magic"}', 422, "way: input should be 'pipeline', 'multitask' or 'end2end'"),
        (b'{"text": "a", "way": "end2end"}', 422, "way: this model cannot end2end; it can pipeline"),
        (b'{"text": "a", "language": "English"}', 422, "language: string should match pattern"),
        (b'{"text": "a", "answers": []}', 422, "answers: list should have at least 1 item"),
        (b'{"text": "a", "answers": [{"text": "a", "start": -1}]}', 422, "answers/0/start: "),
        (b'{"text": "a", "answers": ["a"]}', 422, "answers/0: "),
        (b'{"text": "a", "txet": "b"}', 422, "txet: there is no such field"),
        (b'{"text": "a", "\\ud800": "b"}', 422, "body: a name of a field is not valid Unicode"),
        (b'{"number": 0, "seed": "x"}', 422, "text: is missing (and 2 more)"),
    ],
)
def test_bodies_that_are_wrong(body: bytes, status: int, detail: str) -> None:
    async def test() -> None:
        async with serving() as (client, _):
            for path in ("/v1/pairs", "/v1/pairs/stream"):
                problem = is_problem(await client.post(path, content=body, headers=JSON), status)
                assert problem["detail"].startswith(detail)

    run(test)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from("text number seed language way min_score answers input_text highlight split pairs".split())


@settings(max_examples=60)
@given(
    st.sampled_from(["/v1/pairs", "/v1/questions", "/v1/answers", "/v1/score", "/v1/explain", "/question_generation"]),
    st.dictionaries(FIELDS | st.text(max_size=5), VALUES, max_size=6),
)
def test_any_json_gets_a_result_or_a_problem(path: str, body: dict[str, Any]) -> None:
    async def test() -> None:
        async with serving() as (client, _):
            answer = await client.post(path, content=json.dumps(body).encode(), headers=JSON)
            if answer.status_code != 200:
                assert answer.status_code in (400, 422), answer.text
                is_problem(answer, answer.status_code)

    run(test)


def test_wrong_addresses_methods_and_types() -> None:
    async def test() -> None:
        async with serving() as (client, _):
            is_problem(await client.get("/v1/nothing"), 404)
            is_problem(await client.get("/../../etc/passwd"), 404)
            wrong = await client.get("/v1/pairs")
            assert is_problem(wrong, 405)["detail"] == "this address does not take GET; use POST"
            assert wrong.headers["allow"] == "POST"
            form = await client.post("/v1/pairs", data={"text": TEXT})
            assert "Content-Type: application/json" in is_problem(form, 400)["detail"]
            plain = await client.post("/v1/pairs", content=b'{"text": "a"}', headers={"Content-Type": "text/plain"})
            is_problem(plain, 400)  # what a page of another origin could send

    run(test)


def test_long_bodies_are_refused_with_and_without_their_length() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b" " * 1_000_000

    async def test() -> None:
        async with serving() as (client, _):
            for content in (b" " * 10_000_000, chunks()):
                answer = await client.post("/v1/pairs", content=content, headers=JSON)
                assert "1000000 bytes" in is_problem(answer, 413)["detail"]
            for length in ("-1", "x", "9" * 5000):
                is_problem(await client.post("/v1/pairs", content=b"{}", headers={"Content-Length": length}), 413)
            long = {"text": "a" * 50_001}
            assert "50001 characters" in is_problem(await client.post("/v1/pairs", json=long), 413)["detail"]
            assert (await client.post("/v1/pairs", json={"text": "a" * 50_000})).status_code == 200
            pair = {"question": "a " * 30_000, "answer": "Ada"}
            for path, body in (("/v1/explain", pair), ("/v1/score", {"pairs": [pair]})):
                problem = is_problem(await client.post(path, json={"text": TEXT, **body}), 413)
                assert problem["detail"].startswith("question: has 60000 characters")

    run(test)


def test_a_body_that_arrives_too_slowly_is_given_up() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"text":'
        await asyncio.sleep(30)
        yield b'"a"}'

    async def test() -> None:
        async with serving(body_seconds=0.1) as (client, _):
            answer = await client.post("/v1/pairs", content=chunks(), headers=JSON)
            assert "0.1 s" in is_problem(answer, 400)["detail"]

    run(test)


@pytest.mark.parametrize("keys", [[], [KEY]])
def test_a_client_that_leaves_within_its_body_is_counted(keys: list[str]) -> None:
    async def test() -> None:
        async with serving(keys=keys) as (client, service):
            left, form = asyncio.Event(), b"application/x-www-form-urlencoded"
            left.set()
            assert await _post(client, "/", b"text=a", left, ends=False, kind=form) == []
            value = service.metrics.registry.get_sample_value
            assert value("rl_qg_requests_total", {"route": "none", "status": "499"}) == 1
            assert value("rl_qg_cancelled_total") == 1

    run(test)


def test_keys_are_asked_for_wherever_the_model_or_the_metrics_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "ATTEMPTS", 100)

    async def test() -> None:
        async with serving(keys=[KEY, OTHER]) as (client, _):
            for headers in (
                {},
                {"Authorization": f"Bearer {KEY}x"},
                {"Authorization": f"Basic {KEY}"},
                {"X-API-Key": ""},
            ):
                for path in ("/v1/pairs", "/v1/score", "/question_generation", "/", "/page/export"):
                    answer = await client.post(path, json={"text": TEXT}, headers=headers)
                    is_problem(answer, 401)
                    assert answer.headers["www-authenticate"].startswith("Bearer")
                is_problem(await client.get("/v1/models", headers=headers), 401)
                is_problem(await client.get("/metrics", headers=headers), 401)
            for headers in (
                {"Authorization": f"Bearer {KEY}"},
                {"authorization": f"bearer {OTHER}"},
                {"X-API-Key": KEY},
            ):
                assert (await client.post("/v1/pairs", json={"text": TEXT}, headers=headers)).status_code == 200
            for path in ("/healthz", "/readyz", "/openapi.json"):
                assert (await client.get(path)).status_code == 200

    run(test)


def test_below_another_path_the_same_addresses_are_open() -> None:
    async def test() -> None:
        async with serving(keys=[KEY], rate=0.001, burst=3) as (client, _):
            mounted = Starlette(routes=[Mount("/deep/ask", client._transport.app)])  # type: ignore[attr-defined]
            transport = httpx.ASGITransport(mounted, client=("192.0.2.9", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://server/deep/ask") as below:
                for path in ("/", "/openapi.json", *["/healthz", "/page/page.css"] * 5):
                    assert (await below.get(path)).status_code == 200, path
                for path in ("/v1/models", "/metrics"):
                    is_problem(await below.get(path), 401)
                is_problem(await below.post("/v1/pairs", json={"text": TEXT}), 401)
                form = await below.post("/", data={"text": TEXT, "key": KEY})  # of a browser without JavaScript
                assert form.status_code == 200 and 'class="panel one"' in form.text

    run(test)


def test_wrong_keys_are_slowed_whatever_the_rates_are() -> None:
    async def test() -> None:
        async with serving(keys=[KEY]) as (client, _):

            async def ask(key: str) -> int:
                found = await client.post("/v1/pairs", json={"text": TEXT}, headers={"X-API-Key": key} if key else {})
                assert found.status_code != 429 or 1 <= int(found.headers["retry-after"]) <= 10
                return found.status_code

            assert [await ask(key) for key in (KEY, "") for _ in range(9)] == [200] * 9 + [401] * 9
            assert [await ask(f"{KEY}{number}") for number in range(7)] == [401] * 5 + [429] * 2
            assert await ask(KEY) == 429, "else the answer would tell which key is known"
            form = await client.post("/", data={"text": TEXT, "key": f"{KEY}9"})
            assert form.status_code == 429 and await ask("") == 401
            assert (await client.get("/healthz")).status_code == 200
            elsewhere = httpx.ASGITransport(client._transport.app, client=("192.0.2.9", 1))  # type: ignore[attr-defined]
            async with httpx.AsyncClient(transport=elsewhere, base_url="http://server") as other:
                for number in range(6):  # of a form too
                    form = await other.post("/", data={"text": TEXT, "key": f"{KEY}{number}"})
                    assert form.status_code == (401 if number < 5 else 429)

    run(test)


def test_rates_are_limited_for_each_key() -> None:
    async def test() -> None:
        async with serving(keys=[KEY, OTHER], rate=0.001, burst=2) as (client, _):
            statuses = []
            for key in (KEY, KEY, KEY, OTHER):
                answer = await client.post("/v1/pairs", json={"text": TEXT}, headers={"X-API-Key": key})
                statuses.append(answer.status_code)
                if answer.status_code == 429:
                    is_problem(answer, 429)
                    assert 900 <= int(answer.headers["retry-after"]) <= 1000
            assert statuses == [200, 200, 429, 200]
            assert [(await client.get("/healthz")).status_code for _ in range(5)] == [200] * 5
        async with serving(rate=0.001, burst=1) as (client, _):  # without keys, for each address
            assert [(await client.get("/v1/models")).status_code for _ in range(2)] == [200, 429]
            assert [(await client.get("/page/page.css")).status_code for _ in range(5)] == [200] * 5

    run(test)


def test_other_origins_are_refused_unless_they_are_named() -> None:
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}

    async def test() -> None:
        async with serving() as (client, _):
            answer = await client.options("/v1/pairs", headers=asked)
            assert answer.status_code == 405 and "access-control-allow-origin" not in answer.headers
        async with serving(origins=["https://a.example"], keys=[KEY]) as (client, _):
            answer = await client.options("/v1/pairs", headers=asked)
            assert answer.headers["access-control-allow-origin"] == "https://a.example"
            other = await client.options("/v1/pairs", headers={**asked, "Origin": "https://b.example"})
            assert "access-control-allow-origin" not in other.headers
            refused = await client.post("/v1/pairs", json={}, headers={"Origin": "https://a.example"})
            assert is_problem(refused, 401) and refused.headers["access-control-allow-origin"] == "https://a.example"

    run(test)


def test_answers_have_the_headers_that_browsers_heed() -> None:
    async def test() -> None:
        async with serving() as (client, _):
            for answer in (await client.get("/healthz"), await client.get("/nowhere"), await client.post("/v1/pairs")):
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["content-security-policy"].startswith("default-src 'none'")
                assert answer.headers["cache-control"] == "no-store"
                assert len(answer.headers["x-request-id"]) == 32
            named = await client.get("/healthz", headers={"X-Request-ID": "a-1"})
            assert named.headers["x-request-id"] == "a-1"
            hostile = await client.get("/healthz", headers={"X-Request-ID": "a\tb"})
            assert len(hostile.headers["x-request-id"]) == 32

    run(test)


def test_the_log_has_one_json_line_for_each_request_and_no_text_unless_it_should(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask(**settings: Any) -> list[dict[str, Any]]:
        caplog.clear()
        async with serving(keys=[KEY], **settings) as (client, _):
            for text in ("a secret text", "a secret crash"):
                await client.post("/v1/pairs", json={"text": text}, headers={"X-API-Key": KEY})
        return [json.loads(JsonLines().format(record)) for record in caplog.records if record.name.startswith("rl_qg")]

    async def test() -> None:
        lines = await ask()
        assert [(line["event"], line["status"], line["level"]) for line in lines] == [
            ("request", 200, "info"),
            ("request", 500, "error"),
        ]
        assert lines[0]["path"] == "/v1/pairs" and lines[0]["key"] == 1 and lines[0]["seconds"] >= 0
        assert lines[1]["error"]["type"] == "RuntimeError" and "fake_model.py" in lines[1]["error"]["at"][-1]
        assert "secret" not in json.dumps(lines) and KEY not in json.dumps(lines)
        with_texts = await ask(log_texts=True)
        assert json.loads(with_texts[0]["body"]) == {"text": "a secret text"}
        assert with_texts[1]["error"]["message"] == "cannot read a secret crash"
        assert KEY not in json.dumps(with_texts)
        for shown in (True, False):
            caplog.clear()
            async with serving(log_texts=shown, passage_characters=30, batch_size=1) as (client, _):
                await client.post("/", data={"text": "a secret crash"})
                long = "A passage that is good.\n\nAnd a secret crash."
                await client.post("/v1/pairs/stream", json={"text": long, "number": 2})
            lines = [json.loads(JsonLines().format(one)) for one in caplog.records if one.levelname == "ERROR"]
            assert [line["event"] for line in lines] == ["form", "stream"]
            assert ["secret" in json.dumps(line) for line in lines] == [shown, shown]

    with caplog.at_level(logging.INFO):
        run(test)


def test_a_client_that_leaves_takes_its_request_out_of_the_queue() -> None:
    """The connection is closed as a server sees it: `receive` says so."""

    async def test() -> None:
        model = FakeModel()
        async with serving(model, passage_characters=40) as (client, service):
            model.go.clear()
            begun = asyncio.create_task(client.post("/v1/pairs", json={"text": TEXT}))
            await until(model.begun.is_set)
            waiting = len(service._queue)  # the second passage of the first text
            for path in ("/v1/pairs", "/v1/pairs/stream", "/question_generation"):
                left = asyncio.Event()
                name = "input_text" if path == "/question_generation" else "text"
                body = json.dumps({name: "This is a passage of its own, as long as this.\n\n" * 3})
                leaving = asyncio.create_task(_post(client, path, body.encode(), left))
                await until(lambda: len(service._queue) == waiting + 3)
                left.set()
                assert await leaving == []
                assert len(service._queue) == waiting
            model.go.set()
            assert (await begun).status_code == 200

    run(test)


async def _post(
    client: httpx.AsyncClient,
    path: str,
    body: bytes,
    left: asyncio.Event,
    *,
    ends: bool = True,
    kind: bytes = b"application/json",
) -> list[Any]:
    """Send a request to the application of a client; the client closes the connection when `left` is set."""
    application = client._transport.app  # type: ignore[attr-defined]
    first = [{"type": "http.request", "body": body, "more_body": not ends}]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if first:
            return first.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "server": ("server", 80),
        "client": ("10.0.0.1", 5),
        "headers": [(b"content-type", kind)],
    }
    await application(scope, receive, send)
    return sent
