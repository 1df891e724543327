"""Back-translation by two tiny Marian models with random weights."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import MarianMTModel

from experiments.robustness import back_translation
from experiments.robustness.back_translation import BackTranslation, Pivot
from rl_qg.commands.cli import run_command
from rl_qg.judging.paraphrases import seq2seq
from rl_qg.runtime.errors import InputError
from tests.tiny_models import save, tiny, word_tokenizer
from tests.toy_metrics import write_lines

QUESTIONS = ["who wrote it ?", "who ?", "it ?", "what did who write ?"]


def marian(folder: Path, seed: int) -> str:
    tokenizer = word_tokenizer("who wrote it ? what did write")
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    special |= {"decoder_start_token_id": tokenizer.pad_token_id, "forced_eos_token_id": None}
    model = tiny(MarianMTModel, len(tokenizer), seed=seed, positions=128, **special)
    return save(folder, tokenizer, model)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("marian")
    return [marian(folder / str(seed), seed) for seed in range(3)]


def translate(
    folder: Path, between: list[Pivot], each: int | None = None, seed: int = 0
) -> list[list[tuple[str, str]]]:
    by = BackTranslation(each=each)
    by.pivots, by.each = between, each or len(between)
    return by.paraphrases(QUESTIONS, folder, seed=seed, use_cpu=True)


def test_a_question_goes_through_the_first_model_then_the_second(tmp_path: Path, models: list[str]) -> None:
    by = BackTranslation([{"to": models[0], "back": models[1], "prefix": "what "}])
    to, back = (seq2seq(model, "test", use_cpu=True) for model in models[:2])
    expected = [[(back(to([f"what {question}"]))[0], by.pivots[0].name)] for question in QUESTIONS]
    made = by.paraphrases(QUESTIONS, tmp_path, seed=0, use_cpu=True)
    assert made == expected and by.made_by == f"back-translation by {models[0]} and {models[1]}"
    assert any(made[0][0][0] != text for text in (to([QUESTIONS[0]])[0], back([QUESTIONS[0]])[0]))


def test_languages_are_drawn_by_the_seed_or_all_used(tmp_path: Path, models: list[str]) -> None:
    between = [Pivot("one", models[0], models[1]), Pivot("two", models[1], models[2])]
    both = translate(tmp_path / "both", between)
    assert [[name for _, name in row] for row in both] == [["one", "two"]] * 4
    one = translate(tmp_path / "one", between, each=1)
    assert all(len(row) == 1 and row[0] in own for row, own in zip(one, both, strict=True))
    assert one == translate(tmp_path / "again", between, each=1)
    drawn = {tuple(row[0][1] for row in translate(tmp_path / str(seed), between, 1, seed)) for seed in range(4)}
    assert len(drawn) > 1


def test_translations_are_kept(tmp_path: Path, models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    between = [Pivot("one", models[0], models[1])]
    made = translate(tmp_path, between)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(back_translation, "seq2seq", refuse)
    assert translate(tmp_path, between) == made
    with pytest.raises(AssertionError, match="a model was loaded"):
        translate(tmp_path, [Pivot("one", models[0], models[2])])
    monkeypatch.setattr(back_translation, "folder_hash", lambda folder: "other weights")
    with pytest.raises(AssertionError, match="a model was loaded"):
        translate(tmp_path, between)


def test_languages_by_name() -> None:
    french, chinese = BackTranslation(["fr", "zh"]).pivots
    assert french == Pivot("fr", "Helsinki-NLP/opus-mt-en-fr", "Helsinki-NLP/opus-mt-fr-en")
    assert chinese.prefix == ">>cmn_Hans<< " and len(BackTranslation().pivots) == 5
    for wrong in ([{"to": "a"}], [{"to": "a", "back": "b", "other": "c"}], ["it"], [3], 3, True, 2.5):
        with pytest.raises(InputError, match=r"languages\[0\]: .* is none of fr, de, zh, es, ru, and no pair"):
            BackTranslation(wrong)
    with pytest.raises(InputError, match="the same language or pair of models twice"):
        BackTranslation(["fr", "fr"])
    with pytest.raises(InputError, match="each=0: give at least 1"):
        BackTranslation(each=0)


def test_the_command_loads_it_by_its_path(tmp_path: Path, models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)
    names = ("Ada", "Carl", "Ilva")
    rows = [{"question": f"How many people saw {name}?", "context": f"They saw {name} in Lorn."} for name in names]
    pair = f"{{to: {models[0]}, back: {models[1]}}}"
    by = "experiments.robustness.back_translation.BackTranslation"
    arguments = [f"input={write_lines(tmp_path / 'in.jsonl', rows)}", "metrics=[rouge_l]", f"output={tmp_path}/out"]
    arguments += [f"paraphraser={{_target_: {by}, languages: [{pair}]}}", "kinds=[negation]", "training.use_cpu=true"]
    run_command("robustness", [*arguments, "resamples=40", "spacy_model=''"])
    record = json.loads((tmp_path / "out" / "robustness.json").read_text())
    assert record["counts"]["paraphrases"] == f"back-translation by {models[0]} and {models[1]}"
    assert record["counts"]["paraphrase"]["made"] == 3 and list((tmp_path / "out" / "translations").iterdir())


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"robustness.paraphraser=.*no_such: cannot be loaded") as error:
        translate(tmp_path, [Pivot("one", str(tmp_path / "no_such"), "x")])
    assert "\n" not in str(error.value)
