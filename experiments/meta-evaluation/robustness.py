"""Every metric on questions made wrong and said in other words, by `rl-qg robustness`; a killed run goes on.

    python experiments/meta-evaluation/robustness.py --questions xquad.en.json --output DIR [--encoder MINILM] …

The models are those of `run.py`. The number of words is among the metrics: what it tells apart, length tells.
"""

import argparse
from pathlib import Path

from run import EVERYTHING, add_models, judge, metrics_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--output", type=Path, required=True)
    add_models(parser)
    given = parser.parse_args()
    judge("robustness", [f"input={given.questions}", f"output={given.output}"], metrics_for(EVERYTHING, given))


if __name__ == "__main__":
    main()
