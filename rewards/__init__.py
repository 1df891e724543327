"""Metrics of generated questions, with and without references, each usable as a reward.

    from rewards import QRelScore, QAScore, BARTScore, load

    metric = QRelScore(encoder="bert-base-cased", decoder="gpt2")
    metric.score(questions=[...], contexts=[...]).scores
    load("bleu4").score(questions=[...], references=[[...], ...]).scores

The package depends on torch and transformers only; what a metric needs beyond them (sacrebleu, nltk, ...) is imported
on its first use. Metrics load on first use.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rewards.errors import MetricInputError
from rewards.signature import VERSION as __version__

if TYPE_CHECKING:
    from rewards.answerability import Answerability, QMetric
    from rewards.bartscore import BARTScore
    from rewards.base import Metric, MetricResult
    from rewards.bertscore import BERTScore
    from rewards.combine import Product, Weighted
    from rewards.kpqa import KPQA
    from rewards.learned import BLEURT, COMET, CTC, RQUGE
    from rewards.meteor import Meteor
    from rewards.moverscore import MoverScore
    from rewards.overlap import Bleu, Chrf, Gleu
    from rewards.qascore import QAScore
    from rewards.qrelscore import QRelScore
    from rewards.question_sets import Multi, cardinality_difference, match_sets, self_bleu
    from rewards.rouge import RougeL

METRICS: dict[str, str | tuple[str, Mapping[str, Any]]] = {
    "qrelscore": "rewards.qrelscore:QRelScore",
    "qascore": "rewards.qascore:QAScore",
    "bartscore": "rewards.bartscore:BARTScore",
    **{f"bleu{order}": ("rewards.overlap:Bleu", {"order": order}) for order in range(1, 5)},
    **{f"coco_bleu{order}": ("rewards.overlap:Bleu", {"order": order, "variant": "coco"}) for order in range(1, 5)},
    "rouge_l": "rewards.rouge:RougeL",
    "rougeL": "rewards.rouge:RougeL",
    "coco_rouge_l": ("rewards.rouge:RougeL", {"variant": "coco"}),
    "meteor": "rewards.meteor:Meteor",
    "gleu": "rewards.overlap:Gleu",
    "chrf": "rewards.overlap:Chrf",
    "answerability": "rewards.answerability:Answerability",
    **{f"q_bleu{order}": ("rewards.answerability:QMetric", {"ngram": f"bleu{order}"}) for order in range(1, 5)},
    **{name: ("rewards.answerability:QMetric", {"ngram": "rouge_l"}) for name in ("q_rouge_l", "q_rouge")},
    "q_meteor": ("rewards.answerability:QMetric", {"ngram": "meteor"}),
    "bertscore": "rewards.bertscore:BERTScore",
    "moverscore": "rewards.moverscore:MoverScore",
    **{f"{metric}_kpqa": ("rewards.kpqa:KPQA", {"metric": metric}) for metric in ("bleu1", "rouge_l", "bertscore")},
    "bleurt": "rewards.learned:BLEURT",
    "comet": "rewards.learned:COMET",
    "rquge": "rewards.learned:RQUGE",
    "ctc": "rewards.learned:CTC",
}
"""Short name of every metric, and where it lives, with the options that the name stands for."""


def _named(entry: str | tuple[str, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """Return ``module:Class`` and the options of an entry of the table."""
    return (entry, {}) if isinstance(entry, str) else entry


_COMBINED = {"weighted": "rewards.combine:Weighted", "product": "rewards.combine:Product"}

_EXPORTS = {
    **{target.split(":")[1]: target for target, _ in map(_named, [*METRICS.values(), *_COMBINED.values()])},
    "Metric": "rewards.base:Metric",
    "MetricResult": "rewards.base:MetricResult",
    **{
        name: f"rewards.question_sets:{name}"
        for name in ("Multi", "match_sets", "self_bleu", "cardinality_difference")
    },
}

__all__ = [
    "BLEURT",
    "COMET",
    "CTC",
    "KPQA",
    "METRICS",
    "RQUGE",
    "Answerability",
    "BARTScore",
    "BERTScore",
    "Bleu",
    "Chrf",
    "Gleu",
    "Meteor",
    "Metric",
    "MetricInputError",
    "MetricResult",
    "MoverScore",
    "Multi",
    "Product",
    "QAScore",
    "QMetric",
    "QRelScore",
    "RougeL",
    "Weighted",
    "__version__",
    "cardinality_difference",
    "known_name",
    "load",
    "match_sets",
    "self_bleu",
]


def __getattr__(name: str) -> Any:
    """Import a public class or function when it is first asked for."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rewards' has no attribute {name!r}")
    module, attribute = _EXPORTS[name].split(":")
    return getattr(import_module(module), attribute)


def known_name(name: str, /) -> str:
    """Return the short name that another spelling of it stands for, or the name itself where there is none.

    Neither case nor ``-`` and ``_`` matter: "Q-BLEU1" is ``q_bleu1``, "ROUGE-L" is ``rouge_l``.
    """
    known = [*METRICS, *_COMBINED]
    return name if name in known else next((other for other in known if _folded(other) == _folded(name)), name)


def _folded(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


def load(name: str, /, **options: Any) -> Any:
    """Build a metric from its short name or a dotted path, as the configurations do.

    Args:
        name: ``"qrelscore"``, in any spelling that `known_name` knows, or the path of any class or function that
            returns a reward: ``"my_package.MyReward"``; ``"weighted"`` and ``"product"`` combine several.
        options: passed on to it; they win over those that a short name stands for (``"bleu4"`` is ``order=4``).

    Raises:
        MetricInputError: no metric of that name, or nothing at that path.
    """
    known = {**METRICS, **_COMBINED}
    named: Mapping[str, Any] = {}
    if (short := known_name(name)) in known:
        path, named = _named(known[short])
        module, attribute = path.split(":")
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
    return target(**{**named, **options})
