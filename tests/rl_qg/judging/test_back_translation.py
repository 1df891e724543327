"""Back-translation by two tiny Marian models with random weights."""

from pathlib import Path
from typing import Any

import pytest
from transformers import MarianMTModel

from rl_qg.judging import paraphrases as back_translation
from rl_qg.judging.paraphrases import Pivot, back_translate, pivots, seq2seq
from rl_qg.runtime.errors import InputError
from tests.tiny_models import save, tiny, word_tokenizer

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
    return back_translate(QUESTIONS, between, each, folder, seed=seed, use_cpu=True)


def test_a_question_goes_through_the_first_model_then_the_second(tmp_path: Path, models: list[str]) -> None:
    (pivot,) = pivots([{"to": models[0], "back": models[1], "prefix": "what "}])
    to, back = (seq2seq(model, "test", use_cpu=True) for model in models[:2])
    expected = [[(back(to([f"what {question}"]))[0], pivot.name)] for question in QUESTIONS]
    made = translate(tmp_path, [pivot])
    assert made == expected
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
    french, chinese = pivots(["fr", "zh"])
    assert french == Pivot("fr", "Helsinki-NLP/opus-mt-en-fr", "Helsinki-NLP/opus-mt-fr-en")
    assert chinese.prefix == ">>cmn_Hans<< "
    for wrong in ([{"to": "a"}], [{"to": "a", "back": "b", "other": "c"}], [3], 3, True, 2.5):
        with pytest.raises(InputError, match=r"back_translation\[0\]: .* is none of fr, de, zh, es, ru, and no pair"):
            pivots(wrong)


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"back_translation=.*no_such: cannot be loaded") as error:
        translate(tmp_path, [Pivot("one", str(tmp_path / "no_such"), "x")])
    assert "\n" not in str(error.value)
