"""Work on many rows that the processes of a run share, and whose lines make one file in the order of the rows."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from accelerate import PartialState
from accelerate.utils import gather_object

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import from_main

Row = TypeVar("Row")


def write_lines(
    rows: Iterable[Row],
    lines_of: Callable[[Sequence[Row]], list[bytes]],
    output: Path,
    *,
    keep: int,
    batch_size: int,
    state: PartialState,
    advance: Callable[[int], object],
) -> None:
    """Put what `lines_of` makes of consecutive batches of `rows` behind the first `keep` bytes of `output`.

    Every process reads the rows and works on one batch of each round; the main process writes. So the batches, and
    with them the lines, are those of a single process. The lines of a round are on disk before the next one begins.

    Args:
        rows: the rows to come, the same ones on every process.
        lines_of: the lines of one batch, each with its line feed.
        output: the file; a missing one is made.
        keep: bytes of it that stand; what is behind them goes.
        batch_size: rows of a batch.
        state: the processes.
        advance: told on every process how many rows each round has done.

    Raises:
        InputError: in every process, when `lines_of` raises it in one of them, or the disk is full. The file then
            holds whole lines.
    """
    from_main(state, partial(_cut, output, keep))
    rows = iter(rows)
    while done := _round(rows, lines_of, output, batch_size, state):
        advance(done)


def cannot_write(output: Path, error: OSError) -> InputError:
    """The one line about an output that cannot be written, or not go on."""
    return InputError(f"output={output}: cannot be written ({error.strerror}); name another path")


def _round(
    rows: Iterator[Row],
    lines_of: Callable[[Sequence[Row]], list[bytes]],
    output: Path,
    batch_size: int,
    state: PartialState,
) -> int:
    """Take the next batch for each process, and append their lines; return how many rows there were."""
    batches = list(islice(rows, batch_size * state.num_processes))
    first = batch_size * state.process_index
    if batches:
        lines = _of_all(lines_of, batches[first : first + batch_size], state)
        from_main(state, partial(_append, output, lines))
    return len(batches)


def _of_all(
    lines_of: Callable[[Sequence[Row]], list[bytes]], share: Sequence[Row], state: PartialState
) -> list[bytes]:
    """The lines of all processes' batches, in order."""
    lines: list[bytes] = []
    fault = ""
    try:
        lines = lines_of(share) if share else []  # the last round may have fewer batches than there are processes
    except InputError as error:
        if state.num_processes == 1:
            raise
        fault = str(error)
    found = gather_object([(lines, fault)])
    if fault := next((fault for _, fault in found if fault), ""):
        raise InputError(fault)
    return [line for lines, _ in found for line in lines]


def _cut(output: Path, keep: int) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as stream:
            stream.truncate(keep)
    except OSError as error:
        raise cannot_write(output, error) from None


def _append(output: Path, lines: Sequence[bytes]) -> None:
    """One write for the whole round, on disk before the next one starts; taken back where there is no room for it."""
    before = output.stat().st_size
    try:
        with output.open("ab") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        with suppress(OSError):
            os.truncate(output, before)
        raise InputError(
            f"output={output}: cannot be written further ({error.strerror}); its lines are whole: make room, and the "
            "same command goes on behind them"
        ) from None
