"""Generated questions under several metrics: one table with intervals, by type and length, of one file or several.

A file may have any form that `rl-qg score` reads; a mapping whose names are all columns is one input of text files.
`references` names files of human questions, to be joined by id, or by passage and answer
(`rl_qg.evaluation.references`). Several files about the same passages, answers and references, row by row, are
compared by paired tests. Writes `evaluate.json`, `.txt`, `.html` and CSV (`tables/`); scores are kept in `scores/`, so
that a command that was killed goes on.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rl_qg.data.question_tables import QuestionTable, TableRow
from rl_qg.evaluation import predictions
from rl_qg.evaluation.references import BY_PASSAGE, GoldQuestions, as_published, grouped_rows, stated_sentence
from rl_qg.evaluation.sets import gap_files, is_set, passage_sets, rows_of_set, set_record, write_set_pairs
from rl_qg.pages.results import Page, Table, as_text, estimate_text, joined_rows, template_lines, write_results
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.kept_scores import FILE, MetricRow, check_rows, scores_of, write_draws
from rl_qg.scoring.reward_scorer import Reward, direction_of, signature_of
from rl_qg.settings import EvaluateSettings
from rl_qg.stats.intervals import PassageDraws, few_passages
from rl_qg.text.languages import AUTO, LANGUAGES, OTHER, known_code, language_of, share_in
from rl_qg.text.question_types import TYPE_TABLES

log = logging.getLogger(__name__)
UNIT = "in the unit of each metric"

LOOKED_AT = 200  # rows from which the language of a file is found
MOSTLY = 0.9  # share of a question's letters from which on it is in a script


def language_of_files(settings: EvaluateSettings) -> str:
    """The language that the questions should be in: that of the settings, or that of most of the first rows of the
    first file: of their passages; where these do not tell, of their references, then of the questions themselves;
    `other` where none tells.
    """
    if settings.language.casefold() != AUTO:
        return known_code(settings.language)
    source = next(iter(sources_of(settings).values()))
    looked_at = list(islice(source, LOOKED_AT))
    columns = (
        [source.value(row, "context") or "" for row in looked_at],
        [" ".join(source.value(row, "references") or ()) for row in looked_at],
        [source.value(row, "question") or "" for row in looked_at],
    )
    return next((code for texts in columns if (code := language_of(texts))), OTHER)


def language_shares(rows: Sequence[MetricRow], language: str) -> dict[str, Any]:
    """Return how many questions are in a language and its script; {} of a language without known script.

    - `questions`: those with letters
    - `in_script`: the share of which 90 % of the letters are of the language's scripts, or of words of the passage
    - `in_language`: the share whose language is found to be this one (`rl_qg.text.languages.language_of`)
    - `undecided`: the share of which the words do not tell, as of short questions
    - `others`: how many are found to be in which other language
    """
    known = LANGUAGES.get(language)
    if known is None:
        return {}
    asked = [row for row in rows if any(map(str.isalpha, row.question))]
    found = Counter(language_of(row.question) for row in asked)
    in_script = sum(share_in(row.question, known.scripts, row.context or "") >= MOSTLY for row in asked)
    count = max(len(asked), 1)
    return {
        "language": language,
        "questions": len(asked),
        "in_script": in_script / count,
        "in_language": found[language] / count,
        "undecided": found[""] / count,
        "others": {code: number for code, number in found.most_common() if code not in ("", language)},
    }


def evaluate(metrics: Mapping[str, Reward], settings: EvaluateSettings, folder: Path) -> dict[str, Any]:
    """Score every file with every metric, and write the results to `folder`; return the record."""
    settings = replace(settings, language=language_of_files(settings))
    sources = sources_of(settings)
    has_gold = settings.references not in ("", None)
    gold = GoldQuestions(settings.references, settings.references_split) if has_gold else None
    gap = gap_files(settings.gap, [*sources])
    read = {name: _rows(source, gold, settings.level == "sentence") for name, source in sources.items()}
    rows = {name: of_file for name, (of_file, _, _) in read.items()}
    if settings.compat == "lmqg":
        rows = {name: grouped_rows(of_file, settings.level, settings.aggregation) for name, of_file in rows.items()}
        metrics = as_published(metrics)
    for rows_of_file in rows.values():  # all files are checked before the first is scored
        check_rows(metrics, rows_of_file, "add it (human questions: references=train.json)")
    empty = [row for _, of_file, _ in read.values() for row in of_file]
    sets = passage_sets(rows, gold, empty) if settings.sets else None
    files = [_scored(name, rows_of_file, metrics, settings, folder) for name, rows_of_file in rows.items()]
    corpus = {label: metric.corpus for label, metric in metrics.items() if _has_corpus_form(metric)}  # type: ignore[attr-defined]
    why = predictions.not_alike(files)
    if settings.examples and why is not None:
        raise InputError(f"examples={settings.examples}: {why}; leave it out, or add sets=true page=sets.html instead")
    directions = {label: direction_of(metric) for label, metric in metrics.items()}
    signatures = {label: signature_of(metric) for label, metric in metrics.items()}
    record: dict[str, Any] = {
        "predictions": {name: source.hashes() for name, source in sources.items()},
        "references": gold.hashes() if gold is not None else {},
        "settings": asdict(settings),
        "counts": {
            file.name: {"questions": len(file.rows), "passages": file.draws.passages, **read[file.name][2]}
            for file in files
        },
        "signatures": signatures,
        "lower_is_better": [label for label, direction in directions.items() if direction < 0],
        "languages": {name: language_shares(of_file, settings.language) for name, of_file in rows.items()},
        "scores": [
            row for file in files for row in predictions.score_rows(file, corpus, settings.lengths, settings.language)
        ],
        "tests": predictions.test_rows(files, corpus, directions) if len(files) > 1 and why is None else [],
        "not_paired": why,
        **({"examples": predictions.example_rows(files, settings.examples)} if settings.examples else {}),
    }
    malformed = {str(source): source.malformed for source in sources.values() if source.malformed}
    malformed |= {str(gold): gold.malformed} if gold is not None and gold.malformed else {}
    record |= {"malformed": malformed} if malformed else {}
    if sets is not None:
        record |= set_record(sets, metrics, folder / "sets", resamples=settings.resamples, seed=settings.seed, gap=gap)
    of_sets = record.get("set_signatures", {}) | record.get("set_measure_signatures", {})
    shown = signatures | {f"sets, {label}": text for label, text in of_sets.items()}
    page = Page("evaluate", " · ".join(rows), _facts(record), _tables(record), shown)
    plain = {name: record.get(name, []) for name in ("scores", "tests", "sets", "set_measures", "examples")}
    write_results(folder, "evaluate", record, page, plain)
    write_draws(folder / FILE, [row for file in files for row in predictions.draw_rows(file, corpus)])
    if sets is not None and settings.page:
        write_set_pairs(folder, sets, metrics, record["not_in_sets"], settings.page_passages)
    log.info("%s\ndone: open %s", as_text(page), folder / "evaluate.html")
    return record


def sources_of(settings: EvaluateSettings, *more: str) -> dict[str, QuestionTable]:
    """The files by name; a mapping of columns, of which the table may have `more`, is one input."""
    columns, given = asdict(settings.columns), settings.predictions
    if isinstance(given, Mapping) and given:
        if given.keys() <= {*columns, *columns.values(), *more}:
            name = Path(str(next(iter(given.values())))).name.partition(".")[0]
            return {name: QuestionTable(given, columns)}
        return {str(name): QuestionTable(path, columns) for name, path in given.items()}
    paths = given if isinstance(given, list) else [given]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise InputError("predictions has no value; give a file, such as predictions=questions.jsonl, or several")
    names = [Path(path).name.partition(".")[0] for path in paths]
    if len(set(names)) < len(names):
        names = paths
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"predictions: {twice} is named twice; give each file once, or names: {{a: …, b: …}}")
    return {name: QuestionTable(path, columns) for name, path in zip(names, paths, strict=True)}


def _rows(
    source: QuestionTable, gold: GoldQuestions | None, by_sentence: bool
) -> tuple[list[MetricRow], list[MetricRow], dict[str, Any]]:
    """A row for each question, and for each passage without any; how many were joined to `gold` in which way."""
    contexts: dict[str, str] = {}
    rows: list[MetricRow] = []
    empty: list[MetricRow] = []
    joined: Counter[str] = Counter()
    unjoined = ""
    if gold is not None:
        gold.used.clear()
    for row in ProgressBar(source, desc="read", unit="row", leave=False, delay=2):
        context = source.value(row, "context")
        kept = None if context is None else contexts.setdefault(context, context)
        references = source.value(row, "references")
        if is_set(row):
            found, how = rows_of_set(row, kept, references, gold)
            (rows if row.fields["questions"] else empty).extend(found)
        else:
            found, how = _single(row, source, kept, references, gold)
            if by_sentence and found[0].sentence is None:
                found = [replace(found[0], sentence=stated_sentence(source.answer_start(row), kept, found[0].answer))]
            rows += found
        if gold is not None:
            joined[how] += len(found)
            unjoined = unjoined or ("" if how else row.where)
    if not rows:
        raise InputError(f"{source}: holds no question; check the file")
    if not any(row.question.strip() for row in rows):
        raise InputError(f"{source}: all {len(rows)} questions are empty; check what wrote them")
    if unjoined:
        raise InputError(
            f"{unjoined}: no question in {gold} is about its passage and answer ({joined['']:,} of {joined.total():,} "
            "rows have none there); give the file they were made from, or leave references= and what needs it out"
        )
    unused = {"references_unused": gold.unused} if gold is not None and gold.unused else {}
    joined -= Counter({BY_PASSAGE: len(empty)})  # without a question
    return rows, empty, {"references_by": dict(joined), **unused} if joined else {}


def _single(
    row: TableRow, source: QuestionTable, context: str | None, references: Any, gold: GoldQuestions | None
) -> tuple[list[MetricRow], str]:
    question, answer, how = source.text(row, "question"), source.value(row, "answer"), ""
    if gold is not None:
        references, how = gold.find(row.fields.get("id"), context, answer)
    found = None if references is None else tuple(references)
    sentence, title = source.value(row, "sentence"), source.value(row, "title")
    return [MetricRow(row.where, question, context, answer, found, sentence, title)], how


def _scored(
    name: str, rows: Sequence[MetricRow], metrics: Mapping[str, Reward], settings: EvaluateSettings, folder: Path
) -> predictions.Predictions:
    scores, counts = {}, {}
    scores_folder = folder / "scores" / quote(name, safe="")
    for label, metric in metrics.items():
        known = None
        if _has_corpus_form(metric):
            corpus_metric: Any = metric
            questions, references = [row.question for row in rows], [row.references for row in rows]
            counts[label] = np.asarray(corpus_metric.statistics(questions, references), dtype=np.float64)
            if hasattr(metric, "sentence"):  # from the same counts: words are split once
                known = np.asarray(corpus_metric.sentence(counts[label])).tolist()
        values = scores_of(label, metric, rows, scores_folder, batch_size=settings.batch_size, known=known)
        scores[label] = np.array(values, dtype=np.float64)  # None is NaN
    draws = PassageDraws(predictions.passage_groups(rows), resamples=settings.resamples, seed=settings.seed)
    bounds = {label: metric.bounds for label, metric in metrics.items() if hasattr(metric, "bounds")}
    return predictions.Predictions(name, rows, scores, counts, draws, bounds)


def _has_corpus_form(metric: Reward) -> bool:
    return hasattr(metric, "statistics") and hasattr(metric, "corpus")


def _facts(record: Mapping[str, Any]) -> list[str]:
    options = {"notes": predictions.NOTES, "other": OTHER, "with_types": [*TYPE_TABLES]}
    missing = [row for row in record["scores"] if row["by"] == predictions.ALL and "without_score" in row]
    few = few_passages(min(count["passages"] for count in record["counts"].values()))
    return template_lines("rl_qg.evaluation", "facts.txt", **record, **options, missing=missing, few=few)


def _tables(record: Mapping[str, Any]) -> list[Table]:
    note = predictions.NOTES["scores"]
    if record["lower_is_better"]:
        note += f" Better when lower: {', '.join(record['lower_is_better'])}."
    whole = [row for row in record["scores"] if row["by"] == predictions.ALL]
    tables = [Table(f"Scores ({UNIT})", predictions.file_table(whole, "form"), note)]
    tables += predictions.test_table(
        f"Differences ({UNIT})", record["tests"], ("metric", "form"), "pair", predictions.NOTES["tests_of_questions"]
    )
    lines = [
        {
            "file": name,
            "wanted": LANGUAGES[share["language"]].name,
            "questions": f"{share['questions']:,}",
            "in its script": f"{share['in_script']:.1%}",
            "in it": f"{share['in_language']:.1%}",
            "cannot be told": f"{share['undecided']:.1%}",
            "others": ", ".join(f"{code} {number:,}" for code, number in share["others"].items()) or "none",
        }
        for name, share in record["languages"].items()
        if share
    ]
    if lines:
        tables.append(Table("Language of the questions", lines, predictions.NOTES["language"]))
    if "sets" in record:
        tables.append(
            Table(f"Sets of questions ({UNIT})", predictions.file_table(record["sets"], "part"), _set_note(record))
        )
        lines = predictions.file_table(record["set_measures"], "part")
        tables.append(Table("Number, types and sentences of the sets", lines, predictions.NOTES["measures"]))
    several = len(record["counts"]) > 1
    for by, title in (("type", f"By type of question ({UNIT})"), ("length", f"By length of the question ({UNIT})")):
        for name in record["counts"]:
            rows = [row for row in record["scores"] if row["by"] == by and row["predictions"] == name]
            if rows:  # there are no types in a language without them
                tables.append(Table(f"{title}, {name}" if several else title, _by_kind(rows)))
    return [*tables, *predictions.example_tables(record.get("examples", []))]


def _set_note(record: Mapping[str, Any]) -> str:
    counts = record["set_counts"]
    without = [f"{name} asks nothing about {count:,}" for name, count in counts["without_questions"].items() if count]
    left_out = [f"{label} left out: {why}" for label, why in record["not_in_sets"].items()]
    return predictions.NOTES["sets"].format(**counts) + "".join(f" {sentence}." for sentence in [*without, *left_out])


def _by_kind(rows: predictions.Rows) -> list[dict[str, str]]:
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row["kind"]] = max(sizes.get(row["kind"], 0), row["n"] + row.get("without_score", 0))
    return joined_rows(
        rows, ("metric", "form"), lambda row: {f"{row['kind']} ({sizes[row['kind']]:,})": estimate_text(row)}
    )
