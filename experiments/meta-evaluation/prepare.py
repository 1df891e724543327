"""The human judgements of the shared data as files that `rl-qg correlate` reads.

python experiments/meta-evaluation/prepare.py --shared ../shared --output DIR
"""

import argparse
import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rl_qg.text.question_types import question_type

Line = dict[str, Any]


def opened(path: Path) -> Any:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8", newline="")


def json_lines(path: Path) -> Iterator[Line]:
    with opened(path) as stream:
        yield from map(json.loads, stream)


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def qgeval(folder: Path) -> Iterator[Line]:
    """15 systems (one of them the human question), 7 dimensions, 3 annotators. `human` is the mean of the annotators:
    the source's own is rounded to four digits. Values of the authors that are dictionaries (GPTScore, UniEval) are
    left out.
    """
    passages = {row["id"]: row for row in json_lines(folder / "passages.jsonl")}
    for row in json_lines(folder / "questions.jsonl.gz"):
        source = passages[row["id"]]
        yield {
            "question": row["prediction"],
            "context": source["passage"],
            "answer": source["answer"],
            "references": [source["reference"]],
            "system": row["system"],
            "item": row["id"],
            "group": row["id"],
            "human": {name: mean(given) for name, given in row["annotators"].items()},
            "ratings": row["annotators"],
            "metrics": {name: value for name, value in row["metrics"].items() if not isinstance(value, dict)},
        }


def qgeval_systems(folder: Path) -> Iterator[Line]:
    """The same without the human questions, which reference-based metrics see as their own reference."""
    return (row for row in qgeval(folder) if row["system"] != "reference")


def qgeval_judges(folder: Path) -> Iterator[Line]:
    """The questions whose answerability language models judged too, with their published ratings as metrics."""
    passages = {row["id"]: row for row in json_lines(folder / "passages.jsonl")}
    for row in json_lines(folder / "llm_judges_answerability.jsonl"):
        source = passages[row["id"]]
        judges = {name: row[name] for name in ("RQUGE", "UniEval", "GPTScore-src", "GPT3.5", "GPT4")}
        judges |= {name: row[name] for name in ("G-EVAL-gpt3.5", "G-EVAL-gpt4")}
        yield {
            "question": row["prediction"],
            "context": source["passage"],
            "answer": source["answer"],
            "references": [source["reference"]],
            "system": row["source"].partition("_")[2],
            "item": row["id"],
            "group": row["id"],
            "human": {"answerability": row["answerability"]},
            "metrics": {name: value for name, value in judges.items() if value is not None},
        }


def lmqg_human(folder: Path) -> Iterator[Line]:
    """6 systems, 3 criteria, 5 raters. The authors' values are left out where they belong to another item (`same_item`
    is false; see the data's SOURCE.md).
    """
    for item in json_lines(folder / "items.jsonl.gz"):
        for row in item["questions"]:
            ratings = {name: row[name] for name in ("correctness", "grammaticality", "understandability")}
            official = row["official"]
            names = ("Bleu_4", "METEOR", "ROUGE_L", "BERTScore", "MoverScore")
            yield {
                "question": row["prediction"],
                "context": item["passage"],
                "answer": item["answer"],
                "references": item["references"],
                "system": row["system"],
                "item": str(item["item"]),
                "group": item["passage"],
                "human": {name: mean(given) for name, given in ratings.items()},
                "ratings": ratings,
                "metrics": {name: official[name] for name in names} if official["same_item"] else {},
                "reference_used": official["reference"],  # by the authors, one of them
            }


def simqg(folder: Path) -> Iterator[Line]:
    """Means over crowd raters, 0 to 1; the file gives no system, no answer and no single ratings."""
    with opened(folder / "simqg_mturk_part1.tsv") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield {
                "question": row["GENQ"],
                "context": row["#PASSAGE"],
                "references": [row["REFQ"]],
                "group": row["#PASSAGE"],
                "item": f"{row['#PASSAGE']} {row['REFQ']}",
                "human": {name.lower(): float(row[name]) for name in ("FLUENCY", "RELEVANT", "ANSWERABLE", "SIMILAR")},
            }


def quiz_design(folder: Path) -> Iterator[Line]:
    """Whether a teacher would keep the question (1) or not (0); there is no reference question."""
    for group in json_lines(folder / "groups.jsonl.gz"):
        for row in group["questions"]:
            yield {
                "question": row["question"],
                "context": group["context"],
                "answer": group["answer_span"],
                "system": row["model_name"].split("|"),
                "item": str(group["group_id"]),
                "group": group["context"],
                "human": {"kept": row["label"]},
            }


def answerability(folder: Path) -> Iterator[Line]:
    """Gold questions with words dropped, rated 1 to 5 by two people; no passage. The gold question is the reference,
    and what bootstraps draw.
    """
    with opened(folder / "squad.tsv") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            ratings = [float(row[f"Answerability Score User {rater}"]) for rater in (1, 2)]
            yield {
                "question": row["Modified Question"],
                "references": [row["Gold Question"]],
                "group": row["Gold Question"],
                "item": row["Gold Question"],
                "human": {"answerability": mean(ratings)},
                "ratings": {"answerability": ratings},
            }


def kpqa(name: str) -> Callable[[Path], Iterator[Line]]:
    """ANSWERS to questions, rated for correctness 1 to 5: the answer is what is judged (`question`), the question
    asked is its `context` and gives the `type`. Two systems answered 500 questions (which of them, no row says): the
    question with its references is the item, and what bootstraps draw.
    """

    def lines(folder: Path) -> Iterator[Line]:
        with opened(folder / f"{name}_all.csv") as stream:
            for row in csv.DictReader(stream):
                references = [row[key] for key in row if key.startswith("reference") and row[key].strip()]
                asked = json.dumps([row["question"], references], ensure_ascii=False)
                yield {
                    "question": row["answer"],
                    "context": row["question"],
                    "references": references,
                    "group": asked,
                    "item": asked,
                    "type": question_type(row["question"]),
                    "human": {"correctness": float(row["scores"])},
                }

    return lines


FILES: dict[str, tuple[str, Callable[[Path], Iterator[Line]]]] = {
    "qgeval": ("qgeval", qgeval),
    "qgeval_systems": ("qgeval", qgeval_systems),
    "qgeval_judges": ("qgeval", qgeval_judges),
    "lmqg_human": ("lmqg_human", lmqg_human),
    "simqg": ("simqg", simqg),
    "quiz_design": ("quiz_design", quiz_design),
    "answerability": ("answerability", answerability),
    "kpqa_marco": ("kpqa", kpqa("marco")),
    "kpqa_avsd": ("kpqa", kpqa("avsd")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    for name, (folder, lines) in FILES.items():
        path = given.output / f"{name}.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            count = 0
            for line in lines(given.shared / "data" / folder):
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                count += 1
        print(f"{path}: {count} questions")


if __name__ == "__main__":
    main()
