"""Work on many rows that the processes of a run share; their lines form one file in the order of the rows."""

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
    """Keep the first `keep` bytes of `output` and add the lines of consecutive batches of `rows`.

    Every process reads all rows and works on one batch in each round; the main process writes. The batches, and with
    them the lines, are therefore those of a single process. The lines of a round are on disk before the next round.

    Args:
        rows: the same rows on every process.
        lines_of: the lines of one batch, each with its line feed.
        output: the file; it is created if it is missing.
        keep: number of bytes of it that are kept.
        batch_size: rows in a batch.
        state: the processes.
        advance: called on every process with the number of rows of each finished round.

    Raises:
        InputError: in every process, when `lines_of` raises it in one of them or the disk is full. The file then
            holds whole lines.
    """
    from_main(state, partial(cut_file, output, keep))
    rows = iter(rows)
    while done := _round(rows, lines_of, output, batch_size, state):
        advance(done)


def cut_file(output: Path, keep: int) -> None:
    """Keep the first `keep` bytes of a file, which is created with its folder if it is missing.

    Raises:
        InputError: it cannot be written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as stream:
            stream.truncate(keep)
    except OSError as error:
        raise cannot_write(output, error) from None


def append_lines(output: Path, lines: Sequence[bytes]) -> None:
    """Add lines in one write and bring them to the disk; where the disk is full, none of them stays.

    Raises:
        InputError: they cannot be written.
    """
    before = output.stat().st_size if output.exists() else 0
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
            "same command continues after them"
        ) from None


def cannot_write(output: Path, error: OSError) -> InputError:
    """The error for an output that cannot be written."""
    return InputError(f"output={output}: cannot be written ({error.strerror}); name another path")


def _round(
    rows: Iterator[Row],
    lines_of: Callable[[Sequence[Row]], list[bytes]],
    output: Path,
    batch_size: int,
    state: PartialState,
) -> int:
    """Take the next batch for each process and append their lines; return the number of rows."""
    batches = list(islice(rows, batch_size * state.num_processes))
    first = batch_size * state.process_index
    if batches:
        lines = _gathered_lines(lines_of, batches[first : first + batch_size], state)
        from_main(state, partial(append_lines, output, lines))
    return len(batches)


def _gathered_lines(
    lines_of: Callable[[Sequence[Row]], list[bytes]], batch: Sequence[Row], state: PartialState
) -> list[bytes]:
    """The lines of the batches of all processes, in order, given the batch of this process."""
    lines: list[bytes] = []
    fault = ""
    try:
        lines = lines_of(batch) if batch else []  # the last round may have fewer batches than there are processes
    except InputError as error:
        if state.num_processes == 1:
            raise
        fault = str(error)
    gathered = gather_object([(lines, fault)])
    if fault := next((fault for _, fault in gathered if fault), ""):
        raise InputError(fault)
    return [line for lines, _ in gathered for line in lines]
