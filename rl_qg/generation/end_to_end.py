"""All pairs of a passage at once: a generator trained with `model.task=pairs` (end-to-end of Ushio et al. 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rl_qg.generation.generator import CandidateGenerator, WrittenPart, text_parts
from rl_qg.generation.tasks import ANSWER, PAIR, TaskRow, pair_key, pair_parts, pairs_row, row_tasks
from rl_qg.runtime.errors import InputError
from rl_qg.text.spans import sentence_spans, tokens
from rl_qg.text.words import occurrences


@dataclass(frozen=True)
class GeneratedPair:
    """A question and its answer at character `answer_start` of the passage. `logprob` is the sum of the
    log-probabilities of the pair's `tokens` tokens after those of the pairs before it (natural logarithm; the
    separator or end token after the pair is included in both).
    """

    question: str
    answer: str
    answer_start: int
    logprob: float
    tokens: int = 0


class PassagePairs(list[GeneratedPair]):
    """The pairs of one passage, in the order in which they were written; `dropped` counts by reason those that were
    left out: `incomplete` (no question, no answer, or cut at the longest text), `answer not in the text` and
    `repeated`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dropped: dict[str, int] = {}

    def drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1


@torch.inference_mode()
def generate_pairs(
    generator: CandidateGenerator, contexts: Sequence[str], *, beams: int = 4, max_new_tokens: int = 256
) -> list[PassagePairs]:
    """The pairs of each passage, with true offsets, from the best text of a beam search; one batch.

    The answer of a pair is placed at its first occurrence that no earlier pair has, in a sentence that shares most
    words with the question; if all are taken, the earlier pairs' places count too. Of a passage that is longer than
    the model reads only the beginning is asked about.
    """
    if "pairs" not in row_tasks(generator.task):
        raise InputError(
            f"the generator was trained with model.task={generator.task}, and cannot write pairs; train one with "
            "model.task=pairs"
        )
    if not contexts:
        return []
    rows = [pairs_row(str(number), context) for number, context in enumerate(contexts)]
    batch = generator.batch(rows)
    found, _ = generator.decoder.search(batch, beams, max_new_tokens)
    best = found.view(len(rows), beams, -1)[:, 0]
    logprobs = generator.decoder.token_logprobs(batch, best)
    return [
        _placed(row, text_parts(generator, row, ids, values, PAIR))
        for row, ids, values in zip(rows, best, logprobs, strict=True)
    ]


def _placed(row: TaskRow, parts: Sequence[WrittenPart]) -> PassagePairs:
    pairs, taken = PassagePairs(), set[int]()
    seen: set[tuple[str, str]] = set()
    for part in parts:
        for question, answer in pair_parts(ANSWER if part.is_cut else part.text):
            if not question or not answer:
                pairs.drop("incomplete")
                continue
            place = place_of(question, answer, row.context, taken)
            if place is None:
                pairs.drop("answer not in the text")
                continue
            start, end = place
            key = pair_key(question, answer)
            if key in seen:
                pairs.drop("repeated")
                continue
            seen.add(key)
            taken.add(start)
            pairs.append(GeneratedPair(question, row.context[start:end], start, part.logprob, part.tokens))
    return pairs


def place_of(question: str, answer: str, context: str, taken: set[int]) -> tuple[int, int] | None:
    """Start and end of an answer in a passage; None if it is not there.

    Args:
        question: asked about it.
        answer: may stand there several times.
        context: the passage.
        taken: starts of the answers of earlier pairs, which are chosen only if there is no other occurrence.
    """
    places = occurrences(context, answer)
    free = [place for place in places if place[0] not in taken] or places
    asked = _words(question)
    spans = sentence_spans(context)

    def shared(place: tuple[int, int]) -> int:
        inside = [context[start:end] for start, end in spans if start < place[1] and place[0] < end]
        return len(asked & _words(" ".join(inside)))

    return max(free, key=shared, default=None)  # the first of those with most


def _words(text: str) -> set[str]:
    return {token.text.casefold() for token in tokens(text) if any(map(str.isalnum, token.text))}
