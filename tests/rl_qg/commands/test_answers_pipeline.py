"""From text without questions to `augmented.json`: by the pipeline, and command by command as a user runs them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import passage_hash, write_squad
from rl_qg.data.passages import Passages
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import load_splits
from rl_qg.settings import DataSettings, WorldSettings

pytestmark = pytest.mark.slow


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The arguments of a finished smoke pipeline with a text file and a QA file of unlabelled passages."""
    source = tmp_path_factory.mktemp("source")
    data = load_splits(DataSettings("world", "world", world=WorldSettings(12, 6)))
    plain = list(synthetic_examples(3, seed=9, prefix="fresh"))
    (source / "plain.txt").write_text(
        "\n".join([*dict.fromkeys(item.context for item in plain), data.validation[0].context])
    )
    answered = list(synthetic_examples(2, seed=10, prefix="others"))
    write_squad(source / "answered.json", [*answered, data.validation[0], data.gold[0]])
    arguments = [
        *("preset=smoke", f"miniature.cache_dir={source / 'cache'}", f"output_dir={source / 'run'}"),
        *(f"data.unlabelled=[{source / 'plain.txt'},{source / 'answered.json'}]", "answers.max_per_context=4"),
    ]
    run_command("pipeline", arguments)
    return arguments


@pytest.fixture(scope="module")
def run(pipeline: list[str]) -> tuple[Path, Path]:
    """The run folder, and the folder of the passages."""
    folder = Path(next(text for text in pipeline if text.startswith("output_dir=")).removeprefix("output_dir="))
    return folder, folder.parent


def test_questions_about_unlabelled_passages_are_in_the_augmented_data(run: tuple[Path, Path]) -> None:
    folder, source = run
    proposed = lines(folder / "answers.jsonl")
    contexts = {passage.context for passage in Passages([str(source / "plain.txt")])}
    report = json.loads((folder / "answers.report.json").read_text())
    assert report["passages"]["excluded"] == 1 and report["passages"]["kept"] == 3
    assert {line["context"] for line in proposed} <= contexts
    questions = lines(folder / "questions.jsonl")
    spans = {(line["context"], line["answer_start"], line["answer"]) for line in questions}
    proposed_spans = {
        (line["context"], line["answers"][0]["answer_start"], line["answers"][0]["text"]) for line in proposed
    }
    given_spans = {
        (item.context, item.answers[0].start, item.answers[0].text)
        for item in synthetic_examples(2, seed=10, prefix="others")
    }
    assert proposed_spans and proposed_spans | given_spans <= spans
    assert len({line["id"] for line in questions}) == len(spans)  # each span once, gold ones too
    held_out = {passage_hash(item.context) for item in synthetic_examples(6, seed=0, prefix="validation")}
    assert not {passage_hash(line["context"]) for line in questions} & held_out
    augmented = read_examples(folder / "augmented.json", role="train").examples
    synthetic = [item for item in augmented if item.id.startswith("synthetic-")]
    assert synthetic and {item.context for item in synthetic} <= {line["context"] for line in questions}
    record = json.loads((folder / "run.json").read_text())
    assert {str(source / "plain.txt"), str(source / "answered.json")} <= record["data"].keys()


def test_the_same_pipeline_again_proposes_nothing(
    run: tuple[Path, Path], pipeline: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = run
    before = {name: (folder / name).read_bytes() for name in ("answers.jsonl", "questions.jsonl", "augmented.json")}
    with caplog.at_level(logging.INFO):
        run_command("pipeline", pipeline)
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert "proposing answers in" in caplog.text and "write the report" in caplog.text
    assert "answered.json: 1 records are about passages of data.validation" in caplog.text


def test_the_same_steps_as_single_commands(run: tuple[Path, Path], tmp_path: Path) -> None:
    folder, source = run
    answers, questions, augmented = (
        tmp_path / name for name in ("answers.jsonl", "questions.jsonl", "augmented.json")
    )
    run_command("answers", [str(source / "plain.txt"), f"output={answers}", "max_per_context=2"])
    data, model = f"data.train={answers}", f"model.path={folder / 'scst'}"
    run_command("generate", ["preset=smoke", data, model, f"output={questions}"])
    gold = tmp_path / "gold.json"
    write_squad(gold, list(synthetic_examples(2, seed=20, prefix="gold")))
    run_command("augment", ["preset=smoke", f"questions={questions}", f"gold={gold}", f"output={augmented}"])
    contexts = {line["context"] for line in lines(answers)}
    synthetic = [item for item in read_examples(augmented, role="train").examples if item.id.startswith("synthetic-")]
    assert synthetic and {item.context for item in synthetic} <= contexts
