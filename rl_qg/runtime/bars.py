"""Progress of long work: a bar on a terminal; in logs a plain line every half minute."""

import sys
from typing import Any, TextIO

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 30
_LINE = "{desc}: {n_fmt} of {total_fmt} ({unit}), {percentage:.0f} %, {elapsed} elapsed, {remaining} left{postfix}"
_WITHOUT_TOTAL = "{desc}: {n_fmt} ({unit}), {elapsed} elapsed{postfix}"


class ProgressBar(tqdm):
    """A bar of tqdm, with its arguments. Where standard error is no terminal, such as in a log or a pipe, it prints
    lines instead; work that is done within half a minute prints none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not sys.stderr.isatty():
            seconds = SECONDS_BETWEEN_LINES
            kwargs |= {"mininterval": seconds, "maxinterval": seconds, "delay": seconds}
            known = kwargs.get("total") is not None or (args and hasattr(args[0], "__len__"))
            kwargs |= {"bar_format": _LINE if known else _WITHOUT_TOTAL, "file": _Lines(sys.stderr)}
        super().__init__(*args, **kwargs)


class _Lines:
    """A stream that gets each state of a bar as a line of its own, and no movement of the cursor."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        if line := text.replace("\x1b[A", "").strip():
            self._stream.write(f"{line}\n")

    def flush(self) -> None:
        self._stream.flush()
