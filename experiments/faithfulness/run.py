"""Human questions and the names of their passage: `python experiments/faithfulness/run.py --shared ../shared`."""

import argparse
import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from rewards import EntityFaithfulness

FILES = {
    "SQuAD": ("squad/du_test-v1.1.json.gz", "en"),
    "new wiki": ("squadshifts/new_wiki_v1.0.json.gz", "en"),
    "Reddit": ("squadshifts/reddit_v1.0.json.gz", "en"),
    "Amazon": ("squadshifts/amazon_reviews_v1.0.json.gz", "en"),
    "XQuAD es": ("xquad/xquad.es.json", "es"),
    "XQuAD ru": ("xquad/xquad.ru.json.gz", "ru"),
    "XQuAD de": ("xquad/xquad.de.json", "de"),
}
Scores = Callable[[Sequence[str], Sequence[str], Sequence[str]], tuple[list[float], list[int]]]


def read(path: Path) -> list[tuple[str, str, list[str]]]:
    """The passages of a file of SQuAD's form with their titles and questions."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    articles = json.loads(text)["data"]
    return [
        (p["context"], article["title"], [qa["question"] for qa in p["qas"]])
        for article in articles
        for p in article["paragraphs"]
    ]


def verbatim(
    questions: Sequence[str], contexts: Sequence[str], titles: Sequence[str]
) -> tuple[list[float], list[int]]:
    """Share of the capitalised words (but the first) and numbers that are words of the passage as they stand."""
    scores, counts = [], []
    for question, context in zip(questions, contexts, strict=True):
        words = set(re.findall(r"\w[\w’'-]*", context)) | {
            w.removesuffix("'s") for w in re.findall(r"\w[\w’'-]*", context)
        }
        asked = [word.removesuffix("'s") for word in re.findall(r"\w[\w’'-]*", question)[1:]]
        asked = [word for word in asked if word[0].isupper() or word[0].isdigit()]
        counts.append(len(asked))
        scores.append(sum(word in words for word in asked) / len(asked) if asked else 1.0)
    return scores, counts


def metric(language: str, *, with_titles: bool = False) -> Scores:
    """The metric, as a function of questions, passages and their titles."""

    def scored(
        questions: Sequence[str], contexts: Sequence[str], titles: Sequence[str]
    ) -> tuple[list[float], list[int]]:
        asked = EntityFaithfulness(language=language, titles=with_titles)
        result = asked.score(questions, contexts, titles=titles)
        return result.scores, [int(count) for count in result.parts["entities"]]

    return scored


def auc(right: Sequence[float], wrong: Sequence[float]) -> float:
    """Probability that a score of `right` is above one of `wrong`, ties counted half."""
    values = sorted({*right, *wrong})
    below, area = 0, 0.0
    for value in values:
        ties = sum(score == value for score in wrong)
        area += sum(score == value for score in right) * (below + ties / 2)
        below += ties
    return area / len(right) / len(wrong)


def row(passages: list[tuple[str, str, list[str]]], scores: Scores, seed: int) -> dict[str, float]:
    """Of the questions with a name: the shares that score 1.0 with their own passage, the next one of the file (mostly
    of the same article) and one drawn, and the areas of the own against both.
    """
    contexts = [(context, title) for context, title, _ in passages]
    drawn = [*contexts]
    random.Random(seed).shuffle(drawn)
    columns = {"own": contexts, "next": [b for _, b in pairwise([*contexts, contexts[0]])], "drawn": drawn}
    questions = [question for *_, asked in passages for question in asked]
    found: dict[str, list[float]] = {}
    for name, column in columns.items():
        rows = [about for about, (*_, asked) in zip(column, passages, strict=True) for _ in asked]
        values, counts = scores(questions, [context for context, _ in rows], [title for _, title in rows])
        if name == "own":
            kept = [count > 0 for count in counts]
        found[name] = [value for value, keep in zip(values, kept, strict=True) if keep]
    shares = {name: sum(value == 1.0 for value in values) / len(values) for name, values in found.items()}
    areas = {f"auc {name}": auc(found["own"], found[name]) for name in ("next", "drawn")}
    return {"questions": len(questions), "with a name": sum(kept) / len(kept), **shares, **areas}


def failures(passages: list[tuple[str, str, list[str]]], language: str, number: int, seed: int) -> None:
    """Print a sample of the questions that score less than 1.0 with the names that are not supported."""
    asked = EntityFaithfulness(language=language)
    wrong = []
    for context, _, questions in passages:
        for question in questions:
            if missing := [entity.text for entity in asked.entities(question, context) if not entity.supported]:
                wrong.append((missing, question, context))
    for missing, question, context in random.Random(seed).sample(wrong, min(number, len(wrong))):
        print(missing, "|", question, "\n      ", context)


def main() -> None:
    """Print one row for each file, before (verbatim) and after."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/")
    parser.add_argument("--failures", type=int, default=0, help="print so many questions of each file that fail")
    parser.add_argument("--only", choices=FILES, help="one file")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    options = parser.parse_args()
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name, (file, language) in FILES.items():
        if options.only in (None, name):
            passages = read(options.shared / "data" / file)
            rules = {"verbatim": verbatim, "metric": metric(language), "title": metric(language, with_titles=True)}
            for label, scores in rules.items():
                cells = row(passages, scores, options.seed)
                rows.setdefault(name, {})[label] = cells
                print(name, label, *(f"{key} {value:.3f}" for key, value in cells.items()), sep=" | ", flush=True)
            if options.failures:
                failures(passages, language, options.failures, options.seed)
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
