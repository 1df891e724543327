"""A reader's windows in files that are mapped into memory: one copy a machine, whatever number of processes reads it.

A folder for each data set, with a file for each array of `Windows`, and `sizes.json`, the note of their types and
sizes. Its name is a hash of all that the windows are made of, so that a resumed run finds its own.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from accelerate import PartialState

from rl_qg.readers.reader import Windows
from rl_qg.runtime.files import read_record, write_json

NOTE = "sizes.json"
ARRAYS = [field.name for field in fields(Windows) if field.name != "questions_cut"]


def stored_windows(
    folder: Path, made_of: Mapping[str, Any], make: Callable[[], Iterable[Windows]], state: PartialState
) -> Windows:
    """The windows of which `make` gives the parts in order, mapped into memory. What is in `folder` already is not
    made again; else one process of each machine makes it. Every process calls this.
    """
    name = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
    place = folder / name
    with state.local_main_process_first():
        if not place.exists():
            folder.mkdir(parents=True, exist_ok=True)
            part = Path(mkdtemp(prefix=f".{name}-", dir=folder))
            try:
                _write(part, make())
                part.rename(place)
            except OSError:
                if not place.exists():  # else another machine, or reader, with the same folder was first
                    raise
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return _mapped(place)


def _write(folder: Path, parts: Iterable[Windows]) -> None:
    """Write the arrays of all parts, one part in memory at a time, and the note last."""
    note: dict[str, Any] = {"questions_cut": 0, "arrays": {}}
    tokens = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in ARRAYS}
        for part in parts:
            bounds = part.bounds + tokens
            arrays = {name: getattr(part, name) for name in ARRAYS} | {"bounds": bounds[1:] if tokens else bounds}
            for name, array in arrays.items():
                if array is not None:
                    files[name].write(array.tobytes())
                    rows = note["arrays"].setdefault(name, {"type": array.dtype.str, "shape": [0, *array.shape[1:]]})
                    rows["shape"][0] += len(array)
            tokens = int(bounds[-1])
            note["questions_cut"] += part.questions_cut
    write_json(folder / NOTE, note)


def _mapped(folder: Path) -> Windows:
    note = read_record(folder / NOTE)
    arrays: dict[str, Any] = dict.fromkeys(ARRAYS)
    for name, rows in note["arrays"].items():
        # Copied where it is written to, which nobody does: torch warns of arrays that cannot be written to.
        mapped = np.memmap(folder / name, rows["type"], mode="c", shape=tuple(rows["shape"]))
        arrays[name] = np.asarray(mapped)
    return Windows(**arrays, questions_cut=note["questions_cut"])
