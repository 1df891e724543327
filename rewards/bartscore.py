"""BARTScore: the probability of one text given another under a sequence-to-sequence model.

Source: Yuan, Neubig, Liu, "BARTScore: Evaluating Generated Text as Text Generation", NeurIPS 2021, equation 2, and
its released code (neulab/BARTScore).
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel, batches_by_length, target_logprobs

_DIRECTIONS = {
    "faithfulness": ("faithfulness",),
    "precision": ("precision",),
    "recall": ("recall",),
    "f": ("precision", "recall"),
}


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

    Difference from the released code: batches are sorted by length, and a context shared by several questions of a
    batch is encoded once. That changes scores by rounding only.

    Args:
        model: BART-like encoder-decoder, a local folder or a Hub name.
        direction: ``"faithfulness"``, ``"precision"``, ``"recall"`` or ``"f"``.
        batch_size: pairs per forward pass.
        device: where to run; None takes the current GPU if there is one, else the CPU.
        dtype: floating-point type of the model.

    Parts: the direction, or ``precision`` and ``recall`` for ``"f"``.

    Raises:
        MetricInputError: a direction that does not exist, or a model that cannot be loaded or does not fit.
    """

    name = "bartscore"
    bounds = (float("-inf"), 0.0)

    def __init__(
        self,
        model: str = "facebook/bart-large-cnn",
        direction: str = "faithfulness",
        *,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        if direction not in _DIRECTIONS:
            raise MetricInputError(
                f"bartscore: direction {direction!r} does not exist; use one of {', '.join(_DIRECTIONS)}"
            )
        self.direction = direction
        self.part_names = _DIRECTIONS[direction]
        self.needs = frozenset({"contexts" if direction == "faithfulness" else "references"})
        self.batch_size = batch_size
        self.dtype = dtype
        self.model = FrozenModel(model, "seq2seq", device=device, dtype=dtype)
        if not hasattr(self.model.model, "final_logits_bias"):
            raise MetricInputError(f"bartscore: {model!r} is not a BART-like model; use BART, mBART or PEGASUS")

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {"direction": self.direction, "model": self.model.identity, "dtype": self.dtype}

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return the score and one part per direction it was made of."""
        parts = {part: self._mean_over_sources(part, inputs) for part in self.part_names}
        scores = [sum(values) / len(values) for values in zip(*parts.values(), strict=True)]
        return MetricResult(scores, parts)

    def _mean_over_sources(self, part: str, inputs: Inputs) -> list[float]:
        """Return one value per question: the mean over its references, or that of its context."""
        if part == "faithfulness":
            return self._pair_scores(inputs.contexts, inputs.questions)
        questions: list[str] = []
        references: list[str] = []
        for question, group in zip(inputs.questions, inputs.references, strict=True):
            questions += [question] * len(group)
            references += group
        pair = (references, questions) if part == "precision" else (questions, references)
        values = iter(self._pair_scores(*pair))
        return [sum(next(values) for _ in group) / len(group) for group in inputs.references]

    def _pair_scores(self, sources: list[str], targets: list[str]) -> list[float]:
        """Return BARTScore(source -> target) of each pair."""
        source_ids, target_ids = self._closed(sources), self._closed(targets)
        start, pad = self.model.model.config.decoder_start_token_id, self.model.tokenizer.pad_token_id
        scores = [0.0] * len(sources)
        # Equal sources have equal lengths, and sorting is stable, so a context's questions mostly share a batch.
        for batch in batches_by_length([len(ids) for ids in source_ids], self.batch_size):
            states, readable = self._encode([source_ids[at] for at in batch], pad)
            labels, lengths = self.model.pad([target_ids[at] for at in batch], pad)
            shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], 1)
            hidden = self.model.model.base_model(
                encoder_outputs=BaseModelOutput(last_hidden_state=states),
                attention_mask=readable,
                decoder_input_ids=shifted,
                use_cache=False,
            ).last_hidden_state
            read = torch.arange(labels.shape[1], device=labels.device) < lengths[:, None]
            logprobs = (
                target_logprobs(self._logits, hidden[read], labels[read], vocabulary=self.model.vocabulary)
                .cpu()
                .double()
            )
            for at, values in zip(batch, logprobs.split(read.sum(1).tolist()), strict=True):
                scores[at] = float(values.mean())
        return scores

    def _encode(self, rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
        """Return the encoder states and the attention mask of each row, encoding equal rows once."""
        place: dict[tuple[int, ...], int] = {}
        chosen = [place.setdefault(tuple(row), len(place)) for row in rows]
        ids, lengths = self.model.pad([list(row) for row in place], pad)
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        states = self.model.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return states[chosen], mask[chosen]

    def _closed(self, texts: list[str]) -> list[list[int]]:
        """Return ``<s> text </s>`` of each text, cut at the model's length with ``</s>`` kept."""
        bos, eos = self.model.tokenizer.bos_token_id, self.model.tokenizer.eos_token_id
        room = self.model.max_tokens - 2
        return [[bos, *ids[:room], eos] for ids in self.model.ids(texts)]

    def _logits(self, hidden: Tensor) -> Tensor:
        return self.model.model.lm_head(hidden) + self.model.model.final_logits_bias
