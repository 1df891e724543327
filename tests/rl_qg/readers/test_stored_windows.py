"""Windows in files are those in memory; they are made once, by one process of each machine, and leave with the run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from accelerate import PartialState

from rl_qg.data.examples import QAExample
from rl_qg.readers import reader, train_reader
from rl_qg.readers.reader import ARRAYS, Windows, encode, encode_in_parts, stored_windows
from rl_qg.runtime.errors import InputError
from tests.toy_reader import contents, run, toy_examples, toy_settings, toy_tokenizer

OPTIONS = {"max_length": 20, "doc_stride": 3}


def long_examples(count: int) -> list[QAExample]:
    """Every third passage has several windows, every fifth question is cut."""
    return [
        replace(one, context=" ".join([one.context] * (1 + 2 * (n % 3 == 0))), question=one.question * (1 + n % 5))
        for n, one in enumerate(toy_examples(count, 3))
    ]


def same(found: Windows, expected: Windows) -> None:
    assert found.questions_cut == expected.questions_cut
    for name in ARRAYS:
        one, other = getattr(found, name), getattr(expected, name)
        if other is None:
            assert one is None
        else:
            assert one.dtype == other.dtype and np.array_equal(one, other), name


@pytest.mark.parametrize("token_types", [True, False])
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_stored_windows_are_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_types: bool, at_once: int
) -> None:
    examples, tokenizer = long_examples(23), toy_tokenizer()
    expected = encode(examples, tokenizer, token_types=token_types, **OPTIONS)
    assert len(expected) > 23 and expected.questions_cut and expected.counts()["answers_in_no_window"] == 0
    monkeypatch.setattr(reader, "EXAMPLES_AT_ONCE", at_once)

    def make() -> Iterator[Windows]:
        made.append(1)
        return encode_in_parts(examples, tokenizer, token_types=token_types, **OPTIONS)

    made: list[int] = []
    for _ in range(2):
        found = stored_windows(tmp_path, {"examples": 1}, make, PartialState(cpu=True))
        same(found, expected)
        assert found.counts() == expected.counts() and found[3].keys() == expected[3].keys()
    assert len(made) == 1 and len(list(tmp_path.iterdir())) == 1
    assert isinstance(found.ids.base, np.memmap)
    stored_windows(tmp_path, {"examples": 2}, make, PartialState(cpu=True))
    assert len(made) == 2


def test_what_cannot_be_made_whole_is_not_there(tmp_path: Path) -> None:
    def make() -> Iterator[Windows]:
        yield from encode_in_parts(toy_examples(3, 1), toy_tokenizer(), token_types=False, **OPTIONS)
        raise InputError("no more")

    for _ in range(2):
        with pytest.raises(InputError, match="no more"):
            stored_windows(tmp_path, {}, make, PartialState(cpu=True))
        assert list(tmp_path.iterdir()) == []


def test_a_resumed_reader_finds_its_windows_and_a_finished_one_leaves_none(
    distilbert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = toy_settings(distilbert, seeds=[0, 1], epochs=1)
    run(tmp_path / "whole", settings)
    with monkeypatch.context() as patch:
        patch.setattr(train_reader, "_summarise", lambda job: 1 / 0)  # killed at the end: the folder is still there
        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "again", settings)
        (tmp_path / "again" / "seed-1" / "qa_metrics.json").unlink()
        left = tmp_path / "again" / train_reader.WINDOWS
        assert {path.name for path in next(left.iterdir()).iterdir()} >= {"ids", "bounds", "sizes.json"}
        (left / ".0-killed").mkdir()
    monkeypatch.setattr(reader, "_write", lambda folder, parts: 1 / 0)
    run(tmp_path / "again", settings)
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")
    assert not (tmp_path / "whole" / train_reader.WINDOWS).exists()
