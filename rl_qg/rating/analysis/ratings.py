"""Ratings as columns: an export folder (`rl-qg rate export`), or a file of ratings from elsewhere.

A file has one rating a line (`.jsonl`, `.csv`, `.tsv`, `.parquet`, also as `.gz`): `rater`, `criterion`, `value`,
`kind`, and `systems` or `system`; where known `assignment`, `hit`, `position`, `original`, `item`, `passage`, `state`,
`last_ms` and `changes`. Here they become one row for each item that a rater saw, with a column for each criterion.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.judging.judgements import judgement_records
from rl_qg.rating.protocol import DEGRADED, KINDS, ORDINARY, REPEAT
from rl_qg.runtime.errors import InputError
from rl_qg.stats.intervals import Floats, Ints

Located = Iterable[tuple[str, Mapping[str, Any]]]  # position for messages, and a rating
COUNTED = ("submitted", "surplus")  # states of an assignment whose ratings count
STATES = (*COUNTED, "open", "expired", "returned")
NO_ORIGINAL = -1
_INDEXED = {"raters": "rater", "tasks": "task", "hits": "hit", "items": "item", "passages": "passage"}


@dataclass(frozen=True)
class Scale:
    """The values of a criterion."""

    lowest: float = 0.0
    highest: float = 100.0
    reversed: bool = False  # a high value is bad; turned when it is read


@dataclass(frozen=True)
class RatedItems:
    """Items as raters saw them: n rows by task and position, each with a value for each of c criteria. `rater`,
    `task`, `hit`, `item` and `passage` index the names; a task is what one rater did of one HIT.
    """

    criteria: tuple[str, ...]
    raters: tuple[str, ...]
    tasks: tuple[str, ...]
    hits: tuple[str, ...]
    items: tuple[str, ...]
    passages: tuple[str, ...]
    rater: Ints
    task: Ints
    hit: Ints
    item: Ints
    passage: Ints
    question: Ints  # a number of the item, the same for all raters who saw it, (n,)
    kind: Ints  # indices of `KINDS`, (n,)
    position: Ints  # in the order shown, (n,)
    original: Ints  # the row of the ordinary item of a repeat or degraded one, else -1, (n,)
    systems: tuple[tuple[str, ...], ...]  # who asked the question, (n,)
    values: Floats  # (n, c), higher for better: reversed criteria are turned; NaN: not rated
    seconds: Floats  # from first sight of the item to its last change, (n,), NaN: unknown
    changes: Floats  # how often the values of an item were set, (n,), NaN: unknown
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rater)

    def is_kind(self, kind: str) -> NDArray[np.bool_]:
        return np.asarray(self.kind == KINDS.index(kind))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether there is a value, (n, c)."""
        return ~np.isnan(self.values)

    @property
    def ratings(self) -> int:
        return int(self.known.sum())

    def is_of(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Whether a row is of one of these raters, (n,)."""
        wanted = {*names}
        return np.array([name in wanted for name in self.raters], dtype=bool)[self.rater]

    def kept(self, rows: NDArray[np.bool_]) -> "RatedItems":
        """Those rows; names of raters, tasks and so on that no row has any more are gone too."""
        place = np.where(rows, np.cumsum(rows) - 1, NO_ORIGINAL)
        original = np.where(self.original == NO_ORIGINAL, NO_ORIGINAL, place[self.original])[rows]
        columns: dict[str, Any] = {"original": original}
        for names, index in _INDEXED.items():
            left, place = np.unique(getattr(self, index)[rows], return_inverse=True)
            columns[names] = tuple(getattr(self, names)[at] for at in left)
            columns[index] = place.reshape(-1).astype(np.int64)
        for name in ("question", "kind", "position", "values", "seconds", "changes"):
            columns[name] = getattr(self, name)[rows]
        columns["systems"] = tuple(one for one, there in zip(self.systems, rows, strict=True) if there)
        return replace(self, **columns)

    def of_raters(self, names: Iterable[str]) -> "RatedItems":
        return self.kept(self.is_of(names))


def read_ratings(
    path: Path, scales: Mapping[str, Scale], *, with_open: bool = False, key: str = "ratings"
) -> RatedItems:
    """The ratings of a file, which the setting `key` names; `with_open`: tasks that nobody submitted yet count too.

    `scales` are those of the criteria, in the order of columns; values of others are taken as they are.
    """
    if not path.is_file():
        raise InputError(f"{key}={path}: no such file; give the folder of `rl-qg rate export`, or a file of ratings")
    rated = rated_items(judgement_records(path, {}), scales, with_open=with_open)
    if not rated.ratings:
        why = ", ".join(f"{count:,} {reason}" for reason, count in rated.left_out.items())
        raise InputError(f"{path}: holds no rating that counts{f' ({why})' if why else ''}; check the file")
    return rated


def rated_items(records: Located, scales: Mapping[str, Scale], *, with_open: bool = False) -> RatedItems:
    """Ratings as rows of items; `records` are (position for messages, rating) in any order."""
    counted = (*COUNTED, "open") if with_open else COUNTED
    left_out: Counter[str] = Counter()
    items: dict[tuple[Any, ...], dict[str, Any]] = {}
    occurrences: Counter[tuple[Any, ...]] = Counter()
    owners: dict[str, str] = {}
    for where, record in records:
        state = _text(where, record, "state") or COUNTED[0]
        if state not in STATES:
            raise InputError(f"{where}: field 'state' is {state!r}; it is one of {', '.join(STATES)}")
        if state not in counted:
            left_out[f"in tasks that are {state}"] += 1
            continue
        item, criterion = _item(where, record), _required(where, record, "criterion")
        rater, task = item["rater"], item["task"]
        if owners.setdefault(task, rater) != rater:
            raise InputError(
                f"{where}: field 'assignment' is {task!r}, of rater {rater!r} here and {owners[task]!r} elsewhere; an "
                "assignment is what one rater did of one task"
            )
        key: tuple[Any, ...] = (rater, task, item["position"])
        if item["position"] is None:  # the second value of a criterion begins another item
            key = (rater, task, *item["question"])
            occurrences[*key, criterion] += 1
            key = (*key, occurrences[*key, criterion])
        value = _number(where, record, "value")
        if value is None:
            left_out["without a value"] += 1
        elif scale := scales.get(criterion):
            if not scale.lowest <= value <= scale.highest:
                ends = f"{criterion!r} goes from {scale.lowest:g} to {scale.highest:g}"
                raise InputError(f"{where}: field 'value' is {value:g}; {ends}")
            value = scale.lowest + scale.highest - value if scale.reversed else value
        asked, item = item["question"], items.setdefault(key, item)
        if item["question"] != asked:
            raise InputError(f"{where}: {rater} has two questions at one position of {task}; number them anew")
        if criterion in item["values"]:
            raise InputError(
                f"{where}: {rater} has two values of {criterion!r} for position {item['position']} of {task}; give "
                "each rating once"
            )
        item["values"][criterion] = np.nan if value is None else value
        if (last := _number(where, record, "last_ms")) is not None:
            item["seconds"] = float(np.fmax(item["seconds"], last / 1000))
        if (changes := _number(where, record, "changes")) is not None:
            item["changes"] = float(np.nansum([item["changes"], changes]))
    return _columns([*items.values()], scales, dict(left_out))


def _item(where: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """One item that a rater saw, without what the rater gave it; `question` is the same for all who saw it."""
    rater, kind = _required(where, record, "rater"), _required(where, record, "kind")
    if kind not in KINDS:
        raise InputError(f"{where}: field 'kind' is {kind!r}; it is one of {', '.join(KINDS)}")
    hit = _text(where, record, "hit")
    task = _text(where, record, "assignment") or (f"{rater} {hit}" if hit else rater)
    item, passage, systems = _text(where, record, "item"), _text(where, record, "passage"), _systems(where, record)
    position, place = _whole(where, record, "position"), passage or hit or task
    if position is not None and hit:
        place = f"{hit} {position}"
    return {
        **{"rater": rater, "task": task, "hit": hit or task, "item": item or passage or hit or task},
        **{"passage": passage or item or hit or task, "kind": kind, "systems": systems},
        **{"position": position, "original": _whole(where, record, "original")},
        # Without the name of the item that it is about, all raters of a HIT have a question at the same position.
        "question": (hit or "", kind, tuple(sorted(systems)), item or place),
        **{"values": {}, "seconds": np.nan, "changes": np.nan},
    }


def _text(where: str, record: Mapping[str, Any], name: str) -> str | None:
    value = record.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise InputError(f"{where}: field {name!r} is {value!r:.40}; give a text")


def _required(where: str, record: Mapping[str, Any], name: str) -> str:
    value = _text(where, record, name)
    if value is None:
        raise InputError(f"{where}: field {name!r} is missing or empty; every rating needs it")
    return value


def _systems(where: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    value = record["systems"] if record.get("systems") is not None else record.get("system")
    names = value.split("|") if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{where}: field 'systems' is {value!r:.40}; name who asked, one or several (a|b in a table)")
    return tuple(dict.fromkeys(names))


def _number(where: str, record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    if value is None or value == "":
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else np.nan
    except (ValueError, OverflowError):
        number = np.nan
    if not np.isfinite(number) or abs(number) > 1e15:
        raise InputError(f"{where}: field {name!r} is {value!r:.40}; give a number")
    return number


def _whole(where: str, record: Mapping[str, Any], name: str) -> int | None:
    number = _number(where, record, name)
    if number is None:
        return None
    if not number.is_integer():
        raise InputError(f"{where}: field {name!r} is {number:g}; give a whole number")
    return int(number)


def _columns(
    items: Sequence[Mapping[str, Any]], scales: Mapping[str, Scale], left_out: Mapping[str, int]
) -> RatedItems:
    """Rows by task and position; tasks in the order of their names, so that the order of lines says nothing."""
    rows = sorted(items, key=lambda row: (row["rater"], row["task"], row["position"] or 0))
    seen = dict.fromkeys(name for row in rows for name in row["values"])
    criteria = (*(name for name in scales if name in seen), *sorted(name for name in seen if name not in scales))
    values = [[row["values"].get(name, np.nan) for name in criteria] for row in rows]
    columns: dict[str, Any] = {}
    for names, index in _INDEXED.items():
        columns[names], columns[index] = _numbered([row[index] for row in rows])
    times, counts = Counter[Any](), []  # that a rater has seen a question of this kind, system and item
    for row in rows:
        times[row["task"], row["question"]] += 1
        counts.append(times[row["task"], row["question"]])
    # Several of one task are told apart by their positions: a rater may lack one of them.
    several = {question for (_, question), count in times.items() if count > 1 and question[0]}
    questions = [
        (*row["question"], row["position"] if row["question"] in several and row["position"] is not None else count)
        for row, count in zip(rows, counts, strict=True)
    ]
    # The row of the ordinary item of each repeat and degraded one, if the task has one at that position.
    ordinary = {
        (row["rater"], row["task"], row["position"]): number
        for number, row in enumerate(rows)
        if row["kind"] == ORDINARY and row["position"] is not None
    }
    originals = [
        ordinary.get((row["rater"], row["task"], row["original"]), NO_ORIGINAL)
        if row["kind"] in (REPEAT, DEGRADED)
        else NO_ORIGINAL
        for row in rows
    ]
    return RatedItems(
        criteria=criteria,
        question=_numbered(questions)[1],
        kind=np.array([KINDS.index(row["kind"]) for row in rows], dtype=np.int64),
        position=np.array([row["position"] or 0 for row in rows], dtype=np.int64),
        original=np.array(originals, dtype=np.int64),
        systems=tuple(row["systems"] for row in rows),
        values=np.array(values, dtype=np.float64).reshape(len(rows), len(criteria)),
        seconds=np.array([row["seconds"] for row in rows], dtype=np.float64),
        changes=np.array([row["changes"] for row in rows], dtype=np.float64),
        left_out=left_out,
        **columns,
    )


def _numbered(given: Sequence[Any]) -> tuple[tuple[Any, ...], Ints]:
    """What is there, in order, and the number in it of each that is given."""
    known = {one: number for number, one in enumerate(dict.fromkeys(given))}
    return tuple(known), np.array([known[one] for one in given], dtype=np.int64)
