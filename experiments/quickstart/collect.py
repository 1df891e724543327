"""One table from several runs: BLEU-4, reward before and after SCST, F1 before and after augmentation.

python experiments/quickstart/collect.py RUN [RUN …] --output results.json
"""

import argparse
import json
from pathlib import Path


def row(run: Path) -> dict[str, object]:
    evaluation = json.loads((run / "evaluation.json").read_text())
    gold, augmented, comparison = (
        json.loads((run / "qa" / name).read_text())
        for name in ("gold/qa_metrics.json", "augmented/qa_metrics.json", "comparison.json")
    )
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
        "qa_gold": {name: gold[name] for name in ("exact_match", "f1", "seeds", "intervals")},
        "qa_augmented": {name: augmented[name] for name in ("exact_match", "f1", "seeds", "intervals")},
        "qa_difference": comparison["difference"],
    }


def line(values: dict) -> str:
    reward, f1 = values["reward_difference"], values["qa_difference"]["f1"]
    return (
        f"| {values['run']} | {values['ce_bleu4']['mean']:.3f} | {values['scst_bleu4']['mean']:.3f} "
        f"| {values['ce_reward']['mean']:.4f} | {values['scst_reward']['mean']:.4f} "
        f"| {reward['mean']:+.4f} [{reward['low']:+.4f}, {reward['high']:+.4f}] "
        f"| {values['qa_gold']['exact_match']:.1f} / {values['qa_gold']['f1']:.1f} "
        f"| {values['qa_augmented']['exact_match']:.1f} / {values['qa_augmented']['f1']:.1f} "
        f"| {f1['mean']:+.1f} [{f1['low']:+.1f}, {f1['high']:+.1f}] |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows = [row(run) for run in arguments.runs]
    arguments.output.write_text(json.dumps(rows, indent=2) + "\n")
    heads = "run, CE BLEU-4, SCST BLEU-4, CE reward, SCST reward, difference, gold EM / F1, augmented EM / F1, F1 gain"
    print("| " + heads.replace(", ", " | ") + " |")
    print("| --- " * 9 + "|")
    for values in rows:
        print(line(values))
