"""The form of the page without JavaScript on a server that asks for a key."""

import json
import logging
import re
from collections.abc import Callable
from html import unescape

import pytest

from rl_qg.settings import ServeSettings
from rl_qg.web.requests import APIKeys
from tests.rl_qg.serving.clients import TEXT, is_problem, run, serving
from tests.rl_qg.serving.conftest import Visit
from tests.rl_qg.serving.fake_model import FakeModel

KEY, WRONG = "a-key-of-this-server", "no-key-of-this-server"
FILE = {"file": ("", b"", "text/plain")}  # what a browser sends where no file was chosen: the form is multipart
PAIR = json.dumps({"question": "Who?", "answer": "Ada", "answer_start": 0, "score": 0.5, "reason": "", "scores": {}})


def fault(page: str) -> str:
    (line,) = re.findall(r'id="fault" role="alert">(.*?)</p>', page, re.DOTALL)
    return unescape(line)


def test_a_known_key_in_the_form_is_enough_and_is_not_given_back() -> None:
    async def test() -> None:
        async with serving(keys=["another-key-that-is-known", KEY]) as (client, _):
            assert 'name="key" type="password"' in (await client.get("/")).text
            for send in ({"files": FILE}, {}):  # multipart, and as encoded fields
                answer = await client.post("/", data={"text": TEXT, "number": "2", "key": f" {KEY} "}, **send)
                assert answer.status_code == 200 and answer.text.count('class="panel one"') == 2 + 1  # the template
                assert KEY not in answer.text and 'id="kept-key" name="key"' in answer.text
            by_header = await client.post("/", data={"text": TEXT}, headers={"X-API-Key": KEY})
            assert by_header.status_code == 200
            fields = {"text": "Ada wrote.", "format": "jsonl", "pair": PAIR, "key": KEY}
            exported = await client.post("/page/export", data=fields)
            assert exported.status_code == 200 and KEY not in exported.text
            assert json.loads(exported.text)["question"] == "Who?"

    run(test)


@pytest.mark.parametrize(
    "given", [{}, {"key": ""}, {"key": WRONG}, {"key": "x" * 300_000}, {"key": [WRONG, KEY[:-1]]}]
)
def test_without_a_known_key_nothing_is_made_and_what_was_typed_stays(given: dict[str, str]) -> None:
    async def test() -> None:
        model = FakeModel()
        async with serving(model, keys=[KEY]) as (client, _):
            for send in ({"files": FILE}, {}):
                answer = await client.post("/", data={"text": TEXT, "number": "2", **given}, **send)
                assert answer.status_code == 401
                assert fault(answer.text) == "This server asks for a key: type a key that it knows."
                assert TEXT in answer.text and WRONG not in answer.text and "xxxx" not in answer.text
            fields = {"text": "Ada wrote.", "format": "jsonl", "pair": PAIR, **given}
            assert is_problem(await client.post("/page/export", data=fields), 401)
            part = b'--x\r\nContent-Disposition: form-data; name="key"\r\n\r\n' + KEY.encode() + b"\r\n--x--"
            for content, end in ((b"", ""), (b"key=", ""), (b"--x\r\nbroken", ""), (part, "; charset=undefined")):
                kind = {"Content-Type": f"multipart/form-data; boundary=x{end}"}
                broken = await client.post("/", content=content, headers=kind)
                assert broken.status_code in (400, 401)
        assert model.calls == []

    run(test)


def test_a_wrong_key_in_the_headers_is_refused_whatever_the_form_has() -> None:
    async def test() -> None:
        async with serving(keys=[KEY]) as (client, _):
            for address in ("/", "/page/export"):
                data = {"text": TEXT, "key": KEY}
                assert is_problem(await client.post(address, data=data, headers={"X-API-Key": WRONG}), 401)
            assert is_problem(await client.post("/v1/pairs", json={"text": TEXT, "key": KEY}), 401)

    run(test)


def test_the_page_of_a_server_without_keys_has_no_field_for_one() -> None:
    async def test() -> None:
        async with serving() as (client, _):
            page = (await client.post("/", data={"text": TEXT, "number": "1"})).text
            assert 'name="key"' not in page and "kept-key" not in page

    run(test)


def test_every_key_of_the_server_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(
        "hmac.compare_digest", lambda first, second: compared.append((first, second)) or first == second
    )
    assert APIKeys([KEY, "another-key-that-is-known"]).number_of(KEY) == 1
    assert len(compared) == 2 and {len(side) for pair in compared for side in pair} == {32}
    compared.clear()

    async def test() -> None:
        async with serving(keys=[KEY, "another-key-that-is-known"]) as (client, _):
            await client.post("/", data={"text": TEXT, "key": WRONG})

    run(test)
    assert len(compared) == 2


@pytest.mark.parametrize("address", ["/", "/page/export"])
def test_the_log_never_has_the_key_of_a_form(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def test() -> None:
        async with serving(keys=[KEY], log_texts=True, max_body_bytes=5000) as (client, _):
            for text in (TEXT, "crash", "long " * 2000):
                await client.post(address, data={"key": KEY, "text": text}, files=FILE)
                await client.post(address, data={"key": KEY, "text": text})
            await client.post("/v1/pairs", json={"text": TEXT}, headers={"X-API-Key": KEY})

    run(test)
    logged = [str(record.__dict__) for record in caplog.records]
    assert len([line for line in logged if "'request'" in line]) >= 7
    assert not any(KEY in line for line in logged)
    assert any(TEXT in line for line in logged), "bodies are logged where they can have no key"


def test_guesses_are_limited_by_their_address_and_forms_by_their_key() -> None:
    async def test() -> None:
        async with serving(keys=[KEY], rate=0.001, burst=2) as (client, _):
            statuses = [(await client.post("/", data={"text": TEXT, "key": WRONG})).status_code for _ in range(3)]
            assert statuses == [401, 401, 429]
            statuses = [(await client.post("/", data={"text": TEXT, "key": KEY})).status_code for _ in range(3)]
            assert statuses == [200, 200, 429]
            assert (await client.post("/v1/pairs", json={"text": TEXT}, headers={"X-API-Key": KEY})).status_code == 429

    run(test)


@pytest.mark.slow
def test_a_browser_without_script_asks_and_exports_with_a_key(visit: Callable[..., Visit]) -> None:
    from rl_qg.serving.application import create_app
    from rl_qg.serving.service import AskingService

    service = AskingService(FakeModel, ServeSettings(max_wait_ms=0.0))
    service.start()
    assert service.wait(30)
    page = visit(create_app(service, keys=APIKeys([KEY])), java_script_enabled=False).page
    page.fill("#text", TEXT)
    page.fill("#number", "2")
    page.click("#ask-all")
    assert page.inner_text("#fault").startswith("This server asks for a key")
    assert page.input_value("#text") == TEXT and page.input_value("#api_key") == ""
    page.get_by_label("API key").fill(KEY)
    page.click("#ask-all")
    assert page.locator("#kept .asked").count() == 2 and page.input_value("#api_key") == ""
    page.fill("#kept-key", KEY)
    with page.expect_download() as download:
        page.click("text=Export the kept questions")
    assert download.value.suggested_filename == "questions.jsonl"
