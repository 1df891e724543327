"""The leaderboard: models × data × metrics on one page, the best marked only among those that do not differ from it
significantly.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from rl_qg.data.examples import by_key
from rl_qg.evaluation.predictions import CORPUS, MEAN
from rl_qg.pages.results import Page, Table, as_csv, as_text, estimate_text, joined_rows, p_text, write_results
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import as_written, packaged_yaml, read_json, read_yaml, write_text
from rl_qg.runtime.run_folder import CONFIG
from rl_qg.scoring.kept_scores import FILE, ScoreDraws, paired_difference, read_draws
from rl_qg.stats.intervals import add_holm

NAMES = ("evaluate.json", "evaluation.json")  # of results in a folder
ROLES = ("train", "validation", "dev", "test")  # file names that do not tell data apart
MEASURES = {  # of a run's evaluation.json: the field of the signature
    "reward": "reward_signature",
    "held_out": "held_out_signature",
    "bleu4": "bleu_signature",
    "rouge_l": "rouge_l_signature",
}
log = logging.getLogger(__name__)
LEVEL = 0.05
BEST, ALIKE, WORSE, UNTESTED, ALONE = "best", "not different from the best", "worse", "not tested", "alone"
MARKS = {BEST: " *", ALIKE: " *", UNTESTED: " ?", WORSE: "", ALONE: ""}
Rows = list[dict[str, Any]]
NOTES: dict[str, str] = packaged_yaml(__file__, "notes.yaml")


@dataclass(frozen=True)
class ModelScore:
    """One score of one model on data; hashes of human questions and the draws behind it, where they are known."""

    data: str
    model: str
    metric: str
    form: str
    value: float
    low: float | None
    high: float | None
    n: int | None
    lower_is_better: bool
    signature: str
    source: Path
    data_hashes: frozenset[str] = frozenset()  # of files of human questions, and of what the draws are about
    seeds: int | None = None
    draws: ScoreDraws | None = None

    @property
    def column(self) -> tuple[str, str, str, str]:
        return self.data, self.metric, self.form, self.signature


def read_results(sources: Sequence[tuple[str | None, Path]]) -> list[ModelScore]:
    """The results of files, or of folders that hold one; each with the name of its data, or None: that of the file of
    human questions, with its folder's where it is called train, validation, dev or test.
    """
    found: dict[tuple[str, ...], ModelScore] = {}
    hashes: dict[str, ModelScore] = {}
    for name, source in sources:
        for result in _checked(name, source):
            key = (*result.column, result.model)
            if (earlier := found.get(key)) is not None and earlier.value != result.value:
                raise InputError(
                    f"{earlier.source} and {result.source}: both have {result.metric} of {result.model!r} on "
                    f"{result.data!r}, with other values; name the models apart (predictions={{NAME: FILE}}), or the "
                    "data (NAME=RESULT)"
                )
            first = hashes.setdefault(result.data, result) if result.data_hashes else result
            if first is not result and first.data_hashes.isdisjoint(result.data_hashes):
                raise InputError(
                    f"{first.source} and {result.source}: are about other human questions, and both are called "
                    f"{result.data!r}; name them, such as english={first.source}"
                )
            found.setdefault(key, result)
    return list(found.values())


def _checked(name: str | None, source: Path) -> list[ModelScore]:
    """The results of a file, or `InputError` where one lacks a name, or has a value that is no finite number."""
    with as_written(source):
        results = [*_of_file(name, source)]
        numbers = [one.value + (one.low or 0) + (one.high or 0) + (one.n or 0) for one in results]
        if not all("".join((one.model, *one.column)) for one in results) or not all(map(isfinite, numbers)):
            raise ValueError("a name is empty, or a value is not finite")
    if not results:
        raise InputError(f"{source}: has no score of a model (of pairs=true there is none here); leave it out")
    return results


def _of_file(name: str | None, source: Path) -> Iterator[ModelScore]:
    path = _file(source)
    content = read_json(path)
    record = content if isinstance(content, dict) else {}
    if {"scores", "signatures"} <= record.keys():
        yield from _scores(name, path, record)
    elif {"models", "reward_signature"} <= record.keys():
        yield from _of_run(name, path, record)
    else:
        raise InputError(
            f"{path}: is no result; give evaluate.json of rl-qg evaluate, the .json of rl-qg qa-evaluate, or "
            "evaluation.json of a run"
        )


def _file(source: Path) -> Path:
    if not source.is_dir():
        if not source.is_file():
            raise InputError(f"{source}: no such file or folder; give results of rl-qg evaluate, or run folders")
        return source
    present = [source / name for name in NAMES if (source / name).is_file()]
    if not present:
        raise InputError(f"{source}: holds neither {' nor '.join(NAMES)}; name a result in it")
    return present[0]


def _scores(name: str | None, path: Path, record: Mapping[str, Any]) -> Iterator[ModelScore]:
    """Of `rl-qg evaluate` and `rl-qg qa-evaluate`: the rows about all questions."""
    human: Mapping[str, str] = record.get("references") or record.get("data") or {}
    data, files = name or _data_name(human) or path.parent.name, " ".join(sorted(human.values()))
    beside = path.with_suffix("") / FILE if "systems" in record else path.parent / FILE
    draws = {(one.predictions, one.metric, one.form): one for one in read_draws(beside)}
    for row in record["scores"]:
        if row.get("by", "all") != "all" or row.get("value") is None or "part" in row:
            continue
        metric, form = row["metric"], row.get("form", MEAN)
        of_row = draws.get((row["predictions"], metric, form))
        if of_row is not None and of_row.values[0] != row["value"]:
            of_row = None  # of an earlier or a later result
        elif of_row is not None and row.get("seeds", 1) > 1:
            of_row = replace(of_row, degrees=row["seeds"] - 1.0)  # earlier versions kept those of the single score
        yield ModelScore(
            *(data, row["predictions"], metric, form, row["value"], row.get("low"), row.get("high"), row.get("n")),
            lower_is_better=metric in record.get("lower_is_better", ()),
            signature=record["signatures"].get(metric, ""),
            source=path,
            data_hashes=frozenset({files, of_row.items if of_row else files} if files else ()),
            seeds=row.get("seeds"),
            draws=of_row,
        )


def _of_run(name: str | None, path: Path, record: Mapping[str, Any]) -> Iterator[ModelScore]:
    """Of a training run: its generators, on the passages that it held out. It keeps no draws."""
    config = path.parent / CONFIG
    settings = read_yaml(config) if config.is_file() else {}
    sources = (settings.get("data") or {}).get("validation")
    paths = sources if isinstance(sources, list) else [sources] if sources else []
    data = name or _data_name(dict.fromkeys(map(str, paths), "")) or path.parent.name
    for model, measures in record["models"].items():
        for metric, field in MEASURES.items():
            given = measures.get(metric)
            if model == "gold" or given is None:
                continue
            cell = given if isinstance(given, Mapping) else {"mean": given}
            signature = record.get(field) or measures.get(field) or ""
            yield ModelScore(
                *(data, f"{path.parent.name}/{model}", metric, "held out"),
                *(cell["mean"], cell.get("low"), cell.get("high"), cell.get("n", record.get("examples"))),
                lower_is_better=False,
                signature=signature,
                source=path,
            )


def _data_name(human: Mapping[str, str]) -> str:
    """The name of files of human questions: their stems, with the folder where these are common ones."""
    names = []
    for path in map(Path, human):
        stem = path.name.partition(".")[0]
        names.append(f"{path.parent.name}/{stem}" if stem in ROLES and path.parent.name else stem)
    return " + ".join(names)


def write_leaderboard(sources: Sequence[tuple[str | None, Path]], folder: Path) -> dict[str, Any]:
    """Read results, test them, write `leaderboard.*` and `tables/tests.csv` to `folder`; return the record."""
    results = read_results(sources)
    rows, tests = compared(results)
    labels = column_labels(results)
    record: dict[str, Any] = {
        "sources": [str(source) for _, source in sources],
        "scores": rows,
        "tests": tests,
        "signatures": {label: column[1] for column, label in labels.items()},
    }
    page = _page(results, rows, tests, labels)
    write_results(folder, "leaderboard", record, page, {"tests": tests})
    write_text(folder / "leaderboard.csv", as_csv(rows))
    log.info("%s\ndone: open %s", as_text(page), folder / "leaderboard.html")
    return record


def compared(results: Sequence[ModelScore]) -> tuple[Rows, Rows]:
    """A row for each result with its place against the best of its column (`mark`), and one for each test.

    A column has the results with the same data, metric, form and signature. The best is tested against every other one
    with paired draws; Holm's correction is over these tests, of which the number does not grow with other columns.
    """
    rows: Rows = []
    tests: Rows = []
    for column in by_key((result.column, result) for result in results).values():
        sign = -1 if column[0].lower_is_better else 1
        best = max(column, key=lambda result: sign * result.value)
        of_column = _tests(best, column)
        tests += of_column
        corrected = {row["against"]: row for row in of_column}
        rows += [_row(result, best, corrected, alone=len(column) < 2) for result in column]
    return rows, tests


def _tests(best: ModelScore, column: Sequence[ModelScore]) -> Rows:
    rows: Rows = []
    for other in column:
        if other is best or best.draws is None or other.draws is None or not best.draws.is_paired_with(other.draws):
            continue
        difference = paired_difference(best.draws, other.draws)
        if difference["p"] is not None:
            about = dict(zip(("data", "metric", "form", "signature"), best.column, strict=True))
            rows.append({**about, "best": best.model, "against": other.model, **difference})
    add_holm(rows)
    return rows


def _row(
    result: ModelScore, best: ModelScore, tests: Mapping[str, Mapping[str, Any]], *, alone: bool
) -> dict[str, Any]:
    test = tests.get(result.model)
    if alone:
        mark = ALONE
    elif result is best:
        mark = BEST if tests else UNTESTED
    else:
        mark = UNTESTED if test is None else ALIKE if test["p_holm"] >= LEVEL else WORSE
    return {
        **{
            name: getattr(result, name)
            for name in ("data", "model", "metric", "form", "value", "low", "high", "n", "seeds")
        },
        "mark": mark,
        "p": test and test["p"],
        "p_holm": test and test["p_holm"],
        "lower_is_better": result.lower_is_better,
        "signature": result.signature,
        "source": str(result.source),
    }


def column_labels(results: Sequence[ModelScore]) -> dict[tuple[str, str, str], str]:
    """Names of columns, numbered by signature where there are several; a corpus score stands without the mean."""
    corpus = {(result.metric, result.signature) for result in results if result.form == CORPUS}
    signatures = by_key((result.metric, result.signature) for result in results)
    labels: dict[tuple[str, str, str], str] = {}
    for result in results:
        if result.form == MEAN and (result.metric, result.signature) in corpus:
            continue
        several = list(dict.fromkeys(signatures[result.metric]))
        label = result.metric + (f" ({several.index(result.signature) + 1})" if len(several) > 1 else "")
        if result.form not in (MEAN, CORPUS) and not result.metric.startswith("qa_"):
            label += f", {result.form}"
        labels[result.metric, result.signature, result.form] = label
    return labels


def _page(results: Sequence[ModelScore], rows: Rows, tests: Rows, labels: Mapping[tuple[str, str, str], str]) -> Page:
    models = list(dict.fromkeys(result.model for result in results))
    tables: list[Table] = []
    shown = [row for row in rows if (row["metric"], row["signature"], row["form"]) in labels]

    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        label = labels[row["metric"], row["signature"], row["form"]] + (" ↓" if row["lower_is_better"] else "")
        value = estimate_text(row, 2 if row["metric"].startswith("qa_") else 4) + MARKS[row["mark"]]
        return ({"seeds of readers": str(row["seeds"])} if row["seeds"] else {}) | {label: value}

    for data in dict.fromkeys(result.data for result in results):
        lines = joined_rows([row for row in shown if row["data"] == data], ("model",), cells)
        note = "" if tables else NOTES["marks"].format(level=LEVEL)
        tables.append(Table(data, sorted(lines, key=lambda line: models.index(line["model"])), note))
    lines_of_tests = [
        {
            "data": row["data"],
            "metric": label,
            "models": f"{row['best']} − {row['against']}",
            "difference": estimate_text(row, 4, signed=True),
            "p": p_text(row["p"]),
            "p (Holm)": p_text(row["p_holm"]),
        }
        for row in tests
        if (label := labels.get((row["metric"], row["signature"], row["form"])))
    ]
    if lines_of_tests:
        tables.append(Table("Tests against the best", lines_of_tests, NOTES["tests"]))
    data_sets = len({result.data for result in results})
    facts = [f"{len(models)} models, {data_sets} data sets, {len(labels)} metrics. Brackets: 95 % intervals."]
    facts.append("↓: better when lower. Where a metric has several signatures its columns are numbered.")
    signatures = {label: signature for (_, signature, _), label in labels.items()}
    return Page("bench report", "Leaderboard", facts, tables, signatures)
