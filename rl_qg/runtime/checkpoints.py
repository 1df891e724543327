"""Checkpoints that can be trusted: complete or not there, and the last good one is never deleted.

A checkpoint is complete when it holds `complete.json`, which is written last and lists every file with its size.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import Trainer

from rl_qg.runtime.errors import LocalError
from rl_qg.runtime.json_files import is_disk_full, write_json

MANIFEST = "complete.json"
NAME = re.compile(r"checkpoint-\d+")
log = logging.getLogger(__name__)


class CompleteCheckpoints(Trainer):
    """Stands before a trainer: seals each checkpoint behind the last process's last file, and only then deletes older
    ones (`save_total_limit`).
    """

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self.is_world_process_zero():
            shutil.rmtree(folder, ignore_errors=True)  # what a kill left of an earlier attempt
        self.accelerator.wait_for_everyone()
        with _room_for(folder):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                seal(folder)
        self._delete_old()

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As the library's."""
        self._limit, self.args.save_total_limit = self.args.save_total_limit, None  # deleting is ours alone
        try:
            result = super().train(*args, **kwargs)
        finally:
            self.args.save_total_limit = self._limit
        self._delete_old()  # a kill may have come while the last ones were deleted
        return result

    def _delete_old(self) -> None:
        best = self.state.best_model_checkpoint
        if self.is_world_process_zero() and self._limit:
            delete_all_but(Path(self.args.output_dir), self._limit, best=None if best is None else Path(best))

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """As the library's, which takes one update more when it resumes from the very last one within an epoch."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)

    def _load_best_model(self) -> None:
        """As the library's; a best checkpoint that is damaged is named, and the last model taken."""
        fault = fault_of(Path(self.state.best_model_checkpoint))
        if fault is not None:
            log.warning("%s; the best model is lost, the last one is kept", fault)
            return
        super()._load_best_model()


def seal(folder: Path) -> None:
    """Bring every file below `folder` to the disk, then write the manifest."""
    sizes = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
        sizes[str(path.relative_to(folder))] = path.stat().st_size
    write_json(folder / MANIFEST, {"files": sizes})


def fault_of(folder: Path) -> str | None:
    """What is wrong with a sealed checkpoint; None for nothing."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{folder / MANIFEST}: cannot be read"
    for name, size in files.items():
        path = folder / name
        if not path.is_file():
            return f"{path}: is missing"
        if (found := path.stat().st_size) != size:
            return f"{path}: has {found:,} bytes instead of {size:,}"
    return None


def last_checkpoint(folder: Path) -> str | None:
    """The newest complete checkpoint below `folder`; a warning names what is wrong with a newer one."""
    for checkpoint in _newest_first(folder):
        if not (checkpoint / MANIFEST).exists():
            log.warning("%s: is not complete (it has no %s) and is left out", checkpoint, MANIFEST)
            continue
        fault = fault_of(checkpoint)
        if fault is None:
            log.info("going on from %s", checkpoint)
            return str(checkpoint)
        log.warning("%s; this checkpoint is left out, an earlier one is tried", fault)
    return None


def delete_all_but(folder: Path, limit: int, *, best: Path | None) -> None:
    """Delete checkpoints, the oldest first, until `limit` complete ones are left; `best` stays in any case. Incomplete
    ones that are older than the newest complete one go too.
    """
    complete = [path for path in _newest_first(folder) if (path / MANIFEST).exists() and fault_of(path) is None]
    kept = {path.name for path in complete[:limit]} | ({best.name} if best is not None else set())
    for checkpoint in _newest_first(folder):
        if complete and checkpoint.name not in kept and _step(checkpoint) < _step(complete[0]):
            # The manifest first: a kill in between must not leave half a checkpoint sealed.
            (checkpoint / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(checkpoint, ignore_errors=True)


def _newest_first(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("checkpoint-*") if NAME.fullmatch(path.name)), key=_step, reverse=True)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


@contextmanager
def _room_for(folder: Path) -> Iterator[None]:
    """Turn a full disk into one line, and remove what was written of the checkpoint."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_disk_full(error):
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise LocalError(
            f"{folder}: the disk is full ({getattr(error, 'strerror', None) or 'no space left'}); earlier checkpoints "
            "are whole: free some space, and the same command goes on from the last of them"
        ) from None
