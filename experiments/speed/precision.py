"""What bfloat16 and float16 do to the scores: differences from float32 and agreement in rank.

    python experiments/speed/precision.py --shared ../shared --output experiments/speed/results/precision.json

Two sets of models: the small trained ones beside the reference numbers, and the published sizes with random weights.
"""

import argparse
import math
from pathlib import Path

from measurements import Measurements
from models import build, rows
from scipy.stats import spearmanr

from rewards import BARTScore, QAScore, QRelScore

METRICS = {
    "qrelscore official": (QRelScore, ("bert", "gpt2"), {}),
    "qrelscore paper": (QRelScore, ("bert", "gpt2"), {"variant": "paper"}),
    "qascore paper": (QAScore, ("roberta",), {}),
    "qascore official": (QAScore, ("roberta",), {"variant": "official"}),
    "bartscore": (BARTScore, ("bart",), {}),
}
SIZES = {"bert": "bert-base", "gpt2": "gpt2", "roberta": "roberta-large", "bart": "bart-base"}


def compare(metric, models, options, data, dtype: str) -> dict[str, float]:
    columns = {name: data[name] for name in ("questions", "contexts", "answers")}
    exact, rough = (metric(*models, dtype=name, **options).score(**columns).scores for name in ("float32", dtype))
    differences = [abs(a - b) for a, b in zip(exact, rough, strict=True)]
    return {
        "rows": len(exact),
        "not_finite": sum(not math.isfinite(value) for value in rough),
        "mean_score": sum(exact) / len(exact),
        "spread": (sum(value**2 for value in exact) / len(exact) - (sum(exact) / len(exact)) ** 2) ** 0.5,
        "mean_difference": sum(differences) / len(differences),
        "largest_difference": max(differences),
        "rank_correlation": float(spearmanr(exact, rough).statistic),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--models", default="/tmp/rl-qg-speed")
    parser.add_argument("--contexts", type=int, default=40)
    parser.add_argument("--contexts-real", type=int, default=4)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    results = Measurements(
        options.output, {"contexts": options.contexts, "contexts_of_published": options.contexts_real}
    )
    shared = Path(options.shared)
    text = shared / "data" / "squadshifts" / "new_wiki_v1.0.json.gz"
    for size, contexts in (("small, trained", options.contexts), ("published, random", options.contexts_real)):
        if not contexts:
            continue
        data = rows(text, contexts, 8)
        for name, (metric, kinds, choices) in METRICS.items():
            if size == "small, trained":
                models = [str(shared / "golden" / "models" / f"tiny-{kind}") for kind in kinds]
            else:
                tokenizers = shared / "golden" / "models"
                models = [build(SIZES[kind], Path(options.models), tokenizers) for kind in kinds]
            for dtype in ("bfloat16", "float16"):
                if size == "published, random" and (dtype == "float16" or name.startswith("qascore")):
                    continue  # hours on two cores
                given = metric, models, choices, data, dtype
                results.measure(f"{size} | {name} | {dtype}", lambda given=given: compare(*given))


if __name__ == "__main__":
    main()
