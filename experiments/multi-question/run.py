"""The published values of two systems' sets of questions, computed anew; see README.md."""

import argparse
import gzip
import json
from pathlib import Path

import yaml

from rewards import load
from rewards.sets import Multi, cardinality_difference, cardinality_signature, self_bleu, self_bleu_signature

SYSTEMS = {
    "one2many_sentence_QG": "SQuADDu_one2many_sentence_QG",
    "one2one_QG_simple_ranked": "SQuADDu_one2one_QG_simple_ranked",
}
PLACEHOLDER = "<DUMMYSTUFFSURETOACHIEVE0>"  # what the released code scores where a system asked nothing


def metrics(options: argparse.Namespace) -> dict[str, tuple[str, object]]:
    """Return, for each of our names, the published name and the metric."""
    found = {
        "BLEU-4": ("Bleu_4", load("coco_bleu4")),
        "ROUGE-L": ("ROUGE_L", load("coco_rouge_l")),
        "METEOR, nltk, exact and stem": ("METEOR", load("meteor", synonyms="none")),
        "q-BLEU1, case as it stands": ("q-BLEU1", load("q_bleu1", matching="set")),
    }
    try:
        found["METEOR, nltk, with WordNet"] = ("METEOR", load("meteor", synonyms="wordnet"))
        tuned = load("meteor", synonyms="wordnet", alpha=0.85, beta=0.2, gamma=0.6)
        found["METEOR, nltk, with WordNet and 1.5's parameters"] = ("METEOR", tuned)
    except ValueError as error:
        print(f"left out: {error}")
    if options.meteor_jar:
        found["METEOR, Java 1.5"] = ("METEOR", load("meteor15", jar=options.meteor_jar))
    if options.truecase:
        found["q-BLEU1, true-cased"] = ("q-BLEU1", load("q_bleu1_truecased"))
    return found


def rows(system: str, data: Path, measured: dict[str, tuple[str, object]]) -> list[dict]:
    """Return published and own values of one system."""
    [file] = (data / "predictions").glob(f"{SYSTEMS[system]}_T5*.jsonl.gz")
    [official] = (data / "evaluations").glob(f"{SYSTEMS[system]}_@M*.yaml")
    published = {key.replace("BlEU", "BLEU"): value for key, value in yaml.safe_load(official.read_text()).items()}
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        documents = [json.loads(line) for line in stream]
    predictions, references = ([document[key] for document in documents] for key in ("predictions", "questions"))
    found = []
    for name, (key, metric) in measured.items():
        scores = Multi(metric, placeholder=PLACEHOLDER, decimals=5).score(predictions, references)
        for ours, theirs in (("precision", "prec"), ("recall", "rec"), ("f1", "F1"), ("averaged", "avg")):
            want = published[f"avg_{key}" if theirs == "avg" else f"multi_{key}_{theirs}"]
            found.append(row(system, name, ours, want, scores.mean()[ours], scores.signature))
        print(found[-1], flush=True)
    own = self_bleu(predictions)
    found.append(
        row(system, "Self-BLEU2", "mean", published["avg_self-BLEU2"], sum(own) / len(own), self_bleu_signature())
    )
    own = cardinality_difference(predictions, references, placeholder=PLACEHOLDER)
    found.append(
        row(
            system,
            "references less predictions",
            "mean",
            published["len_diff"],
            sum(own) / len(own),
            cardinality_signature(placeholder=PLACEHOLDER),
        )
    )
    return found


def row(system: str, metric: str, value: str, published: float, ours: float, signature: str) -> dict:
    return {
        "system": system,
        "metric": metric,
        "value": value,
        "published": published,
        "ours": ours,
        "difference": ours - published,
        "signature": signature,
    }


def table(found: list[dict]) -> str:
    """Return a Markdown table: per metric and system, published, ours and the difference of each value."""
    lines = ["| system | metric | value | published | ours | difference |", "| --- | --- | --- | --- | --- | --- |"]
    for entry in found:
        numbers = f"{entry['published']:.4f} | {entry['ours']:.4f} | {entry['difference']:+.4f}"
        lines.append(f"| {entry['system']} | {entry['metric']} | {entry['value']} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="../shared/data/multi_qg", type=Path)
    parser.add_argument("--output", default=Path(__file__).with_name("results.json"), type=Path)
    parser.add_argument("--meteor-jar", help="meteor-1.5.jar beside its data, as in the package pycocoevalcap")
    parser.add_argument("--truecase", action="store_true", help="q-BLEU1 with the package truecase")
    options = parser.parse_args()
    measured = metrics(options)
    found = [entry for system in SYSTEMS for entry in rows(system, options.data, measured)]
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
