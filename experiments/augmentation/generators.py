"""The generators of this experiment: cross-entropy on gold and template questions, then three rewards; resumable.

    python experiments/augmentation/generators.py --gold runs/augmentation/study/data/low-*/gold.json \\
        --development runs/augmentation/study/data/validation-*/development.json --runs runs/augmentation

On gold questions alone a model of this size forgets how to copy (README), so both stages see template questions too.
Each is the plain command `rl-qg train …`, printed before it starts. A complete run is not run again.
"""

import argparse
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rl_qg.data.examples import write_squad
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import take

TEMPLATES = 3000
REWARDS = {
    "qrelscore": {"encoder": "minilm", "decoder": "gpt2"},
    "qascore": {"model": "roberta"},
    "bartscore": {"model": "bart"},
}
COMMON = {
    "model.max_source_length": 128,
    "model.max_target_length": 40,
    "training.use_cpu": "true",
    "training.precision": "bf16",
    "training.batch_size": 16,
    "training.logging_steps": 5,
    "training.eval_samples": 48,
    "training.report_to": "none",
    "training.save_total_limit": 1,
    "scst.max_new_tokens": 36,
}
CE = {"stages": "ce", "ce.epochs": 1, "ce.learning_rate": 3e-4, "training.eval_steps": 125, "training.save_steps": 125}
SCST = {
    "stages": "scst",
    "data.max_train": 640,
    "scst.epochs": 1,
    "scst.learning_rate": 1e-4,
    "scst.schedule": "constant",
    "scst.normalise_advantage": "true",
    "scst.watch_kl": "false",
    "training.eval_steps": 20,
    "training.save_steps": 20,
}


def train(keys: dict[str, object], folder: Path) -> None:
    """One run, its output in a log beside it; raises when it fails."""
    arguments = ["train", *(f"{key}={value}" for key, value in {**COMMON, **keys, "output_dir": folder}.items())]
    print("rl-qg", shlex.join(arguments), flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".log").open("w") as log:
        subprocess.run(
            [sys.executable, "-c", "from rl_qg.commands.cli import main; main()", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # a core for each run
            stdout=log,
            stderr=log,
            check=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gold", type=Path, required=True)
    parser.add_argument("--development", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/augmentation"))
    parser.add_argument("--output", type=Path, default=Path("runs/augmentation/generators"))
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--at-once", type=int, default=2)
    args = parser.parse_args()
    models, folder = args.runs / "models", args.output
    gold = read_examples(args.gold, role="train").examples
    templates = take(read_examples(args.runs / "templates.json", role="train").examples, TEMPLATES, 0)
    mixture = folder / "mixture.json"
    write_squad(mixture, [*gold, *templates])
    data: dict[str, object] = {"data.train": mixture, "data.validation": args.development}

    def cross_entropy(seed: int) -> None:
        start = {"model.path": args.runs / "warm" / "ce", "seed": seed}
        train({**data, **CE, **start}, folder / f"ce-{seed}")

    def by_reward(job: tuple[int, str]) -> None:
        seed, reward = job
        judges = {f"reward.{key}": models / path for key, path in REWARDS[reward].items()}
        start = {"model.path": folder / f"ce-{seed}" / "ce", "seed": seed, "data.seed": seed, "reward": reward}
        train({**data, **SCST, **start, **judges}, folder / f"{reward}-{seed}")

    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(cross_entropy, args.seeds))
        list(pool.map(by_reward, [(seed, reward) for seed in args.seeds for reward in REWARDS]))


if __name__ == "__main__":
    main()
