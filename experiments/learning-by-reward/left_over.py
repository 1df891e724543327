"""What the packaged reader makes of the ill-formed greedy questions of SCST, beside the human questions.

    python experiments/learning-by-reward/left_over.py --output runs/learning-by-reward

Reads the folders that `run.py` left and writes `left-over.json` beside this file: for each seed at 2 % labelled the
number of ill-formed questions, the median probability of the answer for them and for the human questions, and the
share of pairs in which the ill-formed one has more.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from run import Experiment, greedy

from rewards.relevance.reader import ReaderScore
from rl_qg.data.oracle import columns, judgements
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.files import write_json

SEEDS = (21, 22, 23, 24, 25)


def left_over(experiment: Experiment, reader: ReaderScore) -> dict[str, Any]:
    """The numbers of one seed."""
    examples = experiment.held_out()
    questions = greedy(experiment.model("scst"), examples)
    wrong = [n for n, verdict in enumerate(columns(judgements(questions, examples))["ill_formed"]) if verdict]
    contexts, answers = [examples[n].context for n in wrong], [examples[n].answers[0].text for n in wrong]
    written = np.array(reader.score([questions[n] for n in wrong], contexts, answers=answers).scores)
    human = np.array(reader.score([examples[n].question for n in wrong], contexts, answers=answers).scores)
    return {
        "questions": len(questions),
        "ill_formed": len(wrong),
        "inhabitants_employed": sum(
            questions[n].startswith("How many inhabitants") and "employ" in questions[n] for n in wrong
        ),
        "median": float(np.median(written)),
        "median_human": float(np.median(human)),
        "above_human": float(np.mean(written > human)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the folder that run.py was given")
    given = parser.parse_args()
    reader = ReaderScore(str(SHIPPED / "reader"))
    found = {str(seed): left_over(Experiment(given.output, 0.02, seed), reader) for seed in SEEDS}
    write_json(Path(__file__).with_name("left-over.json"), found)


if __name__ == "__main__":
    main()
