"""Teach the pointer of a prefix model anew, and nothing else.

    python experiments/real-generator/pointer.py --model packaged:english --data DATA/train.json \
        --validation DATA/validation.json --output POINTER

The states of the passages and questions, and the probability that the vocabulary gives each token of a question, do
not depend on the pointer: they are computed once for `--number` questions drawn by chance. Then `copy_key`,
`copy_query` and `copy_gate` learn by cross-entropy from the same mixture of both distributions as in
`rl_qg.generation.prefix_model`. The loss of the validation data is printed before and after each pass.
"""

import argparse
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rl_qg.asking.models import generator_path
from rl_qg.data.examples import QAExample
from rl_qg.data.splits import read_role
from rl_qg.generation.loading import load_seq2seq
from rl_qg.generation.prefix_model import PrefixLM
from rl_qg.generation.prompts import Prompt, PromptEncoder
from rl_qg.settings import DataSettings

BATCH = 32
PARTS = ("copy_key", "copy_query", "copy_gate")


@dataclass(frozen=True)
class States:
    """What the pointer reads of one question: states of its passage (s, h) and the tokens there (s,), states of the
    question (t, h), its tokens (t,) and their probabilities by the vocabulary (t,).
    """

    passage: Tensor
    tokens: Tensor
    question: Tensor
    labels: Tensor
    written: Tensor


def states_of(model: Any, encoder: PromptEncoder, rows: list[QAExample]) -> list[States]:
    """The states of all questions, without those of padding."""
    seen: dict[str, Tensor] = {}
    hooks = [
        model.copy_key.register_forward_hook(lambda _, given, out: seen.update(passage=given[0])),
        model.copy_query.register_forward_hook(lambda _, given, out: seen.update(question=given[0])),
        model.head.register_forward_hook(lambda _, given, out: seen.update(logits=out)),
    ]
    found: list[States] = []
    for start in range(0, len(rows), BATCH):
        batch: dict[str, Any] = encoder(rows[start : start + BATCH])
        labels, mask = batch["labels"], batch["attention_mask"].bool()
        with torch.no_grad():
            model(input_ids=batch["input_ids"], attention_mask=mask, labels=labels)
        chances = seen["logits"].softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        for at, (inside, known) in enumerate(zip(mask, labels >= 0, strict=True)):
            passage, question = seen["passage"][at][inside].half(), seen["question"][at][known].half()
            tokens = batch["input_ids"][at][inside]
            found.append(States(passage, tokens, question, labels[at][known], chances[at][known]))
        if start % (20 * BATCH) == 0:
            print(f"{start} of {len(rows)} questions read", flush=True)
    for hook in hooks:
        hook.remove()
    return found


def loss_of(model: Any, rows: list[States]) -> tuple[Tensor, int]:
    """The sum of -log p over the tokens of these questions, and the number of tokens."""
    padded = nn.utils.rnn.pad_sequence
    passage = padded([row.passage.float() for row in rows], batch_first=True)
    tokens = padded([row.tokens for row in rows], batch_first=True, padding_value=-1)
    question = padded([row.question.float() for row in rows], batch_first=True)
    labels = padded([row.labels for row in rows], batch_first=True, padding_value=-2)
    written = padded([row.written for row in rows], batch_first=True, padding_value=1.0)
    scores = model.copy_query(question) @ model.copy_key(passage).transpose(1, 2) * passage.shape[-1] ** -0.5
    hidden = (tokens < 0) | (tokens == model.config.highlight_token_id)
    places = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1)
    copied = (places * (tokens[:, None] == labels[..., None])).sum(-1)
    gate = model.copy_gate(question).sigmoid()[..., 0]
    chances = ((1 - gate) * written + gate * copied).clamp_min(1e-30)
    known = labels >= 0
    return -chances.log()[known].sum(), int(known.sum())


def validation_loss(model: Any, rows: list[States]) -> float:
    with torch.no_grad():
        sums = [loss_of(model, rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]
    return float(sum(total for total, _ in sums)) / sum(count for _, count in sums)


def drawn(path: str, number: int | None, seed: int) -> list[QAExample]:
    """Questions of a file by chance, in the order of their lengths, so that batches have little padding."""
    rows = list(read_role(DataSettings(train=path), "train").examples)
    random.Random(seed).shuffle(rows)
    return sorted(rows[:number], key=lambda row: len(row.context))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="packaged:english")
    parser.add_argument("--data", required=True)
    parser.add_argument("--validation", required=True)
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3, help="falls to 0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    folder = generator_path(given.model)
    model, tokenizer = load_seq2seq(folder)
    if not isinstance(model, PrefixLM) or not model.config.copies:
        parser.error(f"--model {given.model}: is no prefix model that copies")
    encoder = PromptEncoder(tokenizer, prompt := Prompt.of(folder, model, tokenizer))
    model.eval()
    held_out = states_of(model, encoder, drawn(given.validation, None, given.seed))
    print(f"validation loss {validation_loss(model, held_out):.4f}", flush=True)
    rows = states_of(model, encoder, drawn(given.data, given.number, given.seed))
    parameters = [value for name in PARTS for value in getattr(model, name).parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=given.rate, weight_decay=0.0)
    batches = len(rows) // BATCH
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, given.passes * batches)
    order = random.Random(given.seed)
    for number in range(given.passes):
        order.shuffle(rows)
        for start in range(0, batches * BATCH, BATCH):
            total, count = loss_of(model, rows[start : start + BATCH])
            optimizer.zero_grad()
            (total / count).backward()
            optimizer.step()
            falling.step()
        print(f"pass {number + 1}: validation loss {validation_loss(model, held_out):.4f}", flush=True)
    model.save_pretrained(given.output)
    tokenizer.save_pretrained(given.output)
    prompt.save(given.output)


if __name__ == "__main__":
    main()
