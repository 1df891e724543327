"""A study: its file, its data, and the grid of its jobs.

The data are each resource's gold questions and answer spans, and one validation file for all. No passage has two
roles. A validation passage never enters training, and the passages on which generators choose their checkpoint are
neither trained on nor evaluated on. The questions that this leaves out are counted.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rl_qg.data.examples import QAExample, examples_hash, passage_hash, report_limit, seeded_rank, write_squad
from rl_qg.data.layouts import CONTEXTS
from rl_qg.data.splits import answer_spans, read_role, sample_labelled, take
from rl_qg.reports.study_view import NO_GENERATOR
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash, write_json, write_json_lines
from rl_qg.settings import DataSettings, WorldSettings
from rl_qg.settings.keys import MISSING
from rl_qg.settings.yaml_files import as_overrides, listed_values
from rl_qg.studies import jobs
from rl_qg.studies.jobs import Job, JobFile, JobList, Values, by_name, device_fault, item

ALL = "all"  # the questions of all validation sets together
PAGE = "docs/how-to/study.md"
NAMED = f"options; see {PAGE}"
COMPLETE = "data.json"  # in each data folder, written last
KINDS = ("ce", "scst", "generate", "augment", "reader")


@dataclass
class StudyData:
    """Where the passages come from. A source is a path, a list of paths, a Hub data set, or `world`.

    `validation` has a source for each set by its name; a passage in two sets belongs to the first. `development` is
    the fraction of the training passages set apart, on which generators choose their checkpoint. `seed` is that of all
    samples: those of `max_passages`, `max_validation` (of each set), `max_spans` (of each resource), and the labelled
    passages.
    """

    train: Any = MISSING
    validation: dict[str, Any] = item(
        required=True, form=lambda value, where: value if isinstance(value, dict) else {"validation": value}
    )
    max_passages: int | None = item(None, least=1)
    max_validation: int | None = item(None, least=1)
    development: float = item(0.05, fault=lambda part: "" if 0 < part < 1 else f"{part:g} is not in (0, 1)")
    max_spans: int | None = item(None, least=1)
    hotpotqa_context: str = item("facts", choices=CONTEXTS)
    seed: int = item(0, least=0)


@dataclass
class Resource:
    """How many questions are known: a fraction of the passages, at most `max_gold` questions of whole passages.

    The other passages give answers without questions, as do the files under `unlabelled`. With the unit `questions`
    both numbers are about questions, whatever their passages.
    """

    fraction: float = item(1.0, fault=lambda part: "" if 0 < part <= 1 else f"{part:g} is not in (0, 1]")
    unit: str = item("passages", choices=("passages", "questions"))
    max_gold: int | None = item(None, least=1)
    unlabelled: list[str] = item([], form=listed_values)
    settings: list[str] = item([], form=as_overrides)


@dataclass
class Generator:
    """A generator to train (`stages`), or a trained one in the folder `path`.

    With `stages: scst` it learns by reward from the generator of the same resource and seed that `start` names (`from`
    in the file); the only one with `stages: ce` is the default. Where the study has none, one is trained for it with
    the study's settings alone. For a generator at a path, `start` only names the one that it is tested against.
    """

    stages: str = item("scst", choices=("ce", "scst", "both"))
    start: str | None = None
    path: str | None = None
    settings: list[str] = item([])


def _resource(value: Any, where: str) -> dict[str, Any]:
    short = {} if value is None else {"fraction": value}
    return jobs.written_out(Resource, value if isinstance(value, dict) else short, f"{where}.")


def _generator(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {"settings": as_overrides(value, where)}
    options = {key: value[key] for key in ("stages", "path") if key in value}
    train = {key: part for key, part in value.items() if key not in ("stages", "path", "from", "settings")}
    settings = [*as_overrides(value.get("settings"), f"{where}.settings"), *as_overrides(train, where)]
    if options.get("path") is not None and (settings or "stages" in value):
        raise InputError(
            f"{where}: a generator at a path is not trained; give path, and from for what it is tested against"
        )
    return {**options, "start": value.get("from"), "settings": settings}


@dataclass
class Study(JobFile):
    """A grid of generators, filters, amounts, resources and seeds; `docs/how-to/study.md` explains the keys."""

    output_dir: Path = MISSING
    data: StudyData = item(StudyData)
    resources: dict[str, Resource] = item({}, required=True, form=by_name(_resource, NAMED))
    generators: dict[str, Generator] = item({}, form=by_name(_generator, NAMED))
    filters: dict[str, list[str]] = item({}, form=by_name(as_overrides, NAMED))
    amounts: list[float] = item(
        form=listed_values,
        fault=lambda one: "" if 0 <= one < math.inf else f"{one:g} is not a finite number of at least 0",
    )
    seeds: list[int] = item(required=True, least=0, form=listed_values)
    preset: str = "paper"
    settings: list[str] = item([], form=as_overrides)
    generate: list[str] = item([], form=as_overrides)
    comparisons: list[list[str]] = item([])
    devices: list[str] = item(["cpu"], required=True, form=listed_values, fault=device_fault)
    resamples: int = item(10_000, least=100)
    keep_readers: bool = False

    kind, page, shown_keys = "study", PAGE, "data, generators, amounts"
    renamed = ((".start", ".from"),)
    set_itself = "settings: {} is set by the grid itself (data, resources, generators, amounts, seeds, output_dir)"

    def own_keys(self) -> Sequence[str]:
        of_data = ("train", "validation", "max_train", "max_validation", "labelled_fraction", "labelled_unit")
        of_augment = ("seed", "num_samples", "questions", "gold", "output")
        own = (f"data.{key}" for key in of_data), of_augment, (f"augment.{key}" for key in of_augment)
        return (*chain(*own), "qa.seeds", "stages", "output_dir")

    def overrides(self) -> Sequence[str]:
        kinds = (self.resources, self.generators)
        settings = [text for kind in kinds for one in kind.values() for text in one.settings]
        return [*self.settings, *settings, *chain(*self.filters.values()), *self.generate]

    def complete(self) -> None:
        """Let each generator that learns by reward start from the study's only one with `stages: ce`."""
        self.amounts = sorted({*self.amounts, 0.0})  # every difference is one to the reader without augmentation
        self.seeds = list(dict.fromkeys(self.seeds))
        self.generators.pop(NO_GENERATOR, None)
        trained = [name for name, one in self.generators.items() if one.stages == "ce" and one.path is None]
        for name, one in self.generators.items():
            if one.stages == "scst" and one.path is None and one.start is None and trained:
                if len(trained) > 1:
                    raise InputError(
                        f"{self.file}: generators.{name}: {' and '.join(trained)} learn by cross-entropy; say which "
                        f"one it starts from, such as from: {trained[0]}"
                    )
                one.start = trained[0]

    def conflicts(self) -> Iterator[str]:
        sources = {"train": self.data.train}
        sources |= {f"validation.{name}": source for name, source in self.data.validation.items()}
        for key, source in sources.items():
            texts = source if isinstance(source, list) else [source]
            if not texts or not all(isinstance(text, str) for text in texts):
                yield f"data.{key}: expected a file, a list of files, or the name of a data set, got {source!r}"
        if ALL in self.data.validation and len(self.data.validation) > 1:
            yield f"data.validation: {ALL} is the name for all sets together; give the set another"
        if any(self.amounts):
            yield from (f"{key}: give at least one" for key in ("generators", "filters") if not getattr(self, key))
        yield from jobs.name_faults(self.generators, self.resources, self.filters, self.data.validation)
        for name, one in self.generators.items():
            start = self.generators.get(one.start or "")
            if one.stages == "scst" and "model.path" in map(jobs.key_of, one.settings):
                yield f"generators.{name}.model.path: leave it out; the key from names the generator to start from"
            if one.start is not None and start is None:
                yield f"generators.{name}.from: there is no generator {one.start}"
            elif start is not None and one.path is None and one.stages != "scst":
                yield f"generators.{name}.from: only a generator with stages: scst starts from another"
            elif start is not None and one.path is None and (start.stages != "ce" or start.path is not None):
                yield f"generators.{name}.from: {one.start} is not a generator with stages: ce"
        if "model.path" in map(jobs.key_of, self.generate):
            yield "generate: model.path is that of each generator; leave it out"
        if any(len(pair) != 2 for pair in self.comparisons):
            yield "comparisons: expected pairs of generators, such as [qrelscore, bartscore]"
            return
        unknown = [name for pair in self.comparisons for name in pair if name not in self.generators]
        yield from (f"comparisons: there is no generator {name}" for name in unknown)
        pairs = {frozenset(pair) for pair in self.comparisons}
        if len(pairs) < len(self.comparisons) or any(len(pair) < 2 for pair in pairs):
            yield "comparisons: a pair is given twice, or a generator with itself"


@dataclass(frozen=True)
class ResourceData:
    """What the jobs of one resource read: human questions (`gold`), one example without a question for each answer
    that questions may be generated for (`spans`), and the `text` on which miniatures are pretrained, of gold and the
    passages without questions. `folder` is that of gold.json and spans.jsonl.
    """

    name: str
    folder: Path
    gold: list[QAExample]
    spans: list[QAExample]
    text: list[QAExample]


@dataclass(frozen=True)
class StudyExamples:
    """All data of a study: `folder` of validation.json, development.json and sets.json, the set of each validation
    question's id, counts of what there is and what was left out for what reason, and SHA-256 of each source.
    """

    folder: Path
    validation: list[QAExample]
    development: list[QAExample]
    sets: Mapping[str, str]
    resources: Mapping[str, ResourceData]
    counts: Mapping[str, Any]
    sources: Mapping[str, str]


def load_examples(study: Study, world: WorldSettings) -> StudyExamples:
    """Read and split everything; writes nothing. Data folders are named by a hash of what they hold."""
    data, root = study.data, study.output_dir / "data"
    validation, sets, counts, sources, held_out = _read_validation(study, world)
    train = read_role(DataSettings(train=data.train, world=world, hotpotqa_context=data.hotpotqa_context), "train")
    _, clean = _split(train.examples, held_out)
    passages = sorted(_passages(clean))  # each seed is another: of these, of the development data, of the labelled
    within = set(sorted(passages, key=partial(seeded_rank, data.seed + 2))[: data.max_passages])
    report_limit("data.max_passages", data.max_passages, len(within), len(passages), "training passages are used")
    used, _ = _split(clean, within)
    if len(within) < 2:
        many = f"{len(within)} of {len(_passages(train.examples))} passages are in no validation set"
        raise InputError(f"data.train: {many}, and two at least are needed, one to choose checkpoints on; give more")
    chosen, _ = sample_labelled(used, data.development, data.seed + 1)
    development, rest = _split(used, _passages(chosen))
    counts |= {
        "train_passages": len(_passages(train.examples)),
        "train_questions_on_validation_passages_dropped": len(train.examples) - len(clean),
        "train_questions_beyond_max_passages_left_out": len(clean) - len(used),
        "development_questions": len(development),
        "reading": {"train": train.report},
    }
    resources, forbidden = {}, held_out | _passages(development)
    for name, resource in study.resources.items():
        resources[name], counts[f"resource {name}"] = _resource_data(name, resource, rest, forbidden, study)
    held_out_hash = _hash(examples_hash(validation), examples_hash(development), json.dumps(sorted(sets.items())))
    folder = root / f"validation-{held_out_hash}"
    return StudyExamples(folder, validation, development, sets, resources, counts, sources | train.hashes)


def write_examples(examples: StudyExamples) -> None:
    folder = examples.folder
    if not (folder / COMPLETE).exists():
        write_squad(folder / "validation.json", examples.validation)
        write_squad(folder / "development.json", examples.development)
        write_json(folder / "sets.json", dict(examples.sets))
        write_json(folder / COMPLETE, {"sources": dict(examples.sources)})
    for resource in examples.resources.values():
        if not (resource.folder / COMPLETE).exists():
            write_squad(resource.folder / "gold.json", resource.gold)
            rows = (
                {"id": one.id, "title": one.title, "context": one.context, "question": "", "language": one.language}
                | {"answers": [{"text": one.answers[0].text, "answer_start": one.answers[0].start}]}
                for one in resource.spans
            )
            write_json_lines(resource.folder / "spans.jsonl", rows)
            write_json(resource.folder / COMPLETE, {"gold": len(resource.gold), "spans": len(resource.spans)})


def _read_validation(
    study: Study, world: WorldSettings
) -> tuple[list[QAExample], dict[str, str], dict[str, Any], dict[str, str], set[str]]:
    """All validation examples, the set of each, counts, hashes of the sources, and all passages of the sets, also
    those that the sample leaves out. With several sets, the ids of questions begin with the set's name.
    """
    data = study.data
    examples: list[QAExample] = []
    sets, sources, passages = dict[str, str](), dict[str, str](), set[str]()
    counts: dict[str, Any] = {"validation_questions": {}, "in_an_earlier_set_dropped": {}}
    for name, source in data.validation.items():
        settings = DataSettings(train="", validation=source, world=world, hotpotqa_context=data.hotpotqa_context)
        read = read_role(settings, "validation")
        _, clean = _split(read.examples, passages)
        if not clean:
            raise InputError(f"{study.file}: data.validation.{name}: every passage is in an earlier set; leave it out")
        passages |= _passages(clean)
        sample = take(clean, data.max_validation, data.seed, "data.max_validation", f"questions of {name} are used")
        if len(data.validation) > 1:
            sample = [replace(example, id=f"{name}:{example.id}") for example in sample]
        examples += sample
        sets |= {example.id: name for example in sample}
        sources |= read.hashes
        counts["validation_questions"][name] = len(sample)
        counts["in_an_earlier_set_dropped"][name] = len(read.examples) - len(clean)
    return examples, sets, counts, sources, passages


def _resource_data(
    name: str, resource: Resource, examples: list[QAExample], forbidden: set[str], study: Study
) -> tuple[ResourceData, dict[str, int]]:
    seed = study.data.seed
    gold, unlabelled = sample_labelled(examples, resource.fraction, seed, resource.unit)
    what = "training questions are used, and of the others passages and answers alone"
    report_limit(f"resources.{name}.fraction", resource.fraction, len(gold), len(examples), what)
    if resource.max_gold is not None:
        known = len(gold)
        gold, rest = _limit_gold(gold, resource.max_gold, resource.unit, seed)
        report_limit(f"resources.{name}.max_gold", resource.max_gold, len(gold), known, what)
        unlabelled = [*unlabelled, *rest]
    if not gold:
        raise InputError(f"{study.file}: resources.{name}: no gold question is left; raise fraction or max_gold")
    dropped = 0
    for path in resource.unlabelled:
        options = DataSettings(train=path, hotpotqa_context=study.data.hotpotqa_context)
        more = read_role(options, "train", allow_unlabelled=True).examples
        _, clean = _split(more, forbidden)
        dropped += len(more) - len(clean)
        unlabelled += [replace(example, id=f"{Path(path).stem}:{example.id}", question="") for example in clean]
    text = [*gold, *unlabelled]
    all_spans = answer_spans([replace(example, question="") for example in text])
    spans = take(all_spans, study.data.max_spans, seed, "data.max_spans", "answers are asked about")
    folder = study.output_dir / "data" / f"{name}-{_hash(examples_hash(gold), examples_hash(spans))}"
    counts = {"gold": len(gold), "spans": len(spans), "spans_left_out": len(all_spans) - len(spans)}
    counts |= {"unlabelled_on_validation_or_development_passages_dropped": dropped}
    return ResourceData(name, folder, gold, spans, text), counts


def _limit_gold(gold: list[QAExample], limit: int, unit: str, seed: int) -> tuple[list[QAExample], list[QAExample]]:
    """Keep whole passages (or questions, if these are the unit), in the order in which `sample_labelled` chooses them,
    while they hold at most `limit` questions; the other examples lose their question.
    """
    keys = [example.id if unit == "questions" else passage_hash(example.context) for example in gold]
    sizes, kept, total = Counter(keys), set[str](), 0
    for key in sorted(sizes, key=partial(seeded_rank, seed)):
        total += sizes[key]
        if total > limit:
            break
        kept.add(key)
    pairs = list(zip(gold, keys, strict=True))
    rest = [replace(example, question="") for example, key in pairs if key not in kept]
    return [example for example, key in pairs if key in kept], rest


def _passages(examples: Iterable[QAExample]) -> set[str]:
    return {passage_hash(example.context) for example in examples}


def _split(examples: Sequence[QAExample], passages: set[str]) -> tuple[list[QAExample], list[QAExample]]:
    pairs = [(passage_hash(example.context) in passages, example) for example in examples]
    return [example for inside, example in pairs if inside], [example for inside, example in pairs if not inside]


def _hash(*parts: str) -> str:
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:8]


# --- The grid as jobs. The command of a job names the folders of those that it needs, so that its hash covers all
# that it depends on.


@dataclass(frozen=True)
class Cell:
    """One reader of the grid: gold questions of a resource, and `amount` times as many generated ones. `run` is the
    run folder of the generator; for a generator at a path, the folder above its model.
    """

    resource: str
    generator: str
    filter: str
    amount: float
    seed: int
    gold: int
    requested: int
    reader: Job
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
            cells += _CellPlanner(study, examples.folder, data, miniatures[name], steps, seed, listed).cells()
    depth: dict[str, int] = {}
    for job in listed.jobs.values():
        depth[job.name] = 1 + max((depth[name] for name in job.needs), default=0)
    jobs = sorted(listed.jobs.values(), key=lambda job: (study.seeds.index(job.seed), depth[job.name]))
    return Grid(tuple(cells), tuple(jobs))


@dataclass(frozen=True)
class _CellPlanner:
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
            for filter_name, filters in self.study.filters.items():
                for amount in amounts:
                    label, requested = f"{name}-{filter_name}-x{amount:g}", round(amount * gold)
                    augmented = self.augment(label, questions, filters, requested, baseline)
                    reader = self.reader(label, augmented.results / "augmented.json", (augmented,))
                    cell = (self.data.name, name, filter_name, amount, self.seed, gold, requested)
                    cells.append(Cell(*cell, reader, augmented, run))
        return cells

    def add(
        self, kind: str, label: str, specific: Sequence[str], own: Values, needs: Sequence[Job], exclusive: str = ""
    ) -> Job:
        command = jobs.COMMANDS.get(kind, kind)
        settings = [*self.study.settings, *self.study.resources[self.data.name].settings]
        general = jobs.settings_of(command, settings, given := [*settings, *specific])
        # Training pretrains every miniature that its settings name, read or not.
        folders = [*(self.miniatures if command == "train" else jobs.settings_of(command, self.miniatures, given))]
        if any(text.startswith("model=") for text in specific):  # another model; a value would override it
            folders = [text for text in folders if not text.startswith("model.path=")]
        arguments = [f"preset={self.study.preset}", *general, *folders, *jobs.ALL_EXAMPLES, *specific]
        arguments += [f"{key}={value}" for key, value in own.items()]
        return self.listed.add(kind, f"{self.data.name}-{label}", self.seed, arguments, needs, exclusive)

    def generator(self, name: str, generator: Generator) -> tuple[Job | None, str]:
        """The job that trains a generator, and the folder of its model; no job for a generator at a path."""
        if generator.path is not None:
            return None, generator.path.replace("{resource}", self.data.name).replace("{seed}", str(self.seed))
        needs, specific = list[Job](), generator.settings
        if generator.stages == "scst":
            start = "ce" if generator.start is None else generator.start
            options = Generator("ce") if generator.start is None else self.study.generators[start]
            first, folder = self.generator(start, options)
            needs, specific = [first] if first else [], [f"model.path={folder}", *generator.settings]
        own: Values = {
            "stages": generator.stages,
            "seed": self.seed,
            "data.train": self.data.folder / "gold.json",
            "data.validation": self.held_out / "development.json",
            "output_dir": "{out}",
        }
        kind = "ce" if generator.stages == "ce" else "scst"
        job = self.add(kind, name, specific, own, needs)
        return job, str(job.results / kind)

    def generate(self, name: str, trained: Job | None, model: str) -> Job:
        files = sorted(Path(model).glob("*.safetensors")) if trained is None else []
        weights = "".join(file_hash(file)[:4] for file in files)  # another model at the same path: another job
        spans = self.data.folder / "spans.jsonl"
        own = {"seed": self.seed, "model.path": model, "data.train": spans, "output": "{out}/questions.jsonl"}
        label = f"{name}-{weights}" if weights else name
        return self.add("generate", label, self.study.generate, own, [trained] if trained else [])

    def augment(self, label: str, questions: Job, filters: Sequence[str], requested: int, baseline: Job) -> Job:
        filled = [text.replace("{gold_reader}", str(baseline.results)) for text in filters]
        own = {
            "augment.questions": questions.results / "questions.jsonl",
            "augment.gold": self.data.folder / "gold.json",
            "augment.output": "{out}/augmented.json",
            "augment.num_samples": requested,
            "augment.seed": self.seed,
        }
        needs = [questions, *([baseline] if filled != [*filters] else [])]
        return self.add("augment", label, filled, own, needs, exclusive=questions.name)

    def reader(self, label: str, train: Path, needs: Sequence[Job]) -> Job:
        updates = {} if self.updates is None else {"qa.max_steps": self.updates}
        own: Values = {"data.train": train, "data.validation": self.held_out / "validation.json"}
        own = {**own, "qa.seeds": f"[{self.seed}]", **updates, "output_dir": "{out}"}
        return self.add("reader", label, (), own, needs)
