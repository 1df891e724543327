"""The local half of QRelScore (LRM): whether question tokens attend to context tokens of the same meaning.

Source: Wang et al., "QRelScore", EMNLP 2022, equations 2 to 4, and its released code.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rewards.errors import MetricInputError
from rewards.frozen import CountsCuts, FrozenModel, batches_by_length, on_device

Pair = tuple[list[int], list[int]]  # token ids of a question and of a piece of its context


@dataclass(frozen=True)
class Spans:
    """Which tokens of a batch are compared."""

    question: Tensor  # [batch, longest question]; column m is position m + 1 of the sequence
    context: Tensor  # [batch, longest sequence]


class LocalRelevance(CountsCuts):
    """LRM of pairs of question and context.

    ``attention`` decides the weight of a context token: ``"hard"`` (1 for the one with the highest attention, 0 for
    the others) or ``"weighted"`` (normalised over the context); ``last_tokens`` of question and context are compared
    (``"keep"``) or not (``"skip"``); a ``long_context`` is cut (``"truncate"``) or read in pieces (``"chunk"``).
    """

    notes: tuple[str, ...] = ()  # sentences for an explanation about a formula that is that of neither variant

    def __init__(
        self, encoder: FrozenModel, *, attention: str, last_tokens: str, long_context: str, batch_size: int
    ) -> None:
        encoder.need_special_tokens("qrelscore")
        self.encoder = encoder
        self.attention, self.long_context, self.batch_size = attention, long_context, batch_size
        self.skipped = 1 if last_tokens == "skip" else 0
        """How many tokens at the end of question and context are not compared."""
        self.layers = list(range(1, encoder.model.config.num_hidden_layers + 1))
        self._blocks = _readable_blocks(encoder)

    def scores(self, questions: Sequence[str], contexts: Sequence[str]) -> list[float]:
        """Return one value per pair, the mean over layers; 0 where there is no token to compare."""
        return self.mean(self.scores_by_layer(questions, contexts)).tolist()

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over layers, [pairs, layers] -> [pairs] (equation 3 with exponent 1)."""
        return values.mean(-1)

    def scores_by_layer(self, questions: Sequence[str], contexts: Sequence[str]) -> Tensor:
        """Return one value per pair, the mean over its pieces, [pairs, layers] (float64, on the CPU)."""
        pairs, owners = self.pairs(questions, contexts)
        owner = torch.tensor(owners, dtype=torch.long)
        total = torch.zeros(len(questions), len(self.layers), dtype=torch.float64)
        total.index_add_(0, owner, self.layer_scores(pairs))
        pieces = torch.bincount(owner, minlength=len(questions)).clamp_min(1)
        return total / pieces[:, None]

    def pairs(self, questions: Sequence[str], contexts: Sequence[str]) -> tuple[list[Pair], list[int]]:
        """Return what the encoder reads, and the row of each: the pieces of a context with its question."""
        pairs: list[Pair] = []
        owners: list[int] = []
        truncated = 0
        token_ids = zip(self.encoder.ids(questions), self.encoder.ids(contexts), strict=True)
        for row, (question, context) in enumerate(token_ids):
            room = self.encoder.max_tokens - 3 - len(question)
            pieces = [context[start : start + room] for start in range(0, len(context), room)] if room > 0 else []
            if self.long_context == "truncate" and len(pieces) > 1:
                truncated += 1
                pieces = pieces[:1]
            usable = [(question, piece) for piece in pieces if min(len(question), len(piece)) > self.skipped]
            pairs += usable
            owners += [row] * len(usable)
        self.note_cut(
            truncated,
            "qrelscore: a context is longer than the encoder's %d tokens and is cut at its end (logged once; the "
            "count is in `truncated`); long_context='chunk' reads all of it",
            self.encoder.max_tokens,
        )
        return pairs, owners

    def layer_scores(self, pairs: Sequence[Pair]) -> Tensor:
        """Return the relevance in each chosen layer, [pairs, layers] (float64, on the CPU)."""
        scores = torch.zeros(len(pairs), len(self.layers), dtype=torch.float64)
        lengths = [len(question) + len(context) + 3 for question, context in pairs]
        for batch in batches_by_length(lengths, self.batch_size, self.encoder.tokens_at_once):
            values = self.read([pairs[at] for at in batch], self.relevance)
            scores[batch] = torch.stack(values, 1).cpu().double()
        return scores

    def read(self, pairs: Sequence[Pair], reduce: Callable[[Tensor, Tensor, Spans], Any]) -> list[Any]:
        """Run one batch through the encoder and return ``reduce(weight, cosine, spans)`` of each chosen layer.

        ``weight`` and ``cosine`` are [pairs, longest question, longest sequence]; the weight is 0 outside the context.
        """
        tokenizer = self.encoder.tokenizer
        cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        rows = [[cls, *question, sep, *context, sep] for question, context in pairs]
        ids, lengths = self.encoder.pad(rows, tokenizer.pad_token_id or 0)
        words = on_device([len(question) for question, _ in pairs], ids.device)[:, None]
        longest = max(len(question) for question, _ in pairs)
        position = torch.arange(ids.shape[1], device=ids.device)
        real = position < lengths[:, None]
        spans = Spans(
            question=torch.arange(longest, device=ids.device) < words - self.skipped,
            context=(position >= words + 2) & (position < lengths[:, None] - 1 - self.skipped),
        )
        arguments = {"input_ids": ids, "attention_mask": real.long()}
        config = self.encoder.model.config
        if (getattr(config, "type_vocab_size", 0) or 0) > 1 or config.model_type == "xlnet":
            arguments["token_type_ids"] = ((position >= words + 2) & real).long()

        def reduce_layer(attention: Tensor, hidden: Tensor) -> Any:
            unit = normalize(hidden.float(), dim=-1)
            cosine = unit[:, 1 : 1 + longest] @ unit.transpose(1, 2)
            return reduce(self.weights(attention, spans), cosine, spans)

        asked = slice(1, 1 + longest)
        if self._blocks is not None:
            with _reading([self._blocks[number - 1] for number in self.layers], asked, reduce_layer) as values:
                self.encoder.model(**arguments)
            return values
        out = self.encoder.model(**arguments, output_attentions=True, output_hidden_states=True)
        chosen = [(out.attentions[number - 1], out.hidden_states[number]) for number in self.layers]
        return [reduce_layer(attention[:, :, asked].amax(1), hidden) for attention, hidden in chosen]

    def weights(self, attention: Tensor, spans: Spans) -> Tensor:
        """Return the weight of each context token for each question token, [pairs, question, sequence]."""
        if self.attention == "hard":
            best = attention.float().masked_fill(~spans.context[:, None], -1).argmax(-1, keepdim=True)
            return torch.zeros_like(attention, dtype=torch.float32).scatter_(-1, best, 1.0)
        weight = attention.float() * spans.context[:, None]
        return weight / weight.sum(-1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)

    def relevance(self, weight: Tensor, cosine: Tensor, spans: Spans) -> Tensor:
        """Return the relevance of each pair in one layer, [pairs]: equation 4."""
        candidate = weight > 0 if self.attention == "hard" else spans.context[:, None]
        return mean_of_words((weight * cosine).masked_fill(~candidate, float("-inf")).amax(-1), spans)

    def contributions(self, weight: Tensor, cosine: Tensor) -> tuple[Tensor, list[int]]:
        """Return what context tokens contribute, [question, context] as the arguments, and the best of each row."""
        product = weight * cosine
        best = (weight if self.attention == "hard" else product).argmax(-1, keepdim=True)
        return torch.zeros_like(product).scatter(1, best, product.gather(1, best)), best[:, 0].tolist()


def mean_of_words(matched: Tensor, spans: Spans) -> Tensor:
    """Return the mean over the question tokens that are compared, [pairs, question] -> [pairs]."""
    return matched.masked_fill(~spans.question, 0).sum(1) / spans.question.sum(1)


@torch.inference_mode()
def _readable_blocks(encoder: FrozenModel) -> list[Any] | None:
    """Return the layers whose attention a hook can read; None if the library has to collect all of it."""
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


def _blocks_agree(encoder: FrozenModel, blocks: list[Any]) -> bool:
    try:
        with _reading(blocks, slice(0, 2), lambda attention, hidden: attention.shape) as shapes:
            encoder.model(input_ids=torch.arange(2, device=encoder.device)[None])
    except (TypeError, IndexError, AttributeError):
        return False
    return shapes == [(1, 2, 2)] * len(blocks)


def _collects_attention(encoder: FrozenModel) -> bool:
    ids = torch.arange(2, device=encoder.device)[None]
    out = encoder.model(input_ids=ids, output_attentions=True, output_hidden_states=True)
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
