"""Batches that do not fit into memory are halved, and the results stay the same."""

import gc

import pytest
import torch

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.ranks import OutOfMemoryRetry


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Collections of garbage, which take long beside the loaded libraries: they are counted and not made."""
    calls: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: calls.append(None))
    return calls


def limited(limit: int, calls: list[int]):
    def function(rows):
        calls.append(len(rows))
        if len(rows) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return [row * row for row in rows]

    return function


@pytest.mark.parametrize("limit", range(1, 8))
def test_every_row_is_computed_once_in_order_and_the_size_is_kept(limit: int, caplog, collections) -> None:
    retry, calls = OutOfMemoryRetry("rollout", "lower it"), []
    first = retry(limited(limit, calls), range(13))
    assert [value for part in first for value in part] == [row * row for row in range(13)]
    assert max(map(len, first)) <= limit
    assert len(collections) == sum(rows > limit for rows in calls)  # memory is released after each failure
    calls.clear()
    second = retry(limited(limit, calls), range(13))
    assert second == first and max(calls) <= limit  # memory does not run out again
    assert len([record for record in caplog.records if "do not fit" in record.message]) == 1


def test_rows_that_fit_are_one_call() -> None:
    calls: list[int] = []
    assert OutOfMemoryRetry("rollout", "")(limited(9, calls), range(9)) == [[row * row for row in range(9)]]
    assert calls == [9]


def test_a_row_that_never_fits_is_one_line() -> None:
    with pytest.raises(InputError, match="rollout: a single row does not fit into memory; lower it"):
        OutOfMemoryRetry("rollout", "lower it")(limited(0, []), range(4))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        torch.AcceleratorError("CUDA error: out of memory"),
    ],
)
def test_the_host_can_run_out_of_memory_too(error: Exception) -> None:
    def function(rows):
        if len(rows) > 1:
            raise error
        return list(rows)

    assert OutOfMemoryRetry("reward", "")(function, [1, 2, 3]) == [[1], [2], [3]]


def test_other_errors_are_raised() -> None:
    def function(rows):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        OutOfMemoryRetry("reward", "")(function, [1, 2])
