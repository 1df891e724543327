"""Requests of clients, checked against the server's limits and the text, as requests to the model."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from fastapi import Request

from rl_qg.asking.pairs import AnswerSpan, AskRequest
from rl_qg.data.layouts import first_place
from rl_qg.serving.long_texts import located
from rl_qg.serving.messages import GivenAnswer, PairsRequest
from rl_qg.serving.problems import ProblemError, wrong_field
from rl_qg.serving.service import AskingService
from rl_qg.settings.web import ServeSettings

Result = TypeVar("Result")


def ask_request(body: PairsRequest, service: AskingService, settings: ServeSettings) -> AskRequest:
    check_text(body.text, settings)
    spans = given_answers(body.text, body.answers, settings) if body.answers else None
    number = len(spans) if spans else body.number
    check_number(number, "number", settings)
    if body.way is not None and service.ways and body.way not in service.ways:
        raise wrong_field("way", f"this model cannot {body.way}; it can {', '.join(service.ways)}")
    return AskRequest(body.text, spans, number, body.language, body.seed, body.way, body.min_score)


def check_text(text: str, settings: ServeSettings, name: str = "text") -> None:
    if len(text) > (most := settings.max_characters):
        raise ProblemError(413, f"{name}: has {len(text)} characters; this server takes at most {most}: shorten it")


def check_number(number: int, name: str, settings: ServeSettings) -> None:
    if number > settings.max_questions:
        raise wrong_field(name, f"is {number}; this server gives at most {settings.max_questions} at a time")


def given_answers(
    text: str, answers: Sequence[GivenAnswer], settings: ServeSettings, *, field: str | None = None
) -> tuple[AnswerSpan, ...]:
    """Answers as spans without white space around them, by default where they stand first; `field`: their name."""
    check_number(len(answers), field or "answers", settings)
    spans = []
    for number, answer in enumerate(answers):
        place, name = answer.start, f"answers/{number}" if field is None else field
        span = AnswerSpan(answer.text.strip(), first_place(answer.text, text))
        if place is not None:
            span = AnswerSpan(answer.text, place)
        if span.start < 0 or not text.startswith(span.text, span.start):
            where = "the text" if place is None else f"the text at character {place}"
            raise wrong_field(name, f"is not in {where}, letter by letter")
        spans.append(span)
    return tuple(located(text, spans))


async def until_client_leaves(request: Request, work: Awaitable[Result]) -> Result:
    """Await `work`; cancel it when the client closes its connection."""
    doing = asyncio.ensure_future(work)

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watching = asyncio.ensure_future(left())
    try:
        await asyncio.wait((doing, watching), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientLeftError
        return await doing
    finally:
        for task in (doing, watching):
            task.cancel()
        await asyncio.gather(doing, watching, return_exceptions=True)


class ClientLeftError(Exception):
    """Nobody waits for the answer."""
