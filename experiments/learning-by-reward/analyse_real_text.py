"""Judge the generators of `real_text.py` by what no reward saw, and write `real-text.json` and `real-text.md`.

    python experiments/learning-by-reward/analyse_real_text.py --runs runs/real-text \
        --other-reader MODELS/other-reader --output experiments/learning-by-reward

Greedy questions for the held-out half of each domain. Intervals resample passages (and seeds, where there are
several); p-values of the differences are corrected by Holm over all arms and measures of a domain.
"""

import argparse
from pathlib import Path
from typing import Any

from analyse import greedy, summarise

from rewards.overlap.rouge import RougeL
from rewards.relevance.reader import ReaderScore
from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.runtime.files import read_json, write_json
from rl_qg.scoring.held_out import held_out_measures

WHOLE = ("bleu4", "distinct_2", "length_words", "copy_rate", "repeated_3grams")
AGAINST = ("ce-continued", "best-of-n", "best-of-n-form", "scst-reader")
PERCENT = {"rouge_l": 100, "round_trip": 100, "f1": 1}


def collect(folder: Path, examples: list[QAExample], other: ReaderScore, start: Path) -> dict[str, Any]:
    """The values of each question for each seed of each arm, and measures of whole sets."""
    contexts, answers = [e.context for e in examples], [e.answers[0].text for e in examples]
    gold = [e.question for e in examples]
    runs = {"ce": [start]}
    for path in sorted(folder.glob("*/trained.json")):
        runs.setdefault(path.parent.name.rpartition("-")[0], []).append(path.parent)
    arms: dict[str, Any] = {}
    for name, found in runs.items():
        rows, whole = [], []
        for run in found:
            model = run / "scst" if (run / "scst").exists() else run / "ce"
            questions = greedy(model, examples, folder / f"greedy-{name}-{run.name}.json")
            row = {
                "rouge_l": RougeL().score(questions, contexts, references=[[text] for text in gold]).scores,
                "round_trip": other.score(questions, contexts, answers=answers).scores,
            }
            rows.append(row | _taught(run / "reader/qa", examples))
            measures = held_out_measures(questions, gold, contexts)
            whole.append({key: measures[key] for key in WHOLE if key in measures})
        arms[name] = {"seeds": len(rows), "rows": rows, "whole": whole}
    taught = [_taught(path / "reader/qa", examples) for path in sorted(folder.glob("gold-*"))]
    trip = {"round_trip": other.score(gold, contexts, answers=answers).scores}
    measures = held_out_measures(gold, gold, contexts)
    whole = [{key: measures[key] for key in WHOLE if key != "bleu4"}]
    arms["human questions"] = {"seeds": 1, "rows": [trip | row for row in taught or [{}]], "whole": whole}
    return arms


def _taught(folder: Path, examples: list[QAExample]) -> dict[str, list[float]]:
    """The F1 of each question by a taught reader, in percent."""
    scores = folder / "question_scores.json"
    table = read_json(scores) if scores.exists() else {}
    return {"f1": [100 * table[example.id]["f1"] for example in examples]} if table else {}


def tables(domain: str, result: dict[str, Any]) -> list[str]:
    """The measures of every arm, and the differences with their intervals."""
    head = "| generator | n | BLEU-4 | ROUGE-L | round trip | taught reader's F1 | words | distinct 2-grams | copied |"
    lines = [f"\n## {domain}: {result['questions']} questions on {result['passages']} passages\n", head]
    lines.append("| --- " * 9 + "|")
    for name, arm in result["arms"].items():
        cells = [name, str(arm["seeds"]), _mean(arm, "bleu4", 3)]
        cells += [_with_interval(arm.get(key), scale) for key, scale in PERCENT.items()]
        cells += [
            _mean(arm, key, digits) for key, digits in (("length_words", 1), ("distinct_2", 3), ("copy_rate", 3))
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| generator | measure | over | difference | p |", "| --- | --- | --- | --- | --- |"]
    for name, arm in result["arms"].items():
        for key, scale in PERCENT.items():
            for over, entry in arm.get(key, {}).items():
                if over.startswith("over "):
                    gap = f"{scale * entry['mean']:+.1f} [{scale * entry['low']:+.1f}, {scale * entry['high']:+.1f}]"
                    lines.append(f"| {name} | {key} | {over[5:]} | {gap} | {entry['p_holm']:.3g} |")
    return lines


def _mean(arm: dict[str, Any], key: str, digits: int) -> str:
    return f"{arm[key]['mean']:.{digits}f}" if key in arm else ""


def _with_interval(entry: dict[str, float] | None, scale: float) -> str:
    if entry is None:
        return ""
    return f"{scale * entry['mean']:.1f} [{scale * entry['low']:.1f}, {scale * entry['high']:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--other-reader", required=True, help="a reader that no reward used, for the round trip")
    given = parser.parse_args()
    other = ReaderScore(given.other_reader, measure="exact_match")
    results, lines = {}, ["# New domains on real text"]
    for held_out in sorted((given.runs / "data").glob("*-held-out.json")):
        domain = held_out.name.removesuffix("-held-out.json")
        examples = read_examples(held_out, role="validation").examples
        results[domain] = summarise(
            collect(given.runs / domain, examples, other, given.runs / "ce"), examples, AGAINST
        )
        lines += tables(domain, results[domain])
    write_json(given.output / "real-text.json", results)
    (given.output / "real-text.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
