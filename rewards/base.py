"""What all metrics share: input is checked in one place, and there is one kind of result and one signature."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rewards.contract import COLUMN, check_row_by_row
from rewards.errors import MetricInputError
from rewards.signature import format_signature

if TYPE_CHECKING:
    import torch

Pair = tuple[str, str]  # a question and what it is compared with

ROWS_AT_ONCE = 4096  # enough to sort by length, few enough to bound the token ids in memory


@dataclass(frozen=True)
class MetricResult:
    """What `Metric.score` returns, one entry per question, in the order given."""

    scores: list[float]
    parts: dict[str, list[Any]]
    """The quantities that the scores were computed from: floats, or lists of floats (one per token)."""


@dataclass(frozen=True)
class Inputs:
    """Checked rows without duplicates; what a metric does not need is left blank."""

    questions: list[str]
    contexts: list[str]
    answers: list[str]
    references: list[tuple[str, ...]]
    rows: list[int]  # the index of each row in the caller's lists, for messages
    titles: list[str] = field(default_factory=list)

    def pairs(self, against: str) -> tuple[list[Pair], list[int]]:
        """Return each question with each of its references, else with its context, and the row of each pair."""
        if against != "references":
            return list(zip(self.questions, self.contexts, strict=True)), list(range(len(self.questions)))
        rows = list(enumerate(zip(self.questions, self.references, strict=True)))
        pairs = [(question, reference) for _, (question, group) in rows for reference in group]
        return pairs, [row for row, (_, group) in rows for _ in group]

    def rows_from(self, start: int, end: int) -> "Inputs":
        return Inputs(*(getattr(self, one.name)[start:end] for one in fields(self)))


class BaseReward(ABC):
    """What metrics and rewards of sets of questions (`rewards.set_rewards`) have in common."""

    name: ClassVar[str]
    needs: frozenset[str] = frozenset()
    """Which of ``contexts``, ``answers``, ``references``, ``titles`` a score needs besides the questions."""
    part_names: tuple[str, ...] = ()
    lower_parts: tuple[str, ...] = ()
    """Which of them are better when lower."""
    higher_is_better: ClassVar[bool] = True
    bounds: tuple[float, float] = (float("-inf"), float("inf"))
    """Smallest and largest possible score."""
    metrics: Sequence[Any] = ()
    """Of which it is computed: they move, and drop what they cached, together."""
    own_signature = ""
    """Options and files of another package's class, from `load`; for `choices` that it inherits from this package."""

    @abstractmethod
    def choices(self) -> Mapping[str, object]:
        """Return every choice that can change a score, in the order the signature prints them."""

    @property
    def signature(self) -> str:
        """One line that identifies the number: ``name|key:value|...|version:...``."""
        inherits = type(self).choices.__module__.split(".")[0] == __package__
        own = f"|{self.own_signature}" if self.own_signature and inherits else ""
        return format_signature(self.name, self.choices()) + own

    def reset_cache(self) -> None:
        """Drop what is cached from earlier calls; the next scores are bitwise those of a new object."""
        for metric in self.metrics:
            if hasattr(metric, "reset_cache"):
                metric.reset_cache()

    def to(self, device: "str | torch.device") -> Self:
        """Move all models to a device and return the reward."""
        from rewards.frozen import FrozenModel  # PyTorch, which metrics that count words do without

        models = [value for value in vars(self).values() if isinstance(value, FrozenModel)]
        for part in (*models, *self.metrics):
            if hasattr(part, "to"):
                part.to(device)
        return self


class Metric(BaseReward):
    """A metric of generated questions that is also a reward.

    A subclass sets the class attributes, builds its models in ``__init__``, and implements `compute` and `choices`.
    Models are named by a local folder or by their name on the Hub. Metrics with models share the options
    ``batch_size`` (sequences per forward pass), ``device`` (where to run; None takes the current GPU if there is one,
    else the CPU) and ``dtype`` (floating-point type of the models; ``tf32`` is float32, whose products a GPU makes in
    TF32 while the metric computes).
    """

    needs: frozenset[str] = frozenset({"contexts"})
    whole_set: bool = False
    """Whether a score depends on the other rows of the call: on the references of a data set, given all at once."""

    @abstractmethod
    def compute(self, inputs: Inputs) -> MetricResult:
        """Score checked rows; called under `torch.inference_mode` with at least one row."""

    def begin(self, references: Sequence[Sequence[str]]) -> None:
        """See the references of all rows of a call, before the first is computed."""

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def truncated(self) -> int:
        """How many texts were cut at the length of a model so far."""
        parts = (*vars(self).values(), *self.metrics)
        return sum(getattr(part, "truncated", 0) for part in parts)  # `rewards.frozen.CountsCuts`, metrics

    def score(
        self,
        questions: Sequence[str],
        contexts: Sequence[str] | None = None,
        *,
        answers: Sequence[str] | None = None,
        references: Sequence[Sequence[str]] | None = None,
        titles: Sequence[str] | None = None,
    ) -> MetricResult:
        """Score one question per row: with its passage, its answer, its gold questions (at least one) and the title
        of its passage, of which only those in `needs` must be given.

        Equal rows are computed once. Scores do not depend on the order or the number of rows, up to rounding.
        """
        given = {"contexts": contexts, "answers": answers, "references": references, "titles": titles}
        rows = self._check(questions, given)
        if not rows:
            return MetricResult([], {name: [] for name in self.part_names})
        self.begin([row[3] for row in rows])
        first: dict[tuple[Any, ...], int] = {}
        for index, row in enumerate(rows):
            first.setdefault(row, index)
        columns = [list(column) for column in zip(*first, strict=True)]
        inputs = Inputs(columns[0], columns[1], columns[2], columns[3], list(first.values()), columns[4])
        scores: list[float] = []
        parts: dict[str, list[Any]] = {}
        for start in range(0, len(first), ROWS_AT_ONCE):
            with self._computing():
                result = self.compute(inputs.rows_from(start, start + ROWS_AT_ONCE))
            scores += result.scores
            for name, values in result.parts.items():
                parts.setdefault(name, []).extend(values)
        distinct = {row: index for index, row in enumerate(first)}
        order = [distinct[row] for row in rows]
        return MetricResult(
            [scores[index] for index in order],
            {name: [values[index] for index in order] for name, values in parts.items()},
        )

    @contextmanager
    def _computing(self) -> Iterator[None]:
        if (torch := sys.modules.get("torch")) is None:  # a metric with a model has loaded it
            yield
            return
        with torch.inference_mode():
            if getattr(self, "dtype", None) != "tf32":
                yield
                return
            products = torch.backends.cuda.matmul
            before, products.allow_tf32 = products.allow_tf32, True
            try:
                yield
            finally:
                products.allow_tf32 = before

    def __call__(
        self,
        prompts: Sequence[Any] | None = None,
        completions: Sequence[Any] = (),
        *,
        context: Sequence[str | None] | None = None,
        answer: Sequence[str | None] | None = None,
        references: Sequence[Sequence[str] | None] | None = None,
        title: Sequence[str | None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **unused: Any,
    ) -> list[float | None]:
        """Score completions the way TRL's trainers call a reward function: texts, or conversations whose last message
        counts. ``context`` to ``title`` are columns of the data set; prompts and other columns are not used. TRL's
        ``log_metric`` receives the mean of every numeric part as ``<name>/<part>``.

        Returns one score per completion; None where a column that is needed holds None (reward not applicable).
        """
        check_row_by_row(self)
        columns = {"contexts": context, "answers": answer, "references": references, "titles": title}
        for need in sorted(self.needs):
            if columns[need] is None:
                raise MetricInputError(
                    f"{self.name}: the data set has no column {COLUMN[need]!r}, which the metric needs"
                )
        questions = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        needed = {need: column for need, column in columns.items() if need in self.needs and column is not None}
        skipped = {row for column in needed.values() for row, value in enumerate(column) if value is None}
        given: dict[str, Any] = {"questions": questions, **needed}
        kept = {name: [value for row, value in enumerate(given[name]) if row not in skipped] for name in given}
        result = self.score(**kept)
        if log_metric is not None and result.scores:
            for name, values in result.parts.items():
                if all(isinstance(value, float) for value in values):  # None: a part of another package
                    log_metric(f"{self.name}/{name}", sum(values) / len(values))
        scores = iter(result.scores)
        return [None if row in skipped else next(scores) for row in range(len(questions))]

    def _check(
        self, questions: Sequence[str], optional: Mapping[str, Sequence[Any] | None]
    ) -> list[tuple[str, str, str, tuple[str, ...], str]]:
        """Return one hashable row per question; `MetricInputError` names the list and the index of a bad value."""
        self._check_texts("questions", questions)
        blank: dict[str, Any] = {"contexts": "", "answers": "", "references": (), "titles": ""}
        columns: list[Sequence[Any]] = [questions]
        for name, values in optional.items():
            if values is not None and len(self._listed(name, values)) != len(questions):
                raise MetricInputError(
                    f"{self.name}: {len(questions)} questions but {len(values)} {name}; give one of each per row"
                )
            if name not in self.needs:
                columns.append([blank[name]] * len(questions))
                continue
            if values is None:
                raise MetricInputError(f"{self.name} needs {name}; pass {name}=[...], one entry per question")
            if name != "references":
                self._check_texts(name, values)
                columns.append(values)
                continue
            for row, group in enumerate(values):
                self._check_texts(f"references[{row}]", group)
                if not len(group):
                    raise MetricInputError(f"{self.name}: references[{row}] is empty; give at least one gold question")
            columns.append([tuple(group) for group in values])
        return list(zip(*columns, strict=True))

    def _check_texts(self, field: str, values: Sequence[Any]) -> None:
        for row, value in enumerate(self._listed(field, values)):
            if not isinstance(value, str):
                raise MetricInputError(
                    f"{self.name}: {field}[{row}] is {type(value).__name__}, not text: {value!r:.60}"
                )
            try:
                value.encode()
            except UnicodeEncodeError:
                raise MetricInputError(
                    f"{self.name}: {field}[{row}] is not valid Unicode (a lone surrogate): {value!a:.60}"
                ) from None

    def _listed(self, field: str, values: Any) -> Any:
        if not is_column(values):
            what = "one text" if isinstance(values, str) else f"a {type(values).__name__}"
            if (dimensions := getattr(values, "ndim", 1)) != 1:
                what += f" of {dimensions} dimensions"
            needed = "a list of lists" if field == "references" else "a list"
            raise MetricInputError(f"{self.name}: {field} is {what}; give {needed}, or one column of a table")
        return values


def is_column(values: Any) -> bool:
    """Whether it has entries in an order, as a list, an array or a column of a table; a table has columns."""
    unlike = isinstance(values, str | bytes | Mapping | AbstractSet) or getattr(values, "ndim", 1) != 1
    return isinstance(values, Collection) and not unlike
