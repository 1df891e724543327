"""The grid of a study as jobs: plain `rl-qg` commands with their arguments and the jobs that they need.

A job's folder is named by what it does and by a hash of its whole command. The command names the folders of the jobs
that it needs, so the hash covers everything it depends on: a changed study file leads to new folders for what it
changes, and finds the rest done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_qg.reports.study_view import NO_GENERATOR
from rl_qg.runtime.files import file_hash, read_json
from rl_qg.runtime.run_folder import TRAINED
from rl_qg.studies.jobs import ALL_EXAMPLES, READ_BY, RESULTS, Job, command_hash, section_of_key
from rl_qg.studies.study import Generator, Study, StudyExamples

KINDS = ("ce", "scst", "generate", "augment", "reader")


@dataclass(frozen=True)
class Cell:
    """One reader of the grid: gold questions of a resource, and `amount` times as many generated ones.

    `run` is the run folder of the generator; for a generator at a path, the folder above its model.
    """

    resource: str
    generator: str
    filter: str
    amount: float
    seed: int
    gold: int
    requested: int
    reader: Job
    trained: Job | None = None
    generate: Job | None = None
    augment: Job | None = None
    run: Path | None = None


@dataclass(frozen=True)
class Grid:
    """The cells, and the jobs that make them, each once and after those it needs."""

    cells: tuple[Cell, ...]
    jobs: tuple[Job, ...]


@dataclass
class _GridBuilder:
    """The jobs so far, by name; equal commands are one job."""

    study: Study
    examples: StudyExamples
    miniatures: Mapping[str, Sequence[str]]
    updates: Mapping[str, int]
    jobs: dict[str, Job] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        label: str,
        seed: int,
        command: str,
        arguments: Sequence[str],
        needs: Sequence[Job] = (),
        exclusive: str = "",
    ) -> Job:
        """The job of this command; `{out}` in its arguments stands for the folder of its results."""
        root = self.study.output_dir
        name = f"{kind}-{label}-s{seed}-{command_hash(command, arguments, root)}"
        folder = root / "jobs" / name
        filled = tuple(text.replace("{out}", str(folder / RESULTS)) for text in arguments)
        need_names = tuple(dict.fromkeys(need.name for need in needs))
        job = Job(name, kind, seed, command, filled, folder, need_names, exclusive)
        return self.jobs.setdefault(name, job)

    def settings(self, command: str, resource: str, *specific: Sequence[str]) -> list[str]:
        """What every job of a command gets, from general to specific."""
        texts = [*self.study.settings, *self.study.resources[resource].settings]
        general = [text for text in texts if command in READ_BY.get(section_of_key(text), (command,))]
        # Training pretrains every miniature that its settings name, read or not; `model.path` of qa is its reader's.
        read = {"train": ("",), "augment": ("qa.", "reward_models."), "qa": ("qa.",), "generate": ("model.",)}
        folders = [text for text in self.miniatures[resource] if text.startswith(read[command])]
        last = [text for part in specific for text in part]
        if any(text.startswith("model=") for text in last):  # another model; a value would override it
            folders = [text for text in folders if not text.startswith("model.path=")]
        return [f"preset={self.study.preset}", *general, *folders, *ALL_EXAMPLES, *last]


def make_grid(
    study: Study,
    examples: StudyExamples,
    miniatures: Mapping[str, Sequence[str]],
    updates: Mapping[str, int] | None = None,
) -> Grid:
    """Lay out all cells of a study, seed by seed, so that the readers of one seed are complete before the next begins.

    `miniatures` holds for each resource the overrides that name the folders of its miniature models, `updates` the
    number of updates of each of its readers; those of a resource that it does not name train by their settings.
    """
    builder = _GridBuilder(study, examples, miniatures, updates or {})
    cells: list[Cell] = []
    for seed in study.seeds:
        for resource in examples.resources:
            cells += _cells(builder, resource, seed)
    order = {seed: number for number, seed in enumerate(study.seeds)}
    depth: dict[str, int] = {}
    for job in builder.jobs.values():  # each was added after those it needs
        depth[job.name] = 1 + max((depth[name] for name in job.needs), default=0)
    jobs = sorted(builder.jobs.values(), key=lambda job: (order[job.seed], depth[job.name]))
    return Grid(tuple(cells), tuple(jobs))


def _cells(builder: _GridBuilder, resource: str, seed: int) -> list[Cell]:
    study, data = builder.study, builder.examples.resources[resource]
    gold = len(data.gold)
    baseline = _reader(builder, resource, seed, f"{NO_GENERATOR}-x0", data.folder / "gold.json", ())
    cells = [Cell(resource, NO_GENERATOR, NO_GENERATOR, 0.0, seed, gold, 0, baseline)]
    amounts = [amount for amount in study.amounts if amount]
    for name, generator in study.generators.items() if amounts else ():
        trained, model = _generator(builder, name, generator, resource, seed)
        questions = _generate(builder, name, resource, seed, trained, model)
        run = trained.results if trained else Path(model).parent
        for filter_name, filters in study.filters.items():
            for amount in amounts:
                label, requested = f"{name}-{filter_name}-x{amount:g}", round(amount * gold)
                augmented = _augment(builder, resource, seed, label, questions, filters, requested, baseline)
                train = augmented.results / "augmented.json"
                reader = _reader(builder, resource, seed, label, train, (augmented,))
                cells.append(
                    Cell(
                        *(resource, name, filter_name, amount, seed, gold, requested, reader),
                        trained=trained,
                        generate=questions,
                        augment=augmented,
                        run=run,
                    )
                )
    return cells


def _generator(
    builder: _GridBuilder, name: str, generator: Generator, resource: str, seed: int
) -> tuple[Job | None, str]:
    """The job that trains a generator, and the folder of its model; no job for a generator at a path."""
    if generator.path is not None:
        return None, generator.path.replace("{resource}", resource).replace("{seed}", str(seed))
    data, label = builder.examples.resources[resource], f"{resource}-{name}"
    needs: list[Job] = []
    model: list[str] = []
    if generator.stages == "scst":
        start = "ce" if generator.start is None else generator.start
        options = Generator("ce") if generator.start is None else builder.study.generators[start]
        first, folder = _generator(builder, start, options, resource, seed)
        needs, model = [first] if first else [], [f"model.path={folder}"]
    arguments = [
        *builder.settings("train", resource, model, generator.settings),
        f"stages={generator.stages}",
        f"seed={seed}",
        f"data.train={data.folder / 'gold.json'}",
        f"data.validation={builder.examples.folder / 'development.json'}",
        "output_dir={out}",
    ]
    kind = "ce" if generator.stages == "ce" else "scst"
    job = builder.add(kind, label, seed, "train", arguments, needs)
    return job, str(job.results / kind)


def _generate(builder: _GridBuilder, name: str, resource: str, seed: int, trained: Job | None, model: str) -> Job:
    data, weights = builder.examples.resources[resource], ""
    if trained is None and (files := sorted(Path(model).glob("*.safetensors"))):
        weights = "-" + "".join(file_hash(file)[:4] for file in files)  # another model at the same path: another job
    arguments = [
        *builder.settings("generate", resource, builder.study.generate),
        f"seed={seed}",
        f"model.path={model}",
        f"data.train={data.folder / 'spans.jsonl'}",
        "output={out}/questions.jsonl",
    ]
    label = f"{resource}-{name}{weights}"
    return builder.add("generate", label, seed, "generate", arguments, [trained] if trained else [])


def _augment(
    builder: _GridBuilder,
    resource: str,
    seed: int,
    label: str,
    questions: Job,
    filters: Sequence[str],
    requested: int,
    baseline: Job,
) -> Job:
    reads_reader = any("{gold_reader}" in text for text in filters)
    arguments = [
        *builder.settings(
            "augment", resource, [text.replace("{gold_reader}", str(baseline.results)) for text in filters]
        ),
        f"augment.questions={questions.results / 'questions.jsonl'}",
        f"augment.gold={builder.examples.resources[resource].folder / 'gold.json'}",
        "augment.output={out}/augmented.json",
        f"augment.num_samples={requested}",
        f"augment.seed={seed}",
    ]
    needs = [questions, baseline] if reads_reader else [questions]
    return builder.add("augment", f"{resource}-{label}", seed, "augment", arguments, needs, exclusive=questions.name)


def _reader(builder: _GridBuilder, resource: str, seed: int, label: str, train: Path, needs: Sequence[Job]) -> Job:
    arguments = [
        *builder.settings("qa", resource),
        f"data.train={train}",
        f"data.validation={builder.examples.folder / 'validation.json'}",
        f"qa.seeds=[{seed}]",
        *([f"qa.max_steps={builder.updates[resource]}"] if resource in builder.updates else []),
        "output_dir={out}",
    ]
    return builder.add("reader", f"{resource}-{label}", seed, "qa", arguments, needs)


def signature_of(run: Path | None) -> str | None:
    """The signature of the reward that a generator learned from; None for cross-entropy and where no file says."""
    path = None if run is None else run / TRAINED
    return read_json(path).get("reward") if path is not None and path.exists() else None
