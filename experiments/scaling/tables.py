"""The tables of docs/explanation/scaling.md, and the cost model held against what was measured.

python experiments/scaling/tables.py            # all tables, as Markdown
python experiments/scaling/tables.py --check    # predicted over measured alone
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cost_model import (
    ARCHITECTURES,
    LOGIT,
    REWARDS,
    WAYS,
    Machine,
    Work,
    activations,
    beams_step,
    cross_entropy_step,
    encoding,
    gathers,
    memory,
    memory_of_contexts,
    on_host,
    rollout,
    scoring,
    self_critical_step,
    sent,
    update,
)

HERE = Path(__file__).resolve().parent
GENERATORS = ("bart-base", "bart-large", "t5-3b")
SIZES = (24, 40, 80, 141)
"""GB of a GPU."""
LONGEST = Work(context=512, question=64)
"""What must fit; the seconds are those of `Work()`, the usual lengths."""
MACHINE = Machine()
SQUAD = 87_599


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def operations() -> str:
    """TFLOP of one step of one GPU with 16 examples."""
    work, rows = Work(), []
    for name in GENERATORS:
        model = ARCHITECTURES[name]
        parts = [update(model, work, rows=1), rollout(model, work), update(model, work, rows=2)]
        rewards = [scoring(reward, work, questions=2) for reward in REWARDS]
        rows.append([name, *(f"{part / 1e12:.1f}" for part in [*parts, *rewards])])
    return table(["generator", "CE update", "rollout", "SCST update", *REWARDS], rows)


def memories() -> str:
    """GB per GPU in a self-critical step at the longest texts, and in brackets the smallest GPU of which they fill no
    more than nine tenths.
    """
    rows = []
    for name in GENERATORS:
        model, work = ARCHITECTURES[name], replace(LONGEST, rows=4 if name == "t5-3b" else 16)
        for way in WAYS if name == "t5-3b" else ("DDP", "ZeRO-2", "FSDP"):
            needs = [memory(model, way, gpus, work) for gpus in (1, 8, 64)]
            needs += [memory(model, way, 8, work, recompute=True), memory(model, way, 8, work, reward=None)]
            host = on_host(model, way, 8) / 1e9
            rows.append([name, way, *map(_fitting, needs), f"{host:.0f}" if host else ""])
    header = ["generator", "way", "1 GPU", "8 GPUs", "64 GPUs", "8, checkpointing", "8, CE alone", "host, 8"]
    return table(header, rows)


def _fitting(need: float) -> str:
    size = next((str(size) for size in SIZES if need < 0.9e9 * size), "none")
    return f"{need / 1e9:.0f} ({size})"


def communications() -> str:
    """GB that each of 8 GPUs sends in a self-critical step, and milliseconds of that on 8 and on 64."""
    rows = []
    for name in GENERATORS:
        model = ARCHITECTURES[name]
        for way in ("DDP", "ZeRO-2", "ZeRO-3", "FSDP"):
            times = [1e3 * MACHINE.communicate(sent(model, way, gpus, rollout=True), gpus) for gpus in (8, 64)]
            rows.append([name, way, f"{sent(model, way, 8, rollout=True) / 1e9:.2f}", *(f"{t:.0f}" for t in times)])
    return table(["generator", "way", "GB sent", "ms, 8 GPUs", "ms, 64 GPUs"], rows)


PLACED = {"bart-base": "DDP", "bart-large": "DDP", "t5-3b": "ZeRO-3"}


def steps() -> str:
    """Milliseconds of a self-critical step with QRelScore, and examples per second of all GPUs."""
    rows = []
    for name in GENERATORS:
        work = Work(rows=4 if name == "t5-3b" else 16)
        for gpus in (1, 8, 64):
            for dtype in ("float32", "bfloat16"):
                parts = self_critical_step(
                    MACHINE, ARCHITECTURES[name], PLACED[name], gpus, work, reward="QRelScore", reward_dtype=dtype
                )
                total = sum(parts.values())
                cells = [f"{1e3 * value:.0f}" for value in [*parts.values(), total]]
                rows.append([name, gpus, dtype, *cells, f"{gpus * work.rows / total:,.0f}"])
    header = ["generator", "GPUs", "reward in", "rollout", "reward", "update", "sending", "step", "examples / s"]
    return table(header, rows)


def hours() -> str:
    """GPU hours of each stage: training on SQuAD with 8 GPUs; a million questions for the rest."""
    million, machine, rows = 1e6, MACHINE, []
    for name in GENERATORS:
        model, work = ARCHITECTURES[name], Work(rows=4 if name == "t5-3b" else 16)
        step = self_critical_step(machine, model, PLACED[name], 8, work, reward="QRelScore", reward_dtype="bfloat16")
        ce = 4 * SQUAD / work.rows * cross_entropy_step(machine, model, PLACED[name], 8, work)
        scst = 2 * SQUAD / work.rows * sum(step.values())
        beams = million / 8 / 16 * beams_step(machine, model, Work(rows=16), beams=8)
        rows.append([name, *(f"{seconds / 3600:.2f}" for seconds in (ce, scst, beams))])
    train = table(["generator", "CE, 4 epochs", "SCST, 2 epochs", "a million candidates, 8 beams"], rows)
    scored = []
    for reward in REWARDS:
        seconds = [machine.compute(scoring(reward, Work(rows=1), questions=8), dtype) / 8 * million
                   for dtype in ("float32", "bfloat16")]  # fmt: skip
        scored.append([reward, *(f"{value / 3600:.2f}" for value in seconds)])
    reader = ARCHITECTURES["distilbert"]
    windows = 1.1 * million * 2 * 3 * encoding(reader, 242, 242)
    scored.append(["QA reader, 2 epochs of 3 seeds", f"{machine.compute(3 * windows, 'float32') / 3600:.2f}",
                   f"{machine.compute(3 * windows) / 3600:.2f}"])  # fmt: skip
    return train + "\n\n" + table(["a million questions", "float32", "bf16"], scored)


def rows() -> str:
    """What rows cost beside the GPU, from the measured bytes and rates."""
    results = json.loads((HERE / "results.json").read_text())
    found, windows = results["rows"], results["bounded reader"]["3000000"]
    read = found["read augmented.json"]
    small, large = (results["bounded augment"][count] for count in ("1000000", "10000000"))
    more = large["rows"] - small["rows"]
    held = round((large["peak_bytes"] - small["peak_bytes"]) / more)
    rate = round(more / (large["processor_seconds"] - small["processor_seconds"]))
    stored = round(windows["bytes_on_disk"] / windows["windows"])
    lines = [
        ("questions.jsonl on disk", found["bytes_per_candidate"], None),
        ("augment: numbers and hashes in memory", held, rate),
        ("augmented.json on disk", found["bytes_per_augmented_question"], None),
        ("augmented.json while it is read", read["peak_bytes"], read["rows_per_second"]),
        ("the examples of augmented.json in memory", read["held_bytes"], None),
        ("the reader's windows on disk", stored, found["reader's windows"]["rows_per_second"]),
    ]
    cells = []
    for what, size, rate in lines:
        times = [f"{_size(size * count)}{f', {_time(count / rate)}' if rate else ''}" for count in (1e6, 1e8)]
        cells.append([what, f"{size:,}", f"{rate:,}" if rate else "", *times])
    return table(["", "bytes / row", "rows / s", "1 million", "100 million"], cells)


def bounded() -> str:
    """Millions of rows through one process: GB at its peak, and seconds of the processor."""
    results = json.loads((HERE / "results.json").read_text())
    lines = [
        [f"augment, {run['rows']:,} candidates", f"{run['peak_bytes'] / 1e9:.2f}", "", f"{run['processor_seconds']:,}"]
        for run in results["bounded augment"].values()
    ]
    for run in results["bounded reader"].values():
        sizes = (f"{run[name] / 1e9:.2f}" for name in ("private_bytes", "mapped_bytes"))
        lines.append([f"a reader's input, {run['windows']:,} windows", *sizes, ""])
    return table(["", "GB of its own", "GB mapped, one copy a machine", "seconds"], lines)


def _size(size: float) -> str:
    return f"{size / 1e12:.1f} TB" if size >= 1e12 else f"{size / 1e9:.1f} GB"


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 7200 else f"{seconds / 60:.0f} min"


# --- Predicted over measured ---


def check() -> list[tuple[str, float, float]]:
    """What was measured, the prediction, and the measurement."""
    found = json.loads((HERE / "results.json").read_text())
    pairs = [
        (f"parameters, {name}", float(ARCHITECTURES[name].parameters), float(count))
        for name, count in found["parameters"].items()
    ]
    pairs += _operations(found["operations"])
    pairs += [_kept(run) for run in found["kept_for_backward"]]
    pairs += _processes(found)
    pairs += [
        ("checkpoint, bytes per parameter", 4.0, found["checkpoint"]["model"]),
        ("optimizer's state, bytes per parameter", 8.0, found["checkpoint"]["optimizer"]),
    ]
    return pairs + _seconds()


def _operations(found: dict[str, Any]) -> list[tuple[str, float, float]]:
    work = Work(rows=2)
    layer = replace(ARCHITECTURES["t5-3b"], encoder_layers=1, decoder_layers=1)
    base = ARCHITECTURES["bart-base"]
    predicted = {
        f"{name}, update of {rows}": update(model, work, rows=rows)
        for name, model in (("bart-base", base), ("t5-3b, 1 layer", layer))
        for rows in (1, 2)
    }
    predicted["bart-base, decoding"] = rollout(base, Work(rows=4, samples=0))
    predicted["QRelScore"] = scoring("QRelScore", work, questions=2)
    return [(f"operations, {name}", value, float(found[name]["flops"])) for name, value in predicted.items()]


def _kept(run: dict[str, Any]) -> tuple[str, float, float]:
    models = {**ARCHITECTURES, "t5-3b, 2 layers": replace(ARCHITECTURES["t5-3b"], encoder_layers=2, decoder_layers=2)}
    model, dtype = models[run["model"]], "bfloat16" if run["bf16"] else "float32"
    work, rows = Work(run["rows"], run["context"], run["question"]), run["per_context"]
    logits = work.rows * rows * work.question * model.vocabulary
    predicted = activations(model, work, rows=rows, dtype=dtype) - (LOGIT - 4) * logits
    shape = f"{work.rows} x {work.context} + {rows} x {work.question} tokens"
    return f"kept for backward, {run['model']}, {dtype}, {shape}", predicted, float(run["bytes"])


def _processes(found: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Bytes per parameter of two processes; a count of calls knows no ring, so all-reduce counts once."""
    small = replace(ARCHITECTURES["bart-base"], width=256, vocabulary=30_000, parameters=13_735_936)
    predicted = {
        "cpu2": ("DDP in float32", 4.0, 16.0),
        "zero1": ("ZeRO-1 in bf16", 2.0 + 2.0, 2 + 12 / 2),
        "zero2": ("ZeRO-2 in bf16", 2.0 + 2.0, 2 + 12 / 2),
        "zero3": ("ZeRO-3 in bf16, nothing kept gathered", 2 * gathers(small, live=0) + 2, 16 / 2),
    }
    pairs = []
    for key, (name, sending, holding) in predicted.items():
        measured = found[f"two_processes_{key}"]
        pairs.append((f"handed to collectives, bytes per parameter, {name}", sending, sum(measured["sent"].values())))
        pairs.append((f"held after an update, bytes per parameter, {name}", holding, measured["held_behind_update"]))
    return pairs


def _seconds() -> list[tuple[str, float, float]]:
    """Batch 16 of `experiments/speed` from the shares of the peak that batch 4 reached there."""
    folder = HERE.parent / "speed" / "results"
    four, sixteen = (json.loads((folder / f"step-{size}-float32.json").read_text()) for size in (4, 16))
    model, pairs = ARCHITECTURES["bart-base"], []
    for part in ("reward", "update"):
        rate = _needed(part, 4) / four["first"][part]
        pairs.append((f"seconds on this CPU, {part} of 16", _needed(part, 16) / rate, sixteen["first"][part]))
    rate = _needed("update", 4) / four["first"]["update"]  # what is left of batch 4's rollout is reading weights
    reading = four["first"]["rollout"] - rollout(model, Work(rows=4)) / rate
    pairs.append(
        ("seconds on this CPU, rollout of 16", rollout(model, Work()) / rate + reading, sixteen["first"]["rollout"])
    )
    return pairs


def _needed(part: str, rows: int) -> float:
    work = Work(rows=rows)
    if part == "reward":
        return scoring("QRelScore", work, questions=2)
    model = ARCHITECTURES["bart-base"]
    twice = memory_of_contexts(model, rows * work.context)  # these runs made keys and values for each row
    return update(model, work, rows=2) + 3 * twice


def summary() -> str:
    """Predicted over measured, by group."""
    groups: dict[str, list[float]] = {}
    for name, want, got in check():
        groups.setdefault(name.split(",")[0], []).append(want / got)
    lines = [[name, len(found), f"{min(found):.2f}", f"{max(found):.2f}"] for name, found in groups.items()]
    return table(["", "comparisons", "lowest ratio", "highest"], lines)


def checked() -> str:
    """Predicted over measured, one by one."""
    lines = [[name, f"{want:,.4g}", f"{got:,.4g}", f"{want / got:.2f}"] for name, want, got in check()]
    return table(["", "predicted", "measured", "ratio"], lines)


PARTS = (operations, memories, communications, steps, hours, rows, bounded, summary)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="predicted over measured, one by one")
    for part in (checked,) if parser.parse_args().check else PARTS:
        print(f"{' '.join((part.__doc__ or '').split())}\n\n{part()}\n")


if __name__ == "__main__":
    main()
