"""The round-trip filter: batches give the same answers as single questions; thresholds, files and errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import PartialState
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from rewards.words import answer_f1 as f1
from rl_qg.augmentation.augment import augment
from rl_qg.augmentation.funnel import FilterResources
from rl_qg.augmentation.row_filters import RoundTrip
from rl_qg.readers.reader import load_model
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AugmentSettings
from tests.questions import record, write_questions
from tests.toy_reader import save_bert, toy_examples, toy_tokenizer


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reader with random weights, which gives varied answers."""
    folder = save_bert(tmp_path_factory.mktemp("bert"))
    torch.manual_seed(1)
    model = load_model(str(folder))
    with torch.no_grad():
        model.qa_outputs.weight.mul_(20)  # type: ignore[union-attr,operator]
    saved = tmp_path_factory.mktemp("reader")
    model.save_pretrained(saved)
    toy_tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"]).save_pretrained(saved)
    return str(saved)


def candidates(count: int) -> list[dict[str, Any]]:
    records = []
    for number, one in enumerate(toy_examples(count, seed=3)):
        longer = f"{one.context}{' and the very old horse ran' * (number % 4)}"
        records.append(record(one.question, one.answers[0].text, longer, id=one.id, candidate=number))
    return records


def slow_answer(reader: str, one: dict[str, Any], longest: int) -> str:
    """The best span of one question, by trying all; for passages that fit into one window."""
    tokenizer = AutoTokenizer.from_pretrained(reader)
    model = AutoModelForQuestionAnswering.from_pretrained(reader).eval()
    encoded = tokenizer(one["question"], one["context"], return_offsets_mapping=True, return_tensors="pt")
    parts = encoded.sequence_ids(0)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        output = model(**encoded)
    start, end = output.start_logits[0], output.end_logits[0]
    inside = [number for number, part in enumerate(parts) if part == 1]
    spans = [(float(start[i] + end[j]), i, j) for i in inside for j in inside if i <= j < i + longest]
    _, first, last = max(spans)
    return str(one["context"][offsets[first][0] : offsets[last][1]])


def test_batches_give_what_single_questions_give(reader: str) -> None:
    lines = candidates(14)
    options = RoundTrip(reader=reader, max_length=64, doc_stride=16, max_answer_length=4, n_best=60, batch_size=5)
    options.name = "round_trip"
    measure, description = options.measure(FilterResources()).load()
    results = measure(lines)
    expected = [slow_answer(reader, one, 4) for one in lines]
    assert [one["answer"] for one in results] == expected
    assert [one["value"] for one in results] == [
        f1(text, one["answer"]) for text, one in zip(expected, lines, strict=True)
    ]
    assert len(set(expected)) > 3
    assert description == {"reader": reader}


def run(folder: Path, reader: str, before: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    filters = {**(before or {}), "round_trip": {"reader": reader, "max_length": 48, "doc_stride": 8, **options}}
    return augment(
        folder / "q.jsonl",
        [],
        folder / "a.jsonl",
        settings=AugmentSettings(filters=filters),
        state=PartialState(cpu=True),
    )


def test_another_threshold_reuses_the_stored_measures(tmp_path: Path, reader: str) -> None:
    write_questions(tmp_path / "q.jsonl", candidates(14))
    report = run(tmp_path, reader, min_f1=0.0)
    assert (report["kept"], report["measures"]["round_trip"]["measured"]) == (14, 14)
    written = (tmp_path / "a.jsonl").read_text().splitlines()
    (file,) = tmp_path.glob("q.round_trip-*.jsonl")
    before = file.stat().st_mtime_ns
    scores = [float(line.split('"round_trip": ')[1].rstrip("}")) for line in written]
    assert 0 < sum(score >= 0.5 for score in scores) < 14
    for threshold in (0.5, 1.0):
        report = run(tmp_path, reader, min_f1=threshold, batch_size=3)
        assert report["kept"] == sum(score >= threshold for score in scores)
        assert report["dropped"]["answer not given back"] == 14 - report["kept"]
    assert (file.stat().st_mtime_ns, len(list(tmp_path.glob("q.round_trip-*.jsonl")))) == (before, 1)
    run(tmp_path, reader, n_best=3)  # may find other answers
    assert len(list(tmp_path.glob("q.round_trip-*.jsonl"))) == 2


def test_the_mean_is_of_the_candidates_that_the_filter_got(tmp_path: Path, reader: str) -> None:
    lines = candidates(14)
    for line in lines[::3]:
        line["question"] = "What?"
    write_questions(tmp_path / "q.jsonl", lines)
    of_all = run(tmp_path, reader, min_f1=0.0)["measures"]["round_trip"]
    (file,) = tmp_path.glob("q.round_trip-*.jsonl")
    measured = map(json.loads, file.read_text().splitlines())
    values = [line["value"] for line in sorted(measured, key=lambda line: line["place"])]
    assert of_all["mean"] == pytest.approx(sum(values) / 14)
    few = [value for number, value in enumerate(values) if number % 3]
    report = run(tmp_path, reader, {"length": {"min_words": 2}}, min_f1=0.0)["measures"]["round_trip"]
    assert (report["mean"], report["measured"]) == (pytest.approx(sum(few) / len(few)), len(few))
    assert report["mean"] != pytest.approx(of_all["mean"]) and report["file"] == of_all["file"]


@pytest.mark.parametrize(("stride", "is_wrong"), [(-1, True), (0, False), (47, False), (48, True)])
def test_the_stride_is_from_0_to_below_the_window(stride: int, is_wrong: bool) -> None:
    errors = [text for wrong, text in RoundTrip("r", max_length=48, doc_stride=stride).option_errors() if wrong]
    assert errors == [f"doc_stride={stride} must be below max_length=48, and not negative"] * is_wrong


def test_an_unusable_reader_is_one_clear_error(tmp_path: Path, reader: str, distilbert: Path) -> None:
    write_questions(tmp_path / "q.jsonl", candidates(2))
    for name, options, message in (
        (str(distilbert), {}, r"augment\.filters\.round_trip\.reader=.*: has no trained span head; train one with"),
        (str(tmp_path / "no"), {}, r"augment\.filters\.round_trip\.reader=.*no: no such folder"),
        (
            reader,
            {"max_length": 5, "doc_stride": 2},
            r"filters\.round_trip\.max_length=5 .*beside augment\.filters\.r",
        ),
        (reader, {"max_length": 65}, r"augment\.filters\.round_trip\.max_length=65 is above the 64 tokens"),
    ):
        with pytest.raises(InputError, match=message):
            run(tmp_path, name, **options)
    assert not (tmp_path / "a.jsonl").exists()
