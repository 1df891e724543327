"""QRelScore: how relevant a question is to its context; a local part from BERT and a global part from GPT-2.

Source: Wang, Liu, Tang, Wu, "QRelScore: Better Evaluating Generated Questions with Deeper Understanding of
Context-aware Relevance", EMNLP 2022, and its released code (Robert-xiaoqiang/QRelScore).
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel, batches_by_length, causal_logprobs

logger = logging.getLogger(__name__)

CACHED_CONTEXTS = 1 << 15
"""How many base confidences are kept; one float and a reference to the context's text each."""

WHOLE = -1
"""Stands for the end of a context that is scored in one piece."""

_LONG_CONTEXT = {"official": "truncate", "paper": "chunk"}


class QRelScore(Metric):
    """Harmonic mean of a local (LRM) and a global (GRG) relevance.

    With question tokens m, context tokens n, encoder layers l, hidden states h_l (the output of layer l) and
    a_l[m, n] = the attention of layer l from m to n, maximum over heads, in ``[CLS] question [SEP] context [SEP]``:

    ``variant="official"`` (the released code, to 1e-5; what was validated against people):

    - ``lrm`` = mean over l of mean over m of cos(h_l(m), h_l(n*)), n* = argmax_n a_l[m, n]. The size of the attention
      is not used; the last question token and the last context token are left out. In [-1, 1].
    - conf(text) = mean over all tokens of ``text <eos>`` of p(token | tokens before); conf_base = conf(context),
      conf_prompt = conf("question context"): question tokens count too.
    - ``grg`` = max(0, (conf_prompt - conf_base) / conf_base). score = 2 lrm grg / (lrm + grg + 1e-8).

    ``variant="paper"`` (equations 1 to 10 to the letter):

    - ``lrm`` = mean over l of mean over m of max_n a'_l[m, n] cos(h_l(m), h_l(n)), with a' = a normalised over the
      context tokens. It is of order 1 / (number of context tokens) where attention is flat. In [-1, 1].
    - conf = sum of log p over the context tokens alone, after ``<bos>`` (base) or ``<bos> question`` (prompt).
    - ``grg`` = max(0, (conf_prompt - conf_base) / |conf_base|). score = 2 lrm grg / (lrm + grg), 0 if lrm + grg <= 0.

    Where the released code crashes or gives NaN, ``official`` differs from it: a question of zero or one token, a
    context of zero or one token, or a question that fills the encoder has ``lrm`` 0, so score 0. A text too long for
    the decoder is scored as the paper says, in pieces: the context is cut into the largest pieces that fit behind the
    question, each piece is scored as a context of its own, and the gains are averaged; where nothing fits, ``grg`` 0.

    The score has no unit. Both formulas stay below 2 and above 0 while ``lrm`` is positive, as with every trained
    BERT; a negative ``lrm`` gives what the formula gives, which has no bound, so none is declared.

    Args:
        encoder: BERT-like encoder, a local folder or a Hub name.
        decoder: GPT-2-like causal language model, a local folder or a Hub name.
        variant: ``"official"`` or ``"paper"``.
        long_context: for a context longer than the encoder: ``"truncate"`` keeps its beginning (counted in
            `truncated`, logged once; default of ``official``), ``"chunk"`` averages over consecutive pieces (default
            of ``paper``).
        batch_size: sequences per forward pass.
        device: where to run; None takes the current GPU if there is one, else the CPU.
        dtype: floating-point type of the models.

    Raises:
        MetricInputError: a choice that does not exist, or a model that cannot be loaded or does not fit.
    """

    name = "qrelscore"
    part_names = ("lrm", "grg")

    def __init__(
        self,
        encoder: str = "bert-base-cased",
        decoder: str = "gpt2",
        variant: str = "official",
        *,
        long_context: str | None = None,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        if variant not in _LONG_CONTEXT:
            raise MetricInputError(f"qrelscore: variant {variant!r} does not exist; use official or paper")
        if long_context not in (None, "truncate", "chunk"):
            raise MetricInputError(f"qrelscore: long_context {long_context!r} does not exist; use truncate or chunk")
        self.variant = variant
        self.long_context = long_context or _LONG_CONTEXT[variant]
        self.batch_size = batch_size
        self.dtype = dtype
        self.encoder = FrozenModel(encoder, "encoder", device=device, dtype=dtype)
        self.decoder = FrozenModel(decoder, "causal", device=device, dtype=dtype)
        self.truncated = 0
        self._layers = _encoder_layers(self.encoder)
        self._bos, self._eos = _boundary_tokens(self.decoder)
        self._base: OrderedDict[_Piece, float] = OrderedDict()
        # Byte-level BPE never merges across the space before a word, so "q c" is the tokens of "q" and of " c".
        probe = self.decoder.ids(["a b", "a", " b"])
        self._splits_at_spaces = probe[0] == probe[1] + probe[2]

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {
            "variant": self.variant,
            "encoder": self.encoder.identity,
            "decoder": self.decoder.identity,
            "long_context": self.long_context,
            "dtype": self.dtype,
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return the score and its parts ``lrm`` and ``grg``."""
        lrm = self._local(inputs.questions, inputs.contexts)
        grg = self._global(inputs.questions, inputs.contexts)
        margin = 1e-8 if self.variant == "official" else 0.0
        scores = [self._combine(a, b, margin) for a, b in zip(lrm, grg, strict=True)]
        return MetricResult(scores, {"lrm": lrm, "grg": grg})

    def _combine(self, local: float, gain: float, margin: float) -> float:
        total = local + gain + margin
        if total == 0 or (self.variant == "paper" and total < 0):
            return 0.0
        return 2 * local * gain / total

    # Local part ------------------------------------------------------------------------------------------------

    def _local(self, questions: list[str], contexts: list[str]) -> list[float]:
        """Return the local relevance of each pair; 0 where no token is left to compare."""
        skip = 1 if self.variant == "official" else 0  # the released code leaves out the last token of either side
        pairs, owners = [], []
        truncated = 0
        token_ids = zip(self.encoder.ids(questions), self.encoder.ids(contexts), strict=True)
        for row, (question, context) in enumerate(token_ids):
            room = self.encoder.max_tokens - 3 - len(question)
            pieces = [context[start : start + room] for start in range(0, len(context), room)] if room > 0 else []
            if self.long_context == "truncate" and len(pieces) > 1:
                truncated += 1
                pieces = pieces[:1]
            usable = [(question, piece) for piece in pieces if len(question) > skip and len(piece) > skip]
            pairs += usable
            owners += [row] * len(usable)
        self._note_truncation(truncated)
        if not pairs:
            return [0.0] * len(questions)
        return _mean_by_owner(self._layer_scores(pairs, skip).mean(1).tolist(), owners, len(questions))

    def _layer_scores(self, pairs: list[tuple[list[int], list[int]]], skip: int) -> Tensor:
        """Return the relevance in every layer, [pairs, layers] (float64, on the CPU)."""
        cls, sep = self.encoder.tokenizer.cls_token_id, self.encoder.tokenizer.sep_token_id
        rows = [[cls, *question, sep, *context, sep] for question, context in pairs]
        layer_score = _hard_match if self.variant == "official" else _soft_match
        scores = torch.zeros(len(pairs), len(self._layers), dtype=torch.float64)
        for batch in batches_by_length([len(row) for row in rows], self.batch_size):
            ids, lengths = self.encoder.pad([rows[at] for at in batch], self.encoder.tokenizer.pad_token_id or 0)
            words = torch.tensor([len(pairs[at][0]) for at in batch], device=ids.device)[:, None]
            position = torch.arange(ids.shape[1], device=ids.device)
            spans = _Spans(
                question=torch.arange(int(words.max()), device=ids.device) < words - skip,
                context=(position >= words + 2) & (position < lengths[:, None] - 1 - skip),
            )
            arguments = {"input_ids": ids, "attention_mask": (position < lengths[:, None]).long()}
            if getattr(self.encoder.model.config, "type_vocab_size", 0) > 1:
                arguments["token_type_ids"] = ((position >= words + 2) & (position < lengths[:, None])).long()
            with _layer_values(self._layers, layer_score, spans) as values:
                self.encoder.model(**arguments)
            scores[batch] = torch.stack(values, 1).cpu().double()
        return scores

    def _note_truncation(self, count: int) -> None:
        if count and not self.truncated:
            logger.warning(
                "qrelscore: a context is longer than the encoder's %d tokens and is cut at its end (logged once; the "
                "count is in `truncated`); long_context='chunk' reads all of it",
                self.encoder.max_tokens,
            )
        self.truncated += count

    # Global part -----------------------------------------------------------------------------------------------

    def _global(self, questions: list[str], contexts: list[str]) -> list[float]:
        """Return the global relevance of each pair: the gain in confidence, averaged over pieces of the context."""
        comparisons = self._comparisons(questions, contexts)
        missing = {item.piece: item.base for item in comparisons if item.piece not in self._base}
        rows = [*missing.values(), *(item.prompt for item in comparisons)]
        starts = [1] * len(missing) + [item.start for item in comparisons]
        logprobs = causal_logprobs(self.decoder, rows, starts, batch_size=self.batch_size)
        confidence = [self._confidence(values) for values in logprobs]
        known = dict(zip(missing, confidence[: len(missing)], strict=True))
        known |= {item.piece: self._base[item.piece] for item in comparisons if item.piece in self._base}
        gains = []
        for item, prompt in zip(comparisons, confidence[len(missing) :], strict=True):
            base = known[item.piece]
            gains.append(max(0.0, (prompt - base) / abs(base)) if base else 0.0)
        self._remember(known)
        return _mean_by_owner(gains, [item.owner for item in comparisons], len(questions))

    def _comparisons(self, questions: list[str], contexts: list[str]) -> list["_Comparison"]:
        """Return what to compare for each pair: one context, or several pieces of one too long for the decoder."""
        official = self.variant == "official"
        end = [self._eos] if official else []
        spaced = self.decoder.ids([" " + context for context in contexts])
        plain = self.decoder.ids(contexts) if official else spaced
        found = []
        for row, question in enumerate(self.decoder.ids(questions)):
            if official:
                joined = self._joined(questions[row], contexts[row], question + spaced[row])
                if max(len(joined), len(plain[row])) + 2 <= self.decoder.max_tokens:
                    base, prompt = [self._bos, *plain[row], *end], [self._bos, *joined, *end]
                    found.append(_Comparison(row, (contexts[row], 0, WHOLE), base, prompt, start=1))
                    continue
            room = self.decoder.max_tokens - 1 - len(end) - len(question)
            for start in range(0, len(spaced[row]), room) if room > 0 else ():
                piece = spaced[row][start : start + room]
                base, prompt = [self._bos, *piece, *end], [self._bos, *question, *piece, *end]
                key = (contexts[row], start, start + len(piece))
                found.append(_Comparison(row, key, base, prompt, start=1 if official else 1 + len(question)))
        return found

    def _joined(self, question: str, context: str, concatenated: list[int]) -> list[int]:
        """Return the tokens of "question context" as one text, without tokenising the context again if possible."""
        if self._splits_at_spaces and not question[-1:].isspace() and not context[:1].isspace():
            return concatenated
        return self.decoder.ids([f"{question} {context}"])[0]

    def _confidence(self, logprobs: Tensor) -> float:
        return float(logprobs.exp().mean() if self.variant == "official" else logprobs.sum())

    def _remember(self, bases: Mapping["_Piece", float]) -> None:
        """Keep base confidences for later calls, the most recently used ones first."""
        for piece, value in bases.items():
            self._base[piece] = value
            self._base.move_to_end(piece)
        while len(self._base) > CACHED_CONTEXTS:
            self._base.popitem(last=False)


_Piece = tuple[str, int, int]
"""A context's text and the range of its tokens."""


@dataclass(frozen=True)
class _Comparison:
    """A piece of context, scored alone (base) and behind the question (prompt) from token ``start`` on."""

    owner: int
    piece: _Piece
    base: list[int]
    prompt: list[int]
    start: int


@dataclass(frozen=True)
class _Spans:
    """Which tokens of a batch are compared."""

    question: Tensor
    """[batch, longest question], True where compared; column m is position m + 1 of the sequence."""
    context: Tensor
    """[batch, longest sequence], True where compared."""


def _hard_match(attention: Tensor, hidden: Tensor, spans: _Spans) -> Tensor:
    """Mean over question tokens of the cosine to the context token each attends to most, [batch] (official).

    ``attention`` is [batch, question, sequence], the maximum over heads; ``hidden`` [batch, sequence, width].
    """
    best = attention.masked_fill(~spans.context[:, None], -1).argmax(-1)
    unit = normalize(hidden.float(), dim=-1)
    matched = unit.gather(1, best[:, :, None].expand(-1, -1, unit.shape[-1]))
    cosine = (unit[:, 1 : 1 + best.shape[1]] * matched).sum(-1)
    return (cosine * spans.question).sum(1) / spans.question.sum(1)


def _soft_match(attention: Tensor, hidden: Tensor, spans: _Spans) -> Tensor:
    """Mean over question tokens of max_n a'[m, n] cos(m, n), a' normalised over the context, [batch] (eq. 4)."""
    weight = attention.float() * spans.context[:, None]
    weight = weight / weight.sum(-1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    unit = normalize(hidden.float(), dim=-1)
    cosine = unit[:, 1 : 1 + weight.shape[1]] @ unit.transpose(1, 2)
    best = (weight * cosine).masked_fill(~spans.context[:, None], float("-inf")).amax(-1)
    return (best * spans.question).sum(1) / spans.question.sum(1)


@contextmanager
def _layer_values(
    layers: Sequence[Any], layer_score: Callable[[Tensor, Tensor, _Spans], Tensor], spans: _Spans
) -> Iterator[list[Tensor]]:
    """Collect one value per sequence from every layer that runs inside; a layer's attention goes as it ends."""
    values: list[Tensor] = []
    attention: list[Tensor] = []
    rows = slice(1, 1 + spans.question.shape[1])

    def keep(module: nn.Module, arguments: Any, output: Any) -> None:
        attention.append(output[1][:, :, rows].amax(1))

    def reduce(module: nn.Module, arguments: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        values.append(layer_score(attention.pop(), hidden, spans))

    hooks = [layer.attention.register_forward_hook(keep) for layer in layers]
    hooks += [layer.register_forward_hook(reduce) for layer in layers]
    try:
        yield values
    finally:
        for hook in hooks:
            hook.remove()


def _encoder_layers(encoder: FrozenModel) -> list[Any]:
    """Return the layers of a BERT-like encoder, each with an ``attention`` that returns its probabilities."""
    depth = encoder.model.config.num_hidden_layers
    for module in encoder.model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth and hasattr(module[0], "attention"):
            return list(module)
    raise MetricInputError(
        f"qrelscore: the attention of {encoder.name!r} cannot be read; use BERT, RoBERTa or DistilBERT"
    )


def _boundary_tokens(decoder: FrozenModel) -> tuple[int, int]:
    bos, eos = decoder.tokenizer.bos_token_id, decoder.tokenizer.eos_token_id
    if bos is None or eos is None:
        raise MetricInputError(
            f"qrelscore: the tokenizer of {decoder.name!r} has no bos or eos token; use a GPT-2-like one"
        )
    return bos, eos


def _mean_by_owner(values: Sequence[float], owners: Sequence[int], count: int) -> list[float]:
    """Average the values of each owner 0..count-1; 0 for an owner without values."""
    total, number = [0.0] * count, [0] * count
    for value, owner in zip(values, owners, strict=True):
        total[owner] += value
        number[owner] += 1
    return [t / max(1, n) for t, n in zip(total, number, strict=True)]
