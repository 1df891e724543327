"""Pairs of questions and answers for readers to grade: those that a generator makes, before any is chosen.

    python experiments/usability/pairs.py --shared ../shared --output pairs.jsonl

Of each answer the best question that the reader gives back is taken, often a second one, sometimes one that it does
not give back; its score is the one without usability. Places are characters of the text, which `texts.py` finds by its
key.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from texts import all_texts

from rl_qg import QuestionGenerator
from rl_qg.asking.pairs import AskRequest
from rl_qg.asking.selection import MIN_ROUND_TRIP, ProposedPair
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.files import write_json_lines

MOST = {"document": 72, "hotpot": 250, "review": 100, "story": 120, "qgeval": 30, "quiz": 12}  # texts of each kind
LENGTHS = range(250, 1200)  # characters of outside texts
OF_TEXT, OF_DOCUMENT = 1, 12  # pairs wanted, of which `ask` proposes four times as many answers
SECOND, NOT_GIVEN_BACK = 0.4, 0.2  # how often such a pair is taken


def taken(pairs: list[ProposedPair], rng: random.Random) -> list[ProposedPair]:
    """Of the pairs about one answer those that are read."""
    given_back = sorted(
        (pair for pair in pairs if (pair.round_trip or 0) >= MIN_ROUND_TRIP), key=lambda one: one.order
    )
    others = [pair for pair in pairs if pair not in given_back]
    second = [rng.choice(given_back[1:])] if len(given_back) > 1 and rng.random() < SECOND else []
    other = [rng.choice(others)] if others and rng.random() < NOT_GIVEN_BACK else []
    return [*given_back[:1], *second, *other]


def pairs_of(generator: QuestionGenerator, text: str, number: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    draft = generator.proposed(AskRequest(text, number=number, min_score=0.0))
    generator.complete([draft])
    by_answer: dict[int, list[ProposedPair]] = {}
    for pair in draft.pairs:
        by_answer.setdefault(pair.span.start, []).append(pair)
    for group in by_answer.values():
        for pair in taken(group, rng):
            passage = draft.passage_of(pair.span)
            places = {"passage": [passage.start, passage.start + len(passage.text)]}
            places["answer"] = [pair.span.start, pair.span.end]
            yield {**places, "question": pair.question, "score": replace(pair, usability=None).score}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--model", default="packaged:english")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    generator = QuestionGenerator.from_pretrained(given.model, reader="packaged:english/reader")
    rng, left = random.Random(given.seed), dict(MOST)
    texts = list(all_texts(given.shared).items())
    rng.shuffle(texts)
    rows = []
    for key, (kind, text) in ProgressBar(texts, desc="pairs", unit="text"):
        if left[kind] and (kind == "document" or len(text) in LENGTHS):
            left[kind] -= 1
            number = OF_DOCUMENT if kind == "document" else OF_TEXT
            rows += [{"text": key, "kind": kind, **row} for row in pairs_of(generator, text, number, rng)]
    print(f"{given.output}: {write_json_lines(given.output, rows)} pairs")


if __name__ == "__main__":
    main()
