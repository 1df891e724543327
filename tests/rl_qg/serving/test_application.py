"""The routes, as a client sees them, with a model whose answers are known."""

import asyncio
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from rl_qg.asking.pairs import AnswerSpan, AskRequest
from rl_qg.serving.application import create_app
from rl_qg.serving.gate import hosts_of
from rl_qg.serving.service import AskingService
from rl_qg.settings import ServeSettings
from rl_qg.web import requests as web
from tests.rl_qg.serving.clients import TEXT, events, is_problem, run, serving, until
from tests.rl_qg.serving.fake_model import FakeModel, on_the_wire, pairs_of

LONG = "\n\n".join(
    f"Paragraph {number} has the words {number}x and {number}y, no more. It ends." for number in range(9)
)


def test_the_page_is_there_and_so_is_its_form() -> None:
    async def test() -> None:
        async with serving() as (client, _):
            page = await client.get("/")
            assert page.headers["content-type"].startswith("text/html") and "fake" in page.text
            assert "script-src 'self'" in page.headers["content-security-policy"]
            answer = await client.post("/", data={"text": TEXT, "number": "1"})
            [pair] = pairs_of(AskRequest(TEXT, number=1))
            assert answer.status_code == 200 and pair.question in answer.text

    run(test)


def test_pairs() -> None:
    async def test() -> None:
        async with serving() as (client, _):
            answer = await client.post("/v1/pairs", json={"text": TEXT, "number": 3, "seed": 7})
            assert answer.status_code == 200
            pairs = on_the_wire(AskRequest(TEXT, number=3, seed=7))
            assert answer.json() == {"pairs": pairs, "reason": "", "dropped": {}, "model": "fake", "warning": ""}
            assert len(pairs) == 3
            low = (await client.post("/v1/pairs", json={"text": TEXT, "number": 8, "min_score": 0.5})).json()
            kept = on_the_wire(AskRequest(TEXT, number=8, min_score=0.5))
            assert low["pairs"] == kept and 0 < len(kept) < 8
            assert low["dropped"] == {"min_score": 8 - len(kept)} and low["reason"] == f"{len(kept)} of 8"

    run(test)


def test_given_answers_are_asked_about_where_they_stand_and_without_a_place_at_the_first() -> None:
    text = "Bob met Ada. Ada met Bob."

    async def test() -> None:
        async with serving() as (client, _):
            given = [{"text": "Ada", "start": 13}, {"text": "Bob"}]
            pairs = (await client.post("/v1/pairs", json={"text": text, "answers": given})).json()["pairs"]
            spans = (AnswerSpan("Ada", 13), AnswerSpan("Bob", 0))
            assert pairs == on_the_wire(AskRequest(text, spans, number=2))
            questions = (await client.post("/v1/questions", json={"text": text, "answers": given})).json()["pairs"]
            assert [(pair["answer"], pair["answer_start"]) for pair in questions] == [("Ada", 13), ("Bob", 0)]
            assert sorted(questions, key=lambda pair: -pair["score"]) == pairs
            twice = {"text": text, "answers": [given[1], given[0], given[1]]}
            questions = (await client.post("/v1/questions", json=twice)).json()["pairs"]
            assert [pair["answer"] for pair in questions] == ["Bob", "Ada", "Bob"]
            for wrong in ({"text": "Ada", "start": 12}, {"text": "Eve"}, {"text": "Ada", "start": 99}):
                problem = is_problem(
                    await client.post("/v1/pairs", json={"text": text, "answers": [given[1], wrong]}), 422
                )
                assert problem["errors"][0]["pointer"] == "/answers/1" and "is not in the text" in problem["detail"]

    run(test)


def test_an_answer_without_a_place_is_found_as_a_word_and_white_space_around_one_is_not_part_of_it() -> None:
    text = "A particle of art.\n\nMore art. The end."

    async def test() -> None:
        async with serving(passage_characters=19) as (client, _):
            given = [{"text": "art"}, {"text": "\n\nMore", "start": 18}, {"text": " The"}]
            pairs = (await client.post("/v1/questions", json={"text": text, "answers": given})).json()["pairs"]
            assert [(pair["answer"], pair["answer_start"]) for pair in pairs] == [
                ("art", 14),
                ("More", 20),
                ("The", 30),
            ]
            why = {"text": text, "question": "Who?", "answer": "Eve"}
            assert is_problem(await client.post("/v1/explain", json=why), 422)["errors"][0]["pointer"] == "/answer"

    run(test)


def test_answers_scores_models_and_explanations() -> None:
    async def test() -> None:
        model = FakeModel(ways=("multitask", "pipeline"))
        async with serving(model) as (client, _):
            found = (await client.post("/v1/answers", json={"text": TEXT, "number": 2})).json()
            assert found["answers"] == [
                {"text": "Ada", "start": 0, "kind": "word", "score": 1.0},
                {"text": "Lovelace", "start": 4, "kind": "word", "score": 1.0},
            ]
            is_problem(await client.post("/v1/answers", json={"text": TEXT, "language": "xx"}), 422)
            pairs = [{"question": "Who?", "answer": "Ada"}, {"question": "Where then?", "answer": "Rome"}]
            scores = (await client.post("/v1/score", json={"text": TEXT, "pairs": pairs})).json()
            assert scores == {
                "scores": [{"length": 4.0, "in_text": 1.0}, {"length": 11.0, "in_text": 0.0}],
                "model": "fake",
                "warning": "",
            }
            await client.post("/v1/score", json={"text": TEXT, "pairs": pairs, "language": "de"})
            assert model.languages == ["en", "de"]
            is_problem(await client.post("/v1/score", json={"text": TEXT, "pairs": pairs, "language": "xx"}), 422)
            models = (await client.get("/v1/models")).json()
            assert models == {"models": [{"name": "fake", "ways": ["multitask", "pipeline"], "warning": ""}]}
            why = {"text": TEXT, "question": "Who wrote the first program?", "answer": "Ada Lovelace"}
            tokens = (await client.post("/v1/explain", json=why)).json()["tokens"]
            words = {TEXT[token["start"] : token["end"]]: token["weight"] for token in tokens}
            # "wrote" begins 1 character after the answer, "program" 17: 1 / 1.01 and 1 / 1.17.
            assert words["wrote"] == 0.9901 and words["program"] == 0.8547
            assert "the" not in words and "London" not in words and "Ada" not in words

    run(test)


def test_the_warning_of_a_model_stands_in_every_answer_and_on_the_page() -> None:
    warning = "fake knows <nothing> of this text"

    async def test() -> None:
        model = FakeModel()
        model.warning = warning
        bodies = {
            "/v1/pairs": {"text": TEXT},
            "/v1/questions": {"text": TEXT, "answers": [{"text": "London"}]},
            "/v1/answers": {"text": TEXT},
            "/v1/score": {"text": TEXT, "pairs": [{"question": "Who?", "answer": "Ada"}]},
            "/question_generation": {"input_text": TEXT},
        }
        async with serving(model) as (client, _):
            for path, body in bodies.items():
                assert (await client.post(path, json=body)).json()["warning"] == warning, path
            streamed = events((await client.post("/v1/pairs/stream", json={"text": TEXT})).text)
            assert [(name, data["warning"]) for name, data in streamed] == [("pairs", warning), ("done", warning)]
            assert (await client.get("/v1/models")).json()["models"][0]["warning"] == warning
            for page in (await client.get("/"), await client.post("/", data={"text": TEXT})):
                [(hidden, shown)] = re.findall(r'id="warning" role="note"( hidden)?>(.*?)</p>', page.text)
                assert (hidden, unescape(shown)) == ("", warning)
            schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
            for name in ("PairsResponse", "AnswersResponse", "ScoreResponse", "ModelOut", "GenerationResponse"):
                assert "embedded corpus" in schemas[name]["properties"]["warning"]["description"]
            model.warning = ""
            [(hidden, shown)] = re.findall(
                r'id="warning" role="note"( hidden)?>(.*?)</p>', (await client.get("/")).text
            )
            assert hidden and not shown

    run(test)


def test_a_long_text_streams_its_passages_with_offsets_into_the_whole_text() -> None:
    async def test() -> None:
        body = {"text": LONG, "number": 18}
        async with serving(passage_characters=100) as (client, _):
            answer = await client.post("/v1/pairs/stream", json=body)
            assert answer.headers["content-type"].startswith("text/event-stream")
            *passages, (last, counts) = events(answer.text)
            whole = (await client.post("/v1/pairs", json=body)).json()
        assert [name for name, _ in passages] == ["pairs"] * 9
        pairs = [pair for _, data in passages for pair in data["pairs"]]
        assert all(LONG.startswith(pair["answer"], pair["answer_start"]) for pair in pairs)
        assert [data["passage"] for _, data in passages] == [match.start() for match in re.finditer("Paragraph", LONG)]
        assert last == "done" and counts["passages"] == 9 and counts["pairs"] == len(pairs) == 18
        assert len(whole["pairs"]) == 18 and whole["reason"] == ""
        assert all(LONG.startswith(pair["answer"], pair["answer_start"]) for pair in whole["pairs"])
        scores = [pair["score"] for pair in whole["pairs"]]
        assert scores == sorted(scores, reverse=True)

    run(test)


def test_a_stream_whose_model_fails_ends_with_an_error_event() -> None:
    async def test() -> None:
        async with serving(passage_characters=40, batch_size=1) as (client, _):
            text = "The first passage is good, as you see.\n\nThe second will make it crash, in vain."
            found = events((await client.post("/v1/pairs/stream", json={"text": text, "number": 2})).text)
            assert [name for name, _ in found] == ["pairs", "error"]
            assert found[1][1]["status"] == 500 and "crash" not in json.dumps(found[1])
            is_problem(await client.post("/v1/pairs/stream", json={"text": "please refuse"}), 422)

    run(test)


def test_an_answer_does_not_depend_on_its_company() -> None:
    bodies = [
        {"text": f"{TEXT} {number}", "number": 1 + number % 4, "seed": number % 3 or None} for number in range(32)
    ]

    async def test() -> None:
        async with serving(max_wait_ms=20, batch_size=64) as (client, service):
            alone = [(await client.post("/v1/pairs", json=body)).content for body in bodies]
            for order in (bodies, bodies[::-1], bodies[::2] + bodies[1::2]):
                together = await asyncio.gather(*(client.post("/v1/pairs", json=body) for body in order))
                assert [answer.content for answer in together] == [alone[bodies.index(body)] for body in order]
            assert service.metrics.registry.get_sample_value("rl_qg_pairs_total") == 4 * sum(
                int(str(body["number"])) for body in bodies
            )

    run(test)


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, 421),
        ({"host": "0.0.0.0"}, 200),
        ({"origins": ["https://a.b"]}, 200),
        ({"trusted_proxies": "10.0.0.1"}, 200),
        ({"host": "127.0.0.2"}, 421),
        ({"host": "127.1"}, 421),
        ({"host": "::ffff:127.0.0.1"}, 421),
    ],
)
def test_a_server_of_this_machine_answers_to_its_names_alone(settings: dict[str, Any], status: int) -> None:
    async def test() -> None:
        options = ServeSettings(**settings)
        service = AskingService(FakeModel, options)
        service.start()
        transport = httpx.ASGITransport(create_app(service, options, hosts=hosts_of(options)))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"):
                assert (await client.get("/healthz", headers={"Host": host})).status_code == 200, host
            for host in ("evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example", "[::1", ""):
                assert (await client.get("/healthz", headers={"Host": host})).status_code == status, host
            if status == 421:
                is_problem(await client.get("/", headers={"Host": "evil.example"}), 421)
        await asyncio.to_thread(service.close, 30)

    run(test)


def test_an_application_asks_for_the_keys_that_its_settings_name(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "keys.txt").write_text("a-key-of-this-server\n")
        service = AskingService(FakeModel, ServeSettings(api_keys=str(tmp_path / "keys.txt")))
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            is_problem(await client.get("/v1/models"), 401)
            assert (await client.get("/v1/models", headers={"X-API-Key": "a-key-of-this-server"})).status_code == 200

    run(test)


def test_a_server_of_this_machine_answers_to_the_name_on_which_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"127.0.0.2", "localhost"} <= (hosts_of(ServeSettings(host="127.0.0.2")) or set())
    found = [(2, 1, 6, "", ("127.0.1.1", 0))]  # what Debian says of a machine's own name
    monkeypatch.setattr(web, "getaddrinfo", lambda *_: found)
    assert {"machine", "127.0.1.1"} <= (hosts_of(ServeSettings(host="Machine")) or set())
    found.append((2, 1, 6, "", ("192.0.2.7", 0)))
    assert hosts_of(ServeSettings(host="machine")) is None


def test_a_form_whose_client_leaves_is_taken_out_of_the_queue() -> None:
    async def test() -> None:
        model = FakeModel()
        async with serving(model) as (client, service):
            model.go.clear()
            begun = asyncio.create_task(client.post("/v1/pairs", json={"text": TEXT}))
            await until(model.begun.is_set)
            sent = [{"type": "http.request", "body": f"text={'word+' * 9}".encode(), "more_body": False}]
            leaves = asyncio.Event()

            async def receive() -> dict[str, Any]:
                if sent:
                    return sent.pop()
                await leaves.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                raise AssertionError("nobody gets an answer")

            kind = (b"content-type", b"application/x-www-form-urlencoded")
            scope = {"type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b""}
            scope |= {"headers": [kind, (b"host", b"localhost")], "http_version": "1.1", "scheme": "http"}
            form = asyncio.create_task(create_app(service, service.settings)(scope, receive, send))  # type: ignore[arg-type]
            await until(lambda: len(service._queue) == 1)
            leaves.set()
            await form
            assert len(service._queue) == 0
            model.go.set()
            assert (await begun).status_code == 200

    run(test)


def test_the_description_has_examples_that_work_and_no_page_from_other_hosts() -> None:
    async def test() -> None:
        async with serving() as (client, _):
            document = (await client.get("/openapi.json")).json()
            assert document["openapi"].startswith("3.")
            tried = 0
            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    if path.startswith("/v1/") or path == "/question_generation":
                        assert "application/problem+json" in operation["responses"]["422"]["content"]
                    if method == "post":
                        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                        [example] = document["components"]["schemas"][reference.rpartition("/")[2]]["examples"]
                        assert (await client.post(path, json=example)).status_code == 200, path
                        tried += 1
            assert tried == 7
            for path in ("/docs", "/redoc"):
                is_problem(await client.get(path), 404)

    run(test)


@pytest.mark.parametrize(("name", "shown"), [("", "best"), ("Ada", "Ada")])
def test_clients_do_not_learn_where_the_model_lies(name: str, shown: str, tmp_path: Path) -> None:
    folder = tmp_path / "secret" / "best"
    folder.mkdir(parents=True)
    model = FakeModel()
    model.name, model.warning = str(folder), f"{folder} knows little"
    model.refused = f"{folder}: this text is refused"

    async def test() -> None:
        async with serving(model, name=name) as (client, service):
            answers = [
                await client.get("/"),
                await client.get("/v1/models"),
                *[await client.post(f"/v1/{kind}", json={"text": TEXT}) for kind in ("pairs", "answers")],
                await client.post("/v1/pairs/stream", json={"text": TEXT}),
                await client.post("/question_generation", json={"input_text": TEXT}),
                await client.post("/v1/pairs", json={"text": "refuse"}),
            ]
            assert not any("secret" in answer.text for answer in answers)
            assert all(shown in answer.text for answer in answers)
            assert service.warning == f"{shown} knows little"

    run(test)


@pytest.mark.parametrize(("given", "shown"), [(".", "best"), ("..", "secret"), ("./", "best"), ("/", "model")])
def test_a_folder_that_is_given_without_a_name_has_one_for_clients(
    given: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret" / "best").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "secret" / "best")
    model = FakeModel()
    model.name, model.warning = given, f"{given} knows little. It says yes/no..."
    model.refused = f"model.path={given}: this text is refused."

    async def test() -> None:
        async with serving(model) as (client, service):
            assert (await client.get("/v1/models")).json()["models"][0]["name"] == shown
            assert service.warning == f"{shown} knows little. It says yes/no..."
            refused = await client.post("/v1/pairs", json={"text": "refuse"})
            assert is_problem(refused, 422)["detail"] == f"model.path={shown}: this text is refused."
            assert b"rl_qg_failures_total 0.0" in service.metrics.text()  # the model did not fail
            assert (await client.post("/v1/pairs", json={"text": "crash"})).status_code == 500
            assert b"rl_qg_failures_total 1.0" in service.metrics.text()

    run(test)
