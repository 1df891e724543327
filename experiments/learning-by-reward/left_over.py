"""What readers make of questions that a reward did not refuse, beside the human questions.

    python experiments/learning-by-reward/left_over.py --output runs/learning-by-reward
    python experiments/learning-by-reward/left_over.py --output runs/learning-by-reward --regions 21 22

Reads the folders that `run.py` left and writes `left-over.json` beside this file: for each seed at 2 % labelled the
number of ill-formed greedy questions of SCST, the median probability of the answer for them and for the human
questions by the packaged reader, and the share of pairs in which the ill-formed one has more. With `--regions` the
same of questions of `full_groups.py` that name a region in the place of its town, also by the readers of
`on_policy.py`.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from run import Experiment, greedy

from rewards.relevance.reader import ReaderScore
from rl_qg.data.examples import QAExample
from rl_qg.data.oracle import columns, judgements
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.files import read_json, write_json

SEEDS = (21, 22, 23, 24, 25)
REGION = re.compile(r"\b[A-Z]\w+ia\b")  # regions of the corpus end so, and nothing else with a capital does
RESULTS = Path(__file__).with_name("left-over.json")


def left_over(experiment: Experiment, reader: ReaderScore) -> dict[str, Any]:
    """The numbers of one seed."""
    examples = experiment.held_out()
    questions = greedy(experiment.model("scst"), examples)
    wrong = [n for n, verdict in enumerate(columns(judgements(questions, examples))["ill_formed"]) if verdict]
    return {
        "questions": len(questions),
        "ill_formed": len(wrong),
        "inhabitants_employed": sum(
            questions[n].startswith("How many inhabitants") and "employ" in questions[n] for n in wrong
        ),
        **beside_human(reader, [questions[n] for n in wrong], [examples[n] for n in wrong]),
    }


def beside_human(reader: ReaderScore, questions: Sequence[str], examples: Sequence[QAExample]) -> dict[str, float]:
    """The probability of the answer for questions and for the human ones about the same answers."""
    contexts, answers = [one.context for one in examples], [one.answers[0].text for one in examples]
    written = np.array(reader.score(questions, contexts, answers=answers).scores)
    human = np.array(reader.score([one.question for one in examples], contexts, answers=answers).scores)
    return {
        "median": float(np.median(written)),
        "median_human": float(np.median(human)),
        "above_human": float(np.mean(written > human)),
    }


def regions(experiment: Experiment, readers: dict[str, Path]) -> dict[str, Any]:
    """How often `full_groups.py`'s generator names a region, and what readers make of it."""
    examples = experiment.held_out()
    questions = greedy(experiment.model("scst-full-groups"), examples)
    other = columns(judgements(questions, examples))["other_subject"]
    named = [n for n, verdict in enumerate(other) if verdict and REGION.search(questions[n])]
    found: dict[str, Any] = {"questions": len(questions), "other_subject": int(sum(other)), "regions": len(named)}
    if named:
        texts, rows = [questions[n] for n in named], [examples[n] for n in named]
        found["readers"] = {name: beside_human(ReaderScore(str(path)), texts, rows) for name, path in readers.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the folder that run.py was given")
    parser.add_argument("--regions", type=int, nargs="+", metavar="SEED", help="seeds of full_groups.py")
    given = parser.parse_args()
    if given.regions:
        folders = sorted(given.output.glob("labelled-0.02/seed-*/reward-readers/*"))
        readers = {f"{path.name}, {path.parts[-3]}": path for path in folders} | {"packaged": SHIPPED / "reader"}
        named = {str(seed): regions(Experiment(given.output, 0.02, seed), readers) for seed in given.regions}
        write_json(RESULTS, read_json(RESULTS) | {"regions": named})
        return
    reader = ReaderScore(str(SHIPPED / "reader"))
    found = {str(seed): left_over(Experiment(given.output, 0.02, seed), reader) for seed in SEEDS}
    write_json(RESULTS, found)


if __name__ == "__main__":
    main()
