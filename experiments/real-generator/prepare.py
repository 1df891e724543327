"""Write the human questions that the generator and the readers of real text learn from, and those that judge them.

    python experiments/real-generator/prepare.py --shared ../shared --output DATA

`train.json`: SQuAD, SQuADShifts and FairytaleQA but for the judged articles of new wiki, and `validation.json`. For
each domain of SQuADShifts: `DOMAIN.json`, which gives reinforcement its passages and answers; `DOMAIN-test.json`,
whose questions judge; and `without-DOMAIN.json`, what is left for cross-entropy. `without-judged.json` has neither new
wiki nor Reddit. `du-test.json`: 1,000 questions of Du's test articles, and `without-du.json`, what is left without
these articles. `reader.json`: questions of no domain of SQuADShifts, and `reader-test.json`, further articles of
SQuAD. `squad-1.json` and `squad-10.json`: 1 and 10 % of the questions of SQuAD. Answers are spans; of FairytaleQA
those questions are used whose answer stands verbatim in their section.
"""

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SQUAD = ("squad/du_test-v1.1.json.gz", "squad/dev_part1-v1.1.json.gz")
DOMAINS = {"amazon": "amazon_reviews", "reddit": "reddit", "new_wiki": "new_wiki"}
JUDGED = 1380  # questions of a domain, at most: its last passages; of new wiki articles 36 to 47
VALIDATION = 373  # the two articles of new wiki before these
READER_TEST = 1400  # questions of SQuAD, of whole articles
Article = dict[str, Any]


def articles(path: Path) -> list[Article]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(json.load(file)["data"])


def stories(path: Path) -> Iterator[Article]:
    """Articles of FairytaleQA."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            story = json.loads(line)
            paragraphs = {one["section"]: {"context": one["text"], "qas": []} for one in story["sections"]}
            for place, row in enumerate(story["questions"]):
                paragraph = paragraphs.get(int(row["cor_section"].split(",")[0] or 0))
                answer = row["answer1"].strip()
                if paragraph and answer and (start := paragraph["context"].find(answer)) >= 0:
                    span = {"text": answer, "answer_start": start}
                    asked = {"id": f"fairytale-{number}-{place}", "question": row["question"], "answers": [span]}
                    paragraph["qas"].append(asked)
            yield {"title": story["story"], "paragraphs": [one for one in paragraphs.values() if one["qas"]]}


def questions(article: Article) -> int:
    return sum(len(paragraph["qas"]) for paragraph in article["paragraphs"])


def split(data: list[Article], held_back: int) -> tuple[list[Article], list[Article]]:
    """The data but for its last articles, and these: as many as have `held_back` questions at most. One article alone
    is split between its paragraphs.
    """
    if len(data) == 1:
        data = [{**data[0], "paragraphs": [paragraph]} for paragraph in data[0]["paragraphs"]]
    place, left = len(data), held_back
    while place and questions(data[place - 1]) <= left:
        place -= 1
        left -= questions(data[place])
    return data[:place], data[place:]


def sample(data: list[Article], fraction: float) -> list[Article]:
    """A fraction of the questions, with their passages."""
    found = [
        (place, at, one)
        for place, article in enumerate(data)
        for at, part in enumerate(article["paragraphs"])
        for one in part["qas"]
    ]
    taken: dict[tuple[int, int], list[Any]] = {}
    for place, at, one in random.Random(0).sample(found, round(fraction * len(found))):
        taken.setdefault((place, at), []).append(one)
    return [
        {"title": data[place]["title"], "paragraphs": [{**data[place]["paragraphs"][at], "qas": asked}]}
        for (place, at), asked in sorted(taken.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    data = given.shared / "data"
    given.output.mkdir(parents=True, exist_ok=True)

    def write(name: str, rows: list[Article]) -> None:
        path = given.output / f"{name}.json"
        path.write_text(json.dumps({"version": "1.1", "data": rows}, ensure_ascii=False), encoding="utf-8")
        print(f"{path}: {sum(map(questions, rows)):,} questions")

    squad = [article for name in SQUAD for article in articles(data / name)]
    fairytales = list(stories(data / "fairytaleqa" / "train.jsonl.gz"))
    domains = {name: articles(data / "squadshifts" / f"{file}_v1.0.json.gz") for name, file in DOMAINS.items()}
    parts = {name: split(rows, JUDGED) for name, rows in domains.items()}
    wiki, validation = split(parts["new_wiki"][0], VALIDATION)
    write("train", [*squad, *domains["amazon"], *domains["reddit"], *wiki, *fairytales])
    write("validation", validation)
    for name, (passages, test) in parts.items():
        others = [article for other in domains if other != name for article in domains[other]]
        write(f"without-{name}", [*squad, *others, *fairytales])
        write(name, passages)
        write(f"{name}-test", test)
    write("without-judged", [*squad, *domains["amazon"], *fairytales])
    du, others = (articles(data / name) for name in SQUAD)
    write("du-test", sample(du, 1000 / sum(map(questions, du))))
    unwatched = [*wiki, *parts["new_wiki"][1]]
    write("without-du", [*others, *domains["amazon"], *domains["reddit"], *unwatched, *fairytales])
    for percent in (1, 10):
        write(f"squad-{percent}", sample(squad, percent / 100))
    read, unread = split(squad, READER_TEST)
    write("reader", [*read, *fairytales])
    write("reader-test", unread)


if __name__ == "__main__":
    main()
