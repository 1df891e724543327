"""How the processor's seconds grow: a step, the rewards, the commands over rows, and the return to a stopped run.

    python experiments/scaling/growth.py --squad SQUAD.json --folder FOLDER --output experiments/scaling/growth.json

One thread, and its own seconds (other work on the machine changes them little). Models have random weights and the
texts are words that are a token each, as in experiments/speed/step.py; commands run on rows made by candidates.py.
The same command goes on where it was stopped. `exponent` is the slope of log seconds over log size for all sizes, and
`at the end` that of the last two; 1 is linear.
Sizes of the model count as the operations that a step of them needs.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import candidates
import numpy as np
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    RobertaConfig,
    RobertaForMaskedLM,
    TrainerCallback,
)

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "speed"))

from measurements import Measurements, count_cpu_seconds  # noqa: E402
from step import SIZES, VOCABULARY, examples, generator, metric, needed, ours, tokenizer, trainer_of  # noqa: E402

from rewards import BARTScore, QAScore  # noqa: E402

SETTING = Namespace(
    size="small", batch=8, context_tokens=192, new_tokens=20, steps=2, samples=1, baseline="greedy", precision="no"
)
STEP = {  # key of SETTING and its values; the others stay
    "batch": (4, 8, 16, 32),
    "context_tokens": (64, 128, 256, 448),
    "samples": (1, 2, 4, 8),
}
SIZES |= {f"width {width}": (width, 4, 4) for width in (128, 256, 512)}
PASSAGES = (64, 128, 256, 448)
ROWS = {"generate": (100, 300, 1_000, 3_000), "augment": (1_000, 10_000, 100_000, 1_000_000)}
DONE = (100, 300, 1_000, 3_000)  # updates before a run is stopped


def seconds_of_step(key: str, value: Any, folder: Path) -> float:
    """Of a self-critical step whose reward does not know its passages."""
    given = Namespace(**{**vars(SETTING), key: value})
    words = tokenizer(VOCABULARY, "<s> $A </s>")
    return ours(given, generator(given.size), words, metric(given.size, folder, "float32"), folder)["first"]["step"]


def seconds_of_reward(name: str, length: int, folder: Path) -> float:
    """Of 32 questions about 16 passages of so many tokens."""
    rows = examples(16, length, SETTING.new_tokens)
    columns = {
        "questions": [text for row in rows for text in (row.question, f"{row.question} w7")],
        "contexts": [row.context for row in rows for _ in range(2)],
    }
    reward = rewards_of(name, folder)
    answers = {"answers": [row.answers[0].text for row in rows for _ in range(2)]} if name == "qascore" else {}
    times = []
    for _ in range(3):
        reward.reset_cache()
        begin = time.perf_counter()
        reward.score(**columns, **answers)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def rewards_of(name: str, folder: Path) -> Any:
    if name == "qrelscore":
        return metric(SETTING.size, folder, "float32")
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY}
    if name == "qascore":
        sizes |= {"hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 1024}
        model: Any = RobertaForMaskedLM(RobertaConfig(max_position_embeddings=514, pad_token_id=1, **sizes))
        words = tokenizer(VOCABULARY, "<s> $A </s>")
    else:
        layers = {f"{part}_{what}": 4 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
        wide = {f"{part}_ffn_dim": 1024 for part in ("encoder", "decoder")}
        model = BartForConditionalGeneration(BartConfig(d_model=256, **sizes, **layers, **wide))
        words = tokenizer(VOCABULARY, "<s> $A </s>")
    model.save_pretrained(folder / name)
    words.save_pretrained(folder / name)
    return (QAScore if name == "qascore" else BARTScore)(str(folder / name))


def seconds_of_command(name: str, squad: Path, folder: Path, rows: int, scratch: Path) -> float:
    """Of a command that reads so many rows."""
    data = folder / f"{name}-{rows}.jsonl"
    if not data.exists():
        candidates.write(data, candidates.sentences(squad), rows, for_readers=name == "generate")
    target = folder / f"{name}-{rows}-output.jsonl"
    if name == "augment":
        given = [f"augment.questions={data}", f"augment.gold={squad}", "filters=distinct", f"num_samples={rows // 10}"]
        given += ["+augment.filters.near_duplicates={}", f"augment.output={target}"]
    else:
        given = [
            f"data.train={data}",
            "model.path=packaged:english",
            "num_beams=1",
            "max_new_tokens=8",
            f"output={target}",
        ]
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_qg", name, *given],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, given
    return used.ru_utime + used.ru_stime


class FirstUpdate(TrainerCallback):
    """When the first update after a start was done."""

    def __init__(self) -> None:
        self.at = 0.0

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.at = self.at or time.perf_counter()


def seconds_to_resume(updates: int, folder: Path) -> float:
    """From the call to the first update of a run that was stopped after so many; one of cross-entropy, tiny."""
    given = Namespace(**{**vars(SETTING), "size": "tiny", "batch": 2, "context_tokens": 16, "new_tokens": 8})
    given.steps = updates // 4  # four epochs of the data before the stop
    words, reward = tokenizer(VOCABULARY, "<s> $A </s>"), metric("tiny", folder, "float32")

    def made(target: Path, most: int, *watchers: TrainerCallback) -> Any:
        keys = {"save_strategy": "steps", "save_steps": updates, "max_steps": most, "scst_epochs": 0, "ce_epochs": 6}
        return trainer_of(given, generator("tiny"), words, reward, target, watchers, **keys)

    made(folder / "stopped", updates).train()
    watcher = FirstUpdate()
    trainer = made(folder / "stopped", updates + 1, watcher)
    begin = time.perf_counter()
    trainer.train(resume_from_checkpoint=str(folder / "stopped" / f"checkpoint-{updates}"))
    return watcher.at - begin


def operations_of(size: str) -> float:
    """GFLOP of a step of models of that size."""
    return needed(Namespace(**{**vars(SETTING), "size": size}))["step"]


def _rounded(measure: Callable[[Any, Path], float], size: Any, folder: Path) -> float:
    return round(measure(size, folder), 4)


def exponents(sizes: list[float], seconds: list[float]) -> dict[str, float]:
    x, y = np.log(sizes), np.log(seconds)
    whole = float(np.polyfit(x, y, 1)[0])
    return {"exponent": round(whole, 2), "at the end": round(math.log(seconds[-1] / seconds[-2]) / (x[-1] - x[-2]), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("squad", "folder", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    count_cpu_seconds()
    given.folder.mkdir(parents=True, exist_ok=True)
    results, fits = Measurements(given.output, {"setting": vars(SETTING)}), {}

    def over(name: str, sizes: Sequence[Any], measure: Callable[[Any, Path], float]) -> None:
        for size in sizes:
            with tempfile.TemporaryDirectory() as scratch:
                found = results.measure(f"{name}: {size}", partial(_rounded, measure, size, Path(scratch)))
            print(f"{name}: {size}: {found}", flush=True)
        amounts = [operations_of(size) if size in SIZES else size for size in sizes]
        fits[name] = exponents(amounts, [results[f"{name}: {size}"] for size in sizes])

    for key, values in STEP.items():
        over(f"step over {key}", values, partial(seconds_of_step, key))
    over("step over sizes", [size for size in SIZES if size.startswith("width")], partial(seconds_of_step, "size"))
    for name in ("qrelscore", "qascore", "bartscore"):
        over(f"{name} over tokens", PASSAGES, partial(seconds_of_reward, name))
    over("resume over updates", DONE, seconds_to_resume)
    for name, rows in ROWS.items():
        over(f"{name} over rows", rows, partial(seconds_of_command, name, given.squad, given.folder))
    results.write(fits=fits)
    print(json.dumps(fits, indent=1))


if __name__ == "__main__":
    main()
