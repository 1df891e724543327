"""More questions than are wanted about each unit of a passage, to choose from: one decoded greedily, the others by
nucleus sampling (Ray Chowdhury et al. 2022, section 4.3).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from rl_qg.data.examples import passage_hash
from rl_qg.generation.decoding import DecodingRules, uniform_draws
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.question_units import question_parts, unit_row
from rl_qg.generation.separated_texts import text_parts
from rl_qg.generation.tasks import QUESTION, TaskRow, Unit
from rl_qg.runtime.errors import InputError
from rl_qg.text.words import normalised_words

CANDIDATES = {"paragraph": 20, "sentence": 10, "type": 5}  # of the paper, for one2one
TEXTS = 64  # that are decoded together


@dataclass(frozen=True)
class PooledQuestion:
    """A question about the characters `start` to `end` of its passage, the span of its unit, and of the `type` that
    was asked for. `logprob` is the sum of the log-probabilities of its `tokens` tokens (natural logarithm; the
    separator or end token after it is included in both). `rank` is 0 for the greedy text, 1, 2, … for the samples; the
    questions of one text of `one2many` share it.
    """

    question: str
    start: int
    end: int
    type: str | None
    logprob: float
    tokens: int
    rank: int


class UnitPool(list[PooledQuestion]):
    """The questions about one unit, by rank, then by their places in the text; `dropped` counts by reason what is left
    out: `incomplete` (no word, or cut at the longest text that the model has learned) and `repeated` (the same
    normalised words as an earlier one).
    """

    def __init__(self) -> None:
        super().__init__()
        self.dropped: Counter[str] = Counter()


@torch.inference_mode()
def question_pool(
    generator: CandidateGenerator,
    units: Sequence[Unit],
    *,
    candidates: int | None = None,
    top_p: float = 0.9,
    seed: int = 0,
) -> list[UnitPool]:
    """A `UnitPool` for each unit; it may be empty. Of `one2many` the texts are split at `<question>`.

    Random numbers depend on `seed` and the unit alone, so the other units change a pool at most where the rounding of
    padded batches does; the texts of fewer candidates are the first of those of more.

    Args:
        generator: trained with `model.task=sets`.
        units: of its granularity.
        candidates: texts for each unit, one greedy and the others samples; None: for `one2one` those of the paper
            (`CANDIDATES`), for `one2many` the greedy one.
        top_p: the share of probability that samples are drawn from.
        seed: of the samples.

    Raises:
        InputError: the generator was trained for another task or granularity, or `candidates` is below 1.
    """
    _check(generator, units)
    prompt = generator.encoder.prompt
    if candidates is None:
        candidates = CANDIDATES[prompt.granularity] if prompt.mode == "one2one" else 1
    if candidates < 1:
        raise InputError(f"candidates={candidates} must be at least 1")
    pools = [UnitPool() for _ in units]
    by_length = iter(sorted(range(len(units)), key=lambda number: len(units[number].context)))
    rules = DecodingRules(prompt.max_target_length, top_p=top_p)
    while numbers := list(islice(by_length, max(1, TEXTS // candidates))):
        rows = [unit_row(_key(units[number]), units[number]) for number in numbers]
        for number, row, texts in zip(numbers, rows, _texts(generator, rows, candidates, rules, seed), strict=True):
            pools[number] = _pool(generator, row, texts)
    return pools


def _check(generator: CandidateGenerator, units: Sequence[Unit]) -> None:
    granularity = generator.encoder.prompt.granularity
    if generator.task != "sets":
        raise InputError(
            f"the generator was trained with model.task={generator.task}, and asks nothing without an answer; train "
            "one with ask.granularity=sentence, or paragraph, or type"
        )
    if wrong := next((unit for unit in units if (unit.type is not None) != (granularity == "type")), None):
        raise InputError(
            f"the generator was trained with ask.granularity={granularity}, and a unit has the type {wrong.type}; "
            f"make units with units_of(context, {granularity!r})"
        )


def _key(unit: Unit) -> str:
    return f"{passage_hash(unit.context)}:{unit.end}"  # `unit_row` adds the start and the type


def _texts(
    generator: CandidateGenerator, rows: Sequence[TaskRow], count: int, rules: DecodingRules, seed: int
) -> list[list[tuple[Tensor, Tensor]]]:
    """For each row its `count` texts, the greedy one first: token ids (t,) and their log-probabilities (t,)."""
    batch, decoder = generator.batch(rows), generator.decoder
    greedy = decoder.greedy(batch, rules.max_new_tokens)
    texts = [[text] for text in zip(greedy, decoder.token_logprobs(batch, greedy), strict=True)]
    if count > 1:
        draws = uniform_draws([row.id for row in rows], count - 1, rules.max_new_tokens, seed=seed, step=0)
        sampled, _ = decoder.sample(batch, draws.to(generator.device), rules)
        samples = zip(sampled, decoder.token_logprobs(batch, sampled), strict=True)
        for of_row in texts:
            of_row += islice(samples, count - 1)
    return texts


def _pool(generator: CandidateGenerator, row: TaskRow, texts: Sequence[tuple[Tensor, Tensor]]) -> UnitPool:
    """The distinct questions of the texts of a row."""
    unit, seen, pool = row.unit, set[tuple[str, ...]](), UnitPool()
    assert unit is not None
    for rank, (ids, logprobs) in enumerate(texts):
        for part in text_parts(generator, row, ids, logprobs, QUESTION):
            question = "".join(question_parts(part.text))
            words = tuple(normalised_words(question))
            if part.is_cut or not words:
                pool.dropped["incomplete"] += 1
            elif words in seen:
                pool.dropped["repeated"] += 1
            else:
                seen.add(words)
                place = (unit.start, unit.end, unit.type)
                pool.append(PooledQuestion(question, *place, part.logprob, part.tokens, rank))
    return pool
