"""A run folder as the report sees it: every file may be missing, every field is checked when it is used."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json, read_json_lines

MODELS = ("gold", "ce", "scst")
SCORES = {"exact_match": "EM", "f1": "F1"}


@dataclass(frozen=True)
class Estimate:
    """A mean with the ends of its interval and the number of values behind it, as far as they are known."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval leaves out 0; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Record:
    """A JSON object that knows its file, so that a wrong field is named with it. Empty when the file is missing."""

    path: Path
    value: Mapping[str, Any]

    def get(self, *keys: str) -> Any:
        """The value under nested keys; None when it is absent."""
        value: Any = self.value
        for depth, key in enumerate(keys):
            if value is None:
                return None
            if not isinstance(value, Mapping):
                raise self.fault(keys[:depth], "an object", value)
            value = value.get(key)
        return value

    def number(self, *keys: str) -> float | None:
        """The number under nested keys; None when it is absent."""
        value = self.get(*keys)
        if value is not None and not is_number(value):
            raise self.fault(keys, "a number", value)
        return value

    def count(self, *keys: str) -> int | None:
        """The number under nested keys as a whole one; None when it is absent."""
        value = self.number(*keys)
        return None if value is None else int(value)

    def part(self, *keys: str) -> "Record":
        """The object under nested keys; an empty one when it is absent."""
        value = self.get(*keys)
        if not isinstance(value, Mapping | None):
            raise self.fault(keys, "an object", value)
        return Record(self.path, value or {})

    def list(self, *keys: str) -> list[Mapping[str, Any]]:
        """The list of objects under nested keys; an empty one when it is absent."""
        value = self.get(*keys) or []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise self.fault(keys, "a list of objects", value)
        return value

    def estimate(self, *keys: str) -> Estimate | None:
        """A bare number or an interval {mean, low, high, n}; None when it is absent."""
        value = self.get(*keys)
        if value is None:
            return None
        if is_number(value):
            return Estimate(float(value))
        if not isinstance(value, Mapping) or not is_number(value.get("mean")):
            raise self.fault(keys, "a number or an interval {mean, low, high}", value)
        low, high = self.number(*keys, "low"), self.number(*keys, "high")
        return Estimate(float(value["mean"]), low, high, self.count(*keys, "n"))

    def fault(self, keys: tuple[str, ...], expected: str, value: object) -> InputError:
        """The error that says which field of which file is not what it should be."""
        field = f"field {'.'.join(keys)}: " if keys else ""
        return InputError(f"{self.path}: {field}expected {expected}, got {type(value).__name__}; write the file again")


@dataclass(frozen=True)
class Metrics:
    """The lines of `metrics.jsonl`, in order."""

    lines: tuple[Record, ...]

    def series(self, key: str) -> tuple[list[float], list[float]]:
        """Steps and values of the lines that hold a finite `key`."""
        pairs = [(line.number("step"), line.number(key)) for line in self.lines]
        found = [(step, value) for step, value in pairs if step is not None and value is not None]
        found = [(step, value) for step, value in found if math.isfinite(value)]
        return [step for step, _ in found], [value for _, value in found]

    def self_critical(self, key: str) -> list[float]:
        """Finite values of `key` in the self-critical stage, led by the last one before it, where the stage began."""
        steps, values = self.series(key)
        start = self.boundary or 0
        before = [value for step, value in zip(steps, values, strict=True) if step <= start]
        return [*before[-1:], *values[len(before) :]] if self.has_self_critical else []

    @property
    def has_self_critical(self) -> bool:
        """Whether any line belongs to the stage that learns by reward."""
        return any(line.get("stage") == "scst" for line in self.lines)

    @property
    def last_step(self) -> float:
        """The last logged step."""
        return max((line.number("step") or 0 for line in self.lines), default=0)

    @property
    def boundary(self) -> float | None:
        """The last logged step of the cross-entropy stage, when another stage follows it."""
        steps = [line.number("step") or 0 for line in self.lines if line.get("stage") == "ce"]
        return max(steps) if steps and self.has_self_critical else None


@dataclass(frozen=True)
class Run:
    """What the files of one run folder hold."""

    folder: Path
    record: Record
    config: str
    metrics: Metrics
    evaluation: Record
    questions: int | None
    augmentation: Record
    qa: Mapping[str, Record]
    comparison: Record

    @property
    def signature(self) -> str | None:
        """The reward's signature, when any file tells it."""
        found = self.evaluation.get("reward_signature") or self.record.get("reward_signature")
        return None if found is None else str(found)

    @property
    def difference(self) -> Record:
        """What the augmented reader gains; it stands under `difference` of `comparison.json`, or at its top."""
        return self.comparison.part("difference") if "difference" in self.comparison.value else self.comparison

    def reader_score(self, reader: str, score: str) -> Estimate | None:
        """A reader's mean score in percent, with its interval over passages; None when it has not been trained."""
        record = self.qa[reader]
        mean = record.number(score)
        if mean is None:
            return None
        ends = record.get("intervals", score)
        if ends is None:
            return Estimate(mean, n=record.count("total"))
        if not isinstance(ends, list) or len(ends) != 2 or not all(map(is_number, ends)):
            raise record.fault(("intervals", score), "[low, high]", ends)
        return Estimate(mean, ends[0], ends[1], record.count("total"))


def read_run(folder: Path) -> Run:
    """Read what a run folder holds. Raises `InputError` for a folder that is none and for a file that is broken."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the output_dir of a run")
    run = Run(
        folder=folder,
        record=_record(folder / "run.json"),
        config=_config(folder / "config.yaml"),
        metrics=read_metrics(folder / "metrics.jsonl"),
        evaluation=_record(folder / "evaluation.json"),
        questions=_count(folder / "questions.jsonl"),
        augmentation=_record(folder / "augmented.report.json"),
        qa={name: _record(folder / "qa" / name / "qa_metrics.json") for name in ("gold", "augmented")},
        comparison=_record(folder / "qa" / "comparison.json"),
    )
    records = (run.record, run.evaluation, run.augmentation, run.comparison, *run.qa.values())
    if not any(record.value for record in records) and not run.metrics.lines:
        raise InputError(f"{folder}: holds none of the files of a run; give the output_dir of a run")
    return run


def read_metrics(path: Path) -> Metrics:
    """The lines of a `metrics.jsonl`; none where there is no such file."""
    return Metrics(_lines(path))


def is_number(value: object) -> bool:
    """Whether `value` is a JSON number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _record(path: Path) -> Record:
    value = read_json(path) if path.exists() else {}
    if not isinstance(value, Mapping):
        raise Record(path, {}).fault((), "a JSON object", value)
    return Record(path, value)


def _lines(path: Path) -> tuple[Record, ...]:
    if not path.exists():
        return ()
    return tuple(Record(Path(f"{path}: line {number}"), line) for number, line in read_json_lines(path))


def _count(path: Path) -> int | None:
    if not path.exists():
        return None
    with path.open("rb") as stream:
        return sum(1 for line in stream if line.strip())


def _config(path: Path) -> str:
    if not path.exists():
        return ""
    try:
        text = path.read_text(encoding="utf-8")
        yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not readable as YAML: {str(error).splitlines()[0]}; write it again") from None
    return text
