"""The greedy questions of an evaluation during training, and everything that is measured on them."""

import math
from collections.abc import Sequence

import torch
from accelerate.utils import gather_object
from torch import Tensor

from rl_qg.data.examples import QAExample
from rl_qg.evaluation.reward_scorer import Reward, RewardScorer
from rl_qg.evaluation.text_measures import held_out_measures
from rl_qg.generation.tasks import shown


class HeldOutQuestions:
    """Collects the greedy questions of one evaluation, batch by batch, and measures them at its end.

    Args:
        scorer: of the reward that is optimised; training may share it. None where there is none.
        held_out: another reward that is measured but not optimised, or None; its own scorer where `scorer` is None.
    """

    def __init__(self, scorer: RewardScorer | None, held_out: Reward | RewardScorer | None) -> None:
        self.scorers = {} if scorer is None else {"reward_greedy": scorer}
        if isinstance(held_out, RewardScorer):
            self.scorers["held_out"] = held_out
        elif held_out is not None and scorer is not None:
            self.scorers["held_out"] = scorer.of(held_out, "held-out reward")
        self._examples: list[QAExample] = []
        self._questions: list[str] = []
        self._divergences: list[tuple[float, int]] = []

    def add(
        self, examples: Sequence[QAExample], questions: Sequence[str], mask: Tensor, divergence: Tensor | None
    ) -> None:
        """Add a batch: its questions, the mask of their tokens (b, t), and the divergence from the reference policy at
        each token (b, t), if there is one.
        """
        self._examples += examples
        self._questions += questions
        if divergence is not None:
            pairs = zip((divergence * mask).sum(-1).tolist(), mask.sum(-1).tolist(), strict=True)
            self._divergences += [(total, int(length)) for total, length in pairs]

    def reset_cache(self) -> None:
        """Drop what the rewards have cached of earlier questions."""
        for scorer in self.scorers.values():
            scorer.reset_cache()

    def collect(self) -> dict[str, float]:
        """Measure the questions of all processes, and start again with none. Every process gets the same numbers.

        Means of rewards leave out questions whose reward failed; `<name>_failed` counts them when there are any.
        """
        scores = {}
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            for name, scorer in self.scorers.items():
                scores[name] = scorer(self._examples, self._questions).scores
        divergences = self._divergences or [(math.nan, 0)] * len(self._examples)
        columns = zip(self._examples, self._questions, divergences, *scores.values(), strict=True)
        # By example: the last batch may be filled up with repeats when several processes share the set.
        rows = list({row[0]: row for row in gather_object(list(columns))}.values())
        measures = held_out_measures(
            [shown(row[0], row[1]) for row in rows],
            [shown(row[0], row[0].question) for row in rows],
            [row[0].context for row in rows],
        )
        for column, name in enumerate(scores, start=3):
            values = [row[column] for row in rows if math.isfinite(row[column])]
            measures[name] = sum(values) / len(values) if values else math.nan
            if len(values) < len(rows):
                measures[f"{name}_failed"] = len(rows) - len(values)
        if self._divergences:
            measures["kl"] = sum(row[2][0] for row in rows) / sum(row[2][1] for row in rows)
        self._examples, self._questions, self._divergences = [], [], []
        return measures
