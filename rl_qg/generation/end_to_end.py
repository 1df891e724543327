"""All pairs of a passage at once: a generator trained with `model.task=pairs` (end-to-end of Ushio et al. 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rl_qg.generation.generator import CandidateGenerator, Kept, WrittenPart, text_parts
from rl_qg.generation.tasks import ANSWER, PAIR, TaskRow, pair_key, pair_parts, pairs_row, row_tasks
from rl_qg.runtime.errors import InputError
from rl_qg.text.spans import sentence_spans, tokens
from rl_qg.text.words import occurrences


@dataclass(frozen=True)
class GeneratedPair:
    """A question and its answer at `answer_start` of the passage; `logprob`, `tokens` of both as in `WrittenPart`."""

    question: str
    answer: str
    answer_start: int
    logprob: float
    tokens: int = 0


PassagePairs = Kept[GeneratedPair]


@torch.inference_mode()
def generate_pairs(
    generator: CandidateGenerator, contexts: Sequence[str], *, beams: int = 4, max_new_tokens: int = 256
) -> list[PassagePairs]:
    """The pairs of each passage, with true offsets, from the best text of a beam search; one batch. Left out, and
    counted, is what is `incomplete` (no question, no answer, or cut at the longest text), has an `answer not in the
    text`, or is `repeated`. Of a passage that is longer than the model reads only the beginning is asked about.
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
            key = pair_key(question, answer)
            if not question or not answer:
                pairs.dropped["incomplete"] += 1
            elif (place := place_of(question, answer, row.context, taken)) is None:
                pairs.dropped["answer not in the text"] += 1
            elif key in seen:
                pairs.dropped["repeated"] += 1
            else:
                start, end = place
                seen.add(key)
                taken.add(start)
                pairs.append(GeneratedPair(question, row.context[start:end], start, part.logprob, part.tokens))
    return pairs


def place_of(question: str, answer: str, context: str, taken: set[int]) -> tuple[int, int] | None:
    """Start and end of the answer to a question in a passage: the first place in a sentence that shares most words
    with the question, of those that no earlier pair has `taken`, or of all if these are none; None if it is not there.
    """
    places = occurrences(context, answer)
    free = [place for place in places if place[0] not in taken] or places
    spans, asked = sentence_spans(context), _words(question)

    def shared(place: tuple[int, int]) -> int:
        inside = [context[start:end] for start, end in spans if start < place[1] and place[0] < end]
        return len(asked & _words(" ".join(inside)))

    return max(free, key=shared, default=None)  # the first of those with most


def _words(text: str) -> set[str]:
    return {token.text.casefold() for token in tokens(text) if any(map(str.isalnum, token.text))}
