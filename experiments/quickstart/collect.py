"""One table from several runs, and what SCST adds to CE over their generators.

Each run has intervals over passages; those of the means are Student's, over runs, so that generators count.

python experiments/quickstart/collect.py RUN [RUN …] --output results.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats


def row(run: Path) -> dict[str, Any]:
    evaluation = json.loads((run / "evaluation.json").read_text())
    comparison = json.loads((run / "qa" / "comparison.json").read_text())
    record = json.loads((run / "run.json").read_text())
    models = evaluation["models"]
    return {
        "run": run.name,
        "seed": record["seed"],
        "commit": record["code"]["commit"],
        "reward_signature": evaluation["reward_signature"],
        "ce_bleu4": models["ce"]["bleu4"],
        "scst_bleu4": models["scst"]["bleu4"],
        "ce_reward": models["ce"]["reward"],
        "scst_reward": models["scst"]["reward"],
        "reward_difference": evaluation["difference"]["reward"],
        "right": {name: models[name]["oracle"]["right"]["mean"] for name in ("ce", "scst")},
        "oracle": {name: models[name]["oracle"] for name in ("ce", "scst")},
        "differences": {
            "right": evaluation["difference"]["oracle"]["right"],
            "bleu4": evaluation["difference"]["bleu4"],
            "rouge_l": evaluation["difference"]["rouge_l"],
            "f1": comparison["differences"]["scst - ce"]["f1"],
        },
        "qa": comparison["readers"],
        "qa_differences": comparison["differences"],
    }


def mean_difference(rows: list[dict[str, Any]], measure: str) -> dict[str, float]:
    """The mean of the runs' differences SCST - CE, with its 95 % interval by Student's t over the runs."""
    values = np.array([values["differences"][measure]["mean"] for values in rows])
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    return {"mean": float(values.mean()), "low": float(low), "high": float(high), "runs": len(values)}


def line(values: dict) -> str:
    reward = values["reward_difference"]
    readers = " | ".join(f"{reader['exact_match']:.1f} / {reader['f1']:.1f}" for reader in values["qa"].values())
    gains = [values["qa_differences"][pair]["f1"] for pair in ("scst - gold", "scst - ce")]
    return (
        f"| {values['run']} | {values['ce_bleu4']['mean']:.3f} | {values['scst_bleu4']['mean']:.3f} "
        f"| {values['ce_reward']['mean']:.4f} | {values['scst_reward']['mean']:.4f} "
        f"| {reward['mean']:+.4f} [{reward['low']:+.4f}, {reward['high']:+.4f}] "
        f"| {readers} | "
        + " | ".join(f"{gain['mean']:+.1f} [{gain['low']:+.1f}, {gain['high']:+.1f}]" for gain in gains)
        + " |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows = [row(run) for run in arguments.runs]
    means = {name: mean_difference(rows, name) for name in rows[0]["differences"]} if len(rows) > 1 else {}
    arguments.output.write_text(json.dumps({"runs": rows, "scst - ce": means}, indent=2) + "\n")
    heads = "run, CE BLEU-4, SCST BLEU-4, CE reward, SCST reward, difference, gold EM / F1, + CE, + SCST"
    heads += ", F1 SCST - gold, F1 SCST - CE"
    print("| " + heads.replace(", ", " | ") + " |")
    print("| --- " * 11 + "|")
    for values in rows:
        print(line(values))
    for name, value in means.items():
        print(f"SCST - CE, {name}: {value['mean']:+.3f} [{value['low']:+.3f}, {value['high']:+.3f}]")
