"""The files of a run folder as the report reads them: any may be missing, and a field is checked when it is used."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rl_qg.pages.plots import ReportedMean
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml, read_json_lines, read_record, read_yaml
from rl_qg.runtime.run_folder import TRAINED
from rl_qg.scoring.held_out import DIRECTION, FEWEST, SeriesChange, divergences, diverges, rises

MODELS = ("gold", "ce", "scst")  # whose questions: of people, of the CE generator, of the final one; and their readers
SCORES = {"exact_match": "EM", "f1": "F1"}
FINAL_WORDS = {"scst": "SCST", "rloo": "RLOO", "grpo": "GRPO", "best_of_n": "best of n"}
REWARD = "reward_greedy"
TABLES = packaged_yaml(__file__, "tables.yaml")
_Change = list[ReportedMean | None]  # a held-out mean of the CE generator, of the final one, and the paired difference


@dataclass(frozen=True)
class JsonObject:
    """A JSON object and its file, for errors; empty without one. What is absent is None, or an empty part or list."""

    path: Path
    value: Mapping[str, Any]

    def get(self, *keys: str) -> Any:
        value: Any = self.value
        for depth, key in enumerate(keys):
            if value is None:
                return None
            if not isinstance(value, Mapping):
                raise self.error(keys[:depth], "an object", value)
            value = value.get(key)
        return value

    def number(self, *keys: str) -> float | None:
        value = self.get(*keys)
        if value is not None and not is_number(value):
            raise self.error(keys, "a number", value)
        return value

    def count(self, *keys: str) -> int | None:
        value = self.number(*keys)
        if value is not None and not math.isfinite(value):
            raise self.error(keys, "a count", value)
        return None if value is None else int(value)

    def part(self, *keys: str) -> "JsonObject":
        value = self.get(*keys)
        if not isinstance(value, Mapping | None):
            raise self.error(keys, "an object", value)
        return JsonObject(self.path, value or {})

    def list(self, *keys: str) -> list[Mapping[str, Any]]:
        value = self.get(*keys) or []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise self.error(keys, "a list of objects", value)
        return value

    def estimate(self, *keys: str) -> ReportedMean | None:
        """A bare number or an interval {mean, low, high, n}."""
        value = self.get(*keys)
        if value is None:
            return None
        if is_number(value):
            return ReportedMean(float(value))
        if not isinstance(value, Mapping) or not is_number(value.get("mean")):
            raise self.error(keys, "a number or an interval {mean, low, high}", value)
        low, high = self.number(*keys, "low"), self.number(*keys, "high")
        return ReportedMean(float(value["mean"]), low, high, self.count(*keys, "n"))

    @property
    def choice_text(self) -> str:
        """One sentence on what chose the model, and whether its judges chose it; empty where nothing did."""
        choice = self.part("model_choice")
        if not choice.value:
            return ""
        if choice.get("on") == "other passages":
            return f"The model was chosen by {choice.get('by')} on {choice.get('passages')} other validation passages."
        return f"The model was chosen by {choice.get('by')} on these passages, so these numbers favour it."

    @property
    def resampled(self) -> str:
        """What the bootstrap of this file's intervals draws; files of older runs do not say it."""
        return "passages" if self.get("resampled") == "passages" else "questions"

    def error(self, keys: tuple[str, ...], expected: str, value: object) -> InputError:
        field = f"field {'.'.join(keys)}: " if keys else ""
        return InputError(f"{self.path}: {field}expected {expected}, got {type(value).__name__}; write the file again")


@dataclass(frozen=True)
class Metrics:
    """The lines of `metrics.jsonl`, in order."""

    lines: tuple[JsonObject, ...]

    def series(self, key: str) -> tuple[list[float], list[float]]:
        """Steps and values of the lines that hold a finite `key`."""
        pairs = [(line.number("step"), line.number(key)) for line in self.lines]
        finite = [(at, value) for at, value in pairs if at is not None and value is not None and math.isfinite(value)]
        return [step for step, _ in finite], [value for _, value in finite]

    def self_critical(self, key: str) -> list[float]:
        """Finite values of `key` in the self-critical stage, after the last one before it, where the stage began."""
        steps, values = self.series(key)
        before = [value for step, value in zip(steps, values, strict=True) if step <= (self.boundary or 0)]
        return [*before[-1:], *values[len(before) :]] if self.has_self_critical else []

    @property
    def has_self_critical(self) -> bool:
        return any(line.get("stage") == "scst" for line in self.lines)

    @property
    def last_step(self) -> float:
        return max((line.number("step") or 0 for line in self.lines), default=0)

    @property
    def boundary(self) -> float | None:
        """The last logged step of the cross-entropy stage, when another stage follows it."""
        steps = [line.number("step") or 0 for line in self.lines if line.get("stage") == "ce"]
        return max(steps) if steps and self.has_self_critical else None


class ReportedRun:
    """What the files of one run folder hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = _json_object(folder / "run.json")
        config = folder / "config.yaml"
        self.settings: Mapping[str, Any] = read_yaml(config) if config.exists() else {}
        self.config = config.read_text(encoding="utf-8") if config.exists() else ""
        self.metrics = read_metrics(folder / "metrics.jsonl")
        self.evaluation = _json_object(folder / "evaluation.json")
        self.augmentation = _json_object(folder / "augmented.report.json")
        self.augmentation_ce = _json_object(folder / "augmented.ce.report.json")
        self.qa = {name: _json_object(folder / "qa" / name / "qa_metrics.json") for name in MODELS}
        self.comparison = _json_object(folder / "qa" / "comparison.json")
        self.separation = _json_object(folder / "separation.json")
        self.trained = _json_object(folder / TRAINED)

    @cached_property
    def questions(self) -> int | None:
        """How many candidates were generated."""
        path = self.folder / "questions.jsonl"
        if not path.exists():
            return None
        with path.open("rb") as stream:
            return sum(1 for line in stream if line.strip())

    @property
    def signature(self) -> str | None:
        signature = self.evaluation.get("reward_signature") or self.record.get("reward_signature")
        return None if signature is None else str(signature)

    @property
    def words(self) -> dict[str, str]:
        """What each generator is called: the final one, whose folder is always `scst`, by its algorithm."""
        algorithm = str(self.settings.get("algorithm", "scst"))
        return {"gold": "human", "ce": "CE", "scst": FINAL_WORDS.get(algorithm, algorithm)}

    def measured(self, model: str, *field: str) -> ReportedMean | None:
        """A measure of the questions of `gold`, `ce` or `scst`; of `difference`, of the last two."""
        return self.evaluation.estimate(*(("models", model) if model in MODELS else (model,)), *field)

    @property
    def readers(self) -> list[str]:
        return [name for name, record in self.qa.items() if record.value]

    @property
    def final_reader(self) -> str | None:
        """The reader on gold with questions of the final generator, or of the only one; None: none yet."""
        name = "ce" if self.settings.get("stages") == "ce" else "scst"
        return name if name in self.readers else None

    def reader_difference(self, later: str, earlier: str, score: str) -> ReportedMean | None:
        """A reader's score minus another's in percent points, paired; None where they have not been compared."""
        return self.comparison.estimate("differences", f"{later} - {earlier}", score)

    def reader_score(self, reader: str | None, score: str) -> ReportedMean | None:
        """A reader's mean score in percent, with its interval over passages; None when it has not been trained."""
        record = self.qa[reader] if reader else JsonObject(self.folder, {})
        mean = record.number(score)
        if mean is None:
            return None
        ends = record.get("intervals", score)
        if ends is None:
            return ReportedMean(mean, n=record.count("total"))
        if not isinstance(ends, list) or len(ends) != 2 or not all(map(is_number, ends)):
            raise record.error(("intervals", score), "[low, high]", ends)
        return ReportedMean(mean, ends[0], ends[1], record.count("total"))


def read_run(folder: Path) -> ReportedRun:
    """Read the files of a run folder. Raises `InputError` for a folder that holds none and for a broken file."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the output_dir of a run")
    run = ReportedRun(folder)
    records = (run.record, run.evaluation, run.augmentation, run.comparison, run.separation, *run.qa.values())
    if not any(record.value for record in records) and not run.metrics.lines:
        raise InputError(f"{folder}: holds none of the files of a run; give the output_dir of a run")
    return run


def read_metrics(path: Path) -> Metrics:
    lines = read_json_lines(path) if path.exists() else ()
    return Metrics(tuple(JsonObject(Path(f"{path}: line {number}"), line) for number, line in lines))


def is_number(value: object) -> bool:
    """Whether `value` is a JSON number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json_object(path: Path) -> JsonObject:
    return JsonObject(path, read_record(path) if path.exists() else {})


@dataclass(frozen=True)
class ReportedMeasure:
    """A measure, `eval_<key>` in `metrics.jsonl`; with `percent` a fraction is shown in percent, with `digits`."""

    key: str
    label: str
    digits: int
    percent: str = ""

    @property
    def field(self) -> str:
        return f"eval_{self.key}"

    @property
    def factor(self) -> float:
        """What the file's values are multiplied by when they are shown."""
        return 100.0 if self.percent else 1.0

    def text(self, value: float) -> str:
        return f"{self.factor * value:.{self.digits}f}{' %' if self.percent else ''}".replace("-", "\N{MINUS SIGN}")

    def moved(self, change: SeriesChange) -> str:
        return f"{self.text(change.start)} → {self.text(change.end)}"


MEASURES = [ReportedMeasure(key, *how) for key, how in TABLES["measures"].items()]
BY_KEY = {measure.key: measure for measure in MEASURES}


def diverging(run: ReportedRun) -> dict[str, SeriesChange]:
    """The held-out measures that went clearly the wrong way while the optimised reward went up."""
    others = {key: run.metrics.self_critical(f"eval_{key}") for key in DIRECTION if key != REWARD}
    return divergences(run.metrics.self_critical(f"eval_{REWARD}"), others)


def _series(change: _Change) -> list[float]:
    """Evaluations with this start and this end, for the rule of `rl_qg.scoring.held_out`."""
    return [mean.mean for mean in change[:2] if mean is not None for _ in range(FEWEST)]


def _side(change: _Change) -> int | None:
    """Whether the interval of the difference is above 0 (1), below (-1), or neither; None where there is none."""
    difference = change[2]
    if difference is None or difference.low is None or difference.high is None:
        return None
    return 1 if difference.low > 0 else -1 if difference.high < 0 else 0


def _clearly_fell(key: str, change: _Change, reward: list[float]) -> bool:
    if (side := _side(change)) is not None:
        return side < 0
    if key in DIRECTION:
        return key in divergences(reward, {key: _series(change)})
    return diverges(reward, _series(change), direction=1)


def fallen_measures(run: ReportedRun) -> list[tuple[str, float, float, int]]:
    """Every held-out measure of the run before and after, where the reward rose and all of them fell; else nothing.

    The reward must have risen by more than chance, and one of the measures fallen by more: the interval of its paired
    difference lies on that side of 0. Where there is none, it is a change that counts in the line at the end of
    training (`rl_qg.scoring.held_out`). Each is (label, value of the CE generator, of the final one, decimals).
    """

    def change(*field: str) -> _Change:
        return [run.measured(model, *field) for model in ("ce", "scst", "difference")]

    reward = change("reward")
    if not (rises(_series(reward)) if _side(reward) is None else _side(reward) == 1):
        return []
    readers = [*(run.reader_score(name, "f1") for name in ("ce", "scst")), run.reader_difference("scst", "ce", "f1")]
    changes = [
        ("held_out", "held-out reward", change("held_out"), 1, 3),
        ("bleu4", "BLEU-4", change("bleu4"), 1, 3),
        ("rouge_l", "ROUGE-L", change("rouge_l"), 1, 3),
        ("right", "right by the oracle in %", change("oracle", "right"), 100, 1),
        ("reader_f1", "reader F1", readers, 1, 1),
    ]
    known = [
        (label, factor * before.mean, factor * after.mean, digits)
        for _, label, (before, after, _), factor, digits in changes
        if before is not None and after is not None
    ]
    clear = any(_clearly_fell(key, one, _series(reward)) for key, _, one, _, _ in changes)
    return known if clear and all(after < before for _, before, after, _ in known) else []
