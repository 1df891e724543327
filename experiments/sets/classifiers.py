"""Train the three classifiers of sentences on real text and compare them with "every sentence" and with one another.

    python experiments/sets/classifiers.py --shared ../shared --encoder MINILM --output runs/sets-classifiers

It learns from half of the passages of SQuAD's du_test and is scored on all of dev_part1, which shares no article with
them; the commands themselves score a part. Each training is one command; what is done is not done again. The result
is `classifiers.json` beside this file, and the tables of `classifiers.md` on the screen.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.readers.sentences import (
    LabelledSentences,
    SentenceClassifier,
    compared_scores,
    decisions,
    label_scores,
    labelled_sentences,
)
from rl_qg.stats.intervals import PassageDraws

HERE = Path(__file__).parent
TRAIN, VALIDATION = "data/squad/du_test-v1.1.json.gz", "data/squad/dev_part1-v1.1.json.gz"
OPTIONS = (
    *("pooling=mean", "threshold=tuned", "epochs=1", "learning_rate=2e-4", "max_length=64"),
    *("data.max_train=6000", "data.max_validation=300", "training.use_cpu=true", "training.precision=bf16", "seed=1"),
)
BATCHES = {"worthiness": 32, "hierarchical": 8, "types": 32}  # sentences; passages of about four sentences


def train(kind: str, shared: Path, encoder: Path, output: Path) -> Path:
    """The folder of one classifier."""
    folder = output / kind
    command = [sys.executable, "-m", "rl_qg", "train-sentences", f"kind={kind}", f"output_dir={folder}"]
    data = [f"data.train={shared / TRAIN}", f"data.validation={shared / VALIDATION}"]
    subprocess.run([*command, *data, f"model.path={encoder}", f"batch_size={BATCHES[kind]}", *OPTIONS], check=True)
    return folder


def probabilities(classifier: SentenceClassifier, passages: list[LabelledSentences], cached: Path) -> np.ndarray:
    """Of the labels of all sentences, (sentences, labels)."""
    if not cached.exists():
        np.save(cached, np.concatenate(classifier([passage.sentences for passage in passages])))
    rows: np.ndarray = np.load(cached)
    return rows


def area(values: np.ndarray, actual: np.ndarray) -> float:
    """The probability that a sentence with the label has a higher value than one without it."""
    ranks, positive = rankdata(values), actual.sum()
    return float((ranks[actual].sum() - positive * (positive + 1) / 2) / (positive * (len(actual) - positive)))


def compare(folders: dict[str, Path], examples: list[QAExample]) -> dict[str, Any]:
    """All scores with thresholds of 0.5 and tuned ones, and HC minus CL."""
    results: dict[str, Any] = {}
    chosen: dict[tuple[str, str], np.ndarray] = {}
    for kind, folder in folders.items():
        classifier = SentenceClassifier.from_pretrained(folder)
        passages, counts = labelled_sentences(examples, kind)
        rows = probabilities(classifier, passages, folder / "probabilities.npy")
        actual = np.concatenate([passage.labels for passage in passages])
        draws = PassageDraws([passage.context for passage in passages for _ in passage.sentences])
        baselines = {"every": np.ones_like(actual)}
        if kind == "types":
            baselines["most frequent"] = np.arange(actual.shape[1])[None] == np.full((len(actual), 1), 3)  # what
        results[kind] = {"sentences": len(actual), "passages": len(passages), "questions": counts["questions"]}
        if kind != "types":
            results[kind]["area"] = area(rows[:, 0], actual[:, 0])
        for name, thresholds in (("0.5", (0.5,) * len(classifier.labels)), ("tuned", classifier.thresholds)):
            predicted = chosen[kind, name] = decisions(rows, thresholds, at_least_one=kind == "types")
            part = compared_scores(predicted, actual, baselines, draws)
            if kind == "types":
                part["labels"] = label_scores(predicted, actual, classifier.labels, draws)
            results[kind][name] = {"thresholds": dict(zip(classifier.labels, thresholds, strict=True)), **part}
        if kind == "hierarchical":
            results["hierarchical_minus_worthiness"] = {}
            for name in ("0.5", "tuned"):
                other = {"other": chosen["worthiness", name]}
                part = compared_scores(chosen["hierarchical", name], actual, other, draws)["baselines"]["other"]
                results["hierarchical_minus_worthiness"][name] = part["difference"]["f1"]
        own = json.loads((folder / "sentence_metrics.json").read_text())
        results[kind] |= {"best": own["best"], "examples": own["examples"]}
    return results


# --- Tables ---


def shown(statistic: dict[str, Any]) -> str:
    """A percentage with its interval."""
    value, low, high = (100 * statistic[name] for name in ("value", "low", "high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def difference(statistic: dict[str, Any]) -> str:
    return f"{shown(statistic)}, p = {statistic['p']:.2g}"


def worthiness_table(results: dict[str, Any]) -> list[str]:
    measures = ("precision", "recall", "f1", "accuracy")
    lines = ["| classifier | threshold | P | R | F1 | accuracy | F1 − every sentence |", "| --- " * 7 + "|"]
    every = results["worthiness"]["0.5"]["baselines"]["every"]["scores"]
    lines.append(f"| every sentence | | {' | '.join(shown(every[name]) for name in measures)} | |")
    for kind, label in (("worthiness", "CL"), ("hierarchical", "HC")):
        for name in ("0.5", "tuned"):
            part = results[kind][name]
            threshold = f"{part['thresholds']['worthy']:.3f} ({name})" if name == "tuned" else name
            cells = [shown(part["scores"][measure]) for measure in measures]
            gap = difference(part["baselines"]["every"]["difference"]["f1"])
            lines.append(f"| {label} | {threshold} | {' | '.join(cells)} | {gap} |")
    return lines


def types_table(results: dict[str, Any]) -> list[str]:
    lines = ["| type | sentences | P (0.5) | R (0.5) | F1 (0.5) | F1 (tuned) |", "| --- " * 6 + "|"]
    half, tuned = results["types"]["0.5"]["labels"], results["types"]["tuned"]["labels"]
    for name, row in half.items():
        cells = [
            "–" if part[measure].get("low") is None else shown(part[measure])
            for part, measure in ((row, "precision"), (row, "recall"), (row, "f1"), (tuned[name], "f1"))
        ]
        lines.append(f"| {name} | {row['support']} | {' | '.join(cells)} |")
    return lines


def types_together(results: dict[str, Any]) -> list[str]:
    lines = ["| decisions | micro P | micro R | micro F1 | macro F1 |", "| --- " * 5 + "|"]
    measures = ("precision", "recall", "f1", "macro_f1")
    parts = results["types"]
    rows = {
        "every type": parts["0.5"]["baselines"]["every"]["scores"],
        "what alone": parts["0.5"]["baselines"]["most frequent"]["scores"],
        "classifier, 0.5": parts["0.5"]["scores"],
        "classifier, tuned": parts["tuned"]["scores"],
    }
    return [*lines, *(f"| {name} | {' | '.join(shown(row[m]) for m in measures)} |" for name, row in rows.items())]


def page(results: dict[str, Any]) -> str:
    minus = results["hierarchical_minus_worthiness"]
    areas = {label: results[kind]["area"] for kind, label in (("worthiness", "CL"), ("hierarchical", "HC"))}
    lines = [
        *("### Worth a question", "", *worthiness_table(results), ""),
        f"HC − CL in F1: {difference(minus['0.5'])} (thresholds 0.5); {difference(minus['tuned'])} (tuned).",
        f"Area under the ROC curve: CL {areas['CL']:.3f}, HC {areas['HC']:.3f}.",
        *("", "### Types of questions", "", *types_together(results), "", *types_table(results)),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True, help="all-MiniLM-L6-v2")
    parser.add_argument("--output", type=Path, default=Path("runs/sets-classifiers"))
    arguments = parser.parse_args()
    folders = {kind: train(kind, arguments.shared, arguments.encoder, arguments.output) for kind in BATCHES}
    examples = read_examples(arguments.shared / VALIDATION, role="validation").examples
    results = compare(folders, examples)
    (HERE / "classifiers.json").write_text(json.dumps(results, indent=1) + "\n")
    print(page(results))


if __name__ == "__main__":
    main()
