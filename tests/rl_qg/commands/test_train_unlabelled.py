"""`rl-qg train` with passages whose questions nobody has written."""

import json
import logging
from pathlib import Path

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.splits import load_splits
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings, WorldSettings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two new passages, and one of the validation data."""
    file = tmp_path_factory.mktemp("target") / "target.txt"
    held_out = load_splits(DataSettings("world", "world", world=WorldSettings(12, 6))).validation[0].context
    new = dict.fromkeys(item.context for item in synthetic_examples(2, seed=9, prefix="fresh"))
    file.write_text("\n".join([*new, held_out]))
    return file


def test_a_generator_adapts_to_passages_without_questions(
    tmp_path: Path, passages: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """First with gold questions in the other half of each batch, then from its result without any."""
    first, second = tmp_path / "first", tmp_path / "second"
    common = ["preset=smoke", f"data.unlabelled={passages}", f"miniature.cache_dir={tmp_path / 'cache'}"]
    common += ["answers.max_per_context=3", "evaluation.check_reward=0"]
    run_command("train", [*common, f"output_dir={first}", "scst.unlabelled_share=0.5", "data.labelled_fraction=1"])
    record = json.loads((first / "run.json").read_text())
    answers = [json.loads(line) for line in (first / "answers.jsonl").read_text().splitlines()]
    assert 0 < len(answers) == record["examples"]["unlabelled"] <= 6
    assert len({line["context"] for line in answers}) == 2  # not the passage of the validation data
    trained = json.loads((first / "trained.json").read_text())
    assert trained["unlabelled"] == {"examples": len(answers), "share": 0.5}
    lines = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    gold, size = record["examples"]["gold"], 4
    assert trained["steps"] == -(-gold // size) + -(-2 * len(answers) // size)
    assert {line["epoch"] for line in lines if line["step"] == trained["steps"]} == {2.0}
    ids = {json.loads(line)["id"] for line in (first / "samples.jsonl").read_text().splitlines()}
    assert ids & {line["id"] for line in answers} and ids - {line["id"] for line in answers}

    caplog.clear()
    with caplog.at_level(logging.INFO):
        alone = ["stages=scst", f"model.path={first / 'scst'}", "data.train=null", "data.validation=world"]
        run_command("train", [*common, *alone, f"output_dir={second}"])
    assert f"0 examples with a question, {len(answers)} without" in caplog.text
    assert all(json.loads(line).get("loss_ce") is None for line in (second / "metrics.jsonl").read_text().splitlines())
    with pytest.raises(InputError, match="no example with a question to learn from"):
        run_command("train", [*common, *alone, "stages=both", f"output_dir={tmp_path / 'third'}"])
    references = ["reward=bleu4", "scst.unlabelled_share=1", f"output_dir={tmp_path / 'fourth'}"]
    with pytest.raises(InputError, match="the reward compares with gold questions, which these passages do not have"):
        run_command("train", [*common, *alone, *references])
