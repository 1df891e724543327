"""Golden outputs: what the smallest runs of every command write, so that a change of the code shows what it changes.

- `cases.txt`: commands without the arithmetic of a model. Hashes of every field of what they write and print are in
  `hashes.json`, which the test compares; `make golden-update` runs them, prints what has changed and stores it. The
  diff of `hashes.json` in a commit then says which fields of which files it changed.
- `model_cases.txt`: commands with models, whose numbers differ between processors. `make same-as REV=main` runs them,
  and the others, with the code of REV and with that of the working tree, and prints what differs, with both values.
- `inputs/`: small files of our own, and of the embedded corpus.

Cases use the command line alone (`run_cases.py`), so they run with older versions too. `contents.py` says what of a
file is compared: all but times, versions and the machine; of numbers 10 digits in `hashes.json`, 12 in `same-as`;
tensors bit for bit. TensorBoard's events, pictures and the states of optimizers are not compared.

The transcripts of `tests/bad_input` run there. Here their text is hashed, so that a change of one is told too.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.golden_outputs.contents import Fields, fingerprint, read_folder, read_text
from tests.golden_outputs.run_cases import start

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES, MODEL_CASES, STORED = HERE / "cases.txt", HERE / "model_cases.txt", HERE / "hashes.json"
# Sums differ in their last bits between processors, and the more digits are kept, the more often these round apart.
DIGITS_OF_HASHES, DIGITS = 10, 12
SHOWN = 8  # differences of a file
T = TypeVar("T")


def outputs(trees: Mapping[str, Path], files: Sequence[Path], folder: Path) -> dict[str, dict[str, Fields]]:
    """What the cases of `files` write with each version of the package, by the name of the version; all at once.

    Raises:
        RuntimeError: a version cannot run cases at all.
    """
    running = {name: start(tree, folder / name, files) for name, tree in trees.items()}
    try:
        for name, process in running.items():
            if code := process.wait():
                raise RuntimeError(f"the cases have not run to their end with {trees[name]}: exit code {code}")
    finally:
        for process in running.values():
            process.kill()
    digits = DIGITS if len(trees) > 1 else DIGITS_OF_HASHES
    found = {name: read_folder(folder / name, folder / name / "home", trees[name], digits) for name in trees}
    for name, tree in trees.items():
        for path in sorted((tree / "tests/bad_input").glob("*.txt")):
            found[name][f"bad_input/{path.name}"] = read_text(path.read_text(encoding="utf-8"), path.name)
    return found


def stored_hashes() -> dict[str, str]:
    """By file: `contents.fingerprint`."""
    stored: dict[str, str] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return stored


def write_hashes(found: Mapping[str, Fields]) -> None:
    """Store the hashes of what was found."""
    STORED.write_text(json.dumps({name: fingerprint(found[name]) for name in sorted(found)}, indent=0) + "\n")


def differing(
    before: Mapping[str, T], after: Mapping[str, Fields], compare: Callable[[T, Fields], list[str]]
) -> list[str]:
    """What differs, by file and field: from stored fingerprints, or from other contents, as `compare` does it."""
    found = [f"{name}: is no longer written" for name in sorted(before.keys() - after.keys())]
    found += [f"{name}: is new" for name in sorted(after.keys() - before.keys())]
    for name in sorted(before.keys() & after.keys()):
        lines = compare(before[name], after[name])
        found += [f"{name}: {line}" for line in lines[:SHOWN]]
        found += [f"{name}: and {len(lines) - SHOWN} more"] * (len(lines) > SHOWN)
    return found
