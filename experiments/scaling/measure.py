"""Measure what the cost model predicts: parameters, operations, bytes kept for the backward pass, checkpoints.

python experiments/scaling/measure.py               # writes its part of results.json; minutes on two cores
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    RobertaConfig,
    T5Config,
)

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
sys.path += [str(HERE), str(HERE.parent / "speed")]

from step import metric  # noqa: E402  (the reward of the measured step, at its published size)

from rl_qg.generation.sharing import share_encoder_pass  # noqa: E402


def bart(width: int, layers: int, vocabulary: int = 50_266, **options: Any) -> BartConfig:
    return BartConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        forced_eos_token_id=None,
        **options,
    )


def t5(width: int, heads_width: int, feed_forward: int, layers: int) -> T5Config:
    return T5Config(
        vocab_size=32_128,
        d_model=width,
        d_kv=128 if heads_width > width else 64,
        num_heads=heads_width // (128 if heads_width > width else 64),
        d_ff=feed_forward,
        num_layers=layers,
    )


def parameters() -> dict[str, int]:
    """Of the real architectures, on the meta device."""
    configs: dict[str, tuple[Any, Any]] = {
        "bart-base": (AutoModelForSeq2SeqLM, bart(768, 6)),
        "bart-large": (AutoModelForSeq2SeqLM, bart(1024, 12)),
        "t5-3b": (AutoModelForSeq2SeqLM, t5(1024, 4096, 16_384, 24)),
        "bert-base": (AutoModel, BertConfig(vocab_size=28_996)),
        "gpt2": (AutoModelForCausalLM, GPT2Config()),
        "roberta-base": (
            AutoModelForMaskedLM,
            RobertaConfig(vocab_size=50_265, max_position_embeddings=514, type_vocab_size=1),
        ),
        "bart-large-cnn": (AutoModelForSeq2SeqLM, bart(1024, 12, 50_264)),
        "distilbert": (AutoModelForQuestionAnswering, DistilBertConfig()),
    }
    found = {}
    for name, (kind, config) in configs.items():
        with torch.device("meta"):
            model = kind.from_config(config)
        found[name] = sum(weight.numel() for weight in model.parameters())
    return found


def batch(rows: int, context: int, question: int, per_context: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "input_ids": torch.randint(10, 30_000, (rows, context)),
        "attention_mask": torch.ones(rows * per_context, context, dtype=torch.long),
        "decoder_input_ids": torch.randint(10, 30_000, (rows * per_context, question)),
    }


def loss(model: nn.Module, rows: int, context: int, question: int, per_context: int, dtype: torch.dtype | None) -> Any:
    """The mean log-probability of made-up questions, through the pass that the trainer makes."""
    inputs = batch(rows, context, question, per_context)
    of_row = torch.arange(rows).repeat_interleave(per_context)
    mask = torch.ones(rows, context, dtype=torch.long)
    cast = torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None)
    with cast, share_encoder_pass(model, mask, of_row):
        logits = model(**inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), inputs["decoder_input_ids"].flatten())


def operations(folder: Path) -> dict[str, Any]:
    """Counted by FlopCounterMode on real passes. It does not know the CPU's fused attention, hence the eager one."""
    found: dict[str, Any] = {}
    base = bart(768, 6, attn_implementation="eager")
    sizes = {"rows": 2, "context": 192, "question": 20}
    for name, config in {"bart-base": base, "t5-3b, 1 layer": t5(1024, 4096, 16_384, 1)}.items():
        model = AutoModelForSeq2SeqLM.from_config(config).train()
        for per_context in (1, 2):
            found[f"{name}, update of {per_context}"] = {**sizes, "per_context": per_context, "flops": counted(
                lambda: loss(model, **sizes, per_context=per_context, dtype=None).backward()  # noqa: B023
            )}  # fmt: skip
    model = AutoModelForSeq2SeqLM.from_config(base).eval()
    inputs = torch.randint(10, 30_000, (4, 192))
    found["bart-base, decoding"] = {**sizes, "rows": 4, "samples": 0, "flops": counted(
        lambda: model.generate(input_ids=inputs, do_sample=False, num_beams=1, min_new_tokens=20, max_new_tokens=20)
    )}  # fmt: skip
    reward = metric("base", folder, "float32")
    for part in (reward.encoder, reward.decoder):
        part.plain()
    texts = [" ".join(f"w{10 + 7 * row + place}" for place in range(192)) for row in range(2)]
    asked = [" ".join(f"w{5000 + 31 * row + place}" for place in range(20)) for row in range(4)]
    found["QRelScore"] = {**sizes, "questions": 2, "vocabulary": 30_522, "flops": counted(
        lambda: reward.score(asked, [texts[row // 2] for row in range(4)])
    )}  # fmt: skip
    return found


def counted(work: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def kept_for_backward() -> list[dict[str, Any]]:
    """Bytes that autograd holds between forward and backward pass, each storage once, weights and their casts not
    counted.
    """
    found = []
    models = {
        "bart-base": bart(768, 6),
        "bart-large": bart(1024, 12),
        "t5-3b, 2 layers": t5(1024, 4096, 16_384, 2),
    }
    for name, config in models.items():
        model = AutoModelForSeq2SeqLM.from_config(config).train()
        for dtype in (None, torch.bfloat16):
            for rows, context, question, per_context in ((2, 192, 20, 1), (2, 192, 20, 2), (1, 384, 64, 2)):
                sizes = {"rows": rows, "context": context, "question": question, "per_context": per_context}
                held = _held(model, lambda: loss(model, **sizes, dtype=dtype))  # noqa: B023
                found.append({"model": name, "bf16": dtype is not None, **sizes, "bytes": held})
    return found


def _held(model: nn.Module, forward: Callable[[], Any]) -> int:
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    shapes = {tuple(weight.shape) for weight in model.parameters()}
    shapes |= {shape[::-1] for shape in shapes}
    held: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        cast = tuple(tensor.shape) in shapes and tensor.dim() == 2  # a weight in another type
        if storage.data_ptr() not in weights and not cast:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = forward()  # alive until the storages are counted: none is used twice
    total = sum(held.values())
    del kept
    return total


def checkpoint(folder: Path) -> dict[str, float]:
    """Bytes per parameter of a saved model and of the optimizer's state beside it in a checkpoint."""
    model = AutoModelForSeq2SeqLM.from_config(bart(256, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    loss(model, 1, 16, 8, 1, None).backward()
    optimizer.step()
    model.save_pretrained(folder)
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    count = sum(weight.numel() for weight in model.parameters())
    return {
        "model": (folder / "model.safetensors").stat().st_size / count,
        "optimizer": (folder / "optimizer.pt").stat().st_size / count,
    }


def write(part: dict[str, Any]) -> None:
    """Put a part into results.json beside the others."""
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    RESULTS.write_text(json.dumps({**known, **part}, indent=1) + "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        write({"parameters": parameters()})
        with torch.enable_grad():
            write({"operations": operations(Path(folder))})
            write({"kept_for_backward": kept_for_backward()})
            write({"checkpoint": checkpoint(Path(folder) / "small")})


if __name__ == "__main__":
    main()
