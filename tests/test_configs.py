"""Every YAML composes, and a wrong key or value is one clear line."""

import importlib
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from accelerate import PartialState

from rewards.combine import Part
from rl_qg.commands.catalogue import COMMANDS, GROUPS, HELP_GROUPS, RAW, command_help, overview, section_of
from rl_qg.commands.cli import LOGGERS_OF_EACH_PROCESS, words_of
from rl_qg.commands.compose import compose, full_overrides, resolved_yaml
from rl_qg.commands.studies import shipped_searches
from rl_qg.miniatures.in_settings import with_miniatures
from rl_qg.runtime.errors import InputError
from rl_qg.settings import Settings
from rl_qg.settings.yaml_files import CONFIGS, PART, choices

CHOICES = [(group, choice) for group in GROUPS for choice in choices(group)]


@pytest.mark.parametrize(("group", "choice"), CHOICES, ids=lambda value: value)
def test_every_choice_composes(group: str, choice: str) -> None:
    open_ends = {
        "custom": [f"{group}._target_=a.B"],
        "weighted": ["reward.parts={qrelscore:{}}"],
        "product": ["reward.parts={qrelscore:{}}"],
        "files": ["data.train=a.json"],
        "strict": ["augment.filters.round_trip.reader=a"],
        "kpqa": ["reward.model=a"],
        "retrievability": ["reward.passages=a"],
        "judge": ["reward.model=a"],
    }
    settings = compose("pipeline", [f"{group}={choice}", *open_ends.get(choice, [])])
    assert isinstance(settings, Settings)
    assert settings.reward["_target_"]


def test_every_yaml_is_reached_by_a_test() -> None:
    tested = {CONFIGS / group / f"{choice}.yaml" for group, choice in CHOICES}
    launch = set((CONFIGS / "accelerate").glob("*.yaml"))
    searches = set(shipped_searches().values())  # tests/rl_qg/studies/test_search_file.py
    protocols = set((CONFIGS / "protocol").glob("*.yaml"))  # tests/rl_qg/rating/test_protocol.py
    assert set(CONFIGS.rglob("*.yaml")) == tested | launch | searches | protocols
    for path in launch:
        assert yaml.safe_load(path.read_text())["num_processes"] >= 1
        head = [line for line in path.read_text().splitlines() if line.startswith("# accelerate launch")]
        assert head, f"{path}: its head must have the exact command"


def test_the_default_groups_change_nothing_but_data_model_reward_and_filters() -> None:
    composed, declared = compose("train", []), Settings()
    declared.data.train = declared.data.validation = "rajpurkar/squad"
    declared.model.path = "facebook/bart-base"
    composed.reward, composed.augment.filters = {}, {}
    assert composed.scst.normalise_advantage == "none"  # of preset=paper
    declared.scst.normalise_advantage = "none"
    assert composed == declared


def test_the_research_default_is_the_papers_setting() -> None:
    settings = compose("train", ["reward=qrelscore"])
    assert settings.model.path == "facebook/bart-base"
    assert settings.data.train == settings.data.validation == "rajpurkar/squad"
    assert settings.reward["encoder"] == "bert-base-cased"
    assert settings.reward["decoder"] == "gpt2"
    assert (settings.generate.num_beams, settings.augment.num_samples) == (8, 90_000)
    assert settings.augment.filters == {
        "length": {"min_words": 6, "max_words": 30},
        "answer_in_question": {},
    }
    distinct = {**settings.augment.filters, "gold_duplicates": {}, "duplicates": {}}
    for options in (["filters=distinct"], ["preset=quickstart"]):
        assert compose("pipeline", options).augment.filters == distinct
    assert settings.qa.model.path == "distilbert-base-uncased"
    assert compose("train", ["model=t5-base"]).model.path == "google-t5/t5-base"


def test_settings_of_a_preset_for_the_embedded_corpus_do_not_apply_to_the_users_files() -> None:
    files = compose("pipeline", ["preset=quickstart", "data.train=a.json", "data.validation=b.json"])
    assert (files.data.train, files.data.validation) == ("a.json", "b.json")
    assert files.model.path == "miniature:bart"
    assert full_overrides("train", ["data.train=a", "data=world"])[0] == ("data.train", "a")


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ([], "none"),  # preset=paper
        (["preset=quickstart"], "group"),
        (["preset=quickstart", "scst.normalise_advantage=true"], "batch"),  # as it was written before
        (["preset=quickstart", "scst.normalise_advantage=false"], "none"),
        (["scst.normalise_advantage=running"], "running"),
    ],
)
def test_steps_are_of_equal_size_unless_the_preset_is_that_of_the_paper(given: list[str], chosen: str) -> None:
    assert compose("train", given).scst.normalise_advantage == chosen


def test_the_command_line_wins_over_a_preset() -> None:
    settings = compose("pipeline", ["preset=quickstart", "model=t5-base", "ce.epochs=3", "qa.model.path=x"])
    assert settings.model.path == "google-t5/t5-base"
    assert settings.ce.epochs == 3
    assert settings.qa.model.path == "x"


def test_miniatures_reach_the_rewards_and_the_reader() -> None:
    for reward, keys in {"qrelscore": ("encoder", "decoder"), "qascore": ("model",), "bartscore": ("model",)}.items():
        settings = compose("pipeline", ["model=miniature", f"reward={reward}"])
        paths = [settings.model.path, settings.qa.model.path, *(settings.reward[key] for key in keys)]
        assert all(path.startswith("miniature:") for path in paths)


@pytest.mark.slow
def test_the_parts_of_a_combined_reward_have_the_defaults_of_their_own_files() -> None:
    inner = "{metric:product,parts:{bartscore:{direction:f}}}"
    parts = (
        f"{{qrelscore:{{weight:0.7,variant:paper}},qa:{{metric:qascore,clip:[-20,0]}},my.R:{{depth:2}},all:{inner}}}"
    )
    settings = compose("pipeline", ["model=miniature", "reward=weighted", f"reward.parts={parts}"])
    completed = settings.reward["parts"]
    for label, name in {"qrelscore": "qrelscore", "qa": "qascore"}.items():
        alone = compose("pipeline", ["model=miniature", f"reward={name}"]).reward
        given = {"weight": 0.7, "variant": "paper"} if label == "qrelscore" else {"clip": [-20, 0]}
        target = alone.pop("_target_")
        assert completed[label] == {**alone, **PART, "metric": target, **given}
    assert completed["my.R"] == {"metric": "my.R", "weight": 1.0, "clip": None, "scale": 1.0, "depth": 2}
    bartscore = completed["all"]["parts"]["bartscore"]
    assert (bartscore["model"], bartscore["direction"]) == ("miniature:bart", "f")
    custom = compose("train", ["reward._target_=a.B", "+reward.parts={qascore:{x:1}}"]).reward
    assert custom == {"_target_": "a.B", "parts": {"qascore": {"x": 1}}}  # a custom reward's parts stay as they are


def test_a_wrong_key_of_a_part_is_one_clear_line() -> None:
    for parts in ("{qascore:{wieght:1}}", "{both:{metric:product,parts:{qascore:{wieght:1}}}}"):
        with pytest.raises(InputError, match=r"part 'qascore' has no key 'wieght'; it has model, .*weight"):
            compose("train", ["reward=weighted", f"reward.parts={parts}"])


def test_the_keys_of_a_part_are_the_fields_of_the_class() -> None:
    declared = {field.name: field.default for field in fields(Part)}
    assert {**declared, "metric": None, "clip": None} == PART


def test_miniatures_are_found_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    def ensure(paths: list[str], text: object, sizes: object) -> dict[str, Path]:
        return {path: Path("/cache", path.removeprefix("miniature:")) for path in paths}

    monkeypatch.setattr("rl_qg.miniatures.cache.ensure_miniatures", ensure)
    parts = "{qrelscore:{},both:{metric:product,parts:{qascore:{clip:[-20,0]}}}}"
    settings = compose("pipeline", ["preset=smoke", "reward=weighted", f"reward.parts={parts}"])
    done = with_miniatures(settings, [], PartialState(cpu=True))
    assert done.reward["parts"]["qrelscore"]["encoder"] == "/cache/bert"
    assert done.reward["parts"]["both"]["parts"]["qascore"]["model"] == "/cache/roberta"
    assert done.reward["parts"]["both"]["parts"]["qascore"]["clip"] == [-20, 0]
    assert (done.model.path, done.qa.model.path) == ("/cache/bart", "/cache/distilbert")
    assert settings.reward["parts"]["qrelscore"]["encoder"] == "miniature:bert"  # left as it was


def test_the_keys_of_a_commands_section_need_no_section_name() -> None:
    assert full_overrides("generate", ["num_beams=4", "model.path=x", "generate.top_p=1", "data=world"]) == [
        ("generate.num_beams", 4),
        ("model.path", "x"),
        ("generate.top_p", 1),
        ("data", "world"),
    ]
    assert full_overrides("qa", ["model.path=x", "qa.seeds=[1]", "model=miniature"]) == [
        ("qa.model.path", "x"),
        ("qa.seeds", [1]),
        ("model", "miniature"),
    ]
    assert full_overrides("train", ["reward._target_=a.B", "+reward.c=1"])[0] == ("reward", "custom")


def test_the_metric_of_a_reward_of_sets_has_the_defaults_of_its_file() -> None:
    sets = ["ask.granularity=paragraph", "reward=question_set"]
    quality = compose("train", [*sets, "reward.quality=qrelscore", "reward_models.bert=a"]).reward["quality"]
    assert (quality["metric"], quality["encoder"]) == ("rewards.QRelScore", "a")
    assert compose("train", sets).reward["quality"] is None
    rescaled = "reward.metric={metric:bertscore,rescale:0.8}"
    metric = compose("train", ["ask.granularity=paragraph", "reward=multi_set", rescaled]).reward["metric"]
    assert (metric["metric"], metric["rescale"], metric["part"]) == ("rewards.BERTScore", 0.8, "f")
    assert compose("train", ["ask.granularity=paragraph", "reward=multi_set"]).reward["metric"] == "rouge_l"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rewrd=qrelscore", "no key or group 'rewrd'"),
        ("ce.epoch=3", "no key or group 'ce.epoch'"),
        ("hydra.run.dir=x", "no key or group 'hydra'"),
        ("peft=1", "peft=1 is not a valid choice; choose one of lora, none"),
        ("reward=[a,b]", r"reward=\[a,b\] is not a valid choice; choose one of "),
        ("+scst.top_p=0.5", r"\+scst\.top_p: there is such a key; leave out the \+"),
        (
            "reward=nope",
            "reward=nope is not a valid choice; "
            "choose one of bartscore, bertscore, cider, custom, faithfulness, form, .*, qascore, qrelscore, "
            "question_set, reader, retrievability, standalone, usability, weighted",
        ),
        ("ce.epochs=many", "ce.epochs=many is not a number"),
        ("stages=all", "stages=all is not one of ce, scst, both"),
        ("data.labelled_fraction=0", "labelled_fraction=0.0 is not in"),
        ("reward=custom", "reward._target_ has no value"),
        ("reward=weighted", "reward.parts has no value"),
        ("just words", "not of the form key=value"),
        ("--flag", "not of the form key=value"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(override: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        compose("train", [override])
    assert re.search(message, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        (["--output", "a=b.jsonl", "--num-beams", "3"], ["output=a=b.jsonl", "num_beams=3"]),
        (["--seed=4", "--data.train", "t.json", "data.validation=v.json"], ["seed=4", "data.train=t.json"]),
        (["--do-sample", "--preset", "smoke", "--top_p", "-1"], ["do_sample=true", "preset=smoke", "top_p=-1"]),
        (["--do-sample=false"], ["do_sample=false"]),
    ],
)
def test_a_key_may_be_written_as_an_option(options: list[str], overrides: list[str]) -> None:
    expected = [*overrides, *(text for text in options if text.startswith("data.validation"))]
    assert full_overrides("generate", options) == full_overrides("generate", expected)


@pytest.mark.parametrize("given", [["--seed"], ["--output", "--seed", "1"], ["--output", ""]])
def test_an_option_without_a_value_is_named(given: list[str]) -> None:
    with pytest.raises(InputError, match=rf"argument '{given[0]}' has no value; give one, such as {given[0][2:]}=…"):
        full_overrides("generate", given)


def test_all_faults_are_named_together() -> None:
    with pytest.raises(InputError, match=r"stages=x .*; generate.num_beams=0"):
        compose("pipeline", ["stages=x", "generate.num_beams=0"])


def test_resolved_settings_compose_to_themselves() -> None:
    shown = yaml.safe_load(resolved_yaml("train", ["preset=smoke"]))
    assert shown["ce"]["epochs"] == 1
    assert "${" not in str(shown)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_groups_and_every_key_of_the_command(command: str) -> None:
    text = command_help(command)
    assert COMMANDS[command].example in text
    for section in COMMANDS[command].sections:
        owner, _, key = section.partition(".")
        assert re.search(rf"^  \"?{owner}\"?:" + (rf"(\n|.)*^    {key}:" if key else ""), text, re.MULTILINE)
    assert ("max_source_length" in text) == (command in ("pipeline", "train"))  # the only readers of whole `model`
    if command == "train":
        assert "qascore, qrelscore" in text
        assert "learning_rate: 5e-5" in text
    assert re.search(rf"^  {command} +{re.escape(COMMANDS[command].purpose)}$", overview(), re.MULTILINE)


@pytest.mark.parametrize("command", [name for name in COMMANDS if COMMANDS[name].common])
def test_the_first_help_has_the_common_keys_alone(command: str) -> None:
    common, text = COMMANDS[command].common, command_help(command, every=False)
    for key in common:
        section, _, inner = key.partition(".")
        assert any(key == part or key.startswith(f"{part}.") for part in COMMANDS[command].sections)
        assert re.search(rf"^  {section}:" + (rf"(\n|.)*^    {inner}:" if inner else ""), text, re.MULTILINE)
    assert f"rl-qg {command} --help all lists all keys." in text
    assert len(text.splitlines()) < 50 and len(text) < len(command_help(command))


@pytest.mark.parametrize(("command", "key"), [("score", "score.input"), ("evaluate", "evaluate.predictions")])
@pytest.mark.parametrize("words", [["questions=a.jsonl"], ["--questions", "a.jsonl"], ["--questions=a.jsonl"]])
def test_the_questions_to_judge_are_questions_in_every_command(command: str, key: str, words: list[str]) -> None:
    assert full_overrides(command, words) == [(key, "a.jsonl")]
    assert "questions: another name of " in command_help(command)
    assert "questions=" in words_of(command)


def test_every_command_stands_in_one_group_of_the_help() -> None:
    assert sorted(name for names in HELP_GROUPS.values() for name in names) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_function(command: str) -> None:
    module = importlib.import_module(f"rl_qg.commands.{COMMANDS[command].module}")
    (parameter,) = inspect.signature(getattr(module, section_of(command))).parameters
    assert parameter == ("arguments" if command in RAW else "settings")


def test_help_and_composing_load_no_torch() -> None:
    code = (
        "import sys; from rl_qg.commands.cli import main, compose;"
        "compose('train', []); sys.argv[1:] = ['train', '--help', 'all']; main(); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "baseline: greedy" in done.stdout


def test_the_logger_names_of_the_command_line_are_modules_that_warn() -> None:
    for name in LOGGERS_OF_EACH_PROCESS:
        module = importlib.import_module(name)
        assert module.log.name == name
        assert "log.warning(" in inspect.getsource(module), name
