"""Judge the generators of `run.py` by what no reward saw, and write `results.json` and `tables.md`.

    python experiments/learning-by-reward/analyse.py --runs runs/lbr --output experiments/learning-by-reward \
        --other-reader READER

Greedy questions for the answers of 200 held-out passages that no choice was made on. Intervals resample passages and
seeds; p-values of the differences to CE continued and to best-of-n are corrected by Holm over all arms and measures.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewards.overlap.rouge import RougeL
from rewards.relevance.reader import ReaderScore
from rl_qg.confidence_intervals import PassageDraws, difference_p, holm, seed_interval
from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.data.reading import read_examples
from rl_qg.evaluation.oracle import VERDICTS, verdicts
from rl_qg.evaluation.text_measures import held_out_measures
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.runtime.json_files import read_json, write_json

AGAINST = ("ce-continued", "best-of-n")
TESTED = ("right", "rouge_l", "round_trip", "f1")
BATCH = 64


def greedy(folder: Path, examples: list[QAExample], kept: Path) -> list[str]:
    """The greedy questions of a generator, kept in a file."""
    if kept.exists():
        return read_json(kept)
    generator = CandidateGenerator(folder, device=torch.device("cpu"))
    texts: list[str] = []
    for start in range(0, len(examples), BATCH):
        texts += generator.greedy(examples[start : start + BATCH], max_new_tokens=40)
    write_json(kept, texts)
    return texts


def per_question(questions: list[str], examples: list[QAExample], reader: ReaderScore) -> dict[str, list[float]]:
    """The measures that are means over questions, as one value for each question."""
    gold = [[example.question] for example in examples]
    contexts, answers = [e.context for e in examples], [e.answers[0].text for e in examples]
    given = verdicts(questions, examples)
    rouge = RougeL().score(questions, contexts, references=gold).scores
    trip = reader.score(questions, contexts, answers=answers).scores
    shares = {verdict: [float(one == verdict) for one in given] for verdict in VERDICTS}
    return {**shares, "rouge_l": rouge, "round_trip": trip}


def collect(folder: Path, examples: list[QAExample], reader: ReaderScore) -> dict[str, Any]:
    """All arms of one labelled fraction: values of each question for each seed, and measures of whole sets."""
    seeds = sorted(folder.glob("seed-*"))
    names = ["ce", *sorted({path.parent.name for path in folder.glob("seed-*/*/trained.json")} - {"ce"})]
    arms: dict[str, Any] = {}
    for name in names:
        rows: list[dict[str, list[float]]] = []
        whole: list[dict[str, float]] = []
        for seed in seeds:
            models = [path for path in (seed / name / "scst", seed / name / "ce") if path.exists()]
            if not models or not (seed / name / "trained.json").exists():
                continue
            questions = greedy(models[0], examples, models[0] / "greedy.json")
            row = per_question(questions, examples, reader)
            scores = seed / "readers" / name / "qa" / "question_scores.json"
            if scores.exists():
                table = read_json(scores)
                row["f1"] = [100 * table[example.id]["f1"] for example in examples]
            rows.append(row)
            texts = held_out_measures(questions, [e.question for e in examples], [e.context for e in examples])
            whole.append({key: texts[key] for key in ("bleu4", "distinct_2", "length_words", "copy_rate")})
        arms[name] = {"seeds": len(rows), "rows": rows, "whole": whole}
    gold = [seed / "readers" / "gold" / "qa" / "question_scores.json" for seed in seeds]
    tables = [read_json(path) for path in gold if path.exists()]
    rows = [{"f1": [100 * table[example.id]["f1"] for example in examples]} for table in tables]
    arms["gold"] = {"seeds": len(rows), "rows": rows, "whole": []}
    return arms


def summarise(arms: dict[str, Any], examples: list[QAExample], against: Sequence[str] = AGAINST) -> dict[str, Any]:
    """The measures of each arm with intervals, and its differences to the arms in `against`."""
    passages = [passage_hash(example.context) for example in examples]
    result: dict[str, Any] = {}
    tests: list[tuple[dict[str, Any], float]] = []
    for name, arm in arms.items():
        if not arm["rows"]:
            continue
        draws = PassageDraws(passages, seeds=arm["seeds"])
        measures = {}
        for key in arm["rows"][0]:
            if not all(key in row for row in arm["rows"]):
                continue
            table = np.array([row[key] for row in arm["rows"]])
            interval = seed_interval(draws.means_over_seeds(table), table, draws)
            measures[key] = {"mean": interval.mean, "low": interval.low, "high": interval.high}
            for other in against:
                rows = arms.get(other, {}).get("rows", [])
                if other == name or key not in TESTED or len(rows) != arm["seeds"] or any(key not in r for r in rows):
                    continue
                gap = table - np.array([row[key] for row in rows])
                means = draws.means_over_seeds(gap)
                inside = seed_interval(means, gap, draws)
                entry: dict[str, Any] = {"mean": inside.mean, "low": inside.low, "high": inside.high}
                measures[key][f"over {other}"] = entry
                tests.append((entry, difference_p(means, draws.passages) or 1.0))
        whole = {
            key: {
                "mean": float(np.mean([one[key] for one in arm["whole"]])),
                "seeds": [one[key] for one in arm["whole"]],
            }
            for key in (arm["whole"][0] if arm["whole"] else {})
        }
        result[name] = {"seeds": arm["seeds"], **measures, **whole}
    for (entry, _), corrected in zip(tests, holm([p for _, p in tests]), strict=True):
        entry["p_holm"] = corrected
    return {"passages": len(set(passages)), "questions": len(examples), "tests": len(tests), "arms": result}


def table(fraction: str, result: dict[str, Any]) -> str:
    head = (
        "| generator | seeds | right % | wrong entity | wrong attribute | ambiguous | ill-formed | BLEU-4 | ROUGE-L |"
    )
    head += " round trip | distinct bigrams | taught reader's F1 |"
    lines = [f"\n## {fraction}\n", head, "| --- " * 12 + "|"]
    for name, arm in result["arms"].items():
        cells = [name, str(arm["seeds"])]
        for key in VERDICTS:
            cells.append(_percent(arm.get(key), interval=key == "right"))
        for key in ("bleu4", "rouge_l", "round_trip", "distinct_2"):
            cells.append(f"{arm[key]['mean']:.3f}" if key in arm else "")
        cells.append(
            f"{arm['f1']['mean']:.1f} [{arm['f1']['low']:.1f}, {arm['f1']['high']:.1f}]" if "f1" in arm else ""
        )
        lines.append("| " + " | ".join(cells) + " |")
    about = "Differences (95 % intervals over passages, and over seeds where there are several; p by Holm):"
    lines += ["", about, ""]
    lines += ["| generator | measure | over | difference | p |", "| --- | --- | --- | --- | --- |"]
    for name, arm in result["arms"].items():
        for key in TESTED:
            for other in AGAINST:
                if entry := arm.get(key, {}).get(f"over {other}"):
                    scale = 1 if key == "f1" else 100
                    gap = " ".join(
                        [
                            f"{scale * entry['mean']:+.1f}",
                            f"[{scale * entry['low']:+.1f}, {scale * entry['high']:+.1f}]",
                        ]
                    )
                    lines.append(f"| {name} | {key} | {other} | {gap} | {entry['p_holm']:.3g} |")
    return "\n".join(lines)


def _percent(entry: dict[str, float] | None, *, interval: bool) -> str:
    if entry is None:
        return ""
    text = f"{100 * entry['mean']:.1f}"
    return f"{text} [{100 * entry['low']:.1f}, {100 * entry['high']:.1f}]" if interval else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--other-reader", required=True, help="a reader that no reward used, for the round trip")
    given = parser.parse_args()
    examples = read_examples(given.runs / "held-out.json", role="validation").examples
    reader = ReaderScore(given.other_reader, measure="exact_match")
    results, text = {}, ["# Tables", ""]
    for folder in sorted(given.runs.glob("labelled-*")):
        results[folder.name] = summarise(collect(folder, examples, reader), examples)
        text.append(table(folder.name, results[folder.name]))
    write_json(given.output / "results.json", results)
    (given.output / "tables.md").write_text("\n".join(text) + "\n")
    print(json.dumps({name: list(result["arms"]) for name, result in results.items()}))


if __name__ == "__main__":
    main()
