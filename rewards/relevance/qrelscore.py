"""QRelScore: how relevant a question is to its context; a local part from BERT and a global part from GPT-2.

Source: Wang, Liu, Tang, Wu, "QRelScore: Better Evaluating Generated Questions with Deeper Understanding of
Context-aware Relevance", EMNLP 2022, and its released code (Robert-xiaoqiang/QRelScore).
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, batch_of, flag
from rewards.frozen import FrozenModel
from rewards.relevance.baselines import PARTS, PUBLISHED, Baselines, read_baselines
from rewards.relevance.explanation import Explanation, explain
from rewards.relevance.global_relevance import GlobalChoices, GlobalRelevance
from rewards.relevance.local_relevance import LocalChoices, LocalRelevance

logger = logging.getLogger(__name__)

_VARIANTS: dict[str, dict[str, Any]] = {
    "official": {
        "attention": "hard",
        "last_tokens": "skip",
        "long_context": "truncate",
        "confidence": "probability",
        "scope": "sequence",
        "clip_rescaled": True,
    },
    "paper": {
        "attention": "weighted",
        "last_tokens": "keep",
        "long_context": "chunk",
        "confidence": "log_likelihood",
        "scope": "context",
        "clip_rescaled": False,
    },
}
"""The options of the two variants where the caller gives None."""

_CHOICES = {
    "attention": ("hard", "weighted", "raw"),
    "aggregation": ("max", "mean", "mover"),
    "last_tokens": ("skip", "keep"),
    "long_context": ("truncate", "chunk"),
    "confidence": ("probability", "log_likelihood"),
    "scope": ("sequence", "context"),
    "gain": ("relative", "absolute"),
}


class QRelScore(Metric):
    """Harmonic mean of a local (LRM) and a global (GRG) relevance.

    With question tokens m, context tokens n, encoder layers l, hidden states h_l (the output of layer l) and
    a_l[m, n] = the attention of layer l from m to n, maximum over heads, in ``[CLS] question [SEP] context [SEP]``:

    ``variant="official"`` (the released code, to 1e-5; the form that was validated against human ratings):

    - ``lrm`` = mean over l of mean over m of cos(h_l(m), h_l(n*)), n* = argmax_n a_l[m, n]. The size of the attention
      is not used; the last question token and the last context token are left out. In [-1, 1].
    - conf(text) = mean over all tokens of ``text <eos>`` of p(token | tokens before); conf_base = conf(context),
      conf_prompt = conf("question context"): question tokens count too.
    - ``grg`` = max(0, (conf_prompt - conf_base) / conf_base). score = 2 lrm grg / (lrm + grg + 1e-8).

    ``variant="paper"`` (its equations 1 to 9, with one of the readings of equation 2):

    - ``lrm`` = mean over l of mean over m of max_n a'_l[m, n] cos(h_l(m), h_l(n)), with a' = a normalised over the
      context tokens. It is of order 1 / (number of context tokens) where attention is flat. In [-1, 1]. Equation 2
      takes the maximum over heads of "normalized" attention: the plainest reading is ``attention="raw"``, the
      softmax's weights as they are; ``"weighted"`` normalises that maximum again, as a line of the released code does.
      Neither has the layer values of 0.7 to 1.0 of which the text speaks; only ``"hard"`` can.
    - conf = sum of log p over the context tokens alone, after ``<bos>`` (base) or ``<bos> question`` (prompt).
    - ``grg`` = max(0, (conf_prompt - conf_base) / |conf_base|). score = 2 lrm grg / (lrm + grg), 0 if lrm + grg <= 0.

    Where the released code crashes or gives NaN, ``official`` differs from it: a question of zero or one token, a
    context of zero or one token, or a question that fills the encoder has ``lrm`` 0, so score 0. A text too long for
    the decoder is scored as the paper says, in pieces: the context is cut into the largest pieces that fit after the
    question, each piece is scored as a separate context, and the gains are averaged; where no piece fits, ``grg`` is
    0.

    The score has no unit. Both formulas stay below 2 and above 0 while ``lrm`` is positive, as with every trained
    BERT. For a negative ``lrm``, or for parts rescaled without ``clip_rescaled``, the formula has no bound, so no
    bounds are declared.

    Cost: one encoder pass over question and context and one decoder pass over them for each pair, one decoder pass
    for each distinct context.

    Args:
        encoder: encoder whose attention can be read (BERT, RoBERTa, …), a local folder or a Hub name.
        decoder: causal language model, a local folder or a Hub name.
        variant: ``"official"`` or ``"paper"``: the value of each option below that is None.
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
        long_context: for a context longer than the encoder: ``"truncate"`` keeps its beginning (counted in
            `truncated`, logged once; official), ``"chunk"`` averages over consecutive pieces (paper).
        confidence: ``"probability"`` (mean over tokens; official) or ``"log_likelihood"`` (sum of log p; paper).
        scope: ``"sequence"`` counts question, context and end token (official), ``"context"`` the context's tokens
            alone (paper).
        gain: ``"relative"`` to the base confidence, or ``"absolute"``.
        clip_gain: whether a loss in confidence counts as 0.
        baselines: values of random pairs, subtracted from both parts (`rewards.relevance.baselines`): ``"squad"`` or
            ``"hotpotqa"`` (Table 9 of the paper, for its models), ``"released"``, a file from ``rl-qg baselines``, or
            ``{"lrm": 0.26, "grg": 0.01}``.
        clip_rescaled: whether a part below its baseline counts as 0 (official), or is negative (paper: equation 5 is
            linear). The harmonic mean of a negative and a larger positive part is negative, without a bound where
            they nearly cancel; a reward is better clipped.
        references: whether to score against references too (Ref-QRelScore, equation 10): the arithmetic mean of
            QRelScore and of the best QRelScore among the references, each used as the context.
        batch_size: sequences per forward pass.
        device: where to run; None takes the current GPU if there is one, else the CPU.
        dtype: floating-point type of the models.

    Parts: ``lrm`` and ``grg`` (rescaled, if baselines are given), and with references ``reference``.
    """

    name = "qrelscore"
    part_names: tuple[str, ...] = PARTS

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
        long_context: str | None = None,
        confidence: str | None = None,
        scope: str | None = None,
        gain: str = "relative",
        clip_gain: bool = True,
        baselines: str | Path | Mapping[str, object] | None = None,
        clip_rescaled: bool | None = None,
        references: bool = False,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        given = {"attention": attention, "last_tokens": last_tokens, "long_context": long_context,
                 "confidence": confidence, "scope": scope, "clip_rescaled": clip_rescaled}  # fmt: skip
        chosen = _chosen(variant, {**given, "aggregation": aggregation, "gain": gain})
        clips = flag(self.name, "clip_gain", clip_gain)
        self.variant = variant
        self.dtype = dtype
        self.references = flag(self.name, "references", references)
        self.batch_size = batch_of(self.name, batch_size)
        if references:
            self.needs = frozenset({"contexts", "references"})
            self.part_names = (*PARTS, "reference")
        self.encoder = FrozenModel(encoder, "encoder", device=device, dtype=dtype)
        self.decoder = FrozenModel(decoder, "causal", device=device, dtype=dtype)
        self.local = LocalRelevance(
            self.encoder,
            LocalChoices(
                attention=chosen["attention"],
                aggregation=chosen["aggregation"],
                layers=_layers(layers),
                power=_number(power),
                last_tokens=chosen["last_tokens"],
                long_context=chosen["long_context"],
            ),
            batch_size=batch_size,
        )
        self.globally = GlobalRelevance(
            self.decoder,
            GlobalChoices(confidence=chosen["confidence"], scope=chosen["scope"], gain=chosen["gain"], clip=clips),
            batch_size=batch_size,
        )
        self.baselines: Baselines | None = None
        if baselines is not None:
            self.baselines = read_baselines(
                baselines,
                self.signature,
                models=(self.encoder.name, self.decoder.name),
                official=chosen | {"clip_rescaled": True} == _chosen("official", {})
                and variant == "official"
                and self.local.chosen_layers == "all"
                and self.local.choices.power == 1
                and clips,
                clip=chosen["clip_rescaled"],
            )
            if isinstance(baselines, str) and baselines in PUBLISHED:
                _warn_if_far_below(baselines, chosen)

    @property
    def truncated(self) -> int:
        return self.local.truncated

    def choices(self) -> Mapping[str, object]:
        local, globally = self.local.choices, self.globally.choices
        return {
            "variant": self.variant,
            "encoder": self.encoder.identity,
            "decoder": self.decoder.identity,
            **{key: getattr(local, key) for key in ("attention", "aggregation")},
            "layers": self.local.chosen_layers,
            "power": f"{local.power:g}",
            **{key: getattr(local, key) for key in ("last_tokens", "long_context")},
            **{key: getattr(globally, key) for key in ("confidence", "scope", "gain")},
            "clip_gain": "yes" if globally.clip else "no",
            "baselines": self.baselines or "none",
            "references": "mean" if self.references else "no",
            "dtype": self.dtype,
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        if not self.references:
            scores, parts = self._pair_scores(inputs.questions, inputs.contexts)
            return MetricResult(scores, dict(parts))
        count = len(inputs.questions)
        repeated = [q for q, group in zip(inputs.questions, inputs.references, strict=True) for _ in group]
        sources = [reference for group in inputs.references for reference in group]
        scores, parts = self._pair_scores([*inputs.questions, *repeated], [*inputs.contexts, *sources])
        against = iter(scores[count:])
        best = [max(next(against) for _ in group) for group in inputs.references]
        both = [(a + b) / 2 for a, b in zip(scores[:count], best, strict=True)]
        return MetricResult(both, {**{part: values[:count] for part, values in parts.items()}, "reference": best})

    def reset_cache(self) -> None:
        self.globally.reset_cache()

    def explain(self, question: str, context: str) -> Explanation:
        """Explain the score of one question, token by token (`rewards.relevance.explanation`)."""
        return explain(self, question, context)

    def _pair_scores(
        self, questions: Sequence[str], contexts: Sequence[str]
    ) -> tuple[list[float], dict[str, list[float]]]:
        """Return the score of each pair and its parts."""
        parts = {
            "lrm": self.local.scores(questions, contexts),
            "grg": self.globally.scores(questions, contexts),
        }
        if self.baselines is not None:
            parts = {part: [self.baselines.rescale(part, value) for value in parts[part]] for part in PARTS}
        return [self._harmonic(a, b) for a, b in zip(parts["lrm"], parts["grg"], strict=True)], parts

    def _harmonic(self, a: float, b: float) -> float:
        total = a + b + (1e-8 if self.variant == "official" else 0.0)
        if total == 0 or (self.variant == "paper" and total < 0):
            return 0.0
        return 2 * a * b / total


def _chosen(variant: str, given: Mapping[str, str | bool | None]) -> dict[str, Any]:
    """Return every option, with the variant's default where None was given."""
    if not isinstance(variant, str) or variant not in _VARIANTS:
        raise MetricInputError(f"qrelscore: variant {variant!r} does not exist; use official or paper")
    chosen = {"aggregation": "max", "gain": "relative", **_VARIANTS[variant]}
    chosen |= {key: value for key, value in given.items() if value is not None}
    for key, value in chosen.items():
        if key in _CHOICES and value not in _CHOICES[key]:
            raise MetricInputError(f"qrelscore: {key} {value!r} does not exist; use {' or '.join(_CHOICES[key])}")
    flag("qrelscore", "clip_rescaled", chosen["clip_rescaled"])
    return chosen


def _layers(given: object) -> str | tuple[int, ...]:
    if isinstance(given, str):
        return given
    if not isinstance(given, Sequence) or not all(type(number) is int for number in given):
        raise MetricInputError(f"qrelscore: layers {given!r:.60} are neither a name nor a list of whole numbers")
    return tuple(given)


def _warn_if_far_below(baselines: str, chosen: Mapping[str, Any]) -> None:
    """Warn where the parts are of another size than the baselines of Table 9."""
    if chosen["attention"] != "hard" or chosen["confidence"] != "probability":
        logger.warning(
            "qrelscore: baselines=%s (Table 9) are 0.3 to 0.7, but with attention=%s and confidence=%s the parts are "
            "far smaller, so that rescaled ones lie below 0; rl-qg baselines estimates baselines of these options",
            *(baselines, chosen["attention"], chosen["confidence"]),
        )


def _number(power: float | str) -> float:
    try:
        number = float(power)
    except (TypeError, ValueError):
        number = float("nan")
    if number != number:
        raise MetricInputError(f"qrelscore: power {power!r} is not a number; use 1 for the mean, inf for the maximum")
    return number
