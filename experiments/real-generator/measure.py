"""Measure generators on human questions that they were not trained on: greedy questions beside the human ones.

    python experiments/real-generator/measure.py --data DATA/new_wiki-test.json --reader READER --output FILE.json \
        NAME=MODEL ...

Written for each generator and for the human questions: the measures of `rl_qg.scoring.held_out`, METEOR, BLEU-4 by the
captioning scripts, the shares that pass `rewards.QuestionForm` and of which all names and numbers stand in the
passage, F1 and exact match of the reader's answer (round trip). The questions themselves, with the exact match of
each, are in FILE.questions.json, which holds human ones and is not part of this repository.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch

import rewards
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.data.examples import QAExample
from rl_qg.data.splits import read_role
from rl_qg.evaluation.compare_generators import greedy_questions
from rl_qg.runtime.files import write_json
from rl_qg.scoring.held_out import held_out_measures
from rl_qg.settings import DataSettings

BATCH, TOKENS = 50, 32


def measures(
    texts: list[str], rows: list[QAExample], readers: dict[str, rewards.ReaderScore]
) -> tuple[dict[str, float], dict[str, Sequence[float]]]:
    """Means, and for each reader the exact match of every question."""
    exact: dict[str, Sequence[float]] = {}
    contexts, answers = [row.context for row in rows], [row.answers[0].text for row in rows]
    gold = [row.question for row in rows]
    given = {"contexts": contexts, "answers": answers}
    found = {**held_out_measures(texts, gold, contexts), "different": len(set(texts)) / len(texts)}
    found["supported"] = 1 - found["unsupported"]
    found["meteor"] = fmean(rewards.load("meteor").score(texts, references=[[one] for one in gold]).scores)
    published = rewards.load("coco_bleu4")  # as papers compute it, of lower case
    sums = published.statistics([one.lower() for one in texts], [[one.lower()] for one in gold]).sum(0)
    found["coco_bleu4"] = float(published.corpus(sums))
    found["form"] = fmean(rewards.load("form").score(texts, **given).scores)
    for name, reader in readers.items():
        parts = reader.score(texts, **given).parts
        exact[name] = parts["exact_match"]
        found |= {f"{name}_{measure}": fmean(parts[measure]) for measure in ("exact_match", "f1", "probability")}
    return found, exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--data", required=True)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--reader", action="append", default=[], metavar="NAME=MODEL")
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    for metric in ("meteor", "form"):
        rewards.load(metric)  # what is not installed is said before the work
    if unnamed := [one for one in given.reader if not all(one.partition("="))]:
        parser.error(f"--reader {unnamed[0]!r}: give NAME=MODEL, such as first=packaged:english/reader")
    rows = list(read_role(DataSettings(train=given.data), "train").examples)
    random.Random(0).shuffle(rows)
    rows = rows[: given.number]
    readers = {
        name: rewards.ReaderScore(reader_path(path), max_length=256, stride=64, device=given.device)
        for name, _, path in (one.partition("=") for one in given.reader)
    }
    models = [one.partition("=") for one in given.models]
    texts = {
        name: greedy_questions(generator_path(path), rows, name, TOKENS, BATCH, given.device)
        for name, _, path in models
    }
    texts["human"] = [row.question for row in rows]
    found = {name: measures(written, rows, readers) for name, written in texts.items()}
    questions = [
        {"context": row.context, "answer": row.answers[0].text}
        | {name: written[place] for name, written in texts.items()}
        | {"exact": {name: {by: values[place] for by, values in exact.items()} for name, (_, exact) in found.items()}}
        for place, row in enumerate(rows)
    ]
    write_json(given.output, {"questions": len(rows), "measures": {name: means for name, (means, _) in found.items()}})
    write_json(given.output.with_suffix(".questions.json"), questions)


if __name__ == "__main__":
    main()
