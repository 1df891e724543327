"""CTC: how much of the information of one text is grounded in another."""

from collections.abc import Mapping
from typing import Literal, Self

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError
from rewards.learned.packages import load_or_explain
from rewards.optional_imports import installed_version, library


class CTC(Metric):
    """How much of the information of one text is grounded in another, word by word, by the package ctc_score.

    Source: Deng, Tan, Liu, Xing, Hu, "Compression, Transduction, and Creation: A Unified Framework for Evaluating
    Natural Language Generation", EMNLP 2021, section 4 (compression: consistency and relevance), and its released code
    (tanyuqian/ctc-gen-eval), which computes the score. ``aspect="consistency"`` is the mean alignment of the words of
    the question with the passage, ``"relevance"`` that times the mean over references of their alignment with the
    question. About 0 to 1, higher is better. Differences: a question is treated as a summary of its passage; where
    the package cannot align a text it returns None, which is 0 here.

    Checked: the calls are those of its source (``SummarizationScorer(align, device).score(doc, refs, hypo, aspect,
    remove_stopwords)``), with a stub. Not run against its checkpoints, which it downloads from Google Drive.

    Args:
        align: the package's alignment model, such as ``D-cnndm``, ``E-roberta``.
        aspect: ``consistency`` (reference-free) or ``relevance``.
        device: where to run; None takes the current GPU if there is one, else the CPU.

    Raises:
        MetricInputError: an aspect that does not exist, or no package.
    """

    name = "ctc"

    def __init__(
        self,
        align: str = "D-cnndm",
        aspect: Literal["consistency", "relevance"] = "consistency",
        *,
        device: str | torch.device | None = None,
    ) -> None:
        if aspect not in ("consistency", "relevance"):
            raise MetricInputError(f"ctc: aspect {aspect!r} does not exist; use consistency or relevance")
        self.align, self.aspect = align, aspect
        self.needs = frozenset({"contexts"} if aspect == "consistency" else {"contexts", "references"})
        self._scorer_class = library("ctc_score", self.name, "ctc_score").SummarizationScorer
        self.to(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {"align": self.align, "aspect": self.aspect, "ctc_score": installed_version("ctc_score")}

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return one score per question."""
        rows = zip(inputs.questions, inputs.contexts, inputs.references, strict=True)
        scores = [
            self._scorer.score(
                doc=context, refs=list(references), hypo=question, aspect=self.aspect, remove_stopwords=False
            )
            for question, context, references in rows
        ]
        return MetricResult([0.0 if value is None else float(value) for value in scores], {})

    def to(self, device: str | torch.device) -> Self:
        """Build the package's scorer for a device; its models cannot move after they are loaded."""
        self._scorer = load_or_explain(self.name, self.align, self._scorer_class, align=self.align, device=str(device))
        return self
