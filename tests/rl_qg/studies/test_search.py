"""Searches from file to leaderboard; the trainings are those of `tests.search_work`."""

import csv
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rl_qg.commands.compose import compose
from rl_qg.commands.studies import shipped_searches
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.settings import Settings
from rl_qg.settings.yaml_files import CONFIGS
from rl_qg.studies.search import stops
from rl_qg.studies.search_space import grid, read_search
from tests.rl_qg.studies.search_folder import calls, decided, search
from tests.search_work import value

ROOT = Path(__file__).parents[3]


@cache
def composed(command: str, arguments: tuple[str, ...]) -> Settings:
    return compose(command, arguments)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The searches have the same configurations, and composing takes most of their time.
    once = lambda command, arguments: composed(command, tuple(arguments))  # noqa: E731
    monkeypatch.setattr("tests.rl_qg.studies.search_folder.compose", once)
    monkeypatch.chdir(tmp_path)
    for name in ("train", "dev", "test"):
        Path(f"{name}.json").write_text("{}")


def test_a_search_ranks_goes_on_and_keeps_the_winner(tmp_path: Path) -> None:
    """By hand: the rate 1e-3 leads by 0.9 and is best after 3 epochs, and smoothing adds 0.15."""
    record = search(tmp_path)
    first = record["configurations"][0]
    assert first["values"] == {"ce.learning_rate": "1e-3", "ce.label_smoothing": "0.15"}
    assert (record["winner"]["configuration"], record["winner"]["epochs"]) == (2, 3)
    assert first["value"] == value(1e-3, 0.15, 1, 3) and first["outcome"] == "winner" and first["trained"] == 4
    assert [row["configuration"] for row in record["configurations"]] == [2, 1, 4, 3]
    outcomes = [row["outcome"] for row in record["configurations"][1:]]
    assert outcomes == ["left after epoch 2", "left after epoch 1", "left after epoch 1"]
    assert sorted(calls(tmp_path)) == ["1 1", "1 2", "2 1", "2 2", "2 3", "2 4", "3 1", "4 1"]
    out = tmp_path / "out"
    assert (out / "best" / "model.safetensors").read_bytes() == b"0.001 0.15 1 3.0"
    assert read_json(out / "best" / "search.json")["winner"] == record["winner"]
    assert (out / "best" / "config.yaml").exists()
    rows = list(csv.DictReader((out / "leaderboard.csv").open()))
    assert [row["configuration"] for row in rows] == ["2", "1", "4", "3"]
    assert float(rows[0]["value"]) == first["value"] and rows[0]["low"] == ""
    page = (out / "leaderboard.html").read_text()
    assert "configuration 2 after epoch 3" in page and "left after epoch 1" in page
    commands = [line for row in record["configurations"] for run in row["runs"] for line in run["commands"]]
    assert len(commands) == 8 and all("data.validation=dev.json" in line for line in commands)
    assert not any("test.json" in line for line in commands)  # there is no key for a test set
    assert record["data"]["sha256"].keys() == {"train", "validation"}
    weights = sorted(path.relative_to(out / "runs").parts[0][0] for path in (out / "runs").rglob("*.safetensors"))
    assert weights == ["1", "2", "3", "4"]  # the best of each
    assert [path.parent.name[0] for path in (out / "runs").rglob("checkpoint-*")] == ["2"]


def test_the_ranking_does_not_depend_on_workers_and_nothing_is_run_twice(tmp_path: Path) -> None:
    one, two = (search(tmp_path / str(workers), workers=workers) for workers in (1, 2))
    assert decided(one) == decided(two)
    before = calls(tmp_path / "2")
    assert decided(search(tmp_path / "2")) == decided(two)  # replayed, after its models were deleted
    assert calls(tmp_path / "2") == before
    Path("dev.json").write_text("[]")
    search(tmp_path / "2", go_on_to=None)
    assert len(calls(tmp_path / "2")) == len(before) + 6  # other data: other runs


@pytest.mark.slow
def test_a_search_that_is_killed_finds_the_same(tmp_path: Path) -> None:
    expected = search(tmp_path / "whole")
    begin = [sys.executable, "-m", "tests.rl_qg.studies.search_folder", str(tmp_path / "cut")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SEARCH_WAIT": "0.3"}
    process = subprocess.Popen(begin, cwd=tmp_path, env=environment)
    end = time.monotonic() + 120
    while "4 1" not in calls(tmp_path / "cut") and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len([*(tmp_path / "cut").rglob("job.json")])
    assert 0 < done < len([*(tmp_path / "whole").rglob("job.json")])
    time.sleep(0.5)  # its jobs end with it
    assert decided(search(tmp_path / "cut", workers=2)) == decided(expected)


def test_failures_are_listed_with_their_last_line_and_the_others_ranked(tmp_path: Path) -> None:
    space = {"training.batch_size": [13, 4], "ce.learning_rate": ["1e-3", "1e-4"]}
    with pytest.raises(InputError, match=r"2 of 4 configurations failed and the others are ranked, .* no room for 13"):
        search(tmp_path, space=space)
    record = read_json(tmp_path / "out" / "search.json")
    assert [row["rank"] for row in record["configurations"]] == [1, 2, None, None]
    assert record["configurations"][2]["outcome"].startswith(
        "failed on the way to epoch 1, seed 1: no room for 13 (log: "
    )
    assert [item["configuration"] for item in record["failed"]] == [1, 2]
    assert (tmp_path / "out" / "best" / "model.safetensors").exists()
    with pytest.raises(InputError, match="2 of 2 configurations failed and none is left"):
        search(tmp_path, space={**space, "training.batch_size": [13]})


def test_settings_without_effect_are_an_error_before_the_second_rung(tmp_path: Path) -> None:
    space = {"ce.learning_rate": ["1e-3", "1e-4"], "training.weight_decay": [0.0, 0.1]}
    message = r"training.weight_decay had no effect: after epoch 1 the models of 2 pairs .* such as 1 and 2; .*"
    with pytest.raises(InputError, match=message):
        search(tmp_path, space=space, seeds=[1, 2])
    assert {call.split()[1] for call in calls(tmp_path)} == {"1"}
    assert "Settings without effect" in (tmp_path / "out" / "leaderboard.html").read_text()
    record = search(tmp_path, space=space, allow_equal=True)
    assert record["winner"]["configuration"] == 1
    assert {tuple(tie["configurations"]) for tie in record["ties"]} == {(1, 2), (3, 4)}
    assert record["configurations"][1]["tied_with"] == [1]


def test_another_measure_trains_its_winner_again_where_the_weights_are_gone(tmp_path: Path) -> None:
    """The first search is best after epoch 3, and deletes the others; the second wants epoch 1."""
    changes: dict[str, Any] = {"space": {"ce.learning_rate": ["1e-3"]}, "rungs": [[1, 1], [3, 1]], "go_on_to": None}
    assert search(tmp_path, **changes)["winner"]["epochs"] == 3
    record = search(tmp_path, **changes, measure={"name": "bleu4", "better": "lower"})
    assert record["winner"]["epochs"] == 1 and record["configurations"][0]["runs"][0]["measures"]["loss"]
    assert (tmp_path / "out" / "best" / "model.safetensors").read_bytes() == b"0.001 0.0 1 1.0"
    assert calls(tmp_path) == ["1 1", "1 2", "1 3"] * 2


def test_seeds_are_replicates_with_an_interval(tmp_path: Path) -> None:
    record = search(
        tmp_path, space={"ce.learning_rate": ["1e-4", "1e-3"]}, seeds=[1, 2, 3], rungs=[[1, 1]], go_on_to=None
    )
    first = record["configurations"][0]
    assert first["by_seed"] == [value(1e-3, 0.0, seed, 1) for seed in (1, 2, 3)]
    assert first["low"] < first["value"] < first["high"] and len(first["runs"]) == 3
    assert (tmp_path / "out" / "best" / "model.safetensors").read_bytes() == b"0.001 0.0 1 1.0"  # of the first seed


def test_the_criterion_may_be_measured_by_further_commands(tmp_path: Path) -> None:
    measure = {
        "name": "mine",
        "better": "lower",
        "commands": ["evaluate predictions={model} references={validation} output={out}/evaluation"],
        "file": "evaluation/evaluate.json",
        "value": ["scores", "metric=mine", "value"],
    }
    record = search(tmp_path, measure=measure, rungs=[[1, 1]], go_on_to=None)
    first = record["configurations"][0]
    assert first["value"] == -value(1e-3, 0.15, 1, 1) and first["configuration"] == 2
    assert first["runs"][0]["commands"][1].startswith("rl-qg evaluate predictions=")
    with pytest.raises(InputError, match=r"4 of 4 configurations failed .* there is no 'metric=other2' of scores"):
        search(tmp_path, measure={**measure, "value": ["scores", "metric=other2"]}, rungs=[[1, 1]], go_on_to=None)


def test_a_changed_command_measures_again_and_what_reads_its_result_too(tmp_path: Path) -> None:
    """The second command stays as it is, and reads what the first one wrote."""
    evaluate = "evaluate predictions={model} output={out}/first"
    then = "evaluate predictions={model} references={out}/first output={out}/evaluation"
    measure = {"name": "mine", "better": "lower", "commands": [evaluate, then], "file": "evaluation/evaluate.json"}
    changes: dict[str, Any] = {"space": {"ce.learning_rate": ["1e-3"]}, "rungs": [[1, 1]], "go_on_to": None}
    measure["value"] = ["scores", "metric=mine", "value"]
    first = search(tmp_path, measure=measure, **changes)["configurations"][0]["runs"][0]["commands"]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("evaluate.json")}
    measure["commands"] = [f"{evaluate} num_beams=8", then]
    second = search(tmp_path, measure=measure, **changes)["configurations"][0]["runs"][0]["commands"]
    assert first[0] == second[0] and first[2] != second[2]
    assert len([*tmp_path.rglob("evaluate.json")]) == 4 and calls(tmp_path) == ["1 1"]
    assert all(path.stat().st_mtime_ns == time for path, time in written.items())


@pytest.mark.slow
def test_optuna_and_random_configurations_are_searched_and_replayed(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space = {"ce.learning_rate": {"low": "1e-5", "high": "1e-3", "log": True}}
    changes = {"space": space, "rungs": [[1, 1]], "go_on_to": None}
    found = search(tmp_path, **changes, method="optuna", configurations=4, batch=2)
    assert len(found["configurations"]) == 4 and found["versions"]["optuna"]
    before = calls(tmp_path)
    assert decided(search(tmp_path, **changes, method="optuna", configurations=4, batch=2)) == decided(found)
    assert calls(tmp_path) == before
    drawn = search(tmp_path, **changes, method="random", configurations=2)
    assert [row["values"] for row in drawn["configurations"]] != [row["values"] for row in found["configurations"][:2]]


# --- The file ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["rungs=[[2,5],[2,1]]"], r"rungs: .* the epochs must rise"),
        (["rungs=[[1,2],[2,3]]"], r"rungs: .* no rung may keep more"),
        (["rungs=[2]"], r"rungs"),
        (["go_on_to=2"], r"go_on_to: 2 is not above the last rung, 2"),
        (["method=magic"], r"method: 'magic' is not one of grid, random, optuna"),
        (["method=random"], r"configurations: how many"),
        (["measure=bleu5"], r"measure: 'bleu5' is not one of held_out, bleu4, .*; another one needs measure.commands"),
        (["seeds=[]"], r"seeds: give at least one"),
        (["settings=[training.stop_after=2]"], r"training.stop_after is set by the search itself"),
        (["devices=[tpu]"], r"devices: tpu is neither cpu"),
        (["spaces=1"], r"spaces: there is no key 'spaces'"),
        (["base=mine"], r"base: there is no key 'base'"),
        (["measure={name: x, commands: ['generate a={model.path}']}"], r"measure.commands: .*{model.path}' cannot be"),
        (["measure={name: x, commands: ['generate a={model[x]}']}"], r"measure.commands: .*{model\[x\]}' cannot be"),
        (["measure={name: x, commands: [[generate, 'a={model}']]}"], r"measure.commands: \['generate', .* cannot be"),
        (["settings=[training.rate_schedule=linear,ce.warmup_fraction=0.1]"],
         r"configuration 1: go_on_to: 9: .* set training.rate_schedule=constant, ce.warmup_fraction=0, or"),
        (["space={ce.epoch: [1]}"], r"no key or group 'ce.epoch'"),
        (["measure=held_out"], r"configuration 1: measure: held_out is not measured: give held_out in settings"),
        (["measure=reward_greedy"], r"configuration 1: measure: reward_greedy is not measured: stages: ce has no"),
        (["settings.ce.epochs=9"], r"ce.epochs is set by the search itself"),
        (["space={group: [{seed: 1}, {seed: 2}]}"], r"seed is set by the search itself"),
        (["data.train=missing.json"], r"missing\.json: no such file"),
        (["stages=both", "settings=[ce.epochs=9]"], r"ce.epochs=9 leaves none of 9 epochs to scst"),
    ],
)  # fmt: skip
def test_a_wrong_search_is_one_line_before_anything_runs(tmp_path: Path, change: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        search(tmp_path, *change)
    assert "\n" not in str(error.value) and not calls(tmp_path)


def test_keys_with_dots_can_be_replaced_one_by_one(tmp_path: Path) -> None:
    change = ["space.ce.learning_rate=[1e-2]", "settings.ce.warmup_fraction=0.1"]
    mine = ["data.train=train.json", "data.validation=dev.json", "output_dir=out"]
    read = read_search("qg-bench", [*mine, *change, "settings.training.batch_size=8"], shipped_searches())
    assert read.space.keys() == {"ce.learning_rate", "ce.label_smoothing", "training.gradient_accumulation_steps"}
    assert str(read.space["ce.learning_rate"]) == "['1e-2']" and "training.batch_size=8" in read.settings
    assert "training.batch_size=64" not in read.settings and "ce.warmup_fraction=0.1" in read.settings


@pytest.mark.parametrize(("settings", "length"), [("", 0), ("settings:", 0), ("settings: [model=t5-small]", 1)])
def test_settings_of_a_base_are_kept_under_a_list(tmp_path: Path, settings: str, length: int) -> None:
    Path("mine.yaml").write_text(
        f"base: qg-bench\n{settings}\noutput_dir: out\ndata: {{train: train.json, validation: dev.json}}\n"
    )
    read = read_search("mine.yaml", [], shipped_searches())
    assert "training.batch_size=64" in read.settings and read.settings[3:] == ["model=t5-small"][:length]


def test_a_base_may_have_a_base_and_a_folder_of_its_name_is_not_the_search(tmp_path: Path) -> None:
    Path("qg-bench").mkdir()
    mine = "output_dir: qg-bench\ndata: {train: train.json, validation: dev.json}\n"
    Path("mine.yaml").write_text(f"base: qg-bench-domains\n{mine}")
    read = read_search("mine.yaml", [], shipped_searches())
    assert read.rungs == [[1, 1], [4, 1]] and "training.batch_size=64" in read.settings


def test_settings_that_are_none_are_not_taken_for_those_of_the_base(tmp_path: Path) -> None:
    Path("mine.yaml").write_text("base: qg-bench\nsettings: false\n")
    with pytest.raises(InputError, match=r"mine\.yaml: settings: expected overrides"):
        read_search("mine.yaml", [], shipped_searches())


@pytest.mark.parametrize("base", ["[large]", "{large: 1}", "3", "large"])
def test_a_base_that_is_none_of_the_shipped_ones_is_one_line(tmp_path: Path, base: str) -> None:
    Path("mine.yaml").write_text(f"base: {base}\n")
    with pytest.raises(InputError, match=r"mine\.yaml: base: .* is not one of qg-bench"):
        read_search("mine.yaml", [], shipped_searches())


def test_an_algorithm_that_does_not_stop_needs_one_rung_and_commands(tmp_path: Path) -> None:
    overrides = ["space={algorithm: [best_of_n]}", "stages=scst", "go_on_to=null"]
    with pytest.raises(InputError, match=r"algorithm=best_of_n does not stop and go on: give a single rung"):
        search(tmp_path, *overrides)


@pytest.mark.parametrize("name", shipped_searches())
def test_every_search_that_comes_with_the_package_composes(name: str) -> None:
    mine = ["data.train=train.json", "data.validation=dev.json", "output_dir=out"]
    read = read_search(name, mine, shipped_searches())
    assert {"training.batch_size=64", "training.eval_samples=100000"} <= {*read.settings}
    first, *others = grid(read.dimensions(), name)
    assert len(others) >= 11
    settings = compose("train", [f"preset={read.preset}", *read.settings, *first.overrides])
    assert (settings.training.rate_schedule, settings.ce.warmup_fraction) == ("constant", 0)


def test_the_search_of_the_paper_is_its_24_configurations() -> None:
    mine = ["data.train=train.json", "data.validation=dev.json", "output_dir=out"]
    read = read_search("qg-bench", mine, shipped_searches())
    found = grid(read.dimensions(), "")
    assert "training.batch_size=64" in read.settings
    assert {tuple(map(float, item.values.values())) for item in found} == {
        (rate, smoothing, accumulated)
        for rate in (1e-4, 5e-5, 1e-5)
        for smoothing in (0.0, 0.15)
        for accumulated in (1, 2, 4, 8)  # 64, 128, 256, 512 examples an update
    }
    assert len(found) == 24 and stops(read)[:8] == [2, 3, 4, 5, 6, 7, 8, 9] and read.plan.rungs == ((2, 5), (8, 5))


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # Ushio et al. 2022, table 7; the last one from its scripts: epochs, rate, batch, accumulated, label smoothing
        ("bart-base-sentence", (3, 1e-4, 64, 2, 0.15)),
        ("bart-large-sentence", (8, 5e-5, 32, 16, 0.15)),
        ("t5-small-sentence", (8, 1e-4, 64, 1, 0.15)),
        ("t5-base-sentence", (8, 1e-4, 64, 1, 0.15)),
        ("t5-large-sentence", (6, 5e-5, 16, 4, 0.15)),
        ("bart-base-answer-free", (4, 1e-4, 32, 8, 0.15)),
        ("bart-large-answer-free", (4, 5e-5, 32, 4, 0.15)),
        ("t5-small-answer-free", (7, 1e-4, 64, 4, 0.15)),
        ("t5-base-answer-free", (8, 1e-4, 16, 4, 0.15)),
        ("t5-large-answer-free", (7, 5e-5, 16, 4, 0.15)),
        ("bart-base", (7, 1e-4, 32, 8, 0.15)),
        ("bart-large", (4, 5e-5, 32, 4, 0.15)),
        ("t5-small", (9, 1e-4, 64, 1, 0.15)),
        ("t5-base", (5, 1e-4, 16, 4, 0.15)),
        ("t5-large", (6, 5e-5, 16, 4, 0.15)),
        ("unoptimised", (10, 1.25e-5, 32, 1, 0.1)),
    ],
)
def test_presets_hold_the_published_configurations(name: str, expected: tuple[float, ...]) -> None:
    assert (CONFIGS / "preset" / "qg-bench" / f"{name}.yaml").exists()
    chosen = compose("train", [f"preset=qg-bench/{name}"])
    ce, training = chosen.ce, chosen.training
    sizes = (training.batch_size, training.gradient_accumulation_steps)
    assert (ce.epochs, ce.learning_rate, *sizes, ce.label_smoothing) == expected
    assert (training.rate_schedule, training.max_grad_norm, chosen.stages, chosen.seed) == ("constant", 0, "ce", 1)
    model = "facebook/bart-base" if name == "unoptimised" else "-".join(name.split("-")[:2])
    assert chosen.model.path.endswith(model)
    inputs = {"sentence": "sentence_answer", "answer-free": "paragraph_sentence"}
    assert chosen.model.input == inputs.get("-".join(name.split("-")[2:]), "paragraph_answer")
    assert (chosen.model.max_source_length, chosen.model.max_target_length) == (512, 34)  # footnote 5
