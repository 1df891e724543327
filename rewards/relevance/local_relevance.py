"""The local half of QRelScore (LRM): whether question tokens attend to context tokens of the same meaning.

Source: Wang et al., "QRelScore", EMNLP 2022, equations 2 to 4 and Table 3, and its released code.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rewards.errors import MetricInputError, library
from rewards.frozen import FrozenModel, batches_by_length

logger = logging.getLogger(__name__)

Pair = tuple[list[int], list[int]]
"""Token ids of a question and of a piece of its context."""

_NAMED_LAYERS: dict[str, Callable[[int], Iterable[int]]] = {
    "all": lambda depth: range(1, depth + 1),
    "first": lambda depth: range(1, _third(depth) + 1),
    "middle": lambda depth: range(_third(depth) + 1, depth - _third(depth) + 1),
    "last": lambda depth: range(depth - _third(depth) + 1, depth + 1),
    "specific": lambda depth: sorted({1, _third(depth), depth - _third(depth), depth} - {0}),
    "first_half": lambda depth: range(1, depth // 2 + 1),
    "second_half": lambda depth: range(depth // 2 + 1, depth + 1),
}
"""Layers by name, counted from 1. Of 12 layers Table 3 has first 1-4, middle 5-8, last 9-12, and specific 1, 4, 8, 12
(counted from 0 in the paper): the thirds, and the first layer with the last one of each third. The halves are ours."""


def _third(depth: int) -> int:
    """Return how many layers the first and the last third of an encoder have; the middle has the rest."""
    return max(1, round(depth / 3))


@dataclass(frozen=True)
class LocalChoices:
    """The options of the local half; `rewards.relevance.qrelscore.QRelScore` explains each."""

    attention: str
    aggregation: str
    layers: str | tuple[int, ...]
    power: float
    last_tokens: str
    long_context: str


@dataclass(frozen=True)
class Spans:
    """Which tokens of a batch are compared."""

    question: Tensor
    """[batch, longest question], True where compared; column m is position m + 1 of the sequence."""
    context: Tensor
    """[batch, longest sequence], True where compared."""


class LocalRelevance:
    """LRM of pairs of question and context.

    Args:
        encoder: any encoder whose attention can be read.
        choices: the formula.
        batch_size: pairs per forward pass.
    """

    def __init__(self, encoder: FrozenModel, choices: LocalChoices, *, batch_size: int) -> None:
        self.encoder = encoder
        self.choices = choices
        self.batch_size = batch_size
        self.truncated = 0
        """How many contexts were cut at the encoder's length so far."""
        self.layers = _layer_numbers(choices.layers, encoder.model.config.num_hidden_layers)
        self._blocks = _readable_blocks(encoder)
        if choices.aggregation == "mover":
            optimal_transport()  # raises now, not at the first score, where it is not installed

    @property
    def chosen_layers(self) -> str:
        """``"all"`` or the numbers: a name means other layers in an encoder of another depth."""
        depth = self.encoder.model.config.num_hidden_layers
        return "all" if sorted(self.layers) == [*range(1, depth + 1)] else ",".join(map(str, self.layers))

    def scores(self, questions: Sequence[str], contexts: Sequence[str]) -> list[float]:
        """Return one value per pair; 0 where there is no token to compare."""
        return power_mean(self.scores_by_layer(questions, contexts), self.choices.power).tolist()

    def scores_by_layer(self, questions: Sequence[str], contexts: Sequence[str]) -> Tensor:
        """Return the relevance of each pair in each chosen layer, averaged over the pieces of its context,
        [pairs, layers] (float64, on the CPU); 0 where there is no token to compare.
        """
        pairs, owners = self.pairs(questions, contexts)
        owner = torch.tensor(owners, dtype=torch.long)
        total = torch.zeros(len(questions), len(self.layers), dtype=torch.float64)
        total.index_add_(0, owner, self.layer_scores(pairs))
        pieces = torch.bincount(owner, minlength=len(questions)).clamp_min(1)
        return total / pieces[:, None]

    def pairs(self, questions: Sequence[str], contexts: Sequence[str]) -> tuple[list[Pair], list[int]]:
        """Return what the encoder reads, and for each pair the row it belongs to: one pair for a context that fits,
        several for one in pieces, none where there is nothing to compare.
        """
        skip = self._skipped
        pairs: list[Pair] = []
        owners: list[int] = []
        truncated = 0
        token_ids = zip(self.encoder.ids(questions), self.encoder.ids(contexts), strict=True)
        for row, (question, context) in enumerate(token_ids):
            room = self.encoder.max_tokens - 3 - len(question)
            pieces = [context[start : start + room] for start in range(0, len(context), room)] if room > 0 else []
            if self.choices.long_context == "truncate" and len(pieces) > 1:
                truncated += 1
                pieces = pieces[:1]
            usable = [(question, piece) for piece in pieces if len(question) > skip and len(piece) > skip]
            pairs += usable
            owners += [row] * len(usable)
        self._note_truncation(truncated)
        return pairs, owners

    def layer_scores(self, pairs: Sequence[Pair]) -> Tensor:
        """Return the relevance in each chosen layer, [pairs, layers] (float64, on the CPU)."""
        scores = torch.zeros(len(pairs), len(self.layers), dtype=torch.float64)
        lengths = [len(question) + len(context) + 3 for question, context in pairs]
        for batch in batches_by_length(lengths, self.batch_size, self.encoder.tokens_at_once):
            values = self.read([pairs[at] for at in batch], self._aggregate)
            scores[batch] = torch.stack(values, 1).cpu().double()
        return scores

    def read(self, pairs: Sequence[Pair], reduce: Callable[[Tensor, Tensor, Spans], Any]) -> list[Any]:
        """Run one batch through the encoder and return ``reduce(weight, cosine, spans)`` of each chosen layer.

        ``weight`` and ``cosine`` are [pairs, longest question, longest sequence]; the weight is 0 outside the context.
        """
        cls, sep = self.encoder.tokenizer.cls_token_id, self.encoder.tokenizer.sep_token_id
        ids, lengths = self.encoder.pad(
            [[cls, *question, sep, *context, sep] for question, context in pairs],
            self.encoder.tokenizer.pad_token_id or 0,
        )
        words = torch.tensor([len(question) for question, _ in pairs], device=ids.device)[:, None]
        longest = max(len(question) for question, _ in pairs)
        position = torch.arange(ids.shape[1], device=ids.device)
        real = position < lengths[:, None]
        spans = Spans(
            question=torch.arange(longest, device=ids.device) < words - self._skipped,
            context=(position >= words + 2) & (position < lengths[:, None] - 1 - self._skipped),
        )
        arguments = {"input_ids": ids, "attention_mask": real.long()}
        config = self.encoder.model.config
        if getattr(config, "type_vocab_size", 0) > 1 or config.model_type == "xlnet":
            arguments["token_type_ids"] = ((position >= words + 2) & real).long()

        def reduce_layer(attention: Tensor, hidden: Tensor) -> Any:
            unit = normalize(hidden.float(), dim=-1)
            cosine = unit[:, 1 : 1 + longest] @ unit.transpose(1, 2)
            return reduce(_weights(attention, spans, self.choices.attention), cosine, spans)

        return self._each_layer(arguments, slice(1, 1 + longest), reduce_layer)

    def _each_layer(
        self, arguments: dict[str, Tensor], rows: slice, reduce: Callable[[Tensor, Tensor], Any]
    ) -> list[Any]:
        """Return ``reduce(attention, hidden)`` of each chosen layer; ``attention`` is [pairs, rows, sequence], the
        maximum over heads, ``hidden`` the layer's output [pairs, sequence, width].
        """
        if self._blocks is None:
            out = self.encoder.model(**arguments, output_attentions=True, output_hidden_states=True)
            chosen = [(out.attentions[number - 1], out.hidden_states[number]) for number in self.layers]
            return [reduce(attention[:, :, rows].amax(1), hidden) for attention, hidden in chosen]
        with _reading([self._blocks[number - 1] for number in self.layers], rows, reduce) as values:
            self.encoder.model(**arguments)
        return values

    @property
    def _skipped(self) -> int:
        return 1 if self.choices.last_tokens == "skip" else 0

    def _aggregate(self, weight: Tensor, cosine: Tensor, spans: Spans) -> Tensor:
        """Return the relevance of each pair in one layer, [pairs]."""
        product = weight * cosine
        if self.choices.aggregation == "mover":
            return _moved(product, spans)
        if self.choices.aggregation == "mean":
            matched = product.sum(-1)
        else:
            candidate = weight > 0 if self.choices.attention == "hard" else spans.context[:, None]
            matched = product.masked_fill(~candidate, float("-inf")).amax(-1)
        return (matched.masked_fill(~spans.question, 0)).sum(1) / spans.question.sum(1)

    def _note_truncation(self, count: int) -> None:
        if count and not self.truncated:
            logger.warning(
                "qrelscore: a context is longer than the encoder's %d tokens and is cut at its end (logged once; the "
                "count is in `truncated`); long_context='chunk' reads all of it",
                self.encoder.max_tokens,
            )
        self.truncated += count


def _weights(attention: Tensor, spans: Spans, kind: str) -> Tensor:
    """Return the weight of each context token for each question token, [pairs, question, sequence]."""
    weight = attention.float() * spans.context[:, None]
    if kind == "hard":
        best = attention.float().masked_fill(~spans.context[:, None], -1).argmax(-1, keepdim=True)
        return torch.zeros_like(weight).scatter_(-1, best, 1.0)
    if kind == "weighted":
        return weight / weight.sum(-1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    return weight


def _moved(product: Tensor, spans: Spans) -> Tensor:
    """Return the largest sum of ``flow * product`` over flows with row sums 1/M and column sums 1/N, [pairs]."""
    emd2 = optimal_transport().emd2
    values = []
    for matrix, question, context in zip(product, spans.question, spans.context, strict=True):
        similarity = matrix[question][:, context].double().cpu().numpy()
        values.append(1.0 - float(emd2([], [], 1.0 - similarity)))
    return torch.tensor(values, dtype=torch.float64)


def power_mean(values: Tensor, power: float) -> Tensor:
    """Return the power mean over the last dimension (equation 3); but for p = 1, values below 0 count as 0."""
    if power == 1:
        return values.mean(-1)
    values = values.clamp_min(0)
    if power == float("inf"):
        return values.amax(-1)
    if power == float("-inf"):
        return values.amin(-1)
    if power == 0:
        return values.log().mean(-1).exp()
    return values.pow(power).mean(-1).pow(1 / power)


def _layer_numbers(layers: str | tuple[int, ...], depth: int) -> list[int]:
    """Return the numbers of the chosen layers, 1 to ``depth``."""
    if isinstance(layers, str):
        if layers not in _NAMED_LAYERS:
            raise MetricInputError(
                f"qrelscore: layers {layers!r} does not exist; use one of {', '.join(_NAMED_LAYERS)}, or numbers"
            )
        numbers = list(_NAMED_LAYERS[layers](depth))
    else:
        numbers = list(layers)
    if isinstance(layers, str) and not numbers:
        raise MetricInputError(
            f"qrelscore: an encoder of depth {depth} has no layers {layers!r}; give numbers from 1 to {depth}"
        )
    if not numbers or len(set(numbers)) < len(numbers) or any(number not in range(1, depth + 1) for number in numbers):
        raise MetricInputError(
            f"qrelscore: layers {list(layers)} do not fit the encoder; give different numbers from 1 to {depth}"
        )
    return numbers


def _readable_blocks(encoder: FrozenModel) -> list[Any] | None:
    """Return the encoder's layers if a hook can read their attention, None if the library has to collect it for all
    heads of all layers (which takes more memory).
    """
    depth = encoder.model.config.num_hidden_layers
    for module in encoder.model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth and hasattr(module[0], "attention"):
            blocks = list(module)
            if _blocks_agree(encoder, blocks):
                return blocks
    if not _collects_attention(encoder):
        raise MetricInputError(
            f"qrelscore: the attention of {encoder.name!r} cannot be read; use BERT, RoBERTa or DistilBERT"
        )
    return None


def _probe(encoder: FrozenModel) -> dict[str, Tensor]:
    return {"input_ids": torch.arange(2, device=encoder.device)[None]}


@torch.inference_mode()
def _blocks_agree(encoder: FrozenModel, blocks: list[Any]) -> bool:
    """Return whether each block outputs its attention, tried on two tokens."""
    try:
        with _reading(blocks, slice(0, 2), lambda attention, hidden: attention.shape) as shapes:
            encoder.model(**_probe(encoder))
    except (TypeError, IndexError, AttributeError):
        return False
    return shapes == [(1, 2, 2)] * len(blocks)


@torch.inference_mode()
def _collects_attention(encoder: FrozenModel) -> bool:
    out = encoder.model(**_probe(encoder), output_attentions=True, output_hidden_states=True)
    attentions = getattr(out, "attentions", None) or ()
    return len(attentions) == encoder.model.config.num_hidden_layers and all(a is not None for a in attentions)


@contextmanager
def _reading(blocks: Sequence[Any], rows: slice, reduce: Callable[[Tensor, Tensor], Any]) -> Iterator[list[Any]]:
    """Collect one value from every block that runs inside; a block's attention is released when the block ends."""
    values: list[Any] = []
    attention: list[Tensor] = []

    def keep(module: nn.Module, arguments: Any, output: Any) -> None:
        attention.append(output[1][:, :, rows].amax(1))

    def finish(module: nn.Module, arguments: Any, output: Any) -> None:
        values.append(reduce(attention.pop(), output[0] if isinstance(output, tuple) else output))

    hooks = [block.attention.register_forward_hook(keep) for block in blocks]
    hooks += [block.register_forward_hook(finish) for block in blocks]
    try:
        yield values
    finally:
        for hook in hooks:
            hook.remove()


def optimal_transport() -> Any:
    """Return POT, which solves transport problems; raise `MetricInputError` where it is not installed."""
    return library("ot", "qrelscore with aggregation='mover'", "'rl-qg[mover]'")
