"""A server of the page with a service whose answers are known, for tests in a browser and for screenshots."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from rl_qg.asking.pairs import AnswerSpan, AskRequest, QAPair, QAPairs
from rl_qg.serving.page import page_routes
from rl_qg.serving.problems import ProblemError, add_problem_handlers
from rl_qg.serving.routes import asking_routes
from rl_qg.serving.service import ServerMetrics
from rl_qg.settings.web import ServeSettings

YEAR_OR_NAME = re.compile(r"\b\d{4}\b|[A-Z]\w+(?: [A-Z]\w+)+")

TEXT = "The mill burned in 1204. Anna Weaver built it again.\n\nIn 1340 Thomas Miller paid for a bridge."
ANSWERS = ["1204", "Anna Weaver", "1340", "Thomas Miller"]


class KnownService:
    """Asks `What about X?` for each year and each name of several words; one passage for each paragraph.

    Args:
        question: about an answer, with `{}` for it.
        questions: about some answers, instead.
        problem: raised after so many passages as `passages_before` says.
        held: every passage but the first waits for it.
    """

    name = "known questions"
    warning = ""
    ways = ("pipeline", "end2end")
    explains = None

    def __init__(self) -> None:
        self.metrics = ServerMetrics()
        self.question = "What about {}?"
        self.questions: dict[str, str] = {}
        self.problem: ProblemError | None = None
        self.passages_before = 0
        self.held = threading.Event()
        self.held.set()
        self.asked: list[AskRequest] = []

    def rank(self, pair: QAPair) -> float:
        return pair.score

    async def explain(self, question: str, text: str, answer: AnswerSpan) -> None:
        return None

    async def passages(self, request: AskRequest) -> AsyncIterator[tuple[int, QAPairs]]:
        self.asked.append(request)
        left = request.number or 1000
        for at, paragraph in enumerate(re.finditer(r"[^\n]+", request.text)):
            if self.problem and at == self.passages_before:
                raise self.problem
            if at:
                await asyncio.to_thread(self.held.wait)
            start, text = paragraph.start(), paragraph.group()
            spans = [AnswerSpan(found.group(), found.start()) for found in YEAR_OR_NAME.finditer(text)]
            if request.answers is not None:
                inside = (span for span in request.answers if isinstance(span, AnswerSpan))
                spans = [AnswerSpan(s.text, s.start - start) for s in inside if 0 <= s.start - start < len(text)]
            pairs = [self._pair(span) for span in spans[:left]]
            left -= len(pairs)
            if not pairs:
                continue
            yield start, QAPairs(pair for pair in pairs if pair.score >= (request.min_score or 0))

    async def pairs(self, request: AskRequest) -> QAPairs:
        found = QAPairs()
        async for start, pairs in self.passages(request):
            found += [QAPair(**{**vars(pair), "answer_start": pair.answer_start + start}) for pair in pairs]
        return found if found else QAPairs(reason="nothing in the text can be asked about")

    def _pair(self, span: AnswerSpan) -> QAPair:
        kind, score = ("a year", 0.9) if span.text.isdigit() else ("a name", 0.6)
        question = self.questions.get(span.text) or self.question.format(span.text)
        scores = {"probability": score, "round_trip": 1.0}
        return QAPair(question, span.text, span.start, score, -1.0, scores, f"{kind} of the text")


def page_application(service: Any, **settings: Any) -> FastAPI:
    """The page and the interface that it asks."""
    application = FastAPI()
    chosen = ServeSettings(**settings)
    application.include_router(asking_routes(service, chosen))
    application.include_router(page_routes(service, chosen))
    add_problem_handlers(application)
    return application


@contextmanager
def served(application: FastAPI) -> Iterator[str]:
    """The address of an application that runs in a thread, on a free port of this machine."""
    server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        if not thread.is_alive():
            raise RuntimeError("the server has not started")
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join(10)
