"""The running size of advantages, so that rewards of any unit take steps of the same size."""

from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from rl_qg.training.callbacks import stored_state

DECAY = 0.99  # of the weight of earlier updates: about the last hundred count


class AdvantageScale(TrainerCallback, ExportableState):
    """The root of an exponential moving mean of the squared advantages that are not 0 (stored in checkpoints).

    The mean is over the samples of all processes and accumulated batches of earlier updates. Sums and counts decay
    alike, and their ratio has no bias towards the value at the start (as the correction of Adam, Kingma & Ba 2015,
    section 3).
    """

    def __init__(self) -> None:
        self._squares = self._count = 0.0
        self._sums = [0.0, 0.0]  # of the current update

    @property
    def value(self) -> float:
        """In units of the reward; 0 before the first update with an advantage that is not 0."""
        return float((self._squares / self._count) ** 0.5) if self._count else 0.0

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores."""
        return {"args": {}, "attributes": {"_squares": self._squares, "_count": self._count}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Continue with the sums of the checkpoint."""
        stored = stored_state(state, self)
        attributes = stored["attributes"] if stored else {}
        self._squares, self._count = attributes.get("_squares", 0.0), attributes.get("_count", 0.0)

    def add(self, advantage: Tensor) -> None:
        """Add the advantages of a batch to the current update."""
        self._sums[0] += float(advantage.double().square().sum())
        self._sums[1] += float(advantage.ne(0).sum())

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add this update, over all processes, to the mean."""
        sums = torch.tensor(self._sums, dtype=torch.float64, device=PartialState().device)
        squares, count = reduce(sums, "sum").tolist()
        if count:
            self._squares = DECAY * self._squares + (1 - DECAY) * squares
            self._count = DECAY * self._count + (1 - DECAY) * count
        self._sums = [0.0, 0.0]
