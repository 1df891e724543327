"""BLEU of single questions and of corpora: sacreBLEU's, the captioning scripts' and nltk's."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from rewards.base import Inputs
from rewards.errors import flag, number, one_of
from rewards.overlap.base import CorpusMetric, Floats, best_of_groups, each_reference, ngram_overlap
from rewards.words import case_of, libraries, tokenizer

COCO_TINY, COCO_SMALL = 1e-15, 1e-9  # what the captioning scripts add to numerators and denominators
NLTK_EPSILON = 0.1  # what nltk's smoothing method 1 puts in place of a count of 0
SMOOTHING = {"sacrebleu": "exp", "coco": "1e-15/1e-9", "nltk": "method1"}  # of each variant


class Bleu(CorpusMetric):
    """BLEU of single questions, 0 to 1: geometric mean of n-gram precisions times a brevity penalty.

    Source: Papineni, Roukos, Ward, Zhu, "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002,
    section 2.3. With p_n = matches / candidate n-grams, c the candidate's and r the closest reference's length:
    ``exp(min(0, 1 - r/c)) * (p_1 ... p_order) ** (1/order)``. BLEU is a corpus score; for one question p_n is often 0,
    and programs differ in how they smooth it. ``variant`` selects one:

    - ``"sacrebleu"``: sacreBLEU's sentence score (Post 2018), over 100. The k-th order without match counts as
      ``1 / (2**k * n-grams)``, orders longer than the candidate are left out, no match at all is 0. The corpus score
      is sacreBLEU's: as above, but no order is left out.
    - ``"coco"``: the captioning scripts (Chen et al. 2015) used for most published numbers of question generation.
      Every p_n is ``(matches + 1e-15) / (n-grams + 1e-9)`` and so never 0: without a 4-gram in common BLEU-4 is of
      order 1e-4, and of a question shorter than ``order`` words it is nearly 0 even if it equals the reference.
    - ``"nltk"``: `sentence_bleu` with smoothing method 1 (0 matches count as 0.1), on words between single spaces,
      case kept, as QGEval's authors compute it.

    Several references: an n-gram counts at most as often as in the reference that has it most often; r is the length
    of the closest one, the shorter on ties.

    Differences from the programs: none in the scores (tests compare to 1e-12).

    Args:
        order: longest n-gram, 1 to 9.
        tokenize: None takes ``13a+char`` for sacrebleu (13a, which would make one word of a Chinese sentence, except
            that characters of scripts without spaces stand alone), ``ptb`` for coco, ``space`` for nltk.
        lowercase: compare in lower case (``ptb`` always does).
        brevity: apply the brevity penalty; without it the reference may be a whole passage.
    """

    name = "bleu"

    def __init__(
        self,
        order: int = 4,
        variant: Literal["sacrebleu", "coco", "nltk"] = "sacrebleu",
        *,
        tokenize: str | None = None,
        lowercase: bool = False,
        brevity: bool = True,
    ) -> None:
        self.order = int(number("bleu", "order", order, low=1, high=9, whole=True))
        self.variant = one_of("bleu", "variant", variant, [*SMOOTHING])
        self.lowercase, self.brevity = flag("bleu", "lowercase", lowercase), flag("bleu", "brevity", brevity)
        self.tokenize = tokenize or {"sacrebleu": "13a+char", "coco": "ptb", "nltk": "space"}[variant]
        tokenizer(self.tokenize)

    def choices(self) -> Mapping[str, object]:
        return {
            "order": self.order,
            "variant": self.variant,
            "smooth": SMOOTHING[self.variant],
            "tokenize": self.tokenize,
            "case": case_of(self.tokenize, lowercase=self.lowercase),
            **({} if self.brevity else {"brevity": "no"}),
            **libraries(self.tokenize),
        }

    def _words(self, text: str) -> Sequence[str]:
        return super()._words(text.lower() if self.lowercase else text)

    def _counts(self, inputs: Inputs) -> Floats:
        """Candidate length, reference length, matches and n-grams of each order: [rows, 2 + 2 * order]."""
        overlap = ngram_overlap(*self._rows(inputs), self.order)
        candidate = np.maximum(overlap.candidate, 1) if self.variant == "nltk" else overlap.candidate
        return np.column_stack([overlap.lengths, overlap.closest, overlap.matches, candidate]).astype(float)

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        length = counts[..., 0]
        reference = counts[..., 1] if self.brevity else np.minimum(counts[..., 1], length)
        matches, ngrams = counts[..., 2 : 2 + self.order], counts[..., 2 + self.order :]
        if self.variant == "coco":
            return coco_bleu(length, reference, matches, ngrams)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.variant == "nltk":
                logs, orders = np.log(np.where(matches > 0, matches, NLTK_EPSILON) / ngrams), self.order
                scored = matches[..., 0] > 0
            else:
                present = ngrams > 0
                precision = (
                    np.where(matches > 0, matches, 0.5 ** np.cumsum((matches == 0) & present, axis=-1)) / ngrams
                )
                orders = self.order if corpus else np.maximum(present.sum(-1), 1)
                logs = np.where(present, np.log(precision), -np.inf if corpus else 0.0)
                scored = matches.max(-1) > 0
            brevity = np.where(length > 0, np.exp(np.minimum(0.0, 1 - reference / length)), 0.0)
            return np.where(scored, brevity * np.exp(logs.sum(-1) / orders), 0.0)


def coco_bleu(length: Floats, reference: Floats, matches: Floats, ngrams: Floats) -> Floats:
    """Return the captioning scripts' BLEU of lengths [...] and counts [..., order]."""
    product = np.prod((matches + COCO_TINY) / (ngrams + COCO_SMALL), axis=-1)
    ratio = (length + COCO_TINY) / (reference + COCO_SMALL)
    return product ** (1 / matches.shape[-1]) * np.exp(np.minimum(0.0, 1 - 1 / ratio))


GLEU_ORDER = 4


class Gleu(CorpusMetric):
    """Google's BLEU for single sentences, 0 to 1: the smaller of n-gram precision and recall, n = 1 to 4 together.

    Source: Wu et al., "Google's Neural Machine Translation System", 2016, section 5.2. As nltk's `sentence_gleu`:
    ``matches / max(candidate n-grams, reference n-grams)``. Several references: the one with the best score; an empty
    text scores 0. Not the GLEU of grammatical correction.

    The corpus score sums both counts, as nltk's `corpus_gleu`; where a question and the first of several references
    are both empty, nltk counts the next reference as missed, and here the pair adds nothing.
    """

    name = "gleu"

    def __init__(self, tokenize: str = "13a+char") -> None:
        self.tokenize = tokenize
        tokenizer(tokenize)

    def choices(self) -> Mapping[str, object]:
        return {"order": f"1-{GLEU_ORDER}", "tokenize": self.tokenize, **libraries(self.tokenize)}

    def _counts(self, inputs: Inputs) -> Floats:
        """Matches and the larger number of n-grams, for the best reference: [rows, 2]."""
        overlap, starts, reference = each_reference(*self._rows(inputs), GLEU_ORDER)
        most = np.maximum(overlap.candidate.sum(1), reference.sum(1))
        pairs = np.column_stack([overlap.matches.sum(1), most]).astype(float)
        return pairs[best_of_groups(self._formula(pairs, corpus=False), starts)]

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        return counts[..., 0] / np.maximum(counts[..., 1], 1)
