"""Whether two runs left the same behind, to the bit, and if not, where they differ."""

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

# Fields of logged lines that no two runs share; the last three are the library's own, of an evaluation.
OF_TIME = ("seconds_", "samples_per_second", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
# What says when and how often a command ran, not what came of it.
OF_THE_DAY = ("run.json", "report.html", "runs/*", "*/README.md")
CLOSE = 1e-5
"""How far numbers may lie apart, relative to the largest of a tensor, where runs are not compared to the bit."""

# Attention does not change when the same number is added to all its keys' scores: the gradient of a key's bias is
# rounding noise, and Adam makes whole steps of it.
WITHOUT_EFFECT = ".k_proj.bias"


def differences(whole: Path, struck: Path, *, close: bool = False, checkpoints: bool = True) -> list[str]:
    """What is not the same in `struck` as in the uninterrupted run `whole`; a line for each file.

    Every file counts, also one too many (a torn `.part`) or too few. Of checkpoints the weights are compared, the rest
    is there to be read by the next run; without `checkpoints` those of other steps may be there. With `close`, weights
    and logged numbers may differ by `CLOSE`.
    """
    first, second = ({str(path.relative_to(folder)) for path in files(folder)} for folder in (whole, struck))
    if not checkpoints:
        first, second = ({name for name in names if not _in_checkpoint(name)} for names in (first, second))
    found = [f"{name}: missing" for name in sorted(first - second)]
    found += [f"{name}: left over" for name in sorted(second - first)]
    for name in sorted(first & second):
        if problem := _difference(name, whole, struck, close):
            found.append(f"{name}: {problem}")
    return found


def _in_checkpoint(name: str) -> bool:
    return name.startswith("checkpoint-") or "/checkpoint-" in name


def files(folder: Path) -> Iterator[Path]:
    """What a run left, without what belongs to the day."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(fnmatch(str(name), pattern) for pattern in OF_THE_DAY):
            yield path


def _difference(name: str, whole: Path, struck: Path, close: bool) -> str:
    kind = Path(name).suffix
    if kind == ".safetensors":
        return _weights(whole / name, struck / name, close)
    if _in_checkpoint(name):
        return ""
    if Path(name).name == "metrics.jsonl":
        return _lines(_logged(whole / name), _logged(struck / name), close)
    first, second = ((folder / name).read_text().replace(str(folder), "RUN") for folder in (whole, struck))
    if name == "summary.json":
        first, second = (json.dumps(_timeless(json.loads(text)), indent=1) for text in (first, second))
    if first == second:
        return ""
    return _lines(first.splitlines(), second.splitlines(), close)


def _logged(path: Path) -> list[str]:
    """The lines of metrics.jsonl without what is measured in seconds. A torn line stays as it is."""
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.dumps(_timeless(json.loads(text))))
        except ValueError:
            lines.append(text)
    return lines


def _timeless(value: Any) -> Any:
    """The same without the fields that are measured in seconds."""
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if not key.startswith(OF_TIME)}
    return value


def _lines(first: list[str], second: list[str], close: bool) -> str:
    if len(first) != len(second):
        return f"{len(second)} lines instead of {len(first)}"
    for number, (one, other) in enumerate(zip(first, second, strict=True), 1):
        if one != other and not (close and _near(one, other)):
            return f"line {number}: {_around(one, other)}"
    return ""


def _around(one: str, other: str) -> str:
    """The first place where two lines differ, with a few characters before it."""
    at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, at - 24)
    return f"{one[start : at + 24]!r} -> {other[start : at + 24]!r}"


def _near(one: str, other: str) -> bool:
    """Whether two lines of JSON have the same fields with numbers that are close."""
    try:
        first, second = json.loads(one), json.loads(other)
    except ValueError:
        return False
    return isinstance(first, dict) and isinstance(second, dict) and _near_values(first, second)


def _near_values(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_near_values(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_near_values, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= CLOSE * max(1e-2, abs(one))
    return one == other


def _weights(whole: Path, struck: Path, close: bool) -> str:
    if whole.read_bytes() == struck.read_bytes():
        return ""
    first, second = load_file(whole), load_file(struck)
    if first.keys() != second.keys():
        return f"other tensors: {sorted(first.keys() ^ second.keys())[0]}"
    gaps = {key: _gap(first[key], second[key]) for key in first}
    if close:
        gaps = {key: gap for key, gap in gaps.items() if gap > CLOSE and not key.endswith(WITHOUT_EFFECT)}
    if not gaps:
        return ""
    worst = max(gaps, key=gaps.__getitem__)
    return f"{sum(gap > 0 for gap in gaps.values())} of {len(first)} tensors differ, {worst} most: {gaps[worst]:.1e}"


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference, relative to the largest number."""
    if one.shape != other.shape:
        return float("inf")
    return float((one.double() - other.double()).abs().max() / one.double().abs().max().clamp(min=1e-12))
