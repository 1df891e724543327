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
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.golden_outputs.contents import Fields, changed_fields, fingerprint, read_folder, read_text
from tests.golden_outputs.run_cases import start

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES, MODEL_CASES, STORED = HERE / "cases.txt", HERE / "model_cases.txt", HERE / "hashes.json"
# Sums differ in their last bits between processors, and the more digits are kept, the more often these round apart.
DIGITS_OF_HASHES, DIGITS = 10, 12


def outputs(trees: Mapping[str, Path], files: Sequence[Path], folder: Path) -> dict[str, dict[str, Fields]]:
    """What the cases of `files` write with each version of the package, by the name of the version; all at once.

    Raises:
        RuntimeError: a version cannot run cases at all.
    """
    running = {name: start(tree, folder / name, files) for name, tree in trees.items()}
    codes = {name: process.wait() for name, process in running.items()}
    if any(codes.values()):
        raise RuntimeError(f"the cases have not run to their end: exit codes {codes}")
    digits = DIGITS if len(trees) > 1 else DIGITS_OF_HASHES
    found = {name: read_folder(folder / name, folder / name / "home", trees[name], digits) for name in trees}
    for name, tree in trees.items():
        for path in sorted((tree / "tests/bad_input").glob("*.txt")):
            found[name][f"bad_input/{path.name}"] = read_text(path.read_text(encoding="utf-8"), ".txt")
    return found


def stored_hashes() -> dict[str, str]:
    """By file: `contents.fingerprint`."""
    stored: dict[str, str] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return stored


def write_hashes(found: Mapping[str, Fields]) -> None:
    """Store the hashes of what was found."""
    STORED.write_text(json.dumps({name: fingerprint(found[name]) for name in sorted(found)}, indent=0) + "\n")


def differing(stored: Mapping[str, str], found: Mapping[str, Fields]) -> list[str]:
    """What differs from the stored hashes, by file and field."""
    return [
        *(f"{name}: is no longer written" for name in sorted(stored.keys() - found.keys())),
        *(f"{name}: is new" for name in sorted(found.keys() - stored.keys())),
        *(
            f"{name}: {line}"
            for name in sorted(stored.keys() & found.keys())
            for line in changed_fields(stored[name], found[name])
        ),
    ]
