"""The models that recipes build."""

import pytest
from safetensors import safe_open
from transformers import AutoTokenizer

from rl_qg.miniatures.cache import SHIPPED
from rl_qg.miniatures.recipes import RECIPES
from rl_qg.settings import MiniatureSettings


@pytest.mark.parametrize("name", ["bart", "bert", "distilbert", "gpt2", "roberta"])
def test_a_recipe_builds_a_model_of_the_size_of_the_shipped_one(name: str) -> None:
    built = RECIPES[name].model(AutoTokenizer.from_pretrained(SHIPPED / name), MiniatureSettings()).state_dict()
    with safe_open(SHIPPED / name / "model.safetensors", "pt") as file:
        shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
    assert shapes == {key: list(built[key].shape) for key in shapes}
