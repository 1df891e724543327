"""Where a QRelScore comes from, token by token: which context token each question token was matched with in each
layer, and how much likelier each context token became behind the question.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel, causal_logprobs
from rewards.relevance.explanation_page import page
from rewards.relevance.global_relevance import WHOLE, Comparison, GlobalRelevance
from rewards.relevance.local_relevance import LocalChoices, LocalRelevance, optimal_transport

if TYPE_CHECKING:
    from rewards.relevance.qrelscore import QRelScore

LAST, CUT_OFF = "last token", "cut off"
"""Why a token is not compared."""

Place = tuple[str, int | None, int | None]
"""A token's text, and where it begins and ends; None where the tokenizer does not tell."""


@dataclass(frozen=True)
class Token:
    """A token and where it stands: ``text[start:end]`` of its own text, or no place where the tokenizer tells none."""

    text: str
    start: int | None
    end: int | None


@dataclass(frozen=True)
class EncoderToken(Token):
    """A token of question or context as the encoder reads it."""

    left_out: str | None = None
    """Why it is not compared; None if it is."""
    piece: int | None = None
    """The piece of the context that it belongs to, None in a question and in what is cut."""


@dataclass(frozen=True)
class Match:
    """A question token, the context token that contributes most to its value, and how much.

    With aggregation "max" the contribution is ``weight * cosine``. With "mean" it is the sum over all context tokens,
    and with "mover" the flow's, multiplied by the number of question tokens: the mean over question tokens is the
    layer's value in every case.
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
class Gain(Token):
    """A token of the decoder that counts for a confidence, and its log-probability without and with the question."""

    piece: int
    part: str
    """The text it stands in: "question" (or the space behind it), "context", or "end" for the token behind both."""
    base: float | None
    """log p(token | context before it), None where the context alone has no such token."""
    prompt: float | None
    """log p(token | question, context before it), None where only the context alone has this token."""
    gain: float | None
    """Difference of probabilities or log-probabilities, whichever the confidence is made of; None without both."""


@dataclass(frozen=True)
class Confidence:
    """The confidence in one piece of context without and with the question, and the gain that enters ``grg``."""

    piece: int
    base: float
    prompt: float
    gain: float


@dataclass(frozen=True)
class Explanation:
    """A QRelScore and what it is made of. Tokens are counted from 0, pieces of a context too."""

    question: str
    context: str
    score: float
    lrm: float
    grg: float
    measured: dict[str, float]
    """``lrm`` and ``grg`` before baselines are subtracted; the same as above without baselines."""
    signature: str
    choices: dict[str, str]
    """The metric's choices, as in the signature."""
    question_tokens: list[EncoderToken]
    context_tokens: list[EncoderToken]
    layers: list[Layer]
    matched: list[float]
    """What each context token adds to the mean over layers and question tokens; the sum is ``measured["lrm"]`` if
    ``power`` is 1."""
    gains: list[Gain]
    """Every token of which a confidence is made, in reading order, piece by piece."""
    confidences: list[Confidence]
    """One for each piece that the decoder reads; the mean of their gains is ``measured["grg"]``."""
    notes: list[str]
    """What was cut, left out or rescaled, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as dictionaries, lists, texts and numbers, for JSON."""
        return asdict(self)

    def to_html(self) -> str:
        """Return one page that needs nothing else: the matches as a heat map, and the context coloured twice."""
        return page(self.to_dict())


@torch.inference_mode()
def explain(metric: "QRelScore", question: str, context: str) -> Explanation:
    """Score one question and say where the score comes from.

    Args:
        metric: a QRelScore against the context alone.
        question: the question.
        context: its passage.

    Raises:
        MetricInputError: something other than text, nothing left to compare, or a metric that reads references.
    """
    if metric.references:
        raise MetricInputError(
            "qrelscore: a score against references is not explained; use references=False, and give a reference as "
            "the context to see its part"
        )
    result = metric.score([question], [context])
    parts = {part: values[0] for part, values in result.parts.items()}
    measured = parts
    counted = metric.local.truncated
    if metric.baselines is not None:
        scores = {"lrm": metric.local.scores, "grg": metric.globally.scores}
        measured = {part: scores[part]([question], [context])[0] for part in parts}
    asked, given, layers, matched = _local(metric.local, question, context)
    metric.local.truncated = counted  # counts contexts that were scored
    gains, confidences = _global(metric.globally, question, context)
    return Explanation(
        question=question,
        context=context,
        score=result.scores[0],
        **parts,
        measured=measured,
        signature=metric.signature,
        choices={key: str(value) for key, value in metric.choices().items()},
        question_tokens=asked,
        context_tokens=given,
        layers=layers,
        matched=matched,
        gains=gains,
        confidences=confidences,
        notes=list(_notes(metric, given, gains, confidences)),
    )


def _local(
    local: LocalRelevance, question: str, context: str
) -> tuple[list[EncoderToken], list[EncoderToken], list[Layer], list[float]]:
    """Return the encoder's tokens of question and context, the layers, and what each context token adds."""
    pairs, _ = local.pairs([question], [context])
    if not pairs:
        raise MetricInputError(
            "qrelscore: nothing to explain: no token of the question or of the context is left to compare (a text of "
            "no or one token, or a question that fills the encoder), so lrm is 0"
        )
    asked, given = (_located(local.encoder, local.encoder.ids([text])[0], text) for text in (question, context))
    matches: list[list[Match]] = [[] for _ in local.layers]
    matched = torch.zeros(len(given), dtype=torch.float64)
    piece_of: dict[int, int] = {}
    start = words = 0
    for piece, pair in enumerate(pairs):
        for found, (weight, cosine, spans) in zip(matches, local.read([pair], lambda *read: read), strict=True):
            words, width, first = int(spans.question.sum()), int(spans.context.sum()), len(pair[0]) + 2
            inside = (0, slice(words), slice(first, first + width))
            share, best = _shares(weight[inside].cpu().double(), cosine[inside].cpu().double(), local.choices)
            for word, to in enumerate(best):
                both = float(weight[0, word, first + to]), float(cosine[0, word, first + to])
                found.append(Match(piece, word, start + to, *both, float(share[word].sum())))
            matched[start : start + width] += share.sum(0) / (words * len(pairs) * len(matches))
            piece_of |= dict.fromkeys(range(start, start + width), piece)
        start += len(pair[1])
    end = start if local.choices.long_context == "truncate" else len(given)
    layers = [
        Layer(number, sum(match.contribution for match in found) / len(found), found)
        for number, found in zip(local.layers, matches, strict=True)
    ]
    return (
        [EncoderToken(*token, None if at < words else LAST) for at, token in enumerate(asked)],
        [
            EncoderToken(*token, None if at in piece_of else LAST if at < end else CUT_OFF, piece_of.get(at))
            for at, token in enumerate(given)
        ],
        layers,
        matched.tolist(),
    )


def _shares(weight: Tensor, cosine: Tensor, choices: LocalChoices) -> tuple[Tensor, list[int]]:
    """Return what each context token gives to each question token, [question, context], and the best of each row."""
    product = weight * cosine
    if choices.aggregation == "mover":
        flow = torch.from_numpy(optimal_transport().emd([], [], 1.0 - product.numpy()))
        share = flow * product * len(product)
        return share, share.argmax(-1).tolist()
    best = (weight if choices.attention == "hard" else product).argmax(-1, keepdim=True)
    share = (
        product
        if choices.aggregation == "mean"
        else torch.zeros_like(product).scatter(1, best, product.gather(1, best))
    )
    return share, best[:, 0].tolist()


def _global(globally: GlobalRelevance, question: str, context: str) -> tuple[list[Gain], list[Confidence]]:
    """Return the decoder's tokens with their log-probabilities, and the confidences, piece by piece."""
    comparisons = globally.comparisons([question], [context])
    rows = [item.base for item in comparisons] + [item.prompt for item in comparisons]
    starts = [1] * len(comparisons) + [item.start for item in comparisons]
    logprobs = causal_logprobs(globally.decoder, rows, starts, batch_size=globally.batch_size)
    gains: list[Gain] = []
    confidences: list[Confidence] = []
    sides = zip(comparisons, logprobs[: len(comparisons)], logprobs[len(comparisons) :], strict=True)
    for piece, (item, alone, behind) in enumerate(sides):
        base, prompt = globally.confidence(alone), globally.confidence(behind)
        confidences.append(Confidence(piece, base, prompt, globally.gain(base, prompt)))
        without, given = _decoder_tokens(globally, item, question, context)
        gains += _gains(
            piece,
            _scored(without, item.base[1:], alone),
            _scored(given, item.prompt[item.start :], behind),
            logarithmic=globally.choices.confidence == "log_likelihood",
        )
    return gains, confidences


@dataclass(frozen=True)
class _Scored:
    """A token of the decoder in one of its two sequences."""

    part: str
    place: Place
    id: int
    logprob: float


def _scored(tokens: Sequence[tuple[str, Place]], ids: Sequence[int], logprobs: Tensor) -> list[_Scored]:
    rows = zip(tokens, ids, logprobs.tolist(), strict=True)
    return [_Scored(part, place, token_id, logprob) for (part, place), token_id, logprob in rows]


def _decoder_tokens(
    globally: GlobalRelevance, item: Comparison, question: str, context: str
) -> tuple[list[tuple[str, Place]], list[tuple[str, Place]]]:
    """Return the part and the place of every token that counts, without and with the question."""
    decoder = globally.decoder
    asked = _located(decoder, decoder.ids([question])[0], question)
    _, start, end = item.piece
    if end == WHOLE:
        joined = _located(decoder, item.prompt[1:-1], f"{question} {context}")
        base = [("context", place) for place in _located(decoder, item.base[1:-1], context)]
        prompt = [_within(place, at < len(asked), len(question) + 1) for at, place in enumerate(joined)]
    else:
        spaced = _located(decoder, decoder.ids([" " + context])[0], " " + context)[start:end]
        base = [_within(place, False, 1) for place in spaced]
        prompt = [*(("question", place) for place in asked), *base]
    closing: list[tuple[str, Place]] = [("end", ("", None, None))] if globally.choices.scope == "sequence" else []
    return base + closing, (prompt + closing)[item.start - 1 :]


def _within(place: Place, early: bool, begin: int) -> tuple[str, Place]:
    """Return which text a token of "question context" stands in, and its place there. ``early`` decides where the
    tokenizer tells no place.
    """
    text, start, end = place
    if start is None or end is None:
        return ("question" if early else "context"), place
    if end > begin:
        return "context", (text, max(0, start - begin), end - begin)
    return "question", place if end < begin else (text, None, None)


def _gains(piece: int, base: Sequence[_Scored], prompt: Sequence[_Scored], *, logarithmic: bool) -> list[Gain]:
    """Join the tokens of both sequences from their ends, where they agree; the others stand alone."""
    pairs = zip(reversed(base), reversed(prompt), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: (pair[0].id, pair[0].part) == (pair[1].id, pair[1].part), pairs))
    alone, behind = len(base) - same, len(prompt) - same
    found = [Gain(*item.place, piece, item.part, None, item.logprob, None) for item in prompt[:behind]]
    found += [Gain(*item.place, piece, item.part, item.logprob, None, None) for item in base[:alone]]
    for before, after in zip(base[alone:], prompt[behind:], strict=True):
        first, second = before.logprob, after.logprob
        gain = second - first if logarithmic else math.exp(second) - math.exp(first)
        found.append(Gain(*after.place, piece, after.part, first, second, gain))
    return found


def _located(model: FrozenModel, ids: list[int], text: str) -> list[Place]:
    """Return the place of each token in the text, without the white space around it."""
    tokenizer = model.tokenizer
    encoded = (
        tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        if tokenizer.is_fast
        else {}
    )
    if encoded.get("input_ids") != ids:  # a text that is tokenised in parts, or a tokenizer without places
        return [(tokenizer.decode([token]), None, None) for token in ids]
    places: list[Place] = []
    for start, end in encoded["offset_mapping"]:
        piece = text[start:end]
        if piece.strip():
            start, end = start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
        places.append((text[start:end], start, end))
    return places


def _notes(
    metric: "QRelScore", context: Sequence[EncoderToken], gains: Sequence[Gain], confidences: Sequence[Confidence]
) -> Iterator[str]:
    """Yield what a reader of the numbers has to know."""
    local, choices = metric.local.choices, metric.globally.choices
    cut = sum(token.left_out == CUT_OFF for token in context)
    pieces = len({token.piece for token in context} - {None})
    if cut:
        yield (
            f"The encoder reads {metric.encoder.max_tokens} tokens: the last {cut} of the context's {len(context)} "
            "are cut off (long_context=truncate)."
        )
    if pieces > 1:
        yield f"The encoder reads the context in {pieces} pieces; a layer's value is the mean over them."
    if local.last_tokens == "skip":
        yield "The last token of the question and of each piece of context is not compared (last_tokens=skip)."
    if local.aggregation != "max":
        what = "the sum over all context tokens" if local.aggregation == "mean" else "what the flow carries"
        yield f"A contribution is {what} (aggregation={local.aggregation}); only the largest is named."
    if local.power != 1:
        yield f"lrm is the power mean of the layers with exponent {local.power:g}, not their mean."
    if not confidences:
        yield "The question leaves no room for the context in the decoder: grg is 0."
    if len(confidences) > 1:
        yield f"The decoder reads the context in {len(confidences)} pieces; grg is the mean of their gains."
    if choices.clip and (lost := sum(one.prompt < one.base for one in confidences)):
        where = "" if len(confidences) == 1 else f" in {lost} of {len(confidences)} pieces"
        yield f"The question makes the text less likely{where}; that counts as a gain of 0 (clip_gain)."
    if alone := sum(gain.part == "context" and gain.gain is None for gain in gains):
        yield f"Behind the question the context begins with other tokens than alone; these ({alone}) have no gain."
    if metric.baselines is not None:
        yield f"Both parts are rescaled by baselines ({metric.baselines})."
