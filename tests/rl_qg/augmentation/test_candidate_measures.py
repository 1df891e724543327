"""Measures of candidates are computed once, continued after a kill, and never mixed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.augmentation.funnel import (
    CandidateMeasure,
    MeasuredValues,
    MeasureFunction,
    measure_candidates,
    model_identity,
)
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from tests.full_disk import room_for
from tests.processes import together as run_together
from tests.questions import record, write_questions

LINES = [record(f"{'very ' * n}long?", candidate=n) for n in range(10)]
ALL = b"\1" * len(LINES)


class Lengths:
    """Measures questions by their length and records the candidates of each batch."""

    def __init__(self, fail_after: int = 1000, made_of: str = "a") -> None:
        self.batches: list[list[int]] = []
        self.fail_after, self.made_of = fail_after, made_of

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        if len(self.batches) == self.fail_after:
            raise KeyboardInterrupt
        self.batches.append([record["candidate"] for record in records])
        return [
            {"value": None if n == 3 else float(len(record["question"])), "more": n}
            for n, record in zip(self.batches[-1], records, strict=True)
        ]

    def measure(self) -> CandidateMeasure:
        def load() -> tuple[MeasureFunction, dict[str, str]]:
            return self, {"signature": f"lengths {self.made_of}"}

        return CandidateMeasure("length", {"model": self.made_of}, load, 4)


def measured(path: Path, lengths: Lengths, marks: bytes = ALL) -> MeasuredValues:
    result = measure_candidates(lengths.measure(), path, file_hash(path), marks, PartialState(cpu=True))
    assert result is not None
    return result


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_questions(tmp_path / "q.jsonl", LINES)


EXPECTED = [None if n == 3 else float(5 * n + 5) for n in range(10)]


def values(result: MeasuredValues) -> list[float | None]:
    return [None if value != value else value for value in result.values]


def test_a_measured_candidate_is_not_measured_again(questions: Path) -> None:
    first, again = Lengths(), Lengths()
    result = measured(questions, first)
    assert values(result) == EXPECTED
    assert first.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert result.measured == 10
    assert result.note["measure"] == {"signature": "lengths a"}
    assert result.file.parent == questions.parent
    assert result.file.name.startswith("q.length-")
    assert json.loads(result.file.read_text().splitlines()[4]) == {
        **{"place": 4, "id": "q", "candidate": 4},
        **{"value": 25.0, "more": 4},
    }
    assert values(measured(questions, again)) == EXPECTED
    assert again.batches == []


def test_only_marked_candidates_are_measured(questions: Path) -> None:
    first, second = Lengths(), Lengths()
    result = measured(questions, first, bytes([1, 0] * 5))
    assert first.batches == [[0, 2, 4, 6], [8]]
    assert values(result) == [value if n % 2 == 0 else None for n, value in enumerate(EXPECTED)]
    result = measured(questions, second)
    assert second.batches == [[1, 3, 5, 7], [9]]
    assert (values(result), result.measured) == (EXPECTED, 10)


def test_what_is_reported_as_measured_does_not_depend_on_earlier_runs(questions: Path) -> None:
    few = bytes([1, 0] * 5)
    assert measured(questions, Lengths(), few).measured == 5
    assert measured(questions, Lengths()).measured == 10
    assert measured(questions, Lengths(), few).measured == 5


def test_after_a_kill_only_the_missing_candidates_are_measured(
    questions: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(questions, Lengths(fail_after=2))
    file = next(questions.parent.glob("q.length-*.jsonl"))
    file.write_bytes(file.read_bytes()[:-5])
    rest = Lengths()
    with caplog.at_level("INFO"):
        assert values(measured(questions, rest)) == EXPECTED
    assert rest.batches == [[7, 8, 9]]
    assert ": 7 of 10 questions are in" in caplog.text
    assert len(file.read_bytes().splitlines()) == 10


def test_other_questions_or_another_model_make_another_file(questions: Path) -> None:
    first = measured(questions, Lengths())
    other = measured(questions, Lengths(made_of="b"))
    write_questions(questions, [*LINES[:-1], record("other?", candidate=9)])
    changed = Lengths()
    third = measured(questions, changed)
    assert len({first.file, other.file, third.file}) == 3
    assert sum(map(len, changed.batches)) == 10
    assert values(third)[9] == 6.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\n", "line 1: not a measure of a candidate; delete the file"),
        ("nonsense\n", "line 1: not a measure of a candidate"),
        ('{"place": 10, "value": 1.0}\n', "line 1: there is no candidate 10"),
        ('{"place": -1, "value": 1.0}\n', "line 1: there is no candidate -1"),
    ],
)
def test_a_damaged_file_is_refused(questions: Path, text: str, message: str) -> None:
    file = measured(questions, Lengths()).file
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        measured(questions, Lengths())


def test_a_file_of_unknown_origin_is_refused(questions: Path) -> None:
    file = measured(questions, Lengths()).file
    note = file.with_name(file.name + ".settings.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "model": "z"}))
    with pytest.raises(InputError, match=r"holds measures made with other settings \(model: z -> a\)"):
        measured(questions, Lengths())
    note.unlink()
    with pytest.raises(InputError, match=r"not made by this command \(there is no .*\.settings\.json beside it\)"):
        measured(questions, Lengths())


def test_a_full_disk_is_one_line(questions: Path) -> None:
    with room_for(300), pytest.raises(InputError, match=r"cannot be written further .*continues after them"):
        measured(questions, Lengths())
    assert values(measured(questions, Lengths())) == EXPECTED


def test_a_model_is_identified_by_its_files_not_by_its_path(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"weights" if name != "c" else b"others")

    def identity(name: str) -> Any:
        return model_identity({"model": str(tmp_path / name), "layers": [1, "all"], "hub": "bert-base-cased"})

    assert identity("a") == identity("b") != identity("c")
    assert identity("a")["layers"] == [1, "all"]
    assert identity("a")["hub"] == "bert-base-cased"


def test_the_name_of_a_metric_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reader").mkdir()
    (tmp_path / "reader" / "config.json").write_text("{}")
    options = {"parts": [{"metric": "reader", "measure": "f1"}]}
    assert model_identity(options) == options
    assert model_identity({"model": "reader"}) != {"model": "reader"}


def test_a_file_in_the_options_is_identified_by_its_content(tmp_path: Path) -> None:
    first, second = tmp_path / "base.json", tmp_path / "base2.json"
    first.write_text("1")
    second.write_text("1")
    before = model_identity({"baselines": str(first)})
    assert before == model_identity({"baselines": str(second)})
    first.write_text("2")
    assert before != model_identity({"baselines": str(first)})
    odd = {"prompt": "very long " * 1000, "zero": "a\0b", "empty": ""}
    assert model_identity(odd) == odd  # these are not paths


def worker(questions: Path) -> None:
    measure_candidates(Lengths().measure(), questions, file_hash(questions), ALL, PartialState(cpu=True))


@pytest.mark.slow
def test_two_processes_write_the_file_of_one(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    for folder in (alone, together):
        folder.mkdir()
        write_questions(folder / "q.jsonl", LINES)
    expected = measured(alone / "q.jsonl", Lengths()).file.read_bytes()
    run_together(worker, together / "q.jsonl")
    assert next(together.glob("q.length-*.jsonl")).read_bytes() == expected
