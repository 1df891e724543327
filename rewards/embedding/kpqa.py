"""KPQA: BLEU-1, ROUGE-L and BERTScore with tokens weighted by how much they answer a question.

Source: Lee, Yoon, Dernoncourt, Kim, Bui, Shin, Jung, "KPQA: A Metric for Generative Question Answering Using Keyphrase
Weights", NAACL 2021, section 3 (keyphrase weights; equations 1 to 8: BLEU-1-KPQA, ROUGE-L-KPQA, BERTScore-KPQA), and
its released code (hwanheelee1993/KPQA, `compute_KPQA.py`), which computes the first two in another way.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import torch

from rewards.base import Inputs, Metric, MetricResult, Pair
from rewards.embedding.bertscore import greedy_match
from rewards.embedding.token_embeddings import Embedded, TextEncoder
from rewards.errors import MetricInputError, batch_of, number, one_of
from rewards.frozen import CountsCuts, FrozenModel, batches_by_length

LABELS = ("keyphrase", "other")  # classes of a predictor of `rl-qg train-kpqa`; the released one has K and O

READS_QUESTION = "reads_question"  # key of its configuration: whether it was trained with questions

_NAMES = ("keyphrase", "k")


class KeyphraseWeights(CountsCuts):
    """Weights of a text's tokens (section 3, `kpw.py` of the released code), given its question or passage.

    The predictor, a token classifier, reads ``<cls> condition <sep> text <sep>``, or ``<cls> text <sep>`` without a
    condition (the paper's ablation without the question); a token's weight is the probability of the class
    ``keyphrase`` (label `keyphrase` or `K`; of two unnamed labels the first, as released). Segments: 0 up to and
    including the first ``<sep>``, 1 after it, and 1 for ``<cls>``, as in the released code at scoring time; 0
    everywhere without a condition. Where the input is too long for the model, the condition is cut at its end, and so
    is a text that alone is too long; the released code fails there. A predictor must be used as it was trained: one
    trained with questions needs a condition, one trained without accepts none, and one whose configuration does not
    say accepts both.
    """

    def __init__(self, model: FrozenModel, *, batch_size: int) -> None:
        labels = {int(number): str(name).casefold() for number, name in model.model.config.id2label.items()}
        unnamed = labels == {0: "label_0", 1: "label_1"}
        named = [number for number, name in labels.items() if name in _NAMES]
        if not unnamed and len(named) != 1:
            raise MetricInputError(
                f"kpqa: {model.name!r} has the labels {', '.join(labels.values())} and none for keyphrases; give a "
                "folder of rl-qg train-kpqa"
            )
        model.need_special_tokens("kpqa")
        self.model = model
        self.batch_size = batch_size
        self._class = 0 if unnamed else named[0]

    def check(self, *, conditioned: bool) -> None:
        name = self.model.name
        if getattr(self.model.model.config, READS_QUESTION, None) in (None, conditioned):
            return
        if conditioned:
            raise MetricInputError(
                f"kpqa: {name!r} was trained without questions (the ablation -KP) and cannot read a condition; use "
                "condition=none, or a predictor trained with train_kpqa.question=true"
            )
        raise MetricInputError(
            f"kpqa: {name!r} was trained with questions and cannot weigh a text without a condition; use "
            "condition=context or answer, or a predictor trained with train_kpqa.question=false"
        )

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids[: self.model.max_tokens - 3] for ids in self.model.ids(texts)]

    def __call__(self, texts: Sequence[str], conditions: Sequence[str] | None) -> list[list[float]]:
        """Return one weight for each token (of `tokens`) of each text, given its condition, if any."""
        self.check(conditioned=conditions is not None)
        tokenizer, most = self.model.tokenizer, self.model.max_tokens
        condition_ids = [None] * len(texts) if conditions is None else self.model.ids(conditions)
        ids_of_both = list(zip(condition_ids, self.model.ids(texts), strict=True))
        read = [predictor_input(tokenizer, condition, ids, most) for condition, ids in ids_of_both]
        self.note_long("kpqa", (len(condition or ()) + len(ids) + 3 for condition, ids in ids_of_both), most)
        weights: list[list[float]] = [[]] * len(texts)
        for batch in batches_by_length([len(row) for row, *_ in read], self.batch_size, self.model.tokens_at_once):
            rows, types, lengths = zip(*(read[at] for at in batch), strict=True)
            logits = self.model.model(**self.model.batch(rows, types)).logits
            probabilities = logits.float().softmax(-1)[..., self._class].cpu().double()
            for at, row, length, values in zip(batch, rows, lengths, probabilities, strict=True):
                weights[at] = values[len(row) - 1 - length : len(row) - 1].tolist()
        return weights


def predictor_input(
    tokenizer: Any, condition: Sequence[int] | None, text: Sequence[int], max_tokens: int
) -> tuple[list[int], list[int], int]:
    """Return token ids, segment ids, and how many of the text's tokens are in them, before the last one."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    kept = list(text[: max_tokens - 3])
    if condition is None:
        row = [cls, *kept, sep]
        return row, [0] * len(row), len(kept)
    front = list(condition[: max_tokens - 3 - len(kept)])
    return [cls, *front, sep, *kept, sep], [1, *[0] * (len(front) + 1), *[1] * (len(kept) + 1)], len(kept)


METRICS = ("bleu1", "rouge_l", "bertscore")
Variant = Literal["official", "paper"]
Repeats = Literal["each", "once"]
_COLUMN = {"context": "contexts", "answer": "answers"}
_TINY, _SMALL = 1e-15, 1e-9  # of the captioning scripts, so that nothing is divided by 0

Weighted = tuple[list[int], list[float]]  # token ids of a text and the weight of each


class KPQA(Metric):
    """A metric of overlap or similarity in which a token counts as much as it is likely to be part of an answer.

    A predictor gives each token a weight in [0, 1] from the text and a *condition* (`KeyphraseWeights`). The texts
    that are scored go into ``questions``: answers to a question, for which the metric was made and validated against
    human ratings (``contexts`` = the questions they answer, ``references`` = gold answers), or generated questions
    (``references`` = gold questions; the condition is the passage, ``context``, or the ``answer``), for which no
    published predictor was trained.

    ``condition="none"`` is the paper's ablation -KP: weights from the text alone, by a predictor trained without
    questions (`rl-qg train-kpqa question=false`). Let w be weights, h the scored text, r a reference, c_x(t) how often
    token t is in x. ``variant="official"`` is the released code:

    - ``metric="bleu1"``: BP * sum over t of min(c_h(t), c_r(t)) * mean weight of t in h / sum w_h, BP =
      exp(1 - |r|/|h|) where h is shorter. Reference weights are not used. In [0, 1].
    - ``metric="rouge_l"``: the longest common subsequence, each match counting the *reference* token's weight, over
      sum w_h (precision) and sum w_r (recall); F = 2pr / (p + r). A match is always used, so it is not the heaviest
      subsequence; and since one side's weights are divided by the other's, precision and F can exceed 1.
    - ``metric="bertscore"``: greedy matching (`rewards.embedding.bertscore`) of the outputs of layer 1, weighted
      by w, special tokens can be matched; no idf, no rescaling (the released code prepares idf and then replaces it).
      In [-1, 1].

    ``variant="paper"`` is the text's equations:

    - ``bleu1`` (equation 1): sum over the tokens i of h of w_i c_r(h_i) / sum w_h, without brevity penalty and without
      clipping. As printed, its double sum counts a token once for each equal token of r, so that the value can exceed
      1; ``repeats="once"`` counts it once if r has it at all, which is a weighted precision in [0, 1].
    - ``rouge_l`` (2 to 5): the tokens of h that are in the longest common subsequence, their weights over sum w_h
      (precision, at most 1) and over sum w_r (recall, which can exceed 1); F = (1 + beta^2) p r / (r + beta^2 p). Of
      several subsequences of the same length the heaviest counts; the text does not say which. It takes beta from Lin
      (2004), who has beta = p / r there (``beta="lin"``), and uses other values elsewhere.
    - ``bertscore`` (6 to 8): as released, but special tokens cannot be matched; the equations have none.

    With several references the largest F. Tokens are the predictor's word pieces. Differences from the released code:
    each pair is scored separately (there two entries of a batch with equal texts and different weights get the weights
    of the last one); texts without tokens or weight score 0; embeddings are those of the predictor's encoder unless
    ``encoder`` names another of the same vocabulary (released: BERT-large, whole-word masking, fine-tuned on SQuAD).

    Cost: one pass of the predictor for each distinct text with its condition; ``bertscore``: in addition one pass
    of one layer for each distinct text.

    Args:
        model: the predictor: a folder of `rl-qg train-kpqa`, or the released checkpoint as safetensors.
        encoder: for ``bertscore``, the encoder of the embeddings; None for the predictor's.
        layer: for ``bertscore``, the layer whose output is compared.
        beta: for the paper's ``rouge_l``, a number from 0 to a million or ``lin``; None for ``lin``.
        repeats: for the paper's ``bleu1``, ``each`` or ``once``; None for ``each``.

    Parts: ``weights``, those of the scored text's tokens; ``precision`` and ``recall`` of the best reference.
    """

    name = "kpqa"

    def __init__(
        self,
        model: str | None = None,
        metric: Literal["bleu1", "rouge_l", "bertscore"] = "bertscore",
        *,
        variant: Variant = "official",
        condition: Literal["context", "answer", "none"] = "context",
        encoder: str | None = None,
        layer: int = 1,
        beta: float | Literal["lin"] | None = None,
        repeats: Repeats | None = None,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        one_of("kpqa", "metric", metric, METRICS)
        one_of("kpqa", "variant", variant, get_args(Variant))
        one_of("kpqa", "condition", condition, (*_COLUMN, "none"))
        one_of("kpqa", "repeats", "each" if repeats is None else repeats, get_args(Repeats))
        for option, given, owner in (("beta", beta, "rouge_l"), ("repeats", repeats, "bleu1")):
            if given is not None and (variant, metric) != ("paper", owner):
                raise MetricInputError(
                    f"kpqa: {option} is an option of variant=paper with metric={owner}; leave it out"
                )
        if model is None:
            raise MetricInputError(
                "kpqa: no predictor; give model=, a folder of rl-qg train-kpqa (docs/explanation/kpqa.md)"
            )
        self.metric, self.variant, self.condition = metric, variant, condition
        self.beta = None if beta in (None, "lin") else number("kpqa", "beta", beta, low=0, high=1e6)
        self.repeats = repeats or "each"
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        self.needs = frozenset({"references", *filter(None, [_COLUMN.get(condition)])})
        self.part_names = ("weights",) if metric == "bleu1" else ("weights", "precision", "recall")
        self.bounds = {"bleu1": (0.0, 1.0), "rouge_l": (0.0, math.inf), "bertscore": (-1.0, 1.0)}[metric]
        if (variant, metric, self.repeats) == ("paper", "bleu1", "each"):
            self.bounds = (0.0, math.inf)
        self.predictor = FrozenModel(model, "tagger", device=device, dtype=dtype)
        self._weigh = KeyphraseWeights(self.predictor, batch_size=batch_size)
        self._weigh.check(conditioned=condition != "none")
        self.encoder: FrozenModel | None = None
        if metric == "bertscore":
            self.encoder = FrozenModel(encoder or model, "encoder", device=device, dtype=dtype)
            if self.predictor.tokenizer.get_vocab() != self.encoder.tokenizer.get_vocab():
                raise MetricInputError(
                    f"kpqa: encoder {self.encoder.name!r} has another vocabulary than the predictor "
                    f"{self.predictor.name!r}; give one with the same, or null for the predictor's own encoder"
                )
            if self.encoder.max_tokens < self.predictor.max_tokens:
                raise MetricInputError(
                    f"kpqa: encoder {self.encoder.name!r} reads {self.encoder.max_tokens} tokens, the predictor "
                    f"{self.predictor.max_tokens}; give one that reads as many"
                )
            self._embed = TextEncoder(self.encoder, [layer], batch_size=batch_size, name=self.name)

    def weights(self, texts: Sequence[str], conditions: Sequence[str] | None = None) -> list[list[tuple[str, float]]]:
        """Return the tokens of each text, as the tokenizer writes them, with their weights."""
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
        chosen = {"metric": self.metric, "condition": self.condition, "model": self.predictor.identity}
        if self.variant == "paper":
            chosen["variant"] = "paper"
            if self.metric == "rouge_l":
                chosen["beta"] = "lin" if self.beta is None else f"{self.beta:g}"
            elif self.metric == "bleu1":
                chosen["repeats"] = self.repeats
        if self.encoder is not None:
            chosen |= {"encoder": self.encoder.identity, "layer": str(self._embed.layers[0])}
        return {**chosen, "dtype": self.dtype}

    def compute(self, inputs: Inputs) -> MetricResult:
        pairs, owners = inputs.pairs("references")
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
        columns = {"context": inputs.contexts, "answer": inputs.answers, "none": [""] * len(inputs.questions)}
        conditions = columns[self.condition]
        both = [[(text, conditions[row]) for text in pair] for pair, row in zip(pairs, owners, strict=True)]
        keys = list(dict.fromkeys(key for keys in both for key in keys))
        texts, shown = ([key[side] for key in keys] for side in (0, 1))
        weights = self._weigh(texts, None if self.condition == "none" else shown)
        weighted = dict(zip(keys, zip(self._weigh.tokens(texts), weights, strict=True), strict=True))
        return [(weighted[first], weighted[second]) for first, second in both]

    def _values(
        self, pairs: Sequence[Pair], weighted: Sequence[tuple[Weighted, Weighted]]
    ) -> list[tuple[float, float, float]]:
        if self.metric == "bertscore":
            return self._similarity(pairs, weighted)
        if self.metric == "rouge_l":
            score = partial(paper_rouge_l, beta=self.beta) if self.variant == "paper" else rouge_l_kpqa
            return [score(text, reference) for text, reference in weighted]
        bleu = partial(paper_bleu1, once=self.repeats == "once") if self.variant == "paper" else bleu1_kpqa
        return [(0.0, 0.0, bleu(text, reference[0])) for text, reference in weighted]

    def _similarity(
        self, pairs: Sequence[Pair], weighted: Sequence[tuple[Weighted, Weighted]]
    ) -> list[tuple[float, float, float]]:
        """Return BERTScore-KPQA of each pair (equations 6 to 8): precision, recall and F."""
        tokens = {
            text: self._embed.marked(ids)
            for pair, both in zip(pairs, weighted, strict=True)
            for text, (ids, _) in zip(pair, both, strict=True)
        }
        values = torch.zeros(len(pairs), 3, dtype=torch.float64)
        marked = self.variant == "official"
        ends = [0.0] if marked else []  # weights of the special tokens
        for positions, embedded in self._embed.blocks(pairs, tokens):
            if not marked:
                positions = [at for at in positions if weighted[at][0][1] and weighted[at][1][1]]  # the others score 0
                embedded = {
                    text: Embedded(replace(one.tokens, ids=one.tokens.ids[1:-1]), one.states[:, 1:-1])
                    for text, one in embedded.items()
                }
            texts = [(embedded[pairs[at][0]], embedded[pairs[at][1]]) for at in positions]
            weights = [[torch.tensor([*ends, *side[1], *ends]) for side in weighted[at]] for at in positions]
            values[positions] = greedy_match(texts, [(first, second) for first, second in weights])
        return [(precision, recall, f) for precision, recall, f in values.tolist()]


def bleu1_kpqa(text: Weighted, reference: Sequence[int]) -> float:
    """BLEU-1-KPQA of a text and a reference, as released (`bleu_scorer.py`, `compute_weight_dict`), in [0, 1]."""
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
    """ROUGE-L-KPQA as released (`rouge_scorer.py`, `_score_kp_lcs`): precision, recall and F, each at least 0."""
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


def paper_bleu1(text: Weighted, reference: Sequence[int], *, once: bool = False) -> float:
    """BLEU-1-KPQA as printed (equation 1), at least 0; with ``once`` at most 1. A text without weight scores 0."""
    counts = Counter({*reference} if once else reference)
    matched = sum(weight * counts[token] for token, weight in zip(*text, strict=True))
    total = sum(text[1])
    return matched / total if total > 0 else 0.0


def paper_rouge_l(text: Weighted, reference: Weighted, beta: float | None = None) -> tuple[float, float, float]:
    """ROUGE-L-KPQA as printed (equations 2 to 5): precision (at most 1), recall and F (without upper bound); ``beta``
    None is Lin 2004's precision / recall. A text without weight scores 0.
    """
    # Length first, so that the subsequence is a longest one; weight decides between those of one length.
    row = [(0, 0.0)] * (len(text[0]) + 1)
    for token in reference[0]:
        corner = row[0]
        for index, (other, weight) in enumerate(zip(*text, strict=True), 1):
            above = row[index]
            row[index] = max(above, row[index - 1])
            if other == token:
                row[index] = max(row[index], (corner[0] + 1, corner[1] + weight))
            corner = above
    common, totals = row[-1][1], (sum(text[1]), sum(reference[1]))
    if not (common > 0 and all(total > 0 for total in totals)):
        return 0.0, 0.0, 0.0
    precision, recall = (common / total for total in totals)
    square = (precision / recall if beta is None else beta) ** 2
    return precision, recall, (1 + square) * precision * recall / (recall + square * precision)
