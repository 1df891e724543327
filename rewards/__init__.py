"""Metrics of generated questions, with and without references, each usable as a reward.

    from rewards import QRelScore, QAScore, BARTScore, load

    metric = QRelScore(encoder="bert-base-cased", decoder="gpt2")
    metric.score(questions=[...], contexts=[...]).scores
    load("bleu4").score(questions=[...], references=[[...], ...]).scores

The package depends on torch and transformers only; what a metric needs beyond them (sacrebleu, nltk, ...) is imported
on its first use. Metrics load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rewards.errors import MetricInputError
from rewards.loading import EXPORTS, METRICS, known_name, load
from rewards.signature import VERSION as __version__

if TYPE_CHECKING:
    from rewards.base import Metric, MetricResult
    from rewards.combine import Product, Weighted
    from rewards.embedding.bertscore import BERTScore
    from rewards.embedding.kpqa import KPQA
    from rewards.embedding.moverscore import MoverScore
    from rewards.faithfulness import EntityFaithfulness
    from rewards.form import QuestionForm
    from rewards.learned import BLEURT, COMET, CTC, RQUGE
    from rewards.overlap.answerability import Answerability, QMetric
    from rewards.overlap.bleu import Bleu, Gleu
    from rewards.overlap.chrf import Chrf
    from rewards.overlap.cider import Cider
    from rewards.overlap.meteor import Meteor, Meteor15
    from rewards.overlap.rouge import RougeL
    from rewards.relevance.bartscore import BARTScore
    from rewards.relevance.qascore import QAScore
    from rewards.relevance.qrelscore import QRelScore
    from rewards.relevance.reader import ReaderScore
    from rewards.set_rewards import CoverageSetReward, MultiSetReward, SetReward
    from rewards.sets import Multi, QAAligned, cardinality_difference, match_sets, published_base, self_bleu

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
    "Cider",
    "CoverageSetReward",
    "EntityFaithfulness",
    "Gleu",
    "Meteor",
    "Meteor15",
    "Metric",
    "MetricInputError",
    "MetricResult",
    "MoverScore",
    "Multi",
    "MultiSetReward",
    "Product",
    "QAAligned",
    "QAScore",
    "QMetric",
    "QRelScore",
    "QuestionForm",
    "ReaderScore",
    "RougeL",
    "SetReward",
    "Weighted",
    "__version__",
    "cardinality_difference",
    "known_name",
    "load",
    "match_sets",
    "published_base",
    "self_bleu",
]


def __getattr__(name: str) -> Any:
    if name not in EXPORTS:
        raise AttributeError(f"module 'rewards' has no attribute {name!r}")
    module, attribute = EXPORTS[name].split(":")
    return getattr(import_module(module), attribute)
