"""Does the GPU compute what the CPU computes: a step, a run made twice, a run resumed, and scores; and where it waits.

Everything is float32 without TF32. `step | …` gives the largest relative differences from the CPU, of the loss and of
the gradient of each weight, for the questions that the CPU has sampled: at the slightest difference of a probability
another token may be drawn, which `same_tokens` counts. `waits` are the synchronisations of one whole step of the
trainer, by line.
"""

import argparse
import inspect
import math
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measurements import NotOnThisMachine
from metrics import MODELS, OURS
from part import DEVICE, IS_GPU, Part, arguments
from random_models import Generator, Rows, corpus_rows, generators, made_up_rows, saved, settings
from step import metric, trainer_of
from torch import Tensor
from transformers import TrainerCallback

from rewards import QRelScore
from rl_qg.generation.decoding import Decoded, Rollout
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.trainer_base import last_checkpoint

ROOT = Path(__file__).parents[2]
OURS_IN = tuple(str(ROOT / package) for package in ("rl_qg", "rewards"))
CPU = torch.device("cpu")
BATCH = {"full": 8, "tiny": 2}
TOKENS = {"full": (192, 20), "tiny": (16, 4)}
STEPS = 4  # of a short run, which is stopped after half of them
MINIATURES = {"qrelscore": ("bert", "gpt2"), "qascore": ("roberta",), "bartscore": ("bart",), "reader": ("reader",)}


# --- one step


def one_step(
    args: argparse.Namespace,
    generator: Generator,
    reward: QRelScore,
    device: torch.device,
    known: Rollout | None = None,
) -> tuple[Rollout, float, dict[str, Tensor]]:
    """The rollout of a step on the device, its loss, and its gradients; of the `known` rollout, where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(args, generator.build(), generator.words(), reward.to(device), Path(folder))
        trainer.state.max_steps = STEPS
        inputs = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in next(iter(trainer.get_train_dataloader())).items()
        }
        model = trainer.model.to(device)
        rollout = trainer.roll_out(inputs, samples=1, greedy=True) if known is None else moved(known, device)
        trainer.roll_out = lambda *_, **__: rollout  # type: ignore[method-assign]
        loss = trainer.compute_loss(model, inputs)
        loss.backward()
    gradients = {name: one.grad.cpu() for name, one in model.named_parameters() if one.grad is not None}
    return moved(rollout, CPU), loss.item(), gradients


def moved(rollout: Rollout, device: torch.device) -> Rollout:
    def there(decoded: Decoded | None) -> Decoded | None:
        return decoded and replace(decoded, tokens=decoded.tokens.to(device), mask=decoded.mask.to(device))

    return Rollout(there(rollout.greedy), there(rollout.samples))


def compare_step(size: str, generator: Generator, reward: QRelScore) -> dict[str, Any]:
    args = settings(BATCH[size], TOKENS[size])
    rollout, loss, exact = one_step(args, generator, reward, CPU)
    own, _, _ = one_step(args, generator, reward, DEVICE)
    _, other_loss, other = one_step(args, generator, reward, DEVICE, rollout)
    differences = {name: ((other[name] - one).norm() / one.norm()).item() for name, one in exact.items() if one.any()}
    worst = max(differences, key=differences.__getitem__)
    total = math.hypot(*((other[name] - one).norm().item() for name, one in exact.items()))
    return {
        "loss": [loss, other_loss],
        "loss_difference": abs(other_loss - loss) / abs(loss),
        "gradient_difference": total / math.hypot(*(one.norm().item() for one in exact.values())),
        "largest_gradient_difference": differences[worst],
        "of": worst,
        "same_tokens": {
            kind: same_share(getattr(rollout, kind).tokens, getattr(own, kind).tokens)
            for kind in ("greedy", "samples")
        },
    }


def same_share(one: Tensor, other: Tensor) -> float:
    """Of the tokens at the same place, up to the shorter length."""
    length = min(one.shape[1], other.shape[1])
    return (one[:, :length] == other[:, :length]).float().mean().item()


# --- where a step waits


class Waits(TrainerCallback):
    """Counts where the host waits for the GPU from the begin of the last step but one to the begin of the last: by
    the line of ours that was running.
    """

    def __init__(self) -> None:
        self.whole_step: Counter[str] = Counter()
        self._of_step: Counter[str] = Counter()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.whole_step, self._of_step = self._of_step, Counter()

    def note(self, message: Warning | str, *_: Any, **__: Any) -> None:
        if "synchronizing" in str(message):
            self._of_step[place()] += 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block torch warns of each wait."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = self.note
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode("default")


def place() -> str:
    """The line of ours that is running, else that of a library."""
    lines = [(frame.filename, frame.lineno) for frame in inspect.stack(context=0)[2:]]  # without those of `Waits`
    known = [(file, line) for file, line in lines if "warnings.py" not in file]
    file, line = next((one for one in known if one[0].startswith(OURS_IN)), known[0])
    short = file.removeprefix(f"{ROOT}/").partition("site-packages/")
    return f"{short[2] or short[0]}:{line}"


def count_waits(size: str, generator: Generator, reward: QRelScore) -> dict[str, Any]:
    if not IS_GPU:
        raise NotOnThisMachine("there is no GPU to wait for")
    waits = Waits()
    args = settings(BATCH[size], TOKENS[size])
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(args, generator.build(), generator.words(), reward.to(DEVICE), Path(folder), [waits])
        with waits.watching():
            trainer.train()
    return {"total": waits.whole_step.total(), "by_line": dict(waits.whole_step.most_common())}


# --- a run made twice, and a run resumed


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop |= state.global_step == self.step


class ShortRuns:
    """Runs of a few steps with dropout, and the weights that they end with."""

    def __init__(self, size: str, generator: Generator, reward: QRelScore) -> None:
        self.args = settings(BATCH[size], TOKENS[size], steps=STEPS - 1)
        self.generator, self.reward = generator, reward

    def weights(self, folder: Path, *callbacks: TrainerCallback, resume: bool = False) -> dict[str, Tensor]:
        self.reward.reset_cache()
        trainer = trainer_of(
            self.args,
            self.generator.build(dropout=0.1),
            self.generator.words(),
            self.reward.to(DEVICE),
            folder,
            callbacks,
            scst_epochs=1,
            scst_learning_rate=1e-4,
            save_strategy="steps",
            save_steps=STEPS // 2,
            save_total_limit=1,
        )
        checkpoint = last_checkpoint(folder)
        assert resume == (checkpoint is not None)
        trainer.train(resume_from_checkpoint=checkpoint)
        return {name: one.cpu() for name, one in trainer.model.state_dict().items()}

    def twice(self, deterministic: bool) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder, deterministically() if deterministic else nullcontext():
            return difference(*(self.weights(Path(folder, name)) for name in ("first", "second")))

    def resumed(self, deterministic: bool) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder, deterministically() if deterministic else nullcontext():
            whole = self.weights(Path(folder, "whole"))
            self.weights(Path(folder, "cut"), StopAt(STEPS // 2))
            return difference(whole, self.weights(Path(folder, "cut"), resume=True))


@contextmanager
def deterministically() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, Any]:
    differing = [name for name in one if not torch.equal(one[name], other[name])]
    largest = max(((one[name] - other[name]).abs().max().item() for name in differing), default=0.0)
    return {"equal": not differing, "differing": len(differing), "of": len(one), "largest_difference": largest}


# --- scores


def compare_scores(name: str, folders: list[str], rows: Rows) -> dict[str, float]:
    """Largest difference of a score between CPU and GPU, and how much scores differ from each other."""
    reward = OURS[name](*folders, device=CPU)
    needed = {column: rows[column] for column in ("questions", *reward.needs)}
    exact = reward.score(**needed).scores
    reward.reset_cache()
    other = reward.to(DEVICE).score(**needed).scores
    return {
        "rows": len(exact),
        "largest_difference": max(abs(a - b) for a, b in zip(exact, other, strict=True)),
        "lowest": min(exact),
        "highest": max(exact),
    }


def measure_scores(part: Part, size: str, models: Path) -> None:
    few = (2, 4) if size == "full" else (1, 2)  # contexts, candidates
    for name, kinds in MINIATURES.items():
        given = name, [str(SHIPPED / kind) for kind in kinds], corpus_rows(*few)
        part.measure(f"scores | miniatures | {name}", partial(compare_scores, *given))
    rows = made_up_rows(*few, size)
    for name, kinds in MODELS.items():
        part.measure(
            f"scores | published sizes | {name}",
            lambda name=name, kinds=kinds: compare_scores(name, [saved(kind, models, size) for kind in kinds], rows),
        )


def main() -> None:
    options = arguments(__doc__)
    size = options.size
    part = Part(options, {"batch": BATCH[size], "tokens": TOKENS[size]})
    sizes = {"tiny": generators("tiny")["bart-base"]}
    if size == "full":
        sizes["bart-base"] = generators("full")["bart-base"]
    with tempfile.TemporaryDirectory() as folder:
        reward = metric("tiny", Path(folder), "float32")
        for name, generator in sizes.items():
            part.measure(f"step | {name}", partial(compare_step, size, generator, reward))
        generator = [*sizes.values()][-1]
        part.measure("waits", partial(count_waits, size, generator, reward))
        runs = ShortRuns(size, generator, reward)
        for way in ("twice", "resumed"):
            part.measure(f"run {way}", partial(getattr(runs, way), False))
            part.measure(f"run {way}, deterministic algorithms", partial(getattr(runs, way), True))
    measure_scores(part, size, options.models)
    part.finish()


if __name__ == "__main__":
    main()
