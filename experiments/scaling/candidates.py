"""Candidate questions made by rule from real passages, as many as wanted: what `rl-qg augment` is measured on.

    python experiments/scaling/candidates.py --squad SQUAD.json --rows 1000000 --output questions.jsonl

A passage is four sentences drawn from those of the file, with 20 candidates: a run of words of a sentence with its
answer replaced by a question word. Of 20 about two repeat an earlier one with a word left out, one word for word, one
ends without a question mark and one is too short, so that each filter has something to drop. The lines depend on the
number of the passage alone: those of a smaller file are the first ones of a larger.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_qg.data.reading import read_examples
from rl_qg.text.spans import sentence_spans

PER_PASSAGE = 20
QUESTION_WORDS = ("What", "Who", "Which", "When", "Where", "How", "Why")


def sentences(squad: Path) -> list[str]:
    """The sentences of at least eight words of the file's passages, each once, in order."""
    contexts = dict.fromkeys(example.context for example in read_examples(squad, role="train").examples)
    found = dict.fromkeys(text[start:end].strip() for text in contexts for start, end in sentence_spans(text))
    return [sentence for sentence in found if len(sentence.split()) >= 8]


def made(pool: list[str], rows: int) -> Iterator[dict[str, Any]]:
    """So many candidates."""
    for passage in range(-(-rows // PER_PASSAGE)):
        rng = random.Random(passage)
        chosen = rng.sample(pool, 4)
        context = " ".join(chosen)
        earlier: list[tuple[str, str]] = []
        for number in range(min(PER_PASSAGE, rows - passage * PER_PASSAGE)):
            question, answer = _question(rng, chosen) if number < 4 else _varied(rng, chosen, earlier, number)
            earlier.append((question, answer))
            yield {
                "id": f"p{passage}-{number // 4}",
                "candidate": number % 4,
                "title": f"Passage {passage // 10}",
                "context": context,
                "answer": answer,
                "answer_start": context.index(answer),
                "question": question,
                "logprob": round(-30 * rng.random(), 6),
            }


def _question(rng: random.Random, chosen: list[str]) -> tuple[str, str]:
    words = rng.choice(chosen).split()
    place = rng.choice([at for at, word in enumerate(words) if len(word) > 3] or range(len(words)))
    begin, end = max(0, place - rng.randint(3, 9)), place + rng.randint(4, 10)
    rest = [*words[begin:place], *words[place + 1 : end]]
    return f"{rng.choice(QUESTION_WORDS)} {' '.join(rest).rstrip('.,;:?')}?", words[place]


def _varied(rng: random.Random, chosen: list[str], earlier: list[tuple[str, str]], number: int) -> tuple[str, str]:
    """As the number says: a copy, one without a word, a short one, one without a mark, or a new one."""
    question, answer = rng.choice(earlier)
    if number == 5:
        return question, answer
    if number in (6, 7):
        words = question.split()
        del words[rng.randrange(1, len(words))]
        return f"{' '.join(words).rstrip('?')}?", answer
    if number == 8:
        return f"{question.split()[0]} is it?", answer
    question, answer = _question(rng, chosen)
    return (question[:-1], answer) if number == 9 else (question, answer)


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """A candidate as a row that `rl-qg qa` reads."""
    answers = {"text": [record["answer"]], "answer_start": [record["answer_start"]]}
    kept = {name: record[name] for name in ("title", "context", "question")}
    return {"id": f"{record['id']}-{record['candidate']}", **kept, "answers": answers}


def write(path: Path, pool: list[str], rows: int, *, for_readers: bool = False) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for record in made(pool, rows):
            stream.write(json.dumps(flat(record) if for_readers else record, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--for-readers", action="store_true", help="flat rows for rl-qg qa")
    args = parser.parse_args()
    write(args.output, sentences(args.squad), args.rows, for_readers=args.for_readers)


if __name__ == "__main__":
    main()
