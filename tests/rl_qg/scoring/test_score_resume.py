"""Scoring that is killed, short of memory or disk, or given the output of another run."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import PartialState

from rl_qg.data.question_tables import QuestionTable
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.score_file import score_file
from tests.full_disk import room_for
from tests.toy_scores import Length, lines_of, rows, score


class Caching:
    """A reward whose scores depend on the contexts it has seen, as those of QRelScore do in their last digits."""

    signature = "caching"

    def __init__(self) -> None:
        self.known: set[str] = set()

    def reset_cache(self) -> None:
        self.known.clear()

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.known |= set(contexts)
        return SimpleNamespace(scores=[float(len(self.known))] * len(questions), parts={})


@pytest.mark.slow
def test_a_run_killed_at_any_byte_ends_in_the_same_file(tmp_path: Path) -> None:
    source, whole, killed = rows(tmp_path / "in.jsonl"), tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    score(source, whole)
    text, note = whole.read_bytes(), (tmp_path / "whole.summary.json").read_text()
    assert (
        len({json.dumps(row["parts"]["block"]) for row in lines_of(whole)}) == 4
    )  # batches of 3, 3 and 1 rows differ
    ends = [place for place, byte in enumerate(text) if byte == ord("\n")]
    for cut in sorted({*range(0, len(text) + 1, 7), *(end + step for end in ends for step in (-1, 0, 1))}):
        killed.write_bytes(text[:cut])
        (tmp_path / "killed.summary.json").write_text(note.replace('"complete": true', '"complete": false'))
        again = Length()
        score(source, killed, again)
        assert killed.read_bytes() == text, cut
        done = text[:cut].count(b"\n")
        assert again.seen == (0 if done == 7 else 7 - done // 3 * 3)  # only the batch of the kill and later ones
        assert (tmp_path / "killed.summary.json").read_text() == note


def test_a_kill_inside_the_metric_leaves_whole_batches_and_an_incomplete_summary(tmp_path: Path) -> None:
    class Killed(Length):
        def score(self, *texts, **columns) -> Any:
            if self.seen >= 3:
                raise KeyboardInterrupt
            return super().score(*texts, **columns)

    source, output, whole = rows(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    with pytest.raises(KeyboardInterrupt):
        score(source, output, Killed())
    assert len(lines_of(output)) == 3
    note = json.loads((tmp_path / "out.summary.json").read_text())
    assert note["complete"] is False and note["signature"] == "length" and list(note["input"]) == [str(source)]
    score(source, output)
    score(source, whole)
    assert output.read_bytes() == whole.read_bytes()


def test_rows_added_to_the_input_are_added_to_the_output_if_the_user_accepts_it(tmp_path: Path) -> None:
    output, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    score(rows(tmp_path / "in.jsonl", 6), output)
    with pytest.raises(InputError, match=r"in\.jsonl: has changed since .*out\.jsonl was begun .*accept_changed_data"):
        score(rows(tmp_path / "in.jsonl", 8), output)
    assert len(lines_of(output)) == 6
    score(tmp_path / "in.jsonl", output, accept=True)
    score(tmp_path / "in.jsonl", whole)
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("count", [2, 7])
def test_scores_of_another_metric_or_of_other_columns_are_not_continued(tmp_path: Path, count: int) -> None:
    source, output = rows(tmp_path / "in.jsonl", other="text"), tmp_path / "out.jsonl"
    score(source, output)
    output.write_text("".join(output.read_text().splitlines(keepends=True)[:count]))
    before = output.read_bytes(), (tmp_path / "out.summary.json").read_bytes()

    class Other(Length):
        signature = "other"

    with pytest.raises(InputError, match=r"holds scores made with other settings \(signature: length -> other\)"):
        score(source, output, Other())
    with pytest.raises(InputError, match=r"holds scores made with other settings \(columns: "):
        score(source, output, question="other")
    assert (output.read_bytes(), (tmp_path / "out.summary.json").read_bytes()) == before
    output.unlink()
    score(source, output, Other())
    assert json.loads((tmp_path / "out.summary.json").read_text())["signature"] == "other"


@pytest.mark.parametrize("change", [{"context": "another"}, {"id": 99}, {"extra": None}])
def test_an_output_that_is_not_the_beginning_of_the_result_is_left_alone(tmp_path: Path, change: Any) -> None:
    output = tmp_path / "out.jsonl"
    score(rows(tmp_path / "in.jsonl"), output)
    before = output.read_bytes(), (tmp_path / "out.summary.json").read_bytes()
    with pytest.raises(InputError, match=r"line 1 is not about the row of .*other\.jsonl in its place"):
        score(rows(tmp_path / "other.jsonl", **change), output)
    with pytest.raises(InputError, match=r"line 7 is not about the row of .*shorter\.jsonl in its place"):
        score(rows(tmp_path / "shorter.jsonl", 6), output)
    assert (output.read_bytes(), (tmp_path / "out.summary.json").read_bytes()) == before
    output.write_text("my notes")  # without a line feed it could be a line that a kill cut off
    with pytest.raises(InputError, match="line 1 is not about the row"):
        score(tmp_path / "in.jsonl", output)
    (tmp_path / "out.summary.json").unlink()
    with pytest.raises(InputError, match=r"no out\.summary\.json beside it"):
        score(tmp_path / "in.jsonl", output)
    assert output.read_text() == "my notes"


@pytest.mark.parametrize("kept", [1, 4, 7, 10])
def test_a_metric_with_a_cache_gives_the_same_file_after_a_kill(tmp_path: Path, kept: int) -> None:
    source, output = QuestionTable(str(rows(tmp_path / "in.jsonl", 12))), tmp_path / "out.jsonl"
    score_file(Caching(), source, output, batch_size=4, state=PartialState(cpu=True))
    whole = output.read_bytes()
    output.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
    score_file(Caching(), source, output, batch_size=4, state=PartialState(cpu=True))
    assert output.read_bytes() == whole


@pytest.mark.slow
def test_a_batch_that_does_not_fit_into_memory_is_scored_in_parts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class ShortOfMemory(Length):
        room = 2

        def score(self, questions, contexts, **columns) -> Any:
            if len(questions) > self.room:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            scores = super().score(questions, contexts, **columns).scores
            return SimpleNamespace(scores=scores, parts={})

    source, whole, parts = rows(tmp_path / "in.jsonl", 12), tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    reward = ShortOfMemory()
    reward.room = 5
    score(source, whole, reward, batch_size=5)
    assert "do not fit into memory" not in caplog.text
    reward.room = 2
    score(source, parts, reward, batch_size=5)
    assert parts.read_bytes() == whole.read_bytes()
    assert caplog.text.count("do not fit into memory") == 1
    reward.room = 0
    with pytest.raises(InputError, match=r"score: a single row does not fit into memory"):
        score(source, tmp_path / "none.jsonl", reward)


def test_a_full_disk_is_one_line_and_the_same_command_continues(tmp_path: Path) -> None:
    source, output, whole = rows(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    score(source, whole)
    with (
        room_for(whole.stat().st_size * 3 // 4),
        pytest.raises(InputError, match=r"out\.jsonl: cannot be written further .* make room, and the same command"),
    ):
        score(source, output)
    assert output.read_bytes() == b"".join(whole.read_bytes().splitlines(keepends=True)[:3])
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]
    score(source, output)
    assert output.read_bytes() == whole.read_bytes()


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    source, output = rows(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    output.symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"out\.jsonl: cannot be written"):
        score(source, output)
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl", "out.summary.json"}


def test_a_summary_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    source, output = rows(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    with room_for(20), pytest.raises(InputError, match=r"out\.jsonl: cannot be written"):
        score(source, output)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
