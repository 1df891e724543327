"""The tables of the README, from what `run.py` and `published.py` wrote.

python experiments/meta-evaluation/tables.py --runs DIR --published published.json --output DIR
"""

import argparse
import csv
import json
import shutil
from pathlib import Path
from typing import Any

from rl_qg.pages.results import estimate_text, p_text, text_table

Row = dict[str, Any]
KEYPHRASES = [("correctness", f"{name}_kpqa", f"{name}_kp") for name in ("bleu1", "rouge_l", "bertscore")]
QUOTED = {
    "answerability": [("answerability", one, "answerability") for one in ("q_bleu1", "q_meteor")]
    + [("answerability", "bertscore", "q_bleu1")],
    "kpqa_marco": [("correctness", "answerability", "bleu4"), *KEYPHRASES],
    "kpqa_avsd": [("correctness", "answerability", "bleu1"), *KEYPHRASES],
    "simqg": [("similar", "bertscore", "bleu1")],
    "lmqg_human": [("correctness", "bertscore", other) for other in ("chrf", "bleu4", "moverscore2")],
}


def by_criterion(record: Row, level: str, coefficient: str) -> list[dict[str, str]]:
    """One row for each metric, one column for each criterion; * as `rl-qg correlate` gives it."""
    rows: dict[str, dict[str, str]] = {}
    best = {
        row["criterion"]: row["metrics"]
        for row in record["best"]
        if (row["level"], row["coefficient"]) == (level, coefficient)
    }
    for row in record["correlations"]:
        if (row["level"], row["coefficient"]) == (level, coefficient):
            star = " *" if row["metric"] in best.get(row["criterion"], ()) else ""
            line = rows.setdefault(row["metric"], {"metric": row["metric"]})
            line[row["criterion"]] = estimate_text(row, 2) + star
    return list(rows.values())


def areas(record: Row) -> list[dict[str, str]]:
    """AUC and pairs alike, best first."""
    alike = {row["metric"]: row for row in record["win_loss"]}
    rows = sorted(record["auc"], key=lambda row: -(row["value"] or 0))
    return [
        {"metric": row["metric"], "AUC": estimate_text(row), "pairs alike": estimate_text(alike[row["metric"]])}
        for row in rows
    ]


def differences(path: Path, pairs: list[tuple[str, str, str]]) -> str:
    """Differences of τ-b over questions that the README speaks of."""
    with path.open(encoding="utf-8") as stream:
        found = [
            row for row in csv.DictReader(stream) if (row["level"], row["coefficient"]) == ("question", "kendall")
        ]
    rows = []
    for criterion, *names in pairs:
        for row in found:
            if row["criterion"] == criterion and {row["metric"], row["against"]} == set(names):
                value, low, high, p, corrected = (float(row[key]) for key in ("value", "low", "high", "p", "p_holm"))
                shown = estimate_text({"value": value, "low": low, "high": high}, 3, signed=True)
                pair = f"{row['metric']} − {row['against']}"
                rows.append(
                    {
                        **{"criterion": criterion, "pair": pair, "difference": shown},
                        **{"p": p_text(p), "p (Holm, all pairs)": p_text(corrected)},
                    }
                )
    return text_table(rows) + "\n"


def published(record: Row) -> str:
    kpqa = [
        {
            **{"data": row["data"], "metric": row["metric"], "references": str(row["references"])},
            **{f"{name} published": str(row["published"][place]) for place, name in enumerate(("r", "ρ"))},
            **{f"{name} here": f"{row['got'][place]:.3f}" for place, name in enumerate(("r", "ρ"))},
            "difference": f"{max(abs(a - b) for a, b in zip(row['got'], row['published'], strict=True)):.3f}",
        }
        for row in record["kpqa"]
    ]
    single = [
        {
            **{"data": row["data"], "metric": row["metric"], "equal": f"{row['equal']:,} of {row['questions']:,}"},
            **{"share": f"{row['share']:.2%}", "within 0.02": f"{row['within_0.02']:.2%}"},
            **{"mean gap": f"{row['mean_gap']:.4f}", "signature": f"`{row['signature']}`"},
        }
        for row in [*record["qgeval"], *record["lmqg_human"]]
    ]
    return f"## KPQA, Table 3\n\n{text_table(kpqa)}\n\n## Values of single questions\n\n{text_table(single)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    results = given.output / "results"
    results.mkdir(parents=True, exist_ok=True)
    parts = []
    if given.published.exists():
        record = json.loads(given.published.read_text(encoding="utf-8"))
        parts.append(published(record))
        shutil.copy(given.published, results / "published.json")
    for path in sorted(given.runs.glob("*/correlate.json")):
        name, record = path.parent.name, json.loads(path.read_text(encoding="utf-8"))
        counts = record["counts"]
        parts.append(
            f"## {name}\n\n{counts['questions']:,} questions, {counts['passages']:,} passages, {counts['systems']} "
            f"systems. τ-b over questions:\n\n{text_table(by_criterion(record, 'question', 'kendall'))}\n"
        )
        if name in QUOTED:
            parts.append(differences(path.parent / "tables" / "differences.csv", QUOTED[name]))
        if record["auc"]:
            parts.append(f"{text_table(areas(record))}\n")
        shutil.copy(path.with_suffix(".txt"), results / f"{name}.txt")
    (results / "tables.md").write_text("# Tables\n\n" + "\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
