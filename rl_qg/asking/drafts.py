"""One text on its way from a request to its pairs: its passages, the answers to ask about, and the pairs so far.

What is decoded for a row must not depend on the other rows of a call. A matrix product rounds a row differently with
other rows beside it and with other padding (measured: with PyTorch's own linear layers nearly every log-probability
differs in its last digits). Where the generator computes each row alike (`CandidateGenerator.is_independent`), rows of
all texts share batches in which all inputs are padded to the same length, which depends on their own length alone.
Otherwise (causal models, several threads, a GPU) a text has its own batches, the same whatever else is asked.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TypeVar

import torch

from rewards import Usability
from rewards.words import answer_f1
from rl_qg.asking.documents import SEPARATOR, TextPassage, cut_text, with_full_stops, with_separators
from rl_qg.asking.pairs import AnswerSpan, AskRequest, QAPairs
from rl_qg.asking.selection import (
    NO_REWARD,
    ProposedPair,
    good_enough,
    select_for_answers,
    select_pairs,
    spread,
    support,
    usable,
)
from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.formats import is_unicode
from rl_qg.data.layouts import first_place
from rl_qg.generation.answer_rules import SCORES, SEVERAL, rule_spans
from rl_qg.generation.end_to_end import GeneratedPair, generate_pairs
from rl_qg.generation.generate import Reranker
from rl_qg.generation.generator import LENGTH_STEP, Candidate, CandidateGenerator
from rl_qg.generation.prompts import HIGHLIGHT
from rl_qg.generation.propose_answers import GeneratedAnswers, Propose
from rl_qg.generation.tasks import PREFIXES
from rl_qg.readers.answer_extractor import ExtractorAnswers
from rl_qg.readers.reader import AnswerReader
from rl_qg.runtime.processes import side_by_side
from rl_qg.runtime.ranks import OutOfMemoryRetry
from rl_qg.text.languages import code_of
from rl_qg.text.spans import Span

ANSWERS_PER_PAIR = 4  # of ten pairs about each of ten documents 61 were usable, with two answers a pair 50
MOST_ANSWERS_PER_PAIR = 8  # in a text with so many passages, of which many hold lists, code or formulas
BEAMS = 4  # questions that are decoded for an answer
TOP_P = 0.9  # of samples, as in `rl-qg generate`
MARGIN = 10  # tokens that are left free: for special tokens, and because a text may have more than its parts
IS_AWAITED: ContextVar[Callable[[], bool]] = ContextVar("is_awaited", default=lambda: True)
"""Asked before each passage and each batch: whether somebody still waits for the result. A server sets it."""
AT_ONCE = 32  # pairs that are read back or ranked before somebody is asked whether that is awaited
PER_PASSAGE = 20  # answers that a model proposes in a passage, at most
LEAST_BY_RULES = SCORES["chunk"] + SEVERAL  # score of answers by rules: two thirds of the others read were bad
MIN_PROBABILITY = 0.1  # of the extractor, as in the settings of `rl-qg answers`
CUT, NOT_IN_TEXT = "the answer is too long for the model", "answer not in the text"
Decoded = TypeVar("Decoded")  # what a row or a pair gets


class NobodyWaitsError(Exception):
    """What is made is not awaited any more."""


def check_awaited() -> None:
    if not IS_AWAITED.get()():
        raise NobodyWaitsError


@dataclass(frozen=True)
class QuestionRow:
    """An answer, the `span` of text number `text` of a call, in its passage as the generator reads it."""

    text: int
    seed: int | None
    span: AnswerSpan
    example: QAExample


class QuestionRows:
    """Decodes the questions of rows, at most `batch_size` together, on so many `cores`."""

    def __init__(self, generator: CandidateGenerator, batch_size: int, cores: int = 1) -> None:
        self.generator, self.batch_size, self.cores = generator, batch_size, cores
        self._retry = OutOfMemoryRetry("questions", "use a smaller model, or a machine with more memory")

    def candidates(self, rows: Sequence[QuestionRow]) -> list[list[Candidate]]:
        """The questions of each row, the most probable first: all beams of a search, or samples where the row has a
        seed. Empty where the answer does not fit into the model's input.
        """
        longest = self.generator.encoder.prompt.max_target_length
        decode = partial(self.generator.candidates, count=BEAMS, max_new_tokens=longest, temperature=1.0)
        beams, samples = partial(decode, top_p=None), partial(decode, top_p=TOP_P)
        # A model with language codes has one tokenizer, whose language is set for each batch.
        apart = self.generator.is_independent and not self.generator.encoder.languages
        found = self._decoded(rows, lambda seed: beams if seed is None else samples, self.cores if apart else 1)
        return [group or [] for group in found]

    def likelihoods(self, rows: Sequence[QuestionRow]) -> list[Candidate | None]:
        """The question of each row as if it had been decoded; None where the answer does not fit."""
        return self._decoded(rows, lambda seed: self.generator.likelihoods)

    def _decoded(
        self,
        rows: Sequence[QuestionRow],
        decoder_of: Callable[[int | None], Callable[[Sequence[QAExample]], list[Decoded]]],
        cores: int = 1,
    ) -> list[Decoded | None]:
        """What is decoded for each row, in batches of similar length; None where its answer does not fit."""

        def decode(batch: Sequence[int]) -> list[list[Decoded]]:
            check_awaited()
            return self._retry(decoder_of(rows[batch[0]].seed), [rows[number].example for number in batch])

        found: list[Decoded | None] = [None for _ in rows]
        batches = list(self._batches(rows))
        for batch, parts in zip(batches, side_by_side(decode, batches, cores), strict=True):
            for number, decoded in zip(batch, chain.from_iterable(parts), strict=True):
                found[number] = decoded
        return found

    def _batches(self, rows: Sequence[QuestionRow]) -> Iterator[list[int]]:
        together = self.generator.is_independent
        keys: list[tuple[bool, int, int, int]] = []
        for number, row in enumerate(rows):
            encoded = self.generator.encoder.encode([row.example])[0]
            if not encoded.answer_cut:
                length = len(encoded.ids)
                apart = -(-length // LENGTH_STEP) if together else row.text
                keys.append((row.seed is None, apart, length, number))
        for _, group in groupby(sorted(keys), key=lambda key: key[:2]):
            numbers = [key[-1] for key in group]
            for first in range(0, len(numbers), self.batch_size):
                yield numbers[first : first + self.batch_size]

    def passages(self, text: str) -> list[TextPassage]:
        """The parts in which a text is read, none where it is blank or no valid Unicode."""
        return cut_text(text, self._sizes, self._room) if text.strip() and is_unicode(text) else []

    @property
    def _room(self) -> int:
        """Tokens that an input has for a passage."""
        prompt = self.generator.encoder.prompt
        prefixes = PREFIXES.values() if prompt.task == "multitask" else [prompt.prefix]
        frames = self._sizes([f"{prefix}{HIGHLIGHT}  {HIGHLIGHT}{prompt.separator}" for prefix in prefixes])
        return max(1, prompt.max_source_length - max(frames) - MARGIN)

    def _sizes(self, texts: Sequence[str]) -> list[int]:
        encoded = self.generator.tokenizer(list(texts), add_special_tokens=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]


class AnswerProposals:
    """Proposes answers: by rules, by the extractor in a folder (`pipeline`), or by the generator (`multitask`)."""

    def __init__(
        self, generator: CandidateGenerator, *, extractor: str | Path | None = None, device: torch.device | None = None
    ) -> None:
        self._generator = generator
        self._by_way: dict[str, Propose] = {"pipeline": _by_rules}
        if extractor is not None:
            self._by_way["pipeline"] = ExtractorAnswers(
                str(extractor), PER_PASSAGE, device=device or torch.device("cpu"), min_probability=MIN_PROBABILITY
            )

    def __call__(
        self, text: str, passages: Sequence[TextPassage], way: str, number: int | None, *, or_rules: bool = False
    ) -> list[AnswerSpan]:
        """The best `number` answers (None: all) of a text's passages, spread over its sentences: the best of each
        sentence come before the second ones. Where the generator finds none, in a text or, without a number, in a
        passage, there are those by rules if `or_rules`.
        """
        or_rules = or_rules and way == "multitask"
        if way == "multitask" and way not in self._by_way:
            self._by_way[way] = GeneratedAnswers(self._generator, PER_PASSAGE)
        propose = self._by_way.get(way, _by_rules)
        # A model takes time: of a very long text it reads passages at even distances.
        read = passages if propose is _by_rules else evenly(passages, number)
        spans = []
        for passage in read:
            check_awaited()
            found = propose([passage.text])[0] or (_by_rules([passage.text])[0] if or_rules and number is None else [])
            for span in found:
                start, end = passage.start + span.start, passage.start + span.end
                spans.append(AnswerSpan(text[start:end], start, span.kind, span.score))
        if or_rules and not spans:
            return self(text, passages, "pipeline", number)
        ordered = sorted(spans, key=lambda span: (-span.score, span.start))
        return [one for one, _, _ in spread(with_separators(text), ordered, lambda one: (one.start, one.end))][:number]

    @property
    def left_out(self) -> int:
        """Answers so far that the generator has written, but that do not stand in their sentence."""
        generated = self._by_way.get("multitask")
        return generated.left_out if isinstance(generated, GeneratedAnswers) else 0


def evenly(passages: Sequence[TextPassage], most: int | None) -> list[TextPassage]:
    """At most so many passages (None: all), at even distances."""
    if most is None or len(passages) <= most:
        return list(passages)
    return [passages[place * len(passages) // most] for place in range(most)]


def _by_rules(contexts: Sequence[str]) -> list[list[Span]]:
    """The answers by rules; single common words and parts of headings only where a passage has no others."""
    found = [rule_spans(context) for context in contexts]
    return [[span for span in spans if span.score >= LEAST_BY_RULES] or spans for spans in found]


class Draft:
    """The pairs of a request, which has this `number` in its call: of the `passages` of its text, made in a `way`.
    Those with a score below `least` are left out.
    """

    def __init__(
        self, number: int, request: AskRequest, passages: Sequence[TextPassage], way: str, least: float = 0.0
    ) -> None:
        self.number, self.request, self.passages, self.way, self.least = number, request, passages, way, least
        self._text = with_separators(request.text)
        self.spans: list[AnswerSpan] = []
        self.pairs: list[ProposedPair] = []
        self.dropped: Counter[str] = Counter()
        self.rows: list[QuestionRow] = []
        self._is_proposed = False

    @property
    def _answers_wanted(self) -> int | None:
        """Answers to propose: more than pairs are wanted, because many give no usable question."""
        number, passages = self.request.number, len(self.passages)
        return number and max(ANSWERS_PER_PAIR * number + 2, min(passages, MOST_ANSWERS_PER_PAIR * number))

    def propose(self, proposals: AnswerProposals) -> None:
        """Find what to ask about, unless that is done."""
        check_awaited()
        if self._is_proposed:
            return
        before = proposals.left_out
        if self.request.answers is not None:
            self.spans = [span for span in map(self._placed, self.request.answers) if span is not None]
            self.dropped[NOT_IN_TEXT] += len(self.request.answers) - len(self.spans)
        elif self.passages and self.way != "end2end":
            given = self.request.text, self.passages, self.way, self._answers_wanted
            self.spans = proposals(*given, or_rules=self.request.way is None)
        self.dropped[NOT_IN_TEXT] += proposals.left_out - before
        self._ask_about(self.spans)

    def _ask_about(self, spans: Sequence[AnswerSpan]) -> None:
        self.spans, self._is_proposed, seed = list(spans), True, self.request.seed
        for span in dict.fromkeys(spans):
            example = self._example(span)
            # Samples depend on the id, so on what is asked about alone.
            digest = hashlib.sha256(example.context.encode()).hexdigest()[:16]
            key = f"{seed}|{digest}|{example.answers[0].start}|{len(span.text)}"
            example = replace(example, id=key, language=self.request.language)
            self.rows.append(QuestionRow(self.number, seed, span, example))

    def by_passage(self) -> list[tuple[TextPassage, list[AnswerSpan] | None]]:
        """The passages that something is asked about, with what that is (None: not known yet)."""
        if not self._is_proposed:
            return [(part, None) for part in self.passages]
        if self.way == "end2end":
            return [(part, []) for part in evenly(self.passages, self._answers_wanted)]
        of_part = [[one for one in self.spans if part.start <= one.start < part.end] for part in self.passages]
        return [(part, spans) for part, spans in zip(self.passages, of_part, strict=True) if spans]

    def of_passage(self, number: int, passage: TextPassage, spans: Sequence[AnswerSpan] | None) -> "Draft":
        """A draft of one passage of `by_passage`. All of them together have the `good_pairs` of this one."""
        draft = Draft(number, self.request, [passage], self.way, self.least)
        if spans is not None:
            draft._ask_about(spans)
        return draft

    def _example(self, span: AnswerSpan) -> QAExample:
        passage = self.passage_of(span)
        place = span.start - passage.start
        answer = passage.text[place : place + len(span.text)]
        context, start = with_full_stops(self._text[passage.start : passage.end], place)
        if not context.startswith(answer, start):  # the answer runs from a heading into what follows
            context, start = passage.text, place
        return QAExample(str(self.number), "", context, "", (Answer(answer, start),))

    def add(self, candidates: Iterator[Sequence[Candidate]], *, given: bool = False) -> None:
        """Add what was decoded: takes the candidates of its rows. Questions that were `given` are all kept."""
        for row in self.rows:
            group = next(candidates)
            self.dropped[CUT] += not group
            place = row.example.answers[0].start
            found = [self._pair(one, row.span, row.example.context, place) for one in group]
            distinct = list({pair.question: pair for pair in reversed(found)}.values())[::-1]
            self.pairs += distinct if given else usable(distinct, row.example.context, self.least, self.dropped)

    def add_whole_pairs(self, generator: CandidateGenerator) -> None:
        if self.way != "end2end" or self.request.answers is not None:
            return
        longest = generator.encoder.prompt.max_target_length
        for passage in evenly(self.passages, self._answers_wanted):
            check_awaited()
            context = passage.text.replace(SEPARATOR, "\n")
            (written,) = generate_pairs(generator, [context], max_new_tokens=longest)  # alone: as in QuestionRows
            self.dropped.update(written.dropped)
            found = []
            for one in written:
                start = passage.start + one.answer_start
                span = AnswerSpan(self.request.text[start : start + len(one.answer)], start, "generated")
                found.append(self._pair(one, span, context, one.answer_start))
            self.pairs += usable(found, context, self.least, self.dropped)

    def _pair(self, one: Candidate | GeneratedPair, span: AnswerSpan, context: str, place: int) -> ProposedPair:
        supported = support(one.question, context, place) if code_of(self.request.language) == "en" else None
        return ProposedPair(one.question, span, one.logprob, one.tokens, support=supported)

    def read_back(self, reader: AnswerReader | None) -> None:
        if reader is None or not self.pairs:
            return
        read = self._in_parts(self.pairs, lambda some: reader([one.question for one in some], self._contexts(some)))
        found = zip(self.pairs, read, strict=True)
        self.pairs = [replace(pair, round_trip=answer_f1(text, pair.span.text)) for pair, text in found]

    def judge(self, usability: Usability | None) -> None:
        """Let a metric judge the pairs whose score is not too low without it."""
        if usability is None:
            return

        def values_of(pairs: Sequence[ProposedPair]) -> list[float]:
            questions, answers = [pair.question for pair in pairs], [pair.span.text for pair in pairs]
            return usability.score(questions, contexts=self._contexts(pairs), answers=answers).scores

        values = iter(self._in_parts([pair for pair in self.pairs if pair.score >= self.least], values_of))
        self.pairs = [
            replace(pair, usability=next(values)) if pair.score >= self.least else pair for pair in self.pairs
        ]

    def _contexts(self, pairs: Sequence[ProposedPair]) -> list[str]:
        return [self.passage_of(pair.span).text for pair in pairs]

    def _in_parts(
        self, pairs: Sequence[ProposedPair], values_of: Callable[[Sequence[ProposedPair]], Iterable[Decoded]]
    ) -> list[Decoded]:
        """A value of each pair, of some at once, as long as somebody waits."""
        found: list[Decoded] = []
        for first in range(0, len(pairs), AT_ONCE):
            check_awaited()
            found += values_of(pairs[first : first + AT_ONCE])
        return found

    def rank(self, reranker: Reranker | None) -> None:
        """Let a reward order the pairs; each text alone, so that its rewards do not depend on the others."""
        if reranker is None or not self.pairs:
            return
        reranker.reset()
        values = self._in_parts(
            self.pairs,
            lambda part: reranker.scores([self._example(one.span) for one in part], [one.question for one in part]),
        )
        self.dropped[NO_REWARD] += sum(not math.isfinite(value) for value in values)
        self.pairs = [
            pair.rewarded(reranker.name, value, reranker.sign) for pair, value in zip(self.pairs, values, strict=True)
        ]

    def good_pairs(self) -> QAPairs:
        """All pairs that are good enough to be selected, best first."""
        return QAPairs(good_enough(self.pairs, self.least, self.dropped), dropped=+self.dropped)

    def selected(self) -> QAPairs:
        request = self.request
        if not self.passages:
            return QAPairs(reason="the text is no valid Unicode" if request.text.strip() else "the text is empty")
        if request.answers is not None:
            return select_for_answers(self.good_pairs(), self.spans, len(request.answers), dropped=self.dropped)
        if not self.rows and not self.pairs and not +self.dropped:
            return QAPairs(reason="no answer to ask about was found in the text")
        return select_pairs(self._text, self.good_pairs(), request.number, dropped=self.dropped)

    def _placed(self, answer: str | AnswerSpan) -> AnswerSpan | None:
        text = self.request.text if self.passages else ""
        if isinstance(answer, str):
            places = (first_place(answer, one) for one in (text, self._text[: len(text)]))  # then over line ends
            start = next((place for place in places if place >= 0), -1)
            return AnswerSpan(text[start : start + len(answer.strip())], start) if start >= 0 else None
        stands = answer.text.strip() and answer.start >= 0 and text[answer.start : answer.end] == answer.text
        return answer if stands else None

    def passage_of(self, span: AnswerSpan) -> TextPassage:
        """The passage that holds a span; all of those that it touches, with what is between them, as one."""
        touched = [part for part in self.passages if part.start < span.end and span.start < part.end]
        start, end = min(touched[0].start, span.start), max(touched[-1].end, span.end)
        return TextPassage(self._text[start:end].replace(SEPARATOR, "\n"), start)
