"""What the judges are worth: does each prefer true questions to wrong ones?

    python experiments/real-text-rl/separation.py --shared ../shared --models runs/real-text-rl/models \
        --output runs/real-text-rl/separation.json

AUC of the reward, true questions against four kinds of wrong ones about the same passages and answers: the question of
another passage, another question about the same passage, the true words in random order, and a template that fits
every passage. 0.5 is chance. For the first three `pairs_won` is the share of true questions that score above their
own wrong one.
"""

import argparse
import json
import random
from pathlib import Path

import numpy as np

from rewards import BARTScore, QAScore, QRelScore
from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import take
from rl_qg.scoring.reward_scorer import RewardScorer

TEMPLATE = "What is the name of the name of the name?"


def judges(models: Path) -> dict[str, RewardScorer]:
    """The three rewards of this experiment, over the models that `prepare.py` made."""
    return {
        "qrelscore": RewardScorer(QRelScore(encoder=str(models / "minilm"), decoder=str(models / "gpt2"))),
        "qascore": RewardScorer(QAScore(model=str(models / "roberta"))),
        "bartscore": RewardScorer(BARTScore(model=str(models / "bart"))),
    }


def wrong_questions(examples: list[QAExample], everything: list[QAExample]) -> dict[str, list[str | None]]:
    """Wrong questions of each kind, one for each example; None where there is none."""
    draw = random.Random(0)
    shift = len(examples) // 2
    by_passage: dict[str, list[QAExample]] = {}
    for example in everything:
        by_passage.setdefault(example.context, []).append(example)

    def elsewhere(row: int) -> str | None:
        other = examples[(row + shift) % len(examples)]
        return None if other.context == examples[row].context else other.question

    def beside(example: QAExample) -> str | None:
        mine = {answer.text for answer in example.answers}
        others = [one.question for one in by_passage[example.context] if mine.isdisjoint(a.text for a in one.answers)]
        return draw.choice(others) if others else None

    def shuffled(question: str) -> str:
        words = question.rstrip("?").split()
        draw.shuffle(words)
        return " ".join(words) + "?"

    return {
        "other passage": [elsewhere(row) for row in range(len(examples))],
        "other answer": [beside(example) for example in examples],
        "words in random order": [shuffled(example.question) for example in examples],
        "template": [TEMPLATE for _ in examples],
    }


def area(true: np.ndarray, wrong: np.ndarray) -> float:
    """Probability that a true question scores above a wrong one; ties count half."""
    above = (true[:, None] > wrong[None, :]).mean()
    return float(above + 0.5 * (true[:, None] == wrong[None, :]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--models", type=Path, default=Path("runs/real-text-rl/models"))
    parser.add_argument("--output", type=Path, default=Path("runs/real-text-rl/separation.json"))
    parser.add_argument("--examples", type=int, default=300)
    args = parser.parse_args()
    file = args.shared / "data" / "squad" / "dev_part1-v1.1.json.gz"
    everything = read_examples(str(file), role="validation").examples
    examples = take(everything, args.examples, 1)
    result: dict[str, dict] = {}
    for name, judge in judges(args.models).items():
        true = np.array(judge(examples, [example.question for example in examples]).scores)
        result[name] = {"true": {"n": len(true), "mean": float(true.mean()), "sd": float(true.std())}}
        for kind, questions in wrong_questions(examples, everything).items():
            rows = [row for row, question in enumerate(questions) if question is not None]
            texts = [question for question in questions if question is not None]
            wrong = np.array(judge([examples[row] for row in rows], texts).scores)
            result[name][kind] = {
                "n": len(rows),
                "mean": float(wrong.mean()),
                "auc": area(true[rows], wrong),
                "pairs_won": float((true[rows] > wrong).mean() + 0.5 * (true[rows] == wrong).mean()),
            }
        print(name, json.dumps(result[name]), flush=True)
    args.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
