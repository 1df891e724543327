"""A causal language model for QRelScore, from an encoder: it learns to predict the next token of passages.

    python experiments/usability/language_model.py --encoder ENCODER --data DATA/train.json ANSWERS/train.json \
        --output LANGUAGE_MODEL

The weights start as the encoder's, whose attention then sees earlier tokens alone. One pass over pieces of the
passages in a random order, or `--updates` of it; the loss of every fiftieth passage, held out, is printed.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertLMHeadModel

from rl_qg.data.reading import read_examples

TOKENS, BATCH, RATE, WARM_UP = 128, 32, 5e-4, 20
IGNORED = -100


def pieces(tokenizer, passages: Sequence[str]) -> list[list[int]]:
    """Token ids of the passages, each piece begun and ended like a text of its own."""
    room = TOKENS - 2
    ids = tokenizer(list(passages), add_special_tokens=False, verbose=False)["input_ids"]
    starts = ((row, at) for row in ids for at in range(0, len(row), room))
    return [[tokenizer.bos_token_id, *row[at : at + room], tokenizer.eos_token_id] for row, at in starts]


def loss_of(model: BertLMHeadModel, batch: Sequence[list[int]]) -> torch.Tensor:
    rows = [torch.tensor(row) for row in batch]
    labels = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=IGNORED)
    mask = labels != IGNORED
    return model(labels.clamp(min=0), attention_mask=mask.long(), labels=labels).loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("encoder", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--bf16", action="store_true", help="products in bf16, for processors that have it")
    given = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(given.encoder, trust_remote_code=False)
    tokenizer.bos_token, tokenizer.eos_token = tokenizer.cls_token, tokenizer.sep_token
    config = BertConfig.from_pretrained(given.encoder, is_decoder=True, tie_word_embeddings=True)
    model = BertLMHeadModel.from_pretrained(given.encoder, config=config)
    examples = read_examples(given.data, role="train", allow_unlabelled=True).examples
    passages = list(dict.fromkeys(example.context for example in examples))
    held_out, learned = pieces(tokenizer, passages[::50]), [p for at, p in enumerate(passages) if at % 50]
    rows = pieces(tokenizer, learned)
    random.Random(0).shuffle(rows)
    batches = [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)][: given.updates]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP, (len(batches) - step) / len(batches))
    )
    print(f"{len(passages)} passages, {len(rows)} pieces, {len(batches)} updates", flush=True)
    model.train()
    for step, batch in enumerate(batches):
        with torch.autocast("cpu", torch.bfloat16, enabled=given.bf16):
            loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"update {step}: loss {loss.item():.3f}", flush=True)
    model.eval()
    with torch.no_grad():
        parts = [held_out[at : at + BATCH] for at in range(0, len(held_out), BATCH)]
        losses = [(loss_of(model, part).item(), sum(len(row) - 1 for row in part)) for part in parts]
    total = sum(count for _, count in losses)
    print(f"held out: loss {sum(loss * count for loss, count in losses) / total:.3f} over {total} tokens", flush=True)
    model.save_pretrained(given.output)
    tokenizer.save_pretrained(given.output)


if __name__ == "__main__":
    main()
