"""What `rl-qg rate analyse` makes of the raw ratings of a published study, and how weak a published control is.

    python experiments/rating/dialogue.py convert FOLDER     # RUN.jsonl of each run, as `rl-qg rate analyse` reads it
    python experiments/rating/dialogue.py control [RATERS]   # who passes QAScore's control
    python experiments/rating/dialogue.py sizes              # time of an analysis of QAScore's size

The ratings: `../shared/data/da_dialogue` (Ji et al., ACL 2022). `dialogue.md` has the results.
"""

import csv
import gzip
import json
import sys
import time
from pathlib import Path

import numpy as np
from simulated_raters import RATER_KINDS, simulated_values

from rl_qg.stats.mixed_model import fit_mixed_model
from rl_qg.stats.rank_tests import signed_rank

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "data" / "da_dialogue" / "ratings.csv.gz"
CRITERIA = ("robotic", "interesting", "fun", "consistent", "fluent", "repetitive", "topic")
PAIRS, CRITERIA_OF_QASCORE, EFFECT = 6, 4, 20.0  # of one task of QAScore; points by which degraded questions are worse


def convert(folder: Path) -> None:
    """One file of ratings for each run; the passed workers of each are printed."""
    folder.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[str]] = {}
    with gzip.open(SOURCE, "rt", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            fields = {"rater": row["worker"], "hit": row["hit"], "assignment": row["assignment"]}
            fields |= {"item": row["assignment"], "system": row["system"]}  # everyone has dialogues of their own
            fields["kind"] = "degraded" if row["system"] == "QualityControl" else "ordinary"
            for name in CRITERIA:
                line = json.dumps({**fields, "criterion": name, "value": float(row[f"raw_{name}"])})
                runs.setdefault(row["run"], []).append(line)
    for run, lines in runs.items():
        (folder / f"{run}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{folder / run}.jsonl: {len(lines):,} ratings")


def control(raters: int) -> None:
    """The share of simulated raters who pass with p < .05, by tasks and unit."""
    print("| raters | tasks | single ratings, as published | item means |\n| --- | ---: | ---: | ---: |")
    for kind in RATER_KINDS:
        for tasks in (1, 2, 3, 5):
            rng = np.random.default_rng(tasks)
            passed = np.zeros(2)
            for _ in range(raters):
                ease = rng.normal(60, 5, PAIRS * tasks)
                good, bad = (simulated_values(kind, q, CRITERIA_OF_QASCORE, rng) for q in (ease, ease - EFFECT))
                pairs = ((good.ravel(), bad.ravel()), (good.mean(axis=1), bad.mean(axis=1)))
                tests = [signed_rank(a, b) for a, b in pairs]
                passed += [test is not None and test.p < 0.05 for test in tests]
            single, means = passed / raters
            print(f"| {kind} | {tasks} | {single:.3f} | {means:.3f} |", flush=True)


def sizes() -> None:
    """The mixed model on as many questions as QAScore's first run has, by 350 raters of about 330 passages."""
    rng = np.random.default_rng(1)
    rater = np.repeat(np.arange(350), 11 * 3)
    item = np.repeat(rng.integers(0, 330, 350 * 3), 11)
    system = np.tile(np.arange(11), 350 * 3)
    scores = 50 + system + rng.normal(0, 8, 350)[rater] + rng.normal(0, 5, 330)[item] + rng.normal(0, 10, len(rater))
    began = time.perf_counter()
    model = fit_mixed_model(scores, np.eye(11)[system], tuple(map(str, range(11))), rater, item)
    assert model is not None
    print(f"{len(scores):,} scores: {time.perf_counter() - began:.1f} s; standard deviations (8, 5 and 10 planted) "
          f"{model.rater_sd:.2f} {model.item_sd:.2f} {model.residual_sd:.2f}")  # fmt: skip


if __name__ == "__main__":
    task, *rest = sys.argv[1:] or ["control"]
    if task == "convert":
        convert(Path(rest[0]))
    elif task == "control":
        control(int(rest[0]) if rest else 2000)
    else:
        sizes()
