"""Errors that end a command: bad input, and the signal to stop."""

import signal
from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Bad input from outside: a setting, a file, a record, a folder.

    The message is one line that says what was wrong, where (file, record, field) and what to do. Every
    entry point prints it without a traceback and ends with `exit_code`.
    """

    exit_code = 2


class NothingLearned(InputError):
    """Training has ended without a model that could be used; it is not saved as the final one."""

    exit_code = 1


class LocalError(InputError):
    """An error that only one of several processes knows. The launcher then ends the other processes.

    Any other `InputError` is raised in every process.
    """


class Terminated(SystemExit):
    """Raised on SIGTERM, so that `finally` blocks run and partial files are removed. The exit code is 143."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def suggestion(word: str, known: Iterable[str]) -> str:
    """A question for a message about an unknown word: "; did you mean 'train'?", or nothing."""
    near = get_close_matches(word, [*known], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
