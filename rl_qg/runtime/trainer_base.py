"""What every training shares: complete checkpoints, stop by signal, whole weights, finite updates, a bar."""

import copy
import json
import logging
import math
import os
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from transformers import ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_callback import ExportableState, PrinterCallback
from transformers.utils import SAFE_WEIGHTS_NAME

from rewards.arithmetic import warn_if_slow
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError, LocalError, NothingLearned, Terminated
from rl_qg.runtime.files import is_disk_full, write_json
from rl_qg.runtime.processes import TIMEOUT
from rl_qg.runtime.ranks import from_main

MANIFEST = "complete.json"  # of a checkpoint: written last, lists every file with its size
MOST_UPDATES = 2**31 - 1  # more than any run makes
NAME = re.compile(r"checkpoint-\d+")
log = logging.getLogger(__name__)
WRAPPER = "_checkpoint_wrapped_module."  # put into names by FSDP's activation checkpointing
AT_ONCE = 1 << 26  # numbers of whole weights in one collective: 256 MiB of float32
SHOWN = {  # metrics on the bar
    "loss": "loss",
    "lambda": "λ",
    "reward_greedy": "greedy",
    "reward_sample": "sample",
    "samples_per_second": "samples/s",
    "eval_loss": "held-out loss",
    "eval_reward_greedy": "held-out reward",
}


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
    for checkpoint in checkpoints(folder):
        if not (checkpoint / MANIFEST).exists():
            log.warning("%s: is not complete (it has no %s) and is ignored", checkpoint, MANIFEST)
            continue
        fault = fault_of(checkpoint)
        if fault is None:
            log.info("continuing from %s", checkpoint)
            return str(checkpoint)
        log.warning("%s; this checkpoint is ignored, an earlier one is tried", fault)
    return None


def delete_all_but(folder: Path, limit: int, *, best: Path | None, every: int = 1) -> None:
    """Delete checkpoints, the oldest first, until `limit` of `regular_checkpoints` are left; `best` is always kept.
    Others that are older than the newest complete one are deleted too.
    """
    regular = regular_checkpoints(folder, every)
    kept = {path.name for path in regular[:limit]} | ({best.name} if best is not None else set())
    for checkpoint in checkpoints(folder):
        if regular and checkpoint.name not in kept and _step(checkpoint) < _step(regular[0]):
            # The manifest first: a kill in between must not leave a partial checkpoint marked as complete.
            (checkpoint / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(checkpoint, ignore_errors=True)


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first; a file of such a name is somebody else's."""
    folders = (path for path in folder.glob("checkpoint-*") if NAME.fullmatch(path.name) and path.is_dir())
    return sorted(folders, key=_step, reverse=True)


def regular_checkpoints(folder: Path, every: int) -> list[Path]:
    """The newest complete checkpoint, and those of each `every` updates: SIGTERM leaves one that no other run has."""
    complete = [path for path in checkpoints(folder) if (path / MANIFEST).exists() and fault_of(path) is None]
    return [*complete[:1], *(path for path in complete[1:] if _step(path) % every == 0)]


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


class Preemption(TrainerCallback):
    """On SIGTERM in any process, saves a checkpoint after the current update and ends training."""

    def __init__(self) -> None:
        self.signalled = False
        self.stopping = False
        self._earlier_handler: Any = None
        self._group: Any = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._earlier_handler = signal.signal(signal.SIGTERM, lambda *_: setattr(self, "signalled", True))
        if PartialState().num_processes > 1:
            # Over the host: on an accelerator the exchange would wait for its queued work.
            self._group = torch.distributed.new_group(backend="gloo", timeout=TIMEOUT)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop all processes after the same update, whichever got the signal first."""
        signalled = torch.tensor(int(self.signalled))
        if self._group is not None:
            torch.distributed.all_reduce(signalled, torch.distributed.ReduceOp.MAX, group=self._group)
        if signalled:
            self.stopping = True
            control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        signal.signal(signal.SIGTERM, self._earlier_handler)


class _EndedWithinEpoch(TrainerCallback):
    """Where SIGTERM has ended an epoch early, the library would evaluate and save as at its end: a loss that no other
    run has could become the best. The last of the callbacks, after the library's own.
    """

    def __init__(self, preemption: Preemption) -> None:
        self._preemption = preemption

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._preemption.stopping and state.epoch != int(state.epoch or 0):
            control.should_evaluate = control.should_save = control.should_log = False


def train_until_preempted(trainer: Any, checkpoint: str | None) -> None:
    """Train from `checkpoint` (None: the start) to the end. SIGTERM leaves a checkpoint and raises `Terminated`."""
    preemption = Preemption()
    trainer.callback_handler.callbacks.insert(0, preemption)  # before the others, which must see `should_save`
    trainer.add_callback(ended := _EndedWithinEpoch(preemption))
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.remove_callback(preemption)
    trainer.remove_callback(ended)
    if preemption.signalled or preemption.stopping:  # the signal may have come after the last update
        log.info(
            "stopped at step %d of %d; the same command continues", trainer.state.global_step, trainer.state.max_steps
        )
        raise Terminated


class FiniteUpdates(TrainerCallback, ExportableState):
    """Skips and counts updates whose gradient is not finite: one such update would make all weights NaN.

    fp16 and DeepSpeed skip them themselves (DeepSpeed's gradients no callback sees; it says which it skipped).
    """

    def __init__(self) -> None:
        self.skipped, self._infinite = 0, False
        self.norm: Any = None  # of the gradient of this update before clipping, a tensor where we may have to skip it

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"skipped": self.skipped}}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        stored = stored_state(state, self)
        self.skipped = stored["attributes"]["skipped"] if stored else 0

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Delete gradients that are not finite; the optimiser then skips these parameters."""
        self._infinite = isinstance(self.norm, Tensor) and not math.isfinite(_alone(self.norm))
        if self._infinite and not args.fp16:
            kwargs["optimizer"].zero_grad(set_to_none=True)
            log.warning("step %d: the gradient is not finite; this update is skipped", state.global_step + 1)

    def on_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.skipped += self._infinite or bool(getattr(kwargs["optimizer"], "step_was_skipped", False))


def stored_state(state: TrainerState, callback: TrainerCallback) -> dict[str, Any] | None:
    """The state of a callback in the checkpoint from which a run resumes; None for a run from the start."""
    stored: Any = state.stateful_callbacks
    return stored.get(type(callback).__name__) if state.global_step and isinstance(stored, dict) else None


# The base of every trainer: complete checkpoints, and whole weights of a model whose parameters are sharded over the
# processes by ZeRO-3 or FSDP.


def cast_positions(model: nn.Module) -> None:
    """Give positions in a buffer (M2M100's) the type of the embeddings: DeepSpeed and FSDP cast parameters alone."""
    for module in model.modules():
        if "Positional" in type(module).__name__ and next(module.buffers(recurse=False), None) is not None:
            module.register_forward_hook(_as_embeddings)


def _as_embeddings(module: nn.Module, given: tuple[Any, ...], positions: Tensor) -> Tensor:
    embeddings = [value for value in given if isinstance(value, Tensor) and value.is_floating_point()]
    return positions.to(embeddings[0].dtype) if embeddings else positions


def run_all_layers(model: nn.Module) -> None:
    """Drop no layers at random (LayerDrop): each process would drop others, and wait for what nobody sends."""
    for module in model.modules():
        if getattr(module, "layerdrop", 0):
            module.layerdrop = 0.0  # type: ignore[assignment]
            name = type(module).__name__
            log.warning("%s: layerdrop is not used, since several processes must run the same layers", name)


class Resumable(Trainer):
    """Mixin of trainers, named before the trainer class: marks each checkpoint as complete after the last file of the
    last process, and only then deletes older ones (`save_total_limit`); gives access to the model with whole weights.
    """

    def __init__(self, *, args: Any, **kwargs: Any) -> None:
        if args.n_gpu > 1:  # the library would spread each batch over them (`nn.DataParallel`)
            log.warning("training uses one of %d GPUs; accelerate launch uses all", args.n_gpu)
            args._n_gpu = 1
        super().__init__(args=args, **kwargs)
        if self.is_fsdp_enabled and self.accelerator.state.fsdp_plugin.fsdp_version == 1:
            raise InputError("FSDP 1 is not supported: set fsdp_version: 2, as configs/accelerate/fsdp.yaml does")
        cast_positions(self.model)
        if self.args.world_size > 1:
            run_all_layers(self.model)
        self._whole: WholeWeights | None = None
        self.finite_updates = FiniteUpdates()
        self.add_callback(self.finite_updates)
        if self.args.bf16:
            warn_if_slow(torch.bfloat16, self.args.device, "training.precision=no")

    def train(self, *args: Any, **kwargs: Any) -> Any:
        if self._whole is None and self.is_sharded:
            self._whole = WholeWeights(self.model)
        self._limit, self.args.save_total_limit = self.args.save_total_limit, None  # only this class deletes
        try:
            result = super().train(*args, **kwargs)
        finally:
            self.args.save_total_limit = self._limit
        self._delete_old()  # a kill may have interrupted the last deletion
        self.check_learned()
        return result

    @property
    def is_sharded(self) -> bool:
        return bool(self.is_fsdp_enabled or is_deepspeed_zero3_enabled())

    def load_mean(self, count: int) -> list[int]:
        """Give the model the mean over the weights of the last `count` checkpoints (Izmailov et al., "Averaging
        weights leads to wider optima and better generalization", 2018); return their steps. No weights are sharded.
        """
        folders = regular_checkpoints(Path(self.args.output_dir), max(1, int(self.state.save_steps)))[:count]
        means: dict[str, Tensor] = {}
        for folder in folders:
            for name, value in load_file(folder / SAFE_WEIGHTS_NAME).items():
                means[name] = means.get(name, 0.0) + value.double() / len(folders)
        self.accelerator.unwrap_model(self.model_wrapped).load_state_dict(means, strict=False)  # tied ones stand once
        steps = sorted(_step(folder) for folder in folders)
        log.info("the model is the mean over the checkpoints of steps %s", ", ".join(map(str, steps)))
        if len(steps) < count:
            log.warning("%d checkpoints instead of %d: there are no more", len(steps), count)
        return steps

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if num_training_steps == 1:
            self.args.warmup_steps = 0  # the rate of the first update of a warm-up is 0
        return super().create_scheduler(num_training_steps, optimizer)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        self.finite_updates.norm = super()._get_grad_norm(model, grad_norm)
        return self.finite_updates.norm

    def check_learned(self) -> None:
        """Raise `NothingLearned` where most updates were skipped, or weights or the last validation loss (that of the
        best model, where it is kept) are not finite. Every process must call this.
        """
        skipped, steps, fault = self.finite_updates.skipped, self.state.global_step, ""
        losses = [line["eval_loss"] for line in self.state.log_history if "eval_loss" in line]
        if losses and self.args.load_best_model_at_end:
            losses.append(min(filter(math.isfinite, losses), default=math.nan))
        if losses and not math.isfinite(losses[-1]):
            fault = f"the validation loss is not finite after {steps} updates"
        if 2 * skipped > steps:
            fault = f"{skipped} of {steps} updates were skipped, as their gradient was not finite"
        with self.whole_model() as model:
            if not all(value.isfinite().all() for value in model.parameters()):
                fault = fault or f"weights of the model are not finite after {steps} updates"
        if fault:
            raise NothingLearned(f"{fault}; no model is saved: lower the learning rate, or check model, data, reward")

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

    def _delete_old(self) -> None:
        best = self.state.best_model_checkpoint
        if self.is_world_process_zero() and self._limit:
            folder, every = Path(self.args.output_dir), max(1, int(self.state.save_steps))
            delete_all_but(folder, self._limit, best=None if best is None else Path(best), every=every)

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        found, best = super()._init_training_state(*args, **kwargs), self.state.best_global_step
        if self.args.load_best_model_at_end and best:  # the folder may have another name now
            self.state.best_model_checkpoint = f"{self.args.output_dir}/checkpoint-{best}"
        return found

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """As in the library, which would make one more update when it resumes from the last one within an epoch, or
        where a callback says at the start that training stops; and which would begin what no run can end.
        """
        if self.state.max_steps > MOST_UPDATES:
            fault = f"{self.state.max_steps:,} updates are planned, of at most {MOST_UPDATES:,}"
            raise InputError(f"{self.args.output_dir}: {fault}; lower the number of epochs")
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

    def whole_model(self, *, without: Container[str] = ()) -> AbstractContextManager[Any]:
        """A context manager that gives the unwrapped model with whole weights; those of the names `without` are the
        caller's to fill in. Every process must call this.
        """
        bare = self.accelerator.unwrap_model(self.model_wrapped)
        return nullcontext(bare) if self._whole is None else self._whole.of(bare, without=without)

    def save_whole(self, folder: Path) -> None:
        """Save model and tokenizer in `folder`, `config.json` last: then it is complete. Every process calls this."""
        partial = folder / "model.part"
        with self.whole_model() as model:
            if self.is_world_process_zero():
                shutil.rmtree(partial, ignore_errors=True)
                model.save_pretrained(partial)
                self.processing_class.save_pretrained(partial)
                for path in sorted(partial.iterdir(), key=lambda path: path.name == "config.json"):
                    path.replace(folder / path.name)
                partial.rmdir()
        self.accelerator.wait_for_everyone()


class WholeWeights:
    """A plain copy of a model (before ZeRO-3 or FSDP shards it), into which the whole weights are gathered when they
    are needed; between uses it holds none.

    A rollout needs a forward pass per token, and on the sharded model each pass would gather every layer. Its length
    also differs between processes, and those that are longer would wait for the others forever. On the copy a rollout
    needs no communication.
    """

    def __init__(self, model: nn.Module) -> None:
        if any(hasattr(value, "ds_id") for value in model.parameters()):
            raise InputError("ZeRO-3 has already sharded the model: load it before the training arguments are created")
        self._copy = copy.deepcopy(model).cpu()
        self._in_use = False
        self._release()

    @contextmanager
    def of(self, model: nn.Module, *, without: Container[str] = ()) -> Iterator[Any]:
        """Within the block, the copy with the present weights of `model`, but for those of the names `without`. Within
        another such block nothing is gathered again. Every process must call this.
        """
        if self._in_use:
            yield self._copy
            return
        own, buffers = dict(self._copy.named_parameters()), dict(self._copy.named_buffers())
        values = {name.replace(WRAPPER, ""): value for name, value in model.named_parameters()}
        wanted = {name: value for name, value in values.items() if name not in without}
        for name, whole in zip(wanted, gather_all([*wanted.values()]), strict=True):
            own[name].data = whole
        for name, buffer in model.named_buffers():  # which no library shards, but DeepSpeed casts
            buffers[name.replace(WRAPPER, "")].data = buffer.data
        self._copy.train(model.training)
        self._in_use = True
        try:
            yield self._copy
        finally:
            self._in_use = False
            self._release()

    def _release(self) -> None:
        for value in self._copy.parameters():
            value.data = torch.empty(0, dtype=value.dtype, device=value.device)


def gather_all(values: Sequence[Tensor]) -> list[Tensor]:
    """Copies of whole tensors; every process must call this for the same ones.

    Those of one number type come in one collective for each `AT_ONCE` numbers, since each waits for all processes.
    """
    whole: list[Tensor] = [*values]
    together: dict[Any, list[tuple[int, _Shard]]] = defaultdict(list)
    counts: dict[Any, int] = defaultdict(int)
    for number, value in enumerate(values):
        if (shard := _shard(value)) is None:
            whole[number] = _alone(value)
            continue
        kind = shard.part.dtype, shard.group
        together[*kind, counts[kind] // AT_ONCE].append((number, shard))
        counts[kind] += shard.shape.numel()
    for (_, group, _), shards in together.items():
        flat = torch.cat([shard.part for _, shard in shards])
        every = flat.new_empty(group.size(), len(flat))
        torch.distributed.all_gather_into_tensor(every.view(-1), flat, group)
        columns = every.split([len(shard.part) for _, shard in shards], 1)
        for (number, shard), parts in zip(shards, columns, strict=True):
            whole[number] = parts.flatten()[: shard.shape.numel()].view(shard.shape)
    return whole


class _Shard(NamedTuple):
    """What this process holds of a tensor of this `shape`: all processes' flat parts, equally long, begin with it."""

    part: Tensor
    shape: torch.Size
    group: Any


def _shard(value: Any) -> _Shard | None:
    """None for a tensor that is whole, or divided in another way."""
    if isinstance(value, DTensor) and value.placements == (Shard(0),):
        part, group = value.to_local().detach().flatten(), value.device_mesh.get_group()
        size = value.numel() // len(value) * -(-len(value) // group.size())  # the last processes have fewer rows
        return _Shard(nn.functional.pad(part, (0, size - len(part))), value.shape, group)
    shard = getattr(value, "ds_tensor", None)
    if shard is None or hasattr(shard, "ds_quant_scale") or shard.status.name != "AVAILABLE":  # on an NVMe disk
        return None
    return _Shard(shard.detach().to(PartialState().device), value.ds_shape, value.ds_process_group)


def _alone(value: Tensor) -> Tensor:
    if isinstance(value, DTensor):
        return value.full_tensor().detach().clone()
    if hasattr(value, "ds_id"):
        from deepspeed.runtime.zero import GatheredParameters

        with GatheredParameters([value]):
            return value.data.detach().clone()
    return value.detach().clone()


class TrainingBar(TrainerCallback):
    """A bar over all updates; a resumed run starts at its step. `position` is the line on the screen."""

    def __init__(self, title: str, *, position: int = 0) -> None:
        self.title = title
        self.position = position
        self.bar: ProgressBar | None = None
        self.shown: dict[str, str] = {}
        self.inner: ProgressBar | None = None  # bar of a running evaluation or prediction

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self.bar = ProgressBar(
                total=state.max_steps, initial=state.global_step, desc=self.title, unit="step", position=self.position
            )

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.bar is not None:
            self.bar.update()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if self.bar is not None and logs:
            self.shown |= {SHOWN[name]: f"{value:.3g}" for name, value in logs.items() if name in SHOWN}
            self.bar.set_postfix(self.shown, refresh=False)

    def on_prediction_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Advance the bar of an evaluation or prediction, which is opened at the first batch."""
        if state.is_world_process_zero:
            if self.inner is None:
                size, line = len(kwargs["eval_dataloader"]), self.position + 1
                self.inner = ProgressBar(total=size, desc="held-out", unit="batch", leave=False, position=line)
            self.inner.update()

    def _close_inner(self, *args: Any, **kwargs: Any) -> None:
        if self.inner is not None:
            self.inner.close()
            self.inner = None

    on_evaluate = _close_inner
    on_predict = _close_inner

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.bar is not None:
            self.bar.close()


def show_progress(trainer: Any, title: str, *, position: int = 0) -> None:
    """Replace the progress bar or printer of the library by `TrainingBar`."""
    for library in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(library)
    trainer.add_callback(TrainingBar(title, position=position))


def _avoid_fused_attention(trainer: Any) -> None:
    """In bfloat16 on a CPU the backward pass of PyTorch's fused attention takes longer than plain products and a
    softmax: 16 windows of 176 tokens took MiniLM 1.13 s against 0.77 s.
    """
    config, args = trainer.model.config, trainer.args
    is_slow = args.bf16 and args.device.type == "cpu" and config._attn_implementation == "sdpa"
    if is_slow and not config.is_encoder_decoder:
        trainer.model.set_attn_implementation("eager")


def resume_training(
    trainer: Any, title: str, *, position: int = 0, at_start: Callable[[], None] = lambda: None
) -> None:
    """Train from the last checkpoint to the end (`train_until_preempted`), with a progress bar of this title. Where
    there is no checkpoint, `at_start` is called. Every process calls this.
    """
    show_progress(trainer, title, position=position)
    _avoid_fused_attention(trainer)
    folder = Path(trainer.args.output_dir)
    checkpoint = from_main(trainer.accelerator.state, lambda: last_checkpoint(folder))
    if checkpoint is None:
        at_start()
    train_until_preempted(trainer, checkpoint)
