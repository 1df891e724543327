"""The grid of a study as jobs. The command of a job names the folders of those that it needs, so that its hash covers
everything it depends on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rl_qg.reports.study_view import NO_GENERATOR
from rl_qg.runtime.files import file_hash
from rl_qg.studies.jobs import ALL_EXAMPLES, Job, JobList, settings_of
from rl_qg.studies.study import Generator, ResourceData, Study, StudyExamples

KINDS = ("ce", "scst", "generate", "augment", "reader")
# Training pretrains every miniature that its settings name, read or not; `model.path` of qa is its reader's.
MINIATURES = {"train": ("",), "augment": ("qa.", "reward_models."), "qa": ("qa.",), "generate": ("model.",)}


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
    listed, cells = JobList(study.output_dir), list[Cell]()
    for seed in study.seeds:
        for name, data in examples.resources.items():
            steps = (updates or {}).get(name)
            cells += _Planner(study, examples.folder, data, miniatures[name], steps, seed, listed).cells()
    order = {seed: number for number, seed in enumerate(study.seeds)}
    depth: dict[str, int] = {}
    for job in listed.jobs.values():
        depth[job.name] = 1 + max((depth[name] for name in job.needs), default=0)
    jobs = sorted(listed.jobs.values(), key=lambda job: (order[job.seed], depth[job.name]))
    return Grid(tuple(cells), tuple(jobs))


@dataclass(frozen=True)
class _Planner:
    """The jobs of one resource and seed; `updates` of its readers, None: by their settings."""

    study: Study
    held_out: Path
    data: ResourceData
    miniatures: Sequence[str]
    updates: int | None
    seed: int
    listed: JobList

    def cells(self) -> list[Cell]:
        gold = len(self.data.gold)
        baseline = self.reader(f"{NO_GENERATOR}-x0", self.data.folder / "gold.json", ())
        cells = [Cell(self.data.name, NO_GENERATOR, NO_GENERATOR, 0.0, self.seed, gold, 0, baseline)]
        amounts = [amount for amount in self.study.amounts if amount]
        for name, generator in self.study.generators.items() if amounts else ():
            trained, model = self.generator(name, generator)
            questions = self.generate(name, trained, model)
            run = trained.results if trained else Path(model).parent
            made = replace(cells[0], generator=name, trained=trained, generate=questions, run=run)
            for filter_name, filters in self.study.filters.items():
                for amount in amounts:
                    label, requested = f"{name}-{filter_name}-x{amount:g}", round(amount * gold)
                    augmented = self.augment(label, questions, filters, requested, baseline)
                    reader = self.reader(label, augmented.results / "augmented.json", (augmented,))
                    one = replace(made, filter=filter_name, amount=amount, requested=requested)
                    cells.append(replace(one, reader=reader, augment=augmented))
        return cells

    def add(self, kind: str, label: str, arguments: Sequence[str], needs: Sequence[Job], exclusive: str = "") -> Job:
        return self.listed.add(kind, f"{self.data.name}-{label}", self.seed, arguments, needs, exclusive)

    def settings(self, command: str, *specific: Sequence[str]) -> list[str]:
        """What every job of a command gets, from general to specific."""
        general = settings_of(command, [*self.study.settings, *self.study.resources[self.data.name].settings])
        folders = [text for text in self.miniatures if text.startswith(MINIATURES[command])]
        last = [text for part in specific for text in part]
        if any(text.startswith("model=") for text in last):  # another model; a value would override it
            folders = [text for text in folders if not text.startswith("model.path=")]
        return [f"preset={self.study.preset}", *general, *folders, *ALL_EXAMPLES, *last]

    def generator(self, name: str, generator: Generator) -> tuple[Job | None, str]:
        """The job that trains a generator, and the folder of its model; no job for a generator at a path."""
        if generator.path is not None:
            return None, generator.path.replace("{resource}", self.data.name).replace("{seed}", str(self.seed))
        needs: list[Job] = []
        model: list[str] = []
        if generator.stages == "scst":
            start = "ce" if generator.start is None else generator.start
            options = Generator("ce") if generator.start is None else self.study.generators[start]
            first, folder = self.generator(start, options)
            needs, model = [first] if first else [], [f"model.path={folder}"]
        arguments = [
            *self.settings("train", model, generator.settings),
            f"stages={generator.stages}",
            f"seed={self.seed}",
            f"data.train={self.data.folder / 'gold.json'}",
            f"data.validation={self.held_out / 'development.json'}",
            "output_dir={out}",
        ]
        kind = "ce" if generator.stages == "ce" else "scst"
        job = self.add(kind, name, arguments, needs)
        return job, str(job.results / kind)

    def generate(self, name: str, trained: Job | None, model: str) -> Job:
        weights = ""
        if trained is None and (files := sorted(Path(model).glob("*.safetensors"))):
            weights = "-" + "".join(
                file_hash(file)[:4] for file in files
            )  # another model at the same path: another job
        arguments = [
            *self.settings("generate", self.study.generate),
            f"seed={self.seed}",
            f"model.path={model}",
            f"data.train={self.data.folder / 'spans.jsonl'}",
            "output={out}/questions.jsonl",
        ]
        return self.add("generate", f"{name}{weights}", arguments, [trained] if trained else [])

    def augment(self, label: str, questions: Job, filters: Sequence[str], requested: int, baseline: Job) -> Job:
        filled = [text.replace("{gold_reader}", str(baseline.results)) for text in filters]
        arguments = [
            *self.settings("augment", filled),
            f"augment.questions={questions.results / 'questions.jsonl'}",
            f"augment.gold={self.data.folder / 'gold.json'}",
            "augment.output={out}/augmented.json",
            f"augment.num_samples={requested}",
            f"augment.seed={self.seed}",
        ]
        needs = [questions, *([baseline] if filled != [*filters] else [])]
        return self.add("augment", label, arguments, needs, exclusive=questions.name)

    def reader(self, label: str, train: Path, needs: Sequence[Job]) -> Job:
        arguments = [
            *self.settings("qa"),
            f"data.train={train}",
            f"data.validation={self.held_out / 'validation.json'}",
            f"qa.seeds=[{self.seed}]",
            *([] if self.updates is None else [f"qa.max_steps={self.updates}"]),
            "output_dir={out}",
        ]
        return self.add("reader", label, arguments, needs)
