"""A server whose pairs are ordered by a metric, and explained by it where it can."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from rewards import QRelScore
from rl_qg.asking.pairs import AskRequest, QAPair, QAPairs
from rl_qg.asking.question_generator import QuestionGenerator
from rl_qg.data.corpus import synthetic_examples
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.serving.long_texts import WholeText
from tests.rl_qg.serving.clients import TEXT, run, serving
from tests.rl_qg.serving.fake_model import FakeModel

PASSAGES = list(dict.fromkeys(example.context for example in synthetic_examples(8, seed=5)))[:2]
LONGEST = max(map(len, PASSAGES))


class Letters:
    """The number of letters e of a question: fewer are better."""

    signature = "letters|of:e"
    higher_is_better = False
    needs = ()

    def score(self, questions: Sequence[str], contexts: Sequence[str], **columns: Any) -> list[float]:
        return [float(question.count("e")) for question in questions]


def generator(reward: Any) -> QuestionGenerator:
    return QuestionGenerator.from_pretrained(SHIPPED / "bart", device="cpu", reward=reward, batch_size=8)


def test_pairs_of_several_passages_are_ordered_by_the_metric() -> None:
    def pair(start: int, score: float, scores: dict[str, float]) -> QAPairs:
        return QAPairs(
            [QAPair(f"Which is number {start} of {score}?", TEXT[start : start + 3], 0, score, -1.0, scores)]
        )

    whole = WholeText(AskRequest(TEXT, number=2), lambda one: one.scores.get("m", -math.inf))
    for start, score, scores in ((0, 0.9, {"m": 1.0}), (13, 0.1, {"m": 3.0}), (30, 0.8, {}), (42, 0.2, {"m": 2.0})):
        whole.add(start, pair(start, score, scores))
    assert [one.answer_start for one in whole.result()] == [13, 42]


@pytest.mark.slow
def test_every_pair_has_its_value_and_its_place_by_it_whatever_the_company() -> None:
    model = generator(Letters())
    bodies: list[dict[str, Any]] = [{"text": "\n\n".join(PASSAGES), "number": 4}]
    bodies += [{"text": passage[:250], "number": 2, "seed": seed} for passage in PASSAGES for seed in (None, 3)]

    async def test() -> None:
        async with serving(model, rerank="letters", max_wait_ms=100, passage_characters=LONGEST) as (client, _):
            alone = [(await client.post("/v1/pairs", json=body)).content for body in bodies]
            together = await asyncio.gather(
                *(client.post("/v1/pairs", json=body) for body in [*bodies, *bodies[::-1]])
            )
            assert [answer.content for answer in together] == [*alone, *alone[::-1]]
            for answer in together:
                pairs = answer.json()["pairs"]
                values = [pair["scores"]["letters"] for pair in pairs]
                assert values == [pair["question"].count("e") for pair in pairs] == sorted(values) and values
            longest = together[0].json()["pairs"]
            assert {pair["answer_start"] > len(PASSAGES[0]) for pair in longest} == {True, False}
            assert [pair["score"] for pair in longest] != sorted((p["score"] for p in longest), reverse=True)
            pair = {name: longest[0][name] for name in ("question", "answer")}
            scored = (await client.post("/v1/score", json={"text": bodies[0]["text"], "pairs": [pair]})).json()
            assert scored["scores"][0]["letters"] == longest[0]["question"].count("e")
            why = await client.post("/v1/explain", json={"text": bodies[0]["text"], **pair})
            assert why.json()["metric"] == "shared words"

    run(test, seconds=300)


@pytest.mark.slow
def test_a_metric_that_explains_is_the_one_that_is_shown() -> None:
    """Recomputed from the matches of each layer: a context token's share of the mean over layers and question."""
    metric = QRelScore(encoder=str(SHIPPED / "bert"), decoder=str(SHIPPED / "gpt2"))
    text, start = "\n\n".join(PASSAGES), len(PASSAGES[0]) + 2
    answer = next(example.answers[0] for example in synthetic_examples(8, seed=5) if example.context == PASSAGES[1])
    question = "Who was born in the town by the river?"
    explained = metric.explain(question, PASSAGES[1])
    expected: dict[tuple[int, int], float] = {}
    for layer in explained.layers:
        for match in layer.matches:
            token = explained.context_tokens[match.context_token]
            place = (start + (token.start or 0), start + (token.end or 0))
            expected[place] = expected.get(place, 0.0) + match.contribution / len(layer.matches)
    largest = max(map(abs, expected.values()))

    async def test() -> None:
        async with serving(generator(metric), rerank="qrelscore", passage_characters=LONGEST) as (client, _):
            body = {"text": text, "question": question, "answer": answer.text, "answer_start": start + answer.start}
            answers = await asyncio.gather(*(client.post("/v1/explain", json=body) for _ in range(3)))
            assert len({one.content for one in answers}) == 1
            found = answers[0].json()
            assert found["metric"] == "qrelscore"
            weights = {(one["start"], one["end"]): one["weight"] for one in found["tokens"]}
            assert weights == pytest.approx({key: value / largest for key, value in expected.items()}, abs=2e-4)
            assert list(weights) == sorted(weights) and max(map(abs, weights.values())) == 1.0
            nothing = {**body, "question": "?"}  # a single token, with which nothing is compared
            assert (await client.post("/v1/explain", json=nothing)).json()["metric"] == "shared words"

    run(test, seconds=300)


def test_while_the_model_is_loaded_a_metric_cannot_explain() -> None:
    model = FakeModel()
    model.explains = "m"

    async def test() -> None:
        async with serving(model, rerank="m") as (client, service):
            body = {"text": TEXT, "question": "Where?", "answer": "London"}
            found = (await client.post("/v1/explain", json=body)).json()
            place = TEXT.index("London")
            assert found == {"tokens": [{"start": place, "end": place + 6, "weight": 1.0}], "metric": "m"}
            service._model = None
            assert (await client.post("/v1/explain", json=body)).status_code == 503

    run(test)
