"""The addresses below /v1, and those for who runs the server."""

import json
import logging
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST

from rl_qg.asking.pairs import AnswerSpan, QAPair, QAPairs
from rl_qg.serving import messages, requests
from rl_qg.serving.long_texts import WholeText, located
from rl_qg.serving.problems import ProblemError, problem_responses
from rl_qg.serving.service import AskingService, ScoreRequest
from rl_qg.settings.web import ServeSettings
from rl_qg.text.english import CLOSED
from rl_qg.text.spans import tokens
from rl_qg.web.requests import described

# Why a question fits a text, without a model: the words of the text that it shares, those near the answer most. They
# say what it asks about, and the text around the answer is what it was made from.

METRIC = "shared words"
HALF = 100  # characters from the answer at which a word weighs half
log = logging.getLogger(__name__)


def shared_words(text: str, question: str, answer: AnswerSpan) -> list[messages.WeighedToken]:
    """The question's words in a text, without closed classes; at d characters from the answer 1 / (1 + d / 100)."""
    asked = {token.text.casefold() for token in tokens(question) if token.text[0].isalnum()} - CLOSED
    weighed = []
    for token in tokens(text):
        if token.text.casefold() in asked and not (token.start < answer.end and answer.start < token.end):
            distance = max(answer.start - token.end, token.start - answer.end, 0)
            weight = round(1 / (1 + distance / HALF), 4)
            weighed.append(messages.WeighedToken(start=token.start, end=token.end, weight=weight))
    return weighed


def asking_routes(service: AskingService, settings: ServeSettings) -> APIRouter:
    router = APIRouter(
        prefix="/v1", responses=problem_responses(), tags=["v1"], dependencies=[Depends(HTTPBearer(auto_error=False))]
    )

    @router.post("/pairs", summary="Question-answer pairs of a text")
    async def pairs(body: messages.PairsRequest, request: Request) -> messages.PairsResponse:
        asked = requests.ask_request(body, service, settings)
        found = await requests.until_client_leaves(request, service.pairs(asked))
        return _response(found, service)

    @router.post("/questions", summary="Questions about given answers, in their order")
    async def questions(body: messages.QuestionsRequest, request: Request) -> messages.PairsResponse:
        asked = requests.ask_request(messages.PairsRequest.model_construct(**dict(body)), service, settings)
        found = await requests.until_client_leaves(request, service.pairs(asked))
        places = defaultdict[tuple[int, str], deque[int]](deque)  # of an answer that is given twice both
        for place, span in enumerate(located(asked.text, asked.answers or ())):
            places[span.start, span.text].append(place)

        def place_of(pair: QAPair) -> int:
            waiting = places[pair.answer_start, pair.answer]
            return waiting.popleft() if waiting else len(found)

        return _response(QAPairs(sorted(found, key=place_of), reason=found.reason, dropped=found.dropped), service)

    @router.post(
        "/pairs/stream",
        summary="The pairs of a long text, as they are made",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}, "description": "events: pairs, then done, or error"}},
    )
    async def stream(body: messages.PairsRequest, request: Request) -> StreamingResponse:
        asked = requests.ask_request(body, service, settings)
        found = service.passages(asked)
        try:  # a problem that is known now gets its own status
            first = await requests.until_client_leaves(request, anext(found, None))
        except BaseException:
            await found.aclose()
            raise
        return StreamingResponse(
            _events(first, found, WholeText(asked, service.rank), service, log_texts=settings.log_texts),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    @router.post("/answers", summary="Answers in a text that can be asked about")
    async def answers(body: messages.AnswersRequest, request: Request) -> messages.AnswersResponse:
        requests.check_text(body.text, settings)
        requests.check_number(body.number, "number", settings)
        spans = await requests.until_client_leaves(request, service.answers(body.text, body.number, body.language))
        answers = [messages.AnswerOut.model_validate(span) for span in spans]
        return messages.AnswersResponse(answers=answers, model=service.name, warning=service.warning)

    @router.post("/score", summary="Scores of questions that you have")
    async def score(body: messages.ScoreRequestBody, request: Request) -> messages.ScoreResponse:
        requests.check_text(body.text, settings)
        requests.check_number(len(body.pairs), "pairs", settings)
        for pair in body.pairs:
            requests.check_text(pair.question, settings, "question")
        items = [ScoreRequest(pair.question, body.text, pair.answer) for pair in body.pairs]
        scores = await requests.until_client_leaves(request, service.score(items, body.language))
        return messages.ScoreResponse(scores=scores, model=service.name, warning=service.warning)

    if settings.explain:

        @router.post("/explain", summary="What in a text counts for a question")
        async def explain(body: messages.ExplainRequest, request: Request) -> messages.ExplainResponse:
            requests.check_text(body.text, settings)
            requests.check_text(body.question, settings, "question")
            given = [messages.GivenAnswer(text=body.answer, start=body.answer_start)]
            [answer] = requests.given_answers(body.text, given, settings, field="answer")
            work = service.explain(body.question, body.text, answer)
            if (found := await requests.until_client_leaves(request, work)) is None:
                return messages.ExplainResponse(tokens=shared_words(body.text, body.question, answer), metric=METRIC)
            tokens = [messages.WeighedToken.model_validate(one) for one in found]
            return messages.ExplainResponse(tokens=tokens, metric=service.explains or METRIC)

    @router.get("/models", summary="The model of this server")
    async def models() -> messages.ModelsResponse:
        model = messages.ModelOut(name=service.name, ways=[*service.ways], warning=service.warning)
        return messages.ModelsResponse(models=[model] if service.ways else [])

    return router


def operation_routes(service: AskingService) -> APIRouter:
    router = APIRouter(tags=["operation"])

    @router.get("/healthz", summary="200 while the process lives")
    async def healthz() -> messages.HealthResponse:
        return messages.HealthResponse(status="ok")

    @router.get("/readyz", summary="200 when requests are taken, else 503", responses=problem_responses())
    async def readyz() -> messages.HealthResponse:
        service.check_ready()
        return messages.HealthResponse(status="ready")

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


async def _events(
    item: tuple[int, QAPairs] | None,
    rest: AsyncGenerator[tuple[int, QAPairs]],
    whole: WholeText,
    service: AskingService,
    *,
    log_texts: bool,
) -> AsyncIterator[str]:
    """One event `pairs` for each passage, then `done` with counts, or `error` with a problem."""
    passages = 0
    try:
        while item is not None:
            found = whole.add(*item)
            passages += 1
            yield _event("pairs", {"passage": item[0], **_response(found, service).model_dump()})
            item = await anext(rest, None)
        counts = {"passages": passages, "pairs": len(whole.pairs), "reason": whole.reason, "dropped": whole.dropped}
        yield _event("done", {**counts, "model": service.name, "warning": service.warning})
    except ProblemError as problem:
        yield _event("error", problem.to_dict())
    except Exception as error:  # the status is sent already
        log.error("stream", extra={"fields": {"error": described(error, message=log_texts)}})
        yield _event("error", ProblemError(500, "the model failed on this text").to_dict())
    finally:
        await rest.aclose()  # what still waits is cancelled


def _response(pairs: QAPairs, service: AskingService) -> messages.PairsResponse:
    rows = [messages.PairOut.model_validate(pair) for pair in pairs]
    return messages.PairsResponse(
        pairs=rows, reason=pairs.reason, dropped=pairs.dropped, model=service.name, warning=service.warning
    )


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
