"""Overlap with references: BLEU, GLEU and chrF (`rewards.rouge` has ROUGE-L).

All scores are fractions from 0 to 1, also where a library prints percent (sacreBLEU: divide by 100). A row may have
several references; each docstring says what becomes of them. What none of them can see: a question in other words
than the reference is wrong to them, and a question that copies the reference but for the one word that matters is
nearly perfect.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewards.base import ROWS_AT_ONCE, Inputs, Metric, MetricResult
from rewards.errors import MetricInputError
from rewards.options import number
from rewards.overlap_counts import Overlap, ngram_overlap
from rewards.words import case_of, libraries, tokenizer

Floats = NDArray[np.float64]

COCO_TINY, COCO_SMALL = 1e-15, 1e-9
"""What the captioning scripts add to numerators and denominators."""

NLTK_EPSILON = 0.1
"""What nltk's smoothing method 1 puts in place of a count of 0."""

GLEU_ORDER = 4


class OverlapMetric(Metric):
    """A metric of texts cut into words and compared with references."""

    needs = frozenset({"references"})
    bounds = (0.0, 1.0)
    tokenize: str

    def _rows(self, inputs: Inputs) -> tuple[list[Sequence[str]], list[list[Sequence[str]]]]:
        """Return the words of each question and of each of its references."""
        return (
            [self._words(text) for text in inputs.questions],
            [[self._words(text) for text in group] for group in inputs.references],
        )

    def _words(self, text: str) -> Sequence[str]:
        return tokenizer(self.tokenize)(text)


class CorpusMetric(OverlapMetric):
    """A metric whose score is computed from counts that add up over questions.

    The corpus score is that of the summed counts; it is not the mean of the questions' scores.
    """

    def statistics(self, questions: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        """Return the counts of each question, [rows, k]; sums of rows are the counts of a corpus.

        Raises:
            MetricInputError: as `score` does.
        """
        blank = [""] * len(questions)
        rows = self._check(questions, {"contexts": None, "answers": None, "references": references})
        inputs = Inputs([row[0] for row in rows], blank, blank, [row[3] for row in rows], list(range(len(rows))))
        starts = range(0, len(rows), ROWS_AT_ONCE)
        blocks = [self._counts(inputs.rows_from(at, at + ROWS_AT_ONCE)) for at in starts]
        return np.concatenate(blocks) if blocks else np.zeros((0, self._width()))

    def corpus(self, total: Floats) -> Floats:
        """Return the score of summed counts, [..., k] -> [...]."""
        return self._formula(np.asarray(total, dtype=float), corpus=True)

    def sentence(self, counts: Floats) -> Floats:
        """Return the score of each question from its counts, [rows, k] -> [rows]."""
        return self._formula(np.asarray(counts, dtype=float), corpus=False)

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return one score for each question."""
        return MetricResult(self._formula(self._counts(inputs), corpus=False).tolist(), {})

    def _counts(self, inputs: Inputs) -> Floats:
        raise NotImplementedError

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        raise NotImplementedError

    def _width(self) -> int:
        raise NotImplementedError


class Bleu(CorpusMetric):
    """BLEU of single questions, 0 to 1: geometric mean of n-gram precisions times a brevity penalty.

    Source: Papineni, Roukos, Ward, Zhu, "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002,
    section 2.3. With p_n = matches / candidate n-grams, c the candidate's and r the closest reference's length:
    ``exp(min(0, 1 - r/c)) * (p_1 ... p_order) ** (1/order)``. BLEU is a corpus score; for one question p_n is often 0,
    and programs differ in what they do then. ``variant`` says which:

    - ``"sacrebleu"``: sacreBLEU's sentence score (Post 2018), over 100. The k-th order without match counts as
      ``1 / (2**k * n-grams)``, orders longer than the candidate are left out, no match at all is 0. The corpus score
      is sacreBLEU's: as above, but no order is left out.
    - ``"coco"``: the captioning scripts (Chen et al. 2015) behind most published numbers of question generation. Every
      p_n is ``(matches + 1e-15) / (n-grams + 1e-9)`` and so never 0: without a 4-gram in common BLEU-4 is of order
      1e-4, and of a question shorter than ``order`` words it is nearly 0 even where it equals the reference.
    - ``"nltk"``: `sentence_bleu` with smoothing method 1 (0 matches count as 0.1), on words between single spaces,
      case kept, as QGEval's authors compute it.

    Several references: an n-gram counts at most as often as in the reference that has it most often; r is the length
    of the closest one, the shorter on ties.

    Differences from the programs: none in the scores (tests compare to 1e-12); counting is our own, in blocks, because
    sacreBLEU takes about ten times as long for single questions.

    Args:
        order: longest n-gram, 1 to 9.
        variant: see above.
        tokenize: any of `rewards.words.tokenizer`. None takes ``13a+char`` for sacrebleu (13a, which would make one
            word of a Chinese sentence, except that characters of scripts without spaces stand alone), ``ptb`` for
            coco, ``space`` for nltk.
        lowercase: compare in lower case (``ptb`` always does).
        brevity: apply the brevity penalty; without it the reference may be a whole passage.

    Raises:
        MetricInputError: unknown variant or tokeniser, or an order out of range.
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
        if variant not in _BLEU_FORMULAS:
            raise MetricInputError(f"bleu: variant {variant!r} does not exist; use one of {', '.join(_BLEU_FORMULAS)}")
        self.order = int(number("bleu", "order", order, low=1, high=9, whole=True))
        self.variant, self.lowercase, self.brevity = variant, lowercase, brevity
        self.tokenize = tokenize or {"sacrebleu": "13a+char", "coco": "ptb", "nltk": "space"}[variant]
        tokenizer(self.tokenize)

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        smoothing = {"sacrebleu": "exp", "coco": "1e-15/1e-9", "nltk": "method1"}[self.variant]
        return {
            "order": self.order,
            "variant": self.variant,
            "smooth": smoothing,
            "tokenize": self.tokenize,
            "case": case_of(self.tokenize, lowercase=self.lowercase),
            **({} if self.brevity else {"brevity": "no"}),
            **libraries(self.tokenize),
        }

    def _words(self, text: str) -> Sequence[str]:
        return super()._words(text.lower() if self.lowercase else text)

    def _counts(self, inputs: Inputs) -> Floats:
        """Candidate length, reference length, matches and n-grams of each order: [rows, 2 + 2 * order]."""
        found = ngram_overlap(*self._rows(inputs), self.order)
        candidate = np.maximum(found.candidate, 1) if self.variant == "nltk" else found.candidate
        return np.column_stack([found.lengths, found.closest, found.matches, candidate]).astype(float)

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        length = counts[..., 0]
        reference = counts[..., 1] if self.brevity else np.minimum(counts[..., 1], length)
        matches, ngrams = counts[..., 2 : 2 + self.order], counts[..., 2 + self.order :]
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.variant == "sacrebleu":
                return _sacrebleu(length, reference, matches, ngrams, effective_order=not corpus)
            return _BLEU_FORMULAS[self.variant](length, reference, matches, ngrams)

    def _width(self) -> int:
        return 2 + 2 * self.order


def _brevity(length: Floats, reference: Floats) -> Floats:
    """Return exp(min(0, 1 - r/c)), and 0 for an empty candidate."""
    return np.where(length > 0, np.exp(np.minimum(0.0, 1 - reference / length)), 0.0)


def _sacrebleu(
    length: Floats, reference: Floats, matches: Floats, ngrams: Floats, effective_order: bool = True
) -> Floats:
    halvings = np.cumsum((matches == 0) & (ngrams > 0), axis=-1)
    precision = np.where(matches > 0, matches, 0.5**halvings) / ngrams
    there = ngrams > 0
    orders = there.sum(-1) if effective_order else matches.shape[-1]
    logs = np.where(there, np.log(precision), 0.0 if effective_order else -np.inf)
    score = _brevity(length, reference) * np.exp(logs.sum(-1) / np.maximum(orders, 1))
    return np.where(matches.any(-1), score, 0.0)


def coco_bleu(length: Floats, reference: Floats, matches: Floats, ngrams: Floats) -> Floats:
    """Return the captioning scripts' BLEU of lengths [...] and counts [..., order]."""
    product = np.prod((matches + COCO_TINY) / (ngrams + COCO_SMALL), axis=-1)
    ratio = (length + COCO_TINY) / (reference + COCO_SMALL)
    return product ** (1 / matches.shape[-1]) * np.exp(np.minimum(0.0, 1 - 1 / ratio))


def _nltk(length: Floats, reference: Floats, matches: Floats, ngrams: Floats) -> Floats:
    logs = np.log(np.where(matches > 0, matches, NLTK_EPSILON) / ngrams)
    score = _brevity(length, reference) * np.exp(logs.mean(-1))
    return np.where(matches[..., 0] > 0, score, 0.0)


_BLEU_FORMULAS: dict[str, Callable[[Floats, Floats, Floats, Floats], Floats]] = {
    "sacrebleu": _sacrebleu,
    "coco": coco_bleu,
    "nltk": _nltk,
}


class Gleu(CorpusMetric):
    """Google's BLEU for single sentences, 0 to 1: the smaller of n-gram precision and recall, n = 1 to 4 together.

    Source: Wu et al., "Google's Neural Machine Translation System", 2016, section 5.2. As nltk's `sentence_gleu`:
    ``matches / max(candidate n-grams, reference n-grams)``. Several references: the one with the best score; an empty
    text scores 0. Not the GLEU of grammatical correction.

    The corpus score sums both counts, as nltk's `corpus_gleu`. It differs where a question and the first of several
    references are both empty: nltk passes over that reference and counts the n-grams of the next one as missed, here
    the pair adds nothing.

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
        found, starts, reference = _each_reference(*self._rows(inputs), GLEU_ORDER)
        most = np.maximum(found.candidate.sum(1), reference.sum(1))
        pairs = np.column_stack([found.matches.sum(1), most]).astype(float)
        return pairs[_best(self._formula(pairs, corpus=False), starts)]

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        return counts[..., 0] / np.maximum(counts[..., 1], 1)

    def _width(self) -> int:
        return 2


class Chrf(CorpusMetric):
    """chrF, 0 to 1: F-beta of character n-grams, white space left out.

    Source: Popović, "chrF: character n-gram F-score for automatic MT evaluation", WMT 2015, equation 1; as sacreBLEU's
    (over 100): precision and recall are means over the orders that both texts have, and F of the means is taken.
    It treats all scripts alike. Several references: the one with the best score. The corpus score is sacreBLEU's.

    Args:
        char_order: longest n-gram of characters.
        beta: weight of recall (2: twice that of precision).
        lowercase: compare in lower case.

    Raises:
        MetricInputError: an option out of range.
    """

    name = "chrf"
    tokenize = "characters"

    def __init__(self, char_order: int = 6, beta: float = 2.0, *, lowercase: bool = False) -> None:
        self.char_order = int(number("chrf", "char_order", char_order, low=1, whole=True))
        self.beta = number("chrf", "beta", beta, low=0)
        self.lowercase = lowercase

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
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
        found, starts, reference = _each_reference(*self._rows(inputs), self.char_order)
        candidate = np.where(reference > 0, found.candidate, 0)
        pairs = np.concatenate([candidate, reference, found.matches], axis=1).astype(float)
        return pairs[_best(self._formula(pairs, corpus=False), starts)]

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        candidate, reference, matches = np.split(counts, 3, axis=-1)
        there = (candidate > 0) & (reference > 0)
        orders = np.maximum(there.sum(-1), 1)
        precision = np.where(there, matches / np.maximum(candidate, 1), 0.0).sum(-1) / orders
        recall = np.where(there, matches / np.maximum(reference, 1), 0.0).sum(-1) / orders
        return _f_score(precision, recall, self.beta)

    def _width(self) -> int:
        return 3 * self.char_order


def _each_reference(
    candidates: list[Sequence[str]], references: list[list[Sequence[str]]], order: int
) -> tuple[Overlap, NDArray[np.int64], NDArray[np.int64]]:
    """Compare each candidate with each of its references alone.

    Returns the overlap of each pair, where each candidate's pairs start, and the reference's n-grams, [pairs, order].
    """
    sizes = [len(group) for group in references]
    pairs = list(chain.from_iterable(references))
    repeated = [text for text, size in zip(candidates, sizes, strict=True) for _ in range(size)]
    found = ngram_overlap(repeated, [[text] for text in pairs], order)
    reference = np.maximum(found.closest[:, None] - np.arange(order), 0)
    return found, np.cumsum([0, *sizes[:-1]]), reference


def _best(scores: Floats, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of the best score of each group, the first one on ties."""
    group = np.searchsorted(starts, np.arange(len(scores)), side="right") - 1
    order = np.lexsort((np.arange(len(scores)), -scores, group))
    return order[starts]


def _f_score(precision: Floats, recall: Floats, beta: float) -> Floats:
    """Return (1 + beta^2) P R / (beta^2 P + R), and 0 where both are 0."""
    below = beta**2 * precision + recall
    return np.where(below > 0, (1 + beta**2) * precision * recall / np.where(below > 0, below, 1.0), 0.0)
