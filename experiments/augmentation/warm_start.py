"""Pretrain the generator of this experiment: a small BART from random weights, on short windows of passages.

    python experiments/augmentation/warm_start.py data.json.gz … --output runs/augmentation/models/cloze

The objective is that of `miniature:bart` (cloze and infilling; `rl_qg.miniatures.recipes`): what it must learn is to
copy words from beside the marked answer. Questions are not read. The model is saved every 500 updates.
"""

import argparse
import random
from pathlib import Path

import torch
from tqdm import tqdm

from rl_qg.data.reading import read_examples
from rl_qg.miniatures.in_settings import pretraining_passages
from rl_qg.miniatures.recipes import RECIPES, PretrainingPassage
from rl_qg.settings import MiniatureSettings
from rl_qg.text.spans import sentence_texts

BATCH = 16
WORDS = 30  # of a window: short ones give more to copy in the same time
SIZES = MiniatureSettings(hidden_size=192, layers=2, vocab_size=3000, max_tokens=128)


def window(passage: PretrainingPassage, rng: random.Random) -> PretrainingPassage:
    """Neighbouring sentences of a passage, at least `WORDS` words where it has so many."""
    parts = sentence_texts(passage.context)
    first = last = rng.randrange(len(parts))
    words = len(parts[first].split())
    while words < WORDS and (first > 0 or last < len(parts) - 1):
        if last < len(parts) - 1 and (first == 0 or rng.random() < 0.5):
            last += 1
            words += len(parts[last].split())
        else:
            first -= 1
            words += len(parts[first].split())
    return PretrainingPassage(" ".join(parts[first : last + 1]))


def pretrain(passages: list[PretrainingPassage], steps: int, learning_rate: float, folder: Path) -> None:
    torch.manual_seed(0)
    rng = random.Random(0)
    recipe = RECIPES["bart"]
    tokenizer = recipe.tokenizer((passage.context for passage in passages), SIZES)
    model = recipe.model(tokenizer, SIZES).train()
    collate = recipe.objective(tokenizer, SIZES.max_tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    rise = 0.05 * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / rise, max(0.02, (steps - step) / steps))
    )
    with tqdm(total=steps, unit="step") as bar:
        for step in range(1, steps + 1):
            batch = collate([window(passage, rng) for passage in rng.sample(passages, BATCH)])
            batch.pop("token_type_ids", None)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            bar.set_postfix(loss=f"{loss.item():.2f}")
            bar.update()
            if step % 500 == 0 or step == steps:
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    args = parser.parse_args()
    passages = [
        PretrainingPassage(passage.context)
        for source in args.sources
        for passage in pretraining_passages(read_examples(source, role="train").examples)
    ]
    print(f"{len(passages)} passages")
    pretrain(passages, args.steps, args.learning_rate, args.output)


if __name__ == "__main__":
    main()
