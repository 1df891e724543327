"""Rewards made of several metrics: a weighted sum, or a product of powers."""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor

from rewards import contract
from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, is_finite
from rewards.loading import load_for
from rewards.signature import own_signature

_UNBOUNDED = (-math.inf, math.inf)
_LABEL = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Part:
    """One metric of a combined reward, and how its score is used."""

    metric: Any
    """A metric, or any object with ``score(questions, contexts, *, answers, references)`` whose result has scores."""
    weight: float = 1.0  # factor in a sum, exponent in a product; a part of weight 0 is shown and has no effect
    clip: tuple[float, float] = _UNBOUNDED  # range to which the raw score is clipped, before it is scaled
    scale: float = 1.0

    @property
    def needs(self) -> frozenset[str]:
        """What the metric reads; a metric without the attribute is assumed to read everything."""
        return frozenset(getattr(self.metric, "needs", contract.WITHOUT_NEEDS))

    def values(self, raw: Sequence[float]) -> Tensor:
        """Return raw scores clipped and scaled, [rows] (float64); NaN stays NaN."""
        return torch.tensor(raw, dtype=torch.float64).clamp(*self.clip) * self.scale

    def describe(self) -> str:
        clip = "none" if self.clip == _UNBOUNDED else "{}..{}".format(*self.clip)
        cls = type(self.metric)
        own = own_signature(f"{cls.__module__}.{cls.__qualname__}", {}, cls)
        name, *choices = getattr(self.metric, "signature", own).split("|")
        return f"weight={self.weight},clip={clip},scale={self.scale},metric={name}[{','.join(choices)}]"


class Combined(Metric):
    """What `Weighted` and `Product` have in common: parts that are scored one by one and shown in the result.

    Args:
        parts: for each label a metric object, or options: ``metric`` (short name, dotted path or metric object; the
            label itself if left out), ``weight`` (1), ``clip`` of the raw score (``[low, high]``, None for no limit),
            ``scale`` after the clipping (1), and any option of the metric.

    A third party's reward can be a part. Without an attribute ``needs`` it receives contexts, answers and references.
    Where it scores None, the combined score is NaN: not applicable. A part that is better when lower needs a negative
    weight.

    Parts of a result: ``<label>``, the raw score, and ``<label>/<name>``, the metric's own parts.
    """

    operation: ClassVar[Callable[[Tensor, Tensor], Tensor]]  # combines the contributions of two parts

    def __init__(self, parts: Mapping[str, Any]) -> None:
        if not isinstance(parts, Mapping) or not parts:
            raise MetricInputError(f"{self.name}: parts is {parts!r}; give at least one, such as {{qrelscore: {{}}}}")
        self.parts = {str(label): _part(f"{self.name}: part {label!r}", str(label), parts[label]) for label in parts}
        self.metrics = [part.metric for part in self.parts.values()]
        self.needs = frozenset[str]().union(*(part.needs for part in self.parts.values()))
        inner = {label: getattr(part.metric, "part_names", ()) for label, part in self.parts.items()}
        self.part_names = tuple(
            key for label, names in inner.items() for key in (label, *(f"{label}/{name}" for name in names))
        )
        self.lower_parts = tuple(
            f"{label}/{name}" for label, part in self.parts.items() for name in getattr(part.metric, "lower_parts", ())
        ) + tuple(label for label, part in self.parts.items() if not getattr(part.metric, "higher_is_better", True))
        self.bounds = self._bounds()

    @abstractmethod
    def contribution(self, label: str, values: Tensor) -> Tensor:
        """Return what a part's clipped and scaled scores contribute, [rows]."""

    def choices(self) -> Mapping[str, object]:
        return {label: part.describe() for label, part in self.parts.items()}

    def compute(self, inputs: Inputs) -> MetricResult:
        contributions: list[Tensor] = []
        parts: dict[str, list[Any]] = {}
        for label, part in self.parts.items():
            columns = {name: getattr(inputs, name) if name in part.needs else None for name in contract.COLUMN}
            try:
                result = contract.scored(part.metric, inputs.questions, columns.pop("contexts"), **columns)
            except contract.WrongReward as error:
                raise contract.WrongReward(f"{self.name}: part {label!r}: {error}") from None
            raw = [math.nan if score is None else score for score in result.scores]
            parts[label] = raw
            parts |= {f"{label}/{name}": list(values) for name, values in result.parts.items()}
            contributions.append(self.contribution(label, part.values(raw)))
        total = reduce(type(self).operation, contributions)
        finite = torch.tensor([parts[label] for label in self.parts], dtype=total.dtype).isfinite().all(0)
        if (beyond := finite & ~(total.abs() <= contract.LARGEST)).any():
            value = total[beyond][0].item()
            raise MetricInputError(f"{self.name}: finite scores of its parts make {value}; lower a weight or a scale")
        return MetricResult(total.tolist(), parts)

    def _bounds(self) -> tuple[float, float]:
        """Combine the bounds of the parts; infinite where nothing is known."""
        bounds: Tensor | None = None
        for label, part in self.parts.items():
            low, high = part.values(contract.bounds_of(part.metric)).sort().values
            extremes = self.contribution(label, torch.stack([low, high, torch.zeros_like(low).clamp(low, high)]))
            corners = extremes if bounds is None else type(self).operation(bounds[:, None], extremes)
            corners = corners.nan_to_num(0.0, math.inf, -math.inf)  # 0 * inf, a limit of zeros; inf - inf, between
            bounds = torch.stack([corners.min(), corners.max()])
        assert bounds is not None
        least, most = bounds.tolist()
        return least, most


class Weighted(Combined):
    """Weighted sum of metrics: sum over parts of weight * scale * clip(raw score).

    Weighted({
        "qrelscore": {"weight": 0.7},
        "qa": {"metric": "qascore", "weight": 0.3, "clip": [-20, 0], "scale": 0.05, "model": "roberta-base"},
    })
    """

    name = "weighted"
    operation = torch.add

    def contribution(self, label: str, values: Tensor) -> Tensor:
        weight = self.parts[label].weight
        return weight * values if weight else torch.zeros_like(values)  # 0 * inf would be NaN


class Product(Combined):
    """Product of powers of metrics: product over parts of (scale * clip(raw score)) ** weight.

        Product({"qrelscore": {"weight": 0.5, "clip": [0.001, None]}, "length": MyMetric()})

    Keep the factors positive with ``clip`` and ``scale``: a negative one reverses the direction of all the others. A
    power that does not exist (of a negative value with a fractional weight, of 0 with a negative weight) raises when
    the metric is built if a part's bounds allow it, rather than in the middle of a run.
    """

    name = "product"
    operation = torch.mul

    def contribution(self, label: str, values: Tensor) -> Tensor:
        weight = self.parts[label].weight
        undefined = ((values < 0) & (not weight.is_integer())) | ((values == 0) & (weight < 0))
        if undefined.any():
            raise MetricInputError(
                f"{self.name}: part {label!r}: a value of {values[undefined][0].item()} (after clip and scale) has no "
                f"power {weight}; clip or scale it to positive values, such as clip: [0.001, null]"
            )
        return values**weight


def _part(where: str, label: str, given: Any) -> Part:
    if not _LABEL.fullmatch(label):
        raise MetricInputError(f"{where}: a label is made of letters, digits, '_', '-' and '.'")
    is_metric = callable(getattr(given, "score", None)) and not isinstance(given, type)
    if not isinstance(given, Mapping) and not is_metric:
        raise MetricInputError(f"{where} is {given!r}; give a metric object, or options such as {{weight: 0.5}}")
    options = dict(given) if isinstance(given, Mapping) else {"metric": given}
    weight, scale = (_number(where, key, options.pop(key, 1.0)) for key in ("weight", "scale"))
    clip = _range(where, options.pop("clip", None))
    if scale == 0:
        raise MetricInputError(f"{where}: scale is 0; weight: 0 shows a part without using it")
    metric = options.pop("metric", label)
    if isinstance(metric, str):
        metric = load_for(where, metric, options)
    elif options:
        raise MetricInputError(f"{where}: {', '.join(options)} cannot be set on a metric that is built already")
    try:
        contract.check_reward(metric)
        contract.check_row_by_row(metric)
    except MetricInputError as error:
        raise MetricInputError(f"{where}: {error}") from None
    if not getattr(metric, "higher_is_better", True) and weight * scale > 0:
        raise MetricInputError(f"{where}: the metric is better when lower; give it a negative weight")
    return Part(metric, weight, clip, scale)


def _number(where: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not is_finite(value):
        raise MetricInputError(f"{where}: {key} is {value!r:.40}; give a finite number")
    return float(value)


def _range(where: str, clip: Any) -> tuple[float, float]:
    if clip is None:
        return _UNBOUNDED
    if isinstance(clip, str) or not isinstance(clip, Sequence) or len(clip) != 2:
        raise MetricInputError(f"{where}: clip is {clip!r}; give [low, high], null for no limit")
    low, high = (
        limit if value is None else _number(where, "clip", value)
        for value, limit in zip(clip, _UNBOUNDED, strict=True)
    )
    if low > high:
        raise MetricInputError(f"{where}: clip is [{low}, {high}]; the first must not be above the second")
    return low, high
