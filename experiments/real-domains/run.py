"""Reinforcement in a domain without questions: the arms of one domain and seed, each a command of `rl-qg`.

    python experiments/real-domains/run.py --data DATA --encoder ENCODER --reader READER --domain new_wiki --seed 1 \
        --output runs/real-domains --results experiments/real-domains/results.json

DATA is what experiments/real-generator/prepare.py wrote. Cross-entropy learns from SQuAD, Amazon's reviews and fairy
tales: neither of the judged domains, new Wikipedia and Reddit, is in it, so that both start from one generator. The
domain gives passages and answers alone. Each arm then has `UPDATES` updates of 16 answers. Greedy questions about the
domain's judged passages are measured as in experiments/real-generator/measure.py. What is done is not done again, so a
killed command continues; results are kept for each domain, seed and arm.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rl_qg.runtime.files import read_json, write_json

UPDATES, BATCH, SAMPLES = 200, 16, 4  # of each arm
SHARE = 0.8  # of the answers of an update, those of the domain, without questions
TRAINING = (
    "model.max_source_length=128",
    "model.max_target_length=32",
    "held_out=none",
    "evaluation.check_reward=0",
    "training.use_cpu=true",
    "training.save_steps=50",
)
SCST = (
    "stages=scst",
    f"scst.num_samples={SAMPLES}",
    "scst.baseline=leave_one_out",
    "scst.schedule=constant",
    "scst.learning_rate=1e-4",
    f"scst.unlabelled_share={SHARE}",
    "scst.max_new_tokens=32",
    "scst.top_p=0.9",  # drawn from all tokens, a third of the samples had a broken word
    "scst.kl_coefficient=0.3",
    "scst.kl_target=0.2",
)
ARMS = {  # after the start; equal updates and equal samples
    "ce-continued": ("stages=ce", "ce.learning_rate=1e-4"),
    "best-of-n": (*SCST, "reward=gated", "algorithm=best_of_n"),
    "scst-gated": (*SCST, "reward=gated"),
    "scst-reader": (*SCST, "reward=reader", "reward.measure=log_probability"),
}


def run(command: str, *options: str) -> None:
    """Run one command of rl-qg; its output goes to a file beside the output that it names."""
    target = next(value.partition("=")[2] for value in options if value.startswith("output_dir="))
    log = Path(f"{target}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as stream:
        command_line = [sys.executable, "-m", "rl_qg", command, *options]
        done = subprocess.run(command_line, stdout=stream, stderr=stream, env=os.environ | {"OMP_NUM_THREADS": "1"})
    print(f"{'done' if done.returncode == 0 else 'FAILED'}: {command} {target}", flush=True)
    done.check_returncode()


def questions_of(path: Path) -> int:
    return sum(len(passage["qas"]) for article in read_json(path)["data"] for passage in article["paragraphs"])


def trained(given: argparse.Namespace, arm: str) -> Path:
    """The model of an arm; of "ce" that from which all others start, of both domains."""
    gold, start = given.data / "without-judged.json", given.output / f"start-{given.seed}"
    folder = start if arm == "ce" else given.output / given.domain / str(given.seed) / arm
    common = [
        *TRAINING,
        f"training.precision={given.precision}",
        f"data.train={gold}",
        f"seed={given.seed}",
        f"output_dir={folder}",
    ]
    if given.precision == "bf16" and arm not in ("ce", "ce-continued"):
        common.append("reward.dtype=bfloat16" if arm == "scst-reader" else "+reward.parts.reader.dtype=bfloat16")
    if arm == "ce":
        rest = ["model=prefix", f"model.path={given.encoder}", "stages=ce", "ce.epochs=1", "ce.learning_rate=3e-4"]
        watched = [f"data.validation={given.data / 'validation.json'}", "training.eval_steps=600"]
        run("train", *rest, "ce.label_smoothing=0", "training.batch_size=32", *watched, *common)
        return folder / "ce"
    judged = [f"data.validation={given.data / f'{given.domain}-test.json'}", "data.max_validation=64"]
    options = [f"model.path={start / 'ce'}", f"training.batch_size={BATCH}", *ARMS[arm], *judged, *common]
    if arm == "ce-continued":
        run("train", *options, f"ce.epochs={UPDATES * BATCH / questions_of(gold):.5f}")
        return folder / "ce"
    passages = given.data / f"{given.domain}.json"
    epochs = f"scst.epochs={UPDATES * BATCH * SHARE / questions_of(passages):.5f}"
    run("train", *options, f"reward_models.reader={given.reader}", f"data.unlabelled={passages}", epochs)
    return folder / "scst"


def measured(given: argparse.Namespace, arm: str, model: Path) -> dict[str, float]:
    output = given.output / given.domain / str(given.seed) / f"{arm}.json"
    if not output.exists():
        script = Path(__file__).resolve().parents[1] / "real-generator/measure.py"
        data = ["--data", str(given.data / f"{given.domain}-test.json"), "--reader", f"reader={given.reader}"]
        subprocess.run([sys.executable, script, *data, "--output", output, f"{arm}={model}"], check=True)
    return dict(read_json(output)["measures"][arm])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "encoder", "reader", "output", "results"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--domain", choices=("new_wiki", "reddit"), required=True)
    parser.add_argument("--seed", type=int, required=True)
    bf16 = parser.add_argument("--precision", choices=("no", "bf16"), default="bf16")
    bf16.help = "of all arms of a seed; no: float32, for processors without bf16"
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    given = parser.parse_args(arguments)
    for arm in ("ce", *given.arms):
        model = trained(given, arm)
        row = measured(given, arm, model)
        results = read_json(given.results) if given.results.exists() else {}
        results.setdefault(given.domain, {}).setdefault(str(given.seed), {})[arm] = row
        write_json(given.results, results)


if __name__ == "__main__":
    main()
