"""Complete checkpoints: incomplete ones are recognised, and the last complete one is never deleted.

A checkpoint is complete if it holds `complete.json`, which is written last and lists every file with its size.
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
    """Mixin of trainers, named before the trainer class: marks each checkpoint as complete after the last file of the
    last process, and only then deletes older ones (`save_total_limit`).
    """

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self.is_world_process_zero():
            shutil.rmtree(folder, ignore_errors=True)  # may be incomplete after a kill
        self.accelerator.wait_for_everyone()
        with _disk_full_as_one_line(folder):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                mark_complete(folder)
        self._delete_old()

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in the library."""
        self._limit, self.args.save_total_limit = self.args.save_total_limit, None  # only this class deletes
        try:
            result = super().train(*args, **kwargs)
        finally:
            self.args.save_total_limit = self._limit
        self._delete_old()  # a kill may have interrupted the last deletion
        return result

    def _delete_old(self) -> None:
        best = self.state.best_model_checkpoint
        if self.is_world_process_zero() and self._limit:
            delete_all_but(Path(self.args.output_dir), self._limit, best=None if best is None else Path(best))

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """As in the library, which would make one more update when it resumes from the last one within an epoch, or
        where a callback says at the start that training stops.
        """
        if self.state.global_step >= self.state.max_steps or self.control.should_training_stop:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)

    def _load_best_model(self) -> None:
        """As in the library; if the best checkpoint is damaged, a warning names it and the last model is kept."""
        fault = fault_of(Path(self.state.best_model_checkpoint))
        if fault is not None:
            log.warning("%s; the best model is lost, the last one is kept", fault)
            return
        super()._load_best_model()
        best, last = self.state.best_global_step, self.state.global_step
        if best < last and self.is_world_process_zero():
            reason = f"it has the lowest validation loss, {self.state.best_metric:.4g}"
            log.info("the model of step %d is kept, not that of the last step, %d: %s", best, last, reason)


def mark_complete(folder: Path) -> None:
    """Bring every file in `folder` to the disk, then write the manifest."""
    sizes = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
        sizes[str(path.relative_to(folder))] = path.stat().st_size
    write_json(folder / MANIFEST, {"files": sizes})


def fault_of(folder: Path) -> str | None:
    """The fault of a checkpoint with a manifest; None if it is complete."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{folder / MANIFEST}: cannot be read"
    for name, size in files.items():
        path = folder / name
        if not path.is_file():
            return f"{path}: is missing"
        if (actual := path.stat().st_size) != size:
            return f"{path}: has {actual:,} bytes instead of {size:,}"
    return None


def last_checkpoint(folder: Path) -> str | None:
    """The newest complete checkpoint in `folder`; a warning names the fault of each newer one."""
    for checkpoint in _newest_first(folder):
        if not (checkpoint / MANIFEST).exists():
            log.warning("%s: is not complete (it has no %s) and is ignored", checkpoint, MANIFEST)
            continue
        fault = fault_of(checkpoint)
        if fault is None:
            log.info("continuing from %s", checkpoint)
            return str(checkpoint)
        log.warning("%s; this checkpoint is ignored, an earlier one is tried", fault)
    return None


def delete_all_but(folder: Path, limit: int, *, best: Path | None) -> None:
    """Delete checkpoints, the oldest first, until `limit` complete ones are left; `best` is always kept. Incomplete
    ones that are older than the newest complete one are deleted too.
    """
    complete = [path for path in _newest_first(folder) if (path / MANIFEST).exists() and fault_of(path) is None]
    kept = {path.name for path in complete[:limit]} | ({best.name} if best is not None else set())
    for checkpoint in _newest_first(folder):
        if complete and checkpoint.name not in kept and _step(checkpoint) < _step(complete[0]):
            # The manifest first: a kill in between must not leave a partial checkpoint marked as complete.
            (checkpoint / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(checkpoint, ignore_errors=True)


def _newest_first(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("checkpoint-*") if NAME.fullmatch(path.name)), key=_step, reverse=True)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


@contextmanager
def _disk_full_as_one_line(folder: Path) -> Iterator[None]:
    """Report a full disk in one line, and remove the partial checkpoint."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_disk_full(error):
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise LocalError(
            f"{folder}: the disk is full ({getattr(error, 'strerror', None) or 'no space left'}); earlier checkpoints "
            "are complete: free some space, and the same command continues from the last of them"
        ) from None
