"""How a command ends when it cannot go on: the one error a user is meant to read, and the order to stop."""

import signal


class InputError(ValueError):
    """Bad input from outside: a setting, a file, a record, a folder.

    The message is one line that says what was wrong, where (file, record, field) and what to do. Every
    entry point prints it without a traceback and ends with exit code 2.
    """


class LocalError(InputError):
    """What only the process that raises it knows of; the others end by its end. Other errors are those of all."""


class Terminated(SystemExit):
    """SIGTERM came. Blocks are left and half-written files removed; the exit code is that of the signal, 143."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)
