"""The ablations of the QRelScore paper (Table 3, figure 12) against human ratings; what is computed is kept.

    python experiments/qrelscore-ablation/run.py --human DIR --encoder MINILM --work DIR --output DIR [--rows N]

`--human` is the folder of experiments/meta-evaluation/prepare.py. Under `--work` is one file of values for each data
set and switch, and a killed run goes on. `--output` gets results.json and tables.md. Without `--decoder` the global
part has the miniature that ships with the package, which has read the embedded corpus alone.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ablated import AblatedQRelScore, power_mean
from tqdm import tqdm

from rl_qg.judging.judgements import Judgement, read_judgements
from rl_qg.stats.correlation import COEFFICIENTS, correlations
from rl_qg.stats.intervals import Floats, PassageDraws, difference, estimate

MINIATURE = Path(__file__).parents[2] / "rl_qg" / "miniatures" / "pretrained" / "gpt2"
CRITERIA = {
    "qgeval": ("fluency", "answerability", "answer_consistency"),  # of 1,500 questions 35 are below 3 in relevance
    "lmqg_human": ("grammaticality", "understandability", "correctness"),
}
READINGS = {"hard": "official", "raw": "paper", "weighted": "paper"}
"""The weights of context tokens, and the variant whose other options go with each."""
AGGREGATIONS = {"max": "M1", "mean": "M6", "mover": "M7"}
LAYERS = {"first": "M2", "middle": "M3", "last": "M4", "specific": "M5"}
POWERS = (float("-inf"), -3, -1, 0, 1, 2, 3, 5, float("inf"))
AT_ONCE = 100
"""Questions between two steps of the progress bar."""


def kept(path: Path, compute: Callable[[], Floats]) -> Floats:
    """Values of an earlier run, or new ones, which are kept."""
    if not path.exists():
        values = compute()
        partial = path.with_suffix(".partial.npy")
        np.save(partial, values)
        partial.replace(path)
    return np.asarray(np.load(path))


def in_blocks(name: str, rows: list[Judgement], score: Callable[[list[str], list[str]], Any]) -> Floats:
    """Values of all rows, block by block."""
    values = []
    with torch.inference_mode():
        for start in tqdm(range(0, len(rows), AT_ONCE), desc=name, file=sys.stderr):
            block = [judgement.row for judgement in rows[start : start + AT_ONCE]]
            values.append(np.asarray(score([row.question for row in block], [row.context for row in block])))
    return np.concatenate(values)


def local_values(
    given: argparse.Namespace, data: str, rows: list[Judgement], reading: str
) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, Floats], str]:
    """M1 to M7 under one reading of equation 2; M1 with other exponents; its single layers; its signature."""
    models = (given.encoder, given.decoder, READINGS[reading])
    names, layers, signature = {}, {}, ""
    for aggregation, name in AGGREGATIONS.items():
        if (reading, aggregation) == ("hard", "mean"):  # one token has weight 1: the mean is the maximum
            layers[name], names[name] = layers["M1"], names["M1"]
            continue
        metric = AblatedQRelScore(*models, attention=reading, aggregation=aggregation, device="cpu")
        signature = signature or metric.signature
        path = given.work / f"{data}-{len(rows)}-{reading}-{aggregation}.npy"
        layers[name] = kept(path, lambda: in_blocks(path.stem, rows, metric.local.scores_by_layer))  # noqa: B023
        names[name] = layers[name].mean(1)
    whole = layers["M1"]
    for chosen, name in LAYERS.items():
        numbers = AblatedQRelScore(*models, attention=reading, layers=chosen, device="cpu").local.layers
        names[name] = whole[:, [number - 1 for number in numbers]].mean(1)
    powers = {f"{power:g}": power_mean(torch.from_numpy(whole), power).numpy() for power in POWERS}
    return names, powers, {str(layer + 1): whole[:, layer] for layer in range(whole.shape[1])}, signature


def global_values(given: argparse.Namespace, data: str, rows: list[Judgement], variant: str) -> dict[str, Floats]:
    """M8 and M9."""
    values = {}
    for gain, name in (("relative", "M8"), ("absolute", "M9")):
        metric = AblatedQRelScore(given.encoder, given.decoder, variant, gain=gain, device="cpu")
        path = given.work / f"{data}-{len(rows)}-{variant}-{gain}.npy"
        values[name] = kept(path, lambda: in_blocks(path.stem, rows, metric.globally.scores))  # noqa: B023
    return values


def agreement(names: dict[str, Floats], ratings: Floats, draws: PassageDraws, against: str) -> dict[str, Any]:
    """r, rho and tau-b of each variant, and the difference of tau-b from that of `against`, with 95 % intervals."""
    rows = np.arange(len(ratings))
    found = {name: correlations(values, ratings, draws, rows) for name, values in names.items()}

    def statistic(values: Floats) -> dict[str, Any]:
        return estimate(values, len(ratings), passages=draws.passages).to_dict()

    return {
        name: {
            **{coefficient: statistic(each[coefficient]) for coefficient in COEFFICIENTS},
            "difference": statistic(difference(each["kendall"], found[against]["kendall"])),
            "mean score": float(np.mean(names[name])),
            "share of 0": float(np.mean(names[name] == 0)),
        }
        for name, each in found.items()
    }


def ablation(given: argparse.Namespace, data: str) -> dict[str, Any]:
    """Everything about one data set."""
    rows = read_judgements(given.human / f"{data}.jsonl")
    if 0 < given.rows < len(rows):  # evenly spread, so that all systems and passages take part
        rows = [rows[at * len(rows) // given.rows] for at in range(given.rows)]
    draws = PassageDraws([judgement.group for judgement in rows], resamples=1000)
    few = PassageDraws([judgement.group for judgement in rows], resamples=1)  # for values without intervals
    result: dict[str, Any] = {"questions": len(rows), "passages": draws.passages, "signatures": {}, "criteria": {}}
    of_variant = {variant: global_values(given, data, rows, variant) for variant in ("official", "paper")}
    for reading, variant in READINGS.items():
        names, powers, layers, result["signatures"][reading] = local_values(given, data, rows, reading)
        both = names["M1"] + of_variant[variant]["M8"]
        with np.errstate(invalid="ignore", divide="ignore"):
            harmonic = np.where(both > 0, 2 * names["M1"] * of_variant[variant]["M8"] / both, 0.0)
        names |= {**of_variant[variant], "QRelScore": harmonic}
        for criterion in CRITERIA[data]:
            ratings = np.array([judgement.human[criterion] for judgement in rows])
            of_criterion = result["criteria"].setdefault(criterion, {})
            of_criterion[reading] = agreement(names, ratings, draws, "M1")
            for kind, values in (("powers", powers), ("layers", layers)):
                found = agreement(values, ratings, few, next(iter(values)))
                of_criterion[reading][kind] = {name: each["kendall"]["value"] for name, each in found.items()}
    return result


def tables(results: dict[str, Any]) -> Iterator[str]:
    """The results as Markdown."""
    order = [f"M{number}" for number in range(1, 10)] + ["QRelScore"]
    for data, result in results.items():
        yield f"## {data}: {result['questions']} questions about {result['passages']} passages\n"
        for criterion, readings in result["criteria"].items():
            yield f"### {criterion}\n"
            yield "τ-b, and its difference from that of M1 with a 95 % interval over passages.\n"
            yield "| | " + " | ".join(f"`{reading}` | − M1" for reading in readings) + " |"
            yield "| --- |" + " --- |" * (2 * len(readings))
            for name in order:
                yield f"| {name} | " + " | ".join(cells(name, found[name]) for found in readings.values()) + " |"
            for kind, title in (("powers", "exponent"), ("layers", "layer alone")):
                names = list(next(iter(readings.values()))[kind])
                yield f"\n| {title}, τ-b of M1 | " + " | ".join(names) + " |"
                yield "| --- |" + " --- |" * len(names)
                for reading, found in readings.items():
                    yield f"| `{reading}` | " + " | ".join(number(found[kind][name]) for name in names) + " |"
            yield ""
        yield from (f"- `{reading}`: `{signature}`" for reading, signature in result["signatures"].items())
        yield ""


def cells(name: str, found: dict[str, Any]) -> str:
    """The value of a variant, and its difference."""
    gap = found["difference"]
    if name == "M1" or gap["low"] is None:
        return f"{number(found['kendall']['value'])} | "
    return f"{number(found['kendall']['value'])} | {gap['value']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--human", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--decoder", default=str(MINIATURE))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=0, help="so many questions of each file, evenly spread; 0: all")
    parser.add_argument("--only", nargs="*", default=list(CRITERIA), choices=CRITERIA, help="names of files")
    given = parser.parse_args()
    for folder in (given.work, given.output):
        folder.mkdir(parents=True, exist_ok=True)
    results = {data: ablation(given, data) for data in given.only}
    (given.output / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (given.output / "tables.md").write_text("\n".join(tables(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
