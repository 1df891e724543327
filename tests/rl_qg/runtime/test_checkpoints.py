"""Only complete checkpoints are used, and the last complete one is never deleted."""

import errno
import json
from pathlib import Path

import pytest
import torch

from rl_qg.readers.fine_tuning import delete_checkpoints
from rl_qg.runtime import trainer_base as checkpoints
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trainer_base import MANIFEST, delete_all_but, last_checkpoint, mark_complete, regular_checkpoints
from tests.rl_qg.training.word_task import data, trainer


def checkpoint(folder: Path, step: int, *, complete: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    (path / "global_step").mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"w" * 1000)
    (path / "global_step" / "shard.pt").write_bytes(b"s" * 50)
    if complete:
        mark_complete(path)
    return path


def names(folder: Path) -> list[str]:
    return sorted((path.name for path in folder.glob("checkpoint-*")), key=lambda name: int(name.split("-")[1]))


def test_the_newest_complete_checkpoint_is_used(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    for step, complete in ((2, True), (10, True), (12, False)):
        checkpoint(tmp_path, step, complete=complete)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


@pytest.mark.parametrize("name", ["model.safetensors", "global_step/shard.pt"])
def test_a_truncated_or_missing_file_is_named_and_the_checkpoint_before_is_used(
    tmp_path: Path, name: str, caplog
) -> None:
    checkpoint(tmp_path, 2)
    broken = checkpoint(tmp_path, 4) / name
    size = broken.stat().st_size
    broken.write_bytes(broken.read_bytes()[:-1])
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    assert f"{broken}: has {size - 1:,} bytes instead of {size:,}" in caplog.text
    broken.unlink()
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    assert f"{broken}: is missing" in caplog.text


def test_a_checkpoint_with_a_truncated_manifest_is_not_complete(tmp_path: Path) -> None:
    (checkpoint(tmp_path, 2) / MANIFEST).write_text('{"files": {')
    assert last_checkpoint(tmp_path) is None


def test_only_checkpoints_older_than_the_limit_of_complete_ones_are_deleted(tmp_path: Path) -> None:
    for step, complete in ((2, True), (4, True), (6, False), (8, True), (10, True), (12, False)):
        checkpoint(tmp_path, step, complete=complete)
    delete_all_but(tmp_path, 2, best=tmp_path / "checkpoint-2")
    assert names(tmp_path) == ["checkpoint-2", "checkpoint-8", "checkpoint-10", "checkpoint-12"]
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


def test_a_checkpoint_of_sigterm_takes_no_place_of_those_of_the_plan(tmp_path: Path) -> None:
    for step in (4, 6, 8, 10):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 11)  # SIGTERM came here: it is the newest, and the run goes on from it
    delete_all_but(tmp_path, 3, best=None, every=2)
    assert names(tmp_path) == ["checkpoint-8", "checkpoint-10", "checkpoint-11"]
    checkpoint(tmp_path, 12)
    assert [path.name for path in regular_checkpoints(tmp_path, 2)] == [
        "checkpoint-12",
        "checkpoint-10",
        "checkpoint-8",
    ]
    delete_all_but(tmp_path, 3, best=None, every=2)
    assert names(tmp_path) == ["checkpoint-8", "checkpoint-10", "checkpoint-12"]


def test_a_file_with_the_name_of_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    checkpoint(tmp_path, 8)
    (tmp_path / "checkpoint-7").write_text("mine")
    delete_all_but(tmp_path, 1, best=None)
    assert names(tmp_path) == ["checkpoint-7", "checkpoint-8"]
    (tmp_path / "checkpoint-9").write_text("mine")
    delete_checkpoints(tmp_path.parent / tmp_path.name)
    assert names(tmp_path) == ["checkpoint-7", "checkpoint-9"]
    checkpoint(tmp_path, 8)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-8")


def test_nothing_is_deleted_without_a_complete_checkpoint(tmp_path: Path) -> None:
    for step in (2, 4):
        checkpoint(tmp_path, step, complete=False)
    delete_all_but(tmp_path, 1, best=None)
    assert names(tmp_path) == ["checkpoint-2", "checkpoint-4"]


def test_the_only_complete_checkpoint_is_kept_when_the_next_is_interrupted(tmp_path: Path, monkeypatch) -> None:
    subject = trainer(
        tmp_path, train_dataset=data(8), max_steps=6, save_strategy="steps", save_steps=2, save_total_limit=1
    )
    real, calls = checkpoints.mark_complete, []

    def killed_at_the_second(folder: Path) -> None:
        calls.append(folder.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(folder)

    monkeypatch.setattr(checkpoints, "mark_complete", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        subject.train()
    assert calls == ["checkpoint-2", "checkpoint-4"]
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("unexpected pos 64")]
)
def test_a_full_disk_is_one_line_and_leaves_no_partial_checkpoint(tmp_path: Path, monkeypatch, error) -> None:
    subject = trainer(tmp_path, train_dataset=data(8), max_steps=4, save_strategy="steps", save_steps=2)
    save = torch.save

    def full(value: object, target: object, *args: object, **kwargs: object) -> None:
        if "checkpoint-4" in str(target):
            raise error
        save(value, target, *args, **kwargs)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(InputError, match=r"checkpoint-4: the disk is full.*the same command continues"):
        subject.train()
    assert names(tmp_path) == ["checkpoint-2"]
    assert subject.args.save_total_limit is None or subject.args.save_total_limit > 0
    assert json.loads((tmp_path / "checkpoint-2" / MANIFEST).read_text())["files"]["model.safetensors"] > 0
