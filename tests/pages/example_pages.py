"""One example of each kind of page, made as the commands make it, with hostile text in every field."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rewards import RougeL
from rewards.relevance.explanation_page import page as explanation_page
from rewards.relevance.qrelscore import QRelScore
from rl_qg.evaluation import evaluate as evaluate_module
from rl_qg.judging import correlate as correlate_module, robustness as robustness_module
from rl_qg.judging.tables import judgement_plots
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.pages.results import Page, Plot, as_html
from rl_qg.reports.report import write_report
from rl_qg.reports.set_view import write_set_page
from rl_qg.runtime.files import write_json
from rl_qg.scoring import separation as separation_module
from rl_qg.scoring.wrong_questions import KINDS
from rl_qg.settings import CorrelateSettings, EvaluateSettings, RobustnessSettings
from tests.pages.hostile_texts import (
    EMOJI,
    IMAGE,
    LONG_WORD,
    MARKUP,
    NAME,
    PASSAGE,
    RIGHT_TO_LEFT,
    SCRIPT,
    SIGNATURE,
    TEXT,
    file_name,
)
from tests.rl_qg.reports.run_folders import FILES, auc, interval, metrics, three_readers, write
from tests.toy_metrics import SharedWords, WordCount, rated, write_lines

PLACEHOLDER = "zname"  # file names cannot be as long as what replaces it
LAYERS = 12


def write_pages(folder: Path) -> dict[str, Path]:
    """Write every page to its own file; the names are those of the commands, and `compare` for several runs."""
    makers: dict[str, Callable[[Path], str]] = {
        "report": lambda at: _report([_run(at, 1)], at),
        "compare": lambda at: _report([_run(at, 1), _run(at, 2), _study(at)], at),
        "study": lambda at: _report([_study(at)], at),
        "evaluate": _evaluate,
        "sets": _sets,
        "correlate": lambda at: _correlate(at, correlate_module, "write_results"),
        "disagreements": lambda at: _correlate(at, correlate_module, "write_page"),
        "robustness": _robustness,
        "separate": _separate,
        "explain": _explain,
    }
    paths = {}
    for name, make in makers.items():
        (folder / name).mkdir(parents=True)
        paths[name] = folder / name / "page.html"
        paths[name].write_text(make(folder / name), encoding="utf-8")
    return paths


# --- Pages of runs and studies ---


def _report(folders: list[Path], at: Path) -> str:
    write_report(folders, at / "report.html")
    return (at / "report.html").read_text(encoding="utf-8")


def _run(at: Path, number: int) -> Path:
    """A run with every section; its reward rises while the held-out measures fall."""
    files = three_readers()
    run_record, evaluation = files["run.json"], files["evaluation.json"]
    lines = metrics()
    for line in lines:
        if "eval_loss" in line:
            step = line["step"]
            line |= {"eval_reward_greedy": step / 60, "eval_bleu4": 1 / step, "eval_held_out": 1 / step}
            line |= {"eval_length_words": 9 + step / 60, "eval_no_question_mark": step / 200, "eval_rouge_l": 9 / step}
    sample = {"context": PASSAGE, "answer": "London", "answer_start": PASSAGE.index("London"), "gold": TEXT}
    verdicts = {"gold": "right", "ce": "right", "scst": "ill_formed"}
    sample |= {"id": NAME, "ce": MARKUP, "scst": LONG_WORD, "oracle": verdicts}
    sample |= {"reward_gold": 0.31, "reward_ce": 0.22, "reward_scst": 0.46}
    evaluation["samples"] = [sample, *evaluation["samples"], {**sample, "scst": RIGHT_TO_LEFT}, *[sample] * 5]
    evaluation["reward_signature"] = evaluation["held_out_signature"] = f"{SIGNATURE}|{number}"
    evaluation["models"]["ce"]["bleu_signature"] = SIGNATURE
    evaluation["difference"]["held_out"] = interval(-0.04, 0.01)
    measures = {"distinct_questions": 0.96, "distinct_2": 0.5, "copy_rate": 0.4, "no_question_mark": 0.01}
    for part in evaluation["models"].values():
        part |= {"held_out": interval(0.3, 0.01), "rouge_l": interval(0.4, 0.01), "length_words": 9.1, **measures}
        part["reward_parts"][NAME] = interval(0.4, 0.02)
    files["separation.json"]["pairs"][NAME] = auc(0.4, 0.02)
    files["separation.json"]["reward"] = SIGNATURE
    run_record |= {"command": ["rl-qg", NAME, TEXT], "started": NAME, "code": {"commit": NAME, "dirty": True}}
    run_record |= {"data": {NAME: "ab" * 32}, "versions": {NAME: SIGNATURE}, "examples": {NAME: 1200, "unlabelled": 9}}
    changed = {"read": 1300, "kept": 1288, NAME: {"count": 4}, "dropped": {NAME: {"count": 8, "ids": [NAME]}}}
    run_record["data_report"] = {NAME: changed}
    run_record["leakage"] = {**run_record["leakage"], "shared_passages": 2, NAME: 3}
    augmented = FILES["augmented.report.json"]
    files["augmented.report.json"] = {**augmented, "dropped": {"no question mark": 2400, NAME: 600, TEXT: 600}}
    (at / "folders").mkdir(exist_ok=True)
    return write(
        at / "folders" / file_name(number),
        **files | {"config.yaml": f"algorithm: {_quoted(NAME)}\nstages: both\n"},
        **{"metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines)},
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _study(at: Path) -> Path:
    """What `study.json` holds, in the form of `rl_qg.studies.study_results`, with short and long names."""
    generators = ("none", "ce", NAME)
    score = {"mean": 61.25, "low": 59.5, "high": 63.125, "by_seed": [61.0, 61.5]}
    place = {"resource": NAME, "filter": NAME, "gold": 1200}
    cells = [
        {
            **place,
            **{"generator": generator, "amount": amount, "asked": 1200, "got": [1200, 900], "short": amount == 2},
            **{"seeds": [1, 2], "scores": {name: {"exact_match": score, "f1": score} for name in ("all", NAME)}},
        }
        for generator in generators
        for amount in ((0,) if generator == "none" else (1, 2))
    ]
    tests = [
        {**place, "question": question, "amount": 1, "generator": NAME, "against": against, "set": name}
        | {"score": which, "mean": -1.5, "low": -2.0, "high": 0.25, "p": 0.03, "p_holm": 0.06, "family": 8}
        | {"seeds": [1, 2]}
        for question, against in (("augmentation", "none"), ("reward", "ce"))
        for name in ("all", NAME)
        for which in ("exact_match", "f1")
    ]
    group = {**{key: place[key] for key in ("resource", "filter")}, "generator": NAME, "amount": 2.0}
    fractions = {"dropped": {"too short": 0.25, NAME: 0.125}, "kept": 0.625, "measures": {"round_trip": 0.375}}
    described = {"count": 120, "words": 8.25, "distinct": 0.875, "question_types": {"who": 0.75, NAME: 0.25}}
    rewards = {"resource": NAME, "generator": NAME, "seeds": 2, "bleu4": {"from": 0.3, "to": 0.25}}
    gain = {**group, "count": 30, "mean": 1.25, "low": -0.5, "high": 3.0}
    record = {
        "study": {"seeds": [1, 2], "resamples": 400, "file": NAME},
        "code": {"commit": NAME},
        "jobs": {"total": 9, "done": 8, "failed": {NAME: TEXT}, "left_out": ["b"]},
        "sets": {"all": 120, NAME: 80},
        "rewards": {NAME: SIGNATURE, "ce": None},
        "cells": cells,
        "questions": {"augmentation": "gain over gold alone", "reward": NAME},
        "tests": tests,
        "why": {
            "filters": [{**group, "seeds": [1, 2], "candidates": 40, **fractions, "sampled": 20.5}],
            "questions": [{"resource": NAME, "questions": NAME, **described}],
            "rewards": [{**rewards, f"F1 over ce, {NAME} 2 ×": {"mean": 1.0, "low": 0.5, "high": 2.0}}],
            "gain_by_question_type": [{**gain, "question type": NAME}],
        },
        "data": {"counts": {NAME: 30, "resource": {NAME: 10}, "reading": {}}, "sha256": {NAME: "ab" * 32}},
    }
    folder = at / "folders" / file_name(9)
    folder.mkdir(parents=True)
    write_json(folder / "study.json", record)
    return folder


# --- Pages of `rl_qg.evaluation` ---


def _page_of(module: ModuleType, command: Callable[[], Any], writer: str = "write_results") -> str:
    """The page that a command writes by `writer`, with `NAME` wherever it was given `PLACEHOLDER`."""
    pages: list[Page] = []

    def keep(*given: Any) -> None:
        pages.extend(one for one in given if isinstance(one, Page))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, writer, keep)
        command()
    return as_html(_renamed(pages[0]))


def _renamed(page: Page) -> Page:
    def renamed(text: str) -> str:
        return text.replace(PLACEHOLDER, NAME)

    tables = [
        replace(
            table,
            title=renamed(table.title),
            note=renamed(table.note),
            rows=[{renamed(key): renamed(cell) for key, cell in row.items()} for row in table.rows],
        )
        for table in page.tables
    ]
    return replace(
        page,
        title=renamed(page.title),
        facts=[renamed(fact) for fact in page.facts],
        tables=tables,
        signatures={renamed(name): renamed(text) for name, text in page.signatures.items()},
        footer=f"{page.footer} {NAME}",
    )


class Words(WordCount):
    """`WordCount` with a hostile signature."""

    def __init__(self, sign: int = 1) -> None:
        super().__init__(sign)
        self.signature = SIGNATURE


def _metrics() -> Mapping[str, Any]:
    return {"words": Words(), f"words, {PLACEHOLDER}": Words(-1), "shared": SharedWords()}


def _evaluate(at: Path) -> str:
    rows = [
        {"question": f"{word} {TEXT} {number}", "context": f"{PASSAGE}{number // 2}", "answer": "London"}
        | {"references": [TEXT, f"{word} wrote it?"]}
        for number, word in enumerate(["Who", "When", "Where", "What"] * 6)
    ]
    fewer = [{**row, "question": row["question"].removesuffix(LONG_WORD)[: 20 + n]} for n, row in enumerate(rows)]
    files = {"first": rows, PLACEHOLDER: fewer}
    paths = {name: str(write_lines(at / f"{name}.jsonl", rows)) for name, rows in files.items()}
    settings = EvaluateSettings(predictions=paths, resamples=40)
    command = partial(evaluate_module.evaluate, _metrics(), settings, at / "out")
    return _page_of(evaluate_module, command)


def _sets(at: Path) -> str:
    """Sets of several sizes, one empty and one with repetitions, of three files."""
    passages = [f"{PASSAGE}{number}" for number in range(4)]
    human = [[TEXT, "Who wrote it?", f"Where {number}?"][: number + 1] for number in range(4)]
    questions = {"first": human, PLACEHOLDER: [[TEXT, TEXT, MARKUP], [], [LONG_WORD], [RIGHT_TO_LEFT, ""]]}
    questions["second"] = [["Who?"]] * 4
    paths = {}
    for name, sets in questions.items():
        rows = [
            {"context": context, "questions": asked, "references": gold}
            for context, asked, gold in zip(passages, sets, human, strict=True)
        ]
        paths[name] = str(write_lines(at / f"{name}.jsonl", rows))
    gap = {"random": "second", "oracle": "first"}
    settings = EvaluateSettings(predictions=paths, sets=True, gap=gap, page="p.html", resamples=40)
    evaluate_module.evaluate({PLACEHOLDER: RougeL()}, settings, at)
    for name in ("evaluate.json", "set_pairs.json"):
        path = at / name
        path.write_text(
            path.read_text(encoding="utf-8").replace(PLACEHOLDER, json.dumps(NAME)[1:-1]), encoding="utf-8"
        )
    write_set_page(at, at / "sets.html")
    return (at / "sets.html").read_text(encoding="utf-8")


def _correlate(at: Path, module: ModuleType, writer: str) -> str:
    """Ratings of four raters, of whom the last is noisy; a second file of them; drawings with hostile names."""
    rows = rated()
    for row in rows:
        row |= {"context": f"{row['context']} {PASSAGE}", "system": f"{row['system']}{PLACEHOLDER}"}
        row["question"] = f"{row['question']} {TEXT}"
        row["human"] = {"good": row["human"]["good"], PLACEHOLDER: row["human"]["good"] / 2, "same": 3}
        row["metrics"] = {f"given {PLACEHOLDER}": row["metrics"]["given"]}
        row |= {"type": f"type {PLACEHOLDER}"[:40], "subset": f"subset {PLACEHOLDER}"}
    path = write_lines(at / f"{PLACEHOLDER}.jsonl", rows)
    options: dict[str, Any] = {"replication": str(path), "rater_filter": "both_sides", "sentences_of": "references"}
    settings = CorrelateSettings(human=str(path), resamples=40, folds=3, **options)
    command = partial(module.correlate, _metrics(), settings, at / "out", _drawings)
    return _page_of(module, command, writer)


def _drawings(tables: Mapping[str, Any]) -> dict[tuple[str, str], list[Plot]]:
    """The drawings of systems and metrics with hostile names; the page finds them by their criterion."""
    names = ("metric", "system")
    return judgement_plots(
        {
            table: [
                row | {key: row[key].replace(PLACEHOLDER, NAME) for key in names if isinstance(row.get(key), str)}
                for row in rows
            ]
            for table, rows in tables.items()
        }
    )


def _robustness(at: Path) -> str:
    names = ["Ada Bell", "Carl Foss", "Ilva Maron", "Nils Holt"]
    rows = [
        {"question": f"How many people met {name} in his red town? {TEXT}", "answer": "Ada"}
        | {"context": f"In {1900 + number} it was {name} who met {names[number - 1]} in Lorn. {PASSAGE}"}
        for number, name in enumerate(names)
    ]
    path = write_lines(at / f"{PLACEHOLDER}.jsonl", rows)
    settings = RobustnessSettings(input=str(path), resamples=40, spacy_model="")
    return _page_of(robustness_module, partial(robustness_module.robustness, _metrics(), settings, at / "out"))


def _separate(at: Path) -> str:
    share = {"auc": 0.4, "low": 0.3, "high": 0.45, "n": 1160}
    texts = {"id": NAME, "question": TEXT, "wrong": PASSAGE, "answer": NAME, "reward": 0.25, "reward_wrong": None}
    record = {
        "reward": SIGNATURE,
        "examples": 1200,
        "passages": 60,
        "seed": 1,
        "mean": 0.25,
        "pairs": {kind: {**share, "mean": 0.125} for kind in KINDS},
        "auc": share,
        "failed": 3,
        "samples": [{"kind": kind, **texts} for kind in KINDS],
    }
    return _page_of(separation_module, partial(separation_module.write_separation, at / "out", record))


# --- The page of `explain` ---


def _explain(at: Path) -> str:
    """An explanation by small models; its layers are shown several times, as many as a BERT has."""
    question, context = f"{IMAGE} {RIGHT_TO_LEFT} {EMOJI}", f"{SCRIPT} {EMOJI} {LONG_WORD}"  # a cell for each token
    metric = QRelScore(str(SHIPPED / "bert"), str(SHIPPED / "gpt2"), long_context="chunk")
    result = metric.explain(question, context)
    explanation = result.to_dict()
    layers = explanation["layers"]
    explanation["layers"] = [{**layers[number % len(layers)], "number": number + 1} for number in range(LAYERS)]
    return explanation_page({**explanation, "signature": SIGNATURE, "notes": [*explanation["notes"], TEXT]})
