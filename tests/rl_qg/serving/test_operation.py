"""How the server runs: batches, memory, time limits, its start and end, metrics."""

import asyncio
import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest

from rl_qg.asking import drafts
from rl_qg.asking.documents import TextPassage
from rl_qg.asking.drafts import IS_AWAITED, AnswerProposals, Draft, NobodyWaitsError, QuestionRows, check_awaited
from rl_qg.asking.pairs import AnswerSpan, AskRequest, QAPairs
from rl_qg.asking.selection import ProposedPair
from rl_qg.generation.generate import Reranker
from rl_qg.runtime.errors import LocalError
from rl_qg.serving import service as service_module
from rl_qg.serving.application import create_app
from rl_qg.serving.service import AskingService
from rl_qg.settings import ServeSettings
from tests.rl_qg.serving.clients import TEXT, events, is_problem, run, serving, until
from tests.rl_qg.serving.fake_model import FakeModel, on_the_wire

LONG = "\n\n".join(
    f"Paragraph {number} has the words {number}x and {number}y, no more. It ends." for number in range(9)
)


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
        async with serving(max_wait_ms=50) as (client, service):
            texts = ["one", "crash here", "please refuse", "two"]
            answers = await asyncio.gather(*(client.post("/v1/pairs", json={"text": text}) for text in texts))
            assert [answer.status_code for answer in answers] == [200, 500, 422, 200]
            assert "crash" not in answers[1].text
            assert is_problem(answers[2], 422)["detail"] == "this text is refused; give another"
            unknown = await client.post("/v1/pairs", json={"text": "one", "language": "xx"})
            assert is_problem(unknown, 422)["detail"] == "language=xx: this model does not know it; use en"
            assert answers[3].json()["pairs"] == on_the_wire(AskRequest("two"))
            waits = service.metrics.registry.get_sample_value("rl_qg_wait_seconds_count")
            assert waits == 4, "a request that is tried alone has waited once"

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


def test_whole_batches_are_tried_again_after_so_many_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "GOOD_BATCHES", 3)
    model = FakeModel()
    service = AskingService(lambda: model)
    service._model = model

    def sizes() -> list[int]:
        model.calls.clear()
        service._run(("pairs",), [AskRequest(TEXT)] * 2)
        return [len(call) for call in model.calls]

    assert [sizes() for _ in range(4)] == [[2]] * 4
    model.largest = 0
    with pytest.raises(LocalError):
        sizes()
    model.largest = 1
    assert [sizes() for _ in range(3)] == [[1, 1]] * 3
    assert [sizes() for _ in range(4)] == [[2, 1, 1], [1, 1], [1, 1], [2, 1, 1]]


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


def test_a_clock_that_jumps_changes_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day is for lines of the log alone."""
    now, jumps = time.time, itertools.cycle((0.0, 4e8, -4e8, 3600.0))
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))

    async def test() -> None:
        async with serving(rate=0.001, burst=9, max_wait_ms=5, timeout_seconds=30, body_seconds=30) as (
            client,
            service,
        ):
            answers = [await client.post("/v1/pairs", json={"text": TEXT}) for _ in range(11)]
            assert [answer.status_code for answer in answers] == [200] * 9 + [429] * 2
            assert 900 <= int(answers[-1].headers["retry-after"]) <= 1000 and service.seconds_to_wait in range(1, 5)

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


def test_closing_ends_with_the_thread_when_the_time_is_over_or_somebody_hurries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(service_module.time, "monotonic", lambda: now[0])

    def waited(seconds: float = math.inf, *, ends: float = math.inf, hurried: float = math.inf) -> float:
        """Seconds that `close` waits for a thread that ends after so long."""
        service, begun = AskingService(FakeModel), now[0]

        def join(timeout: float) -> None:
            now[0] += timeout
            assert now[0] < begun + 60, "waits for ever"
            if now[0] >= begun + hurried:
                service.hurry()

        service._thread = SimpleNamespace(is_alive=lambda: now[0] < begun + ends, join=join)  # type: ignore[assignment]
        service.close(seconds)
        return now[0] - begun

    assert waited(0.25) == pytest.approx(0.25) and waited(3) == pytest.approx(3)
    assert 0.5 <= waited(ends=0.5) < 0.7 and 2 <= waited(hurried=2) < 2.2


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


def test_a_model_that_cannot_be_loaded_is_told(caplog: pytest.LogCaptureFixture) -> None:
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
            for answer in (await client.get("/readyz"), await client.post("/v1/pairs", json={"text": TEXT})):
                assert "could not be loaded; see the log" in is_problem(answer, 503)["detail"]
        [line] = [record for record in caplog.records if record.getMessage() == "model not loaded"]
        assert line.fields["error"]["message"] == "no such file"  # type: ignore[attr-defined]
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
            bounds = re.findall(r'rl_qg_batch_rows_bucket\{le="(\d+)\.0"\}', text)
            assert bounds == [str(2**power) for power in range(9)]
            assert value("rl_qg_ready") == 1 and value("rl_qg_queue_length") == 0
            assert "process_resident_memory_bytes" in text and "nowhere" not in text

    run(test)


@pytest.mark.parametrize("first", ["one", "two"])
def test_two_services_live_in_one_process(first: str) -> None:
    async def test() -> None:
        async with serving(FakeModel(ways=("end2end",))) as (one, _), serving() as (two, other):
            used = {"one": one, "two": two}[first]
            await used.post("/v1/pairs", json={"text": TEXT, "number": 1})
            assert other.metrics.registry.get_sample_value("rl_qg_pairs_total") == (first == "two")

    run(test)


def test_work_ends_when_nobody_waits_for_it_any_more() -> None:
    class Endless(FakeModel):
        """Asks before each batch, as a generator does; without an end it has batches left."""

        batches = 0

        def ask_many(self, requests: Sequence[AskRequest]) -> list[QAPairs]:
            while "endless" in requests[0].text:
                check_awaited()
                self.batches += 1
                time.sleep(0.01)
            return super().ask_many(requests)

    async def test() -> None:
        model = Endless()
        async with serving(model, timeout_seconds=0.3) as (client, _):
            is_problem(await client.post("/v1/pairs", json={"text": "endless"}), 503)
            assert model.batches
        async with serving(model) as (client, _):
            asking = asyncio.create_task(client.post("/v1/pairs", json={"text": "endless"}))
            done = model.batches
            await until(lambda: model.batches > done)
            asking.cancel()
            assert (await client.post("/v1/pairs", json={"text": TEXT})).status_code == 200

    run(test)


@contextmanager
def awaited_until(condition: Callable[[], bool]) -> Iterator[None]:
    """Nobody waits any more once the condition holds; what is made in the block has to learn of it."""
    token = IS_AWAITED.set(lambda: not condition())
    try:
        with pytest.raises(NobodyWaitsError):
            yield
    finally:
        IS_AWAITED.reset(token)


def test_a_generator_makes_no_batch_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = QuestionRows(SimpleNamespace(), 1)  # type: ignore[arg-type]
    monkeypatch.setattr(rows, "_batches", lambda _: iter([[0], [1]]))
    made: list[int] = []
    with awaited_until(lambda: bool(made)):
        rows._decoded([SimpleNamespace(seed=None, example=0)] * 2, lambda _: lambda batch: made.append(1) or [0])  # type: ignore
    assert made == [1]


def test_no_answers_are_proposed_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    draft = Draft(0, AskRequest(LONG), [TextPassage(LONG[:99], 0), TextPassage(LONG[99:], 99)], "pipeline")
    with awaited_until(lambda: True):
        draft.propose(lambda *_: asked.append("all"))  # type: ignore[arg-type]
    assert not asked
    monkeypatch.setattr(drafts, "_by_rules", lambda contexts: asked.append(contexts[0]) or [[]])
    with awaited_until(lambda: bool(asked)):
        draft.propose(AnswerProposals(SimpleNamespace()))  # type: ignore[arg-type]
    whole = Draft(0, AskRequest(LONG), draft.passages, "end2end")
    monkeypatch.setattr(drafts, "generate_pairs", lambda _, contexts, **__: asked.append(contexts[0]) or [QAPairs()])
    with awaited_until(lambda: len(asked) == 2):
        whole.add_whole_pairs(MagicMock())
    assert asked == [LONG[:99]] * 2


@pytest.mark.parametrize("step", ["read_back", "rank"])
def test_no_pairs_are_read_back_or_ranked_that_nobody_waits_for(step: str) -> None:
    """Two thousand pairs of one text are more than one part."""
    done: list[int] = []

    def read(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        assert len(first) == len(second)
        done.append(len(first))
        return ["" if step == "read_back" else 0.5 for _ in first]

    draft = Draft(0, AskRequest(TEXT), [TextPassage(TEXT, 0)], "pipeline")
    draft.pairs = [ProposedPair(f"Who {number}?", AnswerSpan("Ada", 0), -1.0, 5) for number in range(2000)]
    used = read if step == "read_back" else Reranker("m", read)
    with awaited_until(lambda: len(done) == 2):
        getattr(draft, step)(used)
    assert len(done) == 2 and sum(done) < 100
    getattr(draft, step)(used)
    assert sum(done[2:]) == 2000 and len(draft.pairs) == 2000


@pytest.mark.parametrize("kind", ["pairs", "answers", "score", "explain"])
def test_no_model_is_called_for_what_nobody_waits_for(kind: str) -> None:
    service = AskingService(FakeModel)
    service._model = SimpleNamespace()  # type: ignore[assignment]  # has no method to call
    for method in ("ask_many", "answers", "score", "explain"):
        setattr(service._model, method, lambda *_, **__: pytest.fail("called"))
    with awaited_until(lambda: True):
        service._run((kind, None, "en"), [(TEXT,)])
