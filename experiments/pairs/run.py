"""Train generators of question-answer pairs in three ways, at the same size and number of updates, and use them.

    python experiments/pairs/run.py --output runs/pairs --setting world
    python experiments/pairs/run.py --output runs/pairs --setting squad --shared ../shared --models MODELS

MODELS holds `minilm` (a pretrained encoder) and, for SQuAD, `warm` (the generator of experiments/augmentation after
its template questions). Each step is a command, and what is done is not done again. Then `tables.py` writes the
tables.

What each way learns from is the same: the questions and answers of the training passages. What it is judged on: pairs
about held-out passages; and a reader taught by the pairs that it makes of other passages, whose human questions nobody
sees.
"""

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from commands import run, start
from passages import write_squad_windows, write_world

from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.data.formats import json_line_rows
from rl_qg.data.reading import read_examples
from rl_qg.generation.tasks import task_rows
from rl_qg.miniatures.cache import SHIPPED

sys.path.append(str(Path(__file__).resolve().parents[1]))
from world_settings import WORLD_SETTINGS

BATCH = 16
ARMS = {  # the way, the model of questions (or of all pairs), and that of answers: a task and a share of the updates
    "rules": ("rules", ("questions", 1.0), None),
    "pipeline": ("pipeline", ("questions", 0.5), ("answers", 0.5)),
    "pipeline-twice": ("pipeline", ("questions", 1.0), ("answers", 1.0)),
    "multitask": ("multitask", ("multitask", 1.0), None),
    "end2end": ("end2end", ("pairs", 1.0), None),
}
CONTINUED = 0.25  # share of the updates by which `--continue` goes on
HOW = {  # to go on from the generator that cross-entropy ended with
    "ce": ("stages=ce", "ce.learning_rate=3e-4"),
    "scst": (
        *("stages=scst", "scst.schedule=constant", "scst.learning_rate=3e-4", "scst.max_new_tokens=256"),
        *("scst.baseline=leave_one_out", "scst.num_samples=4", "scst.kl_coefficient=0.3", "scst.kl_target=0.2"),
    ),
}
READER = (
    *("training.use_cpu=true", "qa.batch_size=16", "qa.threads=null", "qa.max_length=192", "qa.doc_stride=64"),
    "qa.save_steps=200",
)


@dataclass(frozen=True)
class Setting:
    """A corpus, and the models that learn from it.

    Args:
        start: of every generator.
        reader: of every reader that pairs teach.
        options: of `rl-qg train`.
        updates: of every generator, or of both of a pipeline together.
        reader_updates: of every reader.
        reader_options: of `rl-qg qa`.
    """

    name: str
    start: Path
    reader: Path
    options: tuple[str, ...]
    updates: int
    reader_updates: int
    reader_options: tuple[str, ...]


def world() -> Setting:
    """The embedded corpus and its miniatures."""
    options = ("ce.learning_rate=1e-3", "model.max_source_length=256")
    reader = ("qa.learning_rate=5e-4",)
    return Setting("world", SHIPPED / "bart", SHIPPED / "distilbert", options, 600, 400, reader)


def squad(models: Path) -> Setting:
    """Windows of SQuAD, a generator of 3 million parameters, and a pretrained encoder as the reader."""
    options = ("ce.learning_rate=5e-4", "model.max_source_length=192", "training.precision=bf16")
    reader = ("qa.learning_rate=2e-4", "training.precision=bf16")
    return Setting("squad", models / "warm", models / "minilm", options, 600, 200, reader)


# --- commands


class Run:
    """The commands of one setting and one seed."""

    def __init__(self, setting: Setting, root: Path, seed: int, scale: float) -> None:
        self.setting, self.seed, self.scale = setting, seed, scale
        self.data = root / setting.name / "data"
        self.folder = root / setting.name / f"seed-{seed}"

    def model(self, task: str, share: float) -> Path:
        return self.folder / f"{task}-{share:g}" / "ce"

    def further(self, task: str, share: float, how: str) -> Path:
        """The model after `--continue`; that of answers does not go on."""
        return self.model(task, share) if task == "answers" else self.folder / f"{task}-{share:g}-{how}" / how

    def train(self, task: str, share: float, how: str = "") -> None:
        """One generator, or one that goes on. The number of rows differs between tasks, that of updates does not."""
        rows = task_rows(task, read_examples(self.data / "train.json", role="train").examples)
        updates = max(2, round(self.setting.updates * (CONTINUED if how else share) * self.scale))
        epochs = f"epochs={updates / ceil(len(rows) / BATCH):.6f}"
        data = [f"data.train={self.data / 'train.json'}", f"data.validation={self.data / 'dev.json'}"]
        data += ["data.labelled_fraction=1", "data.max_train=null", f"data.seed={self.seed}"]
        start = self.model(task, share) if how else self.setting.start
        command = [f"model.task={task}", f"model.path={start}", "model.max_target_length=256", *self.setting.options]
        command += [*HOW[how], f"{how}.{epochs}"] if how else ["stages=ce", f"ce.{epochs}"]
        command += [f"training.batch_size={BATCH}", "training.use_cpu=true", "training.eval_steps=100000"]
        command += [
            f"reward={'reader' if how == 'scst' else 'form'}",
            "held_out=none",
            f"qa.model.path={self.setting.reader}",
            "training.report_to=none",
            "training.save_steps=200",
            "training.save_total_limit=1",
        ]
        model = self.further(task, share, how) if how else self.model(task, share)
        folder = model.parent
        if not (model / "config.json").exists():
            run("train", *WORLD_SETTINGS, *data, *command, f"seed={self.seed}", f"output_dir={folder}")

    def pairs(self, arm: str, passages: str) -> Path:
        """The pairs of an arm about the passages of a file."""
        name, _, how = arm.partition("+")
        way, questions, answers = ARMS[name]
        output = self.folder / arm / f"{passages}.jsonl"
        if not output.exists():
            output.parent.mkdir(parents=True, exist_ok=True)
            script = [Path(__file__).with_name("make_pairs.py"), self.data / f"{passages}.json", "--way", way]
            models = ["--questions", self.further(*questions, how) if how else self.model(*questions)]
            models += ["--answers", self.model(*answers)] if answers else []
            start(f"pairs {output}", Path(f"{output}.log"), [*script, *models, "--output", output])
        return output

    def teach(self, arm: str) -> None:
        """A reader taught by an arm's pairs about passages that nobody asked about, or by the human ones."""
        folder = self.folder / "readers" / arm
        if (folder / "qa_metrics.json").exists():
            return
        taught = self.data / "more.json"
        if arm != "human":
            taught = folder.with_suffix(".json")
            taught.parent.mkdir(parents=True, exist_ok=True)
            made = list(as_examples(self.pairs(arm, "more")))
            if not made:
                return print(f"no pairs: {taught}", flush=True)
            write_squad(taught, made)
        data = [f"data.train={taught}", f"data.validation={self.data / 'held-out.json'}", "data.max_validation=null"]
        data += ["data.max_train=null", "data.labelled_fraction=1"]
        model = [f"qa.model.path={self.setting.reader}", f"qa.seeds=[{self.seed}]", *self.setting.reader_options]
        model.append(f"qa.max_steps={max(2, round(self.setting.reader_updates * self.scale))}")
        run("qa", *WORLD_SETTINGS, *data, *READER, *model, f"output_dir={folder}")

    def evaluate(self, arms: list[str], metrics: str) -> None:
        """All ways against the human pairs, on the same passages."""
        files = ", ".join(f"{arm}: {self.folder / arm / 'held-out.jsonl'}" for arm in arms)
        options = [f"references={self.data / 'held-out.json'}", f"metrics={metrics}", "training.use_cpu=true"]
        output = self.folder / "evaluation"
        run("evaluate", *WORLD_SETTINGS, "pairs=true", f"predictions={{{files}}}", *options, f"output={output}")


def as_examples(pairs: Path) -> Iterator[QAExample]:
    """The pairs of a file as examples, each once."""
    for number, passage in enumerate(row for _, _, row in json_line_rows(pairs)):
        once = {
            (pair["question"], pair["answer_start"]): pair for pair in passage["pairs"] if pair["question"].strip()
        }
        for at, pair in enumerate(once.values()):
            answer = Answer(pair["answer"], pair["answer_start"])
            yield QAExample(f"made-{number}-{at}", "", passage["context"], pair["question"], (answer,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--setting", choices=("world", "squad"), default="world")
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--models", type=Path, help="MODELS; without it BERTScore is left out")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument(
        "--continue", dest="how", nargs="*", choices=list(HOW), default=[], help="arms that go on, beside those of CE"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--scale", type=float, default=1.0, help="of passages and updates; below 1 for a trial")
    parser.add_argument("--at-once", type=int, default=2)
    given = parser.parse_args()
    setting = world() if given.setting == "world" else squad(given.models.resolve())
    metrics = "rouge_l"
    if given.models:
        metrics += f",{{metric: bertscore, model: {given.models.resolve() / 'minilm'}, label: bertscore}}"
    runs = [Run(setting, given.output, seed, given.scale) for seed in given.seeds]
    if not (runs[0].data / "dev.json").exists():
        runs[0].data.mkdir(parents=True, exist_ok=True)
        if given.setting == "world":
            write_world(runs[0].data, given.scale)
        else:
            write_squad_windows(runs[0].data, given.shared, given.scale)
    models = list(dict.fromkeys(model for arm in given.arms for model in ARMS[arm][1:] if model is not None))
    with ThreadPoolExecutor(given.at_once) as pool:
        list(pool.map(lambda job: job[0].train(*job[1]), [(one, model) for one in runs for model in models]))
        further = [(*model, how) for how in given.how for model in models if model[0] != "answers"]
        list(pool.map(lambda job: job[0].train(*job[1]), [(one, model) for one in runs for model in further]))
        arms = [*given.arms, *(f"{arm}+{how}" for arm in given.arms for how in given.how)]
        files = [(one, arm, name) for one in runs for name in ("held-out", "more") for arm in arms]
        list(pool.map(lambda job: job[0].pairs(*job[1:]), files))
        list(pool.map(lambda one: one.evaluate(arms, f"[{metrics}]"), runs))
        list(pool.map(lambda job: job[0].teach(job[1]), [(one, arm) for one in runs for arm in ["human", *arms]]))


if __name__ == "__main__":
    main()
