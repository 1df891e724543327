"""The study to try: which runs it takes questions from."""

import json
from pathlib import Path
from typing import Any

import pytest

from rl_qg.rating.demo import PACKAGED, compared_questions
from rl_qg.runtime.errors import InputError

SAMPLE = json.loads(PACKAGED.read_text(encoding="utf-8"))[0]


def test_the_samples_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(json.dumps({"samples": [{**SAMPLE, "more": 1}]}))
    assert compared_questions(tmp_path) == [SAMPLE]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "has no samples"),
        ([], "has no samples"),
        ({"samples": None}, "lack samples"),
        ({"samples": []}, "lack samples"),
        ({"samples": [3]}, "has no samples"),
        ({"samples": [SAMPLE, {"id": "x"}]}, "its questions lack context"),
    ],
)
def test_a_run_without_questions_is_named(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"{path}: .*{message}"):
        compared_questions(tmp_path)
