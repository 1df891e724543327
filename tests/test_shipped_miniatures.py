"""The miniatures in the package match the current recipes and text.

A full rebuild takes 15 minutes: `python experiments/quickstart/build_miniatures.py --check`.
"""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from rewards import ReaderScore
from rl_qg.miniatures.cache import QUESTIONS, SHIPPED, generator_folder, is_shipped, shipping_key, text_hash

ROOT = Path(__file__).parent.parent
MANIFEST = json.loads((SHIPPED / "manifest.json").read_text())


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    return script("build_miniatures")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "experiments" / "quickstart" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_shipped_miniatures_match_the_current_text_and_recipes(builder: ModuleType) -> None:
    passages, settings = builder.training_text()
    assert shipping_key(text_hash(passages), settings) == MANIFEST["key"]
    assert MANIFEST["steps"] == builder.STEPS
    for kind in builder.STEPS:
        assert is_shipped(kind, text_hash(passages), settings)
        assert not is_shipped(kind, text_hash(passages[:-1]), settings)


@pytest.mark.parametrize("kind", MANIFEST["steps"])
def test_each_reaches_its_recorded_held_out_loss(builder: ModuleType, kind: str) -> None:
    loss = builder.held_out_loss(SHIPPED / kind, kind)
    assert loss == pytest.approx(MANIFEST["held_out_loss"][kind], abs=0.01)


def test_the_reader_reads_as_recorded_and_abstains(builder: ModuleType) -> None:
    assert {key: MANIFEST["reader"][key] for key in builder.READER} == builder.READER
    assert builder.reader_f1(SHIPPED / "reader") == pytest.approx(MANIFEST["reader"]["f1"], abs=0.01)
    reader = ReaderScore(str(SHIPPED / "reader"))
    assert reader.abstain
    examples = builder.reader_validation()
    contexts, answers = [e.context for e in examples], [e.answers[0].text for e in examples]
    whole = reader.score([e.question for e in examples], contexts, answers=answers).scores
    cut = reader.score([" ".join(e.question.split()[:3]) + "?" for e in examples], contexts, answers=answers).scores
    assert sum(cut) < 0.2 * sum(whole)


def test_the_generator_asks_as_recorded(tmp_path: Path) -> None:
    scores = script("build_generator").measure(generator_folder(QUESTIONS, str(tmp_path)))
    recorded = MANIFEST["questions"]
    assert scores == {name: pytest.approx(recorded[name], abs=0.02) for name in scores}
    assert recorded["right"] > 0.8


def test_shipped_miniatures_are_small_and_in_safetensors() -> None:
    size = sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file())
    assert size < 12 * 2**20
    assert not [path for path in SHIPPED.rglob("*") if path.suffix in {".bin", ".pt", ".pkl"}]
