"""Baselines of QRelScore: what a question gets that has nothing to do with the context, and rescaling by it.

Source: Wang et al., "QRelScore", EMNLP 2022 (random pairs of question and context that share next to no word); the form
x' = (x - low) / (high - low) is that of the released code's commented lines, and with high = 1 that of BERTScore.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rewards.base import MetricResult
from rewards.errors import MetricInputError

PARTS = ("lrm", "grg")

RELEASED = {"lrm": (0.26209762, 0.68293935), "grg": (-0.21804565, 0.55268557)}
"""Low and high of each part as they stand, commented out, in the released code (bert-base-cased, gpt2, official)."""

MAX_OVERLAP = 0.05
"""Largest share of a question's words that its random context may hold (BLEU-1 without brevity penalty)."""

_ATTEMPTS = 200
"""How many contexts are drawn per wanted pair before giving up."""


class ScoresPairs(Protocol):
    """A metric with the parts `lrm` and `grg`."""

    @property
    def signature(self) -> str:
        """What identifies the number."""

    def score(self, questions: Sequence[str], contexts: Sequence[str]) -> MetricResult:
        """Score one question per row."""


@dataclass(frozen=True)
class Baselines:
    """The value of each part that becomes 0, and the one that becomes 1."""

    low: tuple[float, float]
    high: tuple[float, float]

    def rescale(self, part: str, value: float) -> float:
        """Return ``(value - low) / (high - low)``, and 0 below the baseline: the harmonic mean needs both parts >= 0."""
        at = PARTS.index(part)
        return max(0.0, (value - self.low[at]) / (self.high[at] - self.low[at]))

    def __str__(self) -> str:
        pairs = zip(PARTS, self.low, self.high, strict=True)
        return ",".join(f"{part}={low:g}..{high:g}" for part, low, high in pairs)


def read_baselines(given: str | Path | Mapping[str, object], signature: str, *, official: bool) -> Baselines:
    """Return baselines from ``"released"``, a file that `estimate_baselines` filled, or a mapping such as
    ``{"lrm": 0.26, "grg": [0.01, 1.0]}``.

    Args:
        given: what the user gave.
        signature: of the metric without baselines; a file must have been made with the same.
        official: whether the metric is the released code's.

    Raises:
        MetricInputError: nothing usable there, or baselines of another formula.
    """
    if given == "released":
        if not official:
            raise MetricInputError(
                "qrelscore: baselines='released' belong to variant='official' unchanged; other formulas have other "
                "values on random pairs (rl-qg baselines estimates them)"
            )
        return _checked(RELEASED)
    if isinstance(given, Mapping):
        return _checked(given)
    try:
        content = json.loads(Path(given).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise MetricInputError(f"qrelscore: baselines={given}: cannot be read ({error})") from None
    if not isinstance(content, dict) or content.get("signature") != signature:
        found = content.get("signature") if isinstance(content, dict) else None
        raise MetricInputError(f"qrelscore: baselines={given} were estimated for {found}, but this is {signature}")
    return _checked(content)


def estimate_baselines(
    metric: ScoresPairs, questions: Sequence[str], contexts: Sequence[str], *, pairs: int = 1000, seed: int = 0
) -> dict[str, object]:
    """Return the mean of `lrm` and `grg` over random pairs of question and context that share next to no word.

    Args:
        metric: QRelScore without baselines.
        questions: questions of the data.
        contexts: the context of each.
        pairs: how many random pairs to score.
        seed: of the draw.

    Returns:
        ``lrm`` and ``grg`` (the baselines), ``pairs``, ``drawn`` (how many pairs were looked at to find them),
        ``max_overlap``, ``seed`` and the metric's ``signature``.

    Raises:
        MetricInputError: too few such pairs, as with too few contexts.
    """
    drawn = 0
    found: list[tuple[str, str]] = []
    for drawn, (question, context, overlap) in enumerate(_random_pairs(questions, contexts, seed), start=1):
        if overlap <= MAX_OVERLAP:
            found.append((question, context))
        if len(found) == pairs or drawn == _ATTEMPTS * pairs:
            break
    if len(found) < pairs:
        raise MetricInputError(
            f"baselines: only {len(found)} of {drawn} random pairs share at most {MAX_OVERLAP:.0%} of the question's "
            f"words, but {pairs} are wanted; give more questions or ask for fewer pairs"
        )
    result = metric.score([question for question, _ in found], [context for _, context in found])
    means = {part: sum(result.parts[part]) / pairs for part in PARTS}
    return {
        **means,
        "pairs": pairs,
        "drawn": drawn,
        "max_overlap": MAX_OVERLAP,
        "seed": seed,
        "signature": metric.signature,
    }


def _random_pairs(questions: Sequence[str], contexts: Sequence[str], seed: int) -> Iterator[tuple[str, str, float]]:
    """Yield a question, the context of another one, and the share of the question's words that the context holds."""
    draw = random.Random(seed)
    words: dict[str, Counter[str]] = {}
    while len(set(contexts)) > 1:
        at, other = draw.randrange(len(questions)), draw.randrange(len(contexts))
        if contexts[at] == contexts[other]:
            continue
        question, context = questions[at], contexts[other]
        asked = _words(question)
        if not asked:
            continue
        known = words.setdefault(context, Counter(_words(context)))
        yield question, context, sum((Counter(asked) & known).values()) / len(asked)


def _words(text: str) -> list[str]:
    """Return lower-cased words; punctuation is no word."""
    return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()


def _checked(given: Mapping[str, object]) -> Baselines:
    low, high = [], []
    for part in PARTS:
        value = given.get(part, 0.0)
        ends = list(value) if isinstance(value, (list, tuple)) else [value, 1.0]
        numbers = [float(end) for end in ends if isinstance(end, (int, float)) and not isinstance(end, bool)]
        if len(numbers) != 2 or len(ends) != 2 or not numbers[0] < numbers[1] < float("inf"):
            raise MetricInputError(
                f"qrelscore: baselines: {part}={value!r} is neither a number below 1 nor a pair [low, high]"
            )
        low.append(numbers[0])
        high.append(numbers[1])
    return Baselines((low[0], low[1]), (high[0], high[1]))
