"""The page of `rl-qg evaluate sets=true page=sets.html`: the questions of a passage side by side for every file, with
lines to the human questions that they are paired with.

Made from `evaluate.json` and `set_pairs.json` of the evaluation's folder alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_qg.pages.results import Rows, estimate_text, page_environment
from rl_qg.reports.run_files import TABLES
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_record, write_text, writing

TITLE = "rl-qg evaluate, sets"
COLUMNS = {(metric, part): column for metric, part, column in TABLES["sets"]}


def write_set_page(folder: Path, output: Path) -> None:
    record, pairs = read_record(folder / "evaluate.json"), read_record(folder / "set_pairs.json")
    try:
        page = {
            **{key: pairs[key] for key in ("metric", "signature", "of")},
            "title": " · ".join(record["predictions"]),
            "summary": summary(record),
            "passages": [
                {
                    "context": str(passage["context"]),
                    "files": [
                        file_view(name, file["questions"], list(map(str, passage["references"])), file["pairs"])
                        for name, file in passage["files"].items()
                    ],
                }
                for passage in pairs["passages"]
            ],
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{folder}: evaluate.json and set_pairs.json are not what rl-qg evaluate writes "
            f"({type(error).__name__}: {error}); run it again"
        ) from None
    template = page_environment("rl_qg.reports", "set_template.html").get_template("set_template.html")
    with writing(output):
        write_text(output, template.render(page=page))


def summary(record: Mapping[str, Any]) -> Rows:
    """A row for each file (Multi-M F1, Self-BLEU, number, coverage, types, gap closed), people and their halves."""
    rows: dict[str, dict[str, str]] = {}
    for row in (*record["sets"], *record["set_measures"]):
        metric, part = row["metric"], row["part"]
        column = COLUMNS.get((metric, part), metric if metric == "self-BLEU2" else "")
        if part in ("f1", "gap closed"):
            column = f"{metric} {'F1' if part == 'f1' else part}"
        if column:
            rows.setdefault(row["predictions"], {"file": row["predictions"]})[column] = estimate_text(row)
    return list(rows.values())


def file_view(
    name: str, questions: Sequence[str], references: Sequence[str], pairs: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Questions and references, numbered, with their partners and scores; lines between them in units of a row."""
    of_question = {int(question): (int(reference), float(score)) for question, reference, score in pairs}
    paired = {reference for reference, _ in of_question.values()}
    if not {*of_question} <= {*range(len(questions))} or not paired <= {*range(len(references))}:
        raise ValueError("a pair of a question that is not there")
    rows: list[dict[str, Any]] = [
        {"number": number, "text": text or "(empty)", "partner": None} for number, text in enumerate(questions, 1)
    ]
    for question, (reference, score) in of_question.items():
        rows[question] |= {"partner": reference + 1, "score": f"{score:.2f}"}
    return {
        "name": name,
        "rows": max(len(questions), len(references), 1),
        "questions": rows,
        "references": [
            {"number": number + 1, "text": text, "paired": number in paired} for number, text in enumerate(references)
        ],
        "lines": [  # the better the score of a pair, the darker its line
            {
                "from": question + 0.5,
                "to": reference + 0.5,
                "darkness": round(0.2 + 0.8 * min(max(score, 0.0), 1.0), 3),
            }
            for question, (reference, score) in sorted(of_question.items())
        ],
    }
