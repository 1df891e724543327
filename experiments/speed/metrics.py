"""How fast a metric scores, against its plain loop and against the operations that cannot be avoided.

    python experiments/speed/metrics.py qrelscore --shared ../shared --contexts 64 --plain 3

One process, the same weights and the same rows for both sides; every value of the plain loop is compared with ours.
Prints one JSON object.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import torch
from models import build, rows
from plain import PlainBARTScore, PlainQAScore, PlainQRelScore

from rewards import BARTScore, QAScore, QRelScore
from rewards.packed import PackedLinear

MODELS = {"qrelscore": ["bert-base", "gpt2"], "qascore": ["roberta-large"], "bartscore": ["bart-base"]}
OURS = {"qrelscore": QRelScore, "qascore": QAScore, "bartscore": BARTScore}
PLAIN = {"qrelscore": PlainQRelScore, "qascore": PlainQAScore, "bartscore": PlainBARTScore}
VOCABULARY = {"gpt2": 50257, "roberta-large": 50265, "bart-base": 50265}


def blocks(tokens: int, width: int, layers: int, attended: float) -> float:
    """Operations of `layers` transformer blocks over `tokens`: projections, feed-forward part, scores and mixing."""
    return layers * (24 * width**2 * tokens + 4 * width * attended)


def floor_qrelscore(metric: QRelScore, data: dict[str, list[str]]) -> float:
    """BERT over each pair; GPT-2 over each distinct context and each pair, with the head at every scored position."""
    total = 0.0
    pairs, _ = metric.local.pairs(data["questions"], data["contexts"])
    for question, context in pairs:
        length = len(question) + len(context) + 3
        total += blocks(length, 768, 12, length**2)
    compared = metric.globally.comparisons(data["questions"], data["contexts"])
    sequences = [item.prompt for item in compared] + list({item.piece: item.base for item in compared}.values())
    for ids in sequences:
        scored = len(ids) - 1
        total += blocks(scored, 768, 12, scored * (scored + 1) / 2) + 2 * 768 * VOCABULARY["gpt2"] * scored
    return total


def floor_qascore(metric: QAScore, data: dict[str, list[str]]) -> float:
    """RoBERTa over the whole input once per answer token, the head at the masked position."""
    total = 0.0
    columns = (metric.model.ids(data[name]) for name in ("questions", "contexts", "answers"))
    for question, context, answer in zip(*columns, strict=True):
        length = min(512, len(question) + len(context) + len(answer) + 2)
        once = blocks(length, 1024, 24, length**2) + 2 * 1024 * (1024 + VOCABULARY["roberta-large"])
        total += len(answer) * once
    return total


def floor_bartscore(metric: BARTScore, data: dict[str, list[str]]) -> float:
    """Encoder, and the decoder's keys and values, once per distinct context; the rest of the decoder for each pair."""
    width, layers, total = 768, 6, 0.0
    length = {text: len(ids) for text, ids in zip(data["contexts"], metric._delimited(data["contexts"]), strict=True)}
    for source in length.values():
        total += blocks(source, width, layers, source**2) + layers * 4 * width**2 * source
    for context, target in zip(data["contexts"], metric._delimited(data["questions"]), strict=True):
        tokens = len(target)
        attended = tokens * (tokens + 1) / 2 + tokens * length[context]
        total += blocks(tokens, width, layers, attended) + layers * 4 * width**2 * tokens
        total += 2 * width * VOCABULARY["bart-base"] * tokens
    return total


FLOORS = {"qrelscore": floor_qrelscore, "qascore": floor_qascore, "bartscore": floor_bartscore}


def best(action, repetitions: int = 5) -> float:
    """Shortest of several runs, seconds."""
    action()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


@torch.inference_mode()
def peak(dtype: torch.dtype) -> dict[str, float]:
    """GFLOP/s of a product of 2048 x 2048 matrices: the default routine, and oneDNN with a packed weight."""
    a, b = torch.randn(2048, 2048, dtype=dtype), torch.randn(2048, 2048, dtype=dtype)
    work = 2 * 2048**3 / 1e9
    packed = PackedLinear(b, None)
    return {"default": work / best(lambda: a @ b), "packed": work / best(lambda: packed(a))}


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


def measure(options: argparse.Namespace) -> dict[str, object]:
    shared = Path(options.shared)
    folders = [build(name, Path(options.models), shared / "golden" / "models") for name in MODELS[options.metric]]
    data = rows(shared / "data" / "squadshifts" / "new_wiki_v1.0.json.gz", options.contexts, options.candidates)
    count = len(data["questions"])
    dtype = getattr(torch, options.dtype)
    peaks = [peak(dtype)]
    before = memory()["now"]
    metric = OURS[options.metric](*folders, batch_size=options.batch_size, dtype=options.dtype)
    loaded = memory()
    warm = {name: values[: options.candidates] for name, values in data.items()}
    timed(metric, warm, set(metric.needs))
    runs = [timed(metric, data, set(metric.needs)) for _ in range(options.repetitions)]
    scoring = memory()
    seconds = statistics.median(run[0] for run in runs)
    operations = FLOORS[options.metric](metric, data)
    peaks.append(peak(dtype))
    parameters = sum(Path(folder, "model.safetensors").stat().st_size for folder in folders) / 2**20
    found: dict[str, object] = {
        "metric": options.metric,
        "models": MODELS[options.metric],
        "signature": metric.signature,
        "dtype": options.dtype,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "rows": count,
        "contexts": options.contexts,
        "seconds_per_row": seconds / count,
        "runs": [run[0] / count for run in runs],
        "gflop_needed_per_row": operations / count / 1e9,
        "gflops": operations / seconds / 1e9,
        "peaks_gflops": peaks,
        "share_of_default_peak": operations / seconds / 1e9 / max(p["default"] for p in peaks),
        "share_of_packed_peak": operations / seconds / 1e9 / max(p["packed"] for p in peaks),
        "memory_mib_above_start": {
            "weights_on_disk": parameters,
            "loaded": loaded["now"] - before,
            "peak_while_loading": loaded["peak"] - before,
            "peak_while_scoring": scoring["peak"] - before,
            "batch_size": options.batch_size,
        },
    }
    if options.plain:
        some = {name: values[: options.plain * options.candidates] for name, values in data.items()}
        found["plain"] = compare(PLAIN[options.metric](*folders), metric, some)
    return found


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
    options = parser.parse_args()
    print(json.dumps(measure(options), indent=2))


if __name__ == "__main__":
    main()
