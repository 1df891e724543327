"""The self-critical runs of this experiment: three rewards, three seeds each, and one pushed further; resumable.

    python experiments/real-text-rl/run.py --shared ../shared --models runs/real-text-rl/models \\
        --ce runs/real-text-rl/ce/ce --output runs/real-text-rl/scst

Each is the plain command `rl-qg train stages=scst …`, printed before it starts. A complete run is not run again.
"""

import argparse
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REWARDS = {
    "qrelscore": {"encoder": "minilm", "decoder": "gpt2"},
    "qascore": {"model": "roberta"},
    "bartscore": {"model": "bart"},
}
WATCHED = {"qrelscore": "bartscore", "qascore": "qrelscore", "bartscore": "qrelscore"}
COMMON = {
    "stages": "scst",
    "model.max_source_length": 128,
    "model.max_target_length": 32,
    "data.max_train": 480,
    "training.use_cpu": "true",
    "training.precision": "bf16",
    "training.batch_size": 8,
    "training.logging_steps": 5,
    "training.eval_steps": 15,
    "training.eval_samples": 96,
    "training.save_steps": 30,
    "training.save_total_limit": 1,
    "scst.max_new_tokens": 32,
    "scst.normalise_advantage": "true",
}
GENTLE = {"scst.epochs": 1, "scst.learning_rate": 1e-4, "scst.schedule": "constant"}
PUSHED = {"scst.epochs": 2, "scst.learning_rate": 2e-4, "scst.schedule": "constant", "scst.lambda_max": 4}


def command(args: argparse.Namespace, reward: str, seed: int, folder: Path, course: dict[str, object]) -> list[str]:
    data = args.shared / "data" / "squad"
    keys: dict[str, object] = {
        **COMMON,
        **course,
        "seed": seed,
        "reward": reward,
        "held_out": WATCHED[reward],
        "model.path": args.ce,
        "data.train": data / "du_test-v1.1.json.gz",
        "data.validation": data / "dev_part1-v1.1.json.gz",
        "output_dir": folder,
        **{f"reward.{key}": args.models / path for key, path in REWARDS[reward].items()},
        **{f"held_out.{key}": args.models / path for key, path in REWARDS[WATCHED[reward]].items()},
    }
    return ["train", *(f"{key}={value}" for key, value in keys.items())]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--ce", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--at-once", type=int, default=2)
    args = parser.parse_args()
    jobs = [(reward, seed, f"{reward}-{seed}", GENTLE) for seed in args.seeds for reward in REWARDS]
    jobs.append(("qrelscore", 1, "qrelscore-pushed", PUSHED))

    def run(job: tuple[str, int, str, dict[str, object]]) -> int:
        reward, seed, name, course = job
        folder = args.output / name
        arguments = command(args, reward, seed, folder, course)
        print("rl-qg", shlex.join(arguments), flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (args.output / f"{name}.log").open("w") as log:
            return subprocess.run(
                [sys.executable, "-c", "from rl_qg.commands.cli import main; main()", *arguments],
                env={**os.environ, "OMP_NUM_THREADS": "1"},  # a core for each run
                stdout=log,
                stderr=log,
            ).returncode

    with ThreadPoolExecutor(args.at_once) as pool:
        codes = list(pool.map(run, jobs))
    failed = [name for (_, _, name, _), code in zip(jobs, codes, strict=True) if code]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see their logs")


if __name__ == "__main__":
    main()
