"""`rl-qg train preset=quickstart` on this device: its seconds, and what it learned.

From the log of the run come the measures of greedy questions on validation passages, at the evaluations that begin
and end the self-critical stage. `right` is the share of questions that ask for their answer, by the corpus's own
judge, of the generators of both stages, on passages that the run has not seen.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from launches import command_options, run
from part import DEVICE, Part, arguments

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.oracle import judgements
from rl_qg.generation.generator import CandidateGenerator

PRESET = {"full": "quickstart", "tiny": "smoke"}
LIMIT = 420  # seconds
PASSAGES = {"full": 100, "tiny": 4}
MEASURES = ("reward_greedy", "held_out", "bleu4", "rouge_l", "unsupported")


def curve(size: str, miniatures: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        seconds = run(["-m", "rl_qg", "train", *command_options(PRESET[size], Path(folder), miniatures)], LIMIT)
        log = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found = {"seconds": seconds, **summary([json.loads(line) for line in log])}
        return found | {"right": right(Path(folder), PASSAGES[size])}


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Updates, samples a second of the self-critical stage, and the measures at its begin and its end."""
    boundary = max((line["step"] for line in lines if line["stage"] == "ce"), default=0)
    evaluated = [line for line in lines if "eval_loss" in line and line["step"] >= boundary]
    rates = [line["samples_per_second"] for line in lines if line["stage"] == "scst" and "samples_per_second" in line]
    return {
        "updates": lines[-1]["step"],
        "samples_per_second": sorted(rates)[len(rates) // 2],
        "start": measures(evaluated[0]),
        "end": measures(evaluated[-1]),
    }


def measures(line: dict[str, Any]) -> dict[str, float]:
    return {"step": line["step"], **{name: line[f"eval_{name}"] for name in MEASURES if f"eval_{name}" in line}}


def right(run_folder: Path, passages: int) -> dict[str, float]:
    """The share of right questions of each stage's generator, greedy."""
    examples = [*synthetic_examples(passages, seed=0, prefix="gpu")]
    found: dict[str, float] = {"questions": len(examples)}
    for stage in ("ce", "scst"):
        generator = CandidateGenerator(run_folder / stage, device=DEVICE)
        asked = [
            question
            for start in range(0, len(examples), 64)
            for question in generator.greedy(examples[start : start + 64], max_new_tokens=40)
        ]
        right = [one is not None and one.verdict == "right" for one in judgements(asked, examples)]
        found[stage] = sum(right) / len(right)
    return found


def main() -> None:
    options = arguments(__doc__)
    part = Part(options, {"preset": PRESET[options.size]})
    part.measure(PRESET[options.size], lambda: curve(options.size, options.models / "miniatures"))
    part.finish()


if __name__ == "__main__":
    main()
