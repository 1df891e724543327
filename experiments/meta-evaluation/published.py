"""Our numbers beside the published ones: KPQA's Table 3, QGEval's and lmqg's values for each question.

    python experiments/meta-evaluation/published.py --human DIR --output published.json [--meteor JAR] [--keyphrases D]

`--meteor`: meteor-1.5.jar (in the package pycocoevalcap), for the METEOR of the captioning scripts; it needs Java.
`--keyphrases`: a folder of `rl-qg train-kpqa`, for KPQA's own metrics.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import rewards
from rewards.words import tokenizer

# Lee et al., "KPQA: A Metric for Generative Question Answering Using Keyphrase Weights", NAACL 2021, Table 3: r and ρ
KPQA = {
    "kpqa_marco": {
        **{"BLEU-1": (0.349, 0.329), "BLEU-4": (0.193, 0.244), "ROUGE-L": (0.309, 0.301), "METEOR": (0.423, 0.413)},
    },
    "kpqa_avsd": {
        **{"BLEU-1": (0.580, 0.562), "BLEU-4": (0.499, 0.532), "ROUGE-L": (0.585, 0.566), "METEOR": (0.578, 0.617)},
    },
}
# What the README of hwanheelee1993/KPQA printed for UniLM's answers on MS-MARCO until its commit db1c684, r and ρ
UNILM = {
    **{"coco_bleu1": (0.369, 0.337), "coco_rouge_l": (0.317, 0.289)},
    **{"bleu1_kpqa": (0.729, 0.676), "rouge_l_kpqa": (0.735, 0.674), "bertscore_kpqa": (0.698, 0.66)},
}
OURS = {"BLEU-1": "coco_bleu1", "BLEU-4": "coco_bleu4", "ROUGE-L": "coco_rouge_l", "METEOR": "meteor"}
REFERENCES_USED = 5  # of AVSD's six, by the released compute_correlation.py


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def best_of(score: Any, rows: Sequence[dict[str, Any]], limit: int) -> list[float]:
    """The best over references, each scored alone, as the released code does."""
    pairs = [(row["question"], text) for row in rows for text in row["references"][:limit]]
    values = iter(score([question for question, _ in pairs], [text for _, text in pairs]))
    return [max(next(values) for _ in row["references"][:limit]) for row in rows]


def by_metric(name: str) -> Any:
    metric = rewards.load(name)
    return lambda questions, references: metric.score(questions, references=[[text] for text in references]).scores


def by_meteor(jar: Path) -> Any:
    """METEOR 1.5 as the captioning scripts call it, on words of `rewards.words`' ptb, lower case, no punctuation."""
    words = tokenizer("ptb")

    def line(text: str) -> str:
        return " ".join(word.lower() for word in words(text) if any(letter.isalnum() for letter in word)) or "-"

    def score(questions: Sequence[str], references: Sequence[str]) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("hypotheses", "references")]
            for path, texts in zip(files, (questions, references), strict=True):
                path.write_text("".join(line(text) + "\n" for text in texts), encoding="utf-8")
            command = ["java", "-Xmx2G", "-jar", str(jar), *map(str, files), "-l", "en", "-norm"]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [float(value) for value in re.findall(r"Segment \d+ score:\s+(\S+)", said)]

    return score


def kpqa(human: Path, jar: Path | None) -> list[dict[str, Any]]:
    found = []
    for name, table in KPQA.items():
        rows = read(human / f"{name}.jsonl")
        ratings = [row["human"]["correctness"] for row in rows]
        scorers = {metric: by_metric(ours) for metric, ours in OURS.items()}
        if jar is not None:
            scorers["METEOR"] = by_meteor(jar)
        for metric, (r, rho) in table.items():
            for limit in (REFERENCES_USED, 6) if name == "kpqa_avsd" else (1,):
                scores = best_of(scorers[metric], rows, limit)
                ours = stats.pearsonr(scores, ratings).statistic, stats.spearmanr(scores, ratings).statistic
                java = metric == "METEOR" and jar is not None
                how = "METEOR 1.5|-l en -norm" if java else rewards.load(OURS[metric]).signature
                how += f"|references:best of {limit}, each alone"
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
