"""What was asked about documents, in the formats that other programs load."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rl_qg.asking.documents import line_feeds
from rl_qg.asking.pairs import QAPair
from rl_qg.data.examples import Answer, QAExample, by_key, squad_text
from rl_qg.data.formats import find_once
from rl_qg.data.question_tables import QuestionTable, TableRow
from rl_qg.pages.results import as_csv, no_formula
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import report_path, write_text, writing
from rl_qg.settings import ExportSettings
from rl_qg.text.words import counted

AUTO = "auto"  # the format is that of the ending
ENDINGS = {".jsonl": "jsonl", ".squad.json": "squad", ".json": "json", ".csv": "csv", ".anki.txt": "anki"}
ENDINGS |= {".gift": "gift"}
COLUMNS = ("question", "answer", "answer_start", "score", "title", "context", "reason")  # of CSV
SET_COLUMNS = ("question", "type", "start", "end", "score", "title", "context", "reason")
_GIFT = str.maketrans({sign: f"\\{sign}" for sign in "\\~=#{}:"} | {"\n": "\\n"})

Row = dict[str, Any]
"""A pair: `id`, `title`, `context`, `question`, `answer`, `answer_start` (in the context), `score`, `reason`, …"""


def format_of(name: str, chosen: str = AUTO) -> str:
    endings = (form for ending, form in ENDINGS.items() if name.lower().endswith(ending))
    found = next(endings, None) if chosen == AUTO else chosen
    if found is None:
        raise InputError(f"output={name}: name a file that ends in {', '.join(ENDINGS)}, or set format=")
    return found


def row_of(pair: QAPair, *, identity: str, title: str, context: str, passage_start: int = 0) -> Row:
    """A pair as a row; `context` is the text asked about, which begins at `passage_start` of its document."""
    return {"id": identity, "title": title, "context": context, **pair.to_dict(), "passage_start": passage_start}


def pair_of(row: Row) -> QAPair:
    """The pair of a row, with its place in the document."""
    known = {name: row[name] for name in ("question", "answer", "score", "logprob", "scores", "reason")}
    return QAPair(answer_start=row["passage_start"] + row["answer_start"], **known)


def export(rows: Sequence[Row], form: str) -> str:
    return FORMATS[form](rows)


def _as_csv(rows: Sequence[Row]) -> str:
    """Pairs, or questions of sets, one a row with its passage: `start` and `end` are those of its unit in it."""
    if rows and "questions" in rows[0]:
        questions = [{**row, **question} for row in rows for question in row["questions"]]
        return as_csv([{column: question[column] for column in SET_COLUMNS} for question in questions])
    return as_csv([{column: row.get(column, "") for column in COLUMNS} for row in rows])


def _as_squad2(rows: Sequence[Row]) -> str:
    """SQuAD 2.0 JSON; a row with a `kind` has no answer, but perhaps a plausible one. A passage is written once."""
    titles = by_key((row["title"], row) for row in rows).values()
    passages = [part for title in titles for part in by_key((row["context"], row) for row in title).values()]
    ordered = map(_example, chain.from_iterable(passages))
    return squad_text(ordered, {row["id"]: row["kind"] for row in rows if "kind" in row})


def _example(row: Row) -> QAExample:
    answers = (Answer(row["answer"], row["answer_start"]),) if row["answer_start"] >= 0 else ()
    return QAExample(row["id"], row["title"], row["context"], row["question"], answers)


def _as_anki(rows: Sequence[Row]) -> str:
    """A text file for Anki's import: front and back of a card. Every field is in quotes, because a line that begins
    with `#` would be a comment; line feeds within quotes are part of the field. As in CSV, no field is a formula if a
    spreadsheet opens the file.
    """
    stream = io.StringIO()
    stream.write("#separator:tab\n#html:false\n#columns:Question\tAnswer\n")
    writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([no_formula(row["question"]), no_formula(row["answer"])] for row in rows)
    return stream.getvalue()


def _as_gift(rows: Sequence[Row]) -> str:
    """Moodle GIFT: a category for each title, and a question with a short answer for each row.

    `[plain]` and the weight are written out, because a text that begins with a bracket or with `%` would be taken for
    them. A star is a wildcard in Moodle's short answers unless a backslash precedes it. GIFT has no way to write `->`
    in an answer, where it marks a matching question; it becomes `→`.
    """
    parts = []
    for title, group in groupby(rows, key=lambda row: row["title"]):
        parts.append(f"$CATEGORY: {' '.join(title.split()).replace('/', '//') or 'rl-qg'}\n")
        for row in group:
            answer = line_feeds(row["answer"]).replace("->", "→").replace("*", "\\*")
            texts = row["id"], line_feeds(row["question"]), answer
            name, question, answer = (text.translate(_GIFT) for text in texts)
            parts.append(f"::{name}::[plain]{question} {{=%100%{answer}}}\n")
    return "\n".join(parts)


def _as_ragas(rows: Sequence[Row]) -> str:
    """Samples of ragas' `EvaluationDataset`, one a line, for a system that is still to answer."""
    return json_lines(
        {"user_input": row["question"], "reference": row["answer"], "reference_contexts": [row["context"]]}
        for row in rows
    )


def _as_deepeval(rows: Sequence[Row]) -> str:
    """Goldens of DeepEval, as `EvaluationDataset.add_goldens_from_json_file` reads them by its default names."""
    return _json(
        [
            {"input": row["question"], "expected_output": row["answer"], "context": [row["context"]]}
            | {"actual_output": None, "retrieval_context": None, "source_file": row["title"]}
            for row in rows
        ]
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


FORMATS: dict[str, Callable[[Sequence[Row]], str]] = {
    "jsonl": json_lines,
    "json": lambda rows: _json(list(rows)),
    "csv": _as_csv,
    "squad": lambda rows: squad_text(map(_example, rows)),
    "squad2": _as_squad2,
    "anki": _as_anki,
    "gift": _as_gift,
    # Pairs of sentence-transformers: the loss takes the columns in their order.
    "retrieval": lambda rows: json_lines({"anchor": row["question"], "positive": row["context"]} for row in rows),
    "ragas": _as_ragas,
    "deepeval": _as_deepeval,
}


# Files of questions for other programs (`rl-qg export`): the formats above, and those that need several files, or
# several questions about an answer.

BEIR, PREFERENCES, PROMPTS = "beir", "preferences", "prompts"
WITHOUT_ANSWERS = ("retrieval", BEIR)  # formats that have no use for them
LARGEST = 1e300  # score, so that differences are finite
_FIELD = re.compile(r"\{(context|answer|title)\}")


def export_file(source: QuestionTable, output: Path, options: ExportSettings, *, use_cpu: bool = False) -> str:
    """Write the questions of a file in another format (with `options.unanswerable` also a report); return what the log
    says. Raises `InputError` naming a row that lacks what the format needs, and where nothing is left or other files
    are in the place of the output.
    """
    if "{context}" not in options.prompt and options.format in (PROMPTS, PREFERENCES):
        raise InputError(f"export.prompt={options.prompt!r} has no {{context}}, the place of the passage")
    every = [*source]
    possible = [row for row in every if not row.says_impossible]
    asked = [row for row in possible if source.text(row, "question").strip()]
    rows = [_row_of(source, row, options) for row in asked]
    if asked and options.changed("score") and not any(options.score in row.fields for row in asked):
        raise InputError(f"{source}: no row has the field {options.score!r}, which score= names")
    if len(ids := {row["id"] for row in rows}) < len(rows) or "" in ids:  # as those of candidates about one answer
        rows = [row | {"id": f"{row['id']}-{at}".lstrip("-")} for at, row in enumerate(rows)]
    kept = [row for row in rows if row["answer_start"] >= 0 or not options.format.startswith("squad")]
    left = {"impossible": len(every) - len(possible), "without a question": len(possible) - len(asked)}
    left["answer elsewhere"] = len(rows) - len(kept)
    reasons = "".join(f"; {why}, left out: {count:,}" for why, count in left.items() if count)
    report: dict[str, Any] = {}
    if options.format == BEIR:
        files, unit = _as_beir(rows), "question"
    elif options.format in (PREFERENCES, PROMPTS):
        make, unit = (preferences, "preference") if options.format == PREFERENCES else (_prompts, "answer")
        kept = make(rows, options.prompt)
        files = {"": json_lines(kept)}
    elif options.unanswerable and kept:
        from rl_qg.asking.unanswerable import unanswerable_questions  # PyTorch

        added, found = unanswerable_questions(kept, output, options, use_cpu=use_cpu)
        report = {"output": {"path": str(output)}, "rows": len(every), **left, **found}
        files, unit = {"": export([*kept, *added], options.format)}, "question"
    else:
        files, unit = {"": export(kept, options.format)}, "question"
    if not kept:  # of preferences: no answer has two questions of different scores
        raise InputError(f"{source}: no {unit} in its {counted(len(every), 'row')}{reasons}; nothing is written")
    targets = {report_path(output): _json(report)} if report else {}
    targets |= {output / name: text for name, text in files.items()}
    for path, text in targets.items():
        with writing(path):
            if path.exists() and (path.is_dir() or path.read_bytes() != text.encode(errors="replace")):
                raise InputError(f"output={path}: exists, with other contents; delete it, or name another one")
    for path, text in targets.items():
        with writing(path):
            write_text(path, text)
    kinds = ", ".join(f"{one['kept']:,} {kind}" for kind, one in report.get("kinds", {}).items())
    answers = counted(len({(row["context"], row["answer"], row["answer_start"]) for row in rows}), "answer")
    of, told = f" of {answers}" if options.format == PREFERENCES else "", kinds and f"; unanswerable: {kinds}"
    return f"{source}: {counted(len(every), 'row')}, {counted(len(kept), unit)}{of} written{told}{reasons}"


def _row_of(source: QuestionTable, row: TableRow, options: ExportSettings) -> Row:
    question, context = source.text(row, "question"), source.text(row, "context")
    answer = "" if options.format in WITHOUT_ANSWERS else source.text(row, "answer")
    start = source.answer_start(row)
    if start is None or not context.startswith(answer, start):
        start = max(-1, find_once(answer, context)) if answer else -1
    score = row.fields.get(options.score, "")
    if options.format == PREFERENCES and isinstance(score, str):  # a cell of CSV
        with suppress(ValueError):
            score = float(score)
    if options.format == PREFERENCES and (type(score) not in (int, float) or not abs(score) <= LARGEST):
        raise InputError(
            f"{row.where}: field {options.score!r} is {score!r:.40}, no number; score the questions first "
            "(rl-qg score), or name the field of their scores: score=…"
        )
    texts = {name: str(row.fields.get(name) or "") for name in ("title", "reason")}
    given = row.fields.get("id")
    about = {"id": "" if given is None else str(given), "context": context, "question": question}
    return {**about, "answer": answer, "answer_start": start, "score": score, **texts}


def _as_beir(rows: Sequence[Row]) -> dict[str, str]:
    """The files of a collection of BEIR (Thakur et al., NeurIPS 2021), which judges by the passage of a question."""
    titles = {row["context"]: row["title"] for row in rows}
    number = {context: f"p{at}" for at, context in enumerate(titles)}
    passages = [{"_id": number[text], "title": title, "text": text} for text, title in titles.items()]
    queries = [{"_id": f"q{at}", "text": row["question"]} for at, row in enumerate(rows)]
    judged = [f"q{at}\t{number[row['context']]}\t1\n" for at, row in enumerate(rows)]
    return {
        "corpus.jsonl": json_lines(passages),
        "queries.jsonl": json_lines(queries),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n" + "".join(judged),
    }


def _prompts(rows: Sequence[Row], template: str) -> list[Row]:
    """One row an answer for TRL's online trainers; its columns are those that the rewards read there."""
    names = ("context", "answer", "title")
    distinct = {tuple(row[name] for name in names): row for row in reversed(rows)}
    kept = reversed(distinct.values())
    return [{"prompt": _prompt(row, template)} | {name: row[name] for name in names} for row in kept]


def preferences(rows: Sequence[Row], template: str) -> list[Row]:
    """The best and the worst question of each answer, and the difference of their scores, for TRL's `DPOTrainer` and
    `RewardTrainer`; answers all of whose questions have the same score are left out.
    """
    groups = by_key(((row["context"], row["answer"], row["answer_start"]), row) for row in rows)
    found = []
    for group in groups.values():
        best, worst = (choose(group, key=itemgetter("score")) for choose in (max, min))
        if best["score"] > worst["score"] and best["question"] != worst["question"]:
            pair = {"chosen": f" {best['question']}", "rejected": f" {worst['question']}"}
            found.append({"prompt": _prompt(best, template), **pair, "margin": best["score"] - worst["score"]})
    return found


def _prompt(row: Row, template: str) -> str:
    return _FIELD.sub(lambda field: row[field[1]], template)
