"""chrF: F-score of character n-grams."""

from collections.abc import Mapping

import numpy as np

from rewards.base import Inputs
from rewards.errors import flag, number
from rewards.overlap.base import CorpusMetric, Floats, best_of_groups, each_reference, f_score


class Chrf(CorpusMetric):
    """chrF, 0 to 1: F-beta of character n-grams, white space left out.

    Source: Popović, "chrF: character n-gram F-score for automatic MT evaluation", WMT 2015, equation 1; as sacreBLEU's
    (over 100): precision and recall are means over the orders that both texts have, and F of the means is taken.
    It treats all scripts in the same way. Several references: the one with the best score. The corpus score is
    sacreBLEU's.

    ``char_order`` is the longest n-gram of characters, ``beta`` the weight of recall (2: twice that of precision).
    """

    name = "chrf"
    tokenize = "characters"

    def __init__(self, char_order: int = 6, beta: float = 2.0, *, lowercase: bool = False) -> None:
        self.char_order = int(number("chrf", "char_order", char_order, low=1, whole=True))
        self.beta = number("chrf", "beta", beta, low=0, high=1e150)
        self.lowercase = flag("chrf", "lowercase", lowercase)

    def choices(self) -> Mapping[str, object]:
        return {
            "nc": self.char_order,
            "nw": 0,
            "beta": self.beta,
            "tokenize": self.tokenize,
            "space": "no",
            "case": "lower" if self.lowercase else "mixed",
        }

    def _words(self, text: str) -> str:  # its tokens are its characters
        return "".join((text.lower() if self.lowercase else text).split())

    def _counts(self, inputs: Inputs) -> Floats:
        """Candidate n-grams, reference n-grams and matches of each order, for the best reference: [rows, 3 * n]."""
        overlap, starts, reference = each_reference(*self._rows(inputs), self.char_order)
        candidate = np.where(reference > 0, overlap.candidate, 0)
        pairs = np.concatenate([candidate, reference, overlap.matches], axis=1).astype(float)
        return pairs[best_of_groups(self._formula(pairs, corpus=False), starts)]

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        candidate, reference, matches = np.split(counts, 3, axis=-1)
        present = (candidate > 0) & (reference > 0)
        orders = np.maximum(present.sum(-1), 1)
        precision = np.where(present, matches / np.maximum(candidate, 1), 0.0).sum(-1) / orders
        recall = np.where(present, matches / np.maximum(reference, 1), 0.0).sum(-1) / orders
        return f_score(precision, recall, self.beta)
