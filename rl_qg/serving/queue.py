"""Requests that wait for the model, and which of them are answered together."""

import time
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition
from typing import Any


class QueueFullError(Exception):
    """No more requests can wait."""


class QueueClosedError(Exception):
    """No more requests are taken."""


@dataclass(eq=False)
class QueuedRequest:
    """A request that waits.

    Args:
        kind: jobs of one kind may share a batch.
        payload: what is asked.
        rows: how much of a batch it takes.
        length: of its text in characters, by which batches are sorted.
        arrived: on the clock of `time.monotonic`, in seconds.
        future: gets the result. Who cancels it takes the job out of the queue, if it has not begun.
    """

    kind: Hashable
    payload: Any
    rows: int
    length: int
    arrived: float = field(default_factory=time.monotonic)
    future: Future[Any] = field(default_factory=Future)


class BatchQueue:
    """A bounded queue whose jobs leave it in batches, the oldest job's kind first. For several threads.

    Args:
        max_jobs: jobs that may wait. More are taken where nothing waits, so that no request is too long for ever.
        max_rows: of a batch; a single job may have more.
        max_wait: seconds that a job waits for others of its kind.
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
        """Rows that wait."""
        with self._changed:
            return sum(job.rows for job in self._jobs)

    def put(self, jobs: Sequence[QueuedRequest]) -> None:
        """Let all of these jobs wait, or none.

        Raises:
            QueueFullError: they do not fit.
            QueueClosedError: `close` was called.
        """
        with self._changed:
            if self._closed:
                raise QueueClosedError
            if self._jobs and len(self._jobs) + len(jobs) > self._max_jobs:
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
        """Take a job out that was cancelled."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self._changed.notify_all()
