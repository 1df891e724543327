"""Files to read, from a seed: mutations of their structure, then damage of encoding, bytes and gzip."""

import gzip
import io
import random
import string
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow
import pyarrow.parquet
from documents import CONTEXT, Pairs, as_cell, as_json, mutate, odd_value, row, squad

ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "shift-jis")


def make(draw: random.Random) -> tuple[str, bytes]:
    """A file name, whose ending says the kind, and its content."""
    kind = draw.choices(("json", "jsonl", "parquet", "csv", "tsv", "txt"), weights=(5, 5, 3, 2, 2, 1))[0]
    stem = draw.choice(("x", "x", "x", "two.dots", "ä b", "-"))
    ending = kind.upper() if draw.random() < 0.05 else kind
    if kind == "parquet":
        return f"{stem}.{ending}", damaged(parquet(draw), draw, 0.2)
    data = encoded(TEXTS[kind](draw), draw)
    data = damaged(data, draw, 0.1)
    if draw.random() < 0.3:
        return f"{stem}.{ending}.gz", zipped(data, draw)
    return f"{stem}.{ending}", gzip.compress(data, mtime=0) if draw.random() < 0.01 else data


def times(draw: random.Random) -> int:
    """How many mutations: often one, sometimes none."""
    return draw.choice((0, 1, 1, 1, 1, 2, 6))


# --- texts


def json_text(draw: random.Random) -> str:
    tree: Any = squad(draw)
    for _ in range(times(draw)):
        tree = mutate(tree, draw)
    text = as_json(tree, draw, indent=draw.random() < 0.3)
    return joined(text, draw)


def json_lines(draw: random.Random) -> str:
    kind = draw.choice((0, 0, 1, 2))
    rows: list[Any] = [row(kind, draw) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.1:
        rows.append(row(draw.randrange(3), draw))
    for _ in range(times(draw)):
        at = draw.randrange(len(rows))
        rows[at] = mutate(rows[at], draw)
    end = draw.choices(("\n", "\r\n", "\n\n", "\r", "\u2028", ""), weights=(12, 4, 2, 1, 1, 1))[0]
    text = end.join(as_json(one, draw, indent=draw.random() < 0.05) for one in rows)
    return joined(text, draw)


def joined(text: str, draw: random.Random) -> str:
    """Now and then something before or after the JSON."""
    if draw.random() < 0.9:
        return text
    return (
        draw.choice(("\ufeff", "//", "[", "{}\n", " " * 9, "")) + text + draw.choice((",", "]", "{}", "\0", text, ""))
    )


def table(draw: random.Random, mark: str) -> str:
    """A table with a header: cells of records, some changed, some rows of another length."""
    header = draw.choice((["question", "context", "answer"], ["id", "question", "paragraph", "references"]))
    rows = [header, *([as_cell(cell(name, draw)) for name in header] for _ in range(draw.randint(0, 4)))]
    for _ in range(times(draw)):
        one = draw.choice(rows)
        change = draw.randrange(4)
        if change == 0 and one:
            one.pop(draw.randrange(len(one)))
        elif change == 1:
            one.append(as_cell(plain_odd(draw)))
        elif change == 2:
            one[:] = []
        elif one:
            one[draw.randrange(len(one))] = as_cell(plain_odd(draw))
    quote = mark == "," and draw.random() < 0.7
    lines = [mark.join(quoted(text) if quote else text for text in one) for one in rows]
    return draw.choice(("\n", "\n", "\r\n", "\r", "\n\n")).join(lines) + draw.choice(("\n", "", '"', "\n\n"))


def cell(name: str, draw: random.Random) -> Any:
    return {"question": "Who wrote?", "context": CONTEXT, "paragraph": CONTEXT, "answer": "Ada"}.get(name, "a")


def plain_odd(draw: random.Random) -> Any:
    """An odd value that a cell can hold."""
    value = odd_value(draw)
    return as_json(value, draw) if isinstance(value, Pairs | dict | list) else value


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def lines(draw: random.Random) -> str:
    words = ["Ada lived here.", "", " ", CONTEXT, "\u2028", "\0", "\x85", "\t", "# Title", "a" * 70_000]
    return draw.choice(("\n", "\r\n", "\r", "\n\n")).join(draw.choices(words, k=draw.randint(0, 6)))


TEXTS = {
    "json": json_text,
    "jsonl": json_lines,
    "csv": lambda draw: table(draw, ","),
    "tsv": lambda draw: table(draw, "\t"),
    "txt": lines,
}


# --- bytes


def encoded(text: str, draw: random.Random) -> bytes:
    """The text as bytes: mostly UTF-8."""
    if draw.random() < 0.9:
        return text.encode("utf-8", "surrogatepass")
    return text.encode(draw.choice(ENCODINGS), "replace")


def damaged(data: bytes, draw: random.Random, share: float) -> bytes:
    """In a share of the files: cut, or with bytes changed, inserted, left out or repeated."""
    if draw.random() >= share or not data:
        return data
    content = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(content) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            del content[at:]
        elif kind == 1:
            content[at : at + 1] = draw.randbytes(1)
        elif kind == 2:
            content[at:at] = draw.randbytes(draw.choice((1, 4, 100)))
        elif kind == 3:
            del content[at : at + draw.choice((1, 4, 100))]
        elif kind == 4:
            content[at:at] = content[at : at + 50]
        else:
            content[at:at] = draw.choice((b"\xff", b"\xef\xbb\xbf", b"\0", b"\xed\xa0\x80", b"\r", b'"', b"\\u12"))
    return bytes(content)


def zipped(data: bytes, draw: random.Random) -> bytes:
    """Gzip: mostly right; else of several layers or members, cut, damaged, or no gzip at all."""
    once = gzip.compress(data, mtime=0)
    if draw.random() < 0.75:
        return once
    return draw.choice(
        (
            lambda: gzip.compress(once, mtime=0),
            lambda: gzip.compress(data[:9], mtime=0) + gzip.compress(data[9:], mtime=0),
            lambda: once[: draw.randrange(len(once))],
            lambda: once + draw.randbytes(9),
            lambda: once + b"\0" * 100,
            lambda: damaged(once, draw, 1),
            lambda: data,
            lambda: b"",
        )
    )()


# --- Parquet


def parquet(draw: random.Random) -> bytes:
    """A table of right columns, of which some are of other types, missing or repeated."""
    count = draw.choice((0, 1, 2, 3, 5000))
    record = row(draw.choice((0, 0, 1, 2)), draw)
    names, columns = [], []
    for name, value in record.items():
        names.append(name)
        columns.append(column_of([value] * count, draw))
    for _ in range(times(draw)):
        change = draw.randrange(4)
        at = draw.randrange(len(names)) if names else 0
        if change == 0 and names:
            del names[at], columns[at]
        elif change == 1:
            names.append(draw.choice([*record, "", "a.b", "ä"]))
            columns.append(odd_column(count, draw))
        elif names:
            columns[at] = odd_column(count, draw)
    stream = io.BytesIO()
    options = {"compression": draw.choice(("none", "snappy", "gzip", "zstd")), "use_dictionary": draw.random() < 0.5}
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), stream, **options)
    return stream.getvalue()


def column_of(values: list[Any], draw: random.Random) -> pyarrow.Array:
    array = pyarrow.array(values)
    if pyarrow.types.is_string(array.type):
        kinds = (pyarrow.string(), pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
        return array.cast(draw.choice(kinds))
    return array


def odd_column(count: int, draw: random.Random) -> pyarrow.Array:
    """A column of a type that QA data do not have, or of texts that are none."""
    kind, value = draw.choice(ODD_COLUMNS)
    if callable(value):
        value = value(draw)
    values = [value if draw.random() < 0.8 else None for _ in range(count)]
    if kind == "invalid text":
        return pyarrow.array([b"\xff\xfe Ada"] * count, pyarrow.binary()).view(pyarrow.string())
    if kind == "dictionary":
        return pyarrow.array(values, pyarrow.string()).dictionary_encode()
    if kind == "ints as time":  # numbers that no Python date can hold
        return pyarrow.array([draw.choice((2**52, -(2**52)))] * count, pyarrow.int64()).view(value)
    return pyarrow.array(values, kind)


ZONES = ("UTC", "+07:30", "Nowhere/City", "", "Europe/Berlin")
ODD_COLUMNS: list[tuple[Any, Any]] = [
    ("invalid text", None),
    ("dictionary", "Ada"),
    *[("ints as time", pyarrow.timestamp(unit)) for unit in ("s", "ms", "us", "ns")],
    *[("ints as time", pyarrow.timestamp("us", tz=zone)) for zone in ZONES if zone],
    ("ints as time", pyarrow.duration("ns")),
    ("ints as time", pyarrow.duration("ms")),
    ("ints as time", pyarrow.date64()),
    (pyarrow.date32(), date(2020, 1, 2)),
    (pyarrow.date32(), lambda draw: draw.choice((2**31 - 1, -(2**31)))),
    (pyarrow.timestamp("ns"), 1_000_000_001),
    (pyarrow.timestamp("us", tz="Nowhere/City"), datetime(2020, 1, 2, tzinfo=UTC)),
    (pyarrow.time64("ns"), 86_399_999_999_999),
    (pyarrow.time64("us"), time(1, 2, 3)),
    (pyarrow.duration("us"), timedelta(days=1)),
    (pyarrow.decimal128(38, 2), Decimal("12.34")),
    (pyarrow.float64(), lambda draw: draw.choice((float("nan"), float("inf"), 3.0, 1e300))),
    (pyarrow.float16(), 1.5),
    (pyarrow.int64(), 2**62),
    (pyarrow.uint64(), 2**64 - 1),
    (pyarrow.bool_(), True),
    (pyarrow.binary(), b"\xff\0"),
    (pyarrow.binary(2), b"ab"),
    (pyarrow.null(), None),
    (pyarrow.string(), lambda draw: draw.choice(("", " ", "\0", "a" * 1000, string.printable))),
    (pyarrow.list_(pyarrow.string()), ["Ada", None]),
    (pyarrow.list_(pyarrow.list_(pyarrow.int8())), [[1], None]),
    (pyarrow.map_(pyarrow.string(), pyarrow.string()), [("text", "Ada"), ("text", "B")]),
    (pyarrow.struct([("text", pyarrow.list_(pyarrow.string()))]), {"text": ["Ada"]}),
    (pyarrow.struct([("text", pyarrow.string()), ("answer_start", pyarrow.float64())]), {"text": "Ada"}),
    (pyarrow.list_(pyarrow.struct([("text", pyarrow.string()), ("answer_start", pyarrow.int32())])),
     [{"text": "Ada", "answer_start": None}, None]),
]  # fmt: skip
