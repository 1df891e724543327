"""Two processes make the same update as one, in both stages."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.processes import together as run_together
from tests.rl_qg.training.word_task import data, lines, trainer

pytestmark = pytest.mark.slow

STAGES = {"ce": {"ce_epochs": 1, "scst_epochs": 0}, "scst": {"ce_epochs": 0, "scst_epochs": 1}}


def one_update(folder: Path, batch: int, accumulation: int) -> None:
    """One SGD step of each stage's loss on eight examples; the weights after it are saved in `folder`."""
    for name, stages in STAGES.items():
        subject = trainer(
            folder / name,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            train_dataset=data(8),
            max_steps=1,
            optim="sgd",
            learning_rate=1.0,
            scst_learning_rate=1.0,
            weight_decay=0.0,
            **stages,
        )
        subject.train()
        if subject.is_world_process_zero():
            weights = {key: value.detach().clone() for key, value in subject.model.named_parameters()}
            save_file(weights, folder / f"{name}.safetensors")


@pytest.mark.distributed
@pytest.mark.parametrize(("batch", "accumulation"), [(4, 1), (2, 2)])
def test_two_processes_equal_one(tmp_path: Path, batch: int, accumulation: int) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    one_update(alone, 8, 1)
    run_together(one_update, together, batch, accumulation)
    start = trainer(tmp_path / "start").model.state_dict()
    for name in STAGES:
        first, second = (load_file(folder / f"{name}.safetensors") for folder in (alone, together))
        step = torch.cat([(first[key] - start[key]).flatten() for key in first])
        gap = torch.cat([(first[key] - second[key]).flatten() for key in first])
        assert step.norm() > 1e-2
        assert gap.norm() < 1e-5 * step.norm(), name
        logged = [lines(folder / name / "metrics.jsonl") for folder in (alone, together)]
        assert len(logged[1]) == 1  # only the main process writes
        for field in ("loss", "loss_ce", "grad_norm", *(("reward_sample", "loss_scst") if name == "scst" else ())):
            assert logged[1][0][field] == pytest.approx(logged[0][0][field], rel=1e-4, abs=1e-6), field
