"""What the project expects of any reward: checked once, with a line that says what to change.

A reward is any object with

    score(questions, contexts, *, answers=None, references=None)

where each argument is a list with one entry per question (contexts and answers are texts, references lists of texts).
It returns one number per question, None where it gives none: as a list, an array or a tensor, or as an object whose
``scores`` holds them and whose ``parts``, if it has any, map names to lists with one entry per question. Five
attributes are optional (`rewards.base.Metric`): ``needs`` (which of ``contexts``, ``answers``, ``references`` it
reads; with ``titles`` among them it gets an argument ``titles`` too), ``higher_is_better``, ``bounds``, ``signature``
and ``whole_set`` (a score depends on all rows of a call).
"""

import inspect
import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.errors import MetricInputError

# What a reward may read besides the questions, and the column of a data set that holds it for one question.
COLUMN = {"contexts": "context", "answers": "answer", "references": "references", "titles": "title"}
WITHOUT_NEEDS = frozenset({"contexts", "answers", "references"})  # what a reward gets that does not say what it needs
LARGEST = 3.4028235e38  # of float32, in which others compute with scores: larger ones are infinite
FORM = "score(questions, contexts, *, answers=None, references=None)"


class WrongReward(MetricInputError):
    """An object that is no reward, or a result of another form than a reward returns."""


@dataclass(frozen=True)
class Result:
    """What a reward returned for n questions: n scores, None where there is none; and its parts."""

    scores: list[float | None]
    parts: Mapping[str, Sequence[Any]]


def is_set_reward(reward: Any) -> bool:
    """Whether it scores sets of questions and not single ones (`rewards.set_rewards.SetReward`)."""
    return callable(getattr(reward, "score_sets", None)) and not isinstance(reward, type)


def check_reward(reward: Any) -> None:
    """Check what can be seen before a question is scored; a reward of sets is left to `check_row_by_row`."""
    if is_set_reward(reward):
        return
    score = getattr(reward, "score", None)
    if isinstance(reward, type) or not callable(score):
        raise WrongReward(f"reward {name_of(reward)}: has no method {FORM}")
    try:
        inspect.signature(score).bind([], [], answers=None, references=None)
    except TypeError as error:
        raise WrongReward(f"reward {name_of(reward)}: score: {error}; it is called as {FORM}") from None
    except ValueError:
        pass  # a built-in function: it does not say what it takes
    needs = getattr(reward, "needs", ())
    if not isinstance(needs, tuple | list | set | frozenset) or not all(need in COLUMN for need in needs):
        raise WrongReward(f"reward {name_of(reward)}: needs is {needs!r}; name some of {', '.join(COLUMN)}")
    if not isinstance(own := getattr(reward, "signature", ""), str):
        raise WrongReward(f"reward {name_of(reward)}: signature is {own!r:.60}; give a text, or no such attribute")
    bounds_of(reward)


def bounds_of(reward: Any) -> tuple[float, float]:
    """The smallest and the largest score that a reward states (infinite: none); `WrongReward` for anything else."""
    given = getattr(reward, "bounds", None)
    with suppress(TypeError, ValueError, OverflowError):
        low, high = (-math.inf, math.inf) if given is None else map(float, given)
        if low <= high:
            return low, high
    raise WrongReward(f"reward {name_of(reward)}: bounds is {given!r:.60}; give (smallest, largest), or None")


def check_row_by_row(reward: Any) -> None:
    """Check that rows can be scored in batches (`rewards.base.Metric.whole_set`)."""
    if is_set_reward(reward):
        raise MetricInputError(
            f"{name_of(reward)}: scores sets of questions, and single ones are asked for; it is a reward of rl-qg "
            "train model.task=sets; for single questions choose another, such as rouge_l or qrelscore"
        )
    if getattr(reward, "whole_set", False):
        raise MetricInputError(
            f"{name_of(reward)}: its scores depend on all rows of a call, so it cannot score them in batches; "
            "rl-qg evaluate scores a file as a whole, and cider has the option documents, the references of the whole "
            "data set (reward.documents=FILE, or {metric: cider, documents: FILE} in a list)"
        )


def scored(
    reward: Any,
    questions: Sequence[str],
    contexts: Sequence[str] | None,
    *,
    answers: Sequence[str] | None = None,
    references: Sequence[Sequence[str]] | None = None,
    titles: Sequence[str] | None = None,
) -> Result:
    """Score questions with any reward, and bring its result into one form. Titles are for rewards that need them.

    Raises `WrongReward` for a result of another form or length, and whatever the reward raises; a RuntimeError where
    it would end the program.
    """
    titled = {"titles": titles} if "titles" in getattr(reward, "needs", ()) else {}
    own = deepcopy({"answers": answers, "references": references, **titled})  # lists that it may change
    with cannot_end_the_program():
        given = reward.score([*questions], deepcopy(contexts), **own)
    return _result(reward, given, len(questions))


@contextmanager
def cannot_end_the_program() -> Iterator[None]:
    """Code of somebody else runs here: its `SystemExit` becomes a RuntimeError. Subclasses are signals and pass."""
    try:
        yield
    except SystemExit as error:
        if type(error) is not SystemExit:  # such as our own on SIGTERM
            raise
        raise RuntimeError(f"it ends the program (SystemExit: {error.code})") from error


def name_of(reward: Any) -> str:
    cls = reward if isinstance(reward, type) else type(reward)
    name = getattr(reward, "name", None)
    return name if isinstance(name, str) else f"{cls.__module__}.{cls.__qualname__}"


def failure(error: BaseException, reward: Any) -> str:
    """One line on an error that a reward raised, with the line of its own file where that happened."""
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0].rstrip(": ")
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    own = None
    with suppress(TypeError, OSError):  # a class without a file
        own = inspect.getfile(reward if isinstance(reward, type) else type(reward))
    frame = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1] if frames else None)
    if frame is None:
        return text
    path, here = Path(frame.filename), Path.cwd()
    return f"{text} ({path.relative_to(here) if path.is_relative_to(here) else path}, line {frame.lineno})"


def _result(reward: Any, given: Any, count: int) -> Result:
    def wrong(fault: str) -> WrongReward:
        return WrongReward(f"reward {name_of(reward)}: {fault}")

    def number(value: Any) -> float | None:
        if value is None:
            return None
        with suppress(TypeError, ValueError, OverflowError):
            if not isinstance(value, str | bytes | bytearray):
                score = float(value)
                return math.copysign(math.inf, score) if abs(score) > LARGEST else score
        raise wrong(f"score returned {value!r:.60} for a question; return a number or None")

    scores = _plain(getattr(given, "scores", given))
    if not isinstance(scores, list | tuple):
        raise wrong(
            f"score returned {given!r:.60}; return one number for each question: a list, or an object whose scores "
            "holds them"
        )
    if len(scores) != count:
        raise wrong(f"score returned {len(scores)} scores for {count} questions; return one for each")
    parts = getattr(given, "parts", None)
    parts = {} if parts is None else parts
    if not isinstance(parts, Mapping):
        raise wrong(f"parts is {parts!r:.60}; give a mapping of names to lists")
    parts = {str(name): _plain(values) for name, values in parts.items()}
    for name, values in parts.items():
        if not isinstance(values, list | tuple) or len(values) != count:
            raise wrong(f"parts[{name!r}] is {values!r:.60}; give a list with one entry for each of {count} questions")
    return Result([number(value) for value in scores], parts)


def _plain(values: Any) -> Any:
    return values.tolist() if hasattr(values, "tolist") else values  # an array or a tensor as a list
