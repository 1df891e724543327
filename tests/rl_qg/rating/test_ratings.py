"""Reading ratings."""

import csv
import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_qg.rating.analysis.ratings import RatedItems, Scale, read_ratings
from rl_qg.runtime.errors import InputError
from tests.rl_qg.rating.rating_rows import columns, rating

ROWS = [
    rating("r1", 1, 80, system="a|b"),
    rating("r1", 1, 30, system="a|b", criterion="d"),
    rating("r1", 2, 70, "repeat", original=1, last_ms=2500, changes=3),
    rating("r1", 3, 10, "degraded", original=1),
    rating("r2", 1, 55, system="a|b"),
    rating("r2", 2, 0, hit="h2", state="open"),
    rating("r3", 1, 1, state="expired"),
]

SAME = {name: ROWS[0][name] for name in ("kind", "systems")}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="") as stream:
        if ".csv" in path.name:
            names = list(dict.fromkeys(name for row in rows for name in row))
            table = csv.DictWriter(stream, names, lineterminator="\n")
            table.writeheader()
            table.writerows({**row, "systems": "|".join(row["systems"])} for row in rows)
        else:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def plain(rated: RatedItems) -> list[tuple[Any, ...]]:
    names = [rated.raters[at] for at in rated.rater]
    return [
        (name, rated.tasks[task], int(position), int(kind), systems, values.tolist(), int(original))
        for name, task, position, kind, systems, values, original in zip(
            names, rated.task, rated.position, rated.kind, rated.systems, np.nan_to_num(rated.values, nan=-1),
            rated.original, strict=True
        )
    ]  # fmt: skip


def test_items_are_rows_and_criteria_columns() -> None:
    rated = columns(ROWS)
    assert rated.criteria == ("c", "d") and rated.raters == ("r1", "r2")
    assert plain(rated) == [
        ("r1", "h1-r1", 1, 0, ("a", "b"), [80, 30], -1),
        ("r1", "h1-r1", 2, 1, ("a",), [70, -1], 0),
        ("r1", "h1-r1", 3, 2, ("a",), [10, -1], 0),
        ("r2", "h1-r2", 1, 0, ("a", "b"), [55, -1], -1),
    ]
    assert rated.seconds[1] == 2.5 and np.isnan(rated.seconds[0]) and rated.changes[1] == 3
    assert rated.left_out == {"in tasks that are open": 1, "in tasks that are expired": 1}
    assert rated.question.tolist() == [0, 1, 2, 0]  # both raters saw position 1 of h1


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r.csv", "r.csv.gz"])
def test_all_formats_and_any_order_give_the_same(tmp_path: Path, name: str) -> None:
    shuffled = random.Random(3).sample(ROWS, len(ROWS))
    rated = read_ratings(written(tmp_path / name, shuffled), {})
    assert plain(rated) == plain(columns(ROWS)) and rated.question.tolist() == [0, 1, 2, 0]


def test_open_tasks_count_by_option_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", ROWS)
    assert read_ratings(path, {}).ratings == 5
    assert read_ratings(path, {}, with_open=True).ratings == 6


def test_reversed_criteria_are_turned_once() -> None:
    rated = columns([rating("r1", 1, 2)], c=Scale(1, 5, True))
    assert rated.values.tolist() == [[4]]
    assert rated.kept(np.array([True])).values.tolist() == [[4]]


def test_rows_kept_lead_to_their_originals() -> None:
    rated = columns([rating("r0", 1, 5), *ROWS]).of_raters(["r1"])
    assert rated.raters == ("r1",) and rated.original.tolist() == [-1, 0, 0] and rated.tasks == ("h1-r1",)
    without = rated.kept(np.array([False, True, True]))
    assert without.original.tolist() == [-1, -1]


def test_a_file_from_elsewhere_needs_no_positions() -> None:
    """The second value of a criterion for the same system is another question of it."""
    fields = ("rater", "criterion", "value", "kind")
    rows = [{**{name: rating("r", 0, value)[name] for name in fields}, "system": "a"} for value in (1, 2)]
    rated = columns([*rows, {**rows[0], "criterion": "d"}, {**rows[0], "system": "b"}])
    assert np.nan_to_num(rated.values, nan=-1).tolist() == [[1, 1], [2, -1], [1, -1]]
    assert len({*rated.question.tolist()}) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"value": "much"}, "line 2: field 'value' is 'much'; give a number"),
        ({"value": float("nan")}, "field 'value' is nan"),
        ({"value": True}, "field 'value' is True"),
        ({"value": 101}, "field 'value' is 101; 'c' goes from 0 to 100"),
        ({"kind": "good"}, "field 'kind' is 'good'; it is one of ordinary, repeat, degraded, reference"),
        ({"rater": None}, "field 'rater' is missing or empty"),
        ({"criterion": ""}, "field 'criterion' is missing or empty"),
        ({"systems": []}, "field 'systems' is []"),
        ({"position": 1.5}, "field 'position' is 1.5; give a whole number"),
        ({"state": "lost"}, "field 'state' is 'lost'"),
        ({"position": 1, **SAME}, "two values of 'c' for position 1 of h1-r1"),
        ({"position": 1, **SAME, "systems": ["a"]}, "line 2: r1 has two questions at one position of h1-r1"),
        ({"rater": "r9"}, "field 'assignment' is 'h1-r1', of rater 'r9' here and 'r1' elsewhere"),
    ],
)
def test_what_cannot_be_used_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        columns([ROWS[0], {**ROWS[2], **change}], c=Scale())
    assert said in str(error.value) and str(error.value).startswith("line 2: ") and "\n" not in str(error.value)


def test_a_file_without_a_rating_that_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", [ROWS[6]])
    with pytest.raises(InputError, match=r"no rating that counts \(1 in tasks that are expired"):
        read_ratings(path, {})
    with pytest.raises(InputError, match="no such file"):
        read_ratings(tmp_path / "nothing.jsonl", {})
