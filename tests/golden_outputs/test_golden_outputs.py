"""What commands write is what is stored, and a change of one character in it is named."""

import json
from pathlib import Path

import pytest

from rl_qg.commands.catalogue import COMMANDS
from tests.golden_outputs import CASES, MODEL_CASES, ROOT, differing, outputs, stored_hashes
from tests.golden_outputs.contents import Fields, changed_fields, differences, fingerprint, read_text
from tests.golden_outputs.run_cases import read_cases

TABLE = "metric,value\nbleu4,0.5\nrouge_l,0.25\n"
RECORD = json.dumps(
    {"started": "now", "scores": [{"name": "bleu4", "value": 0.5}, {"name": "rouge_l", "value": 0.25}]}
)
PAGE = "<h1>Scores</h1>\n<p>of 12 questions</p>\n<p>end</p>\n"
FILES = {"scores.csv": TABLE, "record.json": RECORD, "page.html": PAGE}


@pytest.mark.slow
def test_outputs_are_those_stored(tmp_path: Path) -> None:
    found = outputs({"now": ROOT}, [CASES], tmp_path)["now"]
    changed = differing(stored_hashes(), found, changed_fields)
    assert not changed, "\n".join(
        [
            "these outputs have changed; if they should, `make golden-update` stores them, and the commit says so:",
            *changed,
        ]
    )


def read(**changes: str) -> dict[str, Fields]:
    files = FILES | {name.replace("__", "."): text for name, text in changes.items()}
    return {name: read_text(text, name) for name, text in files.items()}


def test_one_character_in_each_of_three_outputs_is_named() -> None:
    before = read()
    after = read(
        scores__csv=TABLE.replace("0.25", "0.26"), record__json=RECORD.replace("0.25", "0.35"),
        page__html=PAGE.replace("12", "13"),
    )  # fmt: skip
    assert differing({name: fingerprint(fields) for name, fields in before.items()}, after, changed_fields) == [
        "page.html: line 2: now <p>of 13 questions</p>",
        "record.json: scores[].value: now 0.5 | 0.35",
        "scores.csv: column 2 value: now value | 0.5 | 0.26",
    ]
    assert differing(before, after, differences) == [
        "page.html: line 2: <p>of 12 questions</p> → <p>of 13 questions</p>",
        "record.json: scores[].value 2: 0.25 → 0.35",
        "scores.csv: column 2 value 3: 0.25 → 0.26",
    ]


@pytest.mark.parametrize(
    ("name", "old", "new", "named"),
    [
        ("record.json", '"name"', '"nome"', ["order of fields", "scores[].name", "scores[].nome"]),
        ("record.json", "{", " {", ["form"]),
        ("record.json", "0.25}]}", "0.25}]}\n", ["form"]),
        ("record.json", "0.25", "0.25000000000000006", []),
        ("record.json", "0.25", "0.250000001", ["scores[].value"]),
        ("record.json", "0.5", "1", ["scores[].value"]),
        ("record.json", "now", "then", []),
        ("page.html", "</p>\n<p>end", "</p>\n<p>more</p>\n<p>end", ["line"]),
        ("scores.csv", "value", "volume", ["column 2 value", "column 2 volume"]),
    ],
)
def test_what_counts(name: str, old: str, new: str, named: list[str]) -> None:
    """Order and form count; the last bits of numbers and when something was made do not."""
    before = read()[name]
    after = read_text(FILES[name].replace(old, new, 1), name)
    told = {line.split(": ")[0].rstrip(" 0123456789") for line in differences(before, after)}
    assert told == set(named)
    assert bool(changed_fields(fingerprint(before), after)) == bool(named)


def test_every_command_has_a_case() -> None:
    """But `rate demo`, which makes a plan and serves it, as two other commands do; `estimate`, whose times differ; and
    `retrieve`, whose test makes it write the same bytes twice.
    """
    commands = [command for path in (CASES, MODEL_CASES) for case in read_cases(path) for command in case.commands]
    run = {command[2:].removeprefix("rl-qg ") for command in commands if not command.endswith("--help")}
    assert {name for name in COMMANDS if not any(words.startswith(f"{name} ") for words in run)} == {
        *("rate demo", "estimate", "retrieve")
    }
    assert {f"$ rl-qg {name} --help" for name in COMMANDS} <= set(commands)
