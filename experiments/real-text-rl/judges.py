"""What each judge is worth: can it tell a question's own passage from another, and a question from a spoilt one?

    python experiments/real-text-rl/judges.py --models runs/real-text-rl/models --data dev.json.gz

Prints JSON: for each reward the share of pairs in which the right one scores higher (ties count half), with its mean
and standard deviation over human questions.
"""

import argparse
import json
import random
import statistics

from rewards import load
from rl_qg.qa_data import QAExample, read_examples, take

REWARDS = {
    "qrelscore": {"encoder": "minilm", "decoder": "gpt2"},
    "qascore": {"model": "roberta"},
    "bartscore": {"model": "bart"},
}


def share(right: list[float], wrong: list[float]) -> float:
    return statistics.fmean((a > b) + (a == b) / 2 for a, b in zip(right, wrong, strict=True))


def spoilt(question: str, draw: random.Random) -> str:
    words = question.rstrip("?").split()
    draw.shuffle(words)
    return " ".join(words) + "?"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--count", type=int, default=200)
    args = parser.parse_args()
    draw = random.Random(0)
    examples: list[QAExample] = take(read_examples(args.data, role="validation").examples, args.count, 0)
    questions = [example.question for example in examples]
    columns = {
        "own": (questions, examples),
        "another_passage": (questions, examples[7:] + examples[:7]),
        "words_shuffled": ([spoilt(text, draw) for text in questions], examples),
        "one_question_for_all": (["What is the name of the name of the name?"] * len(questions), examples),
    }
    found = {}
    for name, paths in REWARDS.items():
        metric = load(name, **{key: f"{args.models}/{path}" for key, path in paths.items()})
        scores = {
            column: metric.score(
                texts, [item.context for item in about], answers=[item.answers[0].text for item in about]
            ).scores
            for column, (texts, about) in columns.items()
        }
        own = scores.pop("own")
        found[name] = {
            "signature": metric.signature,
            "mean": round(statistics.fmean(own), 4),
            "standard_deviation": round(statistics.stdev(own), 4),
            "prefers_own_to": {column: round(share(own, values), 3) for column, values in scores.items()},
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
