"""Loading pretrained models: what is wrong with one is one line that names its setting."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rewards.pretrained import ModelFault, explained
from rl_qg.runtime.errors import InputError


@contextmanager
def loading(path: str, key: str, kind: str) -> Iterator[str]:
    """Give the name to load a model by, and turn what goes wrong meanwhile into one line.

    Args:
        path: a local folder or a name on the Hugging Face Hub.
        key: the setting that names `path`.
        kind: what is loaded, for the message.

    Raises:
        InputError: there is no such folder, or no such model can be loaded.
    """
    if not path:
        raise InputError(f"{key} has no value; give a folder, or a name on the Hugging Face Hub")
    setting, folder = f"{key}={path}", os.path.expanduser(path)  # pathlib raises for an unknown user, or a long name
    is_local = os.path.isdir(folder)
    if os.path.isfile(folder):
        raise InputError(f"{setting}: is a file; give the folder of a model")
    if not is_local and (path.startswith(("/", ".", "~")) or path.count("/") > 1):
        raise InputError(f"{setting}: no such folder; check the path")
    if is_local and not os.path.exists(os.path.join(folder, "config.json")):
        raise InputError(f"{setting}: no model folder (it has no config.json); name one that save_pretrained wrote")
    try:
        with explained():
            yield folder if is_local else path
    except ModelFault as fault:
        if is_local:
            raise InputError(f"{setting}: no {kind} in this folder can be loaded ({fault})") from None
        if not fault.unreachable:
            raise InputError(f"{setting}: cannot be used ({fault})") from None
        raise InputError(
            f"{setting}: the Hugging Face Hub could not be reached, or has no such model ({fault}); offline, give a "
            f"local folder with {key}=FOLDER, or run preset=quickstart, which needs no Hub"
        ) from None
