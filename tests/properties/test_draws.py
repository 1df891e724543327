"""Whatever the settings and the data, a command ends with complete outputs or with one line (`contract.py`)."""

import json
from pathlib import Path

import pytest

from rl_qg.commands.catalogue import COMMANDS
from tests.bad_input.workspace import squad
from tests.processes import user_environment
from tests.properties.contract import file_faults, message_faults, output_faults, run_draws
from tests.properties.draws import VALID, Draw, commands, drawn, keys_of
from tests.properties.files import build, lay_out
from tests.properties.mutations import kinds, mutate

ANSWERS = Draw(("answers", "in/passages.txt", "output=a.jsonl", "max_per_context=3"))


class User:
    """The files and the environment of a user."""

    def __init__(self, folder: Path) -> None:
        self.root, home = folder / "files", folder / "home"
        build(self.root)
        home.mkdir()
        self.environment = user_environment(home)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(tmp_path_factory.mktemp("user"))


def broken_promises(user: User, draws: list[Draw]) -> str:
    """The draws that break the promise, with what is wrong, one a line."""
    outcomes = run_draws(draws, user.root, user.environment, stop=True)
    return "\n".join(f"{end.faults} {draw}" for draw, end in zip(draws, outcomes, strict=True) if end.faults)


@pytest.mark.slow
def test_drawn_commands_keep_their_promise(user: User) -> None:
    assert broken_promises(user, drawn(60, 0, commands())) == ""


def test_every_command_is_drawn() -> None:
    assert COMMANDS.keys() <= VALID.keys()
    assert all(keys_of(name) for name in COMMANDS if COMMANDS[name].sections)
    for name in VALID:  # how many of all draws a command has depends on the modules that are loaded
        assert drawn(1, 3, commands((name,)))[0].words[0] == name.split()[0]


def test_a_seed_gives_the_same_draws() -> None:
    assert drawn(20, 1, commands()) == drawn(20, 1, commands()) != drawn(20, 2, commands())


@pytest.mark.parametrize("name", ["dev.json", "ce.jsonl", "study.yaml", "passages.txt"])
def test_every_change_changes_a_file(user: User, name: str, tmp_path: Path) -> None:
    lay_out(user.root, tmp_path)
    path = tmp_path / "in" / name
    before = path.read_bytes()
    for kind in kinds(name):
        path.write_bytes(before)
        mutate(path, kind, 0.4)
        assert path.read_bytes() != before, kind


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("rl-qg answers: error: in/passages.txt: not UTF-8 text", ""),
        ("rl-qg ask: error: in/passages.txt: not UTF-8 text", "no message of answers"),
        ("ValueError: in/passages.txt", "no message of answers"),
        ("rl-qg answers: error: something is wrong", "names no key and no file"),
        ("rl-qg answers: error: max_per_context=\x1b[31m", "control characters"),
        (f"rl-qg answers: error: max_per_context={'9' * 4000}", "4038 characters"),
    ],
)
def test_what_is_wrong_with_a_message(line: str, fault: str) -> None:
    found = "; ".join(message_faults(ANSWERS, ["a note", line]))
    assert fault in found and bool(fault) == bool(found)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.json", '{"a": 1.5}', ""),
        ("a.json", '{"a": NaN}', "NaN is no JSON"),
        ("a.json", "", "does not load"),
        ("a.jsonl", '{"a": "\\ud800"}\n', "does not load"),
        ("a.jsonl", '{"a": 1}\n{"a"', "does not load"),
        ("a.txt", " \n", "is empty"),
        ("a.html", "<html><p>", "no complete page"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, name: str, text: str, fault: str) -> None:
    (tmp_path / name).write_text(text)
    found = "; ".join(file_faults(tmp_path / name))
    assert fault in found and bool(fault) == bool(found)


ROW = {"context": "Ada wrote it.", "answer": "Ada", "answer_start": 0}
REPORT = {"candidates": 5, "dropped": {"length": 2}, "kept": 3, "sampled": 3, "gold": 0}


@pytest.mark.parametrize(
    ("command", "file", "value", "fault"),
    [
        ("answers", "a.jsonl", ROW, ""),
        ("answers", "a.jsonl", {**ROW, "answer_start": 1}, "not at its place"),
        ("augment", "a.report.json", REPORT, ""),
        ("augment", "a.report.json", {**REPORT, "kept": 2}, "do not add up"),
        ("augment", "a.report.json", {**REPORT, "sampled": 0}, "an empty result"),
        ("score", "s.jsonl", {"question": "Who?"}, "without a score"),
        ("evaluate", "evaluate.json", {"scores": []}, "scores of nothing"),
        ("bench data", "train.json", squad(), ""),
        ("bench data", "train.json", {"data": []}, "holds nothing"),
        ("trim", "", None, "nothing was written"),
    ],
)
def test_what_is_wrong_with_the_outputs(tmp_path: Path, command: str, file: str, value: object, fault: str) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    if file:
        (folder / file).write_text(json.dumps(value))
    found = "; ".join(output_faults(Draw((*command.split(), "in/x")), folder, ""))
    assert fault in found and bool(fault) == bool(found)
