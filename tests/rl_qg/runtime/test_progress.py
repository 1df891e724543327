"""The bars of training."""

from types import SimpleNamespace
from typing import Any

from rl_qg.runtime.trainer_base import TrainingBar


def test_the_bar_of_an_evaluation_is_closed_with_it() -> None:
    bar, state = TrainingBar("ce"), SimpleNamespace(is_world_process_zero=True)
    step: Any = (None, state, None)
    for _ in range(2):
        for _ in range(3):
            bar.on_prediction_step(*step, eval_dataloader=range(3))
        held = bar.inner
        assert held is not None and (held.n, held.total, held.disable) == (3, 3, False)
        bar.on_evaluate(*step)
        assert bar.inner is None and held.disable  # its line is free again
