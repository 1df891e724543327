"""Inputs of any size for `measure.py`: passages of the embedded corpus, and a BART small enough to ask it often.

python experiments/memory/inputs.py FOLDER ROWS
"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration

from rl_qg.data.corpus import synthetic_examples
from rl_qg.miniatures.cache import SHIPPED

PASSAGES = 10**9  # of which as many are made as rows need
SHORT = 60  # characters


def rows(count: int, prefix: str) -> Iterator[dict[str, object]]:
    """Flat rows, one a question."""
    for example in islice(synthetic_examples(PASSAGES, seed=0, prefix=prefix), count):
        answers = {"text": [a.text for a in example.answers], "answer_start": [a.start for a in example.answers]}
        yield {
            "id": example.id,
            "title": example.title,
            "context": example.context,
            "question": example.question,
            "answers": answers,
        }


def candidates(count: int) -> Iterator[dict[str, object]]:
    """What a generator would have written: two candidates for each answer."""
    for row in rows(count // 2, "candidates"):
        answers: dict[str, list[object]] = row.pop("answers")  # type: ignore[assignment]
        question = row.pop("question")
        for number in range(2):
            yield {
                **row,
                "candidate": number,
                "answer": answers["text"][0],
                "answer_start": answers["answer_start"][0],
                "question": f"{question} {'Say it again.' * number}".strip(),
                "logprob": -1.0,
            }


def short(lines: Iterator[dict[str, object]]) -> Iterator[dict[str, object]]:
    """The same questions with the beginning of their passage, for a metric that would take hours over whole ones."""
    for line in lines:
        yield {"id": line["id"], "question": line["question"], "context": str(line["context"])[:SHORT]}


def write(path: Path, lines: Iterator[dict[str, object]]) -> None:
    """Write JSON lines."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in lines)


def save_model(folder: Path) -> None:
    """A BART of one layer with random weights and the shipped miniature's tokenizer."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED / "bart")
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=514,
        forced_eos_token_id=None,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
        init_std=0.3,
    )
    BartForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    target, size = Path(sys.argv[1]), int(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    write(target / "train.jsonl", rows(size, "train"))
    write(target / "candidates.jsonl", candidates(size))
    write(target / "short.jsonl", short(candidates(size)))
    save_model(target / "model")
