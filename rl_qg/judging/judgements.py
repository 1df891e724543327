"""Questions that people have rated: JSON lines, one question each, or a table.

    {"question": …, "context": …, "answer": …, "references": […], "system": …, "item": …, "group": …,
     "human": {criterion: mean rating}, "ratings": {criterion: [one per rater, null = not rated]},
     "raters": [names], "metrics": {name: value}, "type": …, "subset": …, "control": …}

`question` is required, and `human` or `ratings`: without `human` the mean of the ratings counts. `item` is what
systems are compared on (by default the same passage and answer), `group` is what bootstraps draw (by default the
passage). `system` is a name, or a list where systems asked the same question. `metrics` are values that the data's
authors give. `type` is that of the question asked, any label: one of `rl_qg.text.question_types.TYPES`, of MS MARCO's
(PERSON, NUMERIC, …), or of your own; without it the words of `question` decide. `raters` names who gave the ratings,
in their order in each list; `subset` is a label, or a list of them, of parts of the file to look at alone; a row with
`control: true` is a test of raters, such as a question made worse on purpose. Any of these may be null.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

from rl_qg.data.examples import passage_hash
from rl_qg.data.formats import READERS, is_unicode, json_line_rows, stem_and_kind
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.kept_scores import MetricRow
from rl_qg.text.question_types import TYPES

NUMBERS = ("human", "ratings", "metrics")
"""Columns of numbers: `human` and `metrics` name one for each criterion or metric, `ratings` one for each rater."""
LARGEST = 1e50  # rating or score: sums of its fourth powers are finite, as the spread of squared errors needs
AUTHORS = "authors/"  # prefix of a metric whose values the authors of the data give
MS_MARCO_TYPES = ("PERSON", "NUMERIC", "DESCRIPTION", "LOCATION", "ENTITY")  # KPQA, NAACL 2021, section 5.4
LONGEST_LABEL, MOST_TYPES = 40, 50  # characters; types of one file


def mean_rating(ratings: Iterable[float]) -> float:
    """Their mean to 12 significant digits: the same ratings in another order are no other mean."""
    return float(f"{fmean(ratings):.12g}")


@dataclass(frozen=True)
class Judgement:
    """One question and its human ratings."""

    row: MetricRow
    systems: tuple[str, ...]
    item: str
    group: str
    human: Mapping[str, float]
    ratings: Mapping[str, tuple[float | None, ...]]
    metrics: Mapping[str, float]
    type: str | None
    raters: tuple[str | None, ...] = ()
    subsets: tuple[str, ...] = ()
    control: bool = False


def read_judgements(path: Path, *, key: str = "human", columns: Mapping[str, Any] | None = None) -> list[Judgement]:
    """All questions of the file that the setting `key` names; `columns` as in `judgement_records`."""
    if not path.is_file():
        raise InputError(f"{key}={path}: no such file; give JSON lines of rated questions")
    judgements = [_Record(*located).judgement() for located in judgement_records(path, columns or {})]
    if not judgements:
        raise InputError(f"{path}: holds no question; check the file")
    _check_types(path, judgements)
    return judgements


def criteria_of(judgements: Sequence[Judgement], wanted: Sequence[str] | None = None) -> list[str]:
    """The criteria that people rated, in the file's order, or those of them that are wanted, each once."""
    rated = list(dict.fromkeys(name for judgement in judgements for name in judgement.human))
    for name in wanted or ():
        if name not in rated:
            raise InputError(f"criteria: nobody rated {name!r}; the file has {', '.join(rated) or 'no rating'}")
    if not rated:
        raise InputError("no question has a rating: give each a field human or ratings")
    return list(dict.fromkeys(wanted)) if wanted else rated


def judgement_records(path: Path, columns: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the position of each row and its record.

    Tables have a header; anything else is JSON lines. `columns` names the column of each field; of `NUMBERS` it is a
    mapping, or None where the row has the field itself. A table has its numbers as text, and its texts may be blank,
    which is no value.
    """
    kind = stem_and_kind(path)[1]
    is_table = kind not in ("", "json", "jsonl")
    texts = {field: column for field, column in columns.items() if field not in NUMBERS}
    numbers = {field: columns[field] for field in NUMBERS if columns.get(field)}
    named = [(f"columns.{field}", column) for field, column in texts.items() if column != field]
    for field, given in numbers.items():
        form, example = (list, "[COLUMN, COLUMN]") if field == "ratings" else (str, "COLUMN")
        if not isinstance(given, Mapping) or not all(isinstance(column, form) for column in given.values()):
            raise InputError(
                f"columns.{field}={given!r}: name columns, such as columns.{field}={{fluency: {example}}}"
            )
        for name, column in given.items():
            named += [(f"columns.{field}.{name}", one) for one in (column if form is list else [column])]
    for where, number, fields in READERS.get(kind, json_line_rows)(path):
        if isinstance(fields, InputError):
            raise fields
        for key, column in named if is_table and number == 1 else ():
            if column not in fields:
                raise InputError(f"{where}: {key}={column}: there is no such column; there are {', '.join(fields)}")
        record = {**fields, **{field: fields.get(column) for field, column in texts.items()}}
        if is_table:
            record = {field: _cell(field, value) for field, value in record.items()}
        for field, given in numbers.items():
            record[field] = {
                name: [_number_of_cell(where, one, fields.get(one)) for one in column]
                if isinstance(column, list)
                else _number_of_cell(where, column, fields.get(column))
                for name, column in given.items()
            }
        yield where, record


def _number_of_cell(where: str, column: str, cell: Any) -> Any:
    """The number in a cell; what is neither text nor blank is left to the check of records."""
    if not isinstance(cell, str):
        return cell
    if not cell.strip():
        return None
    try:
        return float(cell)
    except ValueError:
        raise InputError(
            f"{where}: column {column!r} is {cell!r:.40}, no number; correct it, or leave it blank"
        ) from None


def _cell(field: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    if field == "control":
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    return [value] if field == "references" else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_unicode(value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


@dataclass(frozen=True)
class _Record:
    """A row of a file and its position; a value is checked when it is read."""

    where: str
    fields: Mapping[str, Any]

    def judgement(self) -> Judgement:
        columns = ("question", "context", "answer", "title")
        question, context, answer, title = (self.text(key, self.fields.get(key)) for key in columns)
        if question is None:
            self.fail("field 'question' is missing or null; every question needs its text")
        ratings = {name: self.ratings(name, given) for name, given in self.mapping("ratings").items()}
        human = {name: self.number(f"human.{name}", value) for name, value in self.mapping("human").items()}
        for name, given in ratings.items():
            values = [value for value in given if value is not None]
            if human.get(name) is None and values:
                human[name] = mean_rating(values)
        raters = self.raters(ratings)
        metrics = {name: self.number(f"metrics.{name}", value) for name, value in self.mapping("metrics").items()}
        group, item = self.name("group"), self.name("item")
        if group is None:
            group = passage_hash(context) if context is not None else item or self.where
        if item is None:
            about = passage_hash(context) if context is not None else group
            item = about if answer is None else f"{about}\0{answer}"
        references, system = self.fields.get("references"), self.fields.get("system")
        if references is not None and not _are_texts(references):
            self.fail(f"field 'references' is no list of texts: {references!r:.60}")
        row = MetricRow(self.where, question, context, answer, tuple(references) if references else None, title=title)
        systems: Any = system if _are_texts(system) else [self.name("system")] if system is not None else ()
        kind, subset = self.label("type", self.fields.get("type")), self.fields.get("subset")
        labels = [self.label("subset", one) for one in (subset if isinstance(subset, list) else [subset])]
        control = self.fields.get("control")
        if control is not None and not isinstance(control, bool):
            self.fail(f"field 'control' is {control!r:.40}; give true or false")
        subsets = tuple(dict.fromkeys(label for label in labels if label is not None))
        known = [{name: value for name, value in one.items() if value is not None} for one in (human, metrics)]
        return Judgement(
            row, tuple(systems), item, group, known[0], ratings, known[1], kind, raters, subsets, bool(control)
        )

    def fail(self, message: str) -> NoReturn:
        raise InputError(f"{self.where}: {message}")

    def text(self, field: str, value: Any) -> str | None:
        if value is not None and not _is_text(value):
            self.fail(f"field {field!r} is {type(value).__name__}, not text: {value!r:.60}")
        return value

    def name(self, field: str) -> str | None:
        value = self.fields.get(field)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(field, value)

    def label(self, field: str, value: Any) -> str | None:
        label = self.text(field, value)
        if label is not None and not (
            0 < len(label) <= LONGEST_LABEL and label.isprintable() and label == label.strip()
        ):
            self.fail(
                f"field {field!r} is {label!r:.60}; give a label of 1 to {LONGEST_LABEL} characters on one line, "
                "without blanks around it"
            )
        return label

    def mapping(self, field: str) -> Mapping[str, Any]:
        value = {} if self.fields.get(field) is None else self.fields[field]
        if not isinstance(value, Mapping):
            self.fail(f"field {field!r} is {type(value).__name__}; give an object with a value for each name")
        for name in value:
            if not is_unicode(name):
                self.fail(f"field {field!r} has the name {name!r:.60}, which is no text; write it anew")
        return value

    def number(self, field: str, value: Any) -> float | None:
        if value is not None and not (isinstance(value, int | float) and -LARGEST <= value <= LARGEST):
            self.fail(f"{field} is {value!r:.40}, not a finite number (at most {LARGEST:g})")
        return None if value is None else float(value)

    def ratings(self, name: str, given: Any) -> tuple[float | None, ...]:
        if not isinstance(given, list):
            self.fail(f"ratings.{name} is no list; give one rating for each rater, null where there is none")
        return tuple(self.number(f"ratings.{name}", value) for value in given)

    def raters(self, ratings: Mapping[str, Sequence[float | None]]) -> tuple[str | None, ...]:
        value = self.fields.get("raters")
        if value is None:
            return ()
        if not isinstance(value, list) or not all(
            name is None or (isinstance(name, str | int) and not isinstance(name, bool) and is_unicode(str(name)))
            for name in value
        ):
            self.fail(f"field 'raters' is no list of names: {value!r:.60}")
        for name, given in ratings.items():
            if len(given) != len(value):
                self.fail(
                    f"ratings.{name} has {len(given)} ratings and 'raters' {len(value)} names; give one name for each "
                    "rating"
                )
        return tuple(None if name is None else str(name) for name in value)


def _check_types(path: Path, judgements: Sequence[Judgement]) -> None:
    known = {name.casefold(): name for name in (*TYPES, *MS_MARCO_TYPES)}
    types: dict[str, str] = {}
    for judgement in judgements:
        if judgement.type is not None:
            types.setdefault(judgement.type, judgement.row.where)
    for kind, where in types.items():
        if (other := known.setdefault(kind.casefold(), kind)) != kind:
            raise InputError(
                f"{where}: field 'type' is {kind!r}, elsewhere it is {other!r}; write one of them throughout"
            )
    if len(types) > MOST_TYPES:
        raise InputError(
            f"{path}: field 'type' has {len(types):,} different labels; give at most {MOST_TYPES}, such as "
            f"{', '.join(TYPES)} or {', '.join(MS_MARCO_TYPES)}"
        )
