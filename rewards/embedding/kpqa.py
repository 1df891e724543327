"""KPQA: BLEU-1, ROUGE-L and BERTScore with tokens weighted by how much they answer a question.

Source: Lee, Yoon, Dernoncourt, Kim, Bui, Shin, Jung, "KPQA: A Metric for Generative Question Answering Using Keyphrase
Weights", NAACL 2021, section 3 (keyphrase weights; BLEU-1-KPQA, ROUGE-L-KPQA, BERTScore-KPQA), and its released code
(hwanheelee1993/KPQA, `compute_KPQA.py`). The metrics are computed as the code does.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.embedding.bertscore import greedy_match
from rewards.embedding.kpqa_weights import KeyphraseWeights
from rewards.embedding.token_embeddings import Pair, TextEncoder, pairs_of
from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel
from rewards.options import batch_of

METRICS = ("bleu1", "rouge_l", "bertscore")
_COLUMN = {"context": "contexts", "answer": "answers"}
_TINY, _SMALL = 1e-15, 1e-9  # of the captioning scripts, so that nothing is divided by 0

Weighted = tuple[list[int], list[float]]
"""Token ids of a text and the weight of each."""


class KPQA(Metric):
    """A metric of overlap or similarity in which a token counts as much as it is likely to be part of an answer.

    A predictor gives each token a weight in [0, 1] from the text and a *condition*
    (`rewards.embedding.kpqa_weights`). The texts that are scored go into ``questions``, whatever they are:

    - Answers to a question, for which the metric was made and validated against human ratings: ``questions`` = the
      system's answers, ``contexts`` = the questions they answer, ``references`` = gold answers.
    - Generated questions: ``questions`` and ``references`` are questions; the condition is the passage
      (``condition="context"``) or the answer (``condition="answer"``). No published predictor was trained for this:
      weights are then those of words that look like an answer in a question.

    ``condition="none"`` is the paper's ablation -KP: weights from the text alone, by a predictor trained without
    questions (`rl-qg train-kpqa question=false`). Let w be weights, h the scored text, r a reference, c_x(t) how often
    token t is in x:

    - ``metric="bleu1"``: BP * sum over t of min(c_h(t), c_r(t)) * mean weight of t in h / sum w_h, BP =
      exp(1 - |r|/|h|) where h is shorter. Reference weights are not used. In [0, 1].
    - ``metric="rouge_l"``: the longest common subsequence, each match counting the *reference* token's weight, over
      sum w_h (precision) and sum w_r (recall); F = 2pr / (p + r). A match is always used, so it is not the heaviest
      subsequence; and since one side's weights are divided by the other's, precision and F can exceed 1, as in the
      released code.
    - ``metric="bertscore"``: greedy matching (`rewards.embedding.bertscore`) of the outputs of layer 1, weighted
      by w, special tokens can be matched; no idf, no rescaling (the released code prepares idf and then replaces it).
      In [-1, 1].

    With several references the largest F. Tokens are the predictor's word pieces; its tokenizer decides about case.
    Differences from the released code: each pair is scored separately (there two entries of a batch with equal texts
    and different weights get the weights of the last one); texts without tokens or weight score 0; embeddings are
    those of the predictor's encoder unless ``encoder`` names another of the same vocabulary (released: BERT-large,
    whole-word masking, fine-tuned on SQuAD).

    Cost: one pass of the predictor for each distinct text with its condition; ``bertscore``: in addition one pass
    of one layer for each distinct text.

    Args:
        model: the predictor, a token classifier: a folder of `rl-qg train-kpqa`.
        metric: ``bleu1``, ``rouge_l`` or ``bertscore``.
        condition: ``context``, ``answer`` or ``none``.
        encoder: for ``bertscore``, the encoder of the embeddings; None for the predictor's.
        layer: for ``bertscore``, the layer whose output is compared.
        batch_size: texts per forward pass.
        device: where to run; None takes the current GPU if there is one, else the CPU.
        dtype: floating-point type of the models.

    Parts: ``weights``, those of the scored text's tokens; ``precision`` and ``recall`` of the best reference.

    Raises:
        MetricInputError: an option that does not exist, no predictor, one that was trained with questions where the
            condition is none (or without, where there is one), or models that cannot be used or do not fit.
    """

    name = "kpqa"

    def __init__(
        self,
        model: str | None = None,
        metric: Literal["bleu1", "rouge_l", "bertscore"] = "bertscore",
        *,
        condition: Literal["context", "answer", "none"] = "context",
        encoder: str | None = None,
        layer: int = 1,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        if metric not in METRICS:
            raise MetricInputError(f"kpqa: metric {metric!r} does not exist; use one of {', '.join(METRICS)}")
        if condition not in (*_COLUMN, "none"):
            raise MetricInputError(f"kpqa: condition {condition!r} does not exist; use context, answer or none")
        if model is None:
            raise MetricInputError(
                "kpqa: no predictor; give model=, a folder of rl-qg train-kpqa (docs/explanation/kpqa.md)"
            )
        self.metric, self.condition = metric, condition
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        self.needs = frozenset({"references", *filter(None, [_COLUMN.get(condition)])})
        self.part_names = ("weights",) if metric == "bleu1" else ("weights", "precision", "recall")
        self.bounds = {"bleu1": (0.0, 1.0), "rouge_l": (0.0, math.inf), "bertscore": (-1.0, 1.0)}[metric]
        self.predictor = FrozenModel(model, "tagger", device=device, dtype=dtype)
        self._weigh = KeyphraseWeights(self.predictor, batch_size=batch_size)
        self._weigh.check(conditioned=condition != "none")
        self.encoder: FrozenModel | None = None
        if metric == "bertscore":
            self.encoder = FrozenModel(encoder or model, "encoder", device=device, dtype=dtype)
            _check_vocabularies(self.predictor, self.encoder)
            self._embed = TextEncoder(self.encoder, [layer], batch_size=batch_size, name=self.name)

    @property
    def truncated(self) -> int:
        """How many inputs were cut at the predictor's length so far."""
        return self._weigh.truncated

    def weights(self, texts: Sequence[str], conditions: Sequence[str] | None = None) -> list[list[tuple[str, float]]]:
        """Return the tokens of each text, as the tokenizer writes them, with their weights in [0, 1].

        Args:
            texts: answers, or any other texts; each is cut at the length that the predictor can read.
            conditions: for each text, the question it answers; None for weights from the text alone. `condition`,
                which scores use, has no effect.

        Raises:
            MetricInputError: something other than text, lists of unequal length, or a predictor that was trained with
                questions where there are none (or without, where there are).
        """
        self._check_texts("texts", texts)
        if conditions is not None:
            self._check_texts("conditions", conditions)
            if len(conditions) != len(texts):
                raise MetricInputError(
                    f"{self.name}: {len(texts)} texts but {len(conditions)} conditions; give one of each per row"
                )
        with torch.inference_mode():
            weights = self._weigh(texts, conditions)
        pieces = map(self.predictor.tokenizer.convert_ids_to_tokens, self._weigh.tokens(texts))
        return [list(zip(*pair, strict=True)) for pair in zip(pieces, weights, strict=True)]

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        chosen = {"metric": self.metric, "condition": self.condition, "model": self.predictor.identity}
        if self.encoder is not None:
            chosen |= {"encoder": self.encoder.identity, "layer": str(self._embed.layers[0])}
        return {**chosen, "dtype": self.dtype}

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return the score against the best reference."""
        pairs, owners = pairs_of(inputs, "references")
        weighted = self._weighted(inputs, pairs, owners)
        values = self._values(pairs, weighted)
        best: dict[int, tuple[float, float, float]] = {}
        weights: dict[int, list[float]] = {}
        for row, scores, (text, _) in zip(owners, values, weighted, strict=True):
            best[row] = max(best.get(row, scores), scores, key=lambda value: value[2])
            weights[row] = text[1]
        rows = range(len(inputs.questions))
        parts: dict[str, list[Any]] = {"weights": [weights[row] for row in rows]}
        if self.metric != "bleu1":
            parts |= {"precision": [best[row][0] for row in rows], "recall": [best[row][1] for row in rows]}
        return MetricResult([best[row][2] for row in rows], parts)

    def _weighted(
        self, inputs: Inputs, pairs: Sequence[Pair], owners: Sequence[int]
    ) -> list[tuple[Weighted, Weighted]]:
        """Return tokens and weights of both texts of each pair; each distinct text is read once per condition."""
        columns = {"context": inputs.contexts, "answer": inputs.answers, "none": [""] * len(inputs.questions)}
        conditions = columns[self.condition]
        keys = dict.fromkeys((text, conditions[row]) for pair, row in zip(pairs, owners, strict=True) for text in pair)
        texts = [text for text, _ in keys]
        shown = None if self.condition == "none" else [condition for _, condition in keys]
        weighted = dict(zip(keys, zip(self._weigh.tokens(texts), self._weigh(texts, shown), strict=True), strict=True))
        return [
            (weighted[pair[0], conditions[row]], weighted[pair[1], conditions[row]])
            for pair, row in zip(pairs, owners, strict=True)
        ]

    def _values(
        self, pairs: Sequence[Pair], weighted: Sequence[tuple[Weighted, Weighted]]
    ) -> list[tuple[float, float, float]]:
        """Return precision, recall (0 in BLEU, which has none) and the score of each pair."""
        if self.metric == "bertscore":
            return self._similarity(pairs, weighted)
        if self.metric == "rouge_l":
            return [rouge_l_kpqa(text, reference) for text, reference in weighted]
        return [(0.0, 0.0, bleu1_kpqa(text, reference[0])) for text, reference in weighted]

    def _similarity(
        self, pairs: Sequence[Pair], weighted: Sequence[tuple[Weighted, Weighted]]
    ) -> list[tuple[float, float, float]]:
        """Return BERTScore-KPQA of each pair: precision, recall and F.

        Source: Lee et al. 2021, section 3; as released (`bert_score/utils.py`, `bert_cos_score_idf`).
        """
        sides = [text for pair in weighted for text in pair]
        tokens = {
            text: self._embed.marked(ids)
            for text, (ids, _) in zip((t for pair in pairs for t in pair), sides, strict=True)
        }
        values = torch.zeros(len(pairs), 3, dtype=torch.float64)
        for positions, embedded in self._embed.blocks(pairs, tokens):
            values[positions] = greedy_match(
                [(embedded[pairs[at][0]], embedded[pairs[at][1]]) for at in positions],
                [
                    (_with_special_tokens(weighted[at][0][1]), _with_special_tokens(weighted[at][1][1]))
                    for at in positions
                ],
            )
        return [(precision, recall, f) for precision, recall, f in values.tolist()]


def bleu1_kpqa(text: Weighted, reference: Sequence[int]) -> float:
    """BLEU-1-KPQA of one text and one reference, in [0, 1].

    Source: Lee et al. 2021, section 3; as released (`bleu_scorer.py`, `compute_weight_dict`).
    """
    tokens, weights = text
    sums: dict[int, float] = {}
    for token, weight in zip(tokens, weights, strict=True):
        sums[token] = sums.get(token, 0.0) + weight
    counts, reference_counts = Counter(tokens), Counter(reference)
    matched = sum(min(count, reference_counts[token]) * sums[token] / count for token, count in counts.items())
    precision = (matched + _TINY) / (sum(weights) + _SMALL)
    ratio = (len(tokens) + _TINY) / (len(reference) + _SMALL)
    return precision * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0)


def rouge_l_kpqa(text: Weighted, reference: Weighted) -> tuple[float, float, float]:
    """ROUGE-L-KPQA of one text and one reference: precision, recall and F, each at least 0 and without upper bound.

    Source: Lee et al. 2021, section 3; as released (`rouge_scorer.py`, `_score_kp_lcs`).
    """
    row = [0.0] * (len(text[0]) + 1)
    for token, weight in zip(*reference, strict=True):
        corner = 0.0
        for index, other in enumerate(text[0], 1):
            above = row[index]
            row[index] = corner + weight if other == token else max(above, row[index - 1])
            corner = above
    totals = sum(text[1]), sum(reference[1])
    if not all(total > 0 for total in totals):
        return 0.0, 0.0, 0.0
    precision, recall = (row[-1] / total for total in totals)
    return precision, recall, 2 * precision * recall / (precision + recall) if row[-1] > 0 else 0.0


def _with_special_tokens(weights: list[float]) -> torch.Tensor:
    """Return weights with those of the special tokens: 0, but these tokens can be matched."""
    return torch.tensor([0.0, *weights, 0.0])


def _check_vocabularies(predictor: FrozenModel, encoder: FrozenModel) -> None:
    """Raise for an encoder in which the predictor's token ids mean something else."""
    if predictor.tokenizer.get_vocab() != encoder.tokenizer.get_vocab():
        raise MetricInputError(
            f"kpqa: encoder {encoder.name!r} has another vocabulary than the predictor {predictor.name!r}; give one "
            "with the same, or null for the predictor's own encoder"
        )
    if encoder.max_tokens < predictor.max_tokens:
        raise MetricInputError(
            f"kpqa: encoder {encoder.name!r} reads {encoder.max_tokens} tokens, the predictor {predictor.max_tokens}; "
            "give one that reads as many"
        )
