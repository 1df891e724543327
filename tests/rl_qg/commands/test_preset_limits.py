"""Presets limit the embedded corpus alone: of a user's files every row is used, unless the user sets a limit."""

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_qg.commands.catalogue import COMMANDS
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import LIMITS, compose
from rl_qg.commands.training import _questions_of_readers
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample, write_squad
from rl_qg.data.splits import answer_spans, load_splits, load_training, training_stream
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.settings import Settings, all_keys
from rl_qg.settings.yaml_files import CONFIGS, choices
from tests.toy_metrics import write_lines

PRESETS = choices("preset")
READERS = [name for name, command in COMMANDS.items() if {"data", "data.train"} & set(command.sections)]
# Limits that are part of a published protocol, and so of its preset.
OF_PROTOCOLS = {
    *("qa_evaluate.max_questions", "qa_evaluate.max_context"),
    *("qa_evaluate.trials.train", "qa_evaluate.trials.validation"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[QAExample], list[QAExample]]:
    """A folder with train.json and dev.json, of more questions than `preset=smoke` has, and what they hold."""
    folder = tmp_path_factory.mktemp("files")
    train, dev = list(synthetic_examples(25, seed=5, prefix="t")), list(synthetic_examples(8, seed=6, prefix="d"))
    write_squad(folder / "train.json", train)
    write_squad(folder / "dev.json", dev)
    return folder, train, dev


def composed(command: str, folder: Path, *overrides: str) -> Settings:
    data = [f"data.train={folder}/train.json", f"data.validation={folder}/dev.json"]
    return compose(command, [*data, *overrides])


def ids(examples: Any) -> list[str]:
    return [example.id for example in examples]


def value(settings: Settings, key: str) -> Any:
    found: Any = settings
    for name in key.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(
    ("preset", "command"),
    [
        *((preset, "train") for preset in PRESETS),
        *((p, c) for p in ("smoke", "quickstart") for c in READERS if c != "train"),
    ],
)
def test_every_row_of_a_users_files_is_used(
    files: tuple[Path, list[QAExample], list[QAExample]], preset: str, command: str
) -> None:
    folder, train, dev = files
    data = composed(command, folder, f"preset={preset}").data
    splits = load_splits(data)
    assert ids(splits.gold) == ids(train) and not splits.unlabelled and ids(splits.validation) == ids(dev)
    assert ids(_questions_of_readers(data).gold) == ids(train)
    assert ids(_questions_of_readers(data).validation) == ids(dev)
    assert ids(load_training(data)) == ids(train)
    assert ids(training_stream(data, spans=True)) == ids(answer_spans(train))


def preset_values(content: Any, prefix: str = "") -> Iterator[str]:
    for name, part in content.items():
        key = f"{prefix}{name}"
        if key in all_keys() or not isinstance(part, dict):
            yield key
        else:
            yield from preset_values(part, f"{key}.")


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_has_a_limit_that_nobody_lifts(preset: str) -> None:
    content = yaml.safe_load((CONFIGS / "preset" / f"{preset}.yaml").read_text())
    content.pop("defaults", None)
    lifted = {key for keys in LIMITS.values() for key in keys}
    rows = r"(?!.*(tokens|length|steps|norm|scst|generate|world))"  # these limit no rows, or are of the corpus
    rows += r".*(\.max_|_samples|_fraction|samples$|examples$|check_reward|trials\.(train|validation))"
    found = {key for key in preset_values(content) if re.match(rows, key)} - {
        "ce.warmup_fraction",
        "qa.warmup_fraction",
    }
    assert found <= lifted | OF_PROTOCOLS
    if preset == "smoke":
        assert found == lifted


def test_a_file_of_the_user_is_evaluated_with_the_numbers_of_no_preset(
    files: tuple[Path, list[QAExample], list[QAExample]],
) -> None:
    plain = composed("pipeline", files[0])
    for preset in ("smoke", "quickstart"):
        settings = composed("pipeline", files[0], f"preset={preset}")
        for key in {key for keys in LIMITS.values() for key in keys}:
            assert value(settings, key) == value(plain, key), key
    assert compose("augment", ["preset=smoke", "questions=q.jsonl"]).augment.num_samples == 90_000


def test_each_file_is_a_matter_of_its_own(files: tuple[Path, list[QAExample], list[QAExample]]) -> None:
    folder, train, dev = files
    validated = load_splits(compose("train", ["preset=smoke", f"data.validation={folder}/dev.json"]).data)
    assert ids(validated.validation) == ids(dev)
    assert len(validated.gold) + len(validated.unlabelled) == 32
    divided = compose("train-kpqa", ["preset=quickstart", f"data.train={folder}/train.json"]).data
    parts = load_splits(divided, development=0.1)
    assert sorted(ids([*parts.gold, *parts.validation])) == sorted(ids(train))
    of_hub = compose("train", ["preset=smoke", "data=squad"]).data
    assert (of_hub.max_train, of_hub.max_validation, of_hub.labelled_fraction) == (None, None, 1.0)


@pytest.mark.parametrize("given", [[], ["data=world"], ["data.train=world", "data.validation=world"]])
def test_the_embedded_corpus_has_the_limits_of_its_preset(given: list[str]) -> None:
    splits = load_splits(compose("train", ["preset=smoke", *given]).data)
    assert len(splits.gold) + len(splits.unlabelled) == 32 and splits.unlabelled
    assert len(splits.validation) == 16


def test_a_limit_of_the_users_own_wins_and_is_said(
    files: tuple[Path, list[QAExample], list[QAExample]], caplog: pytest.LogCaptureFixture
) -> None:
    folder, train, dev = files
    own = ["data.max_train=50", "data.max_validation=10", "data.labelled_fraction=0.5", "evaluation.max_examples=7"]
    settings = composed("pipeline", folder, *own, "preset=smoke")
    with caplog.at_level(logging.INFO):
        splits = load_splits(settings.data)
    known = len(splits.gold)
    assert 0 < known < 50 and len(splits.validation) == 10 and settings.evaluation.max_examples == 7
    assert f"data.max_train=50: 50 of {len(train)} training examples are used" in caplog.messages
    assert f"data.max_validation=10: 10 of {len(dev)} validation examples are used" in caplog.messages
    assert f"data.labelled_fraction=0.5: {known} of 50 training questions are used" in caplog.text


def test_every_sample_of_the_package_names_its_limit() -> None:
    """`take` and `take_passages` say what a limit leaves; a caller gives the name of the key."""
    calls = [
        (path.name, node.lineno, len(node.args) + len(node.keywords))
        for path in (CONFIGS.parent / "rl_qg").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("take", "take_passages", "sample")
    ]
    assert len(calls) >= 15
    assert not [call for call in calls if call[2] < 4]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 32])
def test_generate_asks_about_every_row_and_says_what_it_leaves(
    files: tuple[Path, list[QAExample], list[QAExample]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    limit: int | None,
) -> None:
    folder, train, _ = files
    output = tmp_path / "questions.jsonl"
    arguments = ["preset=smoke", "keep=1", f"model.path={SHIPPED / 'bart'}", f"data.train={folder}/train.json"]
    with caplog.at_level(logging.INFO):
        run_command(
            "generate", [*arguments, f"output={output}", "max_new_tokens=2", f"data.max_train={json.dumps(limit)}"]
        )
    spans = answer_spans(train)
    said = f"data.max_train=32: 32 of {len(train)} training examples are used"
    if limit is None:
        assert len(output.read_text().splitlines()) == len(spans)
        assert "data.max_train=" not in caplog.text
        if len(spans) < len(train):
            assert f"{len(spans)} distinct answers in {len(train)} examples" in caplog.text
    else:
        assert len(output.read_text().splitlines()) <= 32 and said in caplog.messages


def test_a_key_that_the_command_does_not_read_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = {"question": "Who?", "context": "Ada wrote.", "answer": "Ada", "references": ["Who wrote?"]}
    source = write_lines(tmp_path / "q.jsonl", [row])
    arguments = ["reward=bleu1", f"questions={source}", f"output={tmp_path / 's.jsonl'}", "batch_size=2"]
    run_command("score", arguments)
    assert "no effect" not in caplog.text
    run_command("score", [*arguments, "ce.epochs=3", "preset=smoke", "--seed", "1", "reward_models.bert=x"])
    assert "ce.epochs, seed has no effect in rl-qg score" in caplog.text
