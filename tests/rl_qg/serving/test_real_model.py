"""The whole way with a real model: HTTP, queue, batches, beam search."""

import asyncio
import random

import httpx
import pytest

from rl_qg.asking.question_generator import QuestionGenerator
from rl_qg.data.corpus import synthetic_examples
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.serving.application import create_app
from rl_qg.serving.service import AskingService
from rl_qg.settings import ServeSettings
from tests.rl_qg.serving.clients import run, until


@pytest.mark.slow
def test_an_answer_does_not_depend_on_its_company() -> None:
    """Alone, among 32 requests at once, in any order: the same bytes."""
    passages = list(dict.fromkeys(example.context for example in synthetic_examples(8, seed=5)))
    bodies = [
        {"text": passages[number % len(passages)][: 300 - 20 * number], "number": 1 + number % 2, "seed": seed}
        for number, seed in enumerate([None, None, 3, None, 4, None])
    ]
    settings = ServeSettings(max_wait_ms=50, batch_size=64)
    service = AskingService(
        lambda: QuestionGenerator.from_pretrained(SHIPPED / "bart", device="cpu", batch_size=8), settings
    )

    async def test() -> None:
        application = create_app(service)
        transport = httpx.ASGITransport(application)
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=transport, base_url="http://server", timeout=300) as client,
        ):
            await until(lambda: service.is_ready)
            alone = [(await client.post("/v1/pairs", json=body)).content for body in bodies]
            assert len({*alone}) == len(bodies) and all(b'"question"' in answer for answer in alone)
            order = [number % len(bodies) for number in range(32)]
            random.Random(1).shuffle(order)
            together = await asyncio.gather(*(client.post("/v1/pairs", json=bodies[number]) for number in order))
            assert [answer.content for answer in together] == [alone[number] for number in order]
            value = service.metrics.registry.get_sample_value
            assert (value("rl_qg_batch_rows_count") or 0) < len(bodies) + 32, "no requests have shared a batch"

    run(test, seconds=300)
