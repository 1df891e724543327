"""The questions of `rl-qg rate demo`: those that a finished run of the quickstart compares on held-out passages.

rl-qg pipeline preset=quickstart output_dir=runs/quickstart
python experiments/rating/demo_questions.py runs/quickstart
"""

import sys
from pathlib import Path

from rl_qg.rating.demo import PACKAGED, compared_questions
from rl_qg.runtime.files import write_json

if __name__ == "__main__":
    write_json(PACKAGED, compared_questions(Path(sys.argv[1])))
