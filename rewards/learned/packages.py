"""What the adapters share: loading with errors of one line, and running regressions."""

from typing import Any

import torch

from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel, batches_by_length


def load_or_explain(metric: str, model: str, loader: Any, *arguments: Any, **options: Any) -> Any:
    """Call a loader; packages raise all kinds of errors, so each becomes one line.

    Raises:
        MetricInputError: the loader fails; the line names metric, model and reason.
    """
    try:
        return loader(*arguments, **options)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MetricInputError(f"{metric}: cannot load {model!r}: {reason}") from error


def check_single_output(metric: str, model: FrozenModel) -> None:
    """Raise `MetricInputError` unless a model has exactly one output, as a regression has."""
    if (outputs := model.model.config.num_labels) != 1:
        raise MetricInputError(f"{metric}: {model.name!r} has {outputs} outputs; a regression has one")


def regress(model: FrozenModel, encoded: Any, batch_size: int) -> list[float]:
    """Return the single output of a regression for each row of a tokenizer's result."""
    rows = encoded["input_ids"]
    values = [0.0] * len(rows)
    for batch in batches_by_length([len(row) for row in rows], batch_size, model.tokens_at_once):
        ids, lengths = model.pad([rows[at] for at in batch], model.tokenizer.pad_token_id or 0)
        arguments = {
            "input_ids": ids,
            "attention_mask": (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long(),
        }
        if "token_type_ids" in encoded and getattr(model.model.config, "type_vocab_size", 0) > 1:
            arguments["token_type_ids"] = model.pad([encoded["token_type_ids"][at] for at in batch])[0]
        logits = model.model(**arguments).logits[:, 0].float()
        for at, value in zip(batch, logits.tolist(), strict=True):
            values[at] = value
    return values
