"""A mixture of gold examples and passages without questions, with running advantages and two updates of each rollout,
has the same result however it is distributed.
"""

import os
from pathlib import Path

import pytest
from safetensors.torch import save_file

from rl_qg.training.run_files import save_model_folder
from tests.processes import accelerate_environment, together as run_together
from tests.rl_qg.training.test_equivalence import EndsAtOnce, RecordedReward, assert_equal, data, rollouts
from tests.rl_qg.training.test_mixture import without_questions
from tests.rl_qg.training.word_task import WORDS, lines, trainer
from tests.tiny_models import tiny_bart, word_tokenizer

pytestmark = pytest.mark.slow


def run(folder: Path, batch: int, accumulation: int) -> Path:
    """Both stages; 8 gold examples and 16 others, of which each update of the second stage has 4 each: none twice, as
    equal questions of one batch are scored once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ.get("RANK", "0"))
    model = tiny_bart(len(word_tokenizer(WORDS)), seed=1)
    model.__class__ = EndsAtOnce
    subject = trainer(
        folder,
        model,
        reward=RecordedReward(folder / f"rollouts-{rank}.jsonl"),
        train_dataset=data(8),
        unlabelled=without_questions(16),
        unlabelled_share=0.5,
        eval_dataset=None,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        normalise_advantage="running",
        updates_per_rollout=2,
        max_grad_norm=1.0,
        schedule="constant",
    )
    if rank == 0:
        start = {key: value.clone() for key, value in subject.model.state_dict().items()}
        save_file(start, folder / "start.safetensors")
    subject.train()
    save_model_folder(subject, folder / "final")
    return folder


def worker(folder: str) -> None:
    run(Path(folder) / "4x1", 4, 1)
    run(Path(folder) / "2x2", 2, 2)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("alone") / "8x1", 8, 1)


def test_accumulated_batches_equal_one_large_batch(tmp_path: Path, alone: Path) -> None:
    logged = lines(alone / "metrics.jsonl")
    assert len(rollouts(alone, 1)) == 4 and len(logged) == 1 + 7
    assert [line["advantage_scale"] > 0 for line in logged[1:]] == [True] * 7
    assert_equal((alone, 1), (run(tmp_path / "parts", 2, 4), 4))


@pytest.mark.distributed
def test_two_processes_equal_one(tmp_path: Path, alone: Path) -> None:
    run_together(worker, str(tmp_path), environment=accelerate_environment("cpu2"))
    assert_equal((alone, 1), (tmp_path / "4x1", 1))
    assert_equal((alone, 1), (tmp_path / "2x2", 2))
