"""CIDEr: n-grams in common with the references, weighted by how rare they are in all references of a data set."""

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from rewards.base import Inputs, MetricResult
from rewards.errors import MetricInputError, flag, number, one_of, path_of
from rewards.overlap.base import OverlapMetric
from rewards.words import libraries, porter_stem, tokenizer

logger = logging.getLogger(__name__)

Ngrams = Counter[tuple[str, ...]]
Vectors = tuple[list[dict[tuple[str, ...], float]], list[float], int]
"""A text's vector for each order, their norms, and its length in words less one."""
Group = str | Sequence[str]


class Cider(OverlapMetric):
    """CIDEr or CIDEr-D: cosine of vectors of n-grams, weighted by tf-idf, with each reference; their mean.

    Source: Vedantam, Zitnick, Parikh, "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015 (CIDEr and
    CIDEr-D); the captioning scripts (Chen et al. 2015). With c(g) how often n-gram g is in a text, N documents (the
    references of one row are one document) and d(g) of them with g, a text's vector of order n is
    ``v(g) = c(g) log(N / d(g))``; d of an n-gram of no document counts as 1. The score is the mean over n = 1 .. 4 and
    over references.
    ``variant``:

    - ``"coco"``: CIDEr-D as the captioning scripts compute it (under the name CIDEr), times 10. With h the question's
      and r the reference's vector: ``sum of min(h, r) r / (|h| |r|) * exp(-(l_h - l_r)^2 / (2 sigma^2))``; l is the
      number of words less one. In [0, 10]. The paper's CIDEr-D divides c(g) by the number of n-grams of the text,
      which changes min(h, r), and stems words; the scripts do neither.
    - ``"paper"``: CIDEr as the paper defines it: ``h r / (|h| |r|)``, words stemmed. In [0, 1].

    Document frequencies are part of the number. Without ``documents`` they are those of all references of the call to
    `score`, as in the captioning scripts: then a score depends on the other rows, and one row alone (N = 1: every
    weight is 0) scores 0, which is logged once. A reward that is called with batches, and a part of a combination,
    must have ``documents``.

    Args:
        order: longest n-gram, from 1.
        sigma: width of the penalty for another length than the reference's (``coco``).
        documents: the references of a whole data set: for each row a text or a list of texts; or a file with a text on
            each line, or, where its name ends in .jsonl, a JSON list of texts on each line. None: those of each call.
        stem: compare Porter stems (English; needs nltk); None takes the variant's.
    """

    name = "cider"

    def __init__(
        self,
        variant: Literal["coco", "paper"] = "coco",
        *,
        order: int = 4,
        sigma: float = 6.0,
        documents: Iterable[Group] | str | Path | None = None,
        stem: bool | None = None,
        tokenize: str = "ptb",
    ) -> None:
        self.variant = one_of(self.name, "variant", variant, ("coco", "paper"))
        self.tokenize = tokenize
        self.order = int(number("cider", "order", order, low=1, whole=True))
        self.sigma = number("cider", "sigma", sigma, low=1e-6, high=1e150)
        self.stem = variant == "paper" if stem is None else flag("cider", "stem", stem)
        self.bounds = (0.0, 10.0 if variant == "coco" else 1.0)
        self.whole_set = documents is None
        tokenizer(tokenize)
        if self.stem:
            porter_stem()
        self._warned = False
        self._source = "call"
        if documents is not None:
            if getattr(documents, "ndim", 1) != 1:
                self._listed("documents", documents)  # a table, whose entries are the names of its columns
            groups = _documents(documents)
            if len(groups) < 2:
                raise MetricInputError(
                    f"cider: documents has {len(groups)} row(s), so that every n-gram weighs 0; give the references "
                    "of a whole data set, or null"
                )
            self._count(groups)
            digest = hashlib.sha256(json.dumps(groups).encode()).hexdigest()[:8]
            self._source = f"{len(groups)}@{digest}"

    def choices(self) -> Mapping[str, object]:
        return {
            "variant": self.variant,
            "order": self.order,
            **({"sigma": self.sigma} if self.variant == "coco" else {}),
            "documents": self._source,
            "stem": "porter" if self.stem else "no",
            "tokenize": self.tokenize,
            **libraries(self.tokenize, stem=self.stem),
        }

    def begin(self, references: Sequence[Sequence[str]]) -> None:
        if self.whole_set:
            self._count(references)
            if self._documents == 1 and not self._warned:
                self._warned = True
                logger.warning("cider: one row has no document frequencies, so it scores 0; give the option documents")

    def compute(self, inputs: Inputs) -> MetricResult:
        scores = []
        for question, group in zip(inputs.questions, inputs.references, strict=True):
            given = self._vectors(question)
            values = [self._similarity(given, self._vectors(text)) for text in group]
            scores.append(math.fsum(values) / len(values))
        return MetricResult(scores, {})

    def _words(self, text: str) -> Sequence[str]:
        words = super()._words(text)
        return [porter_stem()(word) for word in words] if self.stem else words

    def _count(self, groups: Sequence[Sequence[str]]) -> None:
        counts: Ngrams = Counter()
        for group in groups:
            counts.update({gram for text in group for grams in self._ngrams(text) for gram in grams})
        self._documents, self._counts = len(groups), counts

    def _ngrams(self, text: str) -> list[Ngrams]:
        words = self._words(text)
        return [
            Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1)) for n in range(1, self.order + 1)
        ]

    def _vectors(self, text: str) -> Vectors:
        grams = self._ngrams(text)
        vectors = [
            {gram: count * math.log(self._documents / max(self._counts[gram], 1)) for gram, count in of_order.items()}
            for of_order in grams
        ]
        norms = [math.sqrt(math.fsum(value**2 for value in vector.values())) for vector in vectors]
        return vectors, norms, max(sum(grams[0].values()) - 1, 0)

    def _similarity(self, question: Vectors, reference: Vectors) -> float:
        (given, sizes, length), (gold, others, other_length) = question, reference
        clipped = self.variant == "coco"
        total = 0.0
        for h, r, size, other in zip(given, gold, sizes, others, strict=True):
            if size > 0 and other > 0:
                shared = h.keys() & r.keys()
                product = math.fsum((min(h[gram], r[gram]) if clipped else h[gram]) * r[gram] for gram in shared)
                total += product / (size * other)
        mean = total / self.order
        return 10 * mean * math.exp(-((length - other_length) ** 2) / (2 * self.sigma**2)) if clipped else mean


def _documents(given: object) -> list[list[str]]:
    if not isinstance(given, str | Path):
        if not isinstance(given, Iterable) or isinstance(given, Mapping):
            raise MetricInputError(
                f"cider: documents {given!r:.60} is neither a file nor a list; give for each row a text or a list of "
                "texts"
            )
        return list(map(_group, given))
    path = path_of("cider", "documents", given)
    form = "give a text file with a text on each line, or .jsonl with a list of texts on each line"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MetricInputError(f"cider: documents {str(path)!r} cannot be read ({error}); {form}") from None
    groups = []
    for at, line in enumerate(text.split("\n"), 1):  # splitlines cuts inside texts: U+2028, form feeds
        try:
            if line.strip():
                groups.append(_group(json.loads(line) if path.suffix == ".jsonl" else line))
        except (ValueError, MetricInputError):
            raise MetricInputError(f"cider: documents {str(path)!r}, line {at}: no list of texts; {form}") from None
    return groups


def _group(given: object) -> list[str]:
    group = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else []
    if not group or not all(isinstance(text, str) for text in group):
        raise MetricInputError(f"cider: documents has {given!r:.60}; give for each row a text or a list of texts")
    return group
