"""Scoring: questions with their passages -> the same rows with a score and its parts.

The input may have any form that `rl_qg.data.question_tables` reads. Every row is checked before the first is scored.
Then rows are read, scored and written in batches, so memory does not grow with the file (except for SQuAD JSON).
Several processes share the batches. After a kill the same command continues after the last whole batch.
`<output stem>.summary.json` says which metric and input the scores are of, and holds their summary when complete.
"""

import json
import logging
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import NormalDist
from typing import Any
from zlib import crc32

import numpy as np

from rewards.contract import COLUMN, bounds_of, check_row_by_row
from rl_qg.data.examples import passage_hash
from rl_qg.data.parts import DataPart, Parts, StageRows
from rl_qg.data.question_tables import QuestionTable, TableRow
from rl_qg.data.reading import REPORTED_IDS
from rl_qg.pages.results import text_template
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.ranks import OutOfMemoryRetry, Ranks, from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, Work, begins_with, note_path
from rl_qg.scoring.reward_scorer import Reward, score_or_refuse, signature_of
from rl_qg.stats.intervals import Bounds, Floats, Interval, PassageDraws, mean_interval, widening

log = logging.getLogger(__name__)

EARLIER = {"score": "earlier_score", "parts": "earlier_parts"}  # what the output calls such fields of the input
SAMPLE = 100_000  # scores held for the bootstrap and the quantiles; of more, a random choice of this size
PASSAGES = 10_000  # passages resampled; of more, sums are kept in groups of passages
PASSAGE_GROUPS = 65_536
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


class Moments:
    """Mean, spread and extremes of numbers seen one by one (Welford, "Note on a method for calculating corrected sums
    of squares and products", 1962).
    """

    def __init__(self) -> None:
        self.n, self.mean, self.squares = 0, 0.0, 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, value: float) -> None:
        self.n += 1
        before = value - self.mean
        self.mean += before / self.n
        self.squares += before * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)

    @property
    def std(self) -> float:
        """Standard deviation of the population the numbers come from (n - 1); 0 for a single number."""
        return math.sqrt(self.squares / (self.n - 1)) if self.n > 1 else 0.0


class PassageSums:
    """Sums and numbers of scores by passage, in memory that does not grow: the passages after the first 10,000 share
    65,536 groups by their hash. Passages are independent, so groups of whole passages are too.
    """

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.grouped = False
        self._table = np.zeros((PASSAGES + PASSAGE_GROUPS, 2))

    def add(self, passage: str, score: float) -> int:
        index = self.index.get(passage)
        if index is None and len(self.index) < PASSAGES:
            index = self.index[passage] = len(self.index)
        elif index is None:
            self.grouped = True
            index = PASSAGES + crc32(passage.encode()) % PASSAGE_GROUPS
        self._table[index] += score, 1
        return index

    @property
    def table(self) -> Floats:
        """Sum and number of scores, (passages or groups, 2)."""
        return self._table[self._table[:, 1] > 0]


def summarise_scores(
    path: Path, columns: Mapping[str, str] | None = None, *, bounds: Bounds | None = None
) -> dict[str, Any]:
    """Return `rows`, `without_score`, `score` (None where no row has one) and `parts` of scored JSON lines.

    `score` holds mean, low and high (a 95 % interval over passages), n, `passages`, `interval` (how it was found),
    std, extremes and quantiles. A row without a context is a passage of its own. Up to 100,000 scores on 10,000
    passages the interval is a percentile bootstrap; beyond that the mean of any scores is normal (`normal_interval`),
    and quantiles are those of 100,000 scores chosen at random. Intervals do not leave the `bounds` of the metric.
    `columns` names fields as for `QuestionTable`.
    """
    rows, scores, parts, passages = 0, Moments(), dict[str, Moments](), PassageSums()
    sample, sample_passages, chance = list[float](), list[int](), random.Random(0)
    has_context = False
    table = QuestionTable(path, columns)
    for row in table:
        rows += 1
        if (value := row.fields["score"]) is not None:
            context = table.value(row, "context")
            has_context |= context is not None
            scores.add(value)
            passage = passages.add(f"row {rows}" if context is None else passage_hash(context), value)
            if len(sample) < SAMPLE:
                sample.append(value)
                sample_passages.append(passage)
            elif (index := chance.randrange(scores.n)) < SAMPLE:
                sample[index] = value
        for name, value in (row.fields.get("parts") or {}).items():  # Parquet has no empty ones
            if isinstance(value, float | int):
                parts.setdefault(name, Moments()).add(value)
    score: dict[str, Any] = {}
    if scores.n:
        if scores.n > len(sample) or passages.grouped:
            method, found = "normal approximation", normal_interval(passages.table, bounds=bounds)
        else:
            method, found = "percentile bootstrap", mean_interval(sample, PassageDraws(sample_passages), bounds=bounds)
        score = asdict(found) | ({"passages": None} if passages.grouped else {})  # they were not counted
        score["interval"] = f"95 %, {method} over {'passages' if has_context else 'rows'}"
        quantiles = zip(QUANTILES, np.quantile(sample, [*QUANTILES.values()]).tolist(), strict=True)
        score |= {"std": scores.std, "min": scores.low, **dict(quantiles), "max": scores.high}
    return {
        "rows": rows,
        "without_score": rows - scores.n,
        "score": score or None,
        "parts": {name: {"mean": part.mean, "n": part.n} for name, part in parts.items()},
    }


def normal_interval(table: Floats, *, level: float = 0.95, bounds: Bounds | None = None) -> Interval:
    """Return the mean with the interval that the central limit theorem gives it, from the sum and number of scores of
    each passage, (passages, 2).

    The mean m is a ratio of two sums over P passages, so its variance is about P / (P - 1) · Σ (sum - m · number)² /
    n² (Cochran, "Sampling Techniques", 3rd ed. 1977, equation 6.13); for single rows that is the variance of the mean.
    """
    passages, n = len(table), int(table[:, 1].sum())
    mean = float(table[:, 0].sum() / n)
    if passages < 2:
        return Interval(mean, None, None, n, passages)
    squares = float(((table[:, 0] - mean * table[:, 1]) ** 2).sum())
    half = NormalDist().inv_cdf((1 + level) / 2) * widening(passages, level) * math.sqrt(squares) / n
    least, most = bounds or (-math.inf, math.inf)
    return Interval(mean, max(mean - half, least), min(mean + half, most), n, passages)


def summary_text(summary: Mapping[str, Any]) -> str:
    return text_template("rl_qg.scoring", "score_summary.txt").render(summary).rstrip("\n")


def score_file(
    reward: Reward,
    source: QuestionTable,
    output: Path,
    *,
    batch_size: int,
    state: Ranks,
    accept_changed_data: bool = False,
    part: DataPart | None = None,
) -> dict[str, Any]:
    """Score every row of `source` and return the summary; of a `part` write `part.path(output)` and return its note.

    A line of `output` holds the fields of the row, `score` (null where the metric gives none that is finite) and
    `parts`. A batch of `batch_size` rows is scored by one process, in one call if it fits into memory, and the caches
    of the metric are emptied before each batch: the file is the same to the last digit after a kill and with any
    number of processes, as far as the machine computes alike.
    """
    check_row_by_row(reward)
    summary_path = _summary_path(output, source)
    output = part.path(output) if part else output
    lines = ResumableLines(output, note_path(output) if part else summary_path, content="scores")
    work = Work[TableRow](
        lines,
        batch_size,
        title="score",
        unit="row",
        is_about=lambda row, _, line: begins_with(line, _line_start(row).encode()),
        lines_per_row=1,
        row_name=f"row of {source}",
    )
    rows = StageRows[Any](part, "score", source, partial(_passage, source), work)

    def begin() -> tuple[int, list[str], Position | None]:
        """The number of rows, the columns that the metric gets, and where the output is continued."""
        total, columns = _check(source, reward)
        if lines.is_table:
            from rl_qg.data.parquet import schema_of

            schema_of((json.loads(_json(row.fields)) for row in source), output)  # refuses columns before all work
        faults = source.malformed  # of this reading, which was complete
        # The title is noted for metrics that read it alone: outputs of others, begun before it existed, continue.
        read = {name: field for name, field in source.columns.items() if name != "title" or name in columns}
        made_by = {"signature": signature_of(reward), "columns": read}
        sources = source.hashes()
        changed = lines.check(made_by, sources=sources, sources_key="input", accept=accept_changed_data)
        noted = lines.read_note().get("input", sources) if lines.begun else sources
        if (part or lines.is_table) and not changed and [*noted.values()] != [*sources.values()]:
            raise InputError(f"output={output}: holds scores of {', '.join(noted)}; name another file or delete it")
        position = rows.position(changed)
        left = {"malformed": {"count": len(faults), "records": faults[:REPORTED_IDS]}} if faults else {}
        ends = [end if math.isfinite(end) else None for end in bounds_of(reward)]
        lines.write_note({"complete": False, **made_by, "input": sources, **left, **rows.note, "bounds": ends})
        return len(rows) if part else total, columns, position

    total, columns, position = from_main(state, begin)
    if not part:  # of which the rows are counted as they are read
        log.info("%s rows to score", f"{total:,}")
    in_parts = OutOfMemoryRetry("score", "shorten the contexts, or score on the CPU (training.use_cpu=true)")

    def lines_of(batch: Sequence[TableRow]) -> list[list[bytes]]:
        if hasattr(reward, "reset_cache"):
            reward.reset_cache()  # a resumed run has a smaller cache, which would change the last digits
        scored = in_parts(lambda rows: _scored_lines(reward, source, rows, columns), batch)
        return [[line] for line in chain.from_iterable(scored)]

    rows.write(lines_of, position, state, total)

    def end() -> dict[str, Any]:
        if position is not None:
            rows.finish()
        return lines.read_note() if part else _summarise(lines)

    return from_main(state, end)


def merge_scores(parts: Parts, output: Path) -> dict[str, Any]:
    """Write the rows of all parts with their scores, and the summary, as one run does; return the summary."""
    lines = ResumableLines(output, _summary_path(output), content="scores")
    lines.check({name: parts.note[name] for name in ("signature", "columns", "input")})
    parts.write(lines)  # with a note that is not complete
    return _summarise(lines)


def _summarise(lines: ResumableLines) -> dict[str, Any]:
    note = lines.read_note()
    least, most = note.pop("bounds", None) or (None, None)
    bounds = -math.inf if least is None else least, math.inf if most is None else most
    summary = {**note, "complete": True, **summarise_scores(lines.output, note["columns"], bounds=bounds)}
    lines.write_note(summary)
    if summary["score"] is None:
        raise InputError(f"{lines.output}: no row has a finite score; {note['signature']} fails on all of them")
    log.info("%s\ndone: %s, summary in %s", summary_text(summary), lines.output, lines.note)
    return summary


def _passage(source: QuestionTable, row: TableRow) -> str:
    """By which a row belongs to a part; one without a context is a passage of its own."""
    context = source.value(row, "context")
    return str(source.value(row, "question") if context is None else context)


def _summary_path(output: Path, source: QuestionTable | None = None) -> Path:
    if output.suffix not in (".jsonl", ".parquet"):
        raise InputError(f"output={output}: the output is flat rows; give a name that ends in .jsonl or .parquet")
    path = output.with_name(f"{output.stem if output.suffix == '.jsonl' else output.name}.summary.json")
    for written in (output, path):
        if source and written.resolve() in [read.resolve() for read in source.paths]:
            raise InputError(f"output={output}: would write over the input {written}; name another file")
    return path


def _check(source: QuestionTable, reward: Reward) -> tuple[int, list[str]]:
    """Read every row; return the number of rows and the columns that the metric gets.

    A reward without `needs` gets the context, and answers and references if every row has them.
    """
    needs = getattr(reward, "needs", None)
    if needs is None:
        required, optional = ["question", "context"], ["answer", "references"]
    else:
        required, optional = ["question", *(column for need, column in COLUMN.items() if need in needs)], []
    total, asked, renamed, present = 0, False, False, Counter[str]()
    for row in ProgressBar(source, desc="check", unit="row", leave=False, delay=2):
        for column in required:
            if source.value(row, column) is None:
                metric = "every metric" if column == "question" else getattr(reward, "name", type(reward).__name__)
                kinds = {"answer": "text that is not blank", "references": "list of texts, one at least not blank"}
                kind = kinds.get(column, "text")
                raise InputError(
                    f"{row.where}: field {source.columns[column]!r} is missing or no {kind}, and {metric} needs it; "
                    f"the row has {', '.join(map(repr, row.fields))} (columns.{column}=… names another field)"
                )
        for name, kept in EARLIER.items():
            if name in row.fields and kept in row.fields:
                raise InputError(f"{row.where}: has fields {name!r} and {kept!r}, and the output adds one; rename one")
            renamed |= name in row.fields
        total += 1
        asked |= bool(str(source.value(row, "question")).strip())
        present.update(column for column in optional if source.value(row, column) is not None)
    if not total:
        raise InputError(f"{source}: holds no row to score; check the file")
    if not asked:
        raise InputError(f"{source}: all {total} questions are empty; check what wrote them")
    if renamed:
        log.warning("%s: the fields score and parts of the input are earlier_score and earlier_parts now", source)
    for column in optional:
        if 0 < present[column] < total:
            log.warning("%s: %d of %d rows have %s, so the reward gets none", source, present[column], total, column)
    return total, [*required, *(column for column in optional if present[column] == total)]


def _scored_lines(
    reward: Reward, source: QuestionTable, rows: Sequence[TableRow], columns: Sequence[str]
) -> list[bytes]:
    given = {column: [source.value(row, column) for row in rows] for column in columns}
    result = score_or_refuse(reward, f"{rows[0].where} to {rows[-1].where}", given)
    lines = []
    for index, row in enumerate(rows):
        parts = {name: values[index] for name, values in result.parts.items()}
        lines.append(f'{_line_start(row)}{_json(result.scores[index])}, "parts": {_json(parts)}}}\n'.encode())
    return lines


def _line_start(row: TableRow) -> str:
    return _json({EARLIER.get(name, name): value for name, value in row.fields.items()})[:-1] + ', "score": '


def _json(value: Any) -> str:
    text = json.dumps(_plain(value), ensure_ascii=False, default=str)  # Parquet files may hold dates
    return text.encode(errors="replace").decode()  # an unpaired surrogate is no JSON of strict readers


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
