"""QRelScore: how relevant a question is to its context; a local part from BERT and a global part from GPT-2.

Source: Wang, Liu, Tang, Wu, "QRelScore: Better Evaluating Generated Questions with Deeper Understanding of
Context-aware Relevance", EMNLP 2022, and its released code (Robert-xiaoqiang/QRelScore).
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, batch_of, flag, one_of
from rewards.frozen import FrozenModel, best_of_rows
from rewards.relevance.baselines import PARTS, PUBLISHED, Baselines, read_baselines
from rewards.relevance.explanation import Explanation, explain
from rewards.relevance.global_relevance import GlobalRelevance
from rewards.relevance.local_relevance import LocalRelevance

logger = logging.getLogger(__name__)

# The formula of each variant, as the signature has it; `experiments/qrelscore-ablation` has a class with others.
_BOTH = {"aggregation": "max", "layers": "all", "power": "1", "gain": "relative", "clip_gain": "yes"}
_DIFFERENT = ("attention", "last_tokens", "long_context", "confidence", "scope")
_VARIANTS: dict[str, dict[str, str]] = {
    "official": dict(zip(_DIFFERENT, ("hard", "skip", "truncate", "probability", "sequence"), strict=True)) | _BOTH,
    "paper": dict(zip(_DIFFERENT, ("weighted", "keep", "chunk", "log_likelihood", "context"), strict=True)) | _BOTH,
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
      takes the maximum over heads of "normalized" attention: the plainest reading is the softmax's weights as they
      are; here that maximum is normalised again, as a line of the released code does.
    - conf = sum of log p over the context tokens alone, after ``<bos>`` (base) or ``<bos> question`` (prompt).
    - ``grg`` = max(0, (conf_prompt - conf_base) / |conf_base|). score = 2 lrm grg / (lrm + grg), 0 if lrm + grg <= 0.

    Where the released code crashes or gives NaN, ``official`` differs from it: a question or a context of zero or one
    token, or a question that fills the encoder, has ``lrm`` 0, so score 0. A text too long for the decoder is scored
    as the paper says: the context is cut into the largest pieces that fit after the question, each is scored as a
    context of its own, and the gains are averaged; where no piece fits, ``grg`` is 0.

    The score has no unit. Both formulas stay below 2, and above 0 while ``lrm`` is positive, as with every trained
    BERT; for a negative ``lrm`` or unclipped parts there is no bound, so none are declared.

    Cost: one encoder pass and one decoder pass over question and context for each pair, one decoder pass for each
    distinct context.

    Args:
        long_context: for a context longer than the encoder: ``"truncate"`` keeps its beginning (counted in
            `truncated`, logged once; official), ``"chunk"`` averages over consecutive pieces (paper).
        baselines: values of random pairs, subtracted from both parts (`rewards.relevance.baselines`): ``"squad"`` or
            ``"hotpotqa"`` (Table 9 of the paper, for its models), ``"released"``, a file from ``rl-qg baselines``, or
            ``{"lrm": 0.26, "grg": 0.01}``.
        clip_rescaled: whether a part below its baseline counts as 0 (official), or is negative (paper: equation 5 is
            linear), and with it the harmonic mean. A reward is better clipped.
        references: whether to score against references too (Ref-QRelScore, equation 10): the arithmetic mean of
            QRelScore and of the best QRelScore among the references, each used as the context.

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
        long_context: str | None = None,
        baselines: str | Path | Mapping[str, object] | None = None,
        clip_rescaled: bool | None = None,
        references: bool = False,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.formula = self._formula(variant, long_context)
        clip = variant == "official" if clip_rescaled is None else flag(self.name, "clip_rescaled", clip_rescaled)
        self.variant, self.dtype = variant, dtype
        self.references = flag(self.name, "references", references)
        self.batch_size = batch_of(self.name, batch_size)
        if references:
            self.needs = frozenset({"contexts", "references"})
            self.part_names = (*PARTS, "reference")
        self.encoder = FrozenModel(encoder, "encoder", device=device, dtype=dtype)
        self.decoder = FrozenModel(decoder, "causal", device=device, dtype=dtype)
        self.local, self.globally = self._halves()
        self.baselines: Baselines | None = None
        if baselines is not None:
            self.baselines = read_baselines(
                baselines,
                self.signature,
                models=(self.encoder.name, self.decoder.name),
                official=variant == "official" and self.formula == _VARIANTS["official"],
                clip=clip,
            )
            chosen = self.formula["attention"], self.formula["confidence"]
            if isinstance(baselines, str) and baselines in PUBLISHED and chosen != ("hard", "probability"):
                logger.warning(
                    "qrelscore: baselines=%s (Table 9) are 0.3 to 0.7, but with attention=%s and confidence=%s the "
                    "parts are far smaller, so that rescaled ones lie below 0; rl-qg baselines estimates baselines of "
                    "these options",
                    *(baselines, *chosen),
                )

    def _formula(self, variant: str, long_context: str | None) -> dict[str, str]:
        formula = dict(_VARIANTS[one_of(self.name, "variant", variant, list(_VARIANTS))])
        if long_context is not None:
            formula["long_context"] = one_of(self.name, "long_context", long_context, ("truncate", "chunk"))
        return formula

    def _halves(self) -> tuple[LocalRelevance, GlobalRelevance]:
        of_local = {key: self.formula[key] for key in ("attention", "last_tokens", "long_context")}
        of_global = {key: self.formula[key] for key in ("confidence", "scope")}
        return (
            LocalRelevance(self.encoder, **of_local, batch_size=self.batch_size),
            GlobalRelevance(self.decoder, **of_global, batch_size=self.batch_size),
        )

    def choices(self) -> Mapping[str, object]:
        of_local = ("attention", "aggregation", "layers", "power", "last_tokens", "long_context")
        of_global = ("confidence", "scope", "gain", "clip_gain")
        return {
            "variant": self.variant,
            "encoder": self.encoder.identity,
            "decoder": self.decoder.identity,
            **{key: self.formula[key] for key in (*of_local, *of_global)},
            "baselines": self.baselines or "none",
            "references": "mean" if self.references else "no",
            "dtype": self.dtype,
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        if not self.references:
            scores, parts = self._pair_scores(inputs.questions, inputs.contexts)
            return MetricResult(scores, dict(parts))
        count = len(inputs.questions)
        pairs, owners = inputs.pairs("references")
        repeated, sources = zip(*pairs, strict=True)
        scores, parts = self._pair_scores([*inputs.questions, *repeated], [*inputs.contexts, *sources])
        best = best_of_rows(torch.tensor(scores[count:], dtype=torch.float64), owners, count).tolist()
        both = [(a + b) / 2 for a, b in zip(scores[:count], best, strict=True)]
        return MetricResult(both, {**{part: values[:count] for part, values in parts.items()}, "reference": best})

    def reset_cache(self) -> None:
        self.globally.reset_cache()

    def explain(self, question: str, context: str) -> Explanation:
        if self.references:
            raise MetricInputError(
                "qrelscore: a score against references cannot be explained; use references=False, and give a "
                "reference as the context to explain its part"
            )
        return explain(self, self.local, self.globally, self.baselines, question, context)

    def _pair_scores(
        self, questions: Sequence[str], contexts: Sequence[str]
    ) -> tuple[list[float], dict[str, list[float]]]:
        parts = {"lrm": self.local.scores(questions, contexts), "grg": self.globally.scores(questions, contexts)}
        if self.baselines is not None:
            parts = {part: [self.baselines.rescale(part, value) for value in parts[part]] for part in PARTS}
        return [self._harmonic(a, b) for a, b in zip(parts["lrm"], parts["grg"], strict=True)], parts

    def _harmonic(self, a: float, b: float) -> float:
        total = a + b + (1e-8 if self.variant == "official" else 0.0)
        if total == 0 or (self.variant == "paper" and total < 0):
            return 0.0
        return 2 * a * b / total
