"""Write the human questions that teach and judge retrievers, and the passages that a generator asks about.

    python experiments/retrieval/prepare.py --shared ../shared --output DATA

For each domain: `DOMAIN-test.jsonl`, human questions about the last passages (of FairytaleQA, about its validation
stories); `DOMAIN-human.jsonl`, those about the other passages; `DOMAIN-passages.jsonl`, a seeded sample of these
passages. SQuAD has the last file alone. No passage of a test file is in the other two.
"""

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

SHIFTS = {"new_wiki": "new_wiki", "amazon": "amazon_reviews", "reddit": "reddit"}
TESTED = 400  # passages of a domain of SQuADShifts
PASSAGES = 600  # that a generator asks about
Row = dict[str, str]


def squad(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [
            {"id": qa["id"], "title": article["title"], "context": paragraph["context"], "question": qa["question"]}
            for article in json.load(file)["data"]
            for paragraph in article["paragraphs"]
            for qa in paragraph["qas"]
        ]


def stories(path: Path) -> Iterator[Row]:
    """The questions of FairytaleQA with their section: the first one, where they are about several."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            story = json.loads(line)
            sections = {one["section"]: one["text"] for one in story["sections"]}
            for place, asked in enumerate(story["questions"]):
                if context := sections.get(int(asked["cor_section"].split(",")[0] or 0)):
                    name = f"{story['story']}-{place}"
                    yield {"id": name, "title": story["story"], "context": context, "question": asked["question"]}


def write(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    data, output = options.shared / "data", options.output
    output.mkdir(parents=True, exist_ok=True)
    human = {}
    for name, file in SHIFTS.items():
        rows = squad(data / f"squadshifts/{file}_v1.0.json.gz")
        tested = {*[*dict.fromkeys(row["context"] for row in rows)][-TESTED:]}
        human[name] = [row for row in rows if row["context"] not in tested]
        write(output / f"{name}-test.jsonl", [row for row in rows if row["context"] in tested])
    test = [*stories(data / "fairytaleqa/val.jsonl.gz")]
    tested = {row["context"] for row in test}
    human["fairytale"] = [row for row in stories(data / "fairytaleqa/train.jsonl.gz") if row["context"] not in tested]
    write(output / "fairytale-test.jsonl", test)
    for name, rows in human.items():
        write(output / f"{name}-human.jsonl", rows)
    for name, rows in {**human, "squad": squad(data / "squad/du_test-v1.1.json.gz")}.items():
        contexts = {row["context"]: row["title"] for row in rows}
        chosen = random.Random(13).sample([*contexts], PASSAGES)
        write(output / f"{name}-passages.jsonl", [{"title": contexts[text], "context": text} for text in chosen])


if __name__ == "__main__":
    main()
