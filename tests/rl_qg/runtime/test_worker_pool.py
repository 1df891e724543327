import os
import signal
import time
from contextvars import ContextVar
from multiprocessing import active_children
from threading import Barrier

import pytest
import torch

from rl_qg.runtime.processes import available_cores, side_by_side, worker_pool


@pytest.mark.slow
def test_a_worker_is_a_process_of_its_own_and_ends_when_the_block_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    before = set(active_children())
    with pytest.raises(KeyboardInterrupt), worker_pool(1, threads=3) as pool:
        assert pool.submit(torch.get_num_threads).result() == 3
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN
        assert pool.submit(os.getenv, "RANK").result() is None
        assert pool.submit(os.getenv, "ACCELERATE_USE_FSDP").result() is None
        endless = [pool.submit(time.sleep, 3600) for _ in range(3)]
        while not endless[0].running():
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert set(active_children()) <= before
    assert all(waiting.exception() for waiting in endless)


def test_the_cores_are_those_that_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    assert available_cores() == len(allowed)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.usefixtures("one_thread")
def test_what_runs_side_by_side_has_one_thread_each_and_comes_in_order() -> None:
    """Both calls wait for each other, so they run at the same time."""
    both, asked = Barrier(2, timeout=60), ContextVar("asked", default="nobody")
    asked.set("somebody")

    def call(number: int) -> tuple[int, int, str]:
        both.wait()
        return number, torch.get_num_threads(), asked.get()

    assert side_by_side(call, [4, 3], 2) == [(4, 1, "somebody"), (3, 1, "somebody")]
    assert side_by_side(str, [4, 3], 1) == ["4", "3"]
    assert side_by_side(str, [], 2) == []


@pytest.mark.usefixtures("one_thread")
def test_after_an_error_no_further_call_begins() -> None:
    begun = []

    def call(number: int) -> None:
        begun.append(number)
        time.sleep(0.5 * (number > 0))
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        side_by_side(call, range(100), 2)
    assert len(begun) < 20
