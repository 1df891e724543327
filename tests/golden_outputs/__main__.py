"""`python -m tests.golden_outputs update`: store hashes anew. `… same-as REV`: compare with the outputs of REV."""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.golden_outputs import CASES, MODEL_CASES, ROOT, STORED, differing, outputs, stored_hashes, write_hashes
from tests.golden_outputs.contents import changed_fields, differences
from tests.golden_outputs.run_cases import read_cases
from tests.long_tests import last_landed


def update() -> int:
    """Run the cases, say what has changed, and write `hashes.json`."""
    with tempfile.TemporaryDirectory() as folder:
        found = outputs({"now": ROOT}, [CASES], Path(folder))["now"]
    changed = differing(stored_hashes(), found, changed_fields)
    write_hashes(found)
    print("\n".join([*changed, f"{STORED}: {len(found)} files, {len(changed)} changes"]))
    return 0


def same_as(revision: str) -> int:
    """Run all cases with the code of a commit and with that of the working tree, at once, and name what differs."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        commit = last_landed() if revision == "last-landed" else revision
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
        if archive.returncode:
            return archive.returncode  # git has said why
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(tree, filter="data")
        # Names of one length: where lines are cut, that of a folder may count.
        sides = outputs({"old": tree, "new": ROOT}, [CASES, MODEL_CASES], Path(folder))
    lines = differing(sides["old"], sides["new"], differences)
    cases = [case for path in (CASES, MODEL_CASES) for case in read_cases(path)]
    end = f"{len(sides['new'])} files of {len(cases)} cases" + (": these differ" if lines else " are the same")
    print("\n".join([*lines, end]))
    return int(bool(lines))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["update"]:
            sys.exit(update())
        case ["same-as", revision] if revision:
            sys.exit(same_as(revision))
        case _:
            sys.exit("usage: make golden-update, or make same-as REV=main")
