"""The test of a reward on the questions of the generator that it shall teach (`rl_qg.scoring.separation`)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rl_qg.data.examples import QAExample
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.reward_scorer import Reward
from rl_qg.scoring.separation import check_reward, sampler
from rl_qg.settings import Settings

SAMPLES = 4  # for each answer, as in rl-qg separate


def check_on_samples(
    settings: Settings, reward: Reward, validation: Sequence[QAExample], model: str, device: torch.device
) -> None:
    """Test a reward on human questions and on those of a generator; the random numbers of training stay as they are.

    Args:
        settings: those of the run: `evaluation.check_reward`, `scst.temperature`, `scst.top_p`.
        reward: the one to train with.
        validation: held-out examples.
        model: the folder of the generator, or its name.
        device: where it runs.
    """
    scst, count = settings.scst, settings.evaluation.check_reward
    if not count or settings.task != "questions":
        return

    def sample(examples: Sequence[QAExample]) -> Any:
        try:
            generator = CandidateGenerator(model, device=device, independent=device.type == "cpu")
        except torch.OutOfMemoryError:
            fault = "the generator does not fit beside the model in training; evaluation.check_reward=0 leaves it out"
            raise InputError(fault) from None
        options: dict[str, Any] = {"top_p": scst.top_p, "temperature": scst.temperature, "seed": settings.data.seed}
        return sampler(Path(model).name, generator, SAMPLES, max_new_tokens=scst.max_new_tokens, **options)(examples)

    with torch.random.fork_rng():
        folder = Path(settings.output_dir)
        check_reward(reward, validation, folder, count=count, seed=settings.data.seed, sampler=sample)


class CheckAtBoundary(TrainerCallback):
    """Tests the reward on questions of `ce/`, before the first update with the reward.

    Args:
        boundary: returns the step after which the reward teaches.
        check: tests a reward with the model of a folder.
    """

    def __init__(self, boundary: Callable[[], int], check: Callable[[str], None]) -> None:
        self.boundary, self.check = boundary, check

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Test it once: what is in the file is not measured again."""
        folder = Path(str(args.output_dir)) / "ce"
        if state.global_step == self.boundary() and folder.exists():
            self.check(str(folder))
