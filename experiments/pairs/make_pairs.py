"""Question-answer pairs of passages in one of three ways, with the time that they take.

    python experiments/pairs/make_pairs.py passages.json --way end2end --questions MODEL --output pairs.jsonl

What each way writes is kept as it is: no selection, no check by a reader, no ranking. Beam search with 4 beams,
passages one after the other, as for a single user.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.reading import read_examples
from rl_qg.generation.answer_rules import rule_spans
from rl_qg.generation.end_to_end import generate_pairs
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.propose_answers import GeneratedAnswers
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.files import atomic_writer

BEAMS, LONGEST_QUESTION, LONGEST_PAIRS = 4, 48, 256
WAYS = ("rules", "pipeline", "multitask", "end2end")
Pairs = list[tuple[str, str, int]]
"""Question, answer and its place."""


def loaded(folder: Path) -> CandidateGenerator:
    return CandidateGenerator(folder, device=torch.device("cpu"))


def maker(way: str, questions: Path, answers: Path | None) -> Callable[[str], Pairs]:
    """What makes the pairs of a passage: `questions` writes them (or all pairs at once), `answers` chooses answers."""
    asking = loaded(questions)
    if way == "end2end":
        return lambda text: [
            (pair.question, pair.answer, pair.answer_start)
            for pair in generate_pairs(asking, [text], beams=BEAMS, max_new_tokens=LONGEST_PAIRS)[0]
        ]
    proposing = None
    if way != "rules":
        proposing = GeneratedAnswers(asking if answers is None else loaded(answers), None, beams=BEAMS)

    def pairs(text: str) -> Pairs:
        spans = rule_spans(text, 5) if proposing is None else proposing([text])[0]
        given = [Answer(text[span.start : span.end], span.start) for span in spans]
        return [
            (question, answer.text, answer.start) for question, answer in zip(asked(text, given), given, strict=True)
        ]

    def asked(text: str, given: Sequence[Answer]) -> list[str]:
        rows = [QAExample(str(answer.start), "", text, "", (answer,)) for answer in given]
        options = {"max_new_tokens": LONGEST_QUESTION, "top_p": None, "temperature": 1.0}
        return [group[0].question for group in asking.candidates(rows, BEAMS, **options)] if rows else []

    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages", type=Path)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    contexts = list(dict.fromkeys(one.context for one in read_examples(given.passages, role="validation").examples))
    make = maker(given.way, given.questions, given.answers)
    with atomic_writer(given.output) as stream:
        for context in ProgressBar(contexts, desc=given.way, unit="passage"):
            start = time.perf_counter()
            pairs = make(context)
            seconds = time.perf_counter() - start
            named = [dict(zip(("question", "answer", "answer_start"), pair, strict=True)) for pair in pairs]
            stream.write(json.dumps({"context": context, "pairs": named, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
