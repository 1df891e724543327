"""The page of `rl-qg evaluate sets=true page=sets.html`: the questions of a passage side by side for every file, with
lines to the human questions that they are paired with.

Made from `evaluate.json` and `set_pairs.json` of the evaluation's folder alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_qg.pages.results import Rows, page_environment
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, read_json, writing

TITLE = "rl-qg evaluate, sets"
SHOWN_LENGTH = 1200  # characters of a passage that are shown at once; the rest on demand
# Of each file, in the summary: measure and part -> column.
COLUMNS = {
    ("number of questions", "mean"): "questions",
    ("references less questions", "mean"): "references less questions",
    ("number of questions", "correlation"): "correlation of the numbers",
    ("sentences", "coverage"): "sentences covered",
    ("nine types", "distance"): "distance of types",
    ("repeated questions", "share"): "repeated",
}


def write_set_page(folder: Path, output: Path) -> None:
    record, pairs = read_json(folder / "evaluate.json"), read_json(folder / "set_pairs.json")
    try:
        page = {
            "title": " · ".join(record["predictions"]),
            "metric": pairs["metric"],
            "signature": pairs["signature"],
            "of": pairs["of"],
            "summary": summary(record),
            "passages": [passage_view(passage) for passage in pairs["passages"]],
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{folder}: evaluate.json and set_pairs.json are not what rl-qg evaluate writes "
            f"({type(error).__name__}: {error}); run it again"
        ) from None
    template = page_environment("rl_qg.reports", "set_template.html").get_template("set_template.html")
    with writing(output), atomic_writer(output) as stream:
        stream.write(template.render(page=page))


def summary(record: Mapping[str, Any]) -> Rows:
    """A row for each file: Multi-M (F1) of every metric, Self-BLEU, number, coverage, types, and the gap closed; one
    for the human questions, and one for their halves.
    """
    rows: dict[str, dict[str, str]] = {}
    for row in (*record["sets"], *record["set_measures"]):
        metric, part = row["metric"], row["part"]
        column = COLUMNS.get((metric, part))
        if part == "f1":
            column = f"{metric} F1"
        elif part == "gap closed":
            column = f"{metric} gap closed"
        elif metric == "self-BLEU2":
            column = metric
        if column is not None:
            rows.setdefault(row["predictions"], {"file": row["predictions"]})[column] = _number(row)
    return list(rows.values())


def _number(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return "–"
    interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if row.get("low") is not None else ""
    return f"{row['value']:.3f}{interval}".replace("-", "\N{MINUS SIGN}")


def passage_view(passage: Mapping[str, Any]) -> dict[str, Any]:
    references = [str(text) for text in passage["references"]]
    context = str(passage["context"])
    return {
        "begin": context[:SHOWN_LENGTH],
        "rest": context[SHOWN_LENGTH:],
        "files": [
            file_view(name, file["questions"], references, file["pairs"]) for name, file in passage["files"].items()
        ],
    }


def file_view(
    name: str, questions: Sequence[str], references: Sequence[str], pairs: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """The questions of a file and the references of a passage, numbered, each with the number of its partner and the
    score of the pair, and the lines between them in units of a row.
    """
    of_question = {int(question): (int(reference), float(score)) for question, reference, score in pairs}
    of_reference = {reference: question for question, (reference, _) in of_question.items()}
    lines = list(_lines(of_question))
    if not {*of_question} <= {*range(len(questions))} or not {*of_reference} <= {*range(len(references))}:
        raise ValueError("a pair of a question that is not there")
    return {
        "name": name,
        "rows": max(len(questions), len(references), 1),
        "questions": [
            {"number": number, "text": text or "(empty)", "partner": None, "score": None}
            | ({"partner": partner[0] + 1, "score": f"{partner[1]:.2f}"} if partner else {})
            for number, text in enumerate(questions, 1)
            for partner in [of_question.get(number - 1)]
        ],
        "references": [
            {"number": number, "text": text, "paired": number - 1 in of_reference}
            for number, text in enumerate(references, 1)
        ],
        "lines": lines,
    }


def _lines(of_question: Mapping[int, tuple[int, float]]) -> Iterator[dict[str, float]]:
    for question, (reference, score) in sorted(of_question.items()):
        darkness = 0.2 + 0.8 * min(max(score, 0.0), 1.0)
        yield {"from": question + 0.5, "to": reference + 0.5, "darkness": round(darkness, 3)}
