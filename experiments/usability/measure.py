"""How well `usability` tells usable pairs from others: on readings that were held out, and on people's judgements.

    python experiments/usability/measure.py --shared ../shared --output experiments/usability/results.json

Measured is the area under the ROC curve (0.5: chance), with an interval over texts, and what is usable among the best
pairs of each held-out document, one for an answer, as `rl-qg ask` scores them with and without usability.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from texts import lines
from train import USABLE, readings

import rewards
from rl_qg.asking.models import PACKAGED_SCORE, reader_path
from rl_qg.asking.selection import POWERS
from rl_qg.runtime.files import write_json
from rl_qg.stats.correlation import auc_draws
from rl_qg.stats.intervals import PassageDraws, interval_ends

BEST = 10  # pairs of a document
TRIED = (0.25, 0.5, 0.75, 1.0)  # powers of usability
QGEVAL = ("fluency", "clarity", "answerability", "answer_consistency")
Row = Mapping[str, Any]


def area(values: Sequence[float], good: Sequence[bool], texts: Sequence[str]) -> dict[str, float]:
    """The area under the ROC curve, with an interval over texts."""
    draws = PassageDraws(texts)
    areas = auc_draws(np.array(values), np.array(good), draws, np.arange(len(good)))
    low, high = interval_ends(areas, draws.units_of())
    return {"mean": float(areas[0]), "low": low, "high": high, "pairs": len(good), "usable": sum(good)}


def best_of_documents(rows: Sequence[Row], values: Sequence[float]) -> dict[str, int]:
    """Usable pairs among the best of each text, at most one for an answer."""
    given = usable = 0
    for text in dict.fromkeys(row["text"] for row in rows):
        order = sorted((at for at, row in enumerate(rows) if row["text"] == text), key=lambda at: -values[at])
        first = {tuple(rows[at]["answer_place"]): at for at in reversed(order)}
        best = sorted(first.values(), key=lambda at: -values[at])[:BEST]
        given, usable = given + len(best), usable + sum(rows[at]["grade"] >= USABLE for at in best)
    return {"given": given, "usable": usable}


def above(values: Sequence[float], usable: Sequence[bool], limit: float) -> dict[str, float]:
    """How many pairs have such a score, the share of these that is usable, and that of the others."""
    high, good = np.array(values) >= limit, np.array(usable)
    return {"pairs": int(high.sum()), "usable": float(good[high].mean()), "usable_others": float(good[~high].mean())}


def held_out(rows: Sequence[Row], metric: Any) -> dict[str, Any]:
    given = {"contexts": [row["passage"] for row in rows], "answers": [row["answer"] for row in rows]}
    usability = metric.score([row["question"] for row in rows], **given).scores
    before = [row["score"] for row in rows]
    after = [score * value ** POWERS["usability"] for score, value in zip(before, usability, strict=True)]
    powers = {str(power): [old * new**power for old, new in zip(before, usability, strict=True)] for power in TRIED}
    usable, of_texts = [row["grade"] >= USABLE for row in rows], [row["text"] for row in rows]
    found: dict[str, Any] = {
        "areas_by_power": {name: area(values, usable, of_texts) for name, values in powers.items()}
    }
    found["above_limit"] = {"before": above(before, usable, 0.65), "after": above(after, usable, PACKAGED_SCORE)}
    for kind, kept in {"documents": True, "outside": False}.items():
        places = [at for at, row in enumerate(rows) if (row["kind"] == "document") is kept]
        if not places:  # the third round has documents alone
            continue
        chosen = [rows[at] for at in places]
        good, texts = [row["grade"] >= USABLE for row in chosen], [row["text"] for row in chosen]
        found[kind] = {
            name: area([values[at] for at in places], good, texts)
            | ({"best": best_of_documents(chosen, [values[at] for at in places])} if kept else {})
            for name, values in (("before", before), ("usability", usability), ("after", after))
        }
    return found


def teachers(shared: Path, metric: Any) -> dict[str, float]:
    """Questions of seven systems that teachers would keep in a quiz, or not (Laban et al. 2022)."""
    groups = list(lines(shared / "data/quiz_design/groups.jsonl.gz"))
    rows = [(group, one) for group in groups for one in group["questions"]]
    given = {
        "contexts": [group["context"] for group, _ in rows],
        "answers": [group["answer_span"] for group, _ in rows],
    }
    values = metric.score([one["question"] for _, one in rows], **given).scores
    texts = [f"{group['doc_id']} {group['answer_span']}" for group, _ in rows]
    return area(values, [one["label"] == 1 for _, one in rows], texts)


def qgeval(shared: Path, metric: Any) -> dict[str, float]:
    """Spearman's correlation with the ratings of three annotators of 15 systems (Fu et al. 2024)."""
    passages = {row["id"]: row for row in lines(shared / "data/qgeval/passages.jsonl")}
    rows = list(lines(shared / "data/qgeval/questions.jsonl.gz"))
    given = {
        name: [passages[row["id"]][field] for row in rows]
        for name, field in (("contexts", "passage"), ("answers", "answer"))
    }
    ranks = rankdata(metric.score([row["prediction"] for row in rows], **given).scores)
    return {name: float(np.corrcoef(ranks, rankdata([row["human"][name] for row in rows]))[0, 1]) for name in QGEVAL}


def counts(rows: Sequence[Row]) -> dict[str, int]:
    grades = [row["grade"] for row in rows]
    return {"pairs": len(grades)} | {str(grade): grades.count(grade) for grade in sorted(set(grades))}


def agreement(rows: Sequence[Row]) -> dict[str, float]:
    """Of two readings of the same pairs."""
    rows = [row for row in rows if "again" in row]
    first, second = (np.array([row[name] >= USABLE for row in rows]) for name in ("grade", "again"))
    chance = first.mean() * second.mean() + (1 - first.mean()) * (1 - second.mean())
    alike = (first == second).mean()
    return {"pairs": len(rows), "agreement": float(alike), "kappa": float((alike - chance) / (1 - chance))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--model", default="packaged:english/reader")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    metric = rewards.load("usability", model=reader_path(given.model))
    rounds: dict[int, list[Row]] = {}
    for row in readings(given.shared):
        rounds.setdefault(row["round"], []).append(row)
    write_json(
        given.output,
        {
            "rounds": {str(number): counts(rows) for number, rows in rounds.items()},
            "agreement": {
                str(number): agreement(rows) for number, rows in rounds.items() if any("again" in row for row in rows)
            },
            "held_out": {
                str(number): held_out([row for row in rows if row["held_out"]], metric)
                for number, rows in rounds.items()
            },
            "teachers": teachers(given.shared, metric),
            "qgeval": qgeval(given.shared, metric),
        },
    )


if __name__ == "__main__":
    main()
