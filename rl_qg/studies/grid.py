"""The grid of a study as jobs: plain `rl-qg` commands with their arguments and with what they wait for.

A job's folder is named by what it is and by a hash of its whole command, in which the folders of the jobs before it
stand, and so all that they depend on. A changed study file therefore leads to new folders for what it changes, and
finds everything else done.
"""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_qg.reports.study_plots import NONE
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import read_json
from rl_qg.runtime.run_folder import TRAINED
from rl_qg.studies.data import StudyExamples
from rl_qg.studies.file import Generator, Study

KINDS = ("ce", "scst", "generate", "augment", "reader")
OUT = "out"  # what the command writes, below the job's folder
# Overrides of these sections are for these commands alone; others are for all.
READ_BY = {
    "ce": ("train",),
    "scst": ("train",),
    "model": ("train", "generate"),
    "reward_models": ("train", "augment"),
    "held_out": ("train",),
    "evaluation": ("train",),
    "peft": ("train",),
    "generate": ("generate",),
    "augment": ("augment",),
    "filters": ("augment",),
    "reward": ("train", "augment"),
    "qa": ("qa", "augment"),
}
EVERYTHING = ("data.max_train=null", "data.max_validation=null", "data.labelled_fraction=1.0")


@dataclass(frozen=True)
class Job:
    """One command of `rl-qg`.

    Args:
        name: its folder below `jobs/`.
        kind: one of `KINDS`.
        needs: names of the jobs before it.
        apart: jobs with the same text here never run at the same time.
    """

    name: str
    kind: str
    seed: int
    command: str
    arguments: tuple[str, ...]
    folder: Path
    needs: tuple[str, ...] = ()
    apart: str = ""

    @property
    def out(self) -> Path:
        """Where its results are."""
        return self.folder / OUT

    def line(self) -> str:
        """The command as it is typed."""
        return shlex.join(["rl-qg", self.command, *self.arguments])


@dataclass(frozen=True)
class Cell:
    """One reader of the grid: gold questions of a resource, and `amount` times as many generated ones.

    `run` is the run folder of the generator; of one that stands at a path, the folder it stands in.
    """

    resource: str
    generator: str
    filter: str
    amount: float
    seed: int
    gold: int
    asked: int
    reader: Job
    trained: Job | None = None
    generate: Job | None = None
    augment: Job | None = None
    run: Path | None = None


@dataclass(frozen=True)
class Grid:
    """The cells, and the jobs that make them, each once and behind those it needs."""

    cells: tuple[Cell, ...]
    jobs: tuple[Job, ...]


@dataclass
class _Plan:
    """Jobs so far, by name; equal commands are one job."""

    study: Study
    examples: StudyExamples
    models: Mapping[str, Sequence[str]]
    jobs: dict[str, Job] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        label: str,
        seed: int,
        command: str,
        arguments: Sequence[str],
        needs: Sequence[Job] = (),
        apart: str = "",
    ) -> Job:
        """The job of this command; `{out}` in its arguments is its own folder of results."""
        root = self.study.output_dir
        neutral = [text.replace(str(root), "{study}") for text in arguments]
        digest = hashlib.sha256("\0".join([command, *neutral]).encode()).hexdigest()[:8]
        name = f"{kind}-{label}-s{seed}-{digest}"
        folder = root / "jobs" / name
        filled = tuple(text.replace("{out}", str(folder / OUT)) for text in arguments)
        waits = tuple(dict.fromkeys(need.name for need in needs))
        job = Job(name, kind, seed, command, filled, folder, waits, apart)
        return self.jobs.setdefault(name, job)

    def settings(self, command: str, resource: str, *more: Sequence[str]) -> list[str]:
        """What every job of a command gets, from general to particular."""
        options = next(item for item in self.study.resources if item.name == resource)
        texts = [*self.study.settings, *options.settings]
        general = [text for text in texts if command in READ_BY.get(_section(text), (command,))]
        # Training pretrains every miniature that its settings name, read or not; `model.path` of qa is its reader's.
        read = {"train": ("",), "augment": ("qa.", "reward_models."), "qa": ("qa.",), "generate": ("model.",)}
        folders = [text for text in self.models[resource] if text.startswith(read[command])]
        particular = [text for part in more for text in part]
        if any(text.startswith("model=") for text in particular):  # another model; a value would win over it
            folders = [text for text in folders if not text.startswith("model.path=")]
        return [f"preset={self.study.preset}", *general, *folders, *EVERYTHING, *particular]


def make_grid(study: Study, examples: StudyExamples, models: Mapping[str, Sequence[str]]) -> Grid:
    """Lay out all cells of a study, seed by seed, so that a part of the grid is whole before the next is begun.

    `models` holds for each resource the overrides that name its miniatures' folders.
    """
    plan = _Plan(study, examples, models)
    cells: list[Cell] = []
    for seed in study.seeds:
        for resource in examples.resources:
            cells += _cells(plan, resource, seed)
    order = {seed: number for number, seed in enumerate(study.seeds)}
    depth: dict[str, int] = {}
    for job in plan.jobs.values():  # each was added behind those it needs
        depth[job.name] = 1 + max((depth[name] for name in job.needs), default=0)
    jobs = sorted(plan.jobs.values(), key=lambda job: (order[job.seed], depth[job.name]))
    return Grid(tuple(cells), tuple(jobs))


def _cells(plan: _Plan, resource: str, seed: int) -> list[Cell]:
    study, data = plan.study, plan.examples.resources[resource]
    gold = len(data.gold)
    baseline = _reader(plan, resource, seed, f"{NONE}-x0", data.folder / "gold.json", ())
    cells = [Cell(resource, NONE, NONE, 0.0, seed, gold, 0, baseline)]
    amounts = [amount for amount in study.amounts if amount]
    for generator in study.generators if amounts else ():
        trained, model = _generator(plan, generator, resource, seed)
        questions = _generate(plan, generator, resource, seed, trained, model)
        for name, rules in study.filters.items():
            for amount in amounts:
                label = f"{generator.name}-{name}-x{amount:g}"
                asked = round(amount * gold)
                merged = _augment(plan, resource, seed, label, questions, rules, asked, baseline)
                reader = _reader(plan, resource, seed, label, merged.out / "augmented.json", (merged,))
                run = trained.out if trained else Path(model).parent
                made = (reader, trained, questions, merged)
                cells.append(Cell(resource, generator.name, name, amount, seed, gold, asked, *made, run))
    return cells


def _generator(plan: _Plan, generator: Generator, resource: str, seed: int) -> tuple[Job | None, str]:
    """The job that trains a generator, and the folder of its model; no job for one that stands at a path."""
    if generator.path is not None:
        return None, generator.path.replace("{resource}", resource).replace("{seed}", str(seed))
    data, label = plan.examples.resources[resource], f"{resource}-{generator.name}"
    before: list[Job] = []
    model: list[str] = []
    if generator.stages == "scst":
        others = {item.name: item for item in plan.study.generators}
        start = Generator("ce", "ce") if generator.start is None else others[generator.start]
        first, folder = _generator(plan, start, resource, seed)
        before, model = [first] if first else [], [f"model.path={folder}"]
    arguments = [
        *plan.settings("train", resource, model, generator.settings),
        f"stages={generator.stages}",
        f"seed={seed}",
        f"data.train={data.folder / 'gold.json'}",
        f"data.validation={plan.examples.folder / 'development.json'}",
        "output_dir={out}",
    ]
    kind = "ce" if generator.stages == "ce" else "scst"
    job = plan.add(kind, label, seed, "train", arguments, before)
    return job, str(job.out / kind)


def _generate(plan: _Plan, generator: Generator, resource: str, seed: int, trained: Job | None, model: str) -> Job:
    data, weights = plan.examples.resources[resource], ""
    if trained is None and (files := sorted(Path(model).glob("*.safetensors"))):
        weights = "-" + "".join(file_hash(file)[:4] for file in files)  # another model at the same path is another job
    arguments = [
        *plan.settings("generate", resource, plan.study.generate),
        f"seed={seed}",
        f"model.path={model}",
        f"data.train={data.folder / 'spans.jsonl'}",
        "output={out}/questions.jsonl",
    ]
    label = f"{resource}-{generator.name}{weights}"
    return plan.add("generate", label, seed, "generate", arguments, [trained] if trained else [])


def _augment(
    plan: _Plan,
    resource: str,
    seed: int,
    label: str,
    questions: Job,
    rules: Sequence[str],
    asked: int,
    baseline: Job,
) -> Job:
    reads_reader = any("{gold_reader}" in text for text in rules)
    arguments = [
        *plan.settings("augment", resource, [text.replace("{gold_reader}", str(baseline.out)) for text in rules]),
        f"augment.questions={questions.out / 'questions.jsonl'}",
        f"augment.gold={plan.examples.resources[resource].folder / 'gold.json'}",
        "augment.output={out}/augmented.json",
        f"augment.num_samples={asked}",
        f"augment.seed={seed}",
    ]
    needs = [questions, baseline] if reads_reader else [questions]
    return plan.add("augment", f"{resource}-{label}", seed, "augment", arguments, needs, apart=questions.name)


def _reader(plan: _Plan, resource: str, seed: int, label: str, train: Path, needs: Sequence[Job]) -> Job:
    arguments = [
        *plan.settings("qa", resource),
        f"data.train={train}",
        f"data.validation={plan.examples.folder / 'validation.json'}",
        f"qa.seeds=[{seed}]",
        "output_dir={out}",
    ]
    return plan.add("reader", f"{resource}-{label}", seed, "qa", arguments, needs)


def _section(text: str) -> str:
    return text.lstrip("+~").partition("=")[0].partition(".")[0]


# --- What a job leaves ---


def is_done(job: Job) -> bool:
    """Whether a job has been run to its end."""
    return (job.folder / "job.json").exists()


def outcome(job: Job) -> dict[str, Any]:
    """What the runner noted when the job was done: seconds, device."""
    found: dict[str, Any] = read_json(job.folder / "job.json")
    return found


def signature_of(run: Path | None) -> str | None:
    """The signature of the reward that a generator learned from; None for cross-entropy and where nothing tells."""
    path = None if run is None else run / TRAINED
    return read_json(path).get("reward") if path is not None and path.exists() else None
