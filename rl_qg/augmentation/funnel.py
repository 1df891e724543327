"""What a filter of candidate questions is, and the funnel that applies filters one after the other.

A filter decides either about each candidate by itself (`RowFilter`) or after it has seen all candidates that reach it
(`SetFilter`), and may define a measure that a model computes. Options are the fields of its dataclass.
"""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import compress, islice
from math import isfinite, nan
from os.path import expanduser, isdir, isfile
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch
from accelerate import PartialState

from rl_qg.augmentation.candidates import Candidates, Marked, Record
from rl_qg.data.parts import DataPart, StageRows
from rl_qg.data.streaming import Examples
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.runtime.ranks import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, Work, json_line, note_path
from rl_qg.scoring.reward_scorer import Reward

# Numbers that models give candidates, computed once and kept beside the questions file.
#
# `questions.round_trip-1a2b3c4d.jsonl` has a line for each candidate that was measured. Its name ends in a hash of the
# questions and of the model and options that measure them: other questions or another model make another file. Later
# commands read the file and add what is missing. `….settings.json` beside it is the note of what made it.

MeasureFunction = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]
"""Measures candidates: for each a dict whose `value` is a number or None, with other fields that are to be kept."""
Rules = Mapping[str, Callable[[Record], bool]]
"""Reasons to drop a record, each with the test for it."""


@dataclass(frozen=True)
class CandidateMeasure:
    """A number that a model gives each candidate, `batch_size` at a time."""

    kind: str  # what is measured; part of the file's name
    made_of: Mapping[str, Any]  # everything besides the questions that the numbers depend on; JSON
    # Called when a candidate has no number yet: the function that measures, and a description of it (JSON).
    load: Callable[[], tuple[MeasureFunction, Mapping[str, Any]]]
    batch_size: int


@dataclass(frozen=True)
class MeasuredValues:
    """The number of each candidate, by its index, NaN where there is none; how many candidates were measured; the file
    of the numbers, and its note; the mean of those that a filter got, since other sets may share the file. Where parts
    have several files there is neither file nor mean.
    """

    values: "array[float]"
    measured: int
    file: Path | None
    note: Mapping[str, Any]
    mean: float | None = None


def measure_candidates(
    measure: CandidateMeasure,
    questions: Path,
    questions_hash: str,
    marks: bytes,
    state: PartialState,
    part: DataPart | None = None,
) -> MeasuredValues | None:
    """Measure the candidates marked with 1 that have no number yet; every process calls this. The main process returns
    all numbers, the others None. The numbers of a part are of its marks alone: which candidates are measured together
    must not depend on what was measured before.
    """
    made_of = {"questions": questions_hash, **measure.made_of}
    if part:
        made_of |= {"part": str(part), "marks": hashlib.sha256(marks).hexdigest()}
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    file = questions.with_name(f"{questions.stem}.{measure.kind}-{digest[:8]}.jsonl")
    lines = ResumableLines(file, note_path(file), content="measures")
    missing, position = from_main(state, partial(_missing, lines, made_of, marks))
    if missing.count(1):
        function, description = measure.load()
        from_main(state, partial(lines.write_note, {**made_of, "digest": digest, "measure": description}))
        work: Work[Any] = Work(lines, measure.batch_size, measure.kind.replace("_", " "), "question")
        marked = Marked(questions, marks if part else missing)
        rows = StageRows[Any](part, measure.kind, marked, lambda row: str(row[1]["context"]), work)
        if part:
            position = from_main(state, partial(rows.work.position, rows))
        rest, total = islice(rows, position.rows if part else 0, None), len(rows) if part else marks.count(1)
        rows.work.write(rest, rows.writer(partial(_lines_of, function)), position=position, total=total, state=state)
    if not state.is_main_process:
        return None
    values, measured = array("d", [nan]) * len(marks), 0
    for index, value, _ in _stored_values(lines, len(marks)):
        values[index] = value
        measured += marks[index]
    numbers = [value for value in compress(values, marks) if value == value]
    return MeasuredValues(values, measured, file, lines.read_note() or made_of, fmean(numbers) if numbers else None)


def model_identity(options: Any) -> Any:
    """The same options with a hash in place of every path that exists: numbers depend on the content of weights."""
    if isinstance(options, Mapping):
        # The name of a metric is no path, even if there is a folder of that name.
        names = {str(key): value for key, value in options.items() if key == "metric" and isinstance(value, str)}
        return {str(key): model_identity(value) for key, value in options.items()} | names
    if isinstance(options, list | tuple):
        return [model_identity(value) for value in options]
    path = expanduser(options) if isinstance(options, str) else ""
    if isfile(path):
        return file_hash(Path(path))
    if isdir(path):
        folder = Path(path)
        files = sorted(path for pattern in ("*.safetensors", "*.json", "*.txt") for path in folder.glob(pattern))
        return hashlib.sha256("".join(f"{path.name} {file_hash(path)}\n" for path in files).encode()).hexdigest()
    return options


def _missing(lines: ResumableLines, made_of: Mapping[str, Any], marks: bytes) -> tuple[bytes, Position]:
    """Marks of the candidates that have no number yet, and where the file is continued."""
    lines.check(made_of)
    missing, size, done = bytearray(marks), 0, 0
    for index, _, end in _stored_values(lines, len(marks)):
        done += missing[index]
        missing[index], size = 0, end
    return bytes(missing), Position(done, size)


def _stored_values(lines: ResumableLines, total: int) -> Iterator[tuple[int, float, int]]:
    """Yield (index, value, bytes up to the end of the line) of each whole line."""
    for line in lines.lines():
        if not line.text.endswith(b"\n"):
            return
        where = f"{lines.path}: line {line.number}"
        try:
            record = json.loads(line.text)
            index, value = record["place"], record["value"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{where}: not a measure of a candidate; delete the file") from None
        if type(index) is not int or not 0 <= index < total:
            raise InputError(f"{where}: there is no candidate {index}; delete the file")
        yield index, nan if value is None else float(value), line.end


def _lines_of(function: MeasureFunction, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> list[list[bytes]]:
    lines = []
    for (index, record), result in zip(rows, function([record for _, record in rows]), strict=True):
        value = result["value"]
        value = value if value is not None and isfinite(value) else None
        head = {"place": index, "id": record["id"], "candidate": record["candidate"]}
        lines.append([json_line({**head, **result, "value": value})])
    return lines


def no_metric(options: Mapping[str, Any]) -> Reward:
    raise InputError("a filter needs a metric, and no metric loader was given; use rl-qg augment")


@dataclass(frozen=True)
class FilterResources:
    """What filters may use: the human questions, the seed, the device of this process, and a metric loader."""

    gold: Examples | Sequence[Any] = ()
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    load_metric: Callable[[Mapping[str, Any]], Reward] = no_metric


class Filter:
    """One step of the funnel. Subclasses are dataclasses whose fields are the options.

    `name` is the filter's key in the settings. If the key is not the name of the kind, reasons begin with `prefix`.
    """

    name: str = ""
    prefix: str = ""
    reasons: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def noted(self) -> Counter[str]:
        """What `notes` counts, such as candidates to which a rule was not applied."""
        return Counter()

    @property
    def compares_passages(self) -> bool:
        """Whether what it drops of a passage depends on candidates of other passages."""
        return False

    def option_errors(self) -> list[tuple[bool, str]]:
        """Pairs of whether an option is invalid, and the error text."""
        return []

    def measure(self, resources: FilterResources) -> CandidateMeasure | None:
        """The measure that the filter reads under its name, if it needs one; called in every process."""
        return None

    def prepare(self, resources: FilterResources) -> None:
        """Called once, before the first candidate."""

    def notes(self) -> list[str]:
        """After the last candidate: a sentence for each rule that could not be applied, and to how many."""
        return []

    def active_reasons(self) -> tuple[str, ...]:
        """The reasons for which this filter, with its options, may drop a candidate."""
        return self.reasons


def measures_of(filters: Sequence[Filter], resources: FilterResources) -> dict[str, CandidateMeasure]:
    """What the filters measure, by their names."""
    measures = ((filter_.name, filter_.measure(resources)) for filter_ in filters)
    return {name: measure for name, measure in measures if measure is not None}


class RowFilter(Filter):
    """Decides about each candidate by itself."""

    def rules(self) -> Rules:
        """The rules, called once, after `prepare`; the first rule that rejects a candidate gives the reason."""
        raise NotImplementedError

    def active_reasons(self) -> tuple[str, ...]:
        return tuple(self.rules())


class SetFilter(Filter):
    """Decides after it has seen every candidate that reaches it; keeps only numbers and hashes in memory."""

    def observe(self, index: int, record: Record) -> None:
        raise NotImplementedError

    def dropped(self) -> Iterator[tuple[int, str]]:
        """Yield index and reason of each candidate to drop."""
        raise NotImplementedError


class Funnel:
    """Applies filters to candidates, in order; each filter sees the candidates that the earlier ones have kept.

    `counts` maps each reason, in the order of the filters, to the number of candidates dropped for it.
    """

    def __init__(self, filters: Sequence[Filter], candidates: Candidates, resources: FilterResources) -> None:
        self.filters, self.candidates, self.resources = list(filters), candidates, resources
        self.counts: dict[str, int] = {}
        self._pending: list[RowFilter] = []  # applied during the next reading
        for filter_ in self.filters:
            self.counts |= {filter_.prefix + reason: 0 for reason in filter_.active_reasons()}

    @property
    def seen(self) -> int:
        return len(self.candidates) - self.candidates.others

    @property
    def kept(self) -> int:
        return self.seen - sum(self.counts.values())

    def apply(self, filter_: Filter) -> None:
        """Apply the next filter: a row filter during the next reading, a set filter at once."""
        filter_.prepare(self.resources)
        if isinstance(filter_, RowFilter):
            self._pending.append(filter_)
        elif isinstance(filter_, SetFilter):
            self.read_through(filter_.observe)
            for index, reason in filter_.dropped():
                self._drop(index, filter_.prefix + reason)

    def marks(self) -> bytes:
        """One byte for each candidate: 1 if all filters so far have kept it, else 0."""
        self.read_through()
        return self.candidates.marks()

    def read_through(self, observe: Callable[[int, Record], None] | None = None) -> None:
        """Read the remaining candidates, drop those that pending row filters reject, and `observe` the others."""
        if observe is None and not self._pending and self.seen:
            return
        rules = [
            (filter_.prefix + key, rejects) for filter_ in self._pending for key, rejects in filter_.rules().items()
        ]
        self._pending = []
        for index, where, record in self.candidates.read("filter"):
            try:
                reason = next((reason for reason, rejects in rules if rejects(record)), None)
                if reason is not None:
                    self._drop(index, reason)
                elif observe is not None:
                    observe(index, record)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None

    def _drop(self, index: int, reason: str) -> None:
        self.candidates.drop(index)
        self.counts[reason] += 1
