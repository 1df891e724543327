"""Scores of metrics kept in files, so that none is computed twice, and the bootstrap draws behind them.

The first line of `scores/<label>.jsonl` is a note of what the scores are of (the metric's signature and a hash of
the texts it reads); each further line holds the scores of one batch of rows. Scores with another note are computed
again, and so are those of a metric without a signature, or of which a part has none.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewards.contract import COLUMN, WITHOUT_NEEDS
from rl_qg.data.formats import json_line_rows
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError, LocalError
from rl_qg.runtime.files import write_json_lines
from rl_qg.runtime.ranks import OutOfMemoryRetry, is_out_of_memory
from rl_qg.runtime.resumable_lines import ResumableLines
from rl_qg.scoring.reward_scorer import Reward, direction_of, is_signed, score_or_refuse, signature_of
from rl_qg.stats.intervals import Bounds, Floats, paired_test, without_rounding

log = logging.getLogger(__name__)
FILE = "draws.jsonl"


@dataclass(frozen=True)
class MetricRow:
    """A question and the other texts that a metric may read; `where` names its file and line in messages.

    `sentence` is that of the answer; no metric reads it, questions can be grouped by it.
    """

    where: str
    question: str
    context: str | None = None
    answer: str | None = None
    references: tuple[str, ...] | None = None
    sentence: str | None = None
    title: str | None = None


def needed_columns(metric: Reward, rows: Sequence[MetricRow]) -> list[str]:
    """The columns besides the question that a metric gets: those it needs; without `needs`, all that every row has."""
    needs = getattr(metric, "needs", None)
    columns = [column for need, column in COLUMN.items() if need in (WITHOUT_NEEDS if needs is None else needs)]
    return [column for column in columns if needs is not None or all(getattr(row, column) is not None for row in rows)]


def check_rows(metrics: Mapping[str, Reward], rows: Sequence[MetricRow], remedy: str = "add it") -> None:
    """Raise `InputError` if a row lacks what a metric needs; the message names the row and the `remedy`."""
    for label, metric in metrics.items():
        for column in needed_columns(metric, rows):
            lacking = next((row for row in rows if getattr(row, column) is None), None)
            if lacking is not None:
                kind = "list of texts, one at least not blank" if column == "references" else "text"
                raise InputError(
                    f"{lacking.where}: {column!r} is missing or no {kind}, and metric {label} needs it; {remedy}, or "
                    "leave the metric out"
                )


def comparable_scores(
    metrics: Mapping[str, Reward], rows: Sequence[MetricRow], folder: Path, *, batch_size: int
) -> dict[str, Floats]:
    """`scores_of` each metric without rounding, (rows,), higher ones for what it takes for better; None is NaN."""
    scores = {}
    for label, metric in metrics.items():
        values = scores_of(label, metric, rows, folder, batch_size=batch_size)
        scores[label] = direction_of(metric) * without_rounding(np.array(values, dtype=np.float64))
    return scores


def scores_of(
    label: str,
    metric: Reward,
    rows: Sequence[MetricRow],
    folder: Path,
    *,
    batch_size: int,
    known: Sequence[float] | None = None,
) -> list[float | None]:
    """One score for each row, None where the metric gives none that is finite; read from `folder` if they are there.

    Rows are scored in batches of `batch_size`, and the caches of the metric are emptied before each: the scores are
    the same after a kill. A metric whose scores depend on all rows (`rewards.base.Metric.whole_set`) gets them in one
    batch. `known` scores, one for each row, are only written.
    """
    columns = needed_columns(metric, rows)
    texts = texts_hash((row.question, *(getattr(row, column) for column in columns)) for row in rows)
    note = {"signature": signature_of(metric), "rows": len(rows), "texts": texts}
    in_parts = OutOfMemoryRetry(label, "shorten the contexts, or score on the CPU (training.use_cpu=true)")
    whole = getattr(metric, "whole_set", False)

    def score(part: Sequence[MetricRow]) -> list[float | None]:
        given = {column: [getattr(row, column) for row in part] for column in ("question", *columns)}
        return _finite(score_or_refuse(metric, f"{part[0].where} to {part[-1].where}: metric {label}", given).scores)

    def batch(start: int, end: int) -> list[float | None]:
        if known is not None:
            return _finite(known[start:end])
        if hasattr(metric, "reset_cache"):
            metric.reset_cache()
        if not whole:
            return [value for part in in_parts(score, rows[start:end]) for value in part]
        try:
            return score(rows)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        raise LocalError(
            f"metric {label}: its scores depend on all {len(rows)} rows, which do not fit into memory together; "
            "score fewer"
        )

    if whole:
        batch_size = max(len(rows), 1)
    path, trusted = folder / f"{label}.jsonl", is_signed(metric)
    values = kept_scores(path, note, len(rows), batch, batch_size=batch_size, unit="row", trusted=trusted)
    if rows and all(value is None for value in values):
        raise InputError(
            f"metric {label}: no finite score for any of {len(rows)} rows, the first of them {rows[0].where}"
        )
    return values


def kept_scores(
    path: Path,
    note: Mapping[str, Any],
    count: int,
    batch: Callable[[int, int], list[Any]],
    *,
    batch_size: int,
    unit: str,
    trusted: bool = True,
) -> list[Any]:
    """The scores of `count` rows, computed in batches by `batch(start, end)` and each written before the next.

    Scores in `path` are used if its first line is `note` and no line was changed, unless they are not `trusted`.
    """
    lines = ResumableLines(path, content="scores")
    stored = _stored_scores(lines, count) if trusted and lines.read_note() == note else None
    if stored is None:
        if lines.begun:
            log.info("%s: holds scores of another metric or of other texts, or was changed; computed again", path)
        lines.write_note(note)
    scores, digest = stored or ([], "")
    with ProgressBar(total=count, initial=len(scores), desc=path.stem, unit=unit, leave=False) as bar:
        for start in range(len(scores), count, batch_size):
            computed = batch(start, min(start + batch_size, count))
            digest = _digest(digest, computed)
            lines.append({"scores": computed, "digest": digest})
            scores += computed
            bar.update(len(computed))
    return scores


def _stored_scores(lines: ResumableLines, count: int) -> tuple[list[Any], str] | None:
    """The scores in a file, which is cut at its last whole line, and the digest of the last one; None where a line was
    changed or left out. Lines of earlier versions have no digest.
    """
    scores: list[Any] = []
    digest = ""
    for line in lines.lines():
        if not line.text.endswith(b"\n"):
            lines.cut(line.start)
            break
        try:
            record = json.loads(line.text)
            digest = _digest(digest, record["scores"])
            scores += record["scores"]
        except (ValueError, KeyError, TypeError):
            return None
        if record.get("digest", digest) != digest:
            return None
    return (scores, digest) if len(scores) <= count else None


def _digest(before: str, scores: Sequence[Any]) -> str:
    """SHA-256 (16 digits) of the scores of a line and of the digest before it."""
    text = before + json.dumps(scores, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _finite(scores: Sequence[float | None]) -> list[float | None]:
    return [None if value is None or not math.isfinite(value) else float(value) for value in scores]


def texts_hash(texts: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(repr(text).encode())
    return digest.hexdigest()[:16]


# --- the bootstrap draws behind scores, so that results of two commands can be tested in pairs later: scores of the
# same rows have the same draws, so the differences of their values are a paired bootstrap, whatever the metric


@dataclass(frozen=True)
class ScoreDraws:
    """One score of one model, in the data and in every draw: `values` (1 + resamples,), NaN where it is undefined.

    `items` tells what the rows are about, in their order, and `seed` which draws they are. `complete`: every row has a
    score, so that two models are compared on the same rows. `units` are those of its interval
    (`rl_qg.stats.intervals.interval_ends`); a file of an earlier version has none, and `passages` stand for them. Of
    several seeds `degrees` are the fewest degrees of freedom that a difference can have, in which passages cancel.
    """

    predictions: str
    metric: str
    form: str
    items: str
    passages: int
    seed: int
    complete: bool
    values: Floats
    units: float | None = None
    degrees: float | None = None

    def sample(self, *others: "ScoreDraws") -> tuple[float, float]:
        """The units of what is computed from these scores, those of the one with fewest, and the fewest degrees."""
        every = (self, *others)
        units = min(one.passages if one.units is None else one.units for one in every)
        return units, min([units - 1, *(one.degrees for one in every if one.degrees is not None)])

    def is_paired_with(self, other: "ScoreDraws") -> bool:
        mine, others = ((one.items, one.seed, len(one.values), one.complete) for one in (self, other))
        return mine == others and self.complete


def paired_difference(
    first: ScoreDraws, second: ScoreDraws, degrees: float | None = None, *, bounds: Bounds | None = None
) -> dict[str, Any]:
    """`first - second` with interval and p of "it is 0", of paired draws of scores with `bounds`; `degrees` None: the
    fewest there are.
    """
    units, fewest = first.sample(second)
    degrees = fewest if degrees is None else degrees
    return paired_test(first.values, second.values, first.passages, units, degrees=degrees, bounds=bounds)


def write_draws(path: Path, draws: Iterable[ScoreDraws]) -> None:
    write_json_lines(path, ({**vars(one), "values": _finite(one.values.tolist())} for one in draws))


def read_draws(path: Path) -> list[ScoreDraws]:
    """What `write_draws` wrote; nothing where there is no file, as of earlier versions."""
    draws = []
    for where, _, record in json_line_rows(path) if path.is_file() else ():
        try:
            values = np.array([np.nan if value is None else value for value in record["values"]], dtype=np.float64)
            draws.append(ScoreDraws(**{**record, "values": values}))
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{where}: holds no draws of a score; make the result again") from None
    return draws
