"""The numbers that pages claim stand in stored results: `python -m tests.docs.claims`, part of `make check`.

A comment before a table or a paragraph names, in their order, the results that its numbers come from (the form:
CONTRIBUTING.md, "Numbers"). It is an error if a number differs from its result, if a name leads nowhere, and if a
number of README.md has no reference. Tables of experiments without one are counted; they may only become fewer.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from tests.docs.markdown import FENCE, PAGES, ROOT

WITHOUT_REFERENCE = 11  # tables of experiments
GIVEN = "given"  # in the place of a name: this number is no result

BLOCK = re.compile(r"<!--(?P<comment>.*?)-->|(?P<text>\S(?:(?!\n\s*\n|<!--).)*)", re.DOTALL)
NOT_READ = re.compile(r"`[^`]*`|(?<=\])\([^)\s]*\)")  # code, and the addresses of links
SIGN = r"(?:(?<![^\s\[(|*>])[+-])?"
# Not the digits of a name (BLEU-4, F1), nor of a version (1.2.3).
NUMBER = rf"{SIGN}(?<![\w.])(?<![A-Za-z]-)(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?|\.\d+)(?:e-?\d+)?(?!\d|\.\d)"
WRITTEN = re.compile(rf"(?P<p>\bp\s)?(?P<below><\s)?(?P<digits>{NUMBER})")
INTERVAL = re.compile(rf"\[({NUMBER}),\s+({NUMBER})\]")
NAME = re.compile(r"(?:(?P<function>\w+)\((?P<inside>.+)\)|(?P<path>.+?))(?: x(?P<scale>[\d.e-]+))?")
FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "min": min,
    "max": max,
    "mean": lambda values: sum(values) / len(values),
    "count": len,
}


class Unsupported(Exception):
    """A claim without its result; the message says which."""


@dataclass(frozen=True)
class Number:
    """A number as it is written: `kind` is value, bound (of an interval) or p."""

    digits: str
    kind: str
    below: bool

    def agrees(self, value: Any, scale: Decimal) -> bool:
        """Whether the value, times the scale and rounded to the digits shown, is this number."""
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            return False
        shown, exact = Decimal(self.digits.replace(",", "")), value * scale
        if self.below:
            return exact < shown
        return abs(shown - exact) <= Decimal(5).scaleb(int(shown.as_tuple().exponent) - 1)


def numbers(text: str) -> list[Number]:
    """The numbers of a text, in their order."""
    text = NOT_READ.sub("", text)
    bounds = {match.start(end) for match in INTERVAL.finditer(text) for end in (1, 2)}
    found = []
    for match in WRITTEN.finditer(text):
        kind = "p" if match["p"] else "bound" if match.start("digits") in bounds else "value"
        found.append(Number(match["digits"], kind, match["below"] is not None))
    return found


@cache
def stored(file: Path) -> Any:
    """The content of a file of results; JSON lines are a list."""
    text = file.read_text(encoding="utf-8")
    texts = text.splitlines() if file.suffix == ".jsonl" else [text]
    values = [json.loads(one, parse_float=Decimal) for one in texts]
    return values if file.suffix == ".jsonl" else values[0]


@dataclass(frozen=True)
class Source:
    """Where the names of a comment begin: a folder, and what stands before each name."""

    folder: Path
    prefix: str

    def lookup(self, name: str) -> Any:
        """What a name leads to, before its scale: a path, a function of all values of a path, or two paths."""
        parts = parse(name)
        path = parts["inside"] or parts["path"]
        if operation := re.fullmatch(r"(.+) (minus|divided by) (.+)", path):
            left, right = (Decimal(middle(self.lookup(side))) for side in operation.group(1, 3))
            return left - right if operation[2] == "minus" else left / right
        values = self.follow(path)
        if parts["function"]:
            return FUNCTIONS[parts["function"]]([middle(value) for value in values])
        if len(values) != 1:
            raise Unsupported(f"{path} leads to {len(values)} values")
        return values[0]

    def follow(self, path: str) -> list[Any]:
        """All values at the end of a path: folders, a file, its keys."""
        steps = f"{self.prefix}/{path}".strip("/").split("/")
        file = self.folder
        while steps and not file.is_file():
            file = file / steps.pop(0)
        if not file.is_file() or not file.resolve().is_relative_to(ROOT):
            raise Unsupported(f"no file of results in {self.prefix}/{path}")
        values = [stored(file)]
        for step in steps:
            values = [inner for value in values for inner in take(value, step)]
            if not values:
                raise Unsupported(f"no {step} in {self.prefix}/{path}")
        return values


def parse(name: str) -> re.Match[str]:
    parts = NAME.fullmatch(name)
    if parts is None or parts["function"] not in (None, *FUNCTIONS):
        raise Unsupported(f"'{name}' is no name of a result")
    return parts


def take(value: Any, step: str) -> list[Any]:
    """One step: a key, `*` for all; of a list an index, `key=value` for the entries that have it, or a key of each."""
    if isinstance(value, list):
        if step.isdigit():
            return value[int(step) : int(step) + 1]
        return [inner for entry in value for inner in take(entry, step)]
    if not isinstance(value, dict):
        return []
    key, equals, wanted = step.partition("=")
    if equals:
        return [value] if str(value.get(key)) == wanted else []
    return list(value.values()) if step == "*" else [value[step]] if step in value else []


def middle(value: Any) -> Any:
    """The value of an estimate (`mean` or `value`, with `low` and `high`); else what is given."""
    return next((value[key] for key in ("mean", "value") if key in value), value) if isinstance(value, dict) else value


def compare(shown: Sequence[Number], names: Sequence[str], source: Source) -> Iterator[str]:
    """What is wrong with numbers that should be those of the names, in their order.

    An estimate (a dictionary, or a list of value, low, high) supports its value and, where they are shown, interval
    and p-value; another list all its numbers; `given` one number that is no result.
    """
    left = list(shown)
    for name in names:
        try:
            expected = [None] if name == GIVEN else results(source.lookup(name), left)
        except Unsupported as missing:
            yield str(missing)
            return
        for result in expected:
            if not left:
                yield f"no number for {name}"
                return
            number = left.pop(0)
            scale = Decimal("1" if name == GIVEN or number.kind == "p" else parse(name)["scale"] or "1")
            if name != GIVEN and not number.agrees(result, scale):
                yield f"{number.digits} is {result}, times {scale}, in {name}"
    if left:
        yield f"no reference for {', '.join(number.digits for number in left)}"


def results(value: Any, shown: Sequence[Number]) -> list[Any]:
    """The numbers that a stored value gives to the numbers that are shown."""
    if isinstance(value, dict):
        estimate = [middle(value), value.get("low"), value.get("high"), value.get("p_holm", value.get("p"))]
    elif isinstance(value, list) and len(value) == 3:
        estimate = value
    else:
        return value if isinstance(value, list) else [value]
    interval = [number.kind for number in shown[1:3]] == ["bound", "bound"]
    p = interval and [number.kind for number in shown[3:4]] == ["p"]
    return estimate[: 1 + 2 * interval + p]


def split(text: str, separator: str) -> list[str]:
    return [part.strip() for part in text.split(separator)]


def check_table(lines: list[str], rows: list[str], source: Source, labels_too: bool) -> Iterator[str]:
    """What is wrong in a table. `rows` are the lines of its comment: one for each of its rows, after the others."""
    options = {row.partition(":")[0]: row.partition(":")[2] for row in rows if row.startswith(("columns:", "labels:"))}
    rows = rows[len(options) :]
    header, *body = [split(line.strip().strip("|"), "|") for line in (lines[0], *lines[2:])]
    if labels_too or "labels" in options:
        labels = numbers(" | ".join([*header, *(row[0] for row in body)]))
        yield from compare(labels, split(options["labels"], ";") if "labels" in options else [], source)
    if len(rows) != len(body):
        yield f"the table has {len(body)} rows, its comment {len(rows)}"
        return
    for row, line in zip(body, rows, strict=True):
        names = split(line, "|")
        if len(names) == 1 and "columns" in options:
            names = [in_row(line, name) for name in split(options["columns"], "|")]
        if len(names) != len(row) - 1:
            yield f"row {row[0]}: {len(row) - 1} cells, but {len(names)} references"
            continue
        for cell, name in zip(row[1:], names, strict=True):
            if name != GIVEN and (numbers(cell) or (name and not any_missing(name, source))):
                yield from (f"row {row[0]}: {wrong}" for wrong in compare(numbers(cell), split(name, ";"), source))


def any_missing(names: str, source: Source) -> bool:
    """Whether one of the names of a cell leads nowhere: then the cell may be empty."""
    try:
        return not [source.lookup(name) for name in split(names, ";") if name != GIVEN]
    except Unsupported:
        return True


def in_row(row: str, names: str) -> str:
    """The names of a cell: those of its column, put at `{}` of its row or at the row's end."""

    def put(match: re.Match[str]) -> str:
        return row.replace("{}", match[0]) if "{}" in row else f"{row}/{match[0]}"

    return ";".join(
        name if name == GIVEN else re.sub(r"^.*?(?= x[\d.e-]+$|$)", put, name) for name in split(names, ";")
    )


def check_page(page: Path, every_number: bool = False) -> tuple[list[str], int]:
    """What is wrong on a page, and how many of its tables with numbers have no reference.

    With `every_number` a number without a reference is wrong.
    """
    text = FENCE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))
    wrong, without, comment = [], 0, ""
    for block in BLOCK.finditer(text):
        if block["comment"] is not None:
            comment = block["comment"].strip()
            continue
        lines, found = block["text"].splitlines(), iter(())
        is_table = lines[0].startswith("|")
        prefix, *rows = split(comment.removeprefix("numbers:"), "\n")
        source = Source(page.parent, prefix)
        if not comment.startswith("numbers:"):
            if every_number:
                found = compare(numbers(block["text"]), [], source)
            without += is_table and any(numbers(line.split("|", 2)[2]) for line in lines[2:])
        elif prefix != GIVEN and is_table:
            found = check_table(lines, rows, source, every_number)
        elif prefix != GIVEN:
            names = [name for row in rows for name in split(row.strip(";"), ";")]
            found = compare(numbers(block["text"]), names, source)
        line = text.count("\n", 0, block.start()) + 1
        wrong += [
            f"{page.name if page.parent == ROOT else page.relative_to(ROOT)}, line {line}: {why}" for why in found
        ]
        comment = ""
    return wrong, without


def check(pages: Sequence[Path] = PAGES, limit: int = WITHOUT_REFERENCE) -> list[str]:
    """What is wrong in the pages; `limit` tables of experiments have no reference."""
    checked = {page: check_page(page, every_number=page == ROOT / "README.md") for page in pages}
    wrong = [why for of_page, _ in checked.values() for why in of_page]
    without = sum(tables for page, (_, tables) in checked.items() if ROOT / "experiments" in page.parents)
    if without != limit:
        wrong.append(
            f"{without} tables of experiments have no reference to a result, WITHOUT_REFERENCE says {limit}: "
            + ("name their results" if without > limit else "set it to the lower number")
        )
    return wrong


if __name__ == "__main__":
    if failures := check():
        sys.exit("\n".join(failures))
    print(f"The numbers of the pages are those of the results; {WITHOUT_REFERENCE} tables have no reference.")
