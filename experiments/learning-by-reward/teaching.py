"""Rewards and decoding for what teaches a reader, at 25 % labelled.

    python experiments/learning-by-reward/teaching.py --output runs/learning-by-reward --seeds 12

Reads what `run.py --fractions 0.25 --arms ce scst --readers gold scst` left. In turns: SCST from the cross-entropy
generator with `reward=gated` times `Unanswered` by the reader that the questions of the round before taught, and a new
reader taught by the result; two rounds. Then readers taught by sampled questions of the first SCST generator, 2 and 4
for each answer, at the same updates. Writes into `variants.json` beside this file.
"""

import argparse
from pathlib import Path

import torch
from run import ARMS, REWARD, SCST, Experiment, greedy, keep_variant, measures

from rewards import MetricResult, ReaderScore
from rewards.base import Inputs

ROUNDS = 2
KNOWN = 0.5  # what a question is worth that the taught reader answers already


class Unanswered(ReaderScore):
    """1 for a question to which a reader does not give exactly the answer, else KNOWN."""

    def compute(self, inputs: Inputs) -> MetricResult:
        """Score each question."""
        parts = super().compute(inputs).parts
        return MetricResult([1 - (1 - KNOWN) * value for value in parts["exact_match"]], parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the folder that run.py was given")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in given.seeds:
        experiment, key = Experiment(given.output, 0.25, seed), str(seed)

        def f1(reader: str, experiment: Experiment = experiment) -> float:
            return experiment.judge([], [reader], None)[reader]["f1"]

        def found(arm: str, experiment: Experiment = experiment) -> dict[str, float]:
            questions = greedy(experiment.model(arm), experiment.held_out())
            return measures(questions, experiment.held_out(), None)

        keep_variant("25 %: gold", key, {"f1": f1("gold")})
        keep_variant("25 %: SCST", key, found("scst") | {"f1": f1("scst")})
        for number in (2, 4):
            name = f"scst-{number}-sampled"
            experiment.teach("scst", name, ("do_sample=true", f"num_samples={number}"))
            keep_variant(f"25 %: SCST, {number} sampled questions", key, {"f1": f1(name)})
        before = "scst"
        for number in range(1, ROUNDS + 1):
            reader = experiment.folder / "readers" / before / "qa"
            part = f"+reward.parts.taught={{metric:teaching.Unanswered,model:{reader}}}"
            before = f"scst-teaches-{number}"
            ARMS[before] = (*SCST, *REWARD, part)
            experiment.train(before)
            experiment.teach(before)
            keep_variant(
                f"25 %: SCST, for what is not answered, round {number}", key, found(before) | {"f1": f1(before)}
            )


if __name__ == "__main__":
    main()
