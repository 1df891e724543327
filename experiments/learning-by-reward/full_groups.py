"""Train SCST with groups in which every sample fails replaced, so that updates stay full.

    python experiments/learning-by-reward/full_groups.py --output RUNS --seeds 12 1
    python experiments/learning-by-reward/full_groups.py --output RUNS --seeds 21 22 23 24 25 --judge

Twice as many answers are sampled for each update (four passes in as many updates); of these it learns from the first
BATCH whose best sample has a reward of at least PASSES_FROM, and from failed ones only where there are too few. Reads
the cross-entropy generators of `run.py --arms ce`, and with `--reader words` the readers that `on_policy.py` left;
writes measures and the share of failed groups into `variants.json` beside this file, with `--judge` and the F1 of a
reader that its questions teach, as an arm into `results.json`.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from on_policy import again
from run import BATCH, PASSES, RESULTS, REWARD, SCST, Experiment, greedy, keep, keep_variant, measures
from torch import Tensor, nn
from world_settings import WORLD_SETTINGS

from rl_qg.commands.compose import compose
from rl_qg.commands.training import train
from rl_qg.generation.decoding import Decoded, Rollout
from rl_qg.training import stages
from rl_qg.training.trainer import LearnedRollout, SelfCriticalTrainer

ARM = "scst-full-groups"
PASSES_FROM = 0.1  # a probability of 0.0001, to the fourth root; wrong relations have less


class FullGroups(SelfCriticalTrainer):
    """An update learns from BATCH of the answers that it samples questions for."""

    chosen: LearnedRollout
    failed: ClassVar[list[float]] = []  # share of failed groups in each update

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of the answers that are kept, divided by their target tokens."""
        learned = super().new_rollout(inputs, self.state.global_step + 1)
        fails = learned.scored.rewards.nan_to_num(0).amax(1) < PASSES_FROM
        self.failed.append(float(fails.float().mean()))
        rows = fails.int().argsort(stable=True)[:BATCH]
        self.chosen = _of_rows(learned, rows)
        kept = self.encoder([inputs["examples"][row] for row in rows.tolist()])
        return super().compute_loss(model, self._prepare_inputs(kept), return_outputs, None)

    def new_rollout(self, inputs: dict[str, Any], step: int) -> LearnedRollout:
        return self.chosen


def _of_rows(learned: LearnedRollout, rows: Tensor) -> LearnedRollout:
    """The groups of some contexts."""
    samples, scored = learned.rollout.samples, learned.scored
    assert samples is not None
    size = scored.rewards.shape[1]
    texts = (rows[:, None] * size + torch.arange(size)).flatten()
    decoded = Decoded(samples.tokens[texts], samples.mask[texts])
    parts = {name: values[texts] for name, values in scored.parts.items()}
    sampled = [scored.sampled[text] for text in texts.tolist()]
    chosen = replace(scored, sampled=sampled, rewards=scored.rewards[rows], parts=parts)
    return LearnedRollout(Rollout(None, decoded), chosen, learned.advantage[rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the folder that run.py was given")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--reader", default="", help="labels of the reader of on_policy.py in the reward")
    parser.add_argument("--judge", action="store_true", help="teach a reader too; an arm of results.json")
    given = parser.parse_args()
    arm, name = ARM, "groups that fail replaced"
    if given.reader:
        arm, name = f"{ARM}-{given.reader}", f"{name}, reader taught again: {given.reader}"
    torch.set_num_threads(1)
    for seed in given.seeds:
        experiment = Experiment(given.output, 0.02, seed)
        options = [*WORLD_SETTINGS, "stages=scst", *SCST, *REWARD, *experiment.data, "held_out=none"]
        options += [f"model.path={experiment.model('ce')}", f"output_dir={experiment.folder / arm}"]
        if given.reader:
            options += again(experiment, given.reader)
        options += ["evaluation.check_reward=0", f"training.batch_size={2 * BATCH}", f"scst.epochs={2 * PASSES}"]
        FullGroups.failed.clear()
        with patch.object(stages, "SelfCriticalTrainer", FullGroups):
            train(compose("train", options))
        found = measures(greedy(experiment.model(arm), experiment.held_out()), experiment.held_out(), None)
        failed, last = FullGroups.failed, FullGroups.failed[-100:]
        if failed:  # none where the generator was complete already
            found |= {"failed_first_100": sum(failed[:100]) / 100, "failed_last_100": sum(last) / len(last)}
        print(json.dumps({"seed": seed, "updates": len(failed), "right": found["right"]}), flush=True)
        if given.judge:
            experiment.teach(arm)
            keep(0.02, seed, {arm: found | experiment.judge([], [arm], None)[arm]}, RESULTS)
        else:
            keep_variant(name, str(seed), found)


if __name__ == "__main__":
    main()
