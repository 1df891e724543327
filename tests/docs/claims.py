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

WITHOUT_REFERENCE = 8
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
    return json.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)


@dataclass(frozen=True)
class Source:
    """Where the names of a comment begin: a folder, and what stands before each name."""

    folder: Path
    prefix: str

    def lookup(self, name: str) -> Any:
        """What a name leads to, before its scale: a path, a function of all values of a path, or two paths."""
        parts = parse(name)
        path = parts["inside"] or parts["path"]
        try:
            if operation := re.fullmatch(r"(.+) (minus|divided by) (.+)", path):
                left, right = (Decimal(middle(self.lookup(side))) for side in operation.group(1, 3))
                return left - right if operation[2] == "minus" else left / right
            values = self.follow(path)
            if parts["function"]:
                return FUNCTIONS[parts["function"]]([middle(value) for value in values])
        except (ArithmeticError, TypeError) as problem:
            raise Unsupported(f"{name} cannot be computed") from problem
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
            if values in ([], [None]):
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
            if shown:  # else an empty cell where there is no result
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
            if name != GIVEN:
                yield from (f"row {row[0]}: {wrong}" for wrong in compare(numbers(cell), split(name, ";"), source))


def in_row(row: str, names: str) -> str:
    """The names of a cell: those of its column, put at `{}` of its row or at the row's end."""
    cell = []
    for name in split(names, ";"):
        path, scale = re.findall(r"^(.*?)( x[\d.e-]+)?$", name)[0]
        path = path if path == GIVEN else row.replace("{}", path) if "{}" in row else f"{row}/{path}"
        cell.append(path + scale)
    return ";".join(cell)


def blocks(page: Path) -> Iterator[tuple[int, str, str | None]]:
    """The tables and paragraphs of a page: line, text, and the reference before it (after `numbers:`)."""
    text = FENCE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))
    reference = None
    for block in BLOCK.finditer(text):
        if block["text"]:
            yield text.count("\n", 0, block.start()) + 1, block["text"], reference
            reference = None
        elif block["comment"].strip().startswith("numbers:"):
            reference = block["comment"].strip().removeprefix("numbers:")


def check_block(text: str, reference: str | None, folder: Path, every_number: bool) -> Iterator[str]:
    """What is wrong in a table or paragraph; with `every_number`, a number without a reference is."""
    prefix, *rows = split(reference or "", "\n")
    source = Source(folder, prefix)
    if reference is None:
        yield from compare(numbers(text) if every_number else [], [], source)
    elif prefix != GIVEN and text.startswith("|"):
        yield from check_table(text.splitlines(), rows, source, every_number)
    elif prefix != GIVEN:
        yield from compare(numbers(text), split(";".join(row.strip(";") for row in rows), ";"), source)


def check(pages: Sequence[Path] = PAGES, limit: int = WITHOUT_REFERENCE) -> list[str]:
    """What is wrong in the pages, of which `limit` tables of experiments are known to have no reference."""
    wrong, without = [], 0
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        for line, text, reference in blocks(page):
            found = check_block(text, reference, page.parent, every_number=name == "README.md")
            wrong += [f"{name}, line {line}: {why}" for why in found]
            if reference is None and text.startswith("|") and name.startswith("experiments/"):
                without += any(numbers(row.split("|", 2)[2]) for row in text.splitlines()[2:])
    if without > limit:
        wrong.append(f"{without} tables of experiments have no reference, {limit} were known: name their results")
    if without < limit:
        wrong.append(f"{without} tables of experiments have no reference: lower WITHOUT_REFERENCE to that")
    return wrong


if __name__ == "__main__":
    if failures := check():
        sys.exit("\n".join(failures))
    print(f"The numbers of the pages are those of the results; {WITHOUT_REFERENCE} tables have no reference.")
