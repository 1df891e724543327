"""The generator that ships as a difference: how differences are stored and added."""

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from experiments.quickstart.build_generator import difference
from rl_qg.generation.prompts import Prompt, add_highlight
from rl_qg.miniatures.cache import QUESTIONS, add_difference, generator_folder
from rl_qg.runtime.errors import InputError
from tests.tiny_models import tiny_bart, word_tokenizer

WORDS = "a b c d e f g h"


def pair() -> tuple:
    """A base, and another model with two more rows of embeddings."""
    tokenizer = word_tokenizer(WORDS + " <hl>")
    base, trained = (tiny_bart(len(tokenizer), seed=seed) for seed in (1, 2))
    add_highlight(tokenizer, trained, "pairs")
    return base, trained, tokenizer


def test_a_difference_of_full_rank_gives_the_trained_model() -> None:
    base, trained, tokenizer = pair()
    parts = difference(base, trained, rank=16)
    assert {part.dtype for part in parts.values()} == {torch.float16}
    add_highlight(tokenizer, base, "pairs")
    add_difference(base, parts)
    for (name, weight), other in zip(base.named_parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(weight, other, atol=2e-3, rtol=2e-3, msg=name)


def test_a_difference_of_low_rank_is_the_best_of_that_rank() -> None:
    """The squared error is the sum of the other squared singular values (Eckart and Young)."""
    base, trained, _ = pair()
    name = "model.encoder.layers.0.fc1.weight"
    change = trained.state_dict()[name] - base.state_dict()[name]
    parts = difference(base, trained, rank=3)
    left, right = parts[f"{name}.left"].float(), parts[f"{name}.right"].float()
    assert left.shape[1] == right.shape[0] == 3
    expected = (torch.linalg.svdvals(change)[3:] ** 2).sum()
    torch.testing.assert_close(((change - left @ right) ** 2).sum(), expected, atol=1e-2, rtol=1e-2)


def test_the_folder_is_made_once_and_other_paths_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert generator_folder("some/model", str(tmp_path)) == "some/model"
    folder = Path(generator_folder(QUESTIONS, str(tmp_path)))
    assert folder.parent == tmp_path and (folder / "prompt.json").exists()
    from rl_qg.generation.loading import load_seq2seq

    assert Prompt.of(folder, *load_seq2seq(str(folder))).task == "multitask"
    monkeypatch.setattr("rl_qg.miniatures.cache._write", None)
    assert generator_folder(QUESTIONS, str(tmp_path)) == str(folder)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"miniature:questions: .*file/cache cannot be written \(Not a directory\)"):
        generator_folder(QUESTIONS, str(tmp_path / "file/cache"))

    def full(_: Path) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("rl_qg.miniatures.cache._write", full)
    with pytest.raises(InputError, match=r"cannot be written \(I/O error: No space left on device\); set HOME"):
        generator_folder(QUESTIONS, str(tmp_path / "cache"))
    assert not [*(tmp_path / "cache").iterdir()]
