"""Our numbers beside the published ones: KPQA's Table 3, QGEval's and lmqg's values for each question.

    python experiments/meta-evaluation/published.py --human DIR --output published.json [--meteor JAR] [--keyphrases D]

`--meteor`: meteor-1.5.jar (in the package pycocoevalcap), for the METEOR of the captioning scripts; it needs Java.
`--keyphrases`: a folder of `rl-qg train-kpqa`, for KPQA's own metrics.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import rewards

# Lee et al., "KPQA: A Metric for Generative Question Answering Using Keyphrase Weights", NAACL 2021, Table 3: r and ρ
KPQA = {
    "kpqa_marco": {
        **{"BLEU-1": (0.349, 0.329), "BLEU-4": (0.193, 0.244), "ROUGE-L": (0.309, 0.301), "METEOR": (0.423, 0.413)},
        "CIDEr": (0.275, 0.278),
    },
    "kpqa_avsd": {
        **{"BLEU-1": (0.580, 0.562), "BLEU-4": (0.499, 0.532), "ROUGE-L": (0.585, 0.566), "METEOR": (0.578, 0.617)},
        "CIDEr": (0.567, 0.600),
    },
}
# What the README of hwanheelee1993/KPQA printed for UniLM's answers on MS-MARCO until its commit db1c684, r and ρ
UNILM = {
    **{"coco_bleu1": (0.369, 0.337), "coco_rouge_l": (0.317, 0.289)},
    **{"bleu1_kpqa": (0.729, 0.676), "rouge_l_kpqa": (0.735, 0.674), "bertscore_kpqa": (0.698, 0.66)},
}
OURS = {
    **{"BLEU-1": "coco_bleu1", "BLEU-4": "coco_bleu4", "ROUGE-L": "coco_rouge_l", "METEOR": "meteor"},
    "CIDEr": "cider",
}
REFERENCES_USED = 5  # of AVSD's six, by the released compute_correlation.py


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def best_of(metric: Any, rows: Sequence[dict[str, Any]], limit: int) -> list[float]:
    """The best over references, each scored alone, as the released code does: a call for the first of every row, one
    for the second, and so on. Only CIDEr sees this: it counts documents in each call.
    """
    best = [-np.inf] * len(rows)
    for at in range(limit):
        having = [row for row, item in enumerate(rows) if at < len(item["references"])]
        asked = [rows[row]["question"] for row in having]
        scores = metric.score(asked, references=[[rows[row]["references"][at]] for row in having]).scores
        for row, score in zip(having, scores, strict=True):
            best[row] = max(best[row], score)
    return best


def kpqa(human: Path, jar: Path | None) -> list[dict[str, Any]]:
    found = []
    for name, table in KPQA.items():
        rows = read(human / f"{name}.jsonl")
        ratings = [row["human"]["correctness"] for row in rows]
        metrics = {metric: rewards.load(ours) for metric, ours in OURS.items()}
        if jar is not None:
            metrics["METEOR"] = rewards.load("meteor15", jar=jar)
        for metric, (r, rho) in table.items():
            for limit in (REFERENCES_USED, 6) if name == "kpqa_avsd" else (1,):
                scores = best_of(metrics[metric], rows, limit)
                ours = stats.pearsonr(scores, ratings).statistic, stats.spearmanr(scores, ratings).statistic
                how = f"{metrics[metric].signature}|references:best of {limit}, each alone"
                row = {"data": name, "metric": metric, "references": limit, "published": [r, rho]}
                found.append({**row, "got": [round(float(value), 4) for value in ours], "signature": how})
    return found


def unilm(human: Path, predictor: str | None) -> list[dict[str, Any]]:
    """Metrics on UniLM's answers, the first 500; KPQA's own under a predictor of `rl-qg train-kpqa`."""
    rows = read(human / "kpqa_marco.jsonl")[:500]
    ratings = [row["human"]["correctness"] for row in rows]
    answers, questions, references = ([row[key] for row in rows] for key in ("question", "context", "references"))
    found = []
    for name, published in UNILM.items():
        if name.endswith("_kpqa") and not predictor:
            continue
        metric = rewards.load(name, model=predictor) if name.endswith("_kpqa") else rewards.load(name)
        scores = metric.score(answers, questions, references=references).scores
        ours = stats.pearsonr(scores, ratings).statistic, stats.spearmanr(scores, ratings).statistic
        row = {"data": "kpqa_marco, UniLM", "metric": name, "references": 1, "published": list(published)}
        found.append({**row, "got": [round(float(value), 4) for value in ours], "signature": metric.signature})
    return found


def per_question(
    human: Path, data: str, names: dict[str, tuple[str, dict[str, Any]]], digits: int, *, lower: bool = False
) -> list[dict[str, Any]]:
    """How many of the authors' values for single questions are ours, to the digits that they give."""
    rows = read(human / f"{data}.jsonl")
    found = []
    for theirs, (name, options) in names.items():
        metric = rewards.load(name, **options)
        own = [row for row in rows if theirs in row["metrics"]]
        given = [[row["reference_used"]] if "reference_used" in row else row["references"] for row in own]
        asked = [row["question"] for row in own]
        if lower:
            asked, given = [text.lower() for text in asked], [[text.lower() for text in group] for group in given]
        scores = metric.score(asked, references=given).scores
        gaps = np.abs(np.array(scores) - [row["metrics"][theirs] for row in own])
        equal = int((gaps <= 0.51 * 10**-digits).sum())
        worst = [own[place] for place in np.argsort(-gaps)[:3] if gaps[place] > 10**-digits]
        found.append(
            {
                **{"data": data, "metric": theirs, "questions": len(own), "equal": equal, "share": equal / len(own)},
                "within_0.02": float((gaps <= 0.02).mean()),
                "mean_gap": float(gaps.mean()),
                "signature": metric.signature + ("|given:lower-cased" if lower else ""),
                "furthest": [{key: row[key] for key in ("question", "references")} for row in worst],
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--human", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--meteor", type=Path)
    parser.add_argument("--keyphrases")
    given = parser.parse_args()
    qgeval = {
        "BLEU-4": ("bleu4", {"variant": "nltk"}),
        "ROUGE-L": ("rouge_l", {"stem": True, "tokenize": "rouge_score"}),
        "METEOR": ("meteor", {"tokenize": "space"}),
    }
    kept = {"tokenize": "13a"}  # lmqg leaves punctuation in
    lmqg = {"Bleu_4": ("coco_bleu4", kept), "ROUGE_L": ("coco_rouge_l", kept)}
    record = {
        "kpqa": kpqa(given.human, given.meteor) + unilm(given.human, given.keyphrases),
        "qgeval": per_question(given.human, "qgeval", qgeval, 4),
        "lmqg_human": per_question(given.human, "lmqg_human", lmqg, 3, lower=True),
    }
    given.output.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    for row in record["kpqa"]:
        print(row["data"], row["metric"], row["references"], "published", row["published"], "got", row["got"])
    for row in [*record["qgeval"], *record["lmqg_human"]]:
        print(
            row["data"], row["metric"], f"{row['equal']} of {row['questions']} equal, mean gap {row['mean_gap']:.4f}"
        )


if __name__ == "__main__":
    main()
