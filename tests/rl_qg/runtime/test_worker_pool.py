import os
import signal
import time
from multiprocessing import active_children

import pytest
import torch

from rl_qg.runtime.processes import available_cores, worker_pool


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
