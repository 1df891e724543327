"""Generated texts of several parts: the text, the log-probability and the tokens of each part."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from rl_qg.data.examples import QAExample
from rl_qg.generation.generator import CandidateGenerator, up_to_end


@dataclass(frozen=True)
class WrittenPart:
    """What stands between two separators. `logprob` is the sum of the log-probabilities of the part's `tokens` tokens
    after those of the parts before it (natural logarithm; the separator or end token after the part is included in
    both). `is_cut`: the text ends in this part without an end token.
    """

    text: str
    logprob: float
    tokens: int
    is_cut: bool


def text_parts(
    generator: CandidateGenerator, row: QAExample, ids: Tensor, logprobs: Tensor, separator: str
) -> list[WrittenPart]:
    """The parts of a text that the generator has written for a row; at least one.

    Args:
        generator: that has written it.
        row: that it was written for.
        ids: its tokens (t,).
        logprobs: their log-probabilities (t,).
        separator: the token between parts.
    """
    ends: Sequence[int] = (ids == generator.tokenizer.convert_tokens_to_ids(separator)).nonzero().flatten().tolist()
    has_end = bool((ids == generator.decoder.end).any())
    counted = up_to_end(ids, generator.decoder.end)
    parts, start = [], 0
    for end in (*ends, len(ids)):
        text = generator.encoder.decoded(ids[None, start:end], [row])[0]
        place = slice(start, end + 1)
        is_cut = end == len(ids) and not has_end
        parts.append(WrittenPart(text, float(logprobs[place].sum()), int(counted[place].sum()), is_cut))
        start = end + 1
    return parts
