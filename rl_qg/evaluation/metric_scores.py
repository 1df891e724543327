"""Scores of many metrics for the same rows, each kept in a file, so that no metric is computed twice.

`scores/<label>.jsonl` begins with what the scores are of (the metric's signature and a hash of the texts it reads) and
goes on with one line for each block of rows. A kill loses one block at most; scores of another metric or of other
texts are found out by the first line and computed anew, and so are those of a metric without a signature: nothing says
what they are of.
"""

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rewards.base import COLUMN
from rewards.errors import MetricInputError
from rl_qg.evaluation.reward_scorer import Reward, signature_of
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import append_json_line
from rl_qg.runtime.out_of_memory import Halving

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JudgedRow:
    """A question with what a metric may read beside it; `where` names it in messages."""

    where: str
    question: str
    context: str | None = None
    answer: str | None = None
    references: tuple[str, ...] | None = None


def needed_columns(metric: Reward, rows: Sequence[JudgedRow]) -> list[str]:
    """The columns besides the question that a metric gets: those it needs, or without a word from it all that every
    row has.
    """
    needs = getattr(metric, "needs", None)
    if needs is not None:
        return [column for need, column in COLUMN.items() if need in needs]
    return [column for column in COLUMN.values() if all(getattr(row, column) is not None for row in rows)]


def check_rows(label: str, metric: Reward, rows: Sequence[JudgedRow], remedy: str = "add it") -> None:
    """Raise `InputError` that names the first row without what a metric needs, and the `remedy`."""
    for column in needed_columns(metric, rows):
        for row in rows:
            if getattr(row, column) is None:
                kind = "list of texts" if column == "references" else "text"
                raise InputError(
                    f"{row.where}: {column!r} is missing or no {kind}, and metric {label} needs it; {remedy}, or "
                    "leave the metric out"
                )


def scores_of(
    label: str,
    metric: Reward,
    rows: Sequence[JudgedRow],
    folder: Path,
    *,
    batch_size: int,
    known: Sequence[float] | None = None,
) -> list[float | None]:
    """One score for each row, None where the metric gives none that is finite; from `folder` where they are there.

    Rows go in blocks of `batch_size`, and metrics forget earlier ones: the scores are the same after a kill. Scores
    that are `known`, one for each row, are only written down.

    Raises:
        InputError: the metric refuses a row, or returns another number of scores.
    """
    columns = needed_columns(metric, rows)
    texts = texts_hash((row.question, *(getattr(row, column) for column in columns)) for row in rows)
    head = {"signature": signature_of(metric), "rows": len(rows), "texts": texts}
    halving = Halving(label, "shorten the contexts, or score on the CPU (training.use_cpu=true)")

    def block(start: int, end: int) -> list[float | None]:
        if known is not None:
            return _finite(known[start:end])
        if hasattr(metric, "forget"):
            metric.forget()
        pieces = halving(lambda some: _score(label, metric, some, columns), rows[start:end])
        return [value for piece in pieces for value in piece]

    path, trusted = folder / f"{label}.jsonl", hasattr(metric, "signature")
    return kept_scores(path, head, len(rows), block, at_once=batch_size, unit="row", trusted=trusted)


def kept_scores(
    path: Path,
    head: Mapping[str, Any],
    count: int,
    block: Callable[[int, int], list[Any]],
    *,
    at_once: int,
    unit: str,
    trusted: bool = True,
) -> list[Any]:
    """The scores of `count` things, `at_once` by `block(start, end)`, each block written down before the next.

    Those in `path` are taken where its first line is `head`; never where they are not `trusted`.
    """
    found = _earlier(path, head if trusted else None)
    if not path.exists():
        append_json_line(path, head)
    with tqdm(total=count, initial=len(found), desc=path.stem, unit=unit, leave=False) as bar:
        for start in range(len(found), count, at_once):
            scores = block(start, min(start + at_once, count))
            append_json_line(path, {"scores": scores})
            found += scores
            bar.update(len(scores))
    return found


def direction_of(metric: Reward) -> int:
    """1 where more is better, -1 where less is."""
    return 1 if getattr(metric, "higher_is_better", True) else -1


def _score(label: str, metric: Reward, rows: Sequence[JudgedRow], columns: Sequence[str]) -> list[float | None]:
    given: dict[str, Any] = dict.fromkeys(COLUMN.values())
    given |= {column: [getattr(row, column) for row in rows] for column in columns}
    try:
        result = metric.score(
            [row.question for row in rows],
            given["context"],
            answers=given["answer"],
            references=given["references"],
        )
    except MetricInputError as error:
        raise InputError(f"{rows[0].where} to {rows[-1].where}: metric {label}: {error}") from None
    if len(result.scores) != len(rows):
        raise InputError(f"metric {label}: returned {len(result.scores)} scores for {len(rows)} questions")
    return _finite(result.scores)


def _finite(scores: Sequence[float | None]) -> list[float | None]:
    return [None if value is None or not math.isfinite(value) else float(value) for value in scores]


def _earlier(path: Path, head: Mapping[str, Any] | None) -> list[Any]:
    """The scores that an earlier run left; a torn last line is cut off, and scores of something else are deleted."""
    if not path.exists():
        return []
    whole, _, torn = path.read_bytes().rpartition(b"\n")
    try:
        first, *others = [json.loads(line) for line in whole.split(b"\n")]
    except ValueError:
        first, others = None, []
    if head is None or first != head:
        log.info("%s: holds scores of another metric, of other texts or of who knows what; computed anew", path)
        path.unlink()
        return []
    if torn:
        os.truncate(path, len(whole) + 1)
    return [value for record in others for value in record["scores"]]


def texts_hash(texts: Iterable[object]) -> str:
    """What tells these texts from others, in 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for one in texts:
        digest.update(repr(one).encode())
    return digest.hexdigest()[:16]
