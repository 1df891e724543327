"""A QRelScore explained token by token: which context token each question token was matched with in each layer, and
how much likelier each context token became after the question.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

import torch

from rewards.base import Metric
from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel
from rewards.relevance.baselines import Baselines
from rewards.relevance.explanation_page import page
from rewards.relevance.global_relevance import WHOLE, Comparison, GlobalRelevance
from rewards.relevance.local_relevance import LocalRelevance

LAST, CUT_OFF = "last token", "cut off"  # reasons why a token is not compared

Located = tuple[str, int | None, int | None]  # a token's text, start and end; None where they are not reported
Part = tuple[str, Located]  # the text that a token is in, "question", "context" or "end", and its position there
Scored = tuple[Part, int, float]  # a token of the decoder in one of its two sequences: its part, its id, and log p


@dataclass(frozen=True)
class EncoderToken:
    """A token of question or context as the encoder reads it; ``text[start:end]`` of its text, None if not known."""

    text: str
    start: int | None
    end: int | None
    left_out: str | None = None  # why it is not compared; None if it is compared
    piece: int | None = None  # of the context; None in a question and where the context is cut


@dataclass(frozen=True)
class Match:
    """A question token, the context token that contributes most to its value, and how much: ``weight * cosine``, or
    what `LocalRelevance.contributions` says. The mean over question tokens is the layer's value.
    """

    piece: int
    question_token: int
    context_token: int
    weight: float
    cosine: float
    contribution: float


@dataclass(frozen=True)
class Layer:
    """One chosen layer: its number (from 1), its value, and a match for each compared question token and piece."""

    number: int
    value: float
    matches: list[Match]


@dataclass(frozen=True)
class Gain:
    """A token of the decoder that counts for a confidence: log p(token | context before it), log p(token | question,
    context before it), and the difference of both or of the probabilities, whichever the confidence takes; None where
    only one of the sequences has the token. ``part`` is "question", "context", or "end" for the token after both.
    """

    text: str
    start: int | None
    end: int | None
    piece: int
    part: str
    base: float | None
    prompt: float | None
    gain: float | None


@dataclass(frozen=True)
class Confidence:
    """The confidence in one piece of context without and with the question, and the gain that enters ``grg``."""

    piece: int
    base: float
    prompt: float
    gain: float


@dataclass(frozen=True)
class Explanation:
    """A QRelScore and the quantities it is computed from. Tokens and pieces of a context are counted from 0."""

    question: str
    context: str
    score: float
    lrm: float
    grg: float
    measured: dict[str, float]  # ``lrm`` and ``grg`` before baselines are subtracted
    signature: str
    choices: dict[str, str]  # the metric's choices, as in the signature
    question_tokens: list[EncoderToken]
    context_tokens: list[EncoderToken]
    layers: list[Layer]
    matched: list[float]  # contribution of each context token to the mean over layers and question tokens
    gains: list[Gain]  # every token that counts for a confidence, in reading order, piece by piece
    confidences: list[Confidence]  # one for each piece that the decoder reads; `grg` is the mean of their gains
    notes: list[str]  # sentences about what was cut, left out or rescaled

    @property
    def summary(self) -> str:
        return f"score {self.score:.4f} (lrm {self.lrm:.4f}, grg {self.grg:.4f})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_html(self) -> str:
        """Return one self-contained page: the matches as a heat map, and the context coloured twice."""
        return page(self.to_dict())


@torch.inference_mode()
def explain(
    metric: Metric,
    local: LocalRelevance,
    globally: GlobalRelevance,
    baselines: Baselines | None,
    question: str,
    context: str,
) -> Explanation:
    """Explain a score of a QRelScore without references, given its two halves and its baselines."""
    result = metric.score([question], [context])
    measured = parts = {part: values[0] for part, values in result.parts.items()}
    counted = local.truncated
    if baselines is not None:
        scores = {"lrm": local.scores, "grg": globally.scores}
        measured = {part: scores[part]([question], [context])[0] for part in parts}
    question_tokens, context_tokens, layers, matched = _local(local, question, context)
    local.truncated = counted  # counts contexts that were scored
    gains, confidences = _global(globally, question, context)
    return Explanation(
        question=question,
        context=context,
        score=result.scores[0],
        **parts,
        measured=measured,
        signature=metric.signature,
        choices={key: str(value) for key, value in metric.choices().items()},
        question_tokens=question_tokens,
        context_tokens=context_tokens,
        layers=layers,
        matched=matched,
        gains=gains,
        confidences=confidences,
        notes=list(_notes(local, baselines, context_tokens, gains, confidences)),
    )


def _local(
    local: LocalRelevance, question: str, context: str
) -> tuple[list[EncoderToken], list[EncoderToken], list[Layer], list[float]]:
    pairs, _ = local.pairs([question], [context])
    if not pairs:
        raise MetricInputError(
            "qrelscore: nothing to explain: there is no token of the question or of the context to compare (a text of "
            "no or one token, or a question that fills the encoder), so lrm is 0"
        )
    question_tokens, context_tokens = (
        _located(local.encoder, local.encoder.ids([text])[0], text) for text in (question, context)
    )
    matches: list[list[Match]] = [[] for _ in local.layers]
    matched = torch.zeros(len(context_tokens), dtype=torch.float64)
    piece_of: dict[int, int] = {}
    start = words = 0
    for piece, pair in enumerate(pairs):
        readings = local.read([pair], lambda *read: read)
        for layer_matches, (weight, cosine, spans) in zip(matches, readings, strict=True):
            words, width, first = int(spans.question.sum()), int(spans.context.sum()), len(pair[0]) + 2
            inside = (0, slice(words), slice(first, first + width))
            contribution, best = local.contributions(weight[inside].cpu().double(), cosine[inside].cpu().double())
            for word, to in enumerate(best):
                both = float(weight[0, word, first + to]), float(cosine[0, word, first + to])
                layer_matches.append(Match(piece, word, start + to, *both, float(contribution[word].sum())))
            matched[start : start + width] += contribution.sum(0) / (words * len(pairs) * len(matches))
            piece_of |= dict.fromkeys(range(start, start + width), piece)
        start += len(pair[1])
    end = start if local.long_context == "truncate" else len(context_tokens)
    layers = [
        Layer(number, sum(match.contribution for match in layer_matches) / len(layer_matches), layer_matches)
        for number, layer_matches in zip(local.layers, matches, strict=True)
    ]
    return (
        [EncoderToken(*token, None if at < words else LAST) for at, token in enumerate(question_tokens)],
        [
            EncoderToken(*token, None if at in piece_of else LAST if at < end else CUT_OFF, piece_of.get(at))
            for at, token in enumerate(context_tokens)
        ],
        layers,
        matched.tolist(),
    )


def _global(globally: GlobalRelevance, question: str, context: str) -> tuple[list[Gain], list[Confidence]]:
    comparisons = globally.comparisons([question], [context])
    rows = [item.base for item in comparisons] + [item.prompt for item in comparisons]
    starts = [1] * len(comparisons) + [item.start for item in comparisons]
    logprobs = globally.logprobs(rows, starts)
    gains, confidences = list[Gain](), list[Confidence]()
    sides = zip(comparisons, logprobs[: len(comparisons)], logprobs[len(comparisons) :], strict=True)
    for piece, (item, alone, after) in enumerate(sides):
        base, prompt = globally.confidence(alone), globally.confidence(after)
        confidences.append(Confidence(piece, base, prompt, globally.gain(base, prompt)))
        base_parts, prompt_parts = _decoder_parts(globally, item, question, context)
        without: list[Scored] = list(zip(base_parts, item.base[1:], alone.tolist(), strict=True))
        having: list[Scored] = list(zip(prompt_parts, item.prompt[item.start :], after.tolist(), strict=True))
        # Tokens of both sequences are paired from their ends as long as they agree; the others remain single.
        backwards = zip(reversed(without), reversed(having), strict=False)
        agree = takewhile(lambda pair: (pair[0][0][0], pair[0][1]) == (pair[1][0][0], pair[1][1]), backwards)
        same = sum(1 for _ in agree)
        for (part, located), _, logprob in having[: len(having) - same]:
            gains.append(Gain(*located, piece, part, None, logprob, None))
        for (part, located), _, logprob in without[: len(without) - same]:
            gains.append(Gain(*located, piece, part, logprob, None, None))
        paired = zip(without[len(without) - same :], having[len(having) - same :], strict=True)
        for (_, _, first), ((part, located), _, second) in paired:
            gain = second - first if globally.logarithmic else math.exp(second) - math.exp(first)
            gains.append(Gain(*located, piece, part, first, second, gain))
    return gains, confidences


def _decoder_parts(
    globally: GlobalRelevance, item: Comparison, question: str, context: str
) -> tuple[list[Part], list[Part]]:
    decoder = globally.decoder

    def within(located: Located, early: bool, begin: int) -> Part:
        """Of a token of "question context"; ``early`` decides where the tokenizer reports no position."""
        text, start, end = located
        if start is None or end is None:
            return ("question" if early else "context"), located
        if end > begin:
            return "context", (text, max(0, start - begin), end - begin)
        return "question", located if end < begin else (text, None, None)

    question_tokens = _located(decoder, decoder.ids([question])[0], question)
    _, start, end = item.piece
    if end == WHOLE:
        joined = _located(decoder, item.prompt[1:-1], f"{question} {context}")
        base: list[Part] = [("context", located) for located in _located(decoder, item.base[1:-1], context)]
        prompt = [within(located, at < len(question_tokens), len(question) + 1) for at, located in enumerate(joined)]
    else:
        spaced = _located(decoder, decoder.ids([" " + context])[0], " " + context)[start:end]
        base = [within(located, False, 1) for located in spaced]
        prompt = [*(("question", located) for located in question_tokens), *base]
    closing: list[Part] = [("end", ("", None, None))] if globally.counts_all else []
    return base + closing, (prompt + closing)[item.start - 1 :]


def _located(model: FrozenModel, ids: list[int], text: str) -> list[Located]:
    tokenizer = model.tokenizer
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    encoded = tokenizer(text, **options) if tokenizer.is_fast else {}
    if encoded.get("input_ids") != ids:  # a text that is tokenised in parts, or a tokenizer without positions
        return [(tokenizer.decode([token]), None, None) for token in ids]
    positions: list[Located] = []
    for start, end in encoded["offset_mapping"]:
        piece = text[start:end]
        if piece.strip():
            start, end = start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
        positions.append((text[start:end], start, end))
    return positions


def _notes(
    local: LocalRelevance,
    baselines: Baselines | None,
    context: Sequence[EncoderToken],
    gains: Sequence[Gain],
    confidences: Sequence[Confidence],
) -> Iterator[str]:
    cut = sum(token.left_out == CUT_OFF for token in context)
    pieces = len({token.piece for token in context} - {None})
    if cut:
        yield (
            f"The encoder reads {local.encoder.max_tokens} tokens: the last {cut} of the context's {len(context)} "
            "are cut off (long_context=truncate)."
        )
    if pieces > 1:
        yield f"The encoder reads the context in {pieces} pieces; a layer's value is the mean over them."
    if local.skipped:
        yield "The last token of the question and of each piece of context is not compared (last_tokens=skip)."
    yield from local.notes
    if not confidences:
        yield "The question leaves no room for the context in the decoder: grg is 0."
    if len(confidences) > 1:
        yield f"The decoder reads the context in {len(confidences)} pieces; grg is the mean of their gains."
    if lost := sum(each.gain == 0 and each.prompt < each.base for each in confidences):
        where = "" if len(confidences) == 1 else f" in {lost} of {len(confidences)} pieces"
        yield f"The question makes the text less likely{where}; that counts as a gain of 0."
    if alone := sum(gain.part == "context" and gain.gain is None for gain in gains):
        yield f"After the question the context begins with other tokens than alone; these ({alone}) have no gain."
    if baselines is not None:
        yield f"Both parts are rescaled by baselines ({baselines})."
