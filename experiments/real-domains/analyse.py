"""Compare the arms of `run.py`: means over the questions that judge, and differences with their intervals.

    python experiments/real-domains/analyse.py --runs runs/real-domains --output experiments/real-domains/results.json

Intervals resample passages, and seeds where an arm has several; a difference is over the seeds that both arms have.
Domains without runs keep the results that the file has.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rewards
from rl_qg.runtime.files import read_json, write_json
from rl_qg.stats.intervals import PassageDraws, seed_interval

Values = dict[str, dict[str, dict[str, NDArray[np.float64]]]]  # by measure, arm and seed
DOMAINS = ("new_wiki", "reddit", "amazon")
CONTROLS = ("ce-continued", "best-of-n")
ROUND_TRIPS = {"judge": "round_trip", "reader": "round_trip_of_reward"}  # exact matches by each reader


def values_of(rows: Sequence[Mapping[str, Any]], arm: str) -> dict[str, list[float]]:
    """The measures of an arm that each question has by itself."""
    questions, references = [row[arm] for row in rows], [[row["human"]] for row in rows]
    given = {"contexts": [row["context"] for row in rows], "answers": [row["answer"] for row in rows]}
    return {
        "rouge_l": rewards.load("rouge_l").score(questions, references=references).scores,
        "meteor": rewards.load("meteor").score(questions, references=references).scores,
        "form": rewards.load("form").score(questions, **given).scores,
        **{name: [row["exact"][arm][reader] for row in rows] for reader, name in ROUND_TRIPS.items()},
    }


def estimate(values: Sequence[NDArray[np.float64]], groups: Sequence[str]) -> dict[str, float | None]:
    """The mean of a table of seeds by questions, with its interval."""
    table, draws = np.array(values), PassageDraws(groups, seeds=len(values))
    found = seed_interval(draws.means_over_seeds(table), table, draws)
    return {"mean": found.mean, "low": found.low, "high": found.high, "seeds": len(values)}


def values_of_arms(folder: Path) -> tuple[Values, dict[str, Sequence[str]]]:
    """By measure, arm and seed the value of each question, and by measure the passage of each question."""
    values: Values = {}
    passages: dict[str, Sequence[str]] = {}
    for path in sorted(folder.glob("*/*.questions.json")):
        rows, arm = read_json(path), path.name.removesuffix(".questions.json")
        for name, found in values_of(rows, arm).items():
            values.setdefault(name, {}).setdefault(arm, {})[path.parent.name] = np.array(found)
            passages[name] = [row["context"] for row in rows]
    for path in sorted(folder.glob("*/*-reader/question_scores.json")):
        of_questions, arm = read_json(path).values(), path.parent.name.removesuffix("-reader")
        taught = values.setdefault("taught_f1", {}).setdefault(arm, {})
        taught[path.parents[1].name] = np.array([one["f1"] for one in of_questions])
        passages["taught_f1"] = [one["passage"] for one in of_questions]
    return values, passages


def compared(folder: Path) -> dict[str, Any]:
    """The arms of one domain, and SCST against the controls."""
    values, passages = values_of_arms(folder)
    result: dict[str, Any] = {"questions": len(passages["rouge_l"]), "passages": len(set(passages["rouge_l"]))}
    for path in sorted(folder.glob("*/*.questions.json")):
        arm, seed = path.name.removesuffix(".questions.json"), path.parent.name
        table = read_json(path.with_name(f"{arm}.json"))["measures"]
        for name in (arm, "human"):
            result.setdefault("measures", {}).setdefault(name, {})[seed] = table[name]
    for measure, arms in values.items():
        for arm, of_seeds in arms.items():
            entry = result.setdefault("arms", {}).setdefault(arm, {})
            entry[measure] = estimate([*of_seeds.values()], passages[measure])
            for control in CONTROLS if arm.startswith("scst") else ():
                other = arms.get(control, {})
                if both := [values - other[seed] for seed, values in of_seeds.items() if seed in other]:
                    entry.setdefault(f"over {control}", {})[measure] = estimate(both, passages[measure])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    folders = [given.runs / name for name in DOMAINS if (given.runs / name).is_dir()]
    known = read_json(given.output) if given.output.exists() else {}
    write_json(given.output, known | {folder.name: compared(folder) for folder in folders})


if __name__ == "__main__":
    main()
