"""What is asked of raters, and how tasks are made: a protocol, read from YAML (`configs/protocol/`).

Texts for raters may be given in several languages of the interface: `{en: …, de: …}`; one text alone is that of the
protocol's own language.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Texts = Mapping[str, str]  # by language code of the interface

ORDINARY, REPEAT, DEGRADED, REFERENCE = "ordinary", "repeat", "degraded", "reference"
KINDS = (ORDINARY, REPEAT, DEGRADED, REFERENCE)  # of the items of a task
SLIDER, CHOICE = "slider", "choice"


@dataclass(frozen=True)
class Criterion:
    """One statement that raters agree with more or less, or one scale with described values."""

    name: str
    statement: Texts
    scale: str = SLIDER  # 0 to 100 without a number shown; or `choice`: one of `anchors`
    low: Texts = field(default_factory=dict)  # what the left end of a slider means
    high: Texts = field(default_factory=dict)
    anchors: tuple[tuple[int, Texts], ...] = ()  # value and meaning, best first
    reversed: bool = False  # a high value is bad
    control: bool = True  # enters the test of raters

    @property
    def lowest(self) -> int:
        """The smallest value."""
        return 0 if self.scale == SLIDER else min(value for value, _ in self.anchors)

    @property
    def highest(self) -> int:
        """The largest value."""
        return 100 if self.scale == SLIDER else max(value for value, _ in self.anchors)


@dataclass(frozen=True)
class Recipe:
    """How the items of a task (HIT) are chosen.

    `one_passage`: all systems' questions about one passage and answer, some repeated, some degraded; `blocks`: blocks
    of questions of any passages, each with degraded, reference and repeated ones, whose originals are in another
    block; `items`: questions of any passages.
    """

    kind: str = "one_passage"
    items: int = 20  # of a task; with `one_passage` and other than eleven systems it follows from their number
    repeats: int = 3
    degraded: int = 6
    references: int = 0
    distance: int = 2  # least distance between an item and its repeat or degraded form
    lengths: str = "qascore"  # the table of degraded words: qascore, appraise or crowd_alone


@dataclass(frozen=True)
class Practice:
    """A question that raters try before the task, with what one would say of it."""

    context: str
    answer: str
    question: str
    comment: Texts
    expected: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # values that pass, where it is a test


@dataclass(frozen=True)
class Control:
    """How raters are tested against degraded questions."""

    method: str = "signed_rank"  # or rank_sum
    unit: str = "item_means"  # or `ratings`: every criterion by itself, as published
    level: float = 0.05
    least_tasks: int = 1


@dataclass(frozen=True)
class Protocol:
    """A whole protocol."""

    name: str
    source: str
    criteria: tuple[Criterion, ...]
    recipe: Recipe
    control: Control
    title: Texts
    instructions: tuple[Texts, ...]
    consent: Texts
    consent_version: str = "1"
    practice: tuple[Practice, ...] = ()
    practice_passes: float = 0.0  # share of practice questions rated as expected, below which a rater is screened out
    raters_per_hit: int = 1
    minutes_per_hit: float = 30.0
    language: str = "en"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `plan.json` has them."""
        raise NotImplementedError

    @staticmethod
    def from_dict(where: str, given: Mapping[str, Any]) -> "Protocol":
        """A protocol from plain values; `where` names the file in errors."""
        raise NotImplementedError


def text_in(texts: Texts, language: str, fallback: str = "en") -> str:
    """A text in a language of the interface; where it has none, in `fallback`, else in the first language given."""
    return texts.get(language) or texts.get(fallback) or next(iter(texts.values()), "")


def load_protocol(name: str, folder: Path) -> Protocol:
    """The protocol of a name in a folder (`configs/protocol/`), or of a YAML file.

    Raises:
        InputError: there is none, or it cannot be used.
    """
    raise NotImplementedError
