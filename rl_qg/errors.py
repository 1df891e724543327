"""The one error a user is meant to read."""


class InputError(ValueError):
    """Bad input from outside: a setting, a file, a record, a folder.

    The message is one line that says what was wrong, where (file, record, field) and what to do. Every
    entry point prints it without a traceback and ends with exit code 2.
    """
