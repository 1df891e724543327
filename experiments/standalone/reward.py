"""What `standalone` as a gate of the reward does on real text.

    python experiments/standalone/reward.py --shared ../shared --runs runs/real-domains/reddit/1 \
        --output experiments/standalone/reward.json

RUNS has `ARM.questions.json` of each arm, as experiments/real-domains/run.py and measure.py write them. Of each arm
and of people: the share of questions that stand alone and the reciprocal rank of their passage by BM25 among all of
the domain, ROUGE-L, form and another reader's round trip, with intervals over passages; and the gated arm with
`standalone` minus the others.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from run import RESAMPLES, SEED, SHIFTS, entry, squad

import rewards
from rl_qg.runtime.files import read_json, write_json
from rl_qg.stats.intervals import SHARE, PassageDraws, mean_interval, paired_interval

ARMS = ("ce", "ce-continued", "scst-gated", "scst-standalone")
LAST, PEOPLE, JUDGE = ARMS[-1], "human", "judge"


def values_of(rows: list[dict[str, Any]], who: str, passages: list[str]) -> dict[str, np.ndarray]:
    questions, contexts = [row[who] for row in rows], [row["context"] for row in rows]
    given = {"contexts": contexts, "answers": [row["answer"] for row in rows]}
    alone = rewards.Standalone().score(questions)
    found = {
        "standalone": alone.scores,
        **{f"refused by {name}": [1 - value for value in values] for name, values in alone.parts.items()},
        "reciprocal rank": rewards.Retrievability(passages, engine="bm25").score(questions, contexts).scores,
        "form": rewards.load("form").score(questions, **given).scores,
        "round trip": [row["exact"][who][JUDGE] for row in rows],
    }
    if who != PEOPLE:
        references = [[row[PEOPLE]] for row in rows]
        found["rouge_l"] = rewards.load("rouge_l").score(questions, references=references).scores
    return {name: np.array(values, dtype=float) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("shared", "runs", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--domain", choices=SHIFTS, default="reddit")
    given = parser.parse_args()
    human = squad(given.shared / f"data/squadshifts/{SHIFTS[given.domain]}_v1.0.json.gz")
    passages = list(dict.fromkeys(row["context"] for row in human))
    files = {arm: read_json(given.runs / f"{arm}.questions.json") for arm in ARMS}
    values = {arm: values_of(rows, arm, passages) for arm, rows in files.items()}
    values[PEOPLE] = values_of(files[LAST], PEOPLE, passages)
    draws = PassageDraws([row["context"] for row in files[LAST]], resamples=RESAMPLES, seed=SEED)
    write_json(
        given.output,
        {
            "questions": len(files[LAST]),
            "arms": {
                arm: {name: entry(mean_interval(one, draws, bounds=SHARE)) for name, one in of_arm.items()}
                for arm, of_arm in values.items()
            },
            f"{LAST} minus": {
                arm: {
                    name: entry(paired_interval(one, values[arm][name], draws)) for name, one in values[LAST].items()
                }
                for arm in ARMS[:-1]
            },
        },
    )


if __name__ == "__main__":
    main()
