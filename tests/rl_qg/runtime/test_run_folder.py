"""A run folder holds one run: it is continued with the same settings and refused with others."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.run_folder import OF_COMMANDS, check_run_folder, claim_run_folder
from rl_qg.settings import Settings


def test_a_run_folder_is_claimed_continued_or_refused(tmp_path: Path) -> None:
    settings = {"a": {"b": 1, "c": [1, 2]}, "d": None}
    folder = tmp_path / "deep" / "run"
    other = {**settings, "a": {"b": 2, "c": [1, 2]}}
    check_run_folder(folder, settings)
    assert not folder.exists()
    claim_run_folder(folder, settings)
    (folder / ".config.yaml.part").touch()  # left by a kill during the write
    assert not check_run_folder(folder, other)  # without results a folder may get other settings
    (folder / "metrics.jsonl").touch()
    assert check_run_folder(folder, settings)
    assert check_run_folder(folder, {**settings, "accept_changed_data": True})
    with pytest.raises(InputError, match=r"a\.b: 1 -> 2"):
        check_run_folder(folder, other)
    assert check_run_folder(folder, other, unused=["a"])
    nan = {"a": {"b": float("nan"), "c": [float("nan")]}, "output_dir": "runs/a"}
    claim_run_folder(folder, nan)
    assert check_run_folder(folder, {"a": {"b": float("nan"), "c": [float("nan")]}, "output_dir": "./runs/a/"})
    with pytest.raises(InputError, match=r"a\.b: nan -> 1"):
        check_run_folder(folder, {**nan, "a": {"b": 1}})
    claim_run_folder(folder, settings)
    with pytest.raises(InputError, match=r"a\.b: 1 -> 2"):
        check_run_folder(folder, other, unused=["d", "b", "a.c"])
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="not empty and not a run folder"):
        check_run_folder(tmp_path, settings)
    with pytest.raises(InputError, match="cannot be written"):
        claim_run_folder(tmp_path / "mine.txt" / "run", settings)
    assert not (tmp_path / "config.yaml").exists()
    assert json.loads(json.dumps(settings)) == settings


def test_a_judge_in_a_combined_reward_may_get_a_larger_budget(tmp_path: Path) -> None:
    def settings(metric: str, budget: int) -> dict[str, Any]:
        part = {"metric": metric, "budget": budget, "model": "m"}
        return {"reward": {"_target_": "rewards.Product", "parts": {"judge": part}}}

    for metric in ("rewards.Judge", "rewards.QuestionForm"):
        claim_run_folder(tmp_path, settings(metric, 4000))
        (tmp_path / "metrics.jsonl").touch()
        if metric == "rewards.Judge":
            assert check_run_folder(tmp_path, settings(metric, 8000))
        else:
            with pytest.raises(InputError, match=r"reward\.parts\.judge\.budget: 4000 -> 8000"):
                check_run_folder(tmp_path, settings(metric, 8000))


def test_what_a_broken_file_of_a_run_folder_says(tmp_path: Path) -> None:
    claim_run_folder(tmp_path, {"a": 1})
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(InputError, match="holds what another command has made; name another folder"):
        check_run_folder(tmp_path, {"a": 1, "stages": "both"})
    for text, fault in (("a: [", "not readable as YAML: while parsing"), ("- 1", "expected keys, got list")):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(InputError, match=rf"config\.yaml: {fault}.*; write it again"):
            check_run_folder(tmp_path, {"a": 1})


def test_keys_of_earlier_versions_do_not_make_another_run(tmp_path: Path) -> None:
    now = {"reward": {"variant": "official"}}
    for layers, known in (("all", True), ("last", False)):
        folder = tmp_path / layers
        claim_run_folder(folder, {"reward": {"variant": "official", "attention": None, "layers": layers}})
        (folder / "metrics.jsonl").touch()
        if known:
            assert check_run_folder(folder, now)
        else:
            with pytest.raises(InputError, match=r"reward\.layers: 'last' -> None"):
                check_run_folder(folder, now)


def test_a_key_that_is_gone_is_ignored_at_its_default_alone(tmp_path: Path) -> None:
    """`training.eval_batch_size` was a key, with 32 as its default."""
    now = asdict(Settings())
    for size in (32, 16):
        folder = tmp_path / str(size)
        claim_run_folder(folder, {**now, "training": {**now["training"], "eval_batch_size": size}})
        (folder / "metrics.jsonl").touch()
    assert check_run_folder(tmp_path / "32", now)
    with pytest.raises(InputError, match=r"other settings \(training\.eval_batch_size: 16 -> None\)") as caught:
        check_run_folder(tmp_path / "16", now)
    assert "\n" not in str(caught.value)


QRELSCORE = {"aggregation": "max", "layers": "all", "power": 1.0, "gain": "relative", "clip_gain": True}


@pytest.mark.parametrize(
    ("earlier", "now", "fault"),
    [
        ({"held_out": QRELSCORE}, {"held_out": {}}, ""),
        ({"reward": {"parts": {"qrelscore": QRELSCORE}}}, {"reward": {"parts": {"qrelscore": {}}}}, ""),
        ({"held_out": {**QRELSCORE, "power": 2.0}}, {"held_out": {}}, r"held_out\.power: 2\.0 -> None"),
        ({"reward": {"parts": {"faithfulness": {}}}}, {"reward": {"parts": {"faithfulness": {"titles": False}}}}, ""),
        (
            {"reward": {"measure": "all"}},
            {"reward": {"measure": "all", "titles": True}},
            r"reward\.titles: None -> True",
        ),
        ({"data": {"layers": "all"}}, {"data": {}}, r"data\.layers: 'all' -> None"),
    ],
)
def test_options_of_rewards_that_are_gone_or_new(tmp_path: Path, earlier: Any, now: Any, fault: str) -> None:
    claim_run_folder(tmp_path, earlier)
    (tmp_path / "metrics.jsonl").touch()
    if fault:
        with pytest.raises(InputError, match=fault):
            check_run_folder(tmp_path, now)
    else:
        assert check_run_folder(tmp_path, now)


@pytest.mark.parametrize("first", OF_COMMANDS)
@pytest.mark.parametrize("second", OF_COMMANDS)
def test_a_folder_of_another_command_is_said_to_be_one(tmp_path: Path, first: str, second: str) -> None:
    claim_run_folder(tmp_path, {"data": {}, first: {"a": 1}})
    (tmp_path / "result").touch()
    with pytest.raises(InputError, match="other settings" if first == second else "what another command has made"):
        check_run_folder(tmp_path, {"data": {}, second: {"a": 2}})
