"""The passages that choose a model and those that judge it, as a run's own functions and files have them."""

import json
import logging
from pathlib import Path

import pytest

from rl_qg.commands import pipeline as pipeline_stage
from rl_qg.commands.compose import compose
from rl_qg.commands.runs import OpenRun, chosen_by, open_run
from rl_qg.data.examples import passage_hash
from rl_qg.training.stages import evaluation_sample


@pytest.fixture(autouse=True)
def no_miniatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.commands.runs.with_miniatures", lambda settings, examples, state, **_: settings)


def opened(folder: Path, *given: str, passages: int = 30) -> OpenRun:
    base = ["preset=smoke", f"data.world.validation_passages={passages}", "training.eval_samples=10000"]
    base += ["data.max_validation=null", "evaluation.max_examples=10000"]
    return open_run(compose("pipeline", [*base, f"output_dir={folder}", *given]))


def choosing(run: OpenRun) -> set[str]:
    """The passages of each evaluation in training."""
    return {passage_hash(one.context) for one in evaluation_sample(run.splits, run.settings)}


def judged(run: OpenRun, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], object]:
    """The passages of the comparison, and what it is told of the choice."""
    found = {}

    def compare(models, examples, reward, output, **options) -> None:
        found.update(passages={passage_hash(one.context) for one in examples}, choice=options["choice"])

    monkeypatch.setattr(pipeline_stage, "evaluate_generators", compare)
    monkeypatch.setattr(OpenRun, "reward", lambda self: None)
    monkeypatch.setattr(OpenRun, "held_out", lambda self: None)
    (run.folder / "scst").mkdir(exist_ok=True)
    pipeline_stage._evaluate(run)
    return found["passages"], found["choice"]


def recorded(run: OpenRun) -> object:
    return json.loads((run.folder / "run.json").read_text()).get("model_choice")


@pytest.mark.parametrize("setting", ["scst.stop_on=bleu4", "stages=ce"])
def test_passages_that_choose_do_not_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog, setting: str
) -> None:
    with caplog.at_level(logging.INFO):
        run = opened(tmp_path / "run", setting)
    judges, choice = judged(run, monkeypatch)
    assert not judges & choosing(run) and len(judges) == len(choosing(run)) == 15
    by = "lowest validation loss" if setting == "stages=ce" else setting
    assert recorded(run) == choice == {"by": by, "on": "other passages", "passages": 15}
    assert f"{by} chooses the model on 15 validation passages; evaluation.json judges the others" in caplog.text
    again = opened(tmp_path / "run", setting)  # a resumed run
    assert choosing(again) == choosing(run) and recorded(again) == choice


def test_too_few_passages_do_both_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    run = opened(tmp_path / "run", "scst.stop_on=bleu4", passages=19)
    judges, choice = judged(run, monkeypatch)
    assert judges == choosing(run) and len(judges) == 19
    assert recorded(run) == choice == {"by": "scst.stop_on=bleu4", "on": "the same passages"}
    assert "its numbers favour the model; 20 validation passages would be enough" in caplog.text


def test_where_nothing_chooses_all_passages_do_both_and_no_file_mentions_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    run = opened(tmp_path / "run")
    judges, choice = judged(run, monkeypatch)
    assert judges == choosing(run) and len(judges) == 30
    assert recorded(run) is None and choice is None and "chooses the model" not in caplog.text


def test_a_run_that_began_on_the_same_passages_stays_with_them(tmp_path: Path, caplog) -> None:
    opened(tmp_path / "run", "stages=ce", "training.stop_after=1")  # keeps the last model, of all passages
    run = opened(tmp_path / "run", "stages=ce")
    assert recorded(run) == {"by": "lowest validation loss", "on": "the same passages"}
    assert len(choosing(run)) == 30 and "favour the model" in caplog.text


@pytest.mark.parametrize(
    ("given", "by"),
    [
        ([], None),
        (["stages=scst"], None),
        (["stages=ce", "scst.stop_on=bleu4"], "lowest validation loss"),
        (["stages=scst", "scst.stop_on=rouge_l"], "scst.stop_on=rouge_l"),
    ],
)
def test_what_chooses(given: list[str], by: str | None) -> None:
    assert chosen_by(compose("pipeline", ["preset=smoke", *given])) == by
