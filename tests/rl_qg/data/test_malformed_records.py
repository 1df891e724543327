"""One record with an offset that is no number, among good ones: every reader keeps the others, and names it."""

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.data.passages import Passage, Passages, file_passages
from rl_qg.data.question_tables import QuestionTable
from rl_qg.data.splits import load_splits, with_additional_spans
from rl_qg.data.streaming import stream_examples
from rl_qg.evaluation.pairs import HumanPairs
from rl_qg.evaluation.references import GoldQuestions
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.score_file import score_file
from rl_qg.settings import DataSettings
from tests.rl_qg.data.test_question_tables import QuestionsOnly

FAULT = "data[0].paragraphs[0].qas[1]: answers: field 'answer_start' must be a whole number, got 'first'"


def squad(path: Path, starts: Iterable[Any], year: int = 1843) -> str:
    """A passage with a question for each offset of `Ada`, as it is in the file."""
    qas = [
        {"id": f"q{n}", "question": f"Who wrote {n}?", "answers": [{"text": "Ada", "answer_start": start}]}
        for n, start in enumerate(starts)
    ]
    paragraph = {"context": f"Ada met Max. Ada wrote in {year}.", "qas": qas}
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    return str(path)


def count_training(file: str, folder: Path) -> int:
    held_out = squad(folder / "held_out.json", [0], year=1900)
    splits = load_splits(DataSettings(train=file, validation=held_out))
    assert splits.report["train"]["malformed"] == [f"{file}: {FAULT}"]  # what run.json has
    return len(splits.gold)


def count_scored(file: str, folder: Path) -> int:
    source = QuestionTable(file)
    summary = score_file(QuestionsOnly(), source, folder / "out.jsonl", batch_size=2, state=PartialState(cpu=True))
    assert summary["malformed"] == {"count": 1, "records": [f"{file}: {FAULT}"]}
    return len((folder / "out.jsonl").read_text().splitlines())


def count_unlabelled(file: str, folder: Path) -> int:
    return len(with_additional_spans([], [file], frozenset()))


def count_pairs(file: str, folder: Path) -> int:
    human = HumanPairs(file)
    assert human.dropped == {"malformed record": 1}
    return sum(map(len, human.pairs.values()))


READERS: dict[str, tuple[Callable[[str, Path], int], int]] = {
    "train": (count_training, 2),
    "stream": (lambda file, folder: len(stream_examples(file, role="train")), 2),
    "unlabelled": (count_unlabelled, 2),
    "score": (count_scored, 2),
    "references": (lambda file, folder: len(GoldQuestions(file).of_passage("Ada met Max. Ada wrote in 1843.")), 2),
    "pairs": (count_pairs, 2),
    "passages": (lambda file, folder: len(list(Passages([file]))), 1),  # which need no offset
}


@pytest.mark.parametrize("name", READERS)
def test_one_bad_offset_costs_one_record(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader, expected = READERS[name]
    file = squad(tmp_path / "mixed.json", [13, "first", "0"])  # the last is a number given as text
    with caplog.at_level(logging.INFO):
        assert reader(file, tmp_path) == expected
    assert (f"{file}: {FAULT}" in caplog.text) == (name not in ("passages", "stream"))


@pytest.mark.parametrize("name", [name for name in READERS if name != "passages"])
def test_a_file_of_bad_records_alone_is_an_error(name: str, tmp_path: Path) -> None:
    reader, _ = READERS[name]
    with pytest.raises(InputError, match=r"all 2 records are malformed; .* must be a whole number, got 'x'"):
        reader(squad(tmp_path / "bad.json", ["x", "y"]), tmp_path)


def test_passages_without_text_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = json.loads(Path(squad(tmp_path / "a.json", [0])).read_text())["data"][0]
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": 3}]}, "article", good]}))
    passages = Passages([str(tmp_path / "a.json")])
    with caplog.at_level(logging.WARNING):
        assert [passage.context for passage in passages] == ["Ada met Max. Ada wrote in 1843."]
    assert (passages.counts.read, passages.counts.malformed) == (3, 2)
    first, second, kept = (replace(one, fault="") for one in file_passages(passages.sources[0], "line"))
    assert (first, second) == (Passage("a-1", "", ""), Passage("a-2", "", ""))
    assert kept == Passage("a-3", "t", "Ada met Max. Ada wrote in 1843.", answered=True)
    assert "malformed records left out: 2" in caplog.text and "data[0].paragraphs[0]: field 'context'" in caplog.text
    (tmp_path / "b.json").write_text(json.dumps({"data": ["article"]}))
    with pytest.raises(InputError, match=r"data\[0\]: expected an object, got str"):
        list(Passages([str(tmp_path / "b.json")]))
