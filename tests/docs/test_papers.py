"""The page that keeps count of the five papers names only what there is, and counts right.

Every span of code on it is a command, a call of a metric, settings, a key, a path or a name, and is looked up as such.
"""

import ast
import inspect
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from transformers import BertForTokenClassification, BertModel

import rewards
from rewards import METRICS, MetricInputError, known_name
from rl_qg.commands.catalogue import COMMANDS, RAW, named_command
from rl_qg.commands.compose import compose
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.errors import InputError
from rl_qg.settings import all_keys
from tests.docs.markdown import ROOT
from tests.rewards.conftest import word_piece
from tests.tiny_models import save, tiny

PAGE = ROOT / "docs" / "papers.md"
SHARED = ROOT.parent / "shared" / "PAPERS.md"
HEADER = ["where", "item", "here", "how, or why not"]
COUNTS = ["paper", "works", "differs", "not built", "items"]
STATUSES = COUNTS[1:4]
CODE = re.compile(r"`([^`]+)`")
CALL = re.compile(r"\w+\(.*\)")
SETTINGS = re.compile(r"[\w.]+=\S+( [\w.]+=\S+)*")
PATH = re.compile(r"\b(?:rl_qg|rewards|configs|experiments|tests|docs)/[\w./-]+")
# Metrics that need a program or a package to be built: their options are compared with their signature alone.
NOT_AT_HAND = {"Meteor15", "BLEURT", "COMET", "CTC"}
# The models of the others.
MODELS = {
    "QRelScore": {"encoder": "bert-base-cased", "decoder": "gpt2"},
    "AblatedQRelScore": {"encoder": "bert-base-cased", "decoder": "gpt2"},
    "QAScore": {"model": "roberta"},
    "BARTScore": {"model": "bart"},
    "BERTScore": {"model": "bert-base-cased"},
    "MoverScore": {"model": "distilbert"},
    "KPQA": {"model": "tagger"},
}


class Row(NamedTuple):
    paper: str
    where: str
    item: str
    status: str
    how: str


def tables(text: str, header: list[str]) -> list[list[str]]:
    """The rows of all tables with this header, each after the heading that it stands under."""
    found, heading, inside = [], "", False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        heading = line.removeprefix("## ") if line.startswith("## ") else heading
        inside = cells == header or (inside and bool(cells))
        if inside and cells != header and set(line) - set("|- "):
            found.append([heading, *cells])
    return found


@cache
def rows() -> list[Row]:
    return [Row(*cells) for cells in tables(PAGE.read_text(encoding="utf-8"), HEADER)]


def test_every_status_is_one_of_three_and_no_item_occurs_twice() -> None:
    assert len(rows()) > 100
    assert {row.status for row in rows()} == set(STATUSES)
    assert all(row.where and row.item and row.how for row in rows())
    assert not [key for key, number in Counter((row.paper, row.item) for row in rows()).items() if number > 1]


def test_the_counts_are_those_of_the_tables() -> None:
    given = {cells[1]: [int(number) for number in cells[2:]] for cells in tables(PAGE.read_text("utf-8"), COUNTS)}
    assert list(given) == [*dict.fromkeys(row.paper for row in rows()), "all"]
    for paper, numbers in given.items():
        counted = Counter(row.status for row in rows() if paper in (row.paper, "all"))
        assert numbers == [*(counted[status] for status in STATUSES), counted.total()], paper


def test_what_works_or_differs_says_how_and_only_that_is_planned() -> None:
    for row in rows():
        if row.status == "works":
            assert CODE.search(row.how) or "](" in row.how, row
        assert row.status == "not built" or "planned" not in row.how, row


def test_every_section_of_the_papers_is_there() -> None:
    if not SHARED.is_file():
        pytest.skip("the list of items (../shared/PAPERS.md) is not here")
    listed = tables(
        SHARED.read_text(encoding="utf-8"), ["paper", "where", "item", "status", "evidence, or what is missing"]
    )
    assert len(listed) > 100
    missing = Counter((cells[1], cells[2]) for cells in listed) - Counter((row.paper, row.where) for row in rows())
    assert not missing


# --- Names ---


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models under the names of `MODELS`; baselines go by the name of a folder, and thirds need three layers."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("gpt2", "roberta", "bart", "distilbert"):
        (folder / name).symlink_to(SHIPPED / name)
    labels = {"id2label": {0: "keyphrase", 1: "other"}, "label2id": {"keyphrase": 0, "other": 1}}
    tokenizer = word_piece()
    save(folder / "bert-base-cased", tokenizer, tiny(BertModel, len(tokenizer), layers=3))
    save(folder / "tagger", tokenizer, tiny(BertForTokenClassification, len(tokenizer), layers=1, **labels))
    return folder


@pytest.mark.slow
def test_every_name_on_the_page_exists(models: Path) -> None:
    where = {span: f"{row.paper}, {row.where}" for row in rows() for span in CODE.findall(row.how)}
    assert len(where) > 100
    assert not [f"{where[span]}: `{span}`: {fault}" for span in where if (fault := fault_of(span, models))]


@pytest.mark.parametrize(
    "span",
    [
        "rl-qg no-command",
        "rl-qg correlate … no_key=1",
        "rl-qg correlate … standardise=sometimes",
        "rl-qg correlate metrics=[bleu4,no_metric]",
        "rl-qg train reward=no_reward",
        "rl-qg study experiments/no/such/study.yaml",
        'load("experiments.qrelscore-ablation.ablated.AblatedQRelScore", layers="fourth")',
        'QRelScore(baselines="triviaqa")',
        "QRelScore(no_option=1)",
        'KPQA(metric="bleu1", variant="paper", repeats="never")',
        "COMET(no_option=1)",
        'load("no_metric")',
        'load("q_bleu1", weights="no_weights")',
        "NoMetric()",
        "qa.head=no_head",
        "qa.no_key=1",
        "preset=no_preset",
        "qa.no_key",
        "KPQA.no_method",
        "experiments/no/such",
        "no_such_word",
    ],
)
def test_a_name_that_does_not_exist_is_found(span: str, models: Path) -> None:
    assert fault_of(span, models)


def fault_of(span: str, models: Path) -> str:
    """What is wrong with a span of code, looked up as what it is; empty: nothing."""
    if missing := [path for path in PATH.findall(span) if not (ROOT / path).exists()]:
        return f"no path {missing[0]}"
    try:
        if span.startswith("rl-qg "):
            check_command(span)
        elif CALL.fullmatch(span):
            check_call(span, models)
        elif SETTINGS.fullmatch(span):
            compose("pipeline", shlex.split(span))
        elif not (PATH.fullmatch(span) or span in all_keys() or is_name(span) or span in words_of_the_source()):
            return "neither a command, a call, settings, a path, a key, a name, nor a word of the code"
    except (AssertionError, AttributeError, InputError, MetricInputError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check_command(line: str) -> None:
    """`…` stands for more keys, and values in capitals for the reader's own."""
    name, arguments = named_command([word for word in shlex.split(line) if word != "…"][1:])
    assert name in COMMANDS, "no such command"
    if name == "estimate":
        name, *arguments = arguments
    if name in RAW:
        return
    compose(name, arguments)
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "metrics":
            unknown = [metric for metric in yaml.safe_load(value) if known_name(metric) not in METRICS]
            assert not unknown, f"no metric {unknown}"


def check_call(span: str, models: Path) -> None:
    """`Class(option=value)` and `load("name", option=value)` can be built, with small models."""
    call = ast.parse(span, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    given: dict[str, Any] = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    if call.func.id != "load":
        build(getattr(rewards, call.func.id), given, models)
        return
    (name,) = (ast.literal_eval(argument) for argument in call.args)
    assert name in METRICS or "." in name, "no such metric"
    entry = METRICS.get(name, ":".join(name.rsplit(".", 1)))
    path, implied = (entry, {}) if isinstance(entry, str) else entry
    module, _, attribute = path.partition(":")
    build(getattr(import_module(module), attribute), {**implied, **given}, models)


def build(metric: type, options: Mapping[str, Any], models: Path) -> None:
    inspect.signature(metric).bind(**options)
    if metric.__name__ not in NOT_AT_HAND:
        own = {option: str(models / model) for option, model in MODELS.get(metric.__name__, {}).items()}
        metric(**{**options, **own}, **({"device": "cpu"} if own else {}))


def is_name(span: str) -> bool:
    """Whether a span is a class of `rewards`, something in one, or a module or what is in it."""
    first, *rest = span.split(".")
    if first in rewards.__all__:
        return all_attributes(getattr(rewards, first), rest)
    if first not in ("rewards", "rl_qg"):
        return False
    for length in range(len(rest), -1, -1):
        try:
            module = import_module(".".join([first, *rest[:length]]))
        except ModuleNotFoundError:
            continue
        return all_attributes(module, rest[length:])
    return False


def all_attributes(owner: Any, names: list[str]) -> bool:
    for name in names:
        owner = getattr(owner, name)
    return True


@cache
def words_of_the_source() -> frozenset[str]:
    """What stands between quotes in the code, whole: fields, tables, file names."""
    return frozenset(
        node.value
        for package in ("rl_qg", "rewards")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
