"""Write the tables of `results.json`: means over seeds, and what SCST adds to each control.

    python experiments/learning-by-reward/analyse.py

A seed has its own training passages, labelled passages, judging passages, generators and readers. So the seeds are the
units: intervals are Student's over them, and hold what passages, training and readers vary together. p-values are of
paired t-tests over seeds, corrected by Holm over all differences of the file.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from rl_qg.runtime.files import read_json, write_json
from rl_qg.stats.intervals import holm

SHARES = ("right", "wrong_relation", "other_subject", "invented_name", "wrong_detail", "ambiguous", "ill_formed")
MEASURES = (
    *SHARES,
    "unsupported",
    "no_subject",
    "bleu4",
    "rouge_l",
    "round_trip",
    "distinct_2",
    "copy_rate",
    "length_words",
    "f1",
)
TESTED = ("right", "rouge_l", "round_trip", "f1")
CONTROLS = ("ce", "ce-continued", "ce-each-epoch", "best-of-n")
IN_PERCENT = (*SHARES, "unsupported", "no_subject", "rouge_l", "round_trip", "f1")


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean and 95 % interval by Student's t over the seeds; the mean alone of two, whose interval says nothing."""
    found = {"mean": float(np.mean(values)), "seeds": len(values)}
    if len(values) > 2:
        spread = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
        found |= {"low": found["mean"] - float(spread), "high": found["mean"] + float(spread)}
    return found


def summarise(runs: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """The measures of each arm over the seeds that have it, and paired differences to the controls."""
    arms = list(dict.fromkeys(arm for seed in runs.values() for arm in seed))
    summary: dict[str, Any] = {}
    for arm in arms:
        rows = [seed[arm] for seed in runs.values() if arm in seed]
        summary[arm] = {key: interval([row[key] for row in rows]) for key in MEASURES if all(key in r for r in rows)}
    differences: dict[str, Any] = {}
    for arm in arms:
        for control in (*CONTROLS, "scst"):
            if arm in (*CONTROLS, "gold", control) or control not in arms:
                continue
            pairs = [(seed[arm], seed[control]) for seed in runs.values() if arm in seed and control in seed]
            for key in TESTED:
                gaps = [a[key] - b[key] for a, b in pairs if key in a and key in b]
                if gaps:
                    found: dict[str, Any] = interval(gaps)
                    if len(gaps) > 2:
                        found["p"] = float(stats.ttest_1samp(gaps, 0).pvalue)
                    differences.setdefault(f"{arm} - {control}", {})[key] = found
    return {"arms": summary, "differences": differences}


def correct(summaries: Mapping[str, Any]) -> int:
    """Add `p_holm` to every difference with a p-value; return how many there are."""
    tested = [
        entry
        for summary in summaries.values()
        for difference in summary["differences"].values()
        for entry in difference.values()
        if "p" in entry
    ]
    for entry, p in zip(tested, holm([entry["p"] for entry in tested]), strict=True):
        entry["p_holm"] = p
    return len(tested)


def tables(fraction: str, summary: Mapping[str, Any]) -> str:
    """The generators, then the differences, as Markdown."""
    arms = summary["arms"]
    shown = [key for key in MEASURES if any(key in arm for arm in arms.values())]
    lines = [f"\n## {100 * float(fraction):g} % labelled\n", "| generator | seeds | " + " | ".join(shown) + " |"]
    lines.append("| --- " * (len(shown) + 2) + "|")
    for name, arm in arms.items():
        seeds = max(entry["seeds"] for entry in arm.values())
        cells = [text(key, arm.get(key), whole=key in TESTED) for key in shown]
        lines.append("| " + " | ".join([name, str(seeds), *cells]) + " |")
    lines += ["", "| difference | " + " | ".join(TESTED) + " |", "| --- " * (len(TESTED) + 1) + "|"]
    for name, difference in summary["differences"].items():
        cells = [text(key, difference.get(key), whole=True, sign="+") for key in TESTED]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def text(key: str, entry: Mapping[str, float] | None, *, whole: bool, sign: str = "") -> str:
    """A mean, with its interval and corrected p-value where `whole`; shares in percent."""
    if entry is None:
        return ""
    scale, digits = (100, 1) if key in IN_PERCENT else (1, 1 if key == "length_words" else 3)
    found = f"{scale * entry['mean']:{sign}.{digits}f}"
    if whole and "low" in entry:
        found += f" [{scale * entry['low']:{sign}.{digits}f}, {scale * entry['high']:{sign}.{digits}f}]"
    return found + (f", p {entry['p_holm']:.2g}" if "p_holm" in entry else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results.json"))
    given = parser.parse_args()
    record = read_json(given.results)
    summaries = {
        name: summarise(runs) for name, runs in sorted(record["runs"].items(), key=lambda item: float(item[0]))
    }
    count = correct(summaries)
    write_json(given.results, record | {"summary": summaries, "tests": count})
    note = f"# Tables\n\n95 % intervals: Student's t over seeds. p: paired t-tests over seeds, by Holm over {count}.\n"
    given.results.with_name("tables.md").write_text(
        note + "\n".join(tables(name, summary) for name, summary in summaries.items()) + "\n"
    )


if __name__ == "__main__":
    main()
