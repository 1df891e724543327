"""Generators of real text that come with the package: their weights of 8 bits, and where they are unpacked."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import save_file

from rl_qg.asking.models import PACKAGED_SCORE, check_text, chosen_reader, least_score, reader_path
from rl_qg.asking.pairs import AskRequest
from rl_qg.generation.loading import load_generator
from rl_qg.miniatures import packaged
from rl_qg.miniatures.packaged import ENGLISH, PACKED, packaged_folder, restored
from rl_qg.runtime.errors import InputError
from tests.tiny_models import save, tiny_bart, word_tokenizer

SCRIPTS = str(Path(__file__).parents[3] / "experiments" / "real-generator")
sys.path.insert(0, SCRIPTS)

from pack import packed  # noqa: E402

sys.path.remove(SCRIPTS)

VALUES = st.floats(-1e4, 1e4, width=32)


SHAPES = st.tuples(st.integers(1, 4), st.one_of(st.integers(1, 5), st.sampled_from([32, 64, 96])))


@given(arrays.arrays("float32", SHAPES, elements=VALUES))
def test_what_is_restored_is_within_half_a_scale(values) -> None:
    weight = torch.from_numpy(values)
    parts = packed({"matrix": weight, "vector": weight[0]})
    assert parts["matrix"].dtype == torch.int8 and parts["matrix"].shape == weight.shape
    back = restored(parts)
    assert back.keys() == {"matrix", "vector"} and torch.equal(back["vector"], weight[0])
    width = 32 if weight.shape[1] % 32 == 0 else weight.shape[1]
    for first in range(0, weight.shape[1], width):
        given, got = weight[:, first : first + width], back["matrix"][:, first : first + width]
        scale = given.abs().amax(1, keepdim=True) / 127 * (1 + 2**-9) + 2**-23  # float16 rounds it up
        assert ((got - given).abs() <= scale * 0.5001).all()


def test_scales_of_whole_rows_are_read() -> None:
    parts = {"m": torch.tensor([[127, -64, 1], [0, 2, -127]], dtype=torch.int8), "m.scale": torch.tensor([0.5, 2.0])}
    assert restored(parts)["m"].tolist() == [[63.5, -32.0, 0.5], [0.0, 4.0, -254.0]]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a tiny generator under the name `packaged:tiny`."""
    tokenizer = word_tokenizer("a b c d")
    folder = tmp_path / "shipped/tiny"
    model = tiny_bart(len(tokenizer))
    save(folder, tokenizer, model)
    (folder / "model.safetensors").unlink()
    save_file(
        packed({"model.shared.weight": model.model.shared.weight.data} | dict(model.state_dict())), folder / PACKED
    )
    monkeypatch.setattr(packaged, "PACKAGED", folder.parent)
    return folder


def test_a_generator_is_unpacked_once(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packaged_folder("some/model") == "some/model"
    folder = packaged_folder("packaged:tiny", str(tmp_path / "cache"))
    model, tokenizer = load_generator(folder)
    assert model.dtype == torch.float32 and tokenizer.tokenize("a d") == ["a", "d"]
    monkeypatch.setattr(packaged, "restored", None)
    assert packaged_folder("packaged:tiny", str(tmp_path / "cache")) == folder


def test_a_reader_comes_with_a_generator(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert chosen_reader("", "packaged:tiny") == chosen_reader(None, "runs/mine") == ""
    shutil.copytree(shipped, shipped / "reader")
    assert chosen_reader(None, "packaged:tiny") == "packaged:tiny/reader"
    assert chosen_reader("", Path("runs/mine")) == chosen_reader("none", "packaged:tiny") == ""
    assert chosen_reader("mine", "packaged:tiny") == "mine"
    assert (Path(reader_path("packaged:tiny/reader")) / "model.safetensors").is_file()
    assert not (Path(packaged_folder("packaged:tiny", str(tmp_path / "cache"))) / "reader").exists()


def test_doubtful_pairs_of_the_packaged_generator_are_left_out() -> None:
    asked = AskRequest("a"), AskRequest("a", min_score=0.0), AskRequest("a", ("a",))
    assert [least_score(request, ENGLISH) for request in asked] == [PACKAGED_SCORE, 0.0, 0.0]
    assert least_score(asked[0], "mine") == 0.0


def test_what_is_wrong_is_one_line(shipped: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"packaged:klingon: the package has packaged:tiny"):
        packaged_folder("packaged:klingon")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"packaged:tiny: .* cannot be written \(Not a directory\); set HOME"):
        packaged_folder("packaged:tiny", str(tmp_path / "file/cache"))


def test_only_the_packaged_generator_refuses_other_languages() -> None:
    text = "Die Brücke wurde im Jahr 1911 von einem Ingenieur gebaut und ist seitdem nicht mehr erneuert worden."
    with pytest.raises(InputError, match=r"a\.txt: looks like German, and the model asks about English texts"):
        check_text(ENGLISH, text, "a.txt")
    check_text("runs/mine", text, "a.txt")
    check_text(ENGLISH, "The bridge was built in 1911.", "a.txt")
