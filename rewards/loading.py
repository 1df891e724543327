"""The table of metrics, and loading one by its name."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from inspect import isfunction, signature
from typing import Any

from rewards.contract import cannot_end_the_program, check_reward, failure
from rewards.errors import MetricInputError, UnreachableModel
from rewards.signature import own_signature

ORDERS = (1, 2, 3, 4)
_BLEU, _ROUGE_L, _KPQA = "rewards.overlap.bleu:Bleu", "rewards.overlap.rouge:RougeL", "rewards.embedding.kpqa:KPQA"
_Q_METRIC = "rewards.overlap.answerability:QMetric"
_FREE = {"against": "context_as_reference", "weights": "qrelscore"}

METRICS: dict[str, str | tuple[str, Mapping[str, Any]]] = {
    "qrelscore": "rewards.relevance.qrelscore:QRelScore",
    "qascore": "rewards.relevance.qascore:QAScore",
    "bartscore": "rewards.relevance.bartscore:BARTScore",
    "reader": "rewards.relevance.reader:ReaderScore",
    "form": "rewards.form:QuestionForm",
    "faithfulness": "rewards.faithfulness:EntityFaithfulness",
    "standalone": "rewards.standalone:Standalone",
    "usability": "rewards.learned:Usability",
    "judge": "rewards.judge:Judge",
    "retrievability": "rewards.retrievability:Retrievability",
    **{f"bleu{order}": (_BLEU, {"order": order}) for order in ORDERS},
    **{f"coco_bleu{order}": (_BLEU, {"order": order, "variant": "coco"}) for order in ORDERS},
    "rouge_l": _ROUGE_L,
    "rougeL": _ROUGE_L,
    "coco_rouge_l": (_ROUGE_L, {"variant": "coco"}),
    "meteor": "rewards.overlap.meteor:Meteor",
    "meteor15": "rewards.overlap.meteor:Meteor15",
    **{f"lmqg_bleu{order}": ("rewards.overlap.published_lmqg:LmqgBleu", {"order": order}) for order in ORDERS},
    "lmqg_rouge_l": "rewards.overlap.published_lmqg:LmqgRougeL",
    "lmqg_meteor": "rewards.overlap.published_lmqg:LmqgMeteor",
    "gleu": "rewards.overlap.bleu:Gleu",
    "chrf": "rewards.overlap.chrf:Chrf",
    "cider": "rewards.overlap.cider:Cider",
    "answerability": "rewards.overlap.answerability:Answerability",
    **{f"q_bleu{order}": (_Q_METRIC, {"ngram": f"bleu{order}"}) for order in ORDERS},
    **{f"q_bleu{order}_truecased": ("rewards.overlap.truecased:TruecasedQBleu", {"order": order}) for order in ORDERS},
    "q_rouge_l": (_Q_METRIC, {"ngram": "rouge_l"}),
    "q_rouge": (_Q_METRIC, {"ngram": "rouge_l"}),
    "q_meteor": (_Q_METRIC, {"ngram": "meteor"}),
    **{
        f"q_{ngram}_free": (_Q_METRIC, {"ngram": ngram, **_FREE})
        for ngram in (*(f"bleu{order}" for order in ORDERS), "rouge_l", "meteor")
    },
    "bertscore": "rewards.embedding.bertscore:BERTScore",
    "moverscore": "rewards.embedding.moverscore:MoverScore",
    **{f"{metric}_kpqa": (_KPQA, {"metric": metric}) for metric in ("bleu1", "rouge_l", "bertscore")},
    "bleurt": "rewards.learned:BLEURT",
    "comet": "rewards.learned:COMET",
    "rquge": "rewards.learned:RQUGE",
    "ctc": "rewards.learned:CTC",
}  # short name of every metric, with its module and class, and the options that the name implies

OWN_CODE_ONLY = "RL_QG_OWN_CODE_ONLY"  # where it is set, dotted paths to other code are refused

SET_REWARDS = {
    "multi_set": "rewards.set_rewards:MultiSetReward",
    "question_set": "rewards.set_rewards:CoverageSetReward",
}  # rewards of sets of questions; no metrics of single ones (`rewards.contract.is_set_reward`)

_COMBINED = {"weighted": "rewards.combine:Weighted", "product": "rewards.combine:Product"}

_TARGETS: dict[str, tuple[str, Mapping[str, Any]]] = {
    name: (entry, {}) if isinstance(entry, str) else entry
    for name, entry in {**METRICS, **_COMBINED, **SET_REWARDS}.items()
}
_OF_SETS = ("Multi", "match_sets", "self_bleu", "cardinality_difference", "QAAligned", "published_base")

EXPORTS = {
    **{target.split(":")[1]: target for target, _ in _TARGETS.values()},
    "Metric": "rewards.base:Metric",
    "MetricResult": "rewards.base:MetricResult",
    "SetReward": "rewards.set_rewards:SetReward",
    **{name: f"rewards.sets:{name}" for name in _OF_SETS},
}


def known_name(name: str, /) -> str:
    """Return the short name for another spelling of it, or the name itself where it is no spelling of one.

    Neither case nor ``-`` and ``_`` matter: "Q-BLEU1" is ``q_bleu1``, "ROUGE-L" is ``rouge_l``.
    """
    folded = {other.casefold().replace("_", ""): other for other in reversed(_TARGETS)}
    return name if name in _TARGETS else folded.get(name.casefold().replace("-", "").replace("_", ""), name)


def load(name: str, /, **options: Any) -> Any:
    """Build a metric from its short name, in any spelling that `known_name` knows, or the dotted path of any class or
    function that returns a reward (``"my_package.MyReward"``), as the configurations do. ``"weighted"`` and
    ``"product"`` combine several; ``"multi_set"`` and ``"question_set"`` are rewards of sets.

    ``options`` are passed on to it, and override those that a short name implies (``"bleu4"`` is ``order=4``).
    """
    module, attribute, implied = _place(name)
    if not module:
        raise MetricInputError(
            f"unknown metric {name!r}; known are {', '.join(METRICS)}, or give a dotted path like my_package.MyReward"
        )
    try:
        with cannot_end_the_program():
            target = getattr(import_module(module), attribute)
    except Exception as error:
        at = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        raise MetricInputError(f"cannot load the metric {name!r}: {at}{error}") from error
    if module.split(".")[0] == __package__:
        return target(**{**implied, **options})
    if not callable(target):
        raise MetricInputError(f"cannot load the metric {name!r}: it is {target!r:.60}, not a class or a function")
    asked = signature(target).parameters.get("questions") if isfunction(target) else None
    if asked is not None and asked.default is asked.empty and "questions" not in options:
        raise MetricInputError(
            f"cannot load the metric {name!r}: it takes questions itself; give a class, or a function that returns an "
            "object, with a method score(questions, contexts, …)"
        )
    try:
        with cannot_end_the_program():
            reward = target(**options)
    except (MetricInputError, TypeError, MemoryError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise  # torch's, which is not loaded here
        raise MetricInputError(f"cannot build the metric {name!r}: {failure(error, target)}") from error
    check_reward(reward)
    own = own_signature(attribute, options, target, type(reward))
    with suppress(AttributeError, TypeError):  # an object that takes no attributes
        object.__setattr__(reward, "own_signature" if hasattr(reward, "signature") else "signature", own)
    return reward


def load_for(where: str, name: str, options: Mapping[str, Any]) -> Any:
    """`load` a part of another reward; ``where`` begins the message of an error."""
    try:
        return load(name, **options)
    except (MetricInputError, TypeError) as error:
        kind = UnreachableModel if isinstance(error, UnreachableModel) else MetricInputError
        raise kind(f"{where}: {option_fault(error)}") from error


def option_fault(error: Exception) -> str:
    """What Python says of an argument that a class does not have, in the words of a user."""
    return re.sub(r"^\S+\(\) got an unexpected keyword argument", "it has no option", str(error))


def has_models(name: str, /) -> bool:
    """Whether a metric may load models: all but those that compare words and names, or ask a server."""
    without = ("rewards.overlap.", "rewards.faithfulness", "rewards.standalone", "rewards.judge")
    return not _place(name)[0].startswith(without)


def _place(name: str) -> tuple[str, str, Mapping[str, Any]]:
    """Module, attribute and implied options of a short name or a dotted path; "" as module where it is neither."""
    if (short := known_name(name)) in _TARGETS:
        path, implied = _TARGETS[short]
        module, attribute = path.split(":")
        return module, attribute, implied
    module, _, attribute = name.rpartition(".")
    if name.startswith("rewards.") and attribute in EXPORTS:
        module, attribute = EXPORTS[attribute].split(":")  # also its path in earlier versions
    elif module:
        check_allowed(name)
    return module, attribute, {}


@contextmanager
def own_code_only() -> Iterator[None]:
    """Within the block this process, and those that it starts, import nothing that is not of these packages."""
    before = os.environ.get(OWN_CODE_ONLY)
    os.environ[OWN_CODE_ONLY] = "1"
    try:
        yield
    finally:
        del os.environ[OWN_CODE_ONLY]
        if before is not None:
            os.environ[OWN_CODE_ONLY] = before


def check_allowed(name: str) -> None:
    """Raise `MetricInputError` where this process may import nothing that is not of these packages."""
    if os.environ.get(OWN_CODE_ONLY):
        raise MetricInputError(
            f"{name!r} is not a part of this package, and the study that names it may import nothing else; if you "
            "trust it, add --allow-imports"
        )
