"""Questions without an answer, made from answerable ones, so that a reader learns to abstain.

An extractive reader that has only seen answerable questions answers anything: a fragment, shuffled words, the question
of another passage. As a reward it then teaches a generator to write such fragments (measured:
`experiments/reader-alone`). SQuAD 2.0 (Rajpurkar et al., "Know What You Don't Know", ACL 2018) taught readers to
abstain by questions that people wrote; here rules write them from the training data.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from rewards.words import split_question_mark
from rl_qg.data.examples import QAExample
from rl_qg.runtime.errors import InputError

Words = list[str]


def with_unanswerable(examples: Sequence[QAExample], share: float, seed: int) -> list[QAExample]:
    """Return the examples, and for a share of them a second one whose question was made unanswerable.

    Such an example has the same passage, no answers, and the id of the first with `-unanswerable`. Each is made by one
    of nine rules, drawn with equal probability: the question of another passage; its beginning; its words shuffled;
    one or two words left out; one to three words twice; its beginning with the end of another question; its first
    word, one of its capitalised words, or one of the others replaced by one of another question. Without the last
    ones a reader answers "When was Ada founded?" and "Which prize did Ada honoured with?" like right questions.
    A question that a rule leaves as it was gives no example; so do many questions in scripts without spaces, which
    are one word here. Names of the same passage are not exchanged: the passage may answer the new question too.

    Args:
        examples: answerable ones, of at least two passages when `share` is above 0.
        share: probability, for each example, that an unanswerable one is added: 0 to 1.
        seed: of the choices; they depend on the order of the examples too.

    Raises:
        InputError: `share` is above 0 and all examples are about one passage.
    """
    if not share:
        return list(examples)
    if len({example.context for example in examples}) < 2:
        raise InputError("qa.unanswerable: questions of at least two passages are needed to make unanswerable ones")
    rng = random.Random(seed)
    added = []
    for example in examples:
        if rng.random() < share:
            question = _corrupted(example, examples, rng)
            if question is not None:
                added.append(replace(example, id=f"{example.id}-unanswerable", question=question, answers=()))
    return [*examples, *added]


def _corrupted(example: QAExample, examples: Sequence[QAExample], rng: random.Random) -> str | None:
    """Another question with the example's question mark; None where the words are those of the example's question."""
    other = rng.choice(examples)
    while other.context == example.context:
        other = rng.choice(examples)
    rule = rng.choice(_RULES)
    text, mark = split_question_mark(example.question)
    before = text.split()
    words = rule(before, split_question_mark(other.question)[0].split(), rng)
    return " ".join(words) + mark if words and words != before else None


def _other(words: Words, other: Words, rng: random.Random) -> Words:
    return other


def _beginning(words: Words, other: Words, rng: random.Random) -> Words:
    return words[: rng.randint(1, max(1, len(words) - 1))]


def _shuffled(words: Words, other: Words, rng: random.Random) -> Words:
    return rng.sample(words, len(words))


def _left_out(words: Words, other: Words, rng: random.Random) -> Words:
    dropped = rng.sample(range(len(words)), k=min(len(words) - 1, rng.randint(1, 2))) if words else []
    return [word for position, word in enumerate(words) if position not in dropped]


def _repeated(words: Words, other: Words, rng: random.Random) -> Words:
    start, length = rng.randrange(len(words) or 1), rng.randint(1, 3)
    return words[: start + length] + words[start:]


def _joined(words: Words, other: Words, rng: random.Random) -> Words:
    return words[: rng.randint(1, max(1, len(words)))] + other[max(1, len(other) - rng.randint(1, 4)) :]


def _other_first(words: Words, other: Words, rng: random.Random) -> Words:
    return [*other[:1], *words[1:]]


def _other_name(words: Words, other: Words, rng: random.Random) -> Words:
    return _replaced(words, other, rng, capitalised=True)


def with_other_word(words: Words, other: Words, rng: random.Random) -> Words:
    """The words of a question, one of which that begins with a small letter is one of another question's; the same
    where there is none.
    """
    return _replaced(words, other, rng, capitalised=False)


def _replaced(words: Words, other: Words, rng: random.Random, *, capitalised: bool) -> Words:
    """One word, the first excepted, replaced by one of the other question: both capitalised, or neither."""
    places, others = (_after_first(each, capitalised=capitalised) for each in (words, other))
    if not places or not others:
        return words
    place = rng.choice(places)
    return [*words[:place], other[rng.choice(others)], *words[place + 1 :]]


def _after_first(words: Words, *, capitalised: bool) -> list[int]:
    """The places of words that begin with a capital letter, or of those that do not; the first word is neither."""
    starts = (word.lstrip("\"'(“‘")[:1] for word in words)
    return [place for place, start in enumerate(starts) if place and start.isupper() == capitalised]


_RULES: tuple[Callable[[Words, Words, random.Random], Words], ...] = (
    _other,
    _beginning,
    _shuffled,
    _left_out,
    _repeated,
    _joined,
    _other_first,
    _other_name,
    with_other_word,
)
