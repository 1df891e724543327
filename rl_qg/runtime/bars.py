"""Progress of long work: a bar on a terminal; in logs a plain line every half minute."""

import sys
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 30
_LINE = "{desc}: {n_fmt} of {total_fmt} {unit}s ({percentage:.0f} %), {elapsed} elapsed, {remaining} left{postfix}"


class ProgressBar(tqdm):
    """A bar of tqdm, with its arguments. Where standard error is no terminal, such as in a log or a pipe, it prints
    lines instead; work that is done within half a minute prints none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not _is_terminal():
            seconds = SECONDS_BETWEEN_LINES
            kwargs |= {"mininterval": seconds, "maxinterval": seconds, "delay": seconds, "bar_format": _LINE}
        super().__init__(*args, **kwargs)

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        """What prints a state: over the last one on a terminal, else on a line of its own."""
        if _is_terminal():
            return tqdm.status_printer(file)

        def print_line(text: str) -> None:
            if text.strip():
                print(text, file=file, flush=True)

        return print_line

    def moveto(self, n: int) -> None:
        """Move the cursor to the line of another bar, which only a terminal has."""
        if _is_terminal():
            super().moveto(n)


def _is_terminal() -> bool:
    return sys.stderr.isatty()
