"""Pairs of questions and answers for readers to grade: those that a generator makes, before any is chosen.

    python experiments/usability/pairs.py --shared ../shared --output pairs.jsonl

Of each answer the best question that the reader gives back is taken, often a second one, sometimes one that it does
not give back; its score is the one without usability. With `--best`, as in the third round, those that `rl-qg ask`
would return: of each document and of a hundred other texts the best pairs by the score with usability, which have not
been graded. Places are characters of the text, which `texts.py` finds by its key.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from texts import all_texts
from train import readings

from rl_qg import QuestionGenerator
from rl_qg.asking.pairs import AskRequest
from rl_qg.asking.selection import MIN_ROUND_TRIP, ProposedPair
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.files import write_json_lines

MOST = {"document": 72, "hotpot": 250, "review": 100, "story": 120, "qgeval": 30, "quiz": 12}  # texts of each kind
LENGTHS = range(250, 1200)  # characters of outside texts
OF_TEXT, OF_DOCUMENT = 1, 12  # pairs wanted, of which `ask` proposes four times as many answers
SECOND, NOT_GIVEN_BACK = 0.4, 0.2  # how often such a pair is taken
BEST_MOST = {**dict.fromkeys(MOST, 20), "document": 120}  # texts of each kind, with --best
BEST_OF_TEXT, BEST_OF_DOCUMENT, BEST_OF_ANSWER, LEAST = 3, 25, 2, 0.45  # pairs at most, and their score at least
Take = Callable[[Sequence[ProposedPair]], Iterable[ProposedPair]]


def given_back(pairs: Sequence[ProposedPair]) -> list[ProposedPair]:
    return sorted((pair for pair in pairs if (pair.round_trip or 0) >= MIN_ROUND_TRIP), key=lambda one: one.order)


def drawn(pairs: Sequence[ProposedPair], rng: random.Random) -> Iterator[ProposedPair]:
    """Of the pairs about each answer those that are read."""
    by_answer: dict[int, list[ProposedPair]] = {}
    for pair in pairs:
        by_answer.setdefault(pair.span.start, []).append(pair)
    for group in by_answer.values():
        first = given_back(group)
        others = [pair for pair in group if pair not in first]
        second = [rng.choice(first[1:])] if len(first) > 1 and rng.random() < SECOND else []
        other = [rng.choice(others)] if others and rng.random() < NOT_GIVEN_BACK else []
        yield from [*first[:1], *second, *other]


def best(pairs: Sequence[ProposedPair], most: int, graded: set[tuple[int, str]]) -> list[ProposedPair]:
    """The pairs with the highest scores but for those that are `graded`, by the start of the answer and question."""
    found, of_answer = list[ProposedPair](), Counter[int]()
    for pair in given_back(pairs):
        is_new = (pair.span.start, pair.question) not in graded
        if is_new and pair.score >= LEAST and of_answer[pair.span.start] < BEST_OF_ANSWER:
            of_answer[pair.span.start] += 1
            found.append(pair)
    return found[:most]


def pairs_of(generator: QuestionGenerator, text: str, number: int, take: Take) -> Iterator[dict[str, Any]]:
    draft = generator.proposed(AskRequest(text, number=number, min_score=0.0))
    generator.complete([draft])
    for pair in take(draft.pairs):
        passage = draft.passage_of(pair.span)
        places = {"passage": [passage.start, passage.start + len(passage.text)]}
        places["answer"] = [pair.span.start, pair.span.end]
        yield {**places, "question": pair.question, "score": replace(pair, usability=None).score}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--model", default="packaged:english")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    generator = QuestionGenerator.from_pretrained(given.model, reader="packaged:english/reader")
    rng, left = random.Random(given.seed), dict(BEST_MOST if given.best else MOST)
    graded: dict[str, set[tuple[int, str]]] = {}
    for row in readings(given.shared):
        graded.setdefault(row["text"], set()).add((row["answer_place"][0], row["question"]))
    texts = list(all_texts(given.shared).items())
    rng.shuffle(texts)
    rows = []
    for key, (kind, text) in ProgressBar(texts, desc="pairs", unit="text"):
        if left[kind] and (kind == "document" or len(text) in LENGTHS):
            left[kind] -= 1
            number = OF_DOCUMENT if kind == "document" else OF_TEXT
            take: Take = partial(drawn, rng=rng)
            if given.best:
                most = BEST_OF_DOCUMENT if kind == "document" else BEST_OF_TEXT
                take = partial(best, most=most, graded=graded.get(key, set()))
            rows += [{"text": key, "kind": kind, **row} for row in pairs_of(generator, text, number, take)]
    print(f"{given.output}: {write_json_lines(given.output, rows)} pairs")


if __name__ == "__main__":
    main()
