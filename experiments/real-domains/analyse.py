"""Compare the arms of `run.py`: means over the questions that judge, and differences with their intervals.

    python experiments/real-domains/analyse.py --runs runs/real-domains --output experiments/real-domains/again.json

Intervals of `arms` resample passages, and seeds where an arm has several; a difference is over the seeds that both
arms have. Those of `over_seeds` are Student's; Holm's correction is over all its differences to the best control, of
all domains. What each question has by itself is kept in `values/DOMAIN.jsonl` beside the output, so that seeds of
later runs join those of earlier ones; without runs all is computed from what is kept.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp

import rewards
from rl_qg.runtime.files import read_json, read_json_lines, write_json, write_json_lines
from rl_qg.stats.intervals import PassageDraws, add_holm, mean_of_seeds, seed_interval
from rl_qg.text.question_types import TYPES, question_type

Values = dict[tuple[str, str, str], list[float]]  # of every question, by measure, arm and seed
PASSAGES = "passages"  # the name in place of an arm: the number of each question's passage
DOMAINS = ("new_wiki", "reddit", "amazon")
CONTROLS = ("ce", "ce-continued", "best-of-n")
OTHERS = ("scst-gated", "scst-gated-100")  # which SCST with another reward is compared with, too
BEST_CONTROL = "the best control"  # of each seed, by the measure that is compared
BY_SEED = ("rouge_l", "meteor", "form", "reader_exact_match", "bleu4")
SURFACE = ("bleu4", "unsupported", "copy_rate", "distinct_2", "repeated_3grams", "length_words")
ROUND_TRIPS = {"judge": "round_trip", "reader": "round_trip_of_reward"}  # exact matches by each reader


def values_of(rows: Sequence[Mapping[str, Any]], arm: str, encoder: str | None) -> dict[str, list[float]]:
    """The measures of an arm that each question has by itself; with an encoder BERTScore too."""
    questions, references = [row[arm] for row in rows], [[row["human"]] for row in rows]
    given = {"contexts": [row["context"] for row in rows], "answers": [row["answer"] for row in rows]}
    metrics = [rewards.load("rouge_l"), rewards.load("meteor")]
    if encoder:
        metrics.append(rewards.load("bertscore", model=encoder))
    return {
        **{metric.name: metric.score(questions, references=references).scores for metric in metrics},
        "form": rewards.load("form").score(questions, **given).scores,
        **{ROUND_TRIPS[reader]: [row["exact"][arm][reader] for row in rows] for reader in rows[0]["exact"][arm]},
    }


def numbers_of(passages: Sequence[str]) -> list[float]:
    numbers = {passage: float(number) for number, passage in enumerate(dict.fromkeys(passages))}
    return [numbers[passage] for passage in passages]


def values_of_runs(folder: Path, encoder: str | None) -> Values:
    values: Values = {}
    for path in sorted(folder.glob("*/*.questions.json")):
        rows, arm = read_json(path), path.name.removesuffix(".questions.json")
        for measure, found in values_of(rows, arm, encoder).items():
            values[measure, arm, path.parent.name] = [round(value, 4) for value in found]
            values[measure, PASSAGES, ""] = numbers_of([row["context"] for row in rows])
    for path in sorted(folder.glob("*/*-reader/question_scores.json")):
        of_questions, arm = list(read_json(path).values()), path.parent.name.removesuffix("-reader")
        values["taught_f1", arm, path.parents[1].name] = [round(one["f1"], 4) for one in of_questions]
        values["taught_f1", PASSAGES, ""] = numbers_of([one["passage"] for one in of_questions])
    return values


def joined(kept: Path, folder: Path, encoder: str | None) -> Values:
    """What the runs in `folder` have, with what `kept` has of others; written there."""
    known = [record for _, record in read_json_lines(kept)] if kept.exists() else []
    values = {(one["measure"], one["arm"], one["seed"]): one["values"] for one in known}
    values |= values_of_runs(folder, encoder)
    keys = ("measure", "arm", "seed")
    kept.parent.mkdir(exist_ok=True)
    write_json_lines(kept, [dict(zip(keys, key, strict=True)) | {"values": values[key]} for key in sorted(values)])
    return values


def estimate(table: Sequence[Sequence[float]], passages: Sequence[float]) -> dict[str, float | None]:
    """The mean of a table of seeds by questions, with its interval."""
    values, draws = np.array(table), PassageDraws(passages, seeds=len(table))
    found = seed_interval(draws.means_over_seeds(values), values, draws)
    return {"mean": found.mean, "low": found.low, "high": found.high, "seeds": len(table)}


def measures(folder: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """The measures of all questions of an arm together, by arm and seed."""
    found = {arm: dict(of_seeds) for arm, of_seeds in known.items()}
    for path in sorted(folder.glob("*/*.questions.json")):
        arm, seed = path.name.removesuffix(".questions.json"), path.parent.name
        table = read_json(path.with_name(f"{arm}.json"))["measures"]
        rows = read_json(path)
        asked = {name: Counter(question_type(row[name]) for row in rows) for name in (arm, "human")}
        for name, kinds in asked.items():
            table[name]["types"] = {kind: kinds[kind] / len(rows) for kind in TYPES}
            found.setdefault(name, {})[seed] = table[name]
    return found


def compared(values: Values) -> dict[str, Any]:
    """The arms of one domain, and SCST against the controls."""
    result: dict[str, Any] = {}
    for measure, arm in dict.fromkeys((measure, arm) for measure, arm, _ in values if arm != PASSAGES):
        passages = values[measure, PASSAGES, ""]
        of_seeds = {key[2]: found for key, found in values.items() if key[:2] == (measure, arm)}
        entry = result.setdefault(arm, {})
        entry[measure] = estimate([*of_seeds.values()], passages)
        for control in [one for one in (*CONTROLS, *OTHERS) if one != arm] if arm.startswith("scst") else ():
            pairs = [(found, values.get((measure, control, seed))) for seed, found in of_seeds.items()]
            if both := [np.subtract(found, other).tolist() for found, other in pairs if other is not None]:
                entry.setdefault(f"over {control}", {})[measure] = estimate(both, passages)
    return result


def over_seeds(of_arms: Mapping[str, Any]) -> dict[str, Any]:
    """Differences of the measures of each seed, with Student's interval over seeds; also of seeds without values."""
    found: dict[str, Any] = {}
    for arm in (arm for arm in of_arms if arm.startswith("scst")):
        controls = {control: of_arms[control] for control in CONTROLS if control in of_arms}
        known = [seed for seed in of_arms[arm] if all(seed in of_seeds for of_seeds in controls.values())]
        for measure in BY_SEED:
            best = {seed: {measure: max(one[seed][measure] for one in controls.values())} for seed in known}
            for control, others in {**controls, BEST_CONTROL: best}.items():
                both = {seed: of_arms[arm][seed][measure] - others[seed][measure] for seed in known}
                mean, low, high = mean_of_seeds([*both.values()])
                entry = {"mean": mean, "low": low, "high": high, "of_seeds": both}
                if len(both) > 1 and control == BEST_CONTROL:
                    entry["p"] = float(ttest_1samp([*both.values()], 0).pvalue)
                found.setdefault(arm, {}).setdefault(f"over {control}", {})[measure] = entry
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/real-domains"))
    parser.add_argument("--encoder", help="of BERTScore, such as that of run.py; without it there is none")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    results = read_json(given.output) if given.output.exists() else {}
    for domain in (name for name in DOMAINS if name in results or (given.runs / name).is_dir()):
        values = joined(given.output.parent / "values" / f"{domain}.jsonl", given.runs / domain, given.encoder)
        passages = values["rouge_l", PASSAGES, ""]
        of_arms = measures(given.runs / domain, results.get(domain, {}).get("measures", {}))
        results[domain] = {
            "questions": len(passages),
            "passages": len(set(passages)),
            "measures": of_arms,
            "arms": compared(values),
            "surface": {
                arm: {name: fmean(of_seed[name] for of_seed in of_seeds.values()) for name in SURFACE}
                for arm, of_seeds in of_arms.items()
            },
            "over_seeds": over_seeds(of_arms),
        }
    to_best = [arm[f"over {BEST_CONTROL}"] for found in results.values() for arm in found["over_seeds"].values()]
    add_holm([entry for of_measures in to_best for entry in of_measures.values()])
    write_json(given.output, results)


if __name__ == "__main__":
    main()
