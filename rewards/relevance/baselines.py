"""Baselines of QRelScore: the value of questions unrelated to the context, and rescaling by it.

Source: Wang et al., "QRelScore", EMNLP 2022, equation 5, appendix F (random pairs of question and context that share
hardly any word) and Table 9; the form x' = (x - low) / (high - low) is that of the released code's commented lines,
and with high = 1 that of the paper and of BERTScore.
"""

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.base import Metric
from rewards.errors import MetricInputError, packaged, path_of
from rewards.words import words


@dataclass(frozen=True)
class MaxMin:
    """The smallest and the largest score of a set, which become 0 and 1 (Wang et al., appendix F, figure 4)."""

    low: float
    high: float

    def rescale(self, score: float) -> float:
        """Return ``(score - low) / (high - low)``, below 0 or above 1 for scores beyond the set's."""
        return (score - self.low) / (self.high - self.low)

    def __str__(self) -> str:
        return f"{self.low:.10g}..{self.high:.10g}"


def read_max_min(given: str | Path | Sequence[float], metric: str, signature: str) -> MaxMin:
    """Return ``[low, high]``, or those of a summary that ``rl-qg score`` wrote with this signature."""
    limits: Any = given
    if isinstance(given, str | Path):
        try:
            content = json.loads(path_of(metric, "max_min", given).read_text(encoding="utf-8-sig"))
            found, limits = content["signature"], (content["score"]["min"], content["score"]["max"])
        except (OSError, UnicodeDecodeError, ValueError, TypeError, KeyError) as error:
            raise MetricInputError(
                f"{metric}: max_min={given} has no limits of scores ({type(error).__name__}: {error}); give the "
                ".summary.json of rl-qg score, or [low, high]"
            ) from None
        if found != signature:
            raise MetricInputError(f"{metric}: max_min={given} are scores of {found}, but this is {signature}")
    if (ends := _two_numbers(list(limits) if isinstance(limits, Sequence) else [])) is None:
        raise MetricInputError(f"{metric}: max_min={given!s:.60} are no two numbers [low, high] with low below high")
    return MaxMin(*ends)


def _two_numbers(values: list[Any]) -> tuple[float, float] | None:
    numbers = [float(end) for end in values if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(numbers) != 2 or len(values) != 2 or not all(map(math.isfinite, numbers)) or numbers[0] >= numbers[1]:
        return None
    return numbers[0], numbers[1]


PARTS = ("lrm", "grg")

_PUBLISHED = packaged("published.toml")
PUBLISHED: dict[str, dict[str, dict[str, float]]] = _PUBLISHED["qrelscore_baselines"]

MAX_OVERLAP = 0.05  # largest fraction of a question's words that its random context may contain
_ATTEMPTS = 200  # pairs that are tried for each that is wanted
_PAIRS_AT_ONCE = 128  # scored between two reports of progress


@dataclass(frozen=True)
class Baselines:
    """The values of each part that are rescaled to 0 and to 1."""

    limits: tuple[MaxMin, MaxMin]
    clip: bool = True  # whether a value below the baseline becomes 0

    def rescale(self, part: str, value: float) -> float:
        """Return ``(value - low) / (high - low)`` (equation 5 with high 1), at least 0 if `clip`."""
        rescaled = self.limits[PARTS.index(part)].rescale(value)
        return max(0.0, rescaled) if self.clip else rescaled

    def __str__(self) -> str:
        ends = [f"{part}={limits}" for part, limits in zip(PARTS, self.limits, strict=True)]
        return ",".join([*ends, *([] if self.clip else ["unclipped"])])


def read_baselines(
    given: str | Path | Mapping[str, object], signature: str, *, models: tuple[str, str], official: bool, clip: bool
) -> Baselines:
    """Return baselines from a name (``"squad"`` and ``"hotpotqa"`` of `PUBLISHED`, or ``"released"``), from the result
    of `estimate_baselines` or a JSON file of it, or from a mapping such as ``{"lrm": 0.26, "grg": [0.01, 1.0]}``; a
    part that a mapping leaves out is not rescaled.

    Estimates must have the signature of the metric without baselines; ``models`` are the names of encoder and decoder,
    ``official`` whether the metric is that of the released code.
    """
    content: Mapping[str, Any]
    if given == "released":
        if not official:
            raise MetricInputError(
                "qrelscore: baselines='released' belong to variant='official' unchanged; other formulas have other "
                "values on random pairs (rl-qg baselines estimates them)"
            )
        content = _PUBLISHED["qrelscore_released"]
    elif isinstance(given, str) and given in PUBLISHED:
        content = {}
        for part, model in zip(PARTS, models, strict=True):
            table, backbone = PUBLISHED[given][part], Path(model).name
            if backbone not in table:
                raise MetricInputError(
                    f"qrelscore: baselines={given} have no {part} of {backbone!r}, only of {', '.join(table)} (Table "
                    "9 of the paper); rl-qg baselines estimates that of any model"
                )
            content[part] = table[backbone]
    else:
        content = given if isinstance(given, Mapping) else _read(given)
        if not isinstance(given, Mapping) or "signature" in content:
            where = "baselines" if isinstance(given, Mapping) else f"baselines={given}"
            other = content.get("signature") or "no signature"
            own, theirs = (re.sub(r"\|references:\w+", "", str(text)) for text in (signature, other))
            if own != theirs:  # whether references are scored too does not matter for a pair
                raise MetricInputError(f"qrelscore: {where} were estimated for {other}, but this is {signature}")
            content = {part: content.get(part) for part in PARTS}
        if unknown := sorted(map(str, content.keys() - set(PARTS))):
            raise MetricInputError(
                f"qrelscore: baselines have no part {unknown[0]!r}; they have {' and '.join(PARTS)}"
            )
    ends = []
    for part in PARTS:
        value = content.get(part, 0.0)
        if (pair := _two_numbers(list(value) if isinstance(value, list | tuple) else [value, 1.0])) is None:
            raise MetricInputError(
                f"qrelscore: baselines: {part}={value!r} is neither a number below 1 nor a pair [low, high]"
            )
        ends.append(MaxMin(*pair))
    return Baselines((ends[0], ends[1]), clip)


def estimate_baselines(
    metric: Metric,
    questions: Sequence[str],
    contexts: Sequence[str],
    *,
    pairs: int = 1000,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> dict[str, object]:
    """Return the mean of `lrm` and `grg` over random pairs of question and context that share hardly any word.

    The pairs are distinct, drawn with equal probability from all pairs of a question (with a word) and a context of
    another one. ``progress`` is called with the number of pairs just scored, block by block.

    Returns ``lrm`` and ``grg`` (the baselines), ``standard_error`` of both, ``pairs``, ``drawn`` (how many pairs were
    tried to find them), ``questions`` and ``contexts`` (distinct ones, to draw from), ``max_overlap``, ``seed`` and
    the metric's ``signature``.
    """
    if getattr(metric, "baselines", None) is not None or getattr(metric, "references", False):
        raise MetricInputError("baselines: estimate them with baselines=None and references=False")
    if len(questions) != len(contexts):
        raise MetricInputError(
            f"baselines: {len(questions)} questions but {len(contexts)} contexts; give one for each"
        )
    if pairs < 1:
        raise MetricInputError(f"baselines: pairs={pairs}; give at least 1")
    unrelated, counts = _unrelated_pairs(questions, contexts, pairs, seed)
    values: dict[str, list[float]] = {part: [] for part in PARTS}
    for start in range(0, pairs, _PAIRS_AT_ONCE):
        block = unrelated[start : start + _PAIRS_AT_ONCE]
        result = metric.score([question for question, _ in block], [context for _, context in block])
        for part in PARTS:
            values[part] += result.parts[part]
        if progress is not None:
            progress(len(block))
    means = {part: math.fsum(values[part]) / pairs for part in PARTS}
    squares = {part: math.fsum((value - means[part]) ** 2 for value in values[part]) for part in PARTS}
    return {
        **means,
        "standard_error": {
            part: math.sqrt(squares[part] / (pairs - 1) / pairs) if pairs > 1 else None for part in PARTS
        },
        "pairs": pairs,
        **counts,
        "max_overlap": MAX_OVERLAP,
        "seed": seed,
        "signature": metric.signature,
    }


def overlap(question: str, context: str) -> float:
    """Return the fraction of the question's words that the context contains, with repetitions."""
    question_words = Counter(words(question))
    return (question_words & Counter(words(context))).total() / max(1, question_words.total())


def _unrelated_pairs(
    questions: Sequence[str], contexts: Sequence[str], wanted: int, seed: int
) -> tuple[list[tuple[str, str]], dict[str, int]]:
    contexts_of: dict[str, set[str]] = {}
    for question, context in zip(questions, contexts, strict=True):
        if words(question):
            contexts_of.setdefault(question, set()).add(context)
    distinct, passages = list(contexts_of), list(dict.fromkeys(contexts))
    counts = {"drawn": 0, "questions": len(distinct), "contexts": len(passages)}
    pairs: list[tuple[str, str]] = []
    for number in _shuffled(len(distinct) * len(passages), _ATTEMPTS * wanted, seed):
        question, context = distinct[number // len(passages)], passages[number % len(passages)]
        if context not in contexts_of[question]:
            counts["drawn"] += 1
            if overlap(question, context) <= MAX_OVERLAP:
                pairs.append((question, context))
        if len(pairs) == wanted:
            return pairs, counts
    raise MetricInputError(
        "baselines: only {found} of {drawn} pairs of a question and another's context share at most {most:.0%} of the "
        "question's words, but {wanted} are wanted; give more data (these are {questions} questions and {contexts} "
        "contexts) or ask for fewer pairs".format(**counts, found=len(pairs), most=MAX_OVERLAP, wanted=wanted)
    )


def _shuffled(total: int, most: int, seed: int) -> Iterator[int]:
    draw = random.Random(seed)
    if total <= most:
        yield from draw.sample(range(total), total)
        return
    seen: set[int] = set()
    while len(seen) < most:
        number = draw.randrange(total)
        if number not in seen:
            seen.add(number)
            yield number


def _read(path: object) -> Mapping[str, object]:
    try:
        content = json.loads(path_of("qrelscore", "baselines", path).read_text(encoding="utf-8-sig"))
    except (OSError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise MetricInputError(
            f"qrelscore: baselines={path}: cannot be read ({error}); give a file from rl-qg baselines, 'squad', "
            "'hotpotqa', 'released', or {lrm: 0.26, grg: 0.01}"
        ) from None
    if not isinstance(content, dict):
        raise MetricInputError(f"qrelscore: baselines={path}: not a file from rl-qg baselines")
    return content
