"""Readers that train in worker processes: the same files as one after the other, also after a worker was killed."""

import gc
import os
import signal
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path
from threading import Thread
from time import sleep

import pytest
import torch

from rl_qg.readers import train_reader as stage
from rl_qg.readers.train_reader import train_readers
from rl_qg.runtime.errors import InputError
from tests.toy_reader import contents, toy_examples, toy_settings

DATA = {"gold": toy_examples(24, 1), "more": toy_examples(40, 3)}
VALIDATION = toy_examples(24, 2)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()  # the library collects garbage whenever training begins
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def files(root: Path) -> dict[str, bytes]:
    """All files but the tokenizer's settings, which say whether their process could ask the Hub."""
    return {name: content for name, content in contents(root).items() if not name.endswith("tokenizer_config.json")}


def train(root: Path, model: Path, **changes) -> None:
    settings = toy_settings(model, seeds=[0, 1], threads=1, **changes)
    train_readers({root / name: data for name, data in DATA.items()}, VALIDATION, settings=settings, use_cpu=True)


@pytest.fixture(scope="module")
def in_turn(distilbert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of four readers, trained in this process."""
    root = tmp_path_factory.mktemp("in-turn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "_train_side_by_side", stage._train_in_turn)
        train(root, distilbert)
    return files(root)


def use_cores(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """Pretend that there are so many cores; returns where the numbers of workers will be noted."""
    pool, workers = stage.worker_pool, []
    monkeypatch.setattr(stage, "available_cores", lambda: count)
    monkeypatch.setattr(stage, "worker_pool", lambda number, threads: workers.append(number) or pool(number, threads))
    return workers


@pytest.mark.slow
def test_readers_side_by_side_are_the_readers_one_after_the_other(
    distilbert: Path, in_turn: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = use_cores(monkeypatch, 2)
    train(tmp_path, distilbert)
    assert workers == [2]
    assert files(tmp_path) == in_turn
    assert len({content for name, content in in_turn.items() if name.endswith("predictions.json")}) > 2
    train(tmp_path, distilbert)
    assert workers == [2]  # all is finished: no process is started


@pytest.mark.slow
def test_a_killed_worker_is_an_error_and_the_same_call_goes_on(
    distilbert: Path, in_turn: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = use_cores(monkeypatch, 1)
    first = tmp_path / "gold" / "seed-0" / "qa_metrics.json"

    def kill() -> None:
        while not first.exists():
            sleep(0.01)
        for child in active_children():
            os.kill(child.pid or 0, signal.SIGKILL)

    Thread(target=kill, daemon=True).start()
    with pytest.raises(InputError, match=r"a process that trained a reader was killed.*the same command goes on"):
        train(tmp_path, distilbert)
    assert workers == [1] and not (tmp_path / "more" / "qa_metrics.json").exists()
    before = first.stat().st_mtime_ns
    monkeypatch.setattr(stage, "_train_side_by_side", stage._train_in_turn)
    train(tmp_path, distilbert)
    assert first.stat().st_mtime_ns == before
    assert files(tmp_path) == in_turn


def test_more_threads_a_reader_are_fewer_readers_at_a_time(
    distilbert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(Exception):
        pass

    def ask(workers: int, threads: int) -> None:
        raise Asked(workers, threads)

    monkeypatch.setattr(stage, "worker_pool", ask)
    for cores, threads, expected in ((8, 1, 4), (3, 1, 3), (8, 3, 2), (2, 4, 1)):
        monkeypatch.setattr(stage, "available_cores", lambda cores=cores: cores)
        settings = toy_settings(distilbert, seeds=[0, 1], threads=threads)
        data = {tmp_path / f"{cores}-{threads}" / name: examples for name, examples in DATA.items()}
        with pytest.raises(Asked) as asked:
            train_readers(data, VALIDATION, settings=settings, use_cpu=True)
        assert asked.value.args == (expected, threads)
