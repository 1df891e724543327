"""Compare the files of two runs: whether they are bitwise equal, and if not, where they differ."""

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

# Fields of logged lines that differ between runs; the last three are logged by the library for evaluations.
TIMES = ("seconds_", "samples_per_second", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
# Files that say when and how often a command ran, not what its results are.
NOT_COMPARED = ("run.json", "report.html", "runs/*", "*/README.md")
CLOSE = 1e-5
"""Tolerance of comparisons that are not bitwise, relative to the largest number of a tensor."""

# Attention does not change when the same number is added to the scores of all keys: the gradient of a key's bias is
# rounding noise, which Adam scales up to full steps.
WITHOUT_EFFECT = ".k_proj.bias"


def differences(whole: Path, resumed: Path, *, close: bool = False, checkpoints: bool = True) -> list[str]:
    """The differences between a run after a fault, `resumed`, and the uninterrupted run `whole`; one line a file.

    Every file counts, also additional ones (an incomplete `.part`) and missing ones. In checkpoints only weights are
    compared. Without `checkpoints`, files in checkpoints are ignored. With `close`, weights and logged numbers may
    differ by `CLOSE`.
    """
    first, second = ({str(path.relative_to(folder)) for path in files(folder)} for folder in (whole, resumed))
    if not checkpoints:
        first, second = ({name for name in names if not _in_checkpoint(name)} for names in (first, second))
    lines = [f"{name}: missing" for name in sorted(first - second)]
    lines += [f"{name}: left over" for name in sorted(second - first)]
    for name in sorted(first & second):
        if problem := _difference(name, whole, resumed, close):
            lines.append(f"{name}: {problem}")
    return lines


def _in_checkpoint(name: str) -> bool:
    return name.startswith("checkpoint-") or "/checkpoint-" in name


def files(folder: Path) -> Iterator[Path]:
    """The files of a run that are compared."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(fnmatch(str(name), pattern) for pattern in NOT_COMPARED):
            yield path


def _difference(name: str, whole: Path, resumed: Path, close: bool) -> str:
    if Path(name).suffix == ".safetensors":
        return _weights(whole / name, resumed / name, close)
    if _in_checkpoint(name):
        return ""
    if Path(name).name == "metrics.jsonl":
        return _lines(_logged(whole / name), _logged(resumed / name), close)
    first, second = ((folder / name).read_text().replace(str(folder), "RUN") for folder in (whole, resumed))
    if name == "summary.json":
        first, second = (json.dumps(_without_times(json.loads(text)), indent=1) for text in (first, second))
    if first == second or (close and Path(name).suffix == ".json" and _are_close_lines(first, second)):
        return ""
    return _lines(first.splitlines(), second.splitlines(), close)


def _logged(path: Path) -> list[str]:
    """The lines of metrics.jsonl without times. An incomplete line is kept as it is."""
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.dumps(_without_times(json.loads(text))))
        except ValueError:
            lines.append(text)
    return lines


def _without_times(value: Any) -> Any:
    """The value without fields that are measured in seconds."""
    if isinstance(value, list):
        return [_without_times(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if not key.startswith(TIMES)}
    return value


def _lines(first: list[str], second: list[str], close: bool) -> str:
    if len(first) != len(second):
        return f"{len(second)} lines instead of {len(first)}"
    for number, (one, other) in enumerate(zip(first, second, strict=True), 1):
        if one != other and not (close and _are_close_lines(one, other)):
            return f"line {number}: {_excerpts(one, other)}"
    return ""


def _excerpts(one: str, other: str) -> str:
    """Excerpts of both lines around the first character in which they differ."""
    at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, at - 24)
    return f"{one[start : at + 24]!r} -> {other[start : at + 24]!r}"


def _are_close_lines(one: str, other: str) -> bool:
    """Whether two lines, or two files, of JSON have the same fields with close numbers."""
    try:
        first, second = json.loads(one), json.loads(other)
    except ValueError:
        return False
    return isinstance(first, dict) and isinstance(second, dict) and _are_close(first, second)


def _are_close(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= CLOSE * max(1e-2, abs(one))
    return one == other


def _weights(whole: Path, resumed: Path, close: bool) -> str:
    if whole.read_bytes() == resumed.read_bytes():
        return ""
    first, second = load_file(whole), load_file(resumed)
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
