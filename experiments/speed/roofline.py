"""Where the time of a self-critical step goes, part by part, beside what the processor allows.

    python experiments/speed/roofline.py --batch 4 --precision bf16 --reward-dtype bfloat16 --output roofline.json

The product's own steps, in the sizes of `step.py`, run in PyTorch's profiler. Each operation is counted for the part
of the step that it starts in, and for its kind. A part's bound is the larger of two times: its operations that cannot
be avoided at the best product measured here, and the bytes that it has to read and write at the measured bandwidth.
Steps are of the first epoch, without the first ones, in which the allocator takes its memory from the system; their
times are of a run without the profiler.
"""

import argparse
import statistics
import tempfile
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch
from measurements import Measurements
from metrics import blocks, peaks
from step import SIZES, VOCABULARY, StepTimes, generator, metric, needed, tokenizer, trainer_of
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedModel, TrainerCallback

from rl_qg.runtime.processes import keep_freed_memory

KINDS = {  # the first whose beginning of a name fits
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "mkldnn::", "aten::mkldnn"),
    "attention": ("aten::_scaled_dot", "aten::scaled_dot"),
    "softmax, loss": ("aten::_softmax", "aten::softmax", "aten::_log_softmax", "aten::log_softmax", "aten::logsumexp"),
    "GELU, norm": ("aten::gelu", "aten::native_layer_norm", "aten::layer_norm"),
    "copies, casts": ("aten::copy_", "aten::_to_copy", "aten::to", "aten::cat", "aten::clone", "aten::index_select"),
    "optimiser": ("aten::_fused_adam", "aten::_foreach"),
}
FLOAT32, BFLOAT16 = 4, 2


def kind_of(operation: str) -> str:
    return next((kind for kind, names in KINDS.items() if operation.startswith(names)), "other operations")


class Marked(TrainerCallback):
    """Names the parts of each step for the profiler, and takes the time of each."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def mark(self, owner: Any, method: str, part: str) -> None:
        """Let a method of an object be a part; the parts inside it are not counted for it."""
        action = getattr(owner, method)

        def marked(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            start = time.perf_counter()
            with record_function(f"part: {part}"):
                result = action(*args, **kwargs)
            took = time.perf_counter() - start
            self.seconds[part] += took - self._inside.pop()
            if self._inside:
                self._inside[-1] += took
            return result

        setattr(owner, method, marked)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.mark(kwargs["optimizer"], "step", "optimiser")


def marked_steps(args: argparse.Namespace, folder: Path, *, profiled: bool) -> dict[str, Any]:
    """Seconds of each part of a step, and where they were profiled, those of each operation in it."""
    reward = metric(args.size, folder, args.reward_dtype)
    marks, times = Marked(), StepTimes()
    words = tokenizer(VOCABULARY, "<s> $A </s>")
    trainer = trainer_of(args, generator(args.size), words, reward, folder / "run", [times, marks], scst_epochs=1)
    times.trainer = trainer
    marks.mark(trainer, "roll_out", "rollout")
    marks.mark(reward.local, "scores", "reward, encoder")
    marks.mark(reward.globally, "scores", "reward, decoder")
    marks.mark(trainer, "gold_and_sample_logits", "forward")
    marks.mark(trainer, "cross_entropy", "forward")
    marks.mark(trainer, "policy_loss", "forward")
    marks.mark(trainer.accelerator, "backward", "backward")
    marks.mark(trainer.accelerator, "clip_grad_norm_", "clipping")
    profiler = profile(activities=[ProfilerActivity.CPU]) if profiled else None
    begin = _After(args.warm, marks, profiler)
    trainer.add_callback(begin)
    trainer.train()
    steps = len(times.rows) - args.warm
    found: dict[str, Any] = {part: seconds / steps for part, seconds in marks.seconds.items()}
    step = statistics.mean(row["step"] for row in times.rows[args.warm :])
    found |= {"other": step - sum(found.values()), "step": step}
    return {"seconds": found, "operations": by_operation(profiler, steps) if profiler else None}


class _After(TrainerCallback):
    """Forgets the parts of the first steps, and begins to profile after them."""

    def __init__(self, steps: int, marks: Marked, profiler: profile | None) -> None:
        self.steps, self.marks, self.profiler = steps, marks, profiler

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.steps:
            self.marks.seconds.clear()
            if self.profiler:
                self.profiler.start()
        elif state.global_step == state.max_steps and self.profiler:
            self.profiler.stop()


def by_operation(profiler: profile, steps: int) -> dict[str, dict[str, float]]:
    """Seconds of a step in each operation of each part."""
    events = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CPU]
    marks = sorted(
        (event.time_range.start, event.time_range.end, event.name.removeprefix("part: "))
        for event in events
        if event.name.startswith("part: ")
    )
    starts, found = [start for start, _, _ in marks], defaultdict[str, Counter[str]](Counter)
    for event in events:
        if event.name.startswith("part: "):
            continue
        begun = event.time_range.start
        # Parts follow each other, at most two inside each other: the last one that has begun and not ended.
        around = (marks[place] for place in range(bisect_right(starts, begun) - 1, -1, -1)[:8])
        part = next((name for _, end, name in around if begun <= end), "other")
        found[part][event.name] += event.self_cpu_time_total / 1e6 / steps
    return {part: dict(kinds.most_common()) for part, kinds in found.items()}


def by_kind(seconds: dict[str, float]) -> dict[str, float]:
    found = Counter[str]()
    for operation, taken in seconds.items():
        found[kind_of(operation)] += taken
    return dict(found.most_common())


def needed_operations(args: argparse.Namespace) -> dict[str, float]:
    """Operations that each part cannot avoid."""
    width, layers, _ = SIZES[args.size]
    pairs, length = 2 * args.batch, args.context_tokens + args.new_tokens + 3
    counted = {part: 1e9 * gflop for part, gflop in needed(args).items()}
    encoder = blocks(pairs * length, width, 2 * layers, pairs * length**2)
    return {
        "rollout": counted["rollout"],
        "reward, encoder": encoder,
        "reward, decoder": counted["reward"] - encoder,
        "forward": counted["update"] / 3,
        "backward": counted["update"] * 2 / 3,
    }


def needed_bytes(args: argparse.Namespace, model: PreTrainedModel, models: tuple[int, int]) -> dict[str, float]:
    """Bytes that each part has to read and write: its weights, once for each time that they are needed; activations
    are taken to stay in the caches. `models` are the weights of the metric's encoder and decoder.
    """
    width, _, _ = SIZES[args.size]
    whole = sum(weight.numel() for weight in model.parameters())
    encoder = sum(weight.numel() for weight in model.get_encoder().parameters()) - VOCABULARY * width
    of_weight = BFLOAT16 if args.precision == "bf16" else FLOAT32
    of_reward = BFLOAT16 if args.reward_dtype == "bfloat16" else FLOAT32
    return {
        "rollout": of_weight * (encoder + args.new_tokens * (whole - encoder)),  # the decoder's at every token
        "reward, encoder": of_reward * models[0],
        "reward, decoder": of_reward * models[1],
        "forward": of_weight * whole,
        "backward": of_weight * whole + FLOAT32 * whole,  # reads weights, writes gradients
        "clipping": 3 * FLOAT32 * whole,  # the norm reads gradients, the scale reads and writes them
        "optimiser": 7 * FLOAT32 * whole,  # reads weight, gradient and two moments, and writes all but the gradient
    }


def bandwidth(size: int = 2**28) -> float:
    """Bytes a second that a product in place reads and writes, the best of ten. (A copy reads what it writes over.)"""
    numbers = torch.ones(size)

    def seconds() -> float:
        start = time.perf_counter()
        numbers.mul_(1.0)
        return time.perf_counter() - start

    return 2 * FLOAT32 * size / min(seconds() for _ in range(10))


def bounds(
    args: argparse.Namespace,
    measured: dict[str, float],
    rates: dict[str, dict[str, float | None]],
    bytes_a_second: float,
    models: tuple[int, int],
) -> dict[str, dict[str, Any]]:
    """Each part's seconds beside its bound; that of a step is the sum of those of its parts."""
    table, work, read = {}, needed_operations(args), needed_bytes(args, generator(args.size), models)
    for part, seconds in measured.items():
        half = args.reward_dtype == "bfloat16" if part.startswith("reward") else args.precision == "bf16"
        best = max(filter(None, rates[str(torch.bfloat16 if half else torch.float32)].values()))
        times = {"products": work.get(part, 0.0) / best / 1e9, "memory": read.get(part, 0.0) / bytes_a_second}
        by = max(times, key=times.__getitem__)
        table[part] = {"seconds": seconds, "bound": times[by], "by": by}
        table[part] |= {"gflop": work.get(part, 0.0) / 1e9, "gigabytes": read.get(part, 0.0) / 1e9}
    table["step"]["bound"] = sum(row["bound"] for row in table.values())
    for row in table.values():
        row["share_of_bound"] = row["bound"] / row["seconds"]
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context-tokens", type=int, default=192)
    parser.add_argument("--new-tokens", type=int, default=20)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warm", type=int, default=4, help="steps before those, not counted")
    parser.add_argument("--precision", choices=("no", "bf16"), default="no")
    parser.add_argument("--reward-dtype", choices=("float32", "bfloat16"), default="float32")
    args = parser.parse_args()
    args.samples, args.baseline = 1, "greedy"
    given = {name: value for name, value in vars(args).items() if name != "output"}
    args.steps += args.warm - 1  # one more is taken
    keep_freed_memory()  # as the commands do
    results = Measurements(args.output, given)
    with tempfile.TemporaryDirectory() as folder:
        for name, profiled in (("plain", False), ("profiled", True)):
            results.measure(name, lambda profiled=profiled: marked_steps(args, Path(folder), profiled=profiled))
        speed = results.measure("bytes a second", bandwidth)  # later: it leaves memory with holes
        rates = {str(dtype): peaks(results, dtype) for dtype in (torch.float32, torch.bfloat16)}
        reward = metric(args.size, Path(folder), "float32")
        sizes = tuple(sum(w.numel() for w in one.model.parameters()) for one in (reward.encoder, reward.decoder))
    table = bounds(args, results["plain"]["seconds"], rates, speed, sizes)
    kinds = {part: by_kind(seconds) for part, seconds in results["profiled"]["operations"].items()}
    results.write(peak_gflop_per_s=rates, parts=table, kinds=kinds)
    for part, row in table.items():
        print(f"{part:16} {row['seconds']:.3f} s, bound {row['bound']:.3f} ({row['by']}), {row['share_of_bound']:.0%}")


if __name__ == "__main__":
    main()
