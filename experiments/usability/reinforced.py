"""What reinforcement with `usability` changed: greedy questions about answers that were held out, by each generator.

    python experiments/usability/reinforced.py --answers ANSWERS/test.json --output experiments/usability/reward.json \
        before=packaged:english best_of_n=BEST/scst scst=RUN/scst

The first generator is the one that the others started from. For each: the mean of its reward (usability), the exact
match of the reader, the shares that are well formed and whose names all stand in the passage, words, different
questions, and the mean difference from the first; intervals are over texts. OUTPUT.questions.jsonl has the questions,
which are about texts from elsewhere and not part of this repository.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import rewards
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.data.examples import QAExample
from rl_qg.data.splits import read_role
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.files import write_json, write_json_lines
from rl_qg.settings import DataSettings
from rl_qg.stats.intervals import PassageDraws, mean_interval, paired_interval

BATCH, TOKENS, READER = 50, 32, "packaged:english/reader"


def asked(path: str, rows: Sequence[QAExample], name: str) -> list[str]:
    generator, found = CandidateGenerator(generator_path(path), device=torch.device("cpu")), list[str]()
    for first in ProgressBar(range(0, len(rows), BATCH), desc=name, unit="batch"):
        found += generator.greedy(rows[first : first + BATCH], max_new_tokens=TOKENS)
    return found


def values_of(questions: Sequence[str], rows: Sequence[QAExample]) -> dict[str, list[float]]:
    """Of each question."""
    given = {"contexts": [row.context for row in rows], "answers": [row.answers[0].text for row in rows]}
    reader = rewards.ReaderScore(reader_path(READER), max_length=256, stride=64).score(questions, **given)
    return {
        "usability": rewards.load("usability", model=reader_path(READER)).score(questions, **given).scores,
        "exact_match": list(reader.parts["exact_match"]),
        "form": rewards.load("form").score(questions, **given).scores,
        "names": rewards.load("faithfulness").score(questions, **given).scores,
        "words": [float(len(question.split())) for question in questions],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generators", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--answers", required=True)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    rows = list(read_role(DataSettings(train=given.answers), "train", allow_unlabelled=True).examples)
    random.Random(0).shuffle(rows)
    rows = rows[: given.number]
    models = dict(one.split("=", 1) for one in given.generators)
    questions = {name: asked(path, rows, name) for name, path in models.items()}
    values = {name: values_of(texts, rows) for name, texts in questions.items()}
    draws, first = PassageDraws([row.title for row in rows]), next(iter(models))
    found: dict[str, dict[str, Any]] = {}
    for name, measures in values.items():
        found[name] = {measure: asdict(mean_interval(of_each, draws)) for measure, of_each in measures.items()}
        found[name]["different"] = len(set(questions[name])) / len(rows)
        if name != first:
            found[name]["changed"] = sum(map(str.__ne__, questions[name], questions[first]))
            found[name][f"over {first}"] = {
                measure: asdict(paired_interval(of_each, values[first][measure], draws))
                for measure, of_each in measures.items()
            }
    write_json(given.output, {"answers": len(rows), "generators": found})
    write_json_lines(
        given.output.with_suffix(".questions.jsonl"),
        (
            {"text": row.title, "passage": row.context, "answer": row.answers[0].text}
            | {name: texts[at] for name, texts in questions.items()}
            for at, row in enumerate(rows)
        ),
    )


if __name__ == "__main__":
    main()
