"""How well the probability of a question by some generators tells usable pairs from others, alone and in the score.

    python experiments/real-generator/score.py --shared ../shared --output score.json before=BEFORE pointer=POINTER

Pairs are those of the readings of `experiments/usability` that were held out and that the packaged reader gives back.
The score is that of `rl-qg ask` with other powers of the probability (0: without it). About ten minutes a generator.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

import rewards
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.asking.selection import MIN_ROUND_TRIP, ProposedPair, support
from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.files import write_json

sys.path.insert(0, str(Path(__file__).parents[1] / "usability"))
from texts import all_texts
from train import USABLE, readings

READER, POWERS, BATCH = "packaged:english/reader", (0, 0.25, 0.5, 0.75, 1, 1.5, 2), 32
Row = dict[str, Any]


def area(values: np.ndarray, good: np.ndarray) -> float:
    """Under the ROC curve."""
    ranks, count = rankdata(values), good.sum()
    return float((ranks[good].sum() - count * (count + 1) / 2) / (count * (len(good) - count)))


def probabilities(path: str, rows: Sequence[Row]) -> np.ndarray:
    """The geometric mean of the probabilities of each question's tokens."""
    generator = CandidateGenerator(generator_path(path), device=torch.device("cpu"))
    examples = [
        QAExample(str(at), "", row["passage"], row["question"], (Answer(row["answer"], row["start"]),))
        for at, row in enumerate(rows)
    ]
    found = []
    for first in ProgressBar(range(0, len(rows), BATCH), desc=path, unit="batch"):
        found += [one.logprob / max(1, one.tokens) for one in generator.likelihoods(examples[first : first + BATCH])]
    return np.exp(found)


def other_parts(rows: Sequence[Row]) -> np.ndarray:
    """The score of each pair without the probability; 0 where the reader does not give the answer back."""
    given = {"contexts": [row["passage"] for row in rows], "answers": [row["answer"] for row in rows]}
    questions = [row["question"] for row in rows]
    read = rewards.ReaderScore(reader_path(READER), max_length=256, stride=64).score(questions, **given).parts["f1"]
    usable = rewards.load("usability", model=reader_path(READER)).score(questions, **given).scores
    pairs = (
        ProposedPair(row["question"], None, 0.0, 1, round_trip=f1, support=row["support"], usability=one)  # type: ignore[arg-type]
        for row, f1, one in zip(rows, read, usable, strict=True)
    )
    return np.array([pair.score if pair.round_trip >= MIN_ROUND_TRIP else 0.0 for pair in pairs])  # type: ignore[operator]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--most", type=int, help="pairs, for a trial")
    parser.add_argument("generators", nargs="+", help="NAME=FOLDER")
    given = parser.parse_args()
    texts = {key: text for key, (_, text) in all_texts(given.shared).items()}
    rows = [row for row in readings(given.shared) if row["held_out"]][: given.most]
    for row in rows:
        place = row["answer_place"][0]
        row["support"] = support(row["question"], texts[row["text"]], place)
        row["start"] = place - texts[row["text"]].find(row["passage"])
    rest, rounds = other_parts(rows), np.array([row["round"] for row in rows])
    good = np.array([row["grade"] >= USABLE for row in rows])
    known = {name: probabilities(path, rows) for name, path in (text.split("=", 1) for text in given.generators)}
    found: Row = {}
    for number in sorted(set(rounds)):
        kept = (rounds == number) & (rest > 0)
        found[str(number)] = {"pairs": int(kept.sum()), "usable": int(good[kept].sum())} | {
            name: {
                "probability": area(values[kept], good[kept]),
                "by_power": {str(power): area(values[kept] ** power * rest[kept], good[kept]) for power in POWERS},
            }
            for name, values in known.items()
        }
    write_json(given.output, {"held_out": found})


if __name__ == "__main__":
    main()
