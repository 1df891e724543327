"""The published question-answer pairs of lmqg's t5-small, with the passages that they are about."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rl_qg.data.layouts import ANSWER, QUESTION, SEPARATOR, split_pairs

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
NAME = "lmqg_qag/t5-small-squad-multitask"


@dataclass(frozen=True)
class Output:
    """A line of the file; passage and human pairs are None where it is not known which passage it is about."""

    text: str
    pairs: list[tuple[str, str]]
    context: str | None
    human: list[tuple[str, str]] | None


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return stream.read().split("\n")


@cache
def human_pairs() -> dict[str, list[tuple[str, str]]]:
    """The human pairs of each passage of SQuAD in du_test, in the order of the file."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for paragraph, qa in _questions():
        pairs.setdefault(paragraph["context"], []).append((qa["question"], qa["answers"][0]["text"]))
    return pairs


def _questions() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    document = json.loads("\n".join(_lines(DATA / "squad/du_test-v1.1.json.gz")))
    return [(part, qa) for article in document["data"] for part in article["paragraphs"] for qa in part["qas"]]


@cache
def all_outputs() -> list[Output]:
    """Every line of the file."""
    if not (DATA / f"{NAME}.predictions.txt.gz").is_file():
        pytest.skip("the published outputs (../shared/data/lmqg_qag) are not here")
    lines = _lines(DATA / f"{NAME}.predictions.txt.gz")
    aligned = [json.loads(line) for line in _lines(DATA / "lmqg_qag/alignment.jsonl.gz") if line]
    context_of = {qa["id"]: paragraph["context"] for paragraph, qa in _questions()}
    contexts = [context_of.get(row["first_qid"]) for row in aligned]
    return [
        Output(line, split_pairs(line).pairs, context, None if context is None else human_pairs()[context])
        for line, context in zip(lines, contexts, strict=True)
    ]


def published_outputs() -> list[Output]:
    """The lines whose passage is known."""
    return [output for output in all_outputs() if output.human is not None]


def official_scores() -> dict[str, Any]:
    """The scores that were published with the outputs."""
    scores: dict[str, Any] = json.loads((DATA / f"{NAME}.official.json").read_text())
    return scores


def join_pairs_as_lmqg(pairs: Iterable[tuple[str, str]]) -> str:
    """The text of pairs. Reading it again gives other pairs where their texts hold its separators."""
    return SEPARATOR.join(f"{QUESTION}{question}{ANSWER}{answer}" for question, answer in pairs)
