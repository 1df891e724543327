"""The tables of `run.py`: `SETTING.json` with every number, and `SETTING.md` for people. What was not run is named.

python experiments/sets/tables.py --runs runs/sets --setting world --output experiments/sets
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.evaluation.sets import PARTS
from rl_qg.pages.results import estimate_text, p_text, text_table
from rl_qg.runtime.files import read_json, write_json
from rl_qg.stats.intervals import PassageDraws, difference, difference_p, estimate, holm

LEVELS = ("paragraph", "sentence", "type")
PAPER = {"Rand@k": "one2one-rand", "Top@1": "one2one-top1", "Rank@k": "one2one-rank", "one2many": "one2many-all"}
OURS = {
    "harmonic@k": "one2one-harmonic",
    "MMR@k": "one2one-mmr",
    "DPP@k": "one2one-dpp",
    "coverage@k": "one2one-coverage",
    "coverage, auto": "one2one-auto",
    "learned@k": "one2one-learned",
    "oracle@k": "one2one-oracle",
    "one2many, CE continued": "one2many-ce-continued-all",
    "one2many, SCST whole": "one2many-scst-whole-all",
    "one2many, SCST marginal": "one2many-scst-marginal-all",
    "one2many, SCST to go": "one2many-scst-to-go-all",
}
METRICS = {"coco_bleu4": "BLEU4", "meteor": "METEOR", "rouge_l": "R-L", "q_bleu1": "qB1"}
TESTED = (  # first minus second
    ("one2many-all", "one2one-rank"),
    ("one2many-all", "one2one-rand"),
    ("one2one-learned", "one2one-rand"),
    ("one2one-learned", "one2one-rank"),
    ("one2one-coverage", "one2one-rank"),
    ("one2many-scst-whole-all", "one2many-ce-continued-all"),
    ("one2many-scst-marginal-all", "one2many-ce-continued-all"),
    ("one2many-scst-to-go-all", "one2many-ce-continued-all"),
    ("one2many-scst-marginal-all", "one2many-scst-whole-all"),
    ("one2many-scst-to-go-all", "one2many-scst-whole-all"),
)
TESTED_METRICS = ("meteor", "rouge_l")
RESAMPLES = 1000


def values_of(record: Mapping[str, Any]) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """Every number of an evaluation by file, metric and part."""
    rows = [*record["sets"], *record["set_measures"]]
    return {(row["predictions"], row["metric"], row["part"]): row for row in rows}


def compact(known: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> dict[str, dict[str, list[float | None]]]:
    """For each file and measure the value and the ends of its interval."""
    files: dict[str, dict[str, list[float | None]]] = {}
    for (file, metric, part), row in known.items():
        numbers = [row.get(key) for key in ("value", "low", "high")]
        files.setdefault(file, {})[f"{metric}, {part}"] = [
            None if number is None else round(number, 5) for number in numbers
        ]
    return files


def of_passages(folder: Path, file: str, metric: str, part: str) -> np.ndarray | None:
    """The values of each passage, as the evaluation has kept them: a note, then a list of passages a line."""
    path = folder / "sets" / file / f"{metric}.jsonl"
    if not path.exists():
        return None
    batches = [json.loads(line)["scores"] for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return np.array([row[PARTS.index(part)] for batch in batches for row in batch])


def score_row(level: str, name: str, file: str, known: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> dict:
    def cell(metric: str, part: str, digits: int = 2, percent: float = 100.0) -> str:
        row = known.get((f"{level}-{file}", metric, part))
        if row is None:
            return ""
        scaled = {key: row[key] * percent for key in ("value", "low", "high") if row.get(key) is not None}
        return estimate_text({"value": None, "low": None, **scaled}, digits)

    return {
        "unit": level,
        "way": name,
        **{f"M-{short}": cell(metric, "f1", 1) for metric, short in METRICS.items()},
        **{short: cell(metric, "averaged", 1) for metric, short in METRICS.items()},
        "Self-BLEU2": cell("self-BLEU2", "mean", 1),
        "refs − questions": cell("references less questions", "mean", 2, 1.0),
        "absolute": cell("number of questions", "absolute difference", 2, 1.0),
        "r": cell("number of questions", "correlation", 2, 1.0),
        "sentences": cell("sentences", "coverage", 1),
        "distance of types": cell("nine types", "distance", 1),
        "repeated": cell("repeated questions", "share", 1),
        "R-L gap closed": cell("rouge_l", "gap closed", 1),
    }


def front(level: str, known: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> str:
    """The ways that no other beats in both Multi-ROUGE-L and Self-BLEU2, but for the oracle; most diverse first."""
    points = []
    for name, file in (PAPER | OURS).items():
        rows = [known.get((f"{level}-{file}", *key)) for key in (("rouge_l", "f1"), ("self-BLEU2", "mean"))]
        if "oracle" not in file and all(rows):
            points.append((rows[1]["value"], rows[0]["value"], name))
    best = [one for one in points if not any(o[0] <= one[0] and o[1] >= one[1] and o[:2] != one[:2] for o in points)]
    ways = ", ".join(f"{name} ({100 * alike:.1f}; {100 * quality:.1f})" for alike, quality, name in sorted(best))
    return f"Front of quality and diversity, {level} (Self-BLEU2; M-R-L): {ways}."


def tests(folder: Path, level: str) -> Iterator[dict[str, Any]]:
    """Paired differences of Multi-M (F1) over passages."""
    for first, second in TESTED:
        for metric in TESTED_METRICS:
            values = [of_passages(folder, f"{level}-{name}", metric, "f1") for name in (first, second)]
            if any(one is None for one in values):
                continue
            draws = PassageDraws(range(len(values[0])), resamples=RESAMPLES, seed=0)
            gap = difference(draws.means(values[0]), draws.means(values[1]))
            yield {
                "unit": level,
                "ways": f"{first} − {second}",
                "metric": metric,
                **estimate(gap, draws.passages, passages=draws.passages).to_dict(),
                "p": difference_p(gap, draws.passages),
            }


def seconds_of(folder: Path) -> list[dict[str, str]]:
    """What a set costs: writing the pool (with a reader where there is one), and selecting."""
    rows = []
    for pool in sorted(folder.glob("pools/*/held-out.jsonl")):
        lines = [json.loads(line) for line in pool.read_text(encoding="utf-8").splitlines()]
        path = folder / "sets" / pool.parent.name / "seconds.json"
        chosen = read_json(path) if path.exists() else {"passages": 1}
        slowest = max((value for key, value in chosen.items() if key != "passages"), default=0.0)
        rows.append(
            {
                "generator": pool.parent.name,
                "questions in the pool": f"{np.mean([len(line['questions']) for line in lines]):.1f}",
                "seconds a passage": f"{np.mean([line['seconds'] for line in lines]):.3f}",
                "slowest selection, seconds a passage": f"{slowest / chosen['passages']:.4f}",
            }
        )
    return rows


def type_table(known: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> list[dict[str, str]]:
    """The distribution of types of the human questions and of each file."""
    files = dict.fromkeys(file for file, metric, _ in known if metric == "nine types")
    return [
        {"file": file}
        | {
            part: f"{100 * row['value']:.1f}"
            for (name, metric, part), row in known.items()
            if name == file and metric == "nine types" and part != "distance" and row["value"] is not None
        }
        for file in files
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--setting", choices=("world", "squad"), default="world")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    parts, everything = [f"# {given.setting}"], {}
    for folder in sorted((given.runs / given.setting).glob("seed-*")):
        known: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        differences: list[dict[str, Any]] = []
        for level in LEVELS:
            path = folder / "evaluation" / level / "evaluate.json"
            if path.exists():
                record = read_json(path)
                known |= values_of(record)
                everything[f"{folder.name} {level}"] = {
                    key: record[key] for key in ("set_counts", "set_signatures", "set_measure_signatures")
                } | {"scores": compact(values_of(record))}
                differences += tests(path.parent, level)
        if differences:
            for row, corrected in zip(differences, holm([row["p"] or 1.0 for row in differences]), strict=True):
                row["p_holm"] = corrected
        everything[f"{folder.name} tests"] = differences
        ways = [(level, *way) for level in LEVELS for way in (PAPER | OURS).items()]
        run = [way for way in ways if (f"{way[0]}-{way[2]}", "rouge_l", "f1") in known]
        parts += [
            f"## {folder.name}",
            "Percent; differences and r as they are. Brackets: 95 % intervals over passages.",
        ]
        for title, names in (("The strategies of the paper:", PAPER), ("Ours, and the oracle:", OURS)):
            parts += [title, text_table([score_row(*way, known) for way in run if way[1] in names])]
        parts += [front(level, known) for level in LEVELS]
        missing = [f"{level} {name}" for level, name, _ in set(ways) - set(run)]
        parts += [f"Not run: {', '.join(sorted(missing))}."] if missing else []
        halves = [
            {"metric": metric} | {part: estimate_text(row) for part in PARTS if (row := _halves(known, metric, part))}
            for metric in METRICS
        ]
        parts += ["Half of the human questions against the other half (0 to 1):", text_table(halves)]
        shown = [
            {"unit": row["unit"], "ways": row["ways"], "metric": row["metric"]}
            | {"difference": estimate_text(row, signed=True), "p (Holm)": p_text(row["p_holm"])}
            for row in differences
        ]
        parts += (
            ["Differences of Multi-M, F1 (0 to 1), on the same passages:", text_table(shown)]
            if shown
            else ["Differences: not run."]
        )
        parts += [
            "Types of questions, percent:",
            text_table(type_table(known)),
            "Cost:",
            text_table(seconds_of(folder)),
        ]
    write_json(given.output / f"{given.setting}.json", everything)
    (given.output / f"{given.setting}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _halves(
    known: Mapping[tuple[str, str, str], Mapping[str, Any]], metric: str, part: str
) -> Mapping[str, Any] | None:
    return known.get(("human halves", metric, part))


if __name__ == "__main__":
    main()
