"""Training goes on with a published generator in its format."""

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rl_qg.data.splits import Splits
from rl_qg.generation.prompts import Prompt
from rl_qg.runtime.errors import InputError
from rl_qg.settings import ModelSettings, SCSTSettings, Settings, TrainingSettings
from rl_qg.training.config import prompt_of, with_format
from rl_qg.training.stages import train
from tests.published_models import published
from tests.rl_qg.training.word_task import WordReward, data


def settings_of(path: str, **model: object) -> Settings:
    return Settings(model=ModelSettings(path=path, **model))


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("lmqg/t5-base-squad-qag", Prompt(max_target_length=256, task="pairs", format="lmqg-qag")),
        ("research-backup/t5-base-squad-qg-no-answer", Prompt(input="paragraph_sentence", format="lmqg-no-answer")),
        ("valhalla/t5-base-qa-qg-hl", Prompt(task="multitask", format="valhalla-qa-qg-hl")),
        (
            "valhalla/t5-base-e2e-qg",
            Prompt(
                max_target_length=256, task="sets", granularity="paragraph", mode="one2many", format="valhalla-e2e-qg"
            ),
        ),
        ("someone/mine", Prompt()),
    ],
)
def test_the_settings_take_what_the_model_was_trained_with(name: str, prompt: Prompt, tmp_path: Path) -> None:
    settings = with_format(settings_of(published(tmp_path, name)))
    settings.check()
    assert prompt_of(settings) == prompt
    assert settings.scst.max_new_tokens == max(64, prompt.max_target_length)
    assert with_format(settings) == settings  # a run that is continued


def test_keys_of_the_user_stay(tmp_path: Path) -> None:
    path = published(tmp_path, "lmqg/t5-base-squad-qag")
    shorter = replace(settings_of(path), scst=SCSTSettings(max_new_tokens=32))
    assert with_format(shorter).scst.max_new_tokens == 32
    assert with_format(settings_of(path, prefix="ask: ", max_target_length=99)).model.prefix == "ask: "
    assert with_format(settings_of(path, max_target_length=99)).model.max_target_length == 99
    for model in ({"task": "multitask"}, {"format": "rl-qg"}):
        assert with_format(settings_of(path, **model)) == settings_of(path, **model)
        assert prompt_of(with_format(settings_of(path, **model))).format == ""


def test_a_run_goes_on_in_the_format_of_its_model(tmp_path: Path) -> None:
    path = published(tmp_path, "someone/mine")
    Prompt(prefix="", task="questions", format="mrm8488-ap").save(Path(path))
    settings = with_format(settings_of(path))
    assert (settings.model.format, settings.model.prefix) == ("mrm8488-ap", "")


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    path = published(tmp_path, "valhalla/t5-base-e2e-qg")
    with pytest.raises(InputError, match=r"is not for this model, model.task or model.input"):
        with_format(settings_of(path, format="lmqg-qag", task="answers"))
    with pytest.raises(InputError, match=r"model.format=x is not one of rl-qg"):
        with_format(settings_of(path, format="x"))
    plain = settings_of(path)
    with pytest.raises(InputError, match=r"scst\.credit=marginal: format valhalla-e2e-qg needs scst.credit=whole"):
        with_format(replace(plain, scst=replace(plain.scst, credit="marginal")))


@pytest.mark.parametrize(
    "name", ["lmqg/t5-base-squad-qg", "valhalla/t5-base-qg-hl", "mrm8488/t5-base-finetuned-question-generation-ap"]
)
def test_self_critical_training_goes_on_from_it(name: str, tmp_path: Path) -> None:
    path = published(tmp_path, name)
    options = TrainingSettings(
        batch_size=2, logging_steps=1, eval_samples=2, save_steps=9, use_cpu=True, report_to="none"
    )
    settings = with_format(
        replace(
            settings_of(path, max_source_length=64, max_target_length=8),
            stages="scst",
            output_dir=str(tmp_path / "run"),
            training=options,
            scst=SCSTSettings(epochs=1, learning_rate=1e-2, max_new_tokens=6),
        )
    )
    train(settings, Splits(data(4), [], data(2)), WordReward())
    folder = tmp_path / "run" / "scst"
    stored = Prompt.stored(str(folder))
    assert stored is not None and stored.format == prompt_of(settings).format != ""
    before, after = (load_file(Path(one, "model.safetensors")) for one in (path, folder))
    assert any(not value.equal(before[key]) for key, value in after.items() if value.shape == before[key].shape)
