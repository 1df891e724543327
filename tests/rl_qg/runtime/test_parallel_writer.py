"""Two processes write the same files as one (questions by beams and samples, scores); an error in one ends both."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import PartialState

from rl_qg.data.examples import QAExample
from rl_qg.data.question_tables import QuestionTable
from rl_qg.generation.generate import generate
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.resumable_lines import Position, ResumableLines, Work
from rl_qg.scoring.metrics import reranker_of
from rl_qg.scoring.score_file import score_file
from rl_qg.settings import GenerateSettings
from tests.full_disk import room_for
from tests.processes import together as run_together
from tests.questions import example
from tests.tiny_models import tiny_bart, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(20))
BEAMS = GenerateSettings(num_beams=3, max_new_tokens=6, batch_size=3)
SETTINGS = {"beams": BEAMS, "samples": replace(BEAMS, do_sample=True, num_samples=2)}


def save_model(folder: Path) -> None:
    tokenizer = word_tokenizer(WORDS)
    tiny_bart(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def data(count: int) -> list[QAExample]:
    return [
        example(" ".join(f"w{(k + j) % 20}" for j in range(3 + k % 9)), f"w{(k + 1) % 20}", "", id=f"e{k}")
        for k in range(count)
    ]


class Mean:
    """Scores that depend on the other rows of the batch."""

    signature = "mean"

    def score(self, questions: list[str], contexts: list[str], **columns: Any) -> Any:
        mean = sum(map(len, contexts)) / len(contexts)
        return SimpleNamespace(scores=[len(text) / mean for text in questions], parts={})


def everything(folder: Path, model: Path, state: PartialState, count: int = 16) -> None:
    """The files of generation and scoring: five batches of three and one of one."""
    for name, settings in SETTINGS.items():
        generate(str(model), data(count), folder / f"{name}.jsonl", settings=settings, seed=5, state=state)
    best, reranker = replace(SETTINGS["samples"], num_samples=4, keep=2), reranker_of(Mean())
    output = folder / "best.jsonl"
    generate(str(model), data(count), output, settings=best, seed=5, state=state, reranker=reranker)
    source = QuestionTable(folder / "beams.jsonl")
    score_file(Mean(), source, folder / "scored.jsonl", batch_size=4, state=state)


def numbers(output: Path, batch_size: int) -> Work[int]:
    return Work(ResumableLines(output), batch_size, "numbers", "number")


def faults(folder: Path, model: Path, state: PartialState) -> dict[str, str]:
    """The error of this process when one of the processes cannot continue."""

    def bad(batch: Any) -> list[bytes]:
        if 7 in batch:
            raise InputError("seven")
        return [b"%d\n" % row for row in batch]

    def write() -> None:
        numbers(folder / "numbers.txt", 2).write(range(20), bad, position=Position(), total=20, state=state)

    def fill() -> None:
        with room_for(5000):
            generate(str(model), data(16), folder / "full.jsonl", settings=BEAMS, seed=5, state=state)

    return {"one": message(write), "disk": message(fill)}


def message(function: Callable[[], None]) -> str:
    with pytest.raises(InputError) as error:
        function()
    return str(error.value)


def worker(folder: Path, model: Path) -> None:
    state = PartialState(cpu=True)
    everything(folder, model, state)
    errors = faults(folder, model, state)
    (folder / f"faults-{state.process_index}.json").write_text(json.dumps(errors))


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_write_the_file_of_one(tmp_path: Path) -> None:
    model, alone, together = (tmp_path / name for name in ("model", "alone", "together"))
    for folder in (model, alone, together):
        folder.mkdir()
    save_model(model)
    state, threads = PartialState(cpu=True), torch.get_num_threads()
    torch.set_num_threads(1)  # as in the two processes: rounding depends on the number of threads
    everything(alone, model, state)
    everything(together, model, state)
    torch.set_num_threads(threads)
    whole = {path.name: path.read_bytes() for path in alone.iterdir() if path.suffix == ".jsonl"}
    assert len(whole) == 4 and len(set(whole["samples.jsonl"].splitlines())) > 16
    for name in whole:  # two processes continue what one began: cut in the second batch
        (together / name).write_bytes(whole[name][: len(whole[name]) // 3])
    (together / "scored.jsonl").unlink()
    run_together(worker, together, model)
    for name, text in sorted(whole.items()):
        assert (together / name).read_bytes() == text, name
    summaries = [json.loads((folder / "scored.summary.json").read_text()) for folder in (alone, together)]
    assert summaries[0]["score"] == summaries[1]["score"] and summaries[1]["complete"]
    errors = [json.loads((together / f"faults-{rank}.json").read_text()) for rank in range(2)]
    assert errors[0] == errors[1] and errors[0]["one"] == "seven"
    assert "full.jsonl: cannot be written further" in errors[0]["disk"]
    assert (together / "numbers.txt").read_text() == "0\n1\n2\n3\n"  # the rounds before the error
    full = (together / "full.jsonl").read_bytes()
    assert full and whole["beams.jsonl"].startswith(full) and full.endswith(b"\n")


def test_each_call_gets_one_batch_and_bytes_after_the_kept_ones_are_removed(tmp_path: Path) -> None:
    output, seen = tmp_path / "new" / "out.txt", list[list[int]]()

    def lines_of(batch: Any) -> list[bytes]:
        seen.append(list(batch))
        return [b"%d\n" % row for row in batch]

    work, options = numbers(output, 3), {"total": 10, "state": PartialState(cpu=True)}
    work.write(range(7), lines_of, position=Position(), **options)
    assert seen == [[0, 1, 2], [3, 4, 5], [6]]
    assert output.read_text() == "0\n1\n2\n3\n4\n5\n6\n"
    work.write(range(8, 10), lines_of, position=Position(2, 4), **options)
    assert output.read_text() == "0\n1\n8\n9\n"
    work.write([], lines_of, position=Position(1, 2), **options)
    assert output.read_text() == "0\n"
