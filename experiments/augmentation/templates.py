"""Template questions: what a generator with no pretrained decoder learns to copy from before it sees human questions.

    python experiments/augmentation/templates.py data.json.gz … --output templates.json

For each answer of the files its sentence is turned into a question by rule: a question word chosen by the look of the
answer, then the sentence without it (compare Lewis et al. 2019, "Unsupervised question answering by cloze
translation"). The human questions are not read.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rl_qg.data.examples import QAExample, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import answer_spans

WORDS_AROUND = 14  # of the sentence on either side of the answer
BOUNDARY = re.compile(r"(?<=[.!?;])\s+")
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(rf"\b({MONTHS})\b|\b(1\d|20)\d\ds?\b|\bcentur(y|ies)\b")
AMOUNT = re.compile(r"[$£€%]|\bpercent\b")
NUMBER = re.compile(
    r"^(about |over |around |nearly )?(\d|(one|two|three|four|five|six|seven|eight|nine|ten|twelve)\b)", re.I
)
PLACE = re.compile(r"\b(in|at|near|from|to|into|outside)( the)?$", re.I)


def question_word(answer: str, before: str) -> str:
    """The question word that the look of the answer and the word before it suggest."""
    if DATE.search(answer):
        return "when"
    if AMOUNT.search(answer):
        return "how much"
    if NUMBER.search(answer):
        return "how many"
    words = answer.split()
    if all(word[0].isupper() for word in words):
        if PLACE.search(before):
            return "where"
        return "who" if len(words) in (2, 3) and not before.lower().endswith(" the") else "what"
    return "why" if re.search(r"\b(because|due to)( of)?$", before) else "what"


def template_question(example: QAExample) -> str:
    """Question word, then what stands around the answer in its sentence."""
    answer = example.answers[0]
    before = BOUNDARY.split(example.context[: answer.start])[-1].strip()
    after = BOUNDARY.split(example.context[answer.start + len(answer.text) :])[0].strip()
    head, tail = before.split()[-WORDS_AROUND:], after.split()[:WORDS_AROUND]
    rest = " ".join([*head, *tail]).strip(" ,;:.()\"'")
    return f"{question_word(answer.text, before)} {rest} ?"


def questions(examples: Iterable[QAExample]) -> Iterator[QAExample]:
    for example in examples:
        question = template_question(example)
        if 5 <= len(question.split()) <= 26:
            yield replace(example, question=question)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    spans = answer_spans(read_examples(args.sources, role="train").examples)
    found = list(questions(spans))
    write_squad(args.output, found)
    words = Counter(example.question.split()[0] for example in found)
    print(f"{len(found)} questions of {len(spans)} answers in {args.output}; first words {dict(words.most_common())}")


if __name__ == "__main__":
    main()
