"""Trackers of metrics: TensorBoard by default, W&B or trackio by `training.report_to`."""

import importlib.util
import os
import sys

from rl_qg.runtime.errors import InputError

TRACKERS = ("tensorboard", "wandb", "trackio")
PROJECT = "rl-qg"


def finish_trackers() -> None:
    """Close the trackers in use; needed where the process ends without the shutdown of the interpreter."""
    for name in ("wandb", "trackio"):
        if name in sys.modules:
            sys.modules[name].finish()


def check_tracker(name: str) -> None:
    """Check, before anything is loaded, that a tracker is known and installed; for W&B, set the project.

    Raises:
        InputError: it is not; the message says what to install.
    """
    if name == "none":
        return
    if name not in TRACKERS:
        raise InputError(f"training.report_to={name} is not one of {', '.join(TRACKERS)}, none")
    if importlib.util.find_spec(name) is None:
        raise InputError(
            f"training.report_to={name}: {name} is not installed; install it: pip install {name}, "
            "or use none: training.report_to=none"
        )
    os.environ.setdefault("WANDB_PROJECT", PROJECT)  # the library has no argument for it
