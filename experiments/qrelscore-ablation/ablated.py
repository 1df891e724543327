r"""QRelScore with every choice of its formula by itself: the ablations of the paper (Table 3, figure 12), and others.

    PYTHONPATH=. rl-qg score reward=qrelscore \
        reward._target_=experiments.qrelscore-ablation.ablated.AblatedQRelScore +reward.attention=raw …

Source: Wang et al., "QRelScore", EMNLP 2022, equations 2 to 9 and Table 3.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from rewards.errors import MetricInputError, flag, library
from rewards.frozen import FrozenModel
from rewards.relevance.global_relevance import GlobalRelevance
from rewards.relevance.local_relevance import LocalRelevance, Spans, mean_of_words
from rewards.relevance.qrelscore import QRelScore

CHOICES = {
    "attention": ("hard", "weighted", "raw"),
    "aggregation": ("max", "mean", "mover"),
    "last_tokens": ("skip", "keep"),
    "confidence": ("probability", "log_likelihood"),
    "scope": ("sequence", "context"),
    "gain": ("relative", "absolute"),
}

NAMED_LAYERS: dict[str, Callable[[int], Iterable[int]]] = {
    "all": lambda depth: range(1, depth + 1),
    "first": lambda depth: range(1, third(depth) + 1),
    "middle": lambda depth: range(third(depth) + 1, depth - third(depth) + 1),
    "last": lambda depth: range(depth - third(depth) + 1, depth + 1),
    "specific": lambda depth: sorted({1, third(depth), depth - third(depth), depth} - {0}),
    "first_half": lambda depth: range(1, depth // 2 + 1),
    "second_half": lambda depth: range(depth // 2 + 1, depth + 1),
}
"""Layers by name, counted from 1. Of 12 layers Table 3 has first 1-4, middle 5-8, last 9-12, and specific 1, 4, 8, 12
(counted from 0 in the paper): the thirds, and the first layer with the last one of each third. The halves are ours."""


def third(depth: int) -> int:
    """How many layers the first and the last third of an encoder have; the middle has the rest."""
    return max(1, round(depth / 3))


class AblatedQRelScore(QRelScore):
    """`QRelScore` in which each choice may be set by itself; None leaves that of the variant.

    Args:
        encoder, decoder, variant: as there.
        attention: ``"hard"`` gives weight 1 to the context token with the highest attention and 0 to the others
            (official), ``"weighted"`` normalises over the context (paper), ``"raw"`` uses the attention unchanged (the
            other reading of equation 2).
        aggregation: over a question token's context tokens: ``"max"`` of weight times cosine, ``"mean"`` (the weighted
            sum), or ``"mover"``: the largest sum of flow times weight times cosine over flows with row sums 1/M and
            column sums 1/N (needs POT). With hard attention one context token is left, and max and mean agree.
        layers: ``"all"``; ``"first"``, ``"middle"``, ``"last"`` (layers 1-4, 5-8, 9-12 of 12, as in Table 3; in an
            encoder of depth L the first and the last ``max(1, round(L / 3))`` and those between them); ``"specific"``
            (1, 4, 8, 12 of 12; else the first layer and the last of each third); ``"first_half"``, ``"second_half"``;
            or numbers from 1 to L. The embedding layer does not count. The signature has the numbers.
        power: exponent p of the power mean over layers; 1 is the mean, "inf" the maximum. Unless p is 1, a layer's
            negative value counts as 0.
        last_tokens: ``"skip"`` leaves the last token of question and context out of the local part (official),
            ``"keep"`` compares them too (paper).
        confidence: ``"probability"`` (mean over tokens; official) or ``"log_likelihood"`` (sum of log p; paper).
        scope: ``"sequence"`` counts question, context and end token (official), ``"context"`` the context's tokens
            alone (paper).
        gain: ``"relative"`` to the base confidence, or ``"absolute"``.
        clip_gain: whether a loss in confidence counts as 0.
        options: the other options of `QRelScore`.
    """

    def __init__(
        self,
        encoder: str = "bert-base-cased",
        decoder: str = "gpt2",
        variant: str = "official",
        *,
        attention: str | None = None,
        aggregation: str = "max",
        layers: str | Sequence[int] = "all",
        power: float | str = 1.0,
        last_tokens: str | None = None,
        confidence: str | None = None,
        scope: str | None = None,
        gain: str = "relative",
        clip_gain: bool = True,
        **options: Any,
    ) -> None:
        self._chosen = {"attention": attention, "aggregation": aggregation, "last_tokens": last_tokens,
                        "confidence": confidence, "scope": scope, "gain": gain}  # fmt: skip
        self._layers, self._power = checked_layers(layers), checked_power(power)
        self._clip_gain = flag(self.name, "clip_gain", clip_gain)
        super().__init__(encoder, decoder, variant, **options)

    def _formula(self, variant: str, long_context: str | None) -> dict[str, str]:
        formula = super()._formula(variant, long_context)
        for key, value in self._chosen.items():
            if value is not None and value not in CHOICES[key]:
                raise MetricInputError(f"qrelscore: {key} {value!r} does not exist; use {' or '.join(CHOICES[key])}")
        formula |= {key: value for key, value in self._chosen.items() if value is not None}
        return formula | {"power": f"{self._power:g}", "clip_gain": "yes" if self._clip_gain else "no"}

    def _halves(self) -> tuple[LocalRelevance, GlobalRelevance]:
        local = AblatedLocal(
            self.encoder,
            aggregation=self.formula["aggregation"],
            layers=self._layers,
            power=self._power,
            **{key: self.formula[key] for key in ("attention", "last_tokens", "long_context")},
            batch_size=self.batch_size,
        )
        self.formula["layers"] = local.chosen_layers
        globally = AblatedGlobal(
            self.decoder,
            confidence=self.formula["confidence"],
            scope=self.formula["scope"],
            batch_size=self.batch_size,
        )
        globally.exact, globally.clips = self.formula["gain"] == "absolute", self._clip_gain
        return local, globally


class AblatedLocal(LocalRelevance):
    """The local half with any layers, exponent and aggregation, and with the attention as it is."""

    def __init__(
        self, encoder: FrozenModel, *, aggregation: str, layers: str | tuple[int, ...], power: float, **options: Any
    ) -> None:
        super().__init__(encoder, **options)
        self.depth = len(self.layers)
        self.layers = layer_numbers(layers, self.depth)
        self.aggregation, self.power = aggregation, power
        if aggregation == "mover":
            optimal_transport()  # raises now, not at the first score, where it is not installed
        if aggregation != "max":
            what = "the sum over all context tokens" if aggregation == "mean" else "what the flow carries"
            self.notes += (f"A contribution is {what} (aggregation={aggregation}); only the largest is named.",)
        if power != 1:
            self.notes += (f"lrm is the power mean of the layers with exponent {power:g}, not their mean.",)

    @property
    def chosen_layers(self) -> str:
        """``"all"`` or the numbers: a name means other layers in an encoder of another depth."""
        return "all" if sorted(self.layers) == [*range(1, self.depth + 1)] else ",".join(map(str, self.layers))

    def mean(self, values: Tensor) -> Tensor:
        return power_mean(values, self.power)

    def weights(self, attention: Tensor, spans: Spans) -> Tensor:
        return (
            attention.float() * spans.context[:, None]
            if self.attention == "raw"
            else super().weights(attention, spans)
        )

    def relevance(self, weight: Tensor, cosine: Tensor, spans: Spans) -> Tensor:
        if self.aggregation == "mover":
            return moved(weight * cosine, spans)
        if self.aggregation == "mean":
            return mean_of_words((weight * cosine).sum(-1), spans)
        return super().relevance(weight, cosine, spans)

    def contributions(self, weight: Tensor, cosine: Tensor) -> tuple[Tensor, list[int]]:
        product = weight * cosine
        if self.aggregation == "mover":
            flow = torch.from_numpy(optimal_transport().emd([], [], 1.0 - product.numpy()))
            contribution = flow * product * len(product)
            return contribution, contribution.argmax(-1).tolist()
        contribution, best = super().contributions(weight, cosine)
        return product if self.aggregation == "mean" else contribution, best


class AblatedGlobal(GlobalRelevance):
    """The global half with an absolute gain (`exact`: the difference of two close means of probabilities, which no
    division by the first makes larger), or with losses.
    """

    clips = True

    def gain(self, base: float, prompt: float) -> float:
        gain = prompt - base
        if not self.exact:
            gain = gain / abs(base) if base else 0.0
        return max(0.0, gain) if self.clips else gain


def moved(product: Tensor, spans: Spans) -> Tensor:
    """The largest sum of ``flow * product`` over flows with row sums 1/M and column sums 1/N, [pairs]."""
    emd2 = optimal_transport().emd2
    values = []
    for matrix, question, context in zip(product, spans.question, spans.context, strict=True):
        similarity = matrix[question][:, context].double().cpu().numpy()
        values.append(1.0 - float(emd2([], [], 1.0 - similarity)))
    return torch.tensor(values, dtype=torch.float64)


def power_mean(values: Tensor, power: float) -> Tensor:
    """The power mean over the last dimension (equation 3); but for p = 1, values below 0 count as 0."""
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


def layer_numbers(layers: str | tuple[int, ...], depth: int) -> list[int]:
    """The numbers of the chosen layers, 1 to ``depth``."""
    if isinstance(layers, str):
        if layers not in NAMED_LAYERS:
            raise MetricInputError(
                f"qrelscore: layers {layers!r} does not exist; use one of {', '.join(NAMED_LAYERS)}, or numbers"
            )
        numbers = list(NAMED_LAYERS[layers](depth))
        if not numbers:
            raise MetricInputError(
                f"qrelscore: an encoder of depth {depth} has no layers {layers!r}; give numbers from 1 to {depth}"
            )
        return numbers
    numbers = list(layers)
    if not numbers or len(set(numbers)) < len(numbers) or any(number not in range(1, depth + 1) for number in numbers):
        raise MetricInputError(
            f"qrelscore: layers {numbers} do not fit the encoder; give different numbers from 1 to {depth}"
        )
    return numbers


def checked_layers(given: object) -> str | tuple[int, ...]:
    """A name or numbers of layers."""
    if isinstance(given, str):
        return given
    if not isinstance(given, Sequence) or not all(type(number) is int for number in given):
        raise MetricInputError(f"qrelscore: layers {given!r:.60} are neither a name nor a list of whole numbers")
    return tuple(given)


def checked_power(power: float | str) -> float:
    """The exponent; configurations write infinity as text."""
    try:
        number = float(power)
    except (TypeError, ValueError):
        number = float("nan")
    if number != number:
        raise MetricInputError(f"qrelscore: power {power!r} is not a number; use 1 for the mean, inf for the maximum")
    return number


def optimal_transport() -> Any:
    """POT, which solves transport problems; `MetricInputError` where it is not installed."""
    return library("ot", "qrelscore with aggregation='mover'", "'rl-qg[mover]'")
