"""What commands have written, as fields of texts that can be compared: without what differs from run to run."""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

Fields = Mapping[str, Sequence[str]]
"""The values of each field of a file, in order: `scores[].value` of JSON, a column, or `line` of other texts."""

# Fields of JSON and columns that say when, where or by which version something was made, and digests of numbers to the
# last bit.
LEFT_OUT = re.compile(
    r"started|finished|created|(.*_)?seconds(_.*)?|.*_per_second|.*_runtime|first_ms|last_ms|trainer_state\.json"
    r"|commit|dirty|code|versions|hardware|arithmetic|digest"
)
# Estimates of the mixed model of ratings, which a search finds up to its tolerance.
_BY_SEARCH, DIGITS_BY_SEARCH = "mixed", 4
# Times and versions in texts. What a library says of itself changes with its version.
_NOISE = (
    (re.compile(r"\b20\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?)?"), "DATE"),
    (re.compile(r"\b(sacrebleu|version):\d[\w.+]*"), r"\1:VERSION"),
    (re.compile(r"cannot be loaded \(.*?\.?\)(?=[:;,.)\s])"), "cannot be loaded"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r'(?<=name="csrf" value=")\w+'), "SECRET"),
    (re.compile(r"(?<=\| made with \| )[^|]*"), "VERSIONS "),
    (re.compile(r'(?<=id="code">)\w+'), "CODE"),
    (re.compile(r"[\d.]+(?= USD an hour at that median)"), "PAY"),
    (re.compile(r"(?<=\.round_trip-)[0-9a-f]{8}"), "READER"),
    (re.compile(r"data:image/png;base64,[\w+/=]+"), "IMAGE"),
)
# Times that are drawn, commits, progress, and miniatures that need not be trained again.
_CUT = re.compile(
    r"<h3>Time</h3>.*?</svg>| · commit \w+( with uncommitted changes)?|^pretraining [^\n]* kept in [^\n]*\n"
    r"|<tr><td>code\.\w+</td>.*?</tr>|^[^\n]* elapsed[, ][^\n]*\n",
    re.DOTALL | re.MULTILINE,
)
_LONG_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d{5,}(e[-+]?\d+)?")
_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.+-]+')
_BINARY = (".png", ".pt", ".pth", ".bin", ".db", ".npz")  # only that they are there


def read_folder(folder: Path, home: Path, tree: Path, digits: int) -> dict[str, Fields]:
    """The files of all cases in `folder`, by `CASE/PATH`.

    Args:
        folder: that of the cases.
        home: of the user who ran them.
        tree: the version of the package that ran.
        digits: significant ones of numbers with a fraction. Sums may differ in the last bits between processors.
    """
    words = {str(home): "HOME", str(folder): "FOLDER", str(tree): "TREE"}
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (
            path.is_file()
            and not path.is_relative_to(home)
            and "/in/" not in name
            and "tfevents" not in name
            and path.suffix != ".log"
        ):
            files[name] = _read(path, words, digits)
    return files


def _read(path: Path, words: Mapping[str, str], digits: int) -> Fields:
    if path.suffix == ".safetensors":
        return _tensors(path.read_bytes())
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return _flat(pyarrow.parquet.read_table(path).to_pylist(), digits)
    if path.suffix in _BINARY:
        return {"file": ["is there"]}
    return read_text(path.read_text(encoding="utf-8"), path.name, words, digits)


def read_text(text: str, name: str, words: Mapping[str, str] | None = None, digits: int = 12) -> Fields:
    """The fields of a text file of that name; `words`: what stands for parts of it."""
    suffix = Path(name).suffix
    if _BY_SEARCH in name:
        digits = DIGITS_BY_SEARCH
    for part, word in (words or {}).items():
        text = text.replace(part, word)
    text = _CUT.sub("", text)
    try:
        if suffix == ".json":
            return {"form": [_form(text)], **_flat(json.loads(text), digits)}
        if suffix == ".jsonl":
            rows = [json.loads(line) for line in text.split("\n") if line]
            return {"form": [*sorted(set(map(_form, text.split("\n")[:-1]))), repr(text[-1:])], **_flat(rows, digits)}
    except ValueError:
        pass  # compared as lines
    if suffix == ".csv" and (table := list(csv.reader(io.StringIO(text)))) and len({len(row) for row in table}) == 1:
        cells = {
            f"column {number} {head}": [_plain(cell, _digits(head, digits)) for cell in (head, *column)]
            for number, (head, *column) in enumerate(zip(*table, strict=True), 1)
            if not LEFT_OUT.fullmatch(head)
        }
        return {"form": [_hash([re.sub(r'[^",\r\n]', "", text)])], **cells}
    return {"line": [_plain(line, digits) for line in text.split("\n")]}


def _flat(value: Any, digits: int) -> dict[str, list[str]]:
    """Every leaf of a JSON value by its path, in which `[]` stands for all items of a list."""
    found: dict[str, list[str]] = {}

    def add(part: Any, path: str) -> None:
        if isinstance(part, dict) and part:
            for key, inner in part.items():
                if not LEFT_OUT.fullmatch(key):
                    add(inner, f"{path}.{key}" if path else key)
        elif isinstance(part, list) and part:
            for inner in part:
                add(inner, f"{path}[]")
        else:
            found.setdefault(path, []).append(_leaf(part, _digits(path, digits)))

    add(value, "")
    return {**found, "order of fields": [*found]}


def _leaf(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return repr(_rounded(value, digits))
    return _plain(value, digits) if isinstance(value, str) else repr(value)


def _rounded(value: float, digits: int) -> float:
    """To significant digits; what is left of numbers that cancel is 0."""
    if not math.isfinite(value):
        return value
    return 0.0 if abs(value) < 10.0**-digits else float(f"{value:.{digits}g}")


def _digits(field: str, digits: int) -> int:
    return DIGITS_BY_SEARCH if _BY_SEARCH in field else digits


def _plain(text: str, digits: int) -> str:
    for pattern, word in _NOISE:
        text = pattern.sub(word, text)

    def shorter(found: re.Match[str]) -> str:
        given = re.sub(r"e.*|\D", "", found[0]).lstrip("0")
        return found[0] if len(given) <= digits else repr(_rounded(float(found[0]), digits))

    return _LONG_NUMBER.sub(shorter, text)


def _form(text: str) -> str:
    """How a JSON text is laid out: as `json.dumps` does it with which arguments, else a hash of what is not values."""
    value, body = json.loads(text), text.rstrip("\n")
    end = f"line ends {len(text) - len(body)}"
    for indent in (None, 0, 1, 2, 4):
        for escaped in (False, True):
            if json.dumps(value, indent=indent, ensure_ascii=escaped) == body:
                return f"indent {indent}, escaped {escaped}, {end}"
    return f"{_hash([_VALUE.sub('_', body)])}, {end}"


def _tensors(data: bytes) -> dict[str, list[str]]:
    """The bytes of each tensor, as the format says: length of the head, head, numbers."""
    start = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:start])
    return {
        name: [_hash([repr(head[name]), data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]])]
        for name, entry in sorted(head.items())
        if name != "__metadata__"
    }


def _hash(parts: Sequence[str | bytes], length: int = 10) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part)
        total.update(b"\0")
    return total.hexdigest()[:length]


def fingerprint(fields: Fields) -> str:
    """A hash of a file, and after it three letters for each field or line, by which those that change are found."""
    values = [value for name, values in fields.items() for value in (name, *values)]
    return f"{_hash(values)} {''.join(_letters(fields))}"


def _parts(fields: Fields) -> list[tuple[str, Sequence[str]]]:
    """Each field with its values; each line by itself."""
    lines = [(f"line {number}", [text]) for number, text in enumerate(fields.get("line", ()), 1)]
    return [*((name, values) for name, values in fields.items() if name != "line"), *lines]


def _letters(fields: Fields) -> list[str]:
    return [_hash([name if name[:5] != "line " else "", *values], 3) for name, values in _parts(fields)]


def changed_fields(before: str, after: Fields) -> list[str]:
    """What differs from a stored fingerprint: fields and lines that are new or have another content."""
    if before == fingerprint(after):
        return []
    old, parts, found = re.findall("...", before.partition(" ")[2]), _parts(after), []
    for kind, a, b, c, d in SequenceMatcher(None, old, _letters(after), autojunk=False).get_opcodes():
        if kind != "equal":
            found += [f"{name}: now {_shown(values)}" for name, values in parts[c:d]]
            found += [f"{b - a} parts before {parts[d][0] if d < len(parts) else 'the end'} are gone"] * (c == d)
    return found or ["some part has changed"]


def differences(before: Fields, after: Fields) -> list[str]:
    """What differs between two contents of a file, by field, with both values."""
    found = []
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            found.append(f"{name}: {f'is new: {_shown(new)}' if new else 'is no longer there'}")
        elif old != new:
            for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
                if kind != "equal":
                    found.append(f"{name} {c + 1}: {_shown(old[a:b])} → {_shown(new[c:d])}")
    return found


def _shown(values: Sequence[str], width: int = 110) -> str:
    text = " | ".join(values[:3]) + (" …" if len(values) > 3 else "")
    return (text if len(text) <= width else f"{text[:width]}…") if values else "nothing"
