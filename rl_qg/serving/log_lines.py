"""Lines of the log as JSON, and headers that every answer has."""

import json
import logging
import time
import traceback
from typing import Any

# Set where a route has not set them: the page has a policy of its own.
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def described(error: BaseException, *, message: bool = False) -> dict[str, Any]:
    """The type of an error and the last places of its way through the code; its message, which may hold texts, only
    on demand.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno}" for frame in frames[-8:]]
    return {"type": type(error).__name__, "at": places} | ({"message": str(error)} if message else {})


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, event, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)
