"""A model that needs no time and no weights: its pairs depend on the request alone."""

import time
from collections.abc import Sequence
from hashlib import sha256
from threading import Event, Lock
from typing import Any

from rl_qg.asking.pairs import AnswerSpan, AskRequest, QAPair, QAPairs
from rl_qg.asking.selection import WeighedSpan
from rl_qg.runtime.errors import InputError
from rl_qg.text.spans import tokens


def words(text: str) -> list[AnswerSpan]:
    """Each word as an answer."""
    return [AnswerSpan(token.text, token.start, "word", 1.0) for token in tokens(text) if token.text[0].isalnum()]


def pairs_of(request: AskRequest) -> QAPairs:
    """One pair for each given answer, else for the first words."""
    spans = [span for span in request.answers or words(request.text) if isinstance(span, AnswerSpan)]
    pairs = []
    for span in spans[: request.number]:
        made_of = f"{request.text}|{span.start}|{span.text}|{request.seed}|{request.way}|{request.language}"
        number = int(sha256(made_of.encode()).hexdigest()[:6], 16)
        score = round(number / 0xFFFFFF, 4)
        pairs.append(QAPair(f"Question {number} about {span.text}?", span.text, span.start, score, -1.0, {"p": score}))
    kept = [pair for pair in sorted(pairs, key=lambda pair: -pair.score) if pair.score >= (request.min_score or 0)]
    reason = "" if len(kept) == request.number else f"{len(kept)} of {request.number}"
    return QAPairs(
        kept, reason=reason, dropped={"min_score": len(pairs) - len(kept)} if len(pairs) > len(kept) else {}
    )


class FakeModel:
    """Implements what the server needs of `QuestionGenerator`.

    Args:
        seconds: of each call.
        largest: requests in one call above which memory runs out; None: any number fits.
    """

    name = "fake"
    warning = ""
    explains: str | None = None
    refused = "this text is refused; give another"

    def __init__(
        self, seconds: float = 0.0, *, largest: int | None = None, ways: tuple[str, ...] = ("pipeline",)
    ) -> None:
        self.seconds, self.largest, self.ways = seconds, largest, ways
        self.calls: list[list[AskRequest]] = []
        self.languages: list[str] = []  # of scores
        self.go = Event()  # a call waits for it
        self.go.set()
        self.begun = Event()
        self._lock = Lock()

    def check(self, request: AskRequest) -> None:
        if request.language == "xx":
            raise InputError("language=xx: this model does not know it; use en")

    def rank(self, pair: QAPair) -> float:
        return pair.score

    def explain(self, question: str, context: str, answer: AnswerSpan) -> list[WeighedSpan] | None:
        return [WeighedSpan(answer.start, answer.end, 1.0)] if self.explains else None

    def ask_many(self, requests: Sequence[AskRequest]) -> list[QAPairs]:
        assert self._lock.acquire(blocking=False), "two threads run the model"
        try:
            self.calls.append(list(requests))
            self.begun.set()
            assert self.go.wait(30)
            time.sleep(self.seconds)
            if self.largest is not None and len(requests) > self.largest:
                raise MemoryError
            for request in requests:
                if "crash" in request.text:
                    raise RuntimeError(f"cannot read {request.text}")
                if "refuse" in request.text:
                    raise InputError(self.refused)
            return [pairs_of(request) for request in requests]
        finally:
            self._lock.release()

    def answers(self, texts: Sequence[str], *, number: int | None, language: str) -> list[list[AnswerSpan]]:
        return [words(text)[:number] for text in texts]

    def score(
        self, questions: Sequence[str], contexts: Sequence[str], answers: Sequence[str], *, language: str = "en"
    ) -> list[dict[str, float]]:
        self.languages.append(language)
        return [
            {"length": float(len(question)), "in_text": float(answer in context)}
            for question, context, answer in zip(questions, contexts, answers, strict=True)
        ]


def on_the_wire(request: AskRequest) -> list[dict[str, Any]]:
    """The pairs that the model makes of a request, as the interface writes them."""
    fields = ("question", "answer", "answer_start", "score", "reason")
    return [
        {**{name: getattr(pair, name) for name in fields}, "scores": dict(pair.scores)} for pair in pairs_of(request)
    ]
