"""A run folder holds one run: it is continued with the same settings and refused with others."""

import json
from pathlib import Path
from typing import Any

import pytest

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.run_folder import OF_COMMANDS, check_run_folder, claim_run_folder


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


@pytest.mark.parametrize(
    ("earlier", "now", "fault"),
    [
        ({"reward": {"attention": None}}, {"reward": {}}, ""),
        ({"reward": {"layers": "last"}}, {"reward": {}}, r"reward\.layers: 'last' -> None"),
        ({"training": {"seed": 1}}, {"training": {"seed": 1, "rate_factors": {}}}, ""),
        ({"training": {}}, {"training": {"rate_factors": {"lm_head": 0.1}}}, r"training\.rate_factors: None -> \{"),
        ({"reward": {"parts": {"faithfulness": {}}}}, {"reward": {"parts": {"faithfulness": {"titles": False}}}}, ""),
        (
            {"reward": {"measure": "all"}},
            {"reward": {"measure": "all", "titles": True}},
            r"reward\.titles: None -> True",
        ),
        ({"data": {"layers": "all"}}, {"data": {}}, r"data\.layers: 'all' -> None"),
    ],
)
def test_a_new_key_is_ignored_at_its_default_alone(tmp_path: Path, earlier: Any, now: Any, fault: str) -> None:
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
