"""Sets of questions for passages: a generator of one of the six strategies, and a choice among what it wrote.

generator = SetGenerator.from_pretrained("RUN/scst", reader="miniature:reader")
generator.sets(passages, number="auto")
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_qg.asking.documents import TextPassage, paragraphs
from rl_qg.asking.drafts import QuestionRows
from rl_qg.asking.learned_selector import LearnedSelector
from rl_qg.asking.models import IMPOSSIBLE, abstaining_reader, chosen_reader, generator_path, reader_path
from rl_qg.asking.selection import DIGITS, NOT_NEEDED
from rl_qg.asking.set_pool import (
    WORDS,
    AnswerabilityReader,
    PassagePool,
    SentenceVectors,
    Similarity,
    cover,
    mmr,
    random_choice,
    ranked,
    with_answerability,
    word_similarity,
)
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.sets import question_pool, units_of
from rl_qg.readers.sentences import SentenceClassifier
from rl_qg.runtime.errors import InputError
from rl_qg.settings.generation import AUTO, SELECTORS
from rl_qg.text.question_types import nine_type
from rl_qg.text.spans import sentence_spans

Number = int | str | None
Select = Callable[[PassagePool, int | None], list[int]]
"""From a pool to the rows of the chosen questions, at most so many (None: it decides)."""
KINDS = {"worthiness": ("worthiness", "hierarchical"), "types": ("types",)}
NOT_ANSWERABLE = "not answerable from the passage"
COUNTING = ("all", "top1", "rank", "coverage", "learned")  # selections that can decide how many questions they take
# Selections that leave out what a reader finds impossible; `all`, `rand` and `top1` look at no quality.
WITH_READER = ("rank", "mmr", "coverage", "learned")


@dataclass(frozen=True)
class SetQuestion:
    """A question of a set.

    Args:
        start: the first character, in the passage, of the sentence or passage that it was asked about.
        end: the character after its last one.
        type: of the nine types: the one that was asked for, else the one that the question has.
        score: in [0, 1], higher is better: answerability, without a reader probability.
        scores: `probability` (geometric mean over the tokens), and with a reader `answerability`.
        rank: place in the set, from 0; the first was chosen first.
        reason: how it was chosen, as a few words.
    """

    question: str
    start: int
    end: int
    type: str
    score: float
    scores: Mapping[str, float]
    rank: int
    reason: str


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one passage, in the order in which they were chosen. `pool` says how many were generated,
    `dropped` how many of them are not in the set, by reason, and `reason` why there are fewer than asked for ("" if
    there are as many).
    """

    context: str
    questions: list[SetQuestion]
    pool: int = 0
    reason: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class SetGenerator:
    """Makes sets of questions with a model of `model.task=sets`, which the user calls `name`. `from_pretrained` makes
    one and says what the parts are. Not for use by several threads at a time.
    """

    def __init__(
        self,
        generator: CandidateGenerator,
        *,
        name: str = "",
        worthiness: SentenceClassifier | None = None,
        types: SentenceClassifier | None = None,
        reader: AnswerabilityReader | None = None,
        selector: LearnedSelector | None = None,
        similar: Similarity = word_similarity,
        candidates: int | None = None,
    ) -> None:
        prompt = generator.encoder.prompt
        if prompt.task != "sets":
            raise InputError(
                f"model.path={name}: was trained with model.task={prompt.task} and writes no sets of questions; train "
                "one with rl-qg train ask.granularity=sentence ask.mode=one2many, or leave out strategy="
            )
        self.granularity, self.mode = prompt.granularity, prompt.mode
        self.name, self.candidates = name, candidates
        self._generator = generator
        self._rows = QuestionRows(generator, 1)  # cuts texts into passages
        self._worthiness, self._types, self._reader = worthiness, types, reader
        self._selector, self._similar = selector, similar
        if selector is not None:
            selector.warn_unless_of(self.strategy)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        device: str | torch.device | None = None,
        worthiness: str | Path | None = None,
        types: str | Path | None = None,
        reader: str | Path | None = None,
        selector: str | Path | None = None,
        similarity: str | Path = WORDS,
        candidates: int | None = None,
        format: str | None = None,
    ) -> "SetGenerator":
        """Load a run (its `scst/`, else its `ce/`), a folder or a model of the Hub.

        Args:
            path: of the model.
            device: None: the GPU if there is one.
            worthiness: folder of `rl-qg train-sentences kind=worthiness` or `hierarchical`.
            types: folder of `rl-qg train-sentences kind=types`.
            reader: folder or Hub name of a reader that has learned to abstain, as those of SQuAD 2.
            selector: file of `rl-qg train-selector`.
            similarity: `words`, or folder or Hub name of an encoder whose sentence vectors are compared.
            candidates: questions, or texts, of a unit; None: as many as in the paper.
            format: of the model's inputs and texts, one of `rl-qg models`; None: recognised.

        A folder or model that is not there, or is of another kind, is an `InputError`, of reader and encoder a
        `MetricInputError`.
        """
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        generator = CandidateGenerator(
            generator_path(path), device=place, independent=place.type == "cpu", format=format
        )
        judge = chosen_reader(reader, path)
        classifiers = {
            key: SentenceClassifier.from_pretrained(folder, device=place, key=key, kinds=KINDS[key])
            for key, folder in (("worthiness", worthiness), ("types", types))
            if folder
        }
        return cls(
            generator,
            name=str(path),
            **classifiers,
            reader=abstaining_reader(reader_path(judge), place) if judge else None,
            selector=LearnedSelector.load(Path(selector)) if selector else None,
            similar=word_similarity if similarity == WORDS else SentenceVectors(similarity, device=place),
            candidates=candidates,
        )

    @property
    def strategy(self) -> str:
        """What the model was trained for, such as `sentence_one2many`."""
        return f"{self.granularity}_{self.mode}"

    def check(self, number: Number, select: str) -> None:
        """Raise `InputError` where a selection is unknown, or lacks what it needs."""
        if select not in SELECTORS:
            raise InputError(f"select={select} is not one of {', '.join(SELECTORS)}")
        if isinstance(number, bool) or not (number is None or number == AUTO or isinstance(number, int)):
            raise InputError(f"number={number!r} is neither a whole number, auto, nor None for all")
        if isinstance(number, int) and number < 1:
            raise InputError(f"number={number} must be at least 1, auto, or null for all")
        chosen = self.selection(select, number)
        if number == AUTO and chosen not in COUNTING:
            raise InputError(f"number=auto: select={chosen} needs a number; {', '.join(COUNTING)} can do without")
        if chosen == "rank" and self._reader is None:
            raise InputError("select=rank: orders by answerability; give reader=, one that has learned to abstain")
        if chosen == "learned" and self._selector is None:
            raise InputError("select=learned: give selector=, the file of rl-qg train-selector")

    def selection(self, select: str, number: Number) -> str:
        """What `auto` means: `coverage` where a number is given; else `all` (`one2many`), `top1` (`one2one`)."""
        if select != AUTO:
            return select
        return "coverage" if number is not None else "all" if self.mode == "one2many" else "top1"

    def passages(self, text: str) -> list[TextPassage]:
        """The passages of a text: its paragraphs, and parts of one that is longer than the model can read."""
        return [
            TextPassage(part.text, paragraph.start + part.start)
            for paragraph in paragraphs(text)
            for part in self._rows.passages(paragraph.text)
        ]

    def sets(
        self, contexts: Sequence[str], *, number: Number = 5, select: str = AUTO, seed: int | None = None
    ) -> list[QuestionSet]:
        """The set of each passage. The other passages change it at most where the rounding of padded batches does.
        `InputError` as of `check`.

        Args:
            contexts: passages that the model can read; of a longer one it reads a part (see `passages`).
            number: of questions, at most; "auto": the selection decides; None: all that it can take.
            select: one of `rl_qg.settings.generation.SELECTORS`.
            seed: of samples and of `rand`; None: 0.
        """
        self.check(number, select)
        chosen = self.selection(select, number)
        pools = self.pools(contexts, seed=seed, greedy=chosen == "top1", readable=chosen in WITH_READER)
        return [choose(pool, chosen, number, seed=seed or 0, selector=self._selector) for pool in pools]

    def pools(
        self, contexts: Sequence[str], *, seed: int | None = None, greedy: bool = False, readable: bool = True
    ) -> list[PassagePool]:
        """All questions of each passage, from which `choose` takes a set: with the `seed` of samples, or without
        samples (`greedy`), judged by the reader where there is one (`readable`).
        """
        sentences = [[context[start:end] for start, end in sentence_spans(context)] for context in contexts]
        worthy = [None] * len(contexts) if self._worthiness is None else self._worthiness.worthy(sentences)
        types = [None] * len(contexts) if self._types is None else self._types.types(sentences)
        units = [
            units_of(context, self.granularity, flags, kinds)
            for context, flags, kinds in zip(contexts, worthy, types, strict=True)
        ]
        asked, candidates = [unit for group in units for unit in group], 1 if greedy else self.candidates
        written = iter(question_pool(self._generator, asked, candidates=candidates, seed=seed or 0))
        found = [
            PassagePool.of(context, list(islice(written, len(group))), worthy=flags, similar=self._similar)
            for context, group, flags in zip(contexts, units, worthy, strict=True)
        ]
        return with_answerability(found, self._reader) if readable and self._reader is not None else found


def choose(
    pool: PassagePool, select: str | Select, number: Number, *, seed: int = 0, selector: LearnedSelector | None = None
) -> QuestionSet:
    """The set that a selection takes from a pool, of at most this `number` of questions (see `SetGenerator.sets`).

    `select` is one of `SELECTORS`, but not `auto`, or a function of its own, which questions of impossible answers do
    not reach. The `seed` is for `rand` (with the passage's text it decides the draw, so that other passages do not),
    the `selector` for `learned`.
    """
    name = select.__name__ if callable(select) else select
    dropped = Counter(pool.dropped)
    kept = pool
    if (callable(select) or select in WITH_READER) and pool.answerability is not None:
        kept = pool.kept(np.flatnonzero(1 - pool.answerability < IMPOSSIBLE).tolist())
        dropped[NOT_ANSWERABLE] += len(pool.questions) - len(kept.questions)
    most = len(kept.questions) if number is None else None if number == AUTO else int(number)
    rows = _take(kept, select, most, seed, selector) if kept.questions else []
    dropped[NOT_NEEDED] += len(kept.questions) - len(rows)
    return QuestionSet(
        pool.context,
        [_set_question(kept, row, rank, name) for rank, row in enumerate(rows)],
        pool.size,
        _shortage(pool, len(rows), number, dropped),
        dict(+dropped),
    )


def _take(
    pool: PassagePool, select: str | Select, most: int | None, seed: int, selector: LearnedSelector | None
) -> list[int]:
    if callable(select):
        return select(pool, most)
    if select == "learned":
        assert selector is not None, "select=learned without a selector"
        return selector.choose(pool, most)
    if select == "rand":
        digest = hashlib.sha256(f"{seed}|{pool.context}".encode()).digest()
        return random_choice(len(pool.questions), most, np.random.default_rng(int.from_bytes(digest[:16], "little")))
    # A share of the best one's, since models differ in how sure they are; a worse question covers less.
    quality = pool.quality / max(float(pool.quality.max()), 1e-9)
    takes: dict[str, Callable[[], list[int]]] = {
        "all": lambda: _first_of_each_unit(pool, most),
        "top1": lambda: [row for row, question in enumerate(pool.questions) if not question.rank][:most],
        "rank": lambda: ranked(pool.quality, most),
        "mmr": lambda: mmr(pool.quality, pool.similarity, most),
        "coverage": lambda: cover(quality, quality[:, None] * pool.asked, most, weights=pool.weights),
    }
    return takes[select]()


def _first_of_each_unit(pool: PassagePool, number: int | None) -> list[int]:
    """`number` questions, the first of each unit before any second one, in the order of the pool."""
    seen: Counter[tuple[int, int, str | None]] = Counter()
    places = []
    for row, question in enumerate(pool.questions):
        unit = question.start, question.end, question.type
        places.append((seen[unit], row))
        seen[unit] += 1
    return sorted(row for _, row in sorted(places)[:number])


def _set_question(pool: PassagePool, row: int, rank: int, select: str) -> SetQuestion:
    question, sentence = pool.questions[row], pool.sentence_of(row)
    scores = {"probability": round(float(pool.probability[row]), DIGITS)}
    if pool.answerability is not None:
        scores["answerability"] = round(float(pool.answerability[row]), DIGITS)
    where = "the passage" if sentence is None else f"sentence {sentence + 1}"
    return SetQuestion(
        question.question,
        question.start,
        question.end,
        question.type or nine_type(question.question),
        round(float(pool.quality[row]), DIGITS),
        scores,
        rank,
        f"number {rank + 1} by {select}, about {where}",
    )


def _shortage(pool: PassagePool, found: int, number: Number, dropped: Mapping[str, int]) -> str:
    wanted = number if isinstance(number, int) else 1
    if found >= wanted:
        return ""
    if pool.worthy is not None and not any(pool.worthy) and not pool.size:
        return "no sentence is worth a question"
    why = ", ".join(f"{reason} ({count})" for reason, count in dropped.items() if count and reason != NOT_NEEDED)
    left = ", the others repeat what is chosen" if dropped.get(NOT_NEEDED) else ""
    return f"{found} of {wanted} questions: {pool.size} were generated{left}" + (f"; {why}" if why else "")
