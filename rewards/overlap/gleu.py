"""GLEU: the smaller of n-gram precision and recall."""

from collections.abc import Mapping

import numpy as np

from rewards.base import Inputs
from rewards.overlap.base import CorpusMetric, Floats, best_of_groups, each_reference
from rewards.words import libraries, tokenizer

GLEU_ORDER = 4


class Gleu(CorpusMetric):
    """Google's BLEU for single sentences, 0 to 1: the smaller of n-gram precision and recall, n = 1 to 4 together.

    Source: Wu et al., "Google's Neural Machine Translation System", 2016, section 5.2. As nltk's `sentence_gleu`:
    ``matches / max(candidate n-grams, reference n-grams)``. Several references: the one with the best score; an empty
    text scores 0. Not the GLEU of grammatical correction.

    The corpus score sums both counts, as nltk's `corpus_gleu`. It differs where a question and the first of several
    references are both empty: nltk skips that reference and counts the n-grams of the next one as missed; here the
    pair adds nothing.

    Args:
        tokenize: any of `rewards.words.tokenizer`.
    """

    name = "gleu"

    def __init__(self, tokenize: str = "13a+char") -> None:
        self.tokenize = tokenize
        tokenizer(tokenize)

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {"order": f"1-{GLEU_ORDER}", "tokenize": self.tokenize, **libraries(self.tokenize)}

    def _counts(self, inputs: Inputs) -> Floats:
        """Matches and the larger number of n-grams, for the best reference: [rows, 2]."""
        overlap, starts, reference = each_reference(*self._rows(inputs), GLEU_ORDER)
        most = np.maximum(overlap.candidate.sum(1), reference.sum(1))
        pairs = np.column_stack([overlap.matches.sum(1), most]).astype(float)
        return pairs[best_of_groups(self._formula(pairs, corpus=False), starts)]

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        return counts[..., 0] / np.maximum(counts[..., 1], 1)

    def _width(self) -> int:
        return 2
