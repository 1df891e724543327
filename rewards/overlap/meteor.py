"""METEOR as nltk computes it, with WordNet's synonyms where its data are installed.

WordNet for nltk: ``python -m nltk.downloader wordnet``, or a folder ``corpora/wordnet`` with WordNet 3.0's files in a
folder that ``NLTK_DATA`` lists; experiments/multi-question/wordnet.sh makes it from Debian's or Ubuntu's packages.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal

from rewards.base import Inputs, MetricResult
from rewards.errors import MetricInputError
from rewards.optional_imports import library
from rewards.options import number
from rewards.overlap.base import OverlapMetric
from rewards.words import libraries, porter_stem, tokenizer

CACHED_WORDS = 1 << 16
"""How many words' synonyms are cached."""


class Meteor(OverlapMetric):
    """METEOR, 0 to 1: words aligned by form, by stem and by synonym; F-mean times a penalty for scattered matches.

    Source: Lavie and Agarwal, "METEOR: An Automatic Metric for MT Evaluation with High Levels of Correlation with
    Human Judgments", WMT 2007, with Banerjee and Lavie 2005's parameters. With m matched words in c runs,
    ``F = P R / (alpha P + (1 - alpha) R)``, score ``(1 - gamma (c/m)**beta) F``; alignment and formula are nltk's.
    Several references: the best score.

    These are not the numbers of METEOR 1.5 (Java), which the captioning scripts and most papers on question generation
    report: 1.5 has tuned parameters, weights its matchers, distinguishes function words and matches paraphrases.
    nltk aligns greedily from the end, where 1.5 minimises the number of runs, and looks up synonyms of *stems*, since
    words that remain after the stemming stage stay stemmed. An identical question scores ``1 - gamma / m**beta``, not
    1.

    Stemming and synonyms are English; in other languages only equal words should match: set ``stem=False``, or
    Porter's English rules are applied to them.

    Args:
        tokenize: any of `rewards.words.tokenizer`; ``space`` gives the words of QGEval's authors.
        synonyms: ``"auto"`` uses WordNet if nltk finds it; ``"wordnet"`` requires it; ``"none"`` omits the stage.
            The signature says which was used.
        stem: match Porter stems.
        alpha: weight of recall in the mean with precision, 0 to 1. The defaults are nltk's, those of 2005.
        beta: exponent of the penalty for fragments, 0 and more.
        gamma: largest penalty for fragments, 0 to 1.

    Raises:
        MetricInputError: nltk is missing, a parameter out of range, or WordNet is required and missing.
    """

    name = "meteor"

    def __init__(
        self,
        tokenize: str = "ptb",
        *,
        synonyms: Literal["auto", "wordnet", "none"] = "auto",
        stem: bool = True,
        alpha: float = 0.9,
        beta: float = 3.0,
        gamma: float = 0.5,
    ) -> None:
        if synonyms not in ("auto", "wordnet", "none"):
            raise MetricInputError(f"meteor: synonyms {synonyms!r} does not exist; use auto, wordnet or none")
        self._score = library("nltk.translate.meteor_score", "meteor", "nltk").single_meteor_score
        wordnet = _wordnet() if synonyms != "none" else None
        if synonyms == "wordnet" and wordnet is None:
            raise MetricInputError(
                "meteor: nltk finds no WordNet; python -m nltk.downloader wordnet, or set NLTK_DATA to a folder with "
                "corpora/wordnet (docs/explanation/metrics.md), or synonyms=auto to go without"
            )
        self._synonyms = wordnet or _NoSynonyms()
        self._stemmer = _Stems() if stem else _NoStems()
        self.tokenize = tokenize
        tokenizer(tokenize)
        self.alpha = number("meteor", "alpha", alpha, low=0, high=1)
        self.beta = number("meteor", "beta", beta, low=0)
        self.gamma = number("meteor", "gamma", gamma, low=0, high=1)

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        stages = ["exact", *self._stemmer.stage, *self._synonyms.stage]
        return {
            "stages": "+".join(stages),
            "alpha": self.alpha,
            "beta": self.beta,
            "gamma": self.gamma,
            "tokenize": self.tokenize,
            **libraries(self.tokenize, stem=True),  # nltk is used in every stage
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return one score for each question."""
        rows = zip(*self._rows(inputs), strict=True)
        return MetricResult([max(self._pair(question, gold) for gold in golds) for question, golds in rows], {})

    def _pair(self, question: Sequence[str], reference: Sequence[str]) -> float:
        return float(
            self._score(
                reference,
                question,
                stemmer=self._stemmer,
                wordnet=self._synonyms,
                alpha=self.alpha,
                beta=self.beta,
                gamma=self.gamma,
            )
        )


class _Stems:
    """nltk's stemmer as its METEOR expects it, with a cache."""

    stage = ("stem",)

    def __init__(self) -> None:
        self.stem = porter_stem()


class _NoStems:
    stage = ()

    def stem(self, word: str) -> str:
        """Return the word."""
        return word


class _NoSynonyms:
    """A dictionary without words."""

    stage = ()

    def synsets(self, word: str) -> tuple[Any, ...]:
        """Return no synset."""
        return ()


class _Synonyms:
    """nltk's WordNet as its METEOR expects it, with a cache."""

    def __init__(self, wordnet: Any) -> None:
        self.stage = (f"wordnet-{wordnet.get_version()}",)
        self.synsets = lru_cache(CACHED_WORDS)(lambda word: [_Synset(synset) for synset in wordnet.synsets(word)])


class _Synset:
    """A synset with its lemmas cached: nltk looks them up at each call."""

    def __init__(self, synset: Any) -> None:
        lemmas = synset.lemmas()
        self.lemmas = lambda: lemmas


@cache
def _wordnet() -> _Synonyms | None:
    """Return WordNet if nltk finds it; raise `MetricInputError` where it is incomplete."""
    wordnet = library("nltk.corpus", "meteor", "nltk").wordnet
    try:
        return _Synonyms(wordnet)
    except LookupError:
        return None
    except OSError as error:
        raise MetricInputError(
            f"meteor: nltk's WordNet is incomplete: {error}; synonyms=none does not need it"
        ) from None
