"""Whether the Hugging Face Hub answers; imports no library of it."""

import os
import urllib.error
import urllib.request

PATIENCE_S = 3.0
_answered = False


def hub_answers() -> bool:
    """Ask the Hub, unless it has answered before in this process."""
    global _answered
    if not _answered:
        try:
            urllib.request.urlopen(os.environ.get("HF_ENDPOINT", "https://huggingface.co"), timeout=PATIENCE_S).close()
        except urllib.error.HTTPError:
            pass  # it answers
        except OSError:
            return False
        _answered = True
    return True
