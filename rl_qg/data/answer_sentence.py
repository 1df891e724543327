"""The sentence of an answer: the part of a passage that QG-Bench calls `sentence`."""

from rl_qg.text.spans import sentence_at, sentence_spans


def sentence_of(context: str, start: int, end: int) -> tuple[int, int]:
    """Start and end of the sentence that holds the characters `start` to `end` (one past the last) of a passage,
    without the white space around it; of an answer in several sentences, of all from its first to its last.

    The part is never smaller than the answer, even where the answer begins or ends with white space.

    Raises:
        ValueError: the answer is empty or not in the passage.
    """
    if not 0 <= start < end <= len(context):
        raise ValueError(f"an answer from {start} to {end} is not in a passage of {len(context)} characters")
    spans = sentence_spans(context)
    if not spans:
        return start, end
    first, last = spans[sentence_at(spans, start)], spans[sentence_at(spans, end - 1)]
    return min(first[0], start), max(last[1], end)
