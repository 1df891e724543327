"""The global half of QRelScore (GRG): how much likelier the context becomes after the question.

Source: Wang et al., "QRelScore", EMNLP 2022, equations 6 to 9, and its released code.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel, causal_logprobs

CACHED_CONTEXTS = 1 << 15  # base confidences, one float and a reference to the context's text each
WHOLE = -1  # the end of a context that is scored in one piece

Piece = tuple[str, int, int]  # a context's text and the range of its tokens


@dataclass(frozen=True)
class Comparison:
    """A piece of context, scored alone (base) and after the question (prompt) from token ``start`` on."""

    owner: int
    piece: Piece
    base: list[int]
    prompt: list[int]
    start: int


class GlobalRelevance:
    """GRG of pairs of question and context. The base confidence of a context is computed once and cached.

    ``confidence`` is ``"probability"`` (mean over tokens) or ``"log_likelihood"`` (sum of log p); ``scope`` is
    ``"sequence"``, which counts question, context and end token, or ``"context"``, the context's tokens alone.
    """

    exact = False  # whether probabilities are normalised in float64 (`rewards.frozen.target_logprobs`)

    def __init__(self, decoder: FrozenModel, *, confidence: str, scope: str, batch_size: int) -> None:
        self.decoder, self.batch_size = decoder, batch_size
        self.logarithmic = confidence == "log_likelihood"
        self.counts_all = scope == "sequence"
        bos, eos = decoder.tokenizer.bos_token_id, decoder.tokenizer.eos_token_id
        if bos is None and eos is None:
            raise MetricInputError(
                f"qrelscore: the tokenizer of {decoder.name!r} has neither bos nor eos token; use a GPT-2-like one"
            )
        self._bos, self._eos = (eos if bos is None else bos), (bos if eos is None else eos)  # one is both, as in GPT-2
        self._base: OrderedDict[Piece, float] = OrderedDict()
        # Byte-level BPE never merges across the space before a word, so "q c" is the tokens of "q" and of " c".
        probe = decoder.ids(["a b", "a", " b"])
        self._splits_at_spaces = probe[0] == probe[1] + probe[2]

    def scores(self, questions: Sequence[str], contexts: Sequence[str]) -> list[float]:
        """Return the gain of each pair, averaged over the pieces of its context; 0 where no piece fits."""
        comparisons = self.comparisons(questions, contexts)
        missing = {item.piece: item.base for item in comparisons if item.piece not in self._base}
        rows = [*missing.values(), *(item.prompt for item in comparisons)]
        starts = [1] * len(missing) + [item.start for item in comparisons]
        logprobs = self.logprobs(rows, starts)
        confidence = [self.confidence(values) for values in logprobs]
        known = dict(zip(missing, confidence[: len(missing)], strict=True))
        known |= {item.piece: self._base[item.piece] for item in comparisons if item.piece in self._base}
        total, pieces = [0.0] * len(questions), [0] * len(questions)
        for item, prompt in zip(comparisons, confidence[len(missing) :], strict=True):
            total[item.owner] += self.gain(known[item.piece], prompt)
            pieces[item.owner] += 1
        for piece, value in known.items():
            self._base[piece] = value
            self._base.move_to_end(piece)
        while len(self._base) > CACHED_CONTEXTS:  # the least recently used ones are dropped
            self._base.popitem(last=False)
        return [gain / max(1, count) for gain, count in zip(total, pieces, strict=True)]

    def logprobs(self, rows: Sequence[list[int]], starts: Sequence[int]) -> list[Tensor]:
        return causal_logprobs(self.decoder, rows, starts, batch_size=self.batch_size, exact=self.exact)

    def reset_cache(self) -> None:
        self._base.clear()

    def comparisons(self, questions: Sequence[str], contexts: Sequence[str]) -> list[Comparison]:
        """Return what to compare for each pair: one context, or several pieces of one too long for the decoder."""
        whole = self.counts_all
        end = [self._eos] if whole else []
        spaced = self.decoder.ids([" " + context for context in contexts])
        plain = self.decoder.ids(contexts) if whole else spaced
        comparisons = []
        for row, question in enumerate(self.decoder.ids(questions)):
            if whole:
                joined = question + spaced[row]
                if not self._splits_at_spaces or questions[row][-1:].isspace() or contexts[row][:1].isspace():
                    joined = self.decoder.ids([f"{questions[row]} {contexts[row]}"])[0]
                if max(len(joined), len(plain[row])) + 2 <= self.decoder.max_tokens:
                    base, prompt = [self._bos, *plain[row], *end], [self._bos, *joined, *end]
                    comparisons.append(Comparison(row, (contexts[row], 0, WHOLE), base, prompt, start=1))
                    continue
            room = self.decoder.max_tokens - 1 - len(end) - len(question)
            for start in range(0, len(spaced[row]), room) if room > 0 else ():
                piece = spaced[row][start : start + room]
                base, prompt = [self._bos, *piece, *end], [self._bos, *question, *piece, *end]
                key = (contexts[row], start, start + len(piece))
                comparisons.append(Comparison(row, key, base, prompt, start=1 if whole else 1 + len(question)))
        return comparisons

    def confidence(self, logprobs: Tensor) -> float:
        """Return the confidence in a text whose tokens have these log-probabilities, [tokens]."""
        return float(logprobs.sum() if self.logarithmic else logprobs.exp().mean())

    def gain(self, base: float, prompt: float) -> float:
        """Return the relative gain, at least 0, from the confidence in a context alone to that after the question."""
        return max(0.0, (prompt - base) / abs(base)) if base else 0.0
