"""The run record says what ran on what, without secrets, and a continued run is compared with it."""

import json
import os
import random
import subprocess
from datetime import datetime
from importlib import metadata

import pytest
import torch

from rewards.arithmetic import arithmetic
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.run_folder import check_continuation, git_state, run_record, write_run_record
from tests.properties.mutations import kinds, mutate


def record(**changes):
    values = {"command": ["rl-qg", "train"], "seed": 7, "data": {"train.json": "ab" * 32}, "leakage": {"shared": 0}}
    return run_record({"output_dir": "runs/a"}, **{**values, **changes})


def test_the_record_holds_command_versions_hardware_and_data():
    result = record(extra={"examples": {"gold": 3}})
    assert result["seed"] == 7
    assert result["data"] == {"train.json": "ab" * 32}
    assert result["leakage"] == {"shared": 0}
    assert result["examples"] == {"gold": 3}
    assert result["versions"]["torch"] == metadata.version("torch")
    assert result["versions"]["transformers"] == metadata.version("transformers")
    assert result["hardware"]["cpu_count"] == os.cpu_count()
    assert result["hardware"]["memory_gib"] > 0
    assert len(result["hardware"]["accelerators"]) == torch.cuda.device_count()
    assert datetime.fromisoformat(result["started"]).tzinfo is not None
    assert result["arithmetic"] == arithmetic()
    assert json.loads(json.dumps(result)) == result


def test_the_settings_hash_depends_on_the_settings_but_not_on_their_order():
    def of(settings):
        return run_record(settings, command=[], seed=0, data={}, leakage={})["settings_sha256"]

    assert of({"a": 1, "b": {"c": 2}}) == of({"b": {"c": 2}, "a": 1}) != of({"a": 1, "b": {"c": 3}})


def test_the_world_size_is_that_of_the_launcher(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert record()["hardware"]["world_size"] == 1
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert record()["hardware"]["world_size"] == 4


@pytest.mark.parametrize(
    ("argument", "kept"),
    [
        ("training.hub_token=hf_12345", "training.hub_token=***"),
        ("wandb.api_key=12345", "wandb.api_key=***"),
        ("--password=12345", "--password=***"),
        ("data.train=https://me:12345@example.org/train.json", "data.train=https://***@example.org/train.json"),
        ("scst.max_new_tokens=64", "scst.max_new_tokens=64"),
        ("reward.unit=token", "reward.unit=token"),
        ("model.path=facebook/bart-base", "model.path=facebook/bart-base"),
    ],
)
def test_secrets_on_the_command_line_are_not_kept(argument, kept):
    assert record(command=["rl-qg", argument])["command"] == ["rl-qg", kept]


def test_a_secret_given_as_the_next_argument_is_not_kept():
    assert record(command=["--token", "12345", "seed=1"])["command"] == ["--token", "***", "seed=1"]


def test_nothing_of_the_environment_is_kept(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_do_not_keep_me")
    assert "hf_do_not_keep_me" not in json.dumps(record())


def test_extra_fields_cannot_replace_the_record():
    with pytest.raises(ValueError, match="extra would replace seed"):
        record(extra={"seed": 1})


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    (tmp_path / "code.py").write_text("x = 1\n")
    git("init", "-q")
    git("add", "code.py")
    git("commit", "-q", "-m", "first")
    return tmp_path, git


def test_the_commit_and_whether_files_differ_from_it(repository):
    folder, git = repository
    assert git_state(folder / "code.py") == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    (folder / "code.py").write_text("x = 2\n")
    assert git_state(folder / "code.py")["dirty"] is True


def test_code_in_a_repository_that_does_not_track_it_has_no_commit(repository):
    folder, _ = repository
    (folder / "installed.py").write_text("x = 1\n")
    assert git_state(folder / "installed.py") == {"commit": None, "dirty": None}


def test_outside_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "code.py").write_text("x = 1\n")
    assert git_state(tmp_path / "code.py") == {"commit": None, "dirty": None}


def test_without_git_there_is_no_commit(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert git_state(repository[0] / "code.py") == {"commit": None, "dirty": None}


def test_a_resumed_run_keeps_the_earlier_commands(tmp_path):
    path = write_run_record(tmp_path, record(command=["first"]))
    assert path == tmp_path / "run.json"
    assert "earlier" not in json.loads(path.read_text())
    write_run_record(tmp_path, record(command=["second"]))
    write_run_record(tmp_path, record(command=["third"]))
    result = json.loads(path.read_text())
    assert result["command"] == ["third"]
    assert [part["command"] for part in result["earlier"]] == [["first"], ["second"]]


def test_a_run_that_goes_on_with_other_arithmetic_says_so_in_one_line(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("RL_QG_PACKED", "always")
    write_run_record(tmp_path, record())
    write_run_record(tmp_path, record())
    assert not caplog.records
    monkeypatch.setenv("RL_QG_PACKED", "never")
    path = write_run_record(tmp_path, record())
    assert [entry.getMessage() for entry in caplog.records] == [
        f"{tmp_path}: numbers may differ in their last digits from here on: "
        "packed True, now False; reason RL_QG_PACKED=always, now RL_QG_PACKED=never"
    ]
    assert json.loads(path.read_text())["arithmetic"]["packed"] is False


def test_changed_data_are_refused_unless_accepted(tmp_path, caplog):
    check_continuation(tmp_path, {"train.json": "cd" * 32}, accept=False, trained=False)  # there is no run yet
    write_run_record(tmp_path, record())
    check_continuation(tmp_path, {"train.json": "ab" * 32}, accept=False, trained=False)
    changed = rf"train.json: has changed since {tmp_path} was begun \(SHA-256 abababab, now cdcdcdcd\)"
    with pytest.raises(InputError, match=f"{changed}.*accept_changed_data=true"):
        check_continuation(tmp_path, {"train.json": "cd" * 32}, accept=False, trained=False)
    check_continuation(tmp_path, {"train.json": "cd" * 32}, accept=True, trained=False)
    assert "has changed" in caplog.text


@pytest.mark.parametrize("seed", range(60))
def test_an_edited_record_is_continued_or_named(tmp_path, seed):
    path, draw = write_run_record(tmp_path, record()), random.Random(seed)
    write_run_record(tmp_path, record())  # with an earlier one
    mutate(path, draw.choice(kinds(path.name)), draw.random())
    if seed == 0:
        path.write_text("[1]")
    try:
        check_continuation(tmp_path, {}, accept=False, trained=False)
        write_run_record(tmp_path, record())
    except InputError as error:
        assert str(path) in str(error) or "was begun with" in str(error)


def test_another_number_of_processes_is_refused_until_the_run_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    write_run_record(tmp_path, record())
    check_continuation(tmp_path, {}, accept=False, trained=False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(InputError, match="was begun with 2 processes, and these are 1"):
        check_continuation(tmp_path, {}, accept=True, trained=False)
    check_continuation(tmp_path, {}, accept=False, trained=True)
