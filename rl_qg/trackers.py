"""Where metrics are shown: TensorBoard by default, W&B or trackio by `training.report_to`."""

import importlib.util
import os

from rl_qg.errors import InputError

TRACKERS = ("tensorboard", "wandb", "trackio")
PROJECT = "rl-qg"


def check_tracker(name: str) -> None:
    """Find out before anything is loaded that a tracker is unknown or not installed; for W&B, name the project.

    Raises:
        InputError: with what to install.
    """
    if name == "none":
        return
    if name not in TRACKERS:
        raise InputError(f"training.report_to={name} is not one of {', '.join(TRACKERS)}, none")
    if importlib.util.find_spec(name) is None:
        raise InputError(
            f"training.report_to={name}: {name} is not installed; install it: pip install {name}, "
            "or go without: training.report_to=none"
        )
    os.environ.setdefault("WANDB_PROJECT", PROJECT)  # the library has no argument for it
