"""What in a text counts for a question, by the explanation of the metric that orders the pairs."""

from dataclasses import dataclass

from rewards.relevance.explanation import Explanation


@dataclass(frozen=True)
class WeighedSpan:
    """A part of a text, and how much it has to do with a question: from -1 (against it) to 1."""

    start: int
    end: int
    weight: float


def matched_spans(explanation: Explanation, start: int) -> list[WeighedSpan]:
    """The parts of a text that a question was matched with, in its order.

    The weight is a token's contribution to the local relevance, as a share of the largest one. Tokens that share a
    character are one part.

    Args:
        explanation: of the question about a passage of the text.
        start: where that passage begins in the text.
    """
    parts: list[tuple[int, int, float]] = []
    for token, value in zip(explanation.context_tokens, explanation.matched, strict=True):
        if token.start is None or token.end is None or token.start >= token.end:
            continue
        if parts and token.start < parts[-1][1]:
            first, end, earlier = parts.pop()
            parts.append((first, max(end, token.end), earlier + value))
        else:
            parts.append((token.start, token.end, value))
    largest = max((abs(value) for _, _, value in parts), default=0.0)
    return [WeighedSpan(start + first, start + end, round(v / largest, 4)) for first, end, v in parts if v]
