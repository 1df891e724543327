"""Which of the pairs that were made of a text are returned.

1. Pairs are left out, and counted, whose question is empty, says its own answer, is not answered with the answer by
   the reader (where there is one), or whose score is too low; those that no reader can save before it reads.
2. The others are put in order. Each answer's best question comes before the second one of any answer. Among the best,
   the best of each sentence comes before the second one of any sentence, so that the pairs spread over the text; then
   the higher score decides.
3. A question whose words are nearly those of an earlier one is left out, about the same answer also one that shares
   half of them, and about an answer with the same words one of the same topic words (When was it opened? In what year
   was it opened?). The first `number` of the rest are taken.

The score of a pair is the geometric mean of the probabilities of its question's tokens, times the F1 of the reader's
answer where there is a reader, times the fourth root of `support` (at least 0.1) for an English question, times the
square root of its `usability` (`rewards.Usability`) where the reader knows it. All are in [0, 1]. Where a reward ranks
the pairs, its value takes the place of the score in these orders; a pair without one comes last.
"""

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rewards.form import repeats
from rewards.relevance.explanation import Explanation
from rewards.standalone import rules_of
from rl_qg.asking.pairs import AnswerSpan, QAPair, QAPairs
from rl_qg.augmentation.near_duplicates import shingles, similar_to_earlier
from rl_qg.data.examples import by_key
from rl_qg.text.english import AUXILIARIES, topic_words
from rl_qg.text.spans import sentences
from rl_qg.text.words import contains_words, normalised_words

MIN_ROUND_TRIP = 0.5  # F1 between the reader's answer and the answer of a pair, as in the filter `round_trip`
SIMILAR = 0.8  # Jaccard similarity of the words from which two questions are near duplicates, as in the filter
SIMILAR_ABOUT_ONE = 0.5  # from which two questions about one answer are: How big is it? How large is it?
STEM = 4  # letters that words have in common that are taken for forms of one word
POWERS = {"support": 0.25, "usability": 0.5}  # of the parts of a score (experiments/real-generator), else 1
LEAST = {"support": 0.1}  # that a score is computed with: the words of a question may be others than those of the text
# Pronouns that mostly leave open what is asked about: as the subject, or anywhere; and the writer's "my" and "me".
_OPEN = re.compile(
    rf"\b(?:{'|'.join(AUXILIARIES)}) (?:he|i|she|they|we)\b|\b(?:it(?! takes?\b)|did it|them)\b", re.IGNORECASE
)
_SPEAKER = rules_of("en")["no_speaker"]
Item = TypeVar("Item")
DIGITS = 6  # of scores and log-probabilities

EMPTY, GIVES_ANSWER, REPEATS, NOT_GIVEN_BACK, LOW_SCORE, NEAR_DUPLICATE, NOT_NEEDED, NO_REWARD = (
    "empty question",
    "answer in the question",
    "words repeated",
    "answer not given back by the reader",
    "score below min_score",
    "near duplicate of another question",
    "beyond the number",
    "ranked last without a reward",
)


@dataclass(frozen=True)
class ProposedPair:
    """A question that was made for an answer, the `span` of a text; `logprob` (NaN: not known) and `tokens` as of a
    `Candidate`, `round_trip` is the F1 of the reader's answer (None without a reader), `support` of the function of
    this name (None: not English), and `usability` that of the metric (None: not known).

    `reward` is the name and value of the reward that ranks the pairs (None without one, or where it failed), and
    `rank` what orders them, higher is better (None: the score).
    """

    question: str
    span: AnswerSpan
    logprob: float
    tokens: int
    round_trip: float | None = None
    support: float | None = None
    usability: float | None = None
    reward: tuple[str, float] | None = None
    rank: float | None = None

    @property
    def _parts(self) -> dict[str, float]:
        known = math.isfinite(self.logprob)
        probability = math.exp(min(0.0, self.logprob / max(1, self.tokens))) if known else None
        others = {name: getattr(self, name) for name in ("round_trip", "support", "usability")}
        parts = {"probability": probability, **others}
        return {name: round(value, DIGITS) for name, value in parts.items() if value is not None}

    @property
    def scores(self) -> dict[str, float]:
        return self._parts | (dict([self.reward]) if self.reward else {})

    @property
    def score(self) -> float:
        """From 0 to 1."""
        parts = [max(part, LEAST.get(name, 0.0)) ** POWERS.get(name, 1.0) for name, part in self._parts.items()]
        return round(math.prod(parts), DIGITS)

    @property
    def order(self) -> tuple[float, int, int, str]:
        """Pairs in this order are the best first."""
        value = self.score if self.rank is None else self.rank
        return -value, self.span.start, self.span.end, self.question

    def rewarded(self, name: str, value: float, sign: int) -> "ProposedPair":
        """The same with its reward; of the sign 1 higher ones are better, of -1 lower ones."""
        if not math.isfinite(value):
            return replace(self, rank=-math.inf)
        return replace(self, reward=(name, value), rank=sign * value)

    def pair(self) -> QAPair:
        span, logprob = self.span, round(self.logprob, DIGITS) if math.isfinite(self.logprob) else None
        return QAPair(self.question, span.text, span.start, self.score, logprob, self.scores)


def support(question: str, context: str, answer_start: int) -> float:
    """The share of what an English question is about that stands in the sentence of its answer, which begins at
    `answer_start` of the context. Words are alike that begin with the same four letters. A question about something
    else, or about nothing, has little; one that says a word twice, or that a pronoun leaves open, a quarter.
    """
    start, end = next((span for span in sentences(context) if span[0] <= answer_start < span[1]), (0, len(context)))
    said = {word[:STEM] for word in normalised_words(context[start:end])}
    about = topic_words(question)
    share = sum(word[:STEM] in said for word in about) / max(1, len(about))
    is_open = any(rule.search(question) for rule in (_OPEN, _SPEAKER))
    return share / 4 if is_open or len(about) > len(set(about)) else share


def usable(pairs: Sequence[ProposedPair], passage: str, least: float, dropped: Counter[str]) -> list[ProposedPair]:
    """The pairs whose question asks something without telling its answer, repeats no words that the passage does not
    repeat, and whose score is not below `least` whatever a reader says; the others are counted in `dropped`.
    """
    kept = []
    for pair in pairs:
        if not normalised_words(pair.question):
            dropped[EMPTY] += 1
        elif contains_words(pair.span.text, pair.question):
            dropped[GIVES_ANSWER] += 1
        elif repeats(pair.question, passage):
            dropped[REPEATS] += 1
        elif pair.score < least:
            dropped[LOW_SCORE] += 1
        else:
            kept.append(pair)
    return kept


def select_pairs(text: str, pairs: Sequence[QAPair], number: int | None, *, dropped: Counter[str]) -> QAPairs:
    """At most `number` (None: all) of the pairs of a text that are `good_enough`, best first, by steps 2 and 3 of the
    rule; the others are counted in `dropped`.
    """
    order = spread(text, range(len(pairs)), lambda at: (pairs[at].answer_start, pairs[at].answer_end))
    distinct = _distinct([pairs[at] for at, _, _ in order], dropped)
    chosen = [order[place] for place in distinct[:number]]
    dropped[NOT_NEEDED] += len(distinct) - len(chosen)
    starts = [start for start, _ in sentences(text)]
    chosen.sort()  # as given: best first
    found = [replace(pairs[at], reason=_reason(rank, place, starts, pairs[at])) for at, rank, place in chosen]
    return QAPairs(found, reason=shortage(len(found), number, dropped), dropped=+dropped)


def select_for_answers(
    pairs: Sequence[QAPair], spans: Sequence[AnswerSpan], wanted: int, *, dropped: Counter[str]
) -> QAPairs:
    """One of the pairs that are `good_enough` for each given answer, in their order: of an answer given k times the k
    best questions that are no near duplicates of each other. `wanted` is the number of given answers, those that the
    text lacks included.
    """
    by_span = by_key(((pair.answer_start, pair.answer_end), pair) for pair in pairs)
    waiting = {
        place: [group[at] for at in _distinct(group, dropped, given=True)][::-1] for place, group in by_span.items()
    }
    queues = (waiting.get((span.start, span.end)) for span in spans)
    found = [replace(queue.pop(), reason="the answer was given") for queue in queues if queue]
    dropped[NOT_NEEDED] += sum(map(len, waiting.values()))
    return QAPairs(found, reason=shortage(len(found), wanted, dropped), dropped=+dropped)


def good_enough(pairs: Sequence[ProposedPair], min_score: float, dropped: Counter[str]) -> list[QAPair]:
    """The pairs that the reader confirms and whose score is not too low, best first; the others are counted."""
    kept = []
    for pair in pairs:
        if pair.round_trip is not None and not pair.round_trip >= MIN_ROUND_TRIP - 1e-9:
            dropped[NOT_GIVEN_BACK] += 1
        elif pair.score < min_score:
            dropped[LOW_SCORE] += 1
        else:
            kept.append(pair)
    return [pair.pair() for pair in sorted(kept, key=lambda pair: pair.order)]


def spread(
    text: str, items: Sequence[Item], place_of: Callable[[Item], tuple[int, int]]
) -> list[tuple[Item, int, int]]:
    """Items of a text, the best first, in the order in which they are taken: each with its rank among those of its
    place in the text, and, of equal rank, of its sentence.
    """
    starts = [start for start, _ in sentences(text)]
    of_place, of_sentence = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    ranked = []
    for item in items:
        place = place_of(item)
        rank, sentence = of_place[place], (of_place[place], bisect_right(starts, place[0]))
        ranked.append((item, rank, of_sentence[sentence]))
        of_place[place] += 1
        of_sentence[sentence] += 1
    return sorted(ranked, key=lambda one: one[1:])  # stable: the better item stays first


def _distinct(pairs: Sequence[QAPair], dropped: Counter[str], *, given: bool = False) -> list[int]:
    """The indices of the pairs whose questions are no near duplicates of earlier ones. Unless their answers are
    `given`, those about the same place are from `SIMILAR_ABOUT_ONE` on, and those whose answers and topic words are
    the same.
    """
    sets, about = [shingles(pair.question, 1) for pair in pairs], defaultdict[tuple[int, int], list[int]](list)
    similar, known = {number for number, _ in similar_to_earlier(sets, SIMILAR)}, set[tuple[str, frozenset[str]]]()
    for number, pair in enumerate([] if given else pairs):
        said = pair.answer.casefold(), frozenset(topic_words(pair.question))
        if said in known:
            similar.add(number)
        elif number not in similar:
            known.add(said)
            about[pair.answer_start, pair.answer_end].append(number)
    for group in about.values():
        of_answer = similar_to_earlier([sets[number] for number in group], SIMILAR_ABOUT_ONE)
        similar |= {group[place] for place, _ in of_answer}
    dropped[NEAR_DUPLICATE] += len(similar)
    return [number for number in range(len(pairs)) if number not in similar]


def _reason(rank: int, place: int, starts: Sequence[int], pair: QAPair) -> str:
    sentence = f"sentence {bisect_right(starts, pair.answer_start)}"
    if rank:
        return f"question {rank + 1} about this answer of {sentence}"
    return f"the best pair of {sentence}" if not place else f"pair {place + 1} of {sentence}"


def shortage(found: int, wanted: int | None, dropped: Counter[str]) -> str:
    """Why there are fewer pairs than wanted; "" where there are as many."""
    if (found >= wanted) if wanted is not None else found:
        return ""
    # Pairs beyond the number, or last without a reward, are not missing.
    counted = [f"{why} ({count})" for why, count in dropped.items() if count and why not in (NOT_NEEDED, NO_REWARD)]
    why = ", ".join(counted) or "the text has no other answers to ask about"
    return f"{found} of {wanted} pairs: {why}" if wanted is not None else f"no pair: {why}"


@dataclass(frozen=True)
class WeighedSpan:
    """A part of a text, and how much it has to do with a question: from -1 (against it) to 1."""

    start: int
    end: int
    weight: float


def matched_spans(explanation: Explanation, start: int) -> list[WeighedSpan]:
    """The parts of a text that a question was matched with, by the explanation of the question about the passage that
    begins at `start`, in the order of the text.

    The weight is a token's contribution to the local relevance, as a share of the largest one. Tokens that share a
    character are one part.
    """
    parts: list[tuple[int, int, float]] = []
    for token, value in zip(explanation.context_tokens, explanation.matched, strict=True):
        if token.start is None or token.end is None or token.start >= token.end:
            continue
        if parts and token.start < parts[-1][1]:
            first, end, earlier = parts.pop()
            parts.append((first, max(end, token.end), earlier + value))
        else:
            parts.append((token.start, token.end, value))
    largest = max((abs(value) for _, _, value in parts), default=0.0)
    return [WeighedSpan(start + first, start + end, round(v / largest, 4)) for first, end, v in parts if v]
