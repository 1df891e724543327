"""The model of a server, the one thread that runs it, and the requests that share its batches."""

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from rl_qg.asking.drafts import IS_AWAITED, NobodyWaitsError, check_awaited
from rl_qg.asking.models import check_text
from rl_qg.asking.pairs import AnswerSpan, AskRequest, QAPair, QAPairs
from rl_qg.asking.selection import WeighedSpan
from rl_qg.runtime.errors import InputError, LocalError
from rl_qg.runtime.ranks import OutOfMemoryRetry
from rl_qg.serving.long_texts import WholeText, passage_requests
from rl_qg.serving.problems import ProblemError
from rl_qg.settings.web import ServeSettings
from rl_qg.web.requests import described

if TYPE_CHECKING:
    from rl_qg.asking.question_generator import QuestionGenerator

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
log = logging.getLogger(__name__)
MORE = 2  # pairs that a passage is asked for beyond its part, for the choice over the whole text
MEMORY_SECONDS = 10  # after which a request that memory did not suffice for may be sent again
GOOD_BATCHES = 100  # after memory ran out, before whole batches are tried again


class ServerMetrics:
    """The counts of one server, in a registry of their own: several servers can be in one process."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.requests = Counter("rl_qg_requests", "Requests answered", ["route", "status"], registry=own)
        self.seconds = Histogram("rl_qg_request_seconds", "To the last byte", ["route"], buckets=SECONDS, registry=own)
        self.under_way = Gauge("rl_qg_requests_under_way", "Requests that are not answered yet", registry=own)
        self.waited = Histogram("rl_qg_wait_seconds", "Time in the queue", buckets=SECONDS, registry=own)
        self.batch_rows = Histogram("rl_qg_batch_rows", "Pairs asked for in one batch", buckets=ROWS, registry=own)
        self.batch_seconds = Histogram(
            "rl_qg_batch_seconds", "Time of the model", ["kind"], buckets=SECONDS, registry=own
        )
        self.pairs = Counter("rl_qg_pairs", "Pairs that were made", registry=own)
        self.failures = Counter("rl_qg_failures", "Passages on which the model failed", registry=own)
        self.cancelled = Counter("rl_qg_cancelled", "Requests whose client left", registry=own)
        self.queue = Gauge("rl_qg_queue_length", "Passages that wait", registry=own)
        self.ready = Gauge("rl_qg_ready", "1 when requests are taken", registry=own)
        ProcessCollector(registry=own)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class QueueFullError(Exception):
    """No more requests can wait."""


@dataclass(eq=False)
class QueuedRequest:
    """A request that waits."""

    kind: tuple[Any, ...]  # jobs of one kind may share a batch; its first part is the name
    payload: Any  # what is asked
    rows: int  # how much of a batch it takes
    length: int  # of its text in characters, by which batches are sorted
    arrived: float = field(default_factory=time.monotonic)
    future: Future[Any] = field(default_factory=Future)  # gets the result; cancelled, the job leaves the queue
    is_awaited: bool = True  # else its client has left, or its time is over

    def awaited(self) -> "asyncio.Future[Any]":
        """The result, for an event loop; who cancels it does not wait any more."""
        result = asyncio.wrap_future(self.future)
        result.add_done_callback(lambda done: setattr(self, "is_awaited", not done.cancelled()))
        return result


class BatchQueue:
    """A bounded queue whose jobs leave it in batches, the oldest job's kind first. For several threads.

    `max_jobs` may wait, and more where nothing waits, so that no request is too long for ever. A batch has `max_rows`,
    or a single job with more. A job waits `max_wait` seconds for others of its kind.
    """

    def __init__(self, *, max_jobs: int, max_rows: int, max_wait: float) -> None:
        self._max_jobs, self._max_rows, self._max_wait = max_jobs, max_rows, max_wait
        self._jobs: list[QueuedRequest] = []
        self._closed = False
        self._changed = Condition()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def rows(self) -> int:
        with self._changed:
            return sum(job.rows for job in self._jobs)

    def put(self, jobs: Sequence[QueuedRequest]) -> None:
        """Let all of these jobs wait, or none: `QueueFullError` without room, and once closed."""
        with self._changed:
            if self._closed or (self._jobs and len(self._jobs) + len(jobs) > self._max_jobs):
                raise QueueFullError
            self._jobs += jobs
            self._changed.notify_all()
        for job in jobs:
            job.future.add_done_callback(lambda _, job=job: self._leave(job))  # type: ignore[misc]

    def take(self) -> list[QueuedRequest]:
        """The next batch, shortest text first; wait for it. Empty when the queue is closed and nothing waits."""
        with self._changed:
            while self._jobs or not self._closed:
                if not self._jobs:
                    self._changed.wait()
                    continue
                batch, is_whole = self._next()
                left = self._jobs[0].arrived + self._max_wait - time.monotonic()
                if left > 0 and not is_whole and not self._closed:
                    self._changed.wait(left)
                    continue
                self._jobs = [job for job in self._jobs if job not in batch]
                if begun := [job for job in batch if job.future.set_running_or_notify_cancel()]:
                    return sorted(begun, key=lambda job: job.length)
        return []

    def close(self) -> None:
        """Take no more jobs. Those that wait are still given out, without waiting for others."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self) -> tuple[list[QueuedRequest], bool]:
        """The jobs of the oldest one's kind that fit into a batch, and whether it can hold no more of those here."""
        batch: list[QueuedRequest] = []
        rows = 0
        for job in self._jobs:
            if job.kind != self._jobs[0].kind:
                continue
            if batch and rows + job.rows > self._max_rows:
                return batch, True
            batch.append(job)
            rows += job.rows
        return batch, rows >= self._max_rows

    def _leave(self, job: QueuedRequest) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self._changed.notify_all()


class ScoreRequest(NamedTuple):
    """A question to score, with its text and its answer."""

    question: str
    text: str
    answer: str


class AskingService:
    """Answers requests with one model, which one thread owns: it loads it and runs every batch.

    Nothing of it is global, and it belongs to no event loop: several services can be in one process. What is asked may
    end in a `ProblemError`: 503 where it cannot be taken or takes too long, 422 where the model refuses it. `load`
    makes the model; it is called in the thread.
    """

    def __init__(self, load: "Callable[[], QuestionGenerator]", settings: ServeSettings | None = None) -> None:
        self.settings = settings or ServeSettings()
        self.metrics = ServerMetrics()
        self.failure: BaseException | None = None
        self._load = load
        self._model: QuestionGenerator | None = None
        self._drained_at: float | None = None
        self._hurried = False
        self._loaded = Event()
        self._seconds_per_row = 0.1
        most, rows, wait_ms = self.settings.max_queue, self.settings.batch_size, self.settings.max_wait_ms
        self._queue = BatchQueue(max_jobs=most, max_rows=rows, max_wait=wait_ms / 1000)
        self._retry = _retry()
        self._good_batches = 0
        self._thread = Thread(target=self._work, name="rl-qg model", daemon=True)
        self.metrics.queue.set_function(lambda: len(self._queue))
        self.metrics.ready.set_function(lambda: float(self.is_ready))

    def start(self) -> None:
        """Begin to load the model, in its thread. Once."""
        if self._thread.ident is None:
            self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the model is loaded, or has failed to; returns `is_ready`."""
        self._loaded.wait(seconds)
        return self.is_ready

    @property
    def is_ready(self) -> bool:
        return self._model is not None and not self.is_draining

    def check_ready(self) -> None:
        """Raise the problem 503 where no requests are taken."""
        if self.failure is not None:
            raise unavailable("the model could not be loaded; see the log", 60)
        if self.is_draining:
            raise unavailable("the server is shutting down; ask again", 1)
        if self._model is None:
            raise unavailable("the model is being loaded; ask again", 2)

    @property
    def is_draining(self) -> bool:
        return self._drained_at is not None

    @property
    def seconds_left(self) -> float:
        """How long requests under way may still take: `shutdown_seconds`, from when `drain` was called first."""
        passed = 0.0 if self._drained_at is None else time.monotonic() - self._drained_at
        return max(0.0, self.settings.shutdown_seconds - passed)

    def drain(self) -> None:
        """Refuse new requests from now on; those that are under way are answered. Safe in a signal handler."""
        if self._drained_at is None:
            self._drained_at = time.monotonic()

    def hurry(self) -> None:
        """Let `close` wait no longer. Safe in a signal handler."""
        self._hurried = True

    def close(self, seconds: float = math.inf) -> None:
        """Answer what waits, and end the thread; wait for it, unless `hurry` is called."""
        self.drain()
        self._queue.close()
        end = time.monotonic() + seconds
        while self._thread.is_alive() and not self._hurried and (left := end - time.monotonic()) > 0:
            self._thread.join(min(left, 0.1))

    @property
    def name(self) -> str:
        """For clients: `settings.name`, else that of the model's folder (of the root "model"); "" before it loads."""
        if self._model is None or self.settings.name:
            return self.settings.name if self._model else ""
        folder = Path(self._model.name).expanduser()
        return folder.resolve().name or "model" if folder.is_dir() else self._model.name

    def _public(self, text: str) -> str:
        """A text for clients, which do not learn where the model lies on this machine."""
        given = self._model.name if self._model else ""
        if any(map(str.isalnum, given)):
            return text.replace(given, self.name)
        words = re.split(r"([\s=:])", text)  # a name such as `.` stands alone: it ends sentences too
        return "".join(self.name if given and word == given else word for word in words)

    @property
    def warning(self) -> str:
        """What to know of a model that was trained on the embedded corpus; "" for others, and before it is loaded."""
        return self._public(self._model.warning) if self._model else ""

    @property
    def ways(self) -> tuple[str, ...]:
        """How the model can make pairs; empty before it is loaded."""
        return tuple(self._model.ways) if self._model else ()

    @property
    def explains(self) -> str | None:
        """The metric that orders the pairs, where it has an explanation of its own."""
        return self._model.explains if self._model else None

    def rank(self, pair: QAPair) -> float:
        """What orders pairs, higher is better: the metric `rerank`, else their score."""
        return self._model.rank(pair) if self._model else pair.score

    async def pairs(self, request: AskRequest, *, by_sentence: bool = False) -> QAPairs:
        """The pairs of a text of any length, best first, with its offsets; `by_sentence`: each sentence read alone."""
        whole = WholeText(request, self.rank)
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                async for start, found in self.passages(request, by_sentence=by_sentence, more=MORE):
                    whole.add(start, found)
        except TimeoutError:
            raise self._too_late() from None
        return whole.result()

    async def passages(
        self, request: AskRequest, *, by_sentence: bool = False, more: int = 0
    ) -> AsyncGenerator[tuple[int, QAPairs]]:
        """The place of each passage of a text and its pairs, in the order of the text, as soon as they are made. Each
        may take `timeout_seconds`. Each of several is asked for `more` pairs beyond its part. After a problem,
        those that wait are cancelled.
        """
        self._check(request)
        parts = passage_requests(request, self.settings.passage_characters, by_sentence=by_sentence, more=more)
        kind = ("pairs", request.way, request.seed is None)
        jobs = [
            QueuedRequest(kind, asked, asked.number or self.settings.max_questions, len(asked.text))
            for _, asked in parts
        ]
        futures = self._put(jobs)
        try:
            for (start, _), future in zip(parts, futures, strict=True):
                yield start, await self._result(future)
        finally:
            for future in futures:
                future.cancel()

    def _check(self, request: AskRequest) -> None:
        try:
            if self._model is not None:
                self._model.check(request)
                check_text(self._model.name, request.text, "the text")
        except InputError as error:
            raise ProblemError(422, self._public(str(error))) from None

    async def answers(self, text: str, number: int | None, language: str) -> list[AnswerSpan]:
        self._check(AskRequest(text, number=number, language=language))
        job = QueuedRequest(("answers", number, language), text, number or self.settings.max_questions, len(text))
        return [*await self._only_result(job)]

    async def score(self, requests: Sequence[ScoreRequest], language: str = "en") -> list[dict[str, float]]:
        self._check(AskRequest(requests[0].text, language=language))
        longest = max(len(request.text) for request in requests)
        return [*await self._only_result(QueuedRequest(("score", language), [*requests], len(requests), longest))]

    async def explain(self, question: str, text: str, answer: AnswerSpan) -> list[WeighedSpan] | None:
        """What counts for a question, by the metric that orders the pairs; None where that has no explanation."""
        if self.settings.rerank is None or (self._model is not None and self._model.explains is None):
            return None
        [(start, asked)] = passage_requests(AskRequest(text, (answer,), 1), self.settings.passage_characters)
        [place] = [span for span in asked.answers or () if isinstance(span, AnswerSpan)]
        job = QueuedRequest(("explain",), (question, asked.text, place), 1, len(asked.text))
        found: Sequence[WeighedSpan] | None = await self._only_result(job)
        if found is None:
            return None
        return [replace(one, start=one.start + start, end=one.end + start) for one in found]

    async def _only_result(self, job: QueuedRequest) -> Any:
        [future] = self._put([job])
        try:
            return await self._result(future)
        finally:
            future.cancel()

    def _put(self, jobs: Sequence[QueuedRequest]) -> list[asyncio.Future[Any]]:
        self.check_ready()
        try:
            self._queue.put(jobs)
        except QueueFullError:
            self.check_ready()  # it may have been closed just now
            raise unavailable("too many requests are waiting; ask again later", self.seconds_to_wait) from None
        return [job.awaited() for job in jobs]

    @property
    def seconds_to_wait(self) -> int:
        """How long it will take to answer what waits, from 1 to 60 seconds."""
        return max(1, min(60, math.ceil(self._queue.rows * self._seconds_per_row)))

    async def _result(self, future: "asyncio.Future[Any]") -> Any:
        try:
            return await asyncio.wait_for(future, self.settings.timeout_seconds)
        except TimeoutError:
            raise self._too_late() from None

    def _too_late(self) -> ProblemError:
        limit = self.settings.timeout_seconds
        return unavailable(f"no answer within {limit:g} seconds; ask again later", self.seconds_to_wait)

    def _work(self) -> None:
        try:
            self._model = self._load()
        except BaseException as error:  # whatever it is, who started the service has to learn of it
            self.failure = error
            log.error("model not loaded", extra={"fields": {"error": described(error, message=True)}})
            return
        finally:
            self._loaded.set()
        while jobs := self._queue.take():
            for job in jobs:
                self.metrics.waited.observe(time.monotonic() - job.arrived)
            self._answer(jobs)

    def _answer(self, jobs: Sequence[QueuedRequest]) -> None:
        """Give each job of a batch its result. What fails for a batch is tried alone, so that one costs no others."""
        begun = time.monotonic()
        rows = sum(job.rows for job in jobs)
        IS_AWAITED.set(lambda: any(job.is_awaited for job in jobs))
        try:
            results = self._run(jobs[0].kind, [job.payload for job in jobs])
        except NobodyWaitsError as error:
            for job in jobs:
                job.future.set_exception(error)
            return
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._answer([job])
                return
            self.metrics.failures.inc(isinstance(error, LocalError) or not isinstance(error, InputError))
            told: Exception = error  # bad input and too little memory are told the client, everything else the log
            if isinstance(error, LocalError):  # of `OutOfMemoryRetry`
                log.error("out of memory", extra={"fields": {"error": str(error)}})
                told = unavailable("memory ran out; ask about a shorter text, or again later", MEMORY_SECONDS)
            elif isinstance(error, InputError):
                told = ProblemError(422, self._public(str(error)))
            jobs[0].future.set_exception(told)
            return
        seconds = time.monotonic() - begun
        self.metrics.batch_rows.observe(rows)
        self.metrics.batch_seconds.labels(jobs[0].kind[0]).observe(seconds)
        self._seconds_per_row += 0.2 * (seconds / max(1, rows) - self._seconds_per_row)
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, QAPairs):
                self.metrics.pairs.inc(len(result))
            job.future.set_result(result)

    def _run(self, kind: tuple[Any, ...], payloads: Sequence[Any]) -> list[Any]:
        """One result for each payload, in as few calls of the model as fit into memory."""
        check_awaited()
        model = self._model
        assert model is not None
        calls: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
            "pairs": model.ask_many,
            "answers": lambda texts: model.answers(texts, number=kind[1], language=kind[2]),
            "explain": lambda items: [model.explain(*item) for item in items],
            "score": lambda lists: _scores(model, lists, kind[1]),
        }
        limit = self._retry.limit
        try:
            results = [result for part in self._retry(calls[kind[0]], payloads) for result in part]
        finally:
            if self._retry.limit != limit:
                self._good_batches = 0  # it ran out of memory just now
        if len(results) != len(payloads):
            raise RuntimeError(f"{len(results)} results for {len(payloads)} requests")
        self._good_batches += 1
        if self._retry.limit is not None and self._good_batches >= GOOD_BATCHES:
            self._retry, self._good_batches = _retry(), 0
        return results


def unavailable(detail: str, seconds: int) -> ProblemError:
    """The problem 503; `seconds` until the client should try again."""
    return ProblemError(503, detail, headers={"Retry-After": str(seconds)})


def _scores(
    model: "QuestionGenerator", lists: Sequence[Sequence[ScoreRequest]], language: str
) -> list[list[dict[str, float]]]:
    columns = zip(*(request for requests in lists for request in requests), strict=True)
    scores = iter(model.score(*map(list, columns), language=language))
    return [[next(scores) for _ in requests] for requests in lists]


def _retry() -> OutOfMemoryRetry:
    return OutOfMemoryRetry("serve", "lower serve.passage_characters or serve.max_questions")
