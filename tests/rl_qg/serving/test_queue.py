"""The queue that makes batches of requests."""

import time
from concurrent.futures import Future
from threading import Thread

import pytest

from rl_qg.serving.service import BatchQueue, QueuedRequest, QueueFullError


def job(kind: str = "a", rows: int = 1, length: int = 1) -> QueuedRequest:
    return QueuedRequest(kind, None, rows, length)


def queue(*, max_jobs: int = 100, max_rows: int = 4, max_wait: float = 0.0) -> BatchQueue:
    return BatchQueue(max_jobs=max_jobs, max_rows=max_rows, max_wait=max_wait)


class Taken:
    """What a queue gives to another thread."""

    def __init__(self, waiting: BatchQueue) -> None:
        self._batch: Future[list[QueuedRequest]] = Future()
        Thread(target=lambda: self._batch.set_result(waiting.take()), daemon=True).start()

    def result(self) -> list[QueuedRequest]:
        """The batch; `TimeoutError` where it does not come."""
        return self._batch.result(5)

    def is_waited_for(self) -> bool:
        time.sleep(0.05)
        return not self._batch.done()


def test_a_batch_has_one_kind_the_oldest_first_and_is_sorted_by_length() -> None:
    waiting = queue()
    first, other, second = job("a", length=9), job("b"), job("a", length=3)
    waiting.put([first, other, second])
    assert waiting.take() == [second, first]
    assert waiting.take() == [other]


def test_a_batch_has_at_most_so_many_rows_but_a_longer_job_is_not_left_out() -> None:
    waiting = queue(max_rows=4)
    jobs = [job(rows=2), job(rows=1), job(rows=2), job(rows=9)]
    waiting.put(jobs)
    assert [waiting.take() for _ in range(3)] == [jobs[:2], [jobs[2]], [jobs[3]]]


def test_a_whole_batch_does_not_wait_and_a_partial_one_waits_for_others() -> None:
    waiting = queue(max_rows=2, max_wait=600)
    jobs = [job(), job(), job(), job(rows=3)]
    waiting.put(jobs)
    for batch in (jobs[:2], jobs[2:3], jobs[3:]):  # full; the next job does not fit; too large already
        assert Taken(waiting).result() == batch
    taken = Taken(waiting)
    assert taken.is_waited_for()
    late = [job(), job()]
    waiting.put(late[:1])
    assert taken.is_waited_for()
    waiting.put(late[1:])
    assert taken.result() == late


def test_a_cancelled_job_keeps_no_others_waiting() -> None:
    waiting = queue(max_rows=2, max_wait=600)
    first, *others = job("a"), job("b"), job("b")
    waiting.put([first, *others])
    taken = Taken(waiting)
    assert taken.is_waited_for()  # for more of the first one's kind
    assert first.future.cancel()
    assert taken.result() == others


def test_a_partial_batch_leaves_after_its_time() -> None:
    alone = job()
    for max_wait in (600, 0.05):  # the time of one that has just come: not over, then over
        waiting = queue(max_rows=100, max_wait=max_wait)
        waiting.put([alone])
        taken = Taken(waiting)
        if max_wait == 600:
            assert taken.is_waited_for()
    assert taken.result() == [alone]


def test_a_full_queue_takes_all_jobs_of_a_request_or_none() -> None:
    waiting = queue(max_jobs=3, max_rows=1)
    waiting.put([job(), job()])
    with pytest.raises(QueueFullError):
        waiting.put([job(), job()])
    assert len(waiting) == 2
    waiting.put([job()])
    assert len(waiting) == 3


def test_a_request_that_is_longer_than_the_queue_is_taken_when_nothing_waits() -> None:
    waiting = queue(max_jobs=3)
    waiting.put([job() for _ in range(7)])
    assert len(waiting) == 7


def test_a_cancelled_job_leaves_the_queue_and_makes_room() -> None:
    waiting = queue(max_jobs=2)
    first, second = job(), job()
    waiting.put([first, second])
    assert first.future.cancel()
    assert len(waiting) == 1 and waiting.rows == 1
    third = job()
    waiting.put([third])
    assert waiting.take() == [second, third]
    assert not second.future.cancel()  # it has begun


def test_a_closed_queue_gives_out_what_waits_and_takes_nothing() -> None:
    waiting = queue(max_wait=600)
    last = job()
    waiting.put([last])
    taken = Taken(waiting)
    assert taken.is_waited_for()
    waiting.close()
    with pytest.raises(QueueFullError):
        waiting.put([job()])
    assert taken.result() == [last]
    assert Taken(waiting).result() == []
