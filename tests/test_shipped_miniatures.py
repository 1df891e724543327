"""The miniatures that ship with the package are those that the current recipes and text make.

A whole rebuild takes a quarter of an hour: `python experiments/quickstart/build_miniatures.py --check` does it.
"""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from rl_qg.miniatures import cache as miniature

ROOT = Path(__file__).parent.parent
MANIFEST = json.loads((miniature.SHIPPED / "manifest.json").read_text())


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    path = ROOT / "experiments" / "quickstart" / "build_miniatures.py"
    spec = importlib.util.spec_from_file_location("build_miniatures", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_they_were_made_from_the_text_and_recipes_of_today(builder: ModuleType) -> None:
    passages, settings = builder.training_text()
    assert miniature.shipping_key(passages, settings) == MANIFEST["key"]
    assert MANIFEST["steps"] == builder.STEPS
    for kind in builder.STEPS:
        assert miniature.is_shipped(kind, passages, settings)
        assert not miniature.is_shipped(kind, passages[:-1], settings)


@pytest.mark.parametrize("kind", MANIFEST["steps"])
def test_each_reaches_the_held_out_loss_that_was_measured_when_it_was_made(builder: ModuleType, kind: str) -> None:
    loss = builder.held_out_loss(miniature.SHIPPED / kind, kind)
    assert loss == pytest.approx(MANIFEST["held_out_loss"][kind], abs=0.01)


def test_they_stay_small() -> None:
    size = sum(path.stat().st_size for path in miniature.SHIPPED.rglob("*") if path.is_file())
    assert size < 12 * 2**20
    assert not [path for path in miniature.SHIPPED.rglob("*") if path.suffix in {".bin", ".pt", ".pkl"}]
