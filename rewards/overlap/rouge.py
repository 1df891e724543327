"""ROUGE-L: the longest common subsequence of words with a reference."""

from collections.abc import Mapping, Sequence
from typing import Literal

from rewards.base import Inputs, MetricResult
from rewards.errors import flag, number, one_of
from rewards.overlap.base import OverlapMetric, lcs_length
from rewards.words import libraries, stemmed, tokenizer


class RougeL(OverlapMetric):
    """ROUGE-L, 0 to 1: F of precision and recall of the longest common subsequence of words.

    Source: Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004, equations 2-4. ``variant``:

    - ``"rouge_score"``: the package rouge-score: beta = 1. Several references: the best F. Its own tokeniser drops
      every letter but a-z (a Chinese question scores 0, "Beyoncé" becomes "beyonc"); ``words`` is the same on ASCII
      and keeps the rest. For exactly the package's numbers: ``tokenize="rouge_score"``.
    - ``"coco"``: the captioning scripts: beta = 1.2, on ``ptb`` words. Several references: the largest precision and
      the largest recall, possibly of different references. (The scripts compare two empty texts to 1; here it is 0.)

    Parts: ``precision`` and ``recall``.

    Args:
        stem: compare Porter stems of words longer than 3 letters (English; rouge_score only; needs nltk).
        tokenize: None takes the variant's.
        beta: weight of recall (0: the score is the precision); None takes the variant's.
    """

    name = "rouge_l"
    part_names = ("precision", "recall")

    def __init__(
        self,
        variant: Literal["rouge_score", "coco"] = "rouge_score",
        *,
        stem: bool = False,
        tokenize: str | None = None,
        beta: float | None = None,
    ) -> None:
        self.variant = one_of(self.name, "variant", variant, ("rouge_score", "coco"))
        self.stem = flag(self.name, "stem", stem)
        self.tokenize = tokenize or ("ptb" if variant == "coco" else "words")
        beta = (1.2 if variant == "coco" else 1.0) if beta is None else beta
        self.beta = number("rouge_l", "beta", beta, low=0, high=1e150)
        tokenizer(self.tokenize)
        if stem:
            stemmed(())

    def choices(self) -> Mapping[str, object]:
        return {
            "variant": self.variant,
            "beta": self.beta,
            "stem": "porter" if self.stem else "no",
            "tokenize": self.tokenize,
            **libraries(self.tokenize, stem=self.stem),
        }

    def _words(self, text: str) -> Sequence[str]:
        text_words = super()._words(text)
        return stemmed(text_words) if self.stem else text_words

    def compute(self, inputs: Inputs) -> MetricResult:
        rows = [self._row(*row) for row in zip(*self._rows(inputs), strict=True)]
        scores, precision, recall = (list(column) for column in zip(*rows, strict=True))
        return MetricResult(scores, {"precision": precision, "recall": recall})

    def _row(self, candidate: Sequence[str], references: list[Sequence[str]]) -> tuple[float, float, float]:
        pairs = []
        for reference in references:
            common = lcs_length(reference, candidate)
            pairs.append((common / max(len(candidate), 1), common / max(len(reference), 1)))
        if self.variant == "coco":
            pairs = [(max(precision for precision, _ in pairs), max(recall for _, recall in pairs))]
        square, rows = self.beta**2, []
        for precision, recall in pairs:
            denominator = square * precision + recall
            rows.append(((1 + square) * precision * recall / denominator if denominator else 0.0, precision, recall))
        return max(rows)
