"""The questions of `rl-qg rate demo`: those that a finished run of the quickstart compares on held-out passages.

rl-qg pipeline preset=quickstart output_dir=runs/quickstart
python experiments/rating/demo_questions.py runs/quickstart
"""

import sys
from pathlib import Path

from rl_qg.rating.demo import PACKAGED
from rl_qg.runtime.files import read_json, write_json_lines

SYSTEMS = {"ce": "ce", "scst": "scst", "human": "gold"}  # and their fields in a sample
TEXTS = ("id", "context", "answer", "answer_start")

if __name__ == "__main__":
    samples = read_json(Path(sys.argv[1]) / "evaluation.json")["samples"]
    write_json_lines(
        PACKAGED,
        (
            {"system": system, **{name: sample[name] for name in TEXTS}, "question": sample[field]}
            for sample in samples
            for system, field in SYSTEMS.items()
        ),
    )
