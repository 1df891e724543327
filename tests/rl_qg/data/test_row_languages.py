"""The language that a record names comes with its example, through files and hashes."""

import json
from dataclasses import replace
from pathlib import Path

from rl_qg.data.examples import as_example, examples_hash, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.data.streaming import stream_examples
from rl_qg.generation.tasks import task_rows
from tests.questions import PASSAGE, example

ROW = {
    "id": "a",
    "context": PASSAGE,
    "question": "Wo?",
    "answers": {"text": ["London"], "answer_start": [PASSAGE.index("London")]},
}


def test_a_language_is_read_from_rows_and_squad_and_written_again(tmp_path: Path) -> None:
    rows = [{**ROW, "language": "de"}, {**ROW, "id": "b"}, {**ROW, "id": "c", "language": 7}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_examples(tmp_path / "rows.jsonl", role="train").examples
    assert [item.language for item in read] == ["de", "", ""]  # a number is no language
    assert [item.language for item in stream_examples(tmp_path / "rows.jsonl", role="train")] == ["de", "", ""]
    assert as_example(rows[0]).language == "de"
    write_squad(tmp_path / "squad.json", read)
    (questions,) = json.loads((tmp_path / "squad.json").read_text())["data"][0]["paragraphs"]
    assert [qa.get("language") for qa in questions["qas"]] == ["de", None, None]
    assert [item.language for item in read_examples(tmp_path / "squad.json", role="train").examples] == ["de", "", ""]


def test_the_language_is_part_of_the_data_and_of_rows_of_tasks() -> None:
    plain = example(PASSAGE, "London", "Where did they meet?")
    german = replace(plain, language="de")
    assert examples_hash([plain]) == (
        "cdafb557144c4b683ed736f2d619c54eaeec1b5a2206aa923708fa5c43f052dc"  # as of versions without languages
    )
    assert examples_hash([german]) != examples_hash([plain])
    for task in ("answers", "pairs"):
        assert {row.language for row in task_rows(task, [german])} == {"de"}
