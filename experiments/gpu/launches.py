"""The product's own commands on one device: whole weights, LoRA, FSDP2 and ZeRO, and a step of LoRA at BART-base.

`launch WAY` is `preset=smoke`, trained by the command that the documentation gives, with one process. The losses of
its log stand beside those of the plain command: at one process all but LoRA and bf16 are the same mathematics, up to
tokens that are drawn differently in the second stage.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from measurements import NotOnThisMachine
from part import IS_GPU, Part, arguments, memory_watched
from random_models import Generator, generators, settings
from step import metric, ours

from rl_qg.generation.loading import add_lora
from rl_qg.generation.prompts import add_highlight
from rl_qg.settings import PeftSettings

ROOT = Path(__file__).parents[2]
LIMIT = 150  # seconds of one command
PLAIN = ("-m", "rl_qg", "train")
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # the begin of the command, and settings
    "plain": (PLAIN, ()),
    "plain, bf16": (PLAIN, ("training.precision=bf16",)),
    "LoRA": (PLAIN, ("peft=lora",)),
    "FSDP2": (("fsdp",), ()),
    "FSDP2, bf16": (("fsdp",), ("training.precision=bf16",)),
    "ZeRO-2": (("zero2",), ()),
    "ZeRO-3": (("zero3",), ()),
}
BATCH = {"full": 16, "tiny": 2}
TOKENS = {"full": (192, 20), "tiny": (16, 4)}
METRIC = {"full": "base", "tiny": "tiny"}


def command(way: str, folder: Path, miniatures: Path) -> list[str]:
    """The command of a way; of one that `accelerate launch` starts, with its file in configs/accelerate."""
    begin, options = WAYS[way]
    if begin != PLAIN:
        launch = ("-m", "accelerate.commands.launch", "--num_processes", "1", "--main_process_port", "0")
        begin = (*launch, "--config_file", f"configs/accelerate/{begin[0]}.yaml", "rl_qg/train.py")
    return [*begin, *command_options("smoke", folder, miniatures), *options]


def command_options(preset: str, folder: Path, miniatures: Path) -> list[str]:
    """Settings of a training on this device, with its folder, and that of its small models, which are made once."""
    where = [f"output_dir={folder}", f"miniature.cache_dir={miniatures}", "training.report_to=none"]
    return [f"preset={preset}", f"training.use_cpu={str(not IS_GPU).lower()}", *where]


def run(words: Sequence[str], limit: float = LIMIT) -> float:
    """Run a Python command from the repository, so many seconds at most; return those it took."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started
        said.seek(0)
        lines = [line.strip() for line in said if line.strip()]
    if code:
        print(*lines[-40:], sep="\n", file=sys.stderr)
        raise RuntimeError(f"exit code {code}: {lines[-1] if lines else ''}")
    return time.perf_counter() - start


def launch(way: str, miniatures: Path) -> dict[str, Any]:
    """Seconds of the command, start and imports included, and the losses of its log, by stage."""
    if way.startswith("ZeRO"):
        if not IS_GPU:
            raise NotOnThisMachine("there is no GPU")
        if importlib.util.find_spec("deepspeed") is None:
            raise NotOnThisMachine("deepspeed is not installed")
    with tempfile.TemporaryDirectory() as folder:
        seconds = run(command(way, Path(folder), miniatures))
        lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    logged = [line for line in map(json.loads, lines) if "loss" in line]
    losses = {stage: [line["loss"] for line in logged if line["stage"] == stage] for stage in ("ce", "scst")}
    return {"seconds": seconds, "losses": losses}


def lora_step(size: str, generator: Generator) -> dict[str, Any]:
    """Seconds of a step, and the memory, with whole weights and with adapters."""
    args, found = settings(BATCH[size], TOKENS[size]), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        reward = metric(METRIC[size], Path(folder), "float32")
        for way in ("whole weights", "LoRA"):
            model, words = generator.build(), generator.words()
            if way == "LoRA":
                add_highlight(words, model)
                model = add_lora(model, PeftSettings(method="lora"))
            of_way: dict[str, Any] = {}
            with memory_watched(of_way):
                of_way |= ours(args, model, words, reward, Path(folder))
            found[way] = of_way
    return found


def main() -> None:
    options = arguments(__doc__)
    size = options.size
    part = Part(options, {"batch": BATCH[size], "tokens": TOKENS[size]})
    part.measure("LoRA step", partial(lora_step, size, generators(size)["bart-base"]))
    for way in WAYS:
        if size == "full" or "bf16" not in way:
            part.measure(f"launch {way}", partial(launch, way, options.models / "miniatures"))
    part.finish()


if __name__ == "__main__":
    main()
