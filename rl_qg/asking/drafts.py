"""One text on its way from a request to its pairs: its passages, the answers to ask about, and the pairs so far."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rl_qg.asking.answer_proposals import AnswerProposals, evenly
from rl_qg.asking.pairs import AnswerSpan, AskRequest, QAPairs
from rl_qg.asking.passages import TextPassage
from rl_qg.asking.question_rows import QuestionRow
from rl_qg.asking.selection import NO_REWARD, ProposedPair, select, select_for_answers, usable
from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.hotpotqa import first_place
from rl_qg.generation.end_to_end import generate_pairs
from rl_qg.generation.generator import Candidate, CandidateGenerator
from rl_qg.generation.reranking import Reranker
from rl_qg.readers.answering import AnswerReader
from rl_qg.readers.squad_scores import f1

CUT, NOT_IN_TEXT = "the answer is too long for the model", "answer not in the text"


class Draft:
    """The pairs of one request.

    Args:
        number: of the request in its call.
        request: what to ask about.
        passages: of its text.
        way: in which the pairs are made.
    """

    def __init__(self, number: int, request: AskRequest, passages: Sequence[TextPassage], way: str) -> None:
        self.number, self.request, self.passages, self.way = number, request, passages, way
        self.spans: list[AnswerSpan] = []
        self.pairs: list[ProposedPair] = []
        self.dropped: Counter[str] = Counter()
        self._rows: list[tuple[AnswerSpan, QuestionRow]] = []

    @property
    def _proposed(self) -> int | None:
        """Answers to propose: more than pairs are wanted, because some give no usable question."""
        number = self.request.number
        return None if number is None else 2 * number + 2

    def propose(self, proposals: AnswerProposals) -> None:
        """Find the answers to ask about; those that a model has written, but the text lacks, are counted."""
        before = proposals.left_out
        if self.request.answers is not None:
            self.spans = [span for span in map(self._placed, self.request.answers) if span is not None]
            self.dropped[NOT_IN_TEXT] += len(self.request.answers) - len(self.spans)
        elif self.passages and self.way != "end2end":
            self.spans = proposals(self.request.text, self.passages, self.way, self._proposed)
            if not self.spans and self.request.way is None:  # a model that extracts none: then by rules
                self.spans = proposals(self.request.text, self.passages, "pipeline", self._proposed)
        self.dropped[NOT_IN_TEXT] += proposals.left_out - before
        for span in dict.fromkeys(self.spans):
            passage = self.passage_of(span)
            request = self.request
            row = QuestionRow(
                self.number, passage.text, span.text, span.start - passage.start, request.language, request.seed
            )
            self._rows.append((span, row))

    def rows(self) -> list[QuestionRow]:
        """What has to be decoded."""
        return [row for _, row in self._rows]

    def add(self, candidates: Iterator[Sequence[Candidate]], *, given: bool = False) -> None:
        """Add what was decoded: takes the candidates of its rows. Questions that were `given` are all kept."""
        for span, _ in self._rows:
            group = next(candidates)
            self.dropped[CUT] += not group
            found = [ProposedPair(one.question, span, one.logprob, one.tokens) for one in group]
            distinct = list({pair.question: pair for pair in reversed(found)}.values())[::-1]
            self.pairs += distinct if given else usable(distinct, self.dropped)

    def add_whole_pairs(self, generator: CandidateGenerator) -> None:
        """In the way `end2end`: add the pairs that the model writes of each passage."""
        if self.way != "end2end" or self.request.answers is not None:
            return
        longest = generator.encoder.prompt.max_target_length
        for passage in evenly(self.passages, self._proposed):
            (written,) = generate_pairs(generator, [passage.text], max_new_tokens=longest)  # alone: as in QuestionRows
            self.dropped.update(written.dropped)
            found = [
                ProposedPair(
                    one.question,
                    AnswerSpan(one.answer, passage.start + one.answer_start, "generated"),
                    one.logprob,
                    one.tokens,
                )
                for one in written
            ]
            self.pairs += usable(found, self.dropped)

    def read_back(self, reader: AnswerReader | None) -> None:
        """Let the reader answer the questions, each about its passage."""
        if reader is None or not self.pairs:
            return
        contexts = [self.passage_of(pair.span).text for pair in self.pairs]
        answers = reader([pair.question for pair in self.pairs], contexts)
        self.pairs = [pair.answered(f1(text, pair.span.text)) for pair, text in zip(self.pairs, answers, strict=True)]

    def rank(self, reranker: Reranker | None) -> None:
        """Let a reward order the pairs; each text alone, so that its rewards do not depend on the others."""
        if reranker is None or not self.pairs:
            return
        examples = []
        for pair in self.pairs:
            passage = self.passage_of(pair.span)
            answer = Answer(pair.span.text, pair.span.start - passage.start)
            examples.append(QAExample(str(self.number), "", passage.text, "", (answer,)))
        reranker.reset()
        values = reranker.scores(examples, [pair.question for pair in self.pairs])
        self.dropped[NO_REWARD] += sum(not math.isfinite(value) for value in values)
        self.pairs = [
            pair.rewarded(reranker.name, value, reranker.sign) for pair, value in zip(self.pairs, values, strict=True)
        ]

    def selected(self) -> QAPairs:
        """The pairs that are returned."""
        request = self.request
        if not self.passages:
            return QAPairs(reason="the text is no valid Unicode" if request.text.strip() else "the text is empty")
        if request.answers is not None:
            return select_for_answers(
                self.pairs, self.spans, len(request.answers), min_score=request.min_score, dropped=self.dropped
            )
        if not self._rows and not self.pairs and not +self.dropped:
            return QAPairs(reason="no answer to ask about was found in the text")
        return select(request.text, self.pairs, request.number, min_score=request.min_score, dropped=self.dropped)

    def _placed(self, answer: str | AnswerSpan) -> AnswerSpan | None:
        """A given answer where it stands; None where it does not."""
        text = self.request.text if self.passages else ""
        if isinstance(answer, str):
            answer = answer.strip()
            start = first_place(answer, text)
            return AnswerSpan(answer, start) if start >= 0 else None
        stands = answer.text.strip() and answer.start >= 0 and text[answer.start : answer.end] == answer.text
        return answer if stands else None

    def passage_of(self, span: AnswerSpan) -> TextPassage:
        """The passage that holds a span; all of those that it touches, with what is between them, as one."""
        touched = [part for part in self.passages if part.start < span.end and span.start < part.end]
        start, end = min(touched[0].start, span.start), max(touched[-1].end, span.end)
        return TextPassage(self.request.text[start:end], start)
