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
    from rewards.base import Metric as Metric, MetricResult as MetricResult
    from rewards.combine import Product as Product, Weighted as Weighted
    from rewards.embedding.bertscore import BERTScore as BERTScore
    from rewards.embedding.kpqa import KPQA as KPQA
    from rewards.embedding.moverscore import MoverScore as MoverScore
    from rewards.faithfulness import EntityFaithfulness as EntityFaithfulness
    from rewards.form import QuestionForm as QuestionForm
    from rewards.judge import Judge as Judge
    from rewards.learned import BLEURT as BLEURT, COMET as COMET, CTC as CTC, RQUGE as RQUGE, Usability as Usability
    from rewards.overlap.answerability import Answerability as Answerability, QMetric as QMetric
    from rewards.overlap.bleu import Bleu as Bleu, Gleu as Gleu
    from rewards.overlap.chrf import Chrf as Chrf
    from rewards.overlap.cider import Cider as Cider
    from rewards.overlap.meteor import Meteor as Meteor, Meteor15 as Meteor15
    from rewards.overlap.rouge import RougeL as RougeL
    from rewards.relevance.bartscore import BARTScore as BARTScore
    from rewards.relevance.qascore import QAScore as QAScore
    from rewards.relevance.qrelscore import QRelScore as QRelScore
    from rewards.relevance.reader import ReaderScore as ReaderScore
    from rewards.retrievability import Retrievability as Retrievability
    from rewards.set_rewards import (
        CoverageSetReward as CoverageSetReward,
        MultiSetReward as MultiSetReward,
        SetReward as SetReward,
    )
    from rewards.sets import (
        Multi as Multi,
        QAAligned as QAAligned,
        cardinality_difference as cardinality_difference,
        match_sets as match_sets,
        published_base as published_base,
        self_bleu as self_bleu,
    )
    from rewards.standalone import Standalone as Standalone

_BY_NAME_ONLY = {"LmqgBleu", "LmqgMeteor", "LmqgRougeL", "TruecasedQBleu"}  # known to `load`, not public classes
__all__ = [*sorted(EXPORTS.keys() - _BY_NAME_ONLY), "METRICS", "MetricInputError", "__version__", "known_name", "load"]


def __getattr__(name: str) -> Any:
    if name not in EXPORTS:
        raise AttributeError(f"module 'rewards' has no attribute {name!r}")
    module, attribute = EXPORTS[name].split(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
