"""Write the human questions that the generator of real text learns from, and those that judge it.

    python experiments/real-generator/prepare.py --shared ../shared --output DATA

`train.json`: SQuAD, SQuADShifts and FairytaleQA without new wiki's articles from JUDGED on; `validation.json`: two
more articles of new wiki; `test.json`: the articles from JUDGED on. Answers are spans; of FairytaleQA those questions
whose answer stands verbatim in their section.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JUDGED, VALIDATION = 36, (34, 35)  # articles of new wiki
SQUAD = (
    "squad/du_test-v1.1.json.gz",
    "squad/dev_part1-v1.1.json.gz",
    "squadshifts/amazon_reviews_v1.0.json.gz",
    "squadshifts/reddit_v1.0.json.gz",
)
NEW_WIKI = "squadshifts/new_wiki_v1.0.json.gz"


def articles(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(json.load(file)["data"])


def stories(path: Path) -> Iterator[dict[str, Any]]:
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


def write(path: Path, data: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"version": "1.1", "data": data}, ensure_ascii=False), encoding="utf-8")
    print(f"{path}: {sum(len(p['qas']) for article in data for p in article['paragraphs']):,} questions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    data = given.shared / "data"
    given.output.mkdir(parents=True, exist_ok=True)
    wiki = articles(data / NEW_WIKI)
    train = [article for name in SQUAD for article in articles(data / name)]
    train += [article for place, article in enumerate(wiki) if place < JUDGED and place not in VALIDATION]
    write(given.output / "train.json", [*train, *stories(data / "fairytaleqa" / "train.jsonl.gz")])
    write(given.output / "validation.json", [wiki[place] for place in VALIDATION])
    write(given.output / "test.json", wiki[JUDGED:])


if __name__ == "__main__":
    main()
