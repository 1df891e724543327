"""The routes, as a client sees them, with a model whose answers are known."""

import asyncio
import itertools
import json
import re
from typing import Any

import httpx
import pytest

from rl_qg.asking.pairs import AnswerSpan, AskRequest
from rl_qg.serving import service as service_module
from rl_qg.serving.application import create_app
from rl_qg.serving.gate import hosts_of
from rl_qg.serving.service import AskingService
from rl_qg.settings import ServeSettings
from tests.rl_qg.serving.clients import TEXT, events, is_problem, run, serving, until
from tests.rl_qg.serving.fake_model import FakeModel, pairs_of

LONG = "\n\n".join(
    f"Paragraph {number} has the words {number}x and {number}y, no more. It ends." for number in range(9)
)


def on_the_wire(request: AskRequest) -> list[dict[str, Any]]:
    """The pairs that the model makes of a request, as the interface writes them."""
    fields = ("question", "answer", "answer_start", "score", "reason")
    return [
        {**{name: getattr(pair, name) for name in fields}, "scores": dict(pair.scores)} for pair in pairs_of(request)
    ]


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
            assert answer.json() == {"pairs": pairs, "reason": "", "dropped": {}, "model": "fake"}
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
            pairs = [{"question": "Who?", "answer": "Ada"}, {"question": "Where then?", "answer": "Rome"}]
            scores = (await client.post("/v1/score", json={"text": TEXT, "pairs": pairs})).json()
            assert scores == {
                "scores": [{"length": 4.0, "in_text": 1.0}, {"length": 11.0, "in_text": 0.0}],
                "model": "fake",
            }
            await client.post("/v1/score", json={"text": TEXT, "pairs": pairs, "language": "de"})
            assert model.languages == ["en", "de"]
            is_problem(await client.post("/v1/score", json={"text": TEXT, "pairs": pairs, "language": "xx"}), 422)
            models = (await client.get("/v1/models")).json()
            assert models == {"models": [{"name": "fake", "ways": ["multitask", "pipeline"]}]}
            why = {"text": TEXT, "question": "Who wrote the first program?", "answer": "Ada Lovelace"}
            tokens = (await client.post("/v1/explain", json=why)).json()["tokens"]
            words = {TEXT[token["start"] : token["end"]]: token["weight"] for token in tokens}
            # "wrote" begins 1 character after the answer, "program" 17: 1 / 1.01 and 1 / 1.17.
            assert words["wrote"] == 0.9901 and words["program"] == 0.8547
            assert "the" not in words and "London" not in words and "Ada" not in words

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


def test_requests_that_wait_share_batches_by_their_decoding() -> None:
    async def test() -> None:
        model = FakeModel()
        async with serving(model, batch_size=100) as (client, service):
            model.go.clear()
            first = asyncio.create_task(client.post("/v1/pairs", json={"text": TEXT}))
            await until(model.begun.is_set)
            rest = [
                asyncio.create_task(client.post("/v1/pairs", json={"text": TEXT + "x" * size, "seed": seed}))
                for seed, size in itertools.product((None, 1), (2, 1))
            ]
            await until(lambda: len(service._queue) == 4)
            model.go.set()
            assert {answer.status_code for answer in await asyncio.gather(first, *rest)} == {200}
        sizes = [[(request.seed, len(request.text) - len(TEXT)) for request in call] for call in model.calls]
        assert sizes == [[(None, 0)], [(None, 1), (None, 2)], [(1, 1), (1, 2)]]

    run(test)


def test_a_request_on_which_the_model_fails_costs_the_others_nothing() -> None:
    async def test() -> None:
        async with serving(max_wait_ms=50) as (client, _):
            texts = ["one", "crash here", "please refuse", "two"]
            answers = await asyncio.gather(*(client.post("/v1/pairs", json={"text": text}) for text in texts))
            assert [answer.status_code for answer in answers] == [200, 500, 422, 200]
            assert "crash" not in answers[1].text
            assert is_problem(answers[2], 422)["detail"] == "this text is refused; give another"
            unknown = await client.post("/v1/pairs", json={"text": "one", "language": "xx"})
            assert is_problem(unknown, 422)["detail"] == "language=xx: this model does not know it; use en"
            assert answers[3].json()["pairs"] == on_the_wire(AskRequest("two"))

    run(test)


def test_where_memory_runs_out_batches_are_halved() -> None:
    async def test() -> None:
        model = FakeModel(largest=2)
        async with serving(model, max_wait_ms=100, batch_size=1000) as (client, _):
            bodies = [{"text": f"{TEXT} {number}"} for number in range(8)]
            answers = await asyncio.gather(*(client.post("/v1/pairs", json=body) for body in bodies))
            assert [answer.json()["pairs"] for answer in answers] == [
                on_the_wire(AskRequest(body["text"])) for body in bodies
            ]
        sizes = [len(call) for call in model.calls]
        assert max(sizes) > 2 and sizes[-1] <= 2

    run(test)


def test_a_passage_that_does_not_fit_into_memory_gets_503_and_batches_grow_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "GOOD_BATCHES", 3)

    async def test() -> None:
        model = FakeModel(largest=0)
        async with serving(model, max_wait_ms=200, batch_size=1000) as (client, _):

            async def ask(number: int) -> list[int]:
                bodies = [{"text": f"{TEXT} {at}"} for at in range(number)]
                found = await asyncio.gather(*(client.post("/v1/pairs", json=body) for body in bodies))
                return [answer.status_code for answer in found]

            refused = await client.post("/v1/pairs", json={"text": TEXT})
            assert "memory ran out" in is_problem(refused, 503)["detail"] and refused.headers["retry-after"] == "10"
            model.largest = 1
            assert await ask(4) == [200] * 4
            model.largest = None
            for _ in range(3):
                await ask(1)
            model.calls.clear()
            assert await ask(4) == [200] * 4
        assert max(len(call) for call in model.calls) > 1

    run(test)


def test_a_full_queue_refuses_with_the_time_to_wait_and_cancelled_requests_make_room() -> None:
    async def test() -> None:
        model = FakeModel()
        async with serving(model, max_queue=2) as (client, service):
            model.go.clear()
            begun = asyncio.create_task(client.post("/v1/pairs", json={"text": TEXT}))
            await until(model.begun.is_set)
            waiting = [asyncio.create_task(client.post("/v1/pairs", json={"text": TEXT})) for _ in range(2)]
            await until(lambda: len(service._queue) == 2)
            refused = await client.post("/v1/pairs", json={"text": TEXT})
            is_problem(refused, 503)
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            waiting[0].cancel()
            await until(lambda: len(service._queue) == 1)
            other = asyncio.create_task(client.post("/v1/pairs", json={"text": TEXT}))
            await until(lambda: len(service._queue) == 2)
            model.go.set()
            assert {(await task).status_code for task in (begun, waiting[1], other)} == {200}
            assert len(model.calls) == 2

    run(test)


def test_a_request_that_takes_too_long_gets_503_and_leaves_the_queue() -> None:
    async def test() -> None:
        model = FakeModel()
        async with serving(model, timeout_seconds=0.2) as (client, service):
            model.go.clear()
            answers = await asyncio.gather(*(client.post("/v1/pairs", json={"text": TEXT}) for _ in range(2)))
            for answer in answers:
                assert "0.2 seconds" in is_problem(answer, 503)["detail"]
            assert len(service._queue) == 0
            model.go.set()

    run(test)


def test_the_time_limit_is_that_of_the_whole_request_and_of_a_stream_that_of_each_passage() -> None:
    async def test() -> None:
        async with serving(FakeModel(0.15), passage_characters=100, batch_size=1, timeout_seconds=0.5) as (client, _):
            body = {"text": LONG, "number": 9}
            assert "0.5 seconds" in is_problem(await client.post("/v1/pairs", json=body), 503)["detail"]
            found = events((await client.post("/v1/pairs/stream", json=body)).text)
            assert [name for name, _ in found] == [*["pairs"] * 9, "done"]

    run(test)


def test_a_shutdown_has_one_time_limit_for_all_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    service = AskingService(FakeModel, ServeSettings(shutdown_seconds=10))
    now = [100.0]
    monkeypatch.setattr(service_module.time, "monotonic", lambda: now[0])
    assert service.seconds_left == 10
    service.drain()
    now[0] += 7
    service.drain()
    assert service.seconds_left == 3
    now[0] += 7
    assert service.seconds_left == 0


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, 421),
        ({"host": "0.0.0.0"}, 200),
        ({"origins": ["https://a.b"]}, 200),
        ({"trusted_proxies": "10.0.0.1"}, 200),
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


def test_readiness_follows_the_model_and_the_shutdown() -> None:
    async def test() -> None:
        model = FakeModel()
        loading = asyncio.Event()
        loop = asyncio.get_running_loop()

        def load() -> FakeModel:
            asyncio.run_coroutine_threadsafe(loading.wait(), loop).result(30)
            return model

        service = AskingService(load, ServeSettings())
        application = create_app(service)
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://server") as client,
        ):
            assert (await client.get("/healthz")).json() == {"status": "ok"}
            assert "being loaded" in is_problem(await client.get("/readyz"), 503)["detail"]
            early = await client.post("/v1/pairs", json={"text": TEXT})
            assert "being loaded" in is_problem(early, 503)["detail"] and early.headers["retry-after"] == "2"
            loading.set()
            await until(lambda: service.is_ready)
            assert (await client.get("/readyz")).json() == {"status": "ready"}
            model.go.clear()
            under_way = asyncio.create_task(client.post("/v1/pairs", json={"text": TEXT}))
            await until(model.begun.is_set)
            service.drain()
            assert "shutting down" in is_problem(await client.get("/readyz"), 503)["detail"]
            late = await client.post("/v1/pairs", json={"text": TEXT})
            assert "shutting down" in is_problem(late, 503)["detail"] and late.headers["connection"] == "close"
            assert (await client.get("/healthz")).status_code == 200
            model.go.set()
            assert (await under_way).json()["pairs"] == on_the_wire(AskRequest(TEXT))
        assert not service._thread.is_alive()

    run(test)


def test_a_model_that_cannot_be_loaded_is_told() -> None:
    async def test() -> None:
        def load() -> FakeModel:
            raise OSError("no such file")

        service = AskingService(load)
        service.start()
        assert not service.wait(30)
        assert isinstance(service.failure, OSError)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(create_app(service)), base_url="http://server"
        ) as client:
            assert "could not be loaded" in is_problem(await client.get("/readyz"), 503)["detail"]
        service.close(30)

    run(test)


def test_metrics_count_requests_batches_and_pairs() -> None:
    async def test() -> None:
        async with serving() as (client, service):
            for number in (1, 3):
                await client.post("/v1/pairs", json={"text": TEXT, "number": number})
            await client.post("/v1/pairs", json={"text": ""})
            await client.get("/nowhere/at/all")
            text = (await client.get("/metrics")).text
            value = service.metrics.registry.get_sample_value
            assert value("rl_qg_requests_total", {"route": "/v1/pairs", "status": "200"}) == 2
            assert value("rl_qg_requests_total", {"route": "/v1/pairs", "status": "422"}) == 1
            assert value("rl_qg_requests_total", {"route": "none", "status": "404"}) == 1
            assert value("rl_qg_batch_rows_sum") == 4 and value("rl_qg_pairs_total") == 4
            assert value("rl_qg_ready") == 1 and value("rl_qg_queue_length") == 0
            assert "process_resident_memory_bytes" in text and "nowhere" not in text

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


@pytest.mark.parametrize("first", ["one", "two"])
def test_two_services_live_in_one_process(first: str) -> None:
    async def test() -> None:
        async with serving(FakeModel(ways=("end2end",))) as (one, _), serving() as (two, other):
            used = {"one": one, "two": two}[first]
            await used.post("/v1/pairs", json={"text": TEXT, "number": 1})
            assert other.metrics.registry.get_sample_value("rl_qg_pairs_total") == (first == "two")

    run(test)
