"""Reinforcement in domains without questions: the arms of domains and seeds, each a command of `rl-qg`.

    python experiments/real-domains/run.py --data DATA --encoder ENCODER --reader READER --judge JUDGE \
        --domains new_wiki reddit --seeds 1 2 3 --output runs/real-domains

DATA is what experiments/real-generator/prepare.py wrote; READER gives the reward, JUDGE is another reader. The start
of the judged domains, new Wikipedia and Reddit, learns by cross-entropy from SQuAD, Amazon's reviews and fairy tales,
that of Amazon from all but Amazon's reviews. The domain then gives passages and answers alone, and each arm has
`--updates` updates of 16 answers. Greedy questions about the domain's judged passages are measured as in
experiments/real-generator/measure.py; a reader is taught from the encoder on questions about answers of its other
passages, and answers the human questions. What is done is not done again, so a killed command continues.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rl_qg.runtime.files import read_json

DOMAINS = ("new_wiki", "reddit", "amazon")
BATCH, SAMPLES = 16, 4  # answers of an update, and samples of each
SHARE = 0.8  # of the answers of an update, those of the domain, without questions
READER_QUESTIONS = 4000  # that a reader is taught with
HUMAN = "human"
TRAINING = (
    "model.max_source_length=128",
    "model.max_target_length=32",
    "held_out=none",
    "evaluation.check_reward=0",
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
    "scst-qrelscore": (*SCST, "reward=qrelscore"),
}
DEFAULT_ARMS = ("scst-reader", "scst-gated", "best-of-n", "ce-continued")
START = "ce"
TAUGHT = (
    "qa.epochs=3",
    "qa.learning_rate=1e-4",
    "qa.max_length=256",
    "qa.doc_stride=64",
    "qa.by_length=true",
)


def run(command: str, target: Path, *options: str) -> None:
    """Run one command of rl-qg; its output goes to a file beside its target."""
    log = Path(f"{target}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as stream:
        command_line = [sys.executable, "-m", "rl_qg", command, *options]
        done = subprocess.run(command_line, stdout=stream, stderr=stream, env=os.environ | {"OMP_NUM_THREADS": "1"})
    print(f"{'done' if done.returncode == 0 else 'FAILED'}: {command} {target}", flush=True)
    done.check_returncode()


def questions_of(path: Path) -> int:
    return sum(len(passage["qas"]) for article in read_json(path)["data"] for passage in article["paragraphs"])


@dataclass(frozen=True)
class Study:
    """A domain with one seed."""

    given: argparse.Namespace
    domain: str
    seed: int

    @property
    def gold(self) -> Path:
        """The human questions, none of which is of the domain."""
        return self.given.data / f"without-{'amazon' if self.domain == 'amazon' else 'judged'}.json"

    @property
    def start(self) -> Path:
        return self.given.output / f"start-{self.gold.stem}-{self.seed}"

    @property
    def folder(self) -> Path:
        return Path(self.given.output / self.domain / str(self.seed))

    @property
    def machine(self) -> tuple[str, str]:
        return f"training.use_cpu={str(not self.given.gpu).lower()}", f"training.precision={self.given.precision}"

    def common(self, folder: Path) -> list[str]:
        saved = f"training.save_steps={500 if self.given.gpu else 50}"
        return [
            *TRAINING,
            saved,
            *self.machine,
            f"data.train={self.gold}",
            f"seed={self.seed}",
            f"output_dir={folder}",
        ]

    def train_start(self) -> None:
        rest = ["model=prefix", f"model.path={self.given.encoder}", "stages=ce", "ce.learning_rate=3e-4"]
        watched = [f"data.validation={self.given.data / 'validation.json'}", "training.eval_steps=600"]
        rest += ["ce.label_smoothing=0", "training.batch_size=32", f"ce.epochs={self.given.epochs:g}"]
        run("train", self.start, *rest, *watched, *self.common(self.start))

    def train(self, arm: str) -> Path:
        """The model of an arm."""
        if arm == START:
            return self.start / "ce"
        judged = [f"data.validation={self.given.data / f'{self.domain}-test.json'}", "data.max_validation=64"]
        options = [f"model.path={self.start / 'ce'}", f"training.batch_size={BATCH}", *ARMS[arm], *judged]
        folder, updates = self.folder / arm, self.given.updates
        if self.given.precision == "bf16" and arm != "ce-continued":
            part = "+reward.parts.reader" if "reward=gated" in ARMS[arm] else "reward"
            options.append(f"{part}.dtype=bfloat16")
        if arm == "scst-qrelscore":
            options += [f"reward.encoder={self.given.encoder}", f"reward.decoder={self.given.decoder}"]
        if arm == "ce-continued":
            options.append(f"ce.epochs={updates * BATCH / questions_of(self.gold):.5f}")
            run("train", folder, *options, *self.common(folder))
            return folder / "ce"
        passages = self.given.data / f"{self.domain}.json"
        options.append(f"scst.epochs={updates * BATCH * SHARE / questions_of(passages):.5f}")
        unlabelled = f"reward_models.reader={self.given.reader}", f"data.unlabelled={passages}"
        run("train", folder, *options, *unlabelled, *self.common(folder))
        return folder / "scst"

    def measure(self, arm: str, model: Path) -> None:
        output = self.folder / f"{arm}.json"
        if output.exists():
            return
        script = Path(__file__).resolve().parents[1] / "real-generator/measure.py"
        readers = [f"reader={self.given.reader}", *([f"judge={self.given.judge}"] if self.given.judge else [])]
        command = [sys.executable, script, "--data", self.given.data / f"{self.domain}-test.json", "--output", output]
        command += [*(word for reader in readers for word in ("--reader", reader)), f"{arm}={model}"]
        command += ["--device", "cuda"] if self.given.gpu else []
        subprocess.run(command, check=True)

    def teach(self, arm: str, model: Path | None) -> None:
        """A reader taught with the arm's questions; without a model, with human ones."""
        folder, questions = self.folder / f"{arm}-reader", self.folder / f"{arm}-train.jsonl"
        passages, seed = self.given.data / f"{self.domain}.json", f"seed={self.seed}"
        rest = ["data.train=" + str(passages if model is None else questions), f"data.max_train={READER_QUESTIONS}"]
        if model is not None:
            asked = ("num_beams=1", "keep=1", "max_new_tokens=32", "batch_size=64", f"max_answers={READER_QUESTIONS}")
            source = f"model.path={model}", f"data.train={passages}", self.machine[0]
            run("generate", questions, *source, *asked, seed, f"output={questions}")
        rest += [f"qa.model.path={self.given.encoder}", f"qa.seeds=[{self.seed}]", *TAUGHT, *self.machine]
        rest.append(f"data.validation={self.given.data / f'{self.domain}-test.json'}")
        run("qa", folder, *rest, f"output_dir={folder}")

    def run_arm(self, arm: str, start: Future[None]) -> None:
        """All of an arm, when its start is done."""
        model = None
        if arm != HUMAN:
            start.result()
            model = self.train(arm)
            self.measure(arm, model)
        if not self.given.untaught:
            self.teach(arm, model)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "encoder", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--reader", required=True, help="gives the reward")
    parser.add_argument("--judge", help="another reader; without it, round trips are those of the first")
    parser.add_argument("--decoder", help="causal language model of QRelScore, for the arm scst-qrelscore")
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    parser.add_argument("--arms", nargs="+", choices=(START, *ARMS, HUMAN), default=[*DEFAULT_ARMS, START, HUMAN])
    parser.add_argument("--epochs", type=float, default=1, help="of the start")
    parser.add_argument("--updates", type=int, default=200, help="of each arm")
    bf16 = parser.add_argument("--precision", choices=("no", "bf16"), default="bf16")
    bf16.help = "of all arms of a seed; no: float32, for processors without bf16"
    parser.add_argument("--untaught", action="store_true", help="no reader is taught with an arm's questions")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="commands that run side by side")
    given = parser.parse_args(arguments)
    with ThreadPoolExecutor(given.jobs) as pool:
        starts: dict[Path, Future[None]] = {}
        studies = [Study(given, domain, seed) for domain in given.domains for seed in given.seeds]
        for study in studies:
            if study.start not in starts:
                starts[study.start] = pool.submit(study.train_start)
        chains = [pool.submit(study.run_arm, arm, starts[study.start]) for arm in given.arms for study in studies]
        failed = [chain.exception() for chain in chains if chain.exception()]
    if failed:
        sys.exit(f"{len(failed)} of {len(chains)} arms failed, the first: {failed[0]}")


if __name__ == "__main__":
    main()
