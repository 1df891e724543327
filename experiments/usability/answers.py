"""Passages with proposed answers and no questions, for reinforcement with `usability` as the reward.

    python experiments/usability/answers.py --shared ../shared --output ANSWERS

The texts are those of `texts.py`, read in the parts and with the answers of `rl-qg ask`. `ANSWERS/test.json` has the
held-out documents and a sixth of the other texts, from which no graded pair was learned, `ANSWERS/train.json` the
rest.
"""

import argparse
import random
from collections import Counter
from pathlib import Path
from typing import Any

from texts import all_texts
from train import readings

from rl_qg import QuestionGenerator
from rl_qg.asking.pairs import AskRequest
from rl_qg.runtime.files import write_json

MOST = {  # texts of each kind to learn from, and to judge
    "train": {"document": 72, "hotpot": 900, "review": 250, "story": 250, "qgeval": 200, "quiz": 12},
    "test": {"document": 72, "hotpot": 40, "review": 40, "story": 40, "qgeval": 40, "quiz": 40},
}
LENGTHS = range(250, 2500)  # characters of outside texts
OF_TEXT, OF_DOCUMENT = 1, 12  # pairs wanted, of which `ask` proposes four times as many answers


def article(generator: QuestionGenerator, key: str, text: str, number: int) -> dict[str, Any]:
    """A text as an article of SQuAD without questions, a paragraph for each part that is asked about."""
    draft = generator.proposed(AskRequest(text, number=number, min_score=0.0))
    parts: dict[int, dict[str, Any]] = {}
    for span in dict.fromkeys(draft.spans):
        passage = draft.passage_of(span)
        part = parts.setdefault(passage.start, {"context": passage.text, "qas": []})
        answer = {"text": span.text, "answer_start": span.start - passage.start}
        part["qas"].append({"id": f"{key}-{span.start}-{len(span.text)}", "question": "", "answers": [answer]})
    return {"title": key, "paragraphs": list(parts.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    graded = {row["text"]: row["held_out"] for row in readings(given.shared)}
    generator = QuestionGenerator.from_pretrained("packaged:english", reader="none")
    texts = list(all_texts(given.shared).items())
    random.Random(7).shuffle(texts)
    articles, taken = {name: list[dict[str, Any]]() for name in MOST}, Counter[tuple[str, str]]()
    for key, (kind, text) in texts:
        name = "test" if graded.get(key, int(key, 16) % 6 == 0) else "train"
        if (kind == "document" or len(text) in LENGTHS) and taken[name, kind] < MOST[name][kind]:
            taken[name, kind] += 1
            articles[name].append(article(generator, key, text, OF_DOCUMENT if kind == "document" else OF_TEXT))
    for name, found in articles.items():
        write_json(given.output / f"{name}.json", {"version": "1.1", "data": found})
        answers = sum(len(part["qas"]) for one in found for part in one["paragraphs"])
        print(f"{given.output / name}.json: {answers} answers in {len(found)} texts")


if __name__ == "__main__":
    main()
