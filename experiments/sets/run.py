"""The six strategies of asking several questions about a passage, selectors of their candidates, and generators
trained for whole sets: same start, same number of updates, same held-out passages.

    python experiments/sets/run.py --output runs/sets --setting world --models MODELS
    python experiments/sets/run.py --output runs/sets --setting squad --models MODELS --shared ../shared
    python experiments/sets/run.py --output runs/sets --setting squad --models MODELS --only train-ce

MODELS is for SQuAD: `warm` (the generator of experiments/augmentation after its template questions), `minilm` (a
pretrained encoder) and `reader` (one that has learned to abstain, by `rl-qg qa qa.unanswerable=1`). Passages are those
of experiments/pairs. Each step is a command, and what is done is not done again. Then `tables.py` writes the tables.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from rl_qg.data.examples import write_squad
from rl_qg.data.reading import read_examples
from rl_qg.generation.sets import GRANULARITIES, MODES, set_rows
from rl_qg.miniatures.cache import SHIPPED

sys.path.append(str(Path(__file__).resolve().parents[1] / "pairs"))
sys.path.append(str(Path(__file__).resolve().parents[1]))
from commands import run, start
from passages import write_squad_windows, write_world
from world_settings import WORLD_SETTINGS

BATCH = 16
MAKE_SETS = Path(__file__).with_name("make_sets.py")
STEPS = ("data", "train-ce", "train-sets", "classifiers", "pools", "select", "evaluate")
SCST = (
    *("stages=scst", "scst.baseline=leave_one_out", "scst.num_samples=4", "scst.schedule=constant"),
    *("scst.max_new_tokens=96", "reward=multi_set", "scst.kl_coefficient=0.3", "scst.kl_target=0.2"),
)
CONTINUED = {  # how a generator of sets goes on after cross-entropy, by the same number of updates
    "ce-continued": ("stages=ce", "reward=form"),
    "scst-whole": (*SCST, "scst.credit=whole"),
    "scst-marginal": (*SCST, "scst.credit=marginal"),
    "scst-to-go": (*SCST, "scst.credit=to_go"),
}
SELECTIONS = ("rand", "top1", "rank", "harmonic", "mmr", "dpp", "coverage", "auto", "learned", "oracle")
CLASSIFIERS = {"worthiness": "hierarchical", "types": "types"}
METRICS = "[coco_bleu4,meteor,rouge_l,q_bleu1]"


@dataclass(frozen=True)
class Setting:
    """A corpus, and the models that learn from it.

    Args:
        start: of every generator.
        encoder: of the classifiers of sentences.
        reader: whose answerability ranks.
        options: of `rl-qg train`.
        learning_rate: of cross-entropy from the start.
        updates: of every generator.
        set_updates: of those that go on.
        classifier_options: of `rl-qg train-sentences`.
        number: of the questions that selectors choose; about as many as people asked.
    """

    name: str
    start: Path
    encoder: Path
    reader: Path
    options: tuple[str, ...]
    learning_rate: str
    updates: int
    set_updates: int
    classifier_options: tuple[str, ...]
    number: int


def world() -> Setting:
    """The embedded corpus and its miniatures. Its passages have five questions, as those of the paper."""
    return Setting(
        name="world",
        start=SHIPPED / "bart",
        encoder=SHIPPED / "distilbert",
        reader=SHIPPED / "reader",
        options=("model.max_source_length=256",),
        learning_rate="1e-3",
        updates=240,
        set_updates=60,
        classifier_options=("learning_rate=5e-4",),
        number=5,
    )


def squad(models: Path) -> Setting:
    """Windows of SQuAD with 3.5 questions in the training part and 2.6 in the other, a generator of 3 million
    parameters, and a pretrained encoder.
    """
    return Setting(
        name="squad",
        start=models / "warm",
        encoder=models / "minilm",
        reader=models / "reader",
        options=("model.max_source_length=192", "training.precision=bf16"),
        learning_rate="5e-4",
        updates=400,
        set_updates=100,
        classifier_options=("learning_rate=2e-4", "max_length=64", "training.precision=bf16"),
        number=3,
    )


class Run:
    """The commands of one setting and one seed."""

    def __init__(self, setting: Setting, root: Path, seed: int, scale: float) -> None:
        self.setting, self.seed, self.scale = setting, seed, scale
        self.data = root / setting.name / "data"
        self.folder = root / setting.name / f"seed-{seed}"

    # --- generators

    def ce(self, strategy: str) -> Path:
        """The generator of a strategy after cross-entropy."""
        return self.folder / strategy / "ce"

    def continued(self, strategy: str, way: str) -> Path:
        """The same after one of `CONTINUED`."""
        return self.folder / f"{strategy}-{way}" / ("ce" if way == "ce-continued" else "scst")

    def train_ce(self, granularity: str, mode: str) -> None:
        """One generator. The number of rows differs between strategies, that of updates does not."""
        folder = self.ce(f"{granularity}-{mode}")
        rate = f"ce.learning_rate={self.setting.learning_rate}"
        options = (f"model.path={self.setting.start}", "stages=ce", "reward=form", rate)
        self._train(folder, granularity, mode, self.setting.updates, options)

    def train_set(self, granularity: str, way: str) -> None:
        """What `one2many` learns further, in one of `CONTINUED`."""
        strategy = f"{granularity}-one2many"
        stage = "ce" if way == "ce-continued" else "scst"
        options = (f"model.path={self.ce(strategy)}", f"{stage}.learning_rate=3e-4", *CONTINUED[way])
        self._train(self.continued(strategy, way), granularity, "one2many", self.setting.set_updates, options)

    def _train(self, folder: Path, granularity: str, mode: str, updates: int, options: Iterable[str]) -> None:
        if (folder / "config.json").exists():
            return
        rows = set_rows(granularity, mode, read_examples(self.data / "train.json", role="train").examples)
        epochs = max(2, round(updates * self.scale)) / ceil(len(rows) / BATCH)
        data = [f"data.train={self.data / 'train.json'}", f"data.validation={self.data / 'dev.json'}"]
        data += ["data.labelled_fraction=1", "data.max_train=null", f"data.seed={self.seed}", f"seed={self.seed}"]
        longest = 160 if mode == "one2many" else 48  # tokens
        model = [f"ask.granularity={granularity}", f"ask.mode={mode}", f"model.max_target_length={longest}"]
        training = [f"training.batch_size={BATCH}", "training.eval_steps=100000", "training.save_steps=100"]
        training += ["training.save_total_limit=1", "training.report_to=none", "training.use_cpu=true"]
        training += [f"{folder.name}.epochs={epochs:.6f}", "held_out=none", "evaluation.check_reward=0"]
        training += [f"qa.model.path={SHIPPED / 'distilbert'}", *self.setting.options]
        run("train", *WORLD_SETTINGS, *data, *model, *training, *options, f"output_dir={folder.parent}")

    # --- sets

    def classifier(self, name: str) -> Path:
        """Which sentences are asked about, or of which types."""
        return self.folder / f"classifier-{name}"

    def train_classifier(self, name: str) -> None:
        """With thresholds for the best F1 on the training articles that are set aside."""
        folder = self.classifier(name)
        if (folder / "sentence_metrics.json").exists():
            return
        data = [f"data.train={self.data / 'train.json'}", f"data.validation={self.data / 'dev.json'}"]
        options = ["data.labelled_fraction=1", "data.max_train=null", f"model.path={self.setting.encoder}"]
        options += [*self.setting.classifier_options, "training.use_cpu=true", f"seed={self.seed}"]
        options += [f"max_steps={max(2, round(200 * self.scale))}", "pooling=mean", "threshold=tuned"]
        kind = f"kind={CLASSIFIERS[name]}"
        run("train-sentences", *WORLD_SETTINGS, kind, *data, *options, f"output_dir={folder}")

    def pool(self, name: str, model: Path, passages: str) -> Path:
        """The questions of a generator about the passages of a file."""
        output = self.folder / "pools" / name / f"{passages}.jsonl"
        if not output.exists():
            parts = ["--model", model, "--reader", self.setting.reader]
            if not name.startswith("paragraph"):
                parts += ["--worthiness", self.classifier("worthiness")]
            if name.startswith("type"):
                parts += ["--types", self.classifier("types")]
            script = [MAKE_SETS, "pool", self.data / f"{passages}.json", "--output", output]
            start(f"pool {output}", Path(f"{output}.log"), [*script, *parts])
        return output

    def select(self, name: str, selections: Iterable[str]) -> None:
        """The sets that selections take from the pool of a generator."""
        folder = self.folder / "sets" / name
        if (folder / "seconds.json").exists():
            return
        pools = self.folder / "pools" / name
        script = [MAKE_SETS, "select", pools / "held-out.jsonl", "--references", self.data / "held-out.json"]
        script += ["--number", self.setting.number, "--selections", *selections, "--output", folder]
        if (pools / "select.jsonl").exists():
            script += ["--learn-from", pools / "select.jsonl", "--learn-references", self.data / "select.json"]
        start(f"select {folder}", folder / "select.log", script)

    def evaluate(self) -> None:
        """All sets against the human questions; for the gap, those of one granularity at a time."""
        sets = {
            f"{folder.name}-{file.stem}": file
            for folder in sorted((self.folder / "sets").iterdir())
            for file in sorted(folder.glob("*.jsonl"))
        }
        for granularity in GRANULARITIES:
            of_level = {name: file for name, file in sets.items() if name.startswith(f"{granularity}-")}
            files = ", ".join(f"{name}: {file}" for name, file in of_level.items())
            gap = f"{{random: {granularity}-one2one-rand, oracle: {granularity}-one2one-oracle}}"
            options = [f"references={self.data / 'held-out.json'}", f"metrics={METRICS}", "training.use_cpu=true"]
            output = self.folder / "evaluation" / granularity
            options += [f"gap={gap}", f"page={output}.html", f"output={output}"]
            run("evaluate", *WORLD_SETTINGS, "sets=true", f"predictions={{{files}}}", *options)


def write_data(folder: Path, setting: Setting, shared: Path, scale: float) -> None:
    """`train`, `dev` and `held-out`; and `select`, 60 more passages with their questions, from which the learned
    selector learns.
    """
    if (folder / "select.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if setting.name == "world":
        write_world(folder, scale)
    else:
        write_squad_windows(folder, shared, scale)
    more = read_examples(folder / "more.json", role="train").examples
    kept = {*list(dict.fromkeys(one.context for one in more))[: max(4, round(60 * scale))]}
    write_squad(folder / "select.json", [one for one in more if one.context in kept])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--setting", choices=("world", "squad"), default="world")
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--models", type=Path, help="MODELS")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), help="steps; the default is all")
    parser.add_argument("--bases", nargs="+", choices=GRANULARITIES, default=["paragraph"], help="of train-sets")
    parser.add_argument("--ways", nargs="+", choices=list(CONTINUED), default=list(CONTINUED), help="of train-sets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of passages and updates; below 1 for a trial")
    parser.add_argument("--at-once", type=int, default=2)
    given = parser.parse_args()
    setting = world() if given.setting == "world" else squad(given.models.resolve())
    one = Run(setting, given.output.resolve(), given.seed, given.scale)
    write_data(one.data, setting, given.shared, given.scale)
    with ThreadPoolExecutor(given.at_once) as pool:

        def do(step: str, job: Callable[..., object], arguments: Iterable[tuple]) -> None:
            if step in given.only:
                list(pool.map(lambda values: job(*values), arguments))

        # one2many first: what goes on needs it
        do("train-ce", one.train_ce, [(level, mode) for mode in reversed(MODES) for level in GRANULARITIES])
        do("train-sets", one.train_set, [(base, way) for base in given.bases for way in given.ways])
        do("classifiers", one.train_classifier, [(name,) for name in CLASSIFIERS])
        models = {f"{level}-{mode}": one.ce(f"{level}-{mode}") for level in GRANULARITIES for mode in MODES}
        models |= {
            f"{base}-one2many-{way}": one.continued(f"{base}-one2many", way)
            for base in given.bases
            for way in given.ways
        }
        models = {name: folder for name, folder in models.items() if (folder / "config.json").exists()}
        passages = [(name, models[name], "held-out") for name in models]
        passages += [(name, models[name], "select") for name in models if name.endswith("one2one")]
        do("pools", one.pool, passages)
        do("select", one.select, [(name, SELECTIONS if name.endswith("one2one") else ("all",)) for name in models])
    if "evaluate" in given.only:
        one.evaluate()


if __name__ == "__main__":
    main()
