"""Q-BLEU of lower-cased text whose case is restored before its words are sorted into classes."""

from collections.abc import Mapping, Sequence

from rewards.base import Inputs, MetricResult
from rewards.errors import installed_version, library, number
from rewards.overlap.answerability import Answerability
from rewards.overlap.base import OverlapMetric
from rewards.overlap.bleu import Bleu
from rewards.words import cached_by_text, libraries, ptb


class TruecasedQBleu(OverlapMetric):
    """Q-BLEU with the case restored by a true-caser, as for multi-question sets, 0 to 2: a word that a question
    repeats can bring it above 1, as in the released code (``matching="set"`` of `Answerability`).

    ``delta * answerability + (1 - delta) * BLEU``: answerability with ``matching="set"`` of texts in PTB words, lower
    case, to which the package truecase gives capitals again; BLEU is the captioning scripts' on lower-cased words.
    Without capitals no word would count as a named entity. The true-caser also capitalises every word that it does
    not know, and is English.

    Source: JRC1995/QuestionGenerationPub, the code of Ray Chowdhury, Mahata, Caragea, "On the Evaluation of
    Answer-Agnostic Paragraph-level Multi-Question Generation", 2022. Differences: among forms of a word that are as
    likely theirs takes any, and this class the first in the order of their characters, so that scores are the same in
    each run. A text is one sentence (theirs splits it first, for which nltk needs data).

    ``order`` of BLEU is 1 to 4. Parts: ``answerability`` and ``ngram``.
    """

    name = "q_bleu_truecased"
    tokenize = "ptb"
    bounds = (0.0, 2.0)
    part_names = ("answerability", "ngram")

    def __init__(self, order: int = 1, delta: float = 0.66) -> None:
        self.order = int(number(self.name, "order", order, low=1, high=4, whole=True))
        self.delta = number(self.name, "delta", delta, low=0, high=1)
        split = library("nltk.tokenize", self.name, "nltk").word_tokenize
        self._caser = library("truecase", self.name, "'rl-qg[truecase]'").TrueCaser()
        forms = self._caser.word_casing_lookup  # tried in a fixed order:
        self._caser.word_casing_lookup = {word: sorted(found) for word, found in forms.items()}

        def true_case(text: str) -> str:
            words: Sequence[str] = split(" ".join(ptb(text)), preserve_line=True)
            return self._caser.detknzr.detokenize(self._caser.get_true_case_from_tokens(words, "title"))

        self._answerability = Answerability(matching="set", tokenize="none")
        self._bleu = Bleu(self.order, "coco")
        self._cased = cached_by_text(true_case)

    def choices(self) -> Mapping[str, object]:
        return {
            "order": self.order,
            "delta": self.delta,
            "truecase": installed_version("truecase"),
            "ties": "first",
            "answerability": self._answerability.signature.replace("|", " "),
            **libraries(self.tokenize, stem=True),
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        answerability = self._answerability.score(
            [self._cased(text) for text in inputs.questions],
            references=[[self._cased(text) for text in group] for group in inputs.references],
        ).scores
        ngram = self._bleu.compute(inputs).scores
        pairs = zip(answerability, ngram, strict=True)
        scores = [self.delta * first + (1 - self.delta) * second for first, second in pairs]
        return MetricResult(scores, {"answerability": answerability, "ngram": ngram})
