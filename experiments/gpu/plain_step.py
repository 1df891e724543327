"""The straightforward self-critical step, as one writes it with transformers alone.

Two calls of `generate`, one question after the other through the reward (`plain.PlainQRelScore`), three passes of the
encoder, two of the decoder with gradient. The same models, texts and lengths as for the trainer; only the random
numbers differ.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from part import DEVICE, wait
from plain import PlainQRelScore
from step import PARTS, examples
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from rl_qg.data.examples import QAExample


class PlainStep:
    """The loop over one model.

    Args:
        args: batch, new_tokens, and precision (`no`, or `bf16` for autocast).
    """

    def __init__(
        self,
        args: argparse.Namespace,
        model: PreTrainedModel,
        words: PreTrainedTokenizerFast,
        reward: PlainQRelScore,
    ) -> None:
        self.args, self.model, self.words, self.reward = args, model.to(DEVICE), words, reward
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def autocast(self) -> torch.autocast:
        return torch.autocast(DEVICE.type, torch.bfloat16, enabled=self.args.precision == "bf16")

    def ids(self, texts: Sequence[str]) -> Tensor:
        """All texts have as many tokens."""
        return torch.tensor(self.words([*texts])["input_ids"], device=DEVICE)

    def generate(self, contexts: Tensor, **options: Any) -> Tensor:
        length = {"min_new_tokens": self.args.new_tokens, "max_new_tokens": self.args.new_tokens}
        with torch.no_grad(), self.autocast():
            return self.model.generate(input_ids=contexts, num_beams=1, **length, **options)[:, 1:].contiguous()

    def rewards(self, questions: Tensor, batch: Sequence[QAExample]) -> Tensor:
        texts = self.words.batch_decode(questions, skip_special_tokens=True)
        scores = [self.reward(text, one.context, "") for text, one in zip(texts, batch, strict=True)]
        return torch.tensor(scores, device=DEVICE)

    def step(self, batch: Sequence[QAExample]) -> dict[str, float]:
        """Seconds of the step and its parts."""
        contexts = self.ids([example.context for example in batch])
        gold = self.ids([example.question for example in batch])
        start = now()
        self.model.eval()
        greedy = self.generate(contexts, do_sample=False)
        sample = self.generate(contexts, do_sample=True, top_k=0)
        self.model.train()
        rolled = now()
        advantage = self.rewards(greedy, batch) - self.rewards(sample, batch)
        rewarded = now()
        with self.autocast():
            loss = self.model(input_ids=contexts, labels=gold).loss
            logits = self.model(input_ids=contexts, labels=sample).logits
        surprise = cross_entropy(logits.float().transpose(1, 2), sample, reduction="none").sum(-1)
        (loss - 0.5 * (advantage * surprise).mean()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        done = now()
        return {
            "step": done - start,
            "rollout": rolled - start,
            "reward": rewarded - rolled,
            "update": done - rewarded,
        }

    def medians(self) -> dict[str, float]:
        """Of `args.steps` steps after one of two rows, which loads what is loaded once."""
        batch, steps = self.args.batch, self.args.steps
        data = examples(batch * steps, self.args.context_tokens, self.args.new_tokens)
        self.step(data[:2])
        rows = [self.step(data[batch * number : batch * (number + 1)]) for number in range(steps)]
        return {part: statistics.median(row[part] for row in rows) for part in PARTS}


def now() -> float:
    wait()
    return time.perf_counter()
