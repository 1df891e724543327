"""The run folder: which run a folder holds, and whether a command may continue it."""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer

CONFIG = "config.yaml"
ACCEPT = "accept_changed_data"  # says how to continue a run, and is not part of its settings
TRAINED = "trained.json"  # written last: all training stages are complete
MEASURES = "measures.json"  # in the folder of a stop (`training.stop_after`), written last: it is measured


def check_run_folder(folder: Path, settings: Mapping[str, Any], unused: Collection[str] = ()) -> bool:
    """Return whether `folder` holds a run with these settings that can be continued. Writes nothing.

    Sections in `unused` may differ: no result in the folder depends on them yet. A run that ended before its first
    result (a wrong path, a hub that cannot be reached) does not claim its folder.

    Raises:
        InputError: `folder` holds a run with other settings, or files that do not belong to a run.
    """
    try:
        names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise InputError(f"output_dir={folder}: cannot be read ({error.strerror}); name another folder") from None
    complete = {name for name in names if not (name.startswith(".") and name.endswith(".part"))}
    if complete <= {CONFIG, "run.json"}:
        return False
    if CONFIG not in complete:
        raise InputError(
            f"output_dir={folder}: not empty and not a run folder; name another, or empty it if you need none of it"
        )
    earlier = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
    now = json.loads(json.dumps(dict(settings)))
    changed = [
        f"{key}: {old!r} -> {new!r}"
        for key, old, new in _differences(earlier, now)
        if key.partition(".")[0] not in unused
    ]
    if changed:
        raise InputError(
            f"output_dir={folder}: holds a run with other settings ({'; '.join(changed[:3])}); "
            "name another folder for a new run"
        )
    return True


def claim_run_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make `folder` the run folder of these settings by writing `config.yaml`. Call `check_run_folder` first.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        with atomic_writer(folder / CONFIG) as stream:
            stream.write(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise InputError(f"output_dir={folder}: cannot be written ({error.strerror}); name another folder") from None


def stop_folder(run: Path, passes: float) -> Path:
    """The folder of the model after so many passes over the data, such as `epoch-2`."""
    return run / f"epoch-{passes:g}"


def is_measured(run: Path, passes: float | None) -> bool:
    """Whether a run has stopped after these passes and was measured there."""
    return passes is not None and (stop_folder(run, passes) / MEASURES).exists()


def _differences(earlier: Any, now: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(earlier, dict) and isinstance(now, dict):
        for name in [*earlier, *(name for name in now if name not in earlier)]:
            if not key and name == ACCEPT:
                continue
            yield from _differences(earlier.get(name), now.get(name), f"{key}.{name}" if key else str(name))
    elif earlier != now:
        yield key, earlier, now
