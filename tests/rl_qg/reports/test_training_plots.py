"""The plots of training say what they show: the loss, the baseline and the algorithm of the run."""

import json

import pytest

from rl_qg.reports.run_files import read_run
from rl_qg.reports.training_plots import _window, overlay_plot, training_plots
from tests.rl_qg.reports.run_folders import metrics, page_of, write

OF_A_SAMPLE = "reward of the sample minus that of greedy"
SELF_CRITICAL = "per target token: L = λ · self-critical + "


@pytest.mark.parametrize(("count", "window"), [(19, 1), (20, 1), (39, 1), (40, 3), (200, 11), (1000, 51)])
def test_a_moving_mean_takes_an_odd_number_of_about_a_twentieth(count: int, window: int) -> None:
    assert _window(count) == window


def plots_of(folder, config, **fields):
    """The plots by title; `fields` are added to the lines of the second stage."""
    lines = [line | (fields if line["stage"] == "scst" else {}) for line in metrics(ce=3, scst=3)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = read_run(write(folder, **{"config.yaml": config, "metrics.jsonl": text}))
    return {plot.title: plot for plot in training_plots(run, "salt")}


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("config", "coefficient", "loss", "advantage", "stage"),
    [
        (None, None, f"{SELF_CRITICAL}cross-entropy", "reward of the sample minus its baseline", "SCST"),
        ("scst: {baseline: greedy}", 0.0, f"{SELF_CRITICAL}cross-entropy", OF_A_SAMPLE, "SCST"),
        (
            "algorithm: scst\nscst: {baseline: leave_one_out, ce_weight: rest}",
            0.3,
            f"{SELF_CRITICAL}(1 − λ) · cross-entropy + β · divergence",
            "reward of each sample minus the mean of the others",
            "SCST",
        ),
        ("algorithm: best_of_n\nscst: {baseline: greedy}", None, "per target token: cross-entropy", None, "best of n"),
        (
            "algorithm: rloo\nscst: {baseline: greedy}",
            0.3,
            "cross-entropy, then the loss of RLOO as TRL logs it",
            None,
            "RLOO",
        ),
    ],
)
def test_loss_baseline_and_stage_are_those_of_the_run(tmp_path, config, coefficient, loss, advantage, stage):
    plots = plots_of(tmp_path / "run", config, kl_coefficient=coefficient)
    assert plots["Loss"].note == loss
    assert advantage is None or plots["Advantage"].note == advantage
    for title in ("Loss", "Time"):
        assert f">{stage}<" in plots[title].svg and (stage == "SCST" or "SCST" not in plots[title].svg)


@pytest.mark.drawn
def test_compared_runs_are_named_by_their_algorithm(tmp_path):
    configs = {"a": "algorithm: best_of_n", "b": "algorithm: best_of_n", "c": "algorithm: grpo"}
    bare = {"metrics.jsonl": None}
    runs = {name: write(tmp_path / name, **{"config.yaml": config}, **bare) for name, config in configs.items()}
    alike = page_of(runs["a"], runs["b"], output=tmp_path / "alike.html").text
    assert "Reward, CE best of n difference" in alike and "best of n − CE" in alike and "SCST" not in alike
    mixed = page_of(runs["a"], runs["c"], output=tmp_path / "mixed.html").text
    assert "Reward, CE final difference" in mixed and "+ final final − CE" in mixed and "SCST" not in mixed
    assert "best of n · seed 13" in mixed and "GRPO · seed 13" in mixed


@pytest.mark.drawn
@pytest.mark.filterwarnings("error")
def test_a_run_that_was_killed_after_its_first_evaluation_is_drawn_without_a_warning(tmp_path):
    line = json.dumps({"step": 0, "stage": "scst", "eval_loss": 1.0, "eval_reward_greedy": 0.5})
    runs = [read_run(write(tmp_path / name, **{"metrics.jsonl": f"{line}\n"})) for name in ("a", "b")]
    assert {plot.title for plot in training_plots(runs[0], "salt")} == {"Loss", "Reward"}
    curves = {run.folder.name: ("ce", run.metrics) for run in runs}
    assert overlay_plot("Loss", ("loss", "eval_loss"), curves) is not None
