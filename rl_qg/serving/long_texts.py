"""A request about a long text as requests about its passages, and their pairs as those of the text."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rl_qg.asking.documents import TextPassage, cut_text, with_separators
from rl_qg.asking.drafts import NOT_IN_TEXT
from rl_qg.asking.pairs import AnswerSpan, AskRequest, QAPair, QAPairs
from rl_qg.asking.selection import select_pairs, shortage
from rl_qg.text.spans import sentence_spans

REPEATED = "question already asked about an earlier passage"


def passage_requests(
    request: AskRequest, longest: int, *, by_sentence: bool = False, more: int = 0
) -> list[tuple[int, AskRequest]]:
    """Where each passage of a text begins and what is asked about it, in order: passages of `longest` characters,
    where no answer is longer, or, `by_sentence`, sentences.

    `number` is divided among the passages, in proportion to their given answers, else to their lengths (sentences:
    evenly); each of several is asked for some `more`, to choose from. A passage whose part is 0 is left out, and so
    are answers that do not stand in the text (`WholeText` counts them).
    """
    text, answers = request.text, located(request.text, request.answers or ())
    read = with_separators(text)
    pieces = cut_text(read, lambda texts: [*map(len, texts)], longest)
    spans = sentence_spans(read) if by_sentence else [(one.start, one.end) for one in pieces]
    passages = _joined(text, [TextPassage(text[start:end], start) for start, end in spans], answers)
    own = [[answer for answer in answers if passage.start <= answer.start < passage.end] for passage in passages]
    if request.answers is not None:
        weights = [len(spans) for spans in own]
    else:
        weights = [1 if by_sentence else len(passage.text) for passage in passages]
    numbers: Sequence[int | None] = shares(request.number, weights) if request.number else [None] * len(passages)
    if len(passages) > 1 and request.answers is None:
        numbers = [number + more if number else number for number in numbers]
    requests = []
    for passage, inside, number, weight in zip(passages, own, numbers, weights, strict=True):
        if weight and number != 0:
            moved = tuple(replace(span, start=span.start - passage.start) for span in inside)
            given = None if request.answers is None else moved
            requests.append((passage.start, replace(request, text=passage.text, number=number, answers=given)))
    return requests


def located(text: str, answers: Iterable[str | AnswerSpan]) -> list[AnswerSpan]:
    """The answers that stand in the text where they say, without white space around them."""
    spans = [span for span in answers if isinstance(span, AnswerSpan) and span.start >= 0]
    return [
        replace(span, text=span.text.strip(), start=span.start + len(span.text) - len(span.text.lstrip()))
        for span in spans
        if span.text.strip() and text.startswith(span.text, span.start)
    ]


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in proportion to `weights`, in whole numbers by the largest remainders, of equal ones the first."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    parts = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda index: -(total * weights[index] % whole))
    for index in order[: total - sum(parts)]:
        parts[index] += 1
    return parts


class WholeText:
    """Puts the pairs of passages together, which come in the order of the text. Where the request gives answers, each
    keeps its question. `rank` orders the pairs, higher is better; by default their score.
    """

    def __init__(self, request: AskRequest, rank: Callable[[QAPair], float] = lambda pair: pair.score) -> None:
        self._request, self._keeps_all, self._rank = request, request.answers is not None, rank
        self.pairs: list[QAPair] = []
        self._passages: list[QAPairs] = []
        answers = request.answers or ()
        self._lost = len(answers) - len(located(request.text, answers))
        self.dropped = Counter({NOT_IN_TEXT: self._lost} if self._lost else {})
        self._questions: set[str] = set()

    def add(self, start: int, found: QAPairs) -> QAPairs:
        """The pairs of a passage that begins at `start`, with offsets of the text, without questions asked before."""
        new = [pair for pair in found if self._keeps_all or pair.question.casefold() not in self._questions]
        self._questions |= {pair.question.casefold() for pair in new}
        dropped = Counter(found.dropped)
        if repeated := len(found) - len(new):
            dropped[REPEATED] += repeated
        moved = [replace(pair, answer_start=pair.answer_start + start) for pair in new]
        self.pairs += moved
        self._passages.append(found)
        self.dropped.update(dropped)
        return QAPairs(moved, reason=found.reason, dropped=dropped)

    @property
    def reason(self) -> str:
        """Why there are fewer pairs than asked for; "" if there are as many."""
        wanted = self._request.number if self._request.answers is None else len(self._request.answers)
        if len(self._passages) == 1 and wanted is not None and len(self.pairs) < wanted and not self._lost:
            return self._passages[0].reason
        return shortage(len(self.pairs), wanted, self.dropped)

    def result(self) -> QAPairs:
        """The best pairs, best first: of several passages those that the whole text would have given."""
        ordered = sorted(self.pairs, key=lambda pair: (-self._rank(pair), pair.answer_start, pair.question))
        if self._keeps_all or len(self._passages) < 2:
            return QAPairs(ordered, reason=self.reason, dropped=self.dropped)
        return select_pairs(
            with_separators(self._request.text), ordered, self._request.number, dropped=self.dropped.copy()
        )


def _joined(text: str, passages: Iterable[TextPassage], answers: Sequence[AnswerSpan]) -> list[TextPassage]:
    """Passages, neighbours made one where an answer goes from one to the next."""
    joined: list[TextPassage] = []
    for passage in passages:
        if joined and any(joined[-1].start <= span.start < joined[-1].end < span.end for span in answers):
            first = joined.pop().start
            passage = TextPassage(text[first : passage.end], first)
        joined.append(passage)
    return joined
