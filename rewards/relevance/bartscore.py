"""BARTScore: the probability of one text given another under a sequence-to-sequence model.

Source: Yuan, Neubig, Liu, "BARTScore: Evaluating Generated Text as Text Generation", NeurIPS 2021, equation 2, and
its released code (neulab/BARTScore).
"""

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, batch_of, one_of, path_of
from rewards.frozen import FrozenModel, batches_by_length, flat_positions, on_device, target_logprobs
from rewards.relevance.baselines import MaxMin, read_max_min
from rewards.signature import file_hash

_DIRECTIONS = {**{name: (name,) for name in ("faithfulness", "precision", "recall")}, "f": ("precision", "recall")}


class BARTScore(Metric):
    """Mean log-probability of a target text's tokens given a source text.

    BARTScore(source -> target) = mean over t of log p(y_t | y_<t, source), with y = ``<s> target </s>``; ``<s>`` and
    ``</s>`` count, as in the released code (reproduced to 1e-5; the paper writes a sum with equal weights). Either
    text is cut at the model's length, ``</s>`` kept. Natural logarithm per token, bounds (-inf, 0], higher is better;
    there is no prompt, and even equal texts do not reach 0.

    - ``direction="faithfulness"``: context -> question.
    - ``"precision"``: reference -> question. ``"recall"``: question -> reference. With several references the mean
      over them, as in the released code.
    - ``"f"``: the mean of precision and recall (the paper's F is arithmetic).

    As the QRelScore paper uses it (appendix F): ``BARTScore(weights="bart_score.pth", max_min=…)``, the faithfulness
    of BART-large-CNN after fine-tuning on ParaBank2, max-min normalised.

    Differences from the released code: batches are sorted by length, and a source shared by several targets is encoded
    once (rounding only). Any encoder-decoder may be used, with the special tokens of its tokenizer (T5: ``text
    </s>``).

    Cost: one encoder pass for each distinct source, one decoder pass for each pair.

    Args:
        weights: a torch file of weights for this model, such as the authors' checkpoint after fine-tuning on ParaBank2
            (``bart_score.pth``, for facebook/bart-large-cnn); None leaves those of ``model``.
        max_min: what to map to 0 and 1: ``[low, high]``, or the ``.summary.json`` that ``rl-qg score`` wrote of a set
            of candidates; None leaves the logarithms. Scores beyond the limits are below 0 or above 1.

    Parts: the direction, or ``precision`` and ``recall`` for ``"f"``, in nats whether or not the score is normalised.
    """

    name = "bartscore"
    bounds = (float("-inf"), 0.0)

    def __init__(
        self,
        model: str = "facebook/bart-large-cnn",
        direction: str = "faithfulness",
        *,
        weights: str | Path | None = None,
        max_min: str | Path | Sequence[float] | None = None,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.direction = one_of(self.name, "direction", direction, [*_DIRECTIONS])
        self.part_names = _DIRECTIONS[direction]
        self.needs = frozenset({"contexts" if direction == "faithfulness" else "references"})
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        path = None if weights is None else path_of(self.name, "weights", weights)
        self.model = FrozenModel(model, "seq2seq", device=device, dtype=dtype, weights=path)
        self._weights = None if path is None else f"{path.name}@{file_hash(path)}"
        if not hasattr(self.model.model, "prepare_decoder_input_ids_from_labels"):
            raise MetricInputError(f"bartscore: {model!r} cannot be given a target text; use BART, T5 or PEGASUS")
        self._before, self._after = _special_tokens(self.model.tokenizer)
        self.max_min: MaxMin | None = None
        if max_min is not None:
            self.max_min = read_max_min(max_min, self.name, self.signature)
            self.bounds = (float("-inf"), self.max_min.rescale(0.0))

    def choices(self) -> Mapping[str, object]:
        other = {"weights": self._weights, "max_min": self.max_min}
        return {
            "direction": self.direction,
            "model": self.model.identity,
            **{key: value for key, value in other.items() if value is not None},
            "dtype": self.dtype,
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        texts = list({*inputs.questions, *inputs.contexts}.union(*inputs.references))
        ids = dict(zip(texts, self._delimited(texts), strict=True))
        parts = {part: self._mean_over_sources(part, inputs, ids) for part in self.part_names}
        scores = [sum(values) / len(values) for values in zip(*parts.values(), strict=True)]
        if self.max_min is not None:
            scores = [self.max_min.rescale(score) for score in scores]
        return MetricResult(scores, parts)

    def _mean_over_sources(self, part: str, inputs: Inputs, ids: Mapping[str, list[int]]) -> list[float]:
        if part == "faithfulness":
            return self._pair_scores(inputs.contexts, inputs.questions, ids)
        pairs, _ = inputs.pairs("references")
        questions, references = ([pair[side] for pair in pairs] for side in (0, 1))
        ends = (references, questions) if part == "precision" else (questions, references)
        values = iter(self._pair_scores(*ends, ids))
        return [sum(next(values) for _ in group) / len(group) for group in inputs.references]

    def _pair_scores(self, sources: list[str], targets: list[str], ids: Mapping[str, list[int]]) -> list[float]:
        """Return BARTScore(source -> target) of each pair; every distinct source is encoded once."""
        rows_of: dict[str, list[int]] = {}
        for row, source in enumerate(sources):
            rows_of.setdefault(source, []).append(row)
        distinct = list(rows_of)
        source_ids, target_ids = [ids[text] for text in distinct], [ids[text] for text in targets]
        scores = [0.0] * len(sources)
        tokens = self.model.tokens_at_once
        for group in batches_by_length([*map(len, source_ids)], self.batch_size, tokens):
            encoded = self._encode([source_ids[at] for at in group])
            pairs = [(index, row) for index, at in enumerate(group) for row in rows_of[distinct[at]]]
            # A row takes memory for its target and for its source's keys and values.
            lengths = [len(target_ids[row]) + len(source_ids[group[index]]) for index, row in pairs]
            for batch in batches_by_length(lengths, self.batch_size, tokens):
                chosen = [pairs[at] for at in batch]
                indices, wanted = [index for index, _ in chosen], [target_ids[row] for _, row in chosen]
                for (_, row), values in zip(chosen, self._decode(*encoded, indices, wanted), strict=True):
                    scores[row] = float(values.mean())
        return scores

    def _encode(self, rows: list[list[int]]) -> tuple[Tensor, Tensor, list[Any]]:
        """Return the sources' states [rows, length, width], mask, and keys and values in each layer."""
        model = self.model.model
        sources = self.model.batch(rows)
        ids, mask = sources["input_ids"], sources["attention_mask"]
        states = model.get_encoder()(**sources).last_hidden_state
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        # One step of the decoder, whatever it reads, fills the cache with the keys and values of all layers.
        model.get_decoder()(
            input_ids=ids[:, :1],
            encoder_hidden_states=states,
            encoder_attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        )
        return states, mask, cache.cross_attention_cache.layers

    def _decode(
        self, states: Tensor, mask: Tensor, layers: list[Any], rows: list[int], targets: list[list[int]]
    ) -> tuple[Tensor, ...]:
        """Return log p of each target's tokens given ``rows`` of what `_encode` returned (float64, on the CPU)."""
        model = self.model.model
        labels = self.model.batch(targets)["input_ids"]
        at = on_device(rows, states.device)
        cross = DynamicCache()
        cross.layers = [copy(layer) for layer in layers]
        for layer in cross.layers:
            layer.keys, layer.values = layer.keys[at], layer.values[at]
        # The input of the vocabulary head, scaled as this model does; the head itself computes one position here.
        head, bias, hidden = model.get_output_embeddings(), getattr(model, "final_logits_bias", None), list[Tensor]()

        def collect(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            hidden.append(arguments[0])
            return (arguments[0][:1, :1],)

        hook = head.register_forward_pre_hook(collect)
        try:
            model(
                encoder_outputs=BaseModelOutput(last_hidden_state=states[at]),
                attention_mask=mask[at],
                decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels=labels),
                past_key_values=EncoderDecoderCache(DynamicCache(), cross),
                use_cache=True,
            )
        finally:
            hook.remove()

        def logits(states: Tensor) -> Tensor:
            return head(states) if bias is None else head(states) + bias

        index = flat_positions([range(len(target)) for target in targets], labels)
        read, wanted = hidden[0].flatten(0, 1)[index], labels.flatten()[index]
        logprobs = target_logprobs(logits, read, wanted, vocabulary=self.model.vocabulary)
        return logprobs.cpu().double().split([len(target) for target in targets])

    def _delimited(self, texts: list[str]) -> list[list[int]]:
        room = self.model.max_tokens - len(self._before) - len(self._after)
        every = self.model.ids(texts)
        self.model.note_long(self.name, map(len, every), room)
        return [[*self._before, *ids[:room], *self._after] for ids in every]


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after a text: those the tokenizer adds, or its bos and eos."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    if len(whole) > len(bare):
        for start in range(len(whole) - len(bare) + 1):
            if whole[start : start + len(bare)] == bare:
                return whole[:start], whole[start + len(bare) :]
    ends = [[] if token is None else [token] for token in (tokenizer.bos_token_id, tokenizer.eos_token_id)]
    return ends[0], ends[1]
