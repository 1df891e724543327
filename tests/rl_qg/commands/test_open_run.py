"""A run that is opened: its rewards, and the settings that may still change."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from accelerate import PartialState

from rl_qg.commands.compose import compose, unread_keys
from rl_qg.commands.runs import OpenRun, open_run
from rl_qg.data.splits import Splits
from rl_qg.miniatures.cache import PREFIX
from rl_qg.miniatures.in_settings import with_miniatures
from rl_qg.runtime.errors import InputError
from rl_qg.training.config import check_stops


class Words:
    """A custom reward."""

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit

    def score(self, questions, contexts, *, answers=None, references=None) -> list[float]:
        return [self.unit * len(question.split()) for question in questions]


def run(held_out: dict[str, object]) -> OpenRun:
    settings = replace(compose("pipeline", ["preset=smoke"]), held_out=held_out)
    return OpenRun(settings, Splits([], [], [], {}, {}, {}), PartialState(cpu=True))


def test_without_the_setting_there_is_no_second_reward() -> None:
    assert run({}).held_out() is None


def test_the_second_reward_has_the_options_of_its_settings() -> None:
    reward = run({"_target_": f"{__name__}.Words", "unit": 3.0}).held_out()
    assert isinstance(reward, Words) and reward.unit == 3.0


def test_the_reward_itself_is_no_second_reward(caplog: pytest.LogCaptureFixture) -> None:
    """As of `preset=quickstart reward=qrelscore`: the alarm would ask whether the reward fell that rises."""
    same = compose("pipeline", ["preset=quickstart", "reward=qrelscore"])
    assert same.held_out == same.reward
    assert OpenRun(same, Splits([], [], [], {}, {}, {}), PartialState(cpu=True)).held_out() is None
    assert "held_out is the reward itself, not measured again" in caplog.text
    stopping = replace(same, scst=replace(same.scst, stop_on="held_out"))
    with pytest.raises(InputError, match="there is no held-out reward"):
        check_stops(stopping)


@pytest.mark.slow
def test_a_run_is_not_continued_with_other_code_of_a_reward(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("rl_qg.commands.runs.with_miniatures", lambda settings, examples, state, **_: settings)
    monkeypatch.syspath_prepend(str(tmp_path))
    code = tmp_path / "reward_that_changes.py"
    code.write_text("class Mine:\n    signature = 'mine'\n")
    base = ["preset=smoke", f"output_dir={tmp_path / 'run'}", "reward._target_=reward_that_changes.Mine"]
    open_run(compose("pipeline", base))
    code.write_text("class Mine:\n    signature = 'mine'  # corrected before there was a result\n")
    open_run(compose("pipeline", base))
    (tmp_path / "run" / "metrics.jsonl").touch()
    open_run(compose("pipeline", base))
    code.write_text("class Mine:\n    signature = 'mine'  # of another kind\n")
    with pytest.raises(InputError, match=r"reward_that_changes\.py: has changed since .*accept_changed_data=true"):
        open_run(compose("pipeline", base))
    open_run(compose("pipeline", [*base, "accept_changed_data=true"]))


@pytest.mark.slow
def test_settings_of_late_stages_may_change_until_they_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rl_qg.commands.runs.with_miniatures", lambda settings, examples, state, **_: settings)
    base = ["preset=smoke", f"output_dir={tmp_path / 'run'}"]
    open_run(compose("pipeline", base))
    (tmp_path / "run" / "metrics.jsonl").touch()
    other = compose("pipeline", [*base, "augment.num_samples=7", "answers.max_per_context=3"])
    assert open_run(other).settings.augment.num_samples == 7
    for name, message in (("answers.jsonl", "answers.max_per_context: 3 -> 10"), ("augmented.json", "num_samples: 7")):
        (tmp_path / "run" / name).touch()
        with pytest.raises(InputError, match=message):
            open_run(compose("pipeline", base))
    open_run(other)


@pytest.mark.slow
def test_settings_of_other_commands_do_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that was begun before `score.columns.title` and `separate.model` existed."""
    monkeypatch.setattr("rl_qg.commands.runs.with_miniatures", lambda settings, examples, state, **_: settings)
    settings = compose("pipeline", ["preset=smoke", f"output_dir={tmp_path / 'run'}"])
    open_run(settings)
    (tmp_path / "run" / "metrics.jsonl").touch()
    config = tmp_path / "run" / "config.yaml"
    earlier = yaml.safe_load(config.read_text())
    del earlier["score"]["columns"]["title"], earlier["separate"]["model"]
    config.write_text(yaml.safe_dump(earlier))
    open_run(settings)


def test_miniatures_of_the_second_reward_are_built_too(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    requested: list[str] = []

    def ensure(paths, *_):
        requested.extend(paths)
        return {path: tmp_path / path.removeprefix(PREFIX) for path in paths}

    monkeypatch.setattr("rl_qg.miniatures.cache.ensure_miniatures", ensure)
    settings = compose("pipeline", ["preset=smoke", "reward=qrelscore", "held_out=bartscore", "model.path=my-bart"])
    assert settings.held_out["model"] == "miniature:bart"
    done = with_miniatures(settings, [], PartialState(cpu=True))
    assert "miniature:bart" in requested
    assert done.held_out["model"] == str(tmp_path / "bart")
    assert done.reward["encoder"] == str(tmp_path / "bert")
    assert settings.held_out["model"] == "miniature:bart"  # left as it was


@pytest.mark.parametrize("command", ["augment", "generate", "qa", "separate", "train-selector"])
def test_keys_that_a_command_reads_are_not_called_without_effect(command: str) -> None:
    assert unread_keys(command, ["data.hotpotqa_context=facts"]) == []
    assert unread_keys("augment", ["reward.max_copied=1", "scst.epochs=2"]) == ["scst.epochs"]
