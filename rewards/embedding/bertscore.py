"""BERTScore: each token of one text is matched with the most similar token of another.

Source: Zhang, Kishore, Wu, Weinberger, Artzi, "BERTScore: Evaluating Text Generation with BERT", ICLR 2020, equations
1 to 3 (recall, precision, F), 3.1 (idf) and 4 (rescaling), and its released code (Tiiiger/bert_score, 0.3.13).
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from rewards.base import Inputs, Metric, MetricResult
from rewards.embedding.token_embeddings import Embedded, TextEncoder, WordWeights, needs_of
from rewards.errors import MetricInputError, batch_of, number, one_of, packaged, path_of
from rewards.frozen import FrozenModel, batches_by_length, best_of_rows, on_device

PARTS = ("precision", "recall", "f")

SIMILARITIES_AT_ONCE = 1 << 20  # cosines in one padded matrix product; bounds memory

PUBLISHED_LAYERS: dict[str, int] = packaged("published.toml")["bertscore_layers"]


class BERTScore(Metric):
    """Greedy matching of token embeddings by cosine.

    With unit embeddings of the candidate's tokens x_i and the reference's y_j, and weights of tokens w:
    ``precision = sum_i w(x_i) max_j x_i·y_j / sum_i w(x_i)``, ``recall`` the same from the reference's side,
    ``f = 2pr / (p + r)``. The candidate is the question. Bounds [-1, 1] without rescaling; higher is better. With
    several references the largest value, for precision, recall and F separately, as in the released code.

    ``part`` is which of the three is the score. ``against="context"`` compares with the passage instead of references.
    Recall is then always small (a question does not repeat its whole passage), so ``part="precision"`` is the useful
    reference-free form; it rewards copying.

    Differences from the released code, otherwise equal to float32 rounding: an empty text scores 0 as there, but does
    not crash with transformers 5; F is 0 where p + r <= 0, and -1 where the formula gives less (one of the two below
    0); a text all of whose tokens have idf 0 gets equal weights instead of NaN. As there, special tokens have no
    weight but can be matched. Cosines are in float32.

    Cost: one forward pass for each distinct text, the layers above ``layer`` left out; one matrix product per pair.

    Args:
        layer: the layer whose output is compared (0: embeddings); None takes the published one of a known model, else
            the last.
        idf: texts, or a file with one per line, whose document frequencies weight the tokens; None for no idf. The
            released code counts in the references of the call, by which a score depends on the other rows.
        rescale: ``(value - b) / (1 - b)`` with a baseline b: a number for all three parts, or a file of baselines as
            bert-score ships them (columns LAYER, P, R, F), of which the line of ``layer`` is used; None for no
            rescaling.

    Parts: ``precision``, ``recall``, ``f``.
    """

    name = "bertscore"
    part_names = PARTS

    def __init__(
        self,
        model: str = "roberta-large",
        *,
        layer: int | None = None,
        idf: Sequence[str] | str | Path | None = None,
        rescale: float | str | Path | None = None,
        part: str = "f",
        against: Literal["references", "context"] = "references",
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.needs = needs_of(against, self.name)
        self.part = one_of(self.name, "part", part, PARTS)
        self.against = against
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        self.encoder = FrozenModel(model, "encoder", device=device, dtype=dtype)
        depth = int(self.encoder.model.config.num_hidden_layers)
        published = PUBLISHED_LAYERS.get(Path(self.encoder.name).name, depth)
        self.layer = min(published, depth) if layer is None else layer
        self._embed = TextEncoder(self.encoder, [self.layer], batch_size=batch_size, name=self.name)
        self._weights = WordWeights(idf, self._embed, marks=0.0, name=self.name)
        self._baseline = _baseline(rescale, self.layer)
        self.bounds = (-1.0, 1.0) if rescale is None else (float("-inf"), 1.0)

    def choices(self) -> Mapping[str, object]:
        baseline = "none" if self._baseline is None else ",".join(f"{value:.6g}" for value in self._baseline.tolist())
        return {
            "part": self.part,
            "against": self.against,
            "layer": self.layer,
            "idf": self._weights.description,
            "rescale": baseline,
            "model": self.encoder.identity,
            "dtype": self.dtype,
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        pairs, owners = inputs.pairs(self.against)
        values = torch.zeros(len(pairs), 3, dtype=torch.float64)
        for positions, embedded in self._embed.blocks(pairs):
            weights = {text: self._weights(item.tokens) for text, item in embedded.items()}
            chosen = [pairs[at] for at in positions]
            values[positions] = greedy_match(
                [(embedded[question], embedded[text]) for question, text in chosen],
                [(weights[question], weights[text]) for question, text in chosen],
            )
        best = best_of_rows(values, owners, len(inputs.questions))
        if self._baseline is not None:
            best = (best - self._baseline) / (1 - self._baseline)
        parts = dict(zip(PARTS, best.T.tolist(), strict=True))
        return MetricResult(parts[self.part], dict(parts))


def greedy_match(pairs: Sequence[tuple[Embedded, Embedded]], weights: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return precision, recall and F of each pair, a candidate and a reference, [pairs, 3] (float64, on the CPU).

    The first layer of their states is used. ``weights`` are those of the tokens of both, special tokens included; a
    token of weight 0 can still be matched. A side whose weights add up to 0 makes all three 0.
    """
    matched = torch.zeros(len(pairs), 2, dtype=torch.float64)
    lengths = [max(len(one.tokens.ids), len(other.tokens.ids)) for one, other in pairs]
    longest = max(lengths, default=1)
    for batch in batches_by_length(lengths, len(pairs), max(1, SIMILARITIES_AT_ONCE // longest)):
        states, masks, weighed = zip(*(_padded([pairs[at][side] for at in batch], [weights[at][side] for at in batch])
                                       for side in (0, 1)), strict=True)  # fmt: skip
        cosine = (states[0] @ states[1].transpose(1, 2)).clamp(-1, 1)
        precision = _mean(cosine.masked_fill(~masks[1][:, None], -2).amax(2), weighed[0])
        recall = _mean(cosine.masked_fill(~masks[0][:, :, None], -2).amax(1), weighed[1])
        matched[batch] = torch.stack([precision, recall], 1)
    empty = torch.tensor([bool((one.sum() <= 0) | (other.sum() <= 0)) for one, other in weights], dtype=torch.bool)
    precision, recall = matched.masked_fill(empty[:, None], 0).unbind(1)
    total = precision + recall
    f = torch.where(total > 0, 2 * precision * recall / total, 0.0).clamp_min(-1)  # precision 0.5, recall -0.4: -4
    return torch.stack([precision, recall, f], 1)


def _padded(texts: Sequence[Embedded], weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return unit vectors [texts, longest, width], the mask of tokens [texts, longest], and the weights likewise."""
    states = pad_sequence([normalize(text.states[0], dim=-1) for text in texts], batch_first=True)
    lengths = on_device([len(text.tokens.ids) for text in texts], states.device)
    mask = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
    return states, mask, pad_sequence(list(weights), batch_first=True).to(states.device, non_blocking=True)


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return weighted means over the last dimension, [rows] (float64, on the CPU); 0 where weights add up to 0."""
    total = weights.double().sum(1)
    mean = (values.double() * weights.double()).sum(1) / total
    return torch.where(total > 0, mean, 0.0).cpu()


def _baseline(rescale: float | str | Path | None, layer: int) -> Tensor | None:
    if rescale is None:
        return None
    if not isinstance(rescale, str | Path):
        values = [number("bertscore", "rescale", rescale)] * 3
    else:
        try:
            with path_of("bertscore", "rescale", rescale).open(encoding="utf-8-sig", newline="") as file:
                rows = {int(row["LAYER"]): row for row in csv.DictReader(file)}
            values = [float(rows[layer][part]) for part in "PRF"]
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise MetricInputError(
                f"bertscore: rescale={str(rescale)!r} has no baselines of layer {layer} ({type(error).__name__}: "
                f"{error}); give a file with columns LAYER,P,R,F, or a number"
            ) from None
    if any(not -1 <= value < 1 for value in values):
        raise MetricInputError(f"bertscore: rescale={rescale!r} is not a cosine below 1")
    return torch.tensor(values, dtype=torch.float64)
