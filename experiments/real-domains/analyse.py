"""Compare the arms of `run.py`: means over the questions that judge, and differences with their intervals.

    python experiments/real-domains/analyse.py --runs runs/real-domains --reader READER \
        --output experiments/real-domains/results.json

Intervals resample passages, and seeds where an arm has several; a difference is over the seeds that both arms have.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rewards
from rl_qg.asking.models import reader_path
from rl_qg.runtime.files import read_json, write_json
from rl_qg.stats.intervals import PassageDraws, seed_interval

ARMS = ("ce", "ce-continued", "best-of-n", "scst-reader", "scst-gated")
CONTROLS = ("ce-continued", "best-of-n")


def values_of(rows: Sequence[Mapping[str, str]], arm: str, reader: rewards.ReaderScore) -> dict[str, list[float]]:
    """The measures of an arm that each question has by itself."""
    questions, references = [row[arm] for row in rows], [[row["human"]] for row in rows]
    given = {"contexts": [row["context"] for row in rows], "answers": [row["answer"] for row in rows]}
    return {
        "rouge_l": rewards.load("rouge_l").score(questions, references=references).scores,
        "meteor": rewards.load("meteor").score(questions, references=references).scores,
        "form": rewards.load("form").score(questions, **given).scores,
        "round_trip": reader.score(questions, **given).scores,
    }


def estimate(values: Sequence[NDArray[np.float64]], groups: Sequence[str]) -> dict[str, float]:
    """The mean of a table of seeds by questions, with its interval."""
    table, draws = np.array(values), PassageDraws(groups, seeds=len(values))
    found = seed_interval(draws.means_over_seeds(table), table, draws)
    return {"mean": found.mean, "low": found.low, "high": found.high, "seeds": len(values)}


def compared(folder: Path, reader: rewards.ReaderScore) -> dict[str, Any]:
    """The arms of one domain, and SCST against the controls."""
    seeds = sorted(path.name for path in folder.iterdir() if path.is_dir())
    arms: dict[str, dict[str, dict[str, NDArray[np.float64]]]] = {}  # arm, seed, measure
    summaries: dict[str, Any] = {}
    groups: list[str] = []
    for seed in seeds:
        for arm in ARMS:
            path = folder / seed / f"{arm}.questions.json"
            if path.exists():
                rows = read_json(path)
                groups = [row["context"] for row in rows]
                found = values_of(rows, arm, reader)
                arms.setdefault(arm, {})[seed] = {name: np.array(values) for name, values in found.items()}
                table = read_json(folder / seed / f"{arm}.json")["measures"]
                summaries.setdefault(arm, {})[seed] = table[arm]
                summaries.setdefault("human", {})[seed] = table["human"]
    result: dict[str, Any] = {"questions": len(groups), "passages": len(set(groups)), "measures": summaries}
    for arm, of_seeds in arms.items():
        measures = next(iter(of_seeds.values()))
        entry = {name: estimate([of_seeds[seed][name] for seed in of_seeds], groups) for name in measures}
        for control in CONTROLS:
            both = [seed for seed in of_seeds if seed in arms.get(control, {})]
            if arm.startswith("scst") and both:
                entry[f"over {control}"] = {
                    name: estimate([of_seeds[s][name] - arms[control][s][name] for s in both], groups)
                    for name in measures
                }
        result.setdefault("arms", {})[arm] = entry
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    reader = rewards.ReaderScore(reader_path(given.reader), measure="exact_match", max_length=256, stride=64)
    domains = [given.runs / name for name in ("new_wiki", "reddit") if (given.runs / name).is_dir()]
    write_json(given.output, {folder.name: compared(folder, reader) for folder in domains})


if __name__ == "__main__":
    main()
