"""Is a generator of sets better, or does it only write fewer questions? Multi-ROUGE-L of the first n of each set.

python experiments/sets/capped.py --run runs/sets/squad/seed-1 --references runs/sets/squad/data/held-out.json \
    --output experiments/sets/capped.md
"""

import argparse
from pathlib import Path
from statistics import mean

import numpy as np
from make_sets import human_questions

from rewards import load, match_sets
from rewards.sets import self_bleu
from rl_qg.data.formats import json_line_rows
from rl_qg.pages.results import estimate_text, text_table
from rl_qg.stats.intervals import PassageDraws, estimate

BASE = "paragraph-one2many"
WAYS = ("ce-continued", "scst-whole", "scst-marginal", "scst-to-go")
FIRST = (2, 3, 4, None)


def sets_of(path: Path) -> dict[str, list[str]]:
    """The questions of each passage, in the order in which they were written."""
    return {
        row["context"]: [one if isinstance(one, str) else one["question"] for one in row["questions"]]
        for _, _, row in json_line_rows(path)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    references = human_questions(given.references)
    written = {way: sets_of(given.run / "sets" / f"{BASE}-{way}" / "all.jsonl") for way in WAYS}
    draws, metric = PassageDraws([*references]), load("rouge_l")
    rows, differences = [], []
    for first in FIRST:
        f1 = {}
        for way, sets in written.items():
            questions = [sets.get(context, [])[:first] for context in references]
            scores = match_sets(metric, questions, [*references.values()])
            f1[way] = np.array(scores.f1)
            rows.append(
                {
                    "first": str(first or "all"),
                    "way": way,
                    "questions": f"{mean(map(len, questions)):.2f}",
                    "Multi-ROUGE-L": f"{mean(scores.f1):.3f}",
                    "P": f"{mean(scores.precision):.3f}",
                    "R": f"{mean(scores.recall):.3f}",
                    "Self-BLEU2": f"{mean(self_bleu(questions)):.3f}",
                }
            )
        for way in WAYS[1:]:
            values = f1[way] - f1[WAYS[0]]
            interval = estimate(draws.means(values), len(values), passages=len(values)).to_dict()
            difference = {"difference": estimate_text(interval, signed=True)}
            differences.append({"first": str(first or "all"), "ways": f"{way} − {WAYS[0]}", **difference})
    parts = ["# The first questions of each set", text_table(rows), "Differences of Multi-ROUGE-L, same passages:"]
    given.output.write_text("\n\n".join([*parts, text_table(differences)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
