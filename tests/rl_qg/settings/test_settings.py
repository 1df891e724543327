"""The declaration of settings: comments, defaults, limits, and the YAML made from them."""

import math
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from transformers import HfArgumentParser

from rl_qg import SelfCriticalConfig
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.runtime.errors import InputError
from rl_qg.settings import QASettings, SCSTSettings, SelfCriticalOptions, ServeSettings, Settings, describe
from rl_qg.settings.keys import Section


def keys(section: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a section and of the sections in it."""
    for item in fields(section):
        yield f"{name}{item.name}", item
        if is_dataclass(value := getattr(section, item.name)):
            yield from keys(value, f"{name}{item.name}.")


def leaves(values: dict[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        yield from leaves(value, f"{name}{key}.") if isinstance(value, dict) else [(f"{name}{key}", value)]


def test_every_key_has_a_comment_of_one_line_that_names_its_choices() -> None:
    for name, item in keys(Settings()):
        comment = item.metadata["help"]
        assert comment and "\n" not in comment, name
        choices = (choice or "null" for choice in item.metadata.get("choices", ()))
        assert all(choice in comment for choice in choices), name


def test_the_commented_yaml_holds_the_defaults() -> None:
    plain = asdict(Settings())
    assert OmegaConf.to_container(OmegaConf.create(describe())) == plain
    assert list(plain) == list(yaml.safe_load(describe()))
    assert max(map(len, describe().splitlines())) < 120


def test_one_section_of_the_yaml() -> None:
    lines = describe("generate").splitlines()
    assert lines[0].startswith("generate:") and all(line.startswith("  ") for line in lines[1:])
    assert len([line for line in lines if not line.strip().startswith("#")]) == 1 + len(fields(Settings().generate))
    assert any(line.split("#")[0].strip() == 'precision: "no"' for line in lines)
    assert describe("seed").split("#")[0].strip() == "seed: 13"
    with pytest.raises(KeyError):
        describe("no_such_section")


@pytest.mark.parametrize("model", ["miniature", "miniature-t5", "miniature-gpt2"])
@pytest.mark.parametrize("command", ["train", "qa", "retrieve", "train-answers", "train-kpqa", "train-sentences"])
def test_a_miniature_generator_comes_with_miniatures_for_every_other_model(command: str, model: str) -> None:
    settings = compose(command, [f"model={model}"])
    paths = [value for name, value in leaves(asdict(settings)) if name.endswith("model.path")]
    paths += settings.reward_models.values()
    assert [path for path in paths if path and not path.startswith("miniature:")] == []


def test_objects_do_not_share_their_defaults() -> None:
    first, second = Settings(), Settings()
    first.reward_models["bert"], first.data.train = "x", "y"
    first.qa.seeds.append(9)
    assert second == Settings() and second.qa.seeds == QASettings().seeds == [0, 1, 2]


def test_trainer_and_settings_have_the_same_options_and_defaults(tmp_path: Path) -> None:
    arguments = SelfCriticalConfig(output_dir=str(tmp_path), use_cpu=True, num_samples=2)
    for item in fields(SelfCriticalOptions):
        default = 2 if item.name == "num_samples" else item.default
        assert getattr(arguments, item.name) == default
        assert getattr(SCSTSettings(), item.name) == item.default
    assert [item.name for item in fields(SCSTSettings)][:3] == ["epochs", "learning_rate", "warmup_fraction"]


def test_the_argument_parser_of_transformers_reads_the_trainers_options(tmp_path: Path) -> None:
    parser = HfArgumentParser(SelfCriticalConfig)
    given = ["--output_dir", str(tmp_path), "--use_cpu", "true", "--baseline", "mean", "--clip_advantage", "1.5"]
    (arguments,) = parser.parse_args_into_dataclasses(given)
    assert (arguments.baseline, arguments.clip_advantage, arguments.num_samples) == ("mean", 1.5, 4)
    assert "factor on the advantage, with normalise_advantage=none" in " ".join(parser.format_help().split())
    with pytest.raises(SystemExit):
        parser.parse_args_into_dataclasses([*given, "--schedule", "steps"])


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("generate", {"engine": "magic"}, "generate.engine=magic is not one of own, library"),
        ("peft", {"method": "ia3"}, "peft.method=ia3 is not one of none, lora"),
        ("training", {"precision": "tf32"}, "training.precision=tf32 is not one of no, bf16, fp16"),
        ("training", {"reward_placement": True}, "training.reward_placement=True is not device, cpu, or a fraction"),
        ("training", {"rate_factors": {"a": {"b": 1}}}, "training.rate_factors={'b': 1} is not a finite number"),
        ("data", {"labelled_fraction": 1.5}, "data.labelled_fraction=1.5 is not in (0, 1]"),
        ("qa", {"doc_stride": 384}, "qa.doc_stride=384 must be below max_length=384"),
        ("qa", {"seeds": []}, "qa.seeds is empty: name at least one seed, such as qa.seeds=[0]"),
        ("train_answers", {"doc_stride": -1}, "train_answers.doc_stride=-1 must be below max_length=384"),
        ("train_kpqa", {"max_length": 7}, "train_kpqa.max_length=7 must be at least 8"),
        ("evaluate", {"lengths": [8, 8]}, "evaluate.lengths=[8, 8] must rise, from 1 on"),
        ("robustness", {"batch_size": 0}, "robustness.batch_size=0 must be at least 1"),
        ("correlate", {"folds": 1}, "correlate.folds=1 must be at least 2"),
        (
            "answers",
            {"extractor": "RUN"},
            "answers.extractor=RUN has no effect with method=rules: add method=extractor",
        ),
        ("answers", {"method": "spacy", "min_probability": 0.2}, "answers.min_probability=0.2 has no effect with"),
        ("answers", {"method": "spacy", "language": "de"}, "answers.language=de has no effect with method=spacy"),
        ("answers", {"max_per_context": 0}, "answers.max_per_context=0 must be at least 1"),
        ("augment", {"num_samples": -1}, "augment.num_samples=-1 must be at least 0"),
        (
            "augment",
            {"sample_by": "x"},
            "augment.sample_by=x has no effect with sampling=uniform: add",
        ),
        (
            "augment",
            {"sampling": "reward", "sample_relevance": 0.1},
            "augment.sample_relevance=0.1 has no effect with sampling=reward: add sampling=diverse",
        ),
        (
            "export",
            {"format": "anki", "score": "x"},
            "export.score=x has no effect with format=anki: add format=",
        ),
        ("scst", {"num_samples": 1, "baseline": "mean"}, "scst.num_samples=1: baseline=mean needs at least 2"),
        ("scst", {"clip_advantage": 0.0}, "scst.clip_advantage=0.0 must be above 0"),
        ("scst", {"lambda_max": 1.5, "ce_weight": "rest"}, "scst.lambda_max=1.5 must not be above 1 with"),
        ("scst", {"kl_target": 0.1}, "scst.kl_target=0.1: kl_coefficient, from which it starts"),
        ("scst", {"min_new_tokens": 65}, "scst.min_new_tokens=65 is above max_new_tokens=64"),
        ("ce", {"learning_rate": -1.0}, "ce.learning_rate=-1.0 must be at least 1e-12"),
        ("qa", {"learning_rate": 1e-300}, "qa.learning_rate=1e-300 must be at least 1e-12"),
        ("ce", {"label_smoothing": 1.0}, "ce.label_smoothing=1.0 is not in [0, 0.99]"),
        ("scst", {"reward_scale": -1.0}, "scst.reward_scale=-1.0 must be above 0"),
        ("ce", {"epochs": 1e300}, "ce.epochs=1e+300 is not in [0, 2147483647]"),
        (
            "scst",
            {"epochs": 0.0},
            "scst.epochs=0 leaves stages=both without an update in its last stage: raise it, or",
        ),
        ("ce", {"epochs": math.nan}, "ce.epochs=nan is not a finite number"),
        ("training", {"save_steps": -1}, "training.save_steps=-1 must be at least 1"),
        ("model", {"max_source_length": 1}, "model.max_source_length=1 must be at least 16"),
        ("qa", {"seeds": [0, -1]}, "qa.seeds=-1 is not in [0, 4294967295]"),
        ("qa", {"max_steps": 0}, "qa.max_steps=0 must be at least 1, or -1"),
        ("scst", {"top_k": -1}, "scst.top_k=-1 must be at least 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_section(section: str, values: dict[str, Any], message: str) -> None:
    settings = Settings()
    setattr(settings, section, replace(getattr(settings, section), **values))
    with pytest.raises(InputError) as error:
        settings.check()
    assert str(error.value).startswith(f"settings: {message}")
    assert ";" not in str(error.value)


def test_an_origin_has_no_path() -> None:
    """A browser sends `Origin: https://a.example`, which `https://a.example/` never equals."""
    assert [*ServeSettings(origins=["*", "https://a.example", "http://localhost:8000"]).faults()] == []
    for wrong in ("https://a.example/", "https://a.example/page", "https://", "a.example"):
        (fault,) = ServeSettings(origins=["https://a.example", wrong]).faults()
        assert fault == f"origins: {wrong} is no origin; write it as https://example.org"


@pytest.mark.parametrize("algorithm", ["scst", "best_of_n", "rloo", "grpo"])
def test_a_command_whose_last_stage_would_make_no_update_is_refused(tmp_path: Path, algorithm: str) -> None:
    given = [f"algorithm={algorithm}", "scst.epochs=0", f"output_dir={tmp_path / 'run'}", "preset=quickstart"]
    with pytest.raises(InputError, match=r"scst\.epochs=0 leaves stages=\w+ without an update in its last stage"):
        run_command("train", given)
    assert not (tmp_path / "run").exists()


def test_cross_entropy_alone_has_updates() -> None:
    with pytest.raises(InputError, match=r"^settings: ce\.epochs=0 leaves stages=ce without an update .*: raise it$"):
        Settings(stages="ce", ce=replace(Settings().ce, epochs=0)).check()


def test_no_count_is_above_what_a_run_could_reach() -> None:
    """Numbers of passes and of updates, whose product is the length of a training."""
    sections = [value for value in vars(Settings()).values() if isinstance(value, Section)]
    for section in (*sections, Settings().qa_evaluate.trials):
        for name in ("epochs", "max_steps", "batch_sizes") if hasattr(section, "epochs") else ():
            if hasattr(section, name):
                huge = 10**300 if name == "max_steps" else 1e300
                changed = replace(section, **{name: [10**300] if isinstance(getattr(section, name), list) else huge})
                assert any(fault.startswith(f"{name}=") for fault in changed.faults()), (section, name)


# Any value is valid, or the section checks it together with another key.
WITHOUT_LIMITS = {"max_steps", "doc_stride", "num_samples", "keep"}


def test_every_number_has_limits_and_refuses_what_is_no_number() -> None:
    checked = 0
    for section in (Settings(), *(value for value in vars(Settings()).values() if isinstance(value, Section))):
        for item in fields(section):
            if item.name in WITHOUT_LIMITS or "bool" in str(item.type) or not is_number(item.type):
                continue
            for wrong in (math.nan, -math.inf):
                changed = replace(section, **{item.name: wrong})
                assert any(fault.startswith(f"{item.name}=") for fault in changed.faults()), (section, item.name)
            checked += 1
    assert checked > 80


def is_number(kind: Any) -> bool:
    return kind in (int, float, int | None, float | None, "int", "float", "int | None", "float | None")


def test_all_faults_of_all_sections_are_in_one_error() -> None:
    settings = Settings(stages="all")
    settings.scst.patience, settings.generate.top_p, settings.qa.seeds = 0, 2.0, []
    with pytest.raises(InputError) as error:
        settings.check()
    parts = str(error.value).removeprefix("settings: ").split("; ")
    assert [part.split("=")[0].split(" ")[0] for part in parts] == [
        "stages",
        "scst.patience",
        "generate.top_p",
        "qa.seeds",
    ]
