"""The tables of `run.py`: `SETTING.json` with every number, and `SETTING.md` for people. What was not run is said so.

python experiments/pairs/tables.py --runs runs/pairs --setting world --output experiments/pairs
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.formats import json_line_rows
from rl_qg.data.oracle import examine
from rl_qg.pages.results import estimate_text, text_table
from rl_qg.runtime.files import read_json, write_json
from rl_qg.stats.intervals import PassageDraws, estimate

ARMS = ("rules", "pipeline", "pipeline-twice", "multitask", "end2end")
NOT_RUN = "not run"
PARTS = {"precision": "P", "recall": "R", "f1": "F1", "one_to_one_f1": "one-to-one F1"}


def passages_of(path: Path) -> list[dict[str, Any]]:
    """The pairs of each passage, and the seconds that they took."""
    return [row for _, _, row in json_line_rows(path)]


def oracle(passages: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the embedded corpus, over the pairs of each passage: the share that asks for the fact of its answer, and how
    many different answers have such a question; a pair whose answer is no fact of the passage is not right.
    """
    shares, found = [], []
    for row in passages:
        right = set()
        verdicts = []
        for pair in row["pairs"]:
            answer = Answer(pair["answer"], pair["answer_start"])
            judged = examine(pair["question"], QAExample("", "", row["context"], "", (answer,)))
            verdicts.append(judged is not None and judged.verdict == "right")
            right |= {(answer.text, answer.start)} if verdicts[-1] else set()
        shares.append(mean(verdicts) if verdicts else float("nan"))
        found.append(float(len(right)))
    return {"right": _interval(shares), "right answers a passage": _interval(found)}


def _interval(values: list[float]) -> dict[str, Any]:
    draws = PassageDraws(range(len(values)), resamples=1000)
    return estimate(draws.means(values), len(values), passages=len(values)).to_dict()


def arm_of(folder: Path, arm: str, is_world: bool) -> dict[str, Any]:
    """What is known of one arm and one seed."""
    known: dict[str, Any] = {}
    pairs = folder / arm / "held-out.jsonl"
    if pairs.exists():
        passages = passages_of(pairs)
        known["seconds a passage"] = mean(row["seconds"] for row in passages)
        known["pairs a passage"] = mean(len(row["pairs"]) for row in passages)
        known |= {"oracle": oracle(passages)} if is_world else {}
    metrics = folder / "readers" / arm / "qa_metrics.json"
    if metrics.exists():
        known["reader"] = {name: read_json(metrics)[name] for name in ("exact_match", "f1")}
    return known


def collect(folder: Path, is_world: bool) -> dict[str, Any]:
    """All arms of one seed."""
    further = sorted(path.name for path in folder.glob("*+*") if path.is_dir())
    arms = {arm: arm_of(folder, arm, is_world) for arm in ("human", *ARMS, *further)}
    evaluation = folder / "evaluation" / "evaluate.json"
    record = read_json(evaluation) if evaluation.exists() else {"scores": [], "tests": [], "counts": {}}
    for row in record["scores"]:
        cells = {key: row[key] for key in ("value", "low", "high") if key in row}
        arms[row["predictions"]].setdefault("scores", {})[f"{row['metric']}, {row['part']}"] = cells
    return {"arms": arms, "tests": record["tests"], "counts": record["counts"], "signatures": record.get("signatures")}


def table(record: Mapping[str, Any], metrics: list[str], is_world: bool) -> list[dict[str, str]]:
    rows = []
    for arm, known in record["arms"].items():
        scores, reader = known.get("scores", {}), known.get("reader")
        row = {"way": arm}
        for metric in metrics:
            for part, name in PARTS.items():
                row[f"{metric} {name}"] = _cell(scores.get(f"{metric}, {part}"), arm)
        row["exact answers P"] = _cell(scores.get("exact answers, precision"), arm)
        row["exact answers R"] = _cell(scores.get("exact answers, recall"), arm)
        row["distinct questions"] = _cell(scores.get("distinct questions, share"), arm)
        if is_world:
            row["right"] = _cell(known.get("oracle", {}).get("right"), arm)
            row["right answers a passage"] = _cell(known.get("oracle", {}).get("right answers a passage"), arm)
        for name in ("pairs a passage", "seconds a passage"):
            row[name] = f"{known[name]:.2f}" if name in known else _missing(arm)
        row["reader EM"] = f"{reader['exact_match']:.1f}" if reader else NOT_RUN
        row["reader F1"] = f"{reader['f1']:.1f}" if reader else NOT_RUN
        rows.append(row)
    return rows


def _cell(statistic: Mapping[str, Any] | None, arm: str) -> str:
    return _missing(arm) if statistic is None else estimate_text(statistic)


def _missing(arm: str) -> str:
    return "" if arm == "human" else NOT_RUN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--setting", choices=("world", "squad"), default="world")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    is_world = given.setting == "world"
    folders = sorted((given.runs / given.setting).glob("seed-*"))
    seeds = {folder.name: collect(folder, is_world) for folder in folders}
    write_json(given.output / f"{given.setting}.json", seeds)
    parts = [f"# {given.setting}"]
    for name, record in seeds.items():
        scored = dict.fromkeys(row["metric"] for row in record["tests"])
        metrics = [metric for metric in scored if " " not in metric] or ["rouge_l"]
        differences = [
            {
                "measure": f"{row['metric']} {PARTS.get(row['part'], row['part'])}",
                "ways": f"{row['predictions']} − {row['against']}",
                "difference": estimate_text(row, signed=True),
                "p (Holm)": f"{row['p_holm']:.4f}" if row.get("p_holm") is not None else "",
            }
            for row in record["tests"]
            if row["part"] in (*PARTS, "share")
        ]
        parts += [f"## {name}", text_table(table(record, metrics, is_world))]
        parts += ["Differences:", text_table(differences)] if differences else ["Differences: not run."]
    (given.output / f"{given.setting}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
