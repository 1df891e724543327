"""How fast a metric scores, against its plain loop and against the operations that cannot be avoided.

    python experiments/speed/metrics.py qrelscore --shared ../shared --contexts 64 --plain 3 --output qrelscore.json

One process, the same weights and the same rows for both sides; every value of the plain loop is compared with ours.
The file is written after each measurement, and the same command goes on where it was stopped.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from measurements import Measurements, NotOnThisMachine, count_cpu_seconds
from models import build, rows
from plain import PlainBARTScore, PlainQAScore, PlainQRelScore, PlainReader
from torch import nn

from rewards import BARTScore, QAScore, QRelScore, ReaderScore
from rewards.arithmetic import PackedLinear, can_pack
from rewards.frozen import FrozenModel

MODELS = {
    "qrelscore": ["bert-base", "gpt2"],
    "qascore": ["roberta-large"],
    "bartscore": ["bart-base"],
    "reader": ["distilbert-base"],
}
OURS = {"qrelscore": QRelScore, "qascore": QAScore, "bartscore": BARTScore, "reader": ReaderScore}
PLAIN = {"qrelscore": PlainQRelScore, "qascore": PlainQAScore, "bartscore": PlainBARTScore, "reader": PlainReader}


def blocks(tokens: int, width: int, layers: int, attended: float) -> float:
    """Operations of `layers` transformer blocks over `tokens`: projections, feed-forward part, scores and mixing."""
    return layers * (24 * width**2 * tokens + 4 * width * attended)


def shape(model: FrozenModel) -> tuple[int, int, int]:
    """Width, layers (of each stack) and entries of the vocabulary."""
    config = model.model.config
    return config.hidden_size, config.num_hidden_layers, config.vocab_size


def floor_qrelscore(metric: QRelScore, data: dict[str, list[str]]) -> float:
    """BERT over each pair; GPT-2 over each distinct context and each pair, with the head at every scored position."""
    total = 0.0
    (width, layers, _), (gpt2_width, gpt2_layers, vocabulary) = (
        shape(one) for one in (metric.encoder, metric.decoder)
    )
    pairs, _ = metric.local.pairs(data["questions"], data["contexts"])
    for question, context in pairs:
        length = len(question) + len(context) + 3
        total += blocks(length, width, layers, length**2)
    compared = metric.globally.comparisons(data["questions"], data["contexts"])
    sequences = [item.prompt for item in compared] + list({item.piece: item.base for item in compared}.values())
    for ids in sequences:
        scored = len(ids) - 1
        total += blocks(scored, gpt2_width, gpt2_layers, scored * (scored + 1) / 2)
        total += 2 * gpt2_width * vocabulary * scored
    return total


def floor_qascore(metric: QAScore, data: dict[str, list[str]]) -> float:
    """RoBERTa over the whole input once per answer token, the head at the masked position."""
    total = 0.0
    width, layers, vocabulary = shape(metric.model)
    columns = (metric.model.ids(data[name]) for name in ("questions", "contexts", "answers"))
    for question, context, answer in zip(*columns, strict=True):
        length = min(512, len(question) + len(context) + len(answer) + 2)
        once = blocks(length, width, layers, length**2) + 2 * width * (width + vocabulary)
        total += len(answer) * once
    return total


def floor_bartscore(metric: BARTScore, data: dict[str, list[str]]) -> float:
    """Encoder, and the decoder's keys and values, once per distinct context; the rest of the decoder for each pair."""
    width, layers, vocabulary = shape(metric.model)
    total = 0.0
    length = {text: len(ids) for text, ids in zip(data["contexts"], metric._delimited(data["contexts"]), strict=True)}
    for source in length.values():
        total += blocks(source, width, layers, source**2) + layers * 4 * width**2 * source
    for context, target in zip(data["contexts"], metric._delimited(data["questions"]), strict=True):
        tokens = len(target)
        attended = tokens * (tokens + 1) / 2 + tokens * length[context]
        total += blocks(tokens, width, layers, attended) + layers * 4 * width**2 * tokens
        total += 2 * width * vocabulary * tokens
    return total


def floor_reader(metric: ReaderScore, data: dict[str, list[str]]) -> float:
    """The encoder over each pair; for passages that one window holds."""
    width, layers, _ = shape(metric.model)
    columns = (metric.model.ids(data[name]) for name in ("questions", "contexts"))
    lengths = [
        min(metric.max_length, len(question) + len(context) + 3) for question, context in zip(*columns, strict=True)
    ]
    return sum(blocks(length, width, layers, length**2) for length in lengths)


FLOORS = {"qrelscore": floor_qrelscore, "qascore": floor_qascore, "bartscore": floor_bartscore, "reader": floor_reader}


def best(action, repetitions: int = 5) -> float:
    """Shortest of several runs, seconds."""
    action()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


WIDTH = 2048  # of the layer whose speed is the peak


@torch.inference_mode()
def peak(dtype: torch.dtype, packed: bool) -> float:
    """GFLOP/s of a linear layer of `WIDTH` x `WIDTH` on as many rows: the default routine, or oneDNN's packed weight.

    Raises:
        NotOnThisMachine: no packed product of that type (bfloat16 without AVX-512, or no oneDNN).
    """
    a, layer = torch.randn(WIDTH, WIDTH, dtype=dtype), nn.Linear(WIDTH, WIDTH, bias=False, dtype=dtype)
    if not packed:
        return 2 * WIDTH**3 / 1e9 / best(lambda: layer(a))
    if not can_pack(dtype):
        raise NotOnThisMachine(f"oneDNN has no packed product of {dtype} on this processor")
    found = PackedLinear(layer.weight, None)
    return 2 * WIDTH**3 / 1e9 / best(lambda: found(a))


def peaks(results: Measurements, dtype: torch.dtype, when: str = "") -> dict[str, float | None]:
    """Both peaks of a type; None for one that this machine does not have."""
    return {
        name: results.measure(f"{name} peak of {dtype}{when}", lambda packed=name == "packed": peak(dtype, packed))
        for name in ("default", "packed")
    }


def memory() -> dict[str, float]:
    """Memory of this process now and at its peak since the last call, MiB (Linux)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    Path("/proc/self/clear_refs").write_text("5")  # starts a new peak
    return {"now": int(status["VmRSS"].split()[0]) / 1024, "peak": int(status["VmHWM"].split()[0]) / 1024}


def timed(metric, data: dict[str, list[str]], needed: set[str]) -> tuple[float, list[float]]:
    """Seconds for all rows, and their scores; nothing is remembered from an earlier call."""
    metric.reset_cache()
    columns = {name: data[name] for name in needed}
    start = time.perf_counter()
    result = metric.score(data["questions"], **columns)
    return time.perf_counter() - start, result.scores


def measure(options: argparse.Namespace) -> None:
    shared = Path(options.shared)
    folders = [build(name, Path(options.models), shared / "golden" / "models") for name in MODELS[options.metric]]
    data = rows(shared / "data" / "squadshifts" / "new_wiki_v1.0.json.gz", options.contexts, options.candidates)
    count = len(data["questions"])
    dtype = getattr(torch, options.dtype)
    given = {name: value for name, value in vars(options).items() if name not in ("output", "shared", "models")}
    results = Measurements(options.output, {**given, "models": MODELS[options.metric], "rows": count})
    rates = [peaks(results, dtype, ", before")]
    before = memory()["now"]
    metric = OURS[options.metric](*folders, batch_size=options.batch_size, dtype=options.dtype)
    loaded = results.measure("memory, loaded", lambda: {name: mib - before for name, mib in memory().items()})
    warm = {name: values[: options.candidates] for name, values in data.items()}
    timed(metric, warm, set(metric.needs))
    runs = [
        results.measure(f"run {number}", lambda: timed(metric, data, set(metric.needs))[0])
        for number in range(1, options.repetitions + 1)
    ]
    scoring = results.measure("memory, scoring", lambda: memory()["peak"] - before)
    rates.append(peaks(results, dtype, ", after"))
    if options.plain:
        some = {name: values[: options.plain * options.candidates] for name, values in data.items()}
        results.measure("plain", lambda: compare(PLAIN[options.metric](*folders), metric, some))
    operations = results.measure("gflop_needed", lambda: FLOORS[options.metric](metric, data) / 1e9)
    seconds = statistics.median(runs)
    results.write(
        signature=metric.signature,
        seconds_per_row=seconds / count,
        runs=[run / count for run in runs],
        gflop_needed_per_row=operations / count,
        gflops=operations / seconds,
        **{f"share_of_{name}_peak": share(operations / seconds, [rate[name] for rate in rates]) for name in rates[0]},
        memory_mib_above_start={
            "weights_on_disk": sum(Path(folder, "model.safetensors").stat().st_size for folder in folders) / 2**20,
            "loaded": loaded["now"],
            "peak_while_loading": loaded["peak"],
            "peak_while_scoring": scoring,
            "batch_size": options.batch_size,
        },
    )


def share(rate: float, highest: list[float | None]) -> float | None:
    """The part of the highest rate; None where that does not exist."""
    known = [value for value in highest if value is not None]
    return rate / max(known) if known else None


def compare(plain, metric, data: dict[str, list[str]]) -> dict[str, float]:
    """Time the plain loop and ours on the same rows, whole contexts, and hold their values against each other."""
    triples = list(zip(data["questions"], data["contexts"], data["answers"], strict=True))
    plain(*triples[0])
    start = time.perf_counter()
    values = [plain(*triple) for triple in triples]
    slow = time.perf_counter() - start
    quick, scores = timed(metric, data, set(metric.needs))
    return {
        "rows": len(triples),
        "seconds_per_row": slow / len(triples),
        "ours_seconds_per_row": quick / len(triples),
        "times": slow / quick,
        "largest_difference": max(abs(a - b) for a, b in zip(values, scores, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("metric", choices=list(MODELS))
    parser.add_argument("--shared", default="../shared", help="folder with golden/models and data/squadshifts")
    parser.add_argument("--models", default="/tmp/rl-qg-speed", help="where models of real size are kept")
    parser.add_argument("--contexts", type=int, default=64)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--plain", type=int, default=0, help="contexts for the plain loop")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    if options.clock == "cpu":
        count_cpu_seconds()
    measure(options)


if __name__ == "__main__":
    main()
