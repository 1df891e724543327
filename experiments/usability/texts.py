"""The texts that pairs are made of: documents written for this, and texts that no generator here has learned, but for
the 21 passages of QGEval that are of SQuAD.
"""

import csv
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCUMENTS = Path(__file__).parent / "documents.jsonl"


def key_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def outside_texts(data: Path) -> Iterator[tuple[str, str]]:
    """Kind and text of HotpotQA's paragraphs, reviews of SubjQA, validation stories of FairytaleQA, and passages of
    QGEval and of the quiz design data.
    """
    with gzip.open(data / "hotpotqa/distractor_sample_100.json.gz", "rt", encoding="utf-8") as stream:
        for row in json.load(stream):
            yield from (("hotpot", "".join(found).strip()) for _, found in row["context"])
    for path in sorted(data.glob("subjqa/**/*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            yield from (
                ("review", row["review"].replace("ANSWERNOTFOUND", "").strip()) for row in csv.DictReader(stream)
            )
    for story in lines(data / "fairytaleqa/val.jsonl.gz"):
        yield from (("story", part["text"].strip()) for part in story["sections"])
    yield from (("qgeval", row["passage"]) for row in lines(data / "qgeval/passages.jsonl"))
    yield from (("quiz", row["context"]) for row in lines(data / "quiz_design/groups.jsonl.gz"))


def all_texts(shared: Path) -> dict[str, tuple[str, str]]:
    """Kind and text of each, by its key; `shared` has the folder `data`."""
    documents = [("document", row["text"]) for row in lines(DOCUMENTS)]
    return {key_of(text): (kind, text) for kind, text in [*documents, *outside_texts(shared / "data")]}
