"""Reference-free metrics of generated questions, each usable as a reward.

    from rewards import QRelScore, QAScore, BARTScore, load

    metric = QRelScore(encoder="bert-base-cased", decoder="gpt2")
    metric.score(questions=[...], contexts=[...]).scores

The package depends on torch and transformers only. Metrics load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rewards.errors import MetricInputError
from rewards.signature import VERSION as __version__

if TYPE_CHECKING:
    from rewards.bartscore import BARTScore
    from rewards.base import Metric, MetricResult
    from rewards.combine import Product, Weighted
    from rewards.qascore import QAScore
    from rewards.qrelscore import QRelScore

METRICS = {
    "qrelscore": "rewards.qrelscore:QRelScore",
    "qascore": "rewards.qascore:QAScore",
    "bartscore": "rewards.bartscore:BARTScore",
}
"""Short name of every metric, and where it lives."""

_COMBINED = {"weighted": "rewards.combine:Weighted", "product": "rewards.combine:Product"}

_EXPORTS = {
    **{target.split(":")[1]: target for target in [*METRICS.values(), *_COMBINED.values()]},
    "Metric": "rewards.base:Metric",
    "MetricResult": "rewards.base:MetricResult",
}

__all__ = [
    "METRICS",
    "BARTScore",
    "Metric",
    "MetricInputError",
    "MetricResult",
    "Product",
    "QAScore",
    "QRelScore",
    "Weighted",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import a public class when it is first asked for."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rewards' has no attribute {name!r}")
    module, attribute = _EXPORTS[name].split(":")
    return getattr(import_module(module), attribute)


def load(name: str, **options: Any) -> Any:
    """Build a metric from its short name or a dotted path, as the configurations do.

    Args:
        name: ``"qrelscore"``, or the path of any class or function that returns a reward: ``"my_package.MyReward"``;
            ``"weighted"`` and ``"product"`` combine several.
        options: passed on to it.

    Raises:
        MetricInputError: no metric of that name, or nothing at that path.
    """
    known = {**METRICS, **_COMBINED}
    if name in known:
        module, attribute = known[name].split(":")
    else:
        module, _, attribute = name.rpartition(".")
    if not module:
        raise MetricInputError(
            f"unknown metric {name!r}; known are {', '.join(METRICS)}, or give a dotted path like my_package.MyReward"
        )
    try:
        target = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise MetricInputError(f"cannot load the metric {name!r}: {error}") from error
    return target(**options)
