"""What `rl-qg rate analyse` reads: an export folder, or a file of ratings alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rl_qg.rating.analysis.quality import ITEM_MEANS, SIGNED_RANK, controlled, scales_of
from rl_qg.rating.analysis.ratings import COUNTED, RatedItems, Scale, read_ratings
from rl_qg.rating.protocol import Control, Protocol
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json, read_json_lines
from rl_qg.settings.rating import RateAnalyseSettings

FILES = ("ratings.jsonl", "ratings.jsonl.gz", "ratings.csv", "ratings.csv.gz")


@dataclass(frozen=True)
class Question:
    """An item of a task in words."""

    question: str
    context: str
    answer: str


@dataclass(frozen=True)
class RatedStudy:
    """Ratings, and what else is known of them.

    Attributes:
        name: of the study, or of the file.
        path: of the file of ratings.
        rated: the ratings that count.
        control, control_criteria: how raters are tested.
        minutes: of each task, where known.
        questions: by HIT and position; empty for a file alone.
        states: how many assignments there are of each state; empty for a file alone.
        feedback: how many raters' comments there are.
    """

    name: str
    path: Path
    rated: RatedItems
    control: Control
    control_criteria: list[str]
    minutes: Mapping[str, float] = field(default_factory=dict)
    questions: Mapping[tuple[str, int], Question] = field(default_factory=dict)
    states: Mapping[str, int] = field(default_factory=dict)
    feedback: int = 0


def read_study(source: str, settings: RateAnalyseSettings, *, key: str = "ratings") -> RatedStudy:
    """The study that the setting `key` names.

    Raises:
        InputError: there is none, or a file of it cannot be read; settings that it cannot have.
    """
    if not source:
        raise InputError(f"{key} has no value; give the folder of `rl-qg rate export`, or a file of ratings")
    path = Path(source).expanduser()
    if not path.is_dir():
        rated = read_ratings(path, _scales(settings), with_open=settings.with_open, key=key)
        return _study(path.name, path, rated, Control(SIGNED_RANK, ITEM_MEANS), list(rated.criteria), settings)
    file = next((path / name for name in FILES if (path / name).is_file()), None)
    if file is None:
        raise InputError(f"{key}={source}: holds no {FILES[0]}; give the folder of `rl-qg rate export`")
    if settings.reversed or settings.scale:
        raise InputError("reversed and scale are of a file alone; the protocol of an export says what is reversed")
    plan = read_json(path / "plan.json")
    if not isinstance(plan, Mapping) or not isinstance(plan.get("protocol"), Mapping):
        raise InputError(f"{path / 'plan.json'}: field 'protocol' is missing; export the study anew")
    protocol = Protocol.from_dict(str(path / "plan.json"), plan["protocol"])
    rated = read_ratings(file, scales_of(protocol), with_open=settings.with_open)
    study = _study(str(plan.get("study") or path.name), file, rated, protocol.control, controlled(protocol), settings)
    minutes, states = _assignments(path / "assignments.jsonl")
    comments = path / "feedback.jsonl"
    return replace(
        study,
        minutes=minutes,
        states=states,
        questions=_questions(path / "items.jsonl"),
        feedback=sum(1 for _ in read_json_lines(comments)) if comments.is_file() else 0,
    )


def _scales(settings: RateAnalyseSettings) -> dict[str, Scale]:
    """Of reversed criteria of a file alone."""
    ends = settings.scale or [0.0, 100.0]
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise InputError(f"scale={settings.scale}: give the lowest and the highest value, as [1, 5]")
    return {name: Scale(ends[0], ends[1], True) for name in settings.reversed or ()}


def _study(
    name: str, path: Path, rated: RatedItems, control: Control, criteria: list[str], settings: RateAnalyseSettings
) -> RatedStudy:
    wanted = settings.control_criteria or criteria
    for setting, names in (("control_criteria", settings.control_criteria), ("reversed", settings.reversed)):
        for one in names or ():
            if one not in rated.criteria:
                raise InputError(f"{setting}: nobody rated {one!r}; the criteria are {', '.join(rated.criteria)}")
    return RatedStudy(
        name,
        path,
        rated,
        replace(
            control,
            method=settings.control_method or control.method,
            unit=settings.control_unit or control.unit,
            level=control.level if settings.level is None else settings.level,
        ),
        list(dict.fromkeys(wanted)),
    )


def _assignments(path: Path) -> tuple[dict[str, float], dict[str, int]]:
    """The minutes of each finished assignment, and how many there are of each state."""
    minutes: dict[str, float] = {}
    states: Counter[str] = Counter()
    for number, record in read_json_lines(path) if path.is_file() else ():
        name, state, seconds = (record.get(key) for key in ("assignment", "state", "seconds"))
        if not isinstance(name, str | int) or not isinstance(state, str):
            raise InputError(f"{path}: line {number}: fields 'assignment' and 'state' must be there; export anew")
        states[state] += 1
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and state in COUNTED:
            minutes[str(name)] = seconds / 60
    return minutes, dict(states)


def _questions(path: Path) -> dict[tuple[str, int], Question]:
    questions = {}
    for number, record in read_json_lines(path) if path.is_file() else ():
        texts: list[Any] = [record.get(key) for key in ("question", "context", "answer")]
        hit, position = record.get("hit"), record.get("position")
        if not isinstance(position, int) or not all(isinstance(one, str) for one in (hit, texts[0], texts[1])):
            raise InputError(f"{path}: line {number}: needs 'hit', 'position', 'question' and 'context'; export anew")
        questions[str(hit), position] = Question(texts[0], texts[1], texts[2] or "")
    return questions
