"""The data of a study: each resource's gold questions and answer spans, and one validation file for all of them.

No passage has two roles. A validation passage never enters training, and the passages on which generators choose their
checkpoint are neither trained on nor evaluated on. The questions that this leaves out are counted.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from rl_qg.data.examples import QAExample, examples_hash, passage_hash, report_limit, seeded_rank, write_squad
from rl_qg.data.layouts import CONTEXTS
from rl_qg.data.splits import answer_spans, read_role, sample_labelled, take
from rl_qg.reports.study_view import NO_GENERATOR
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, write_json
from rl_qg.settings import DataSettings, WorldSettings
from rl_qg.settings.yaml_files import as_overrides, listed_values, override, read_content, typed

# The study file: a grid of generators, filters, amounts, resources and seeds, read from YAML and checked whole.
#
# The dataclasses are the form of the file: OmegaConf checks keys and types against them. Short forms (one value for a
# list, a number for a resource, overrides as a mapping) are written out first. `docs/how-to/study.md` explains the
# keys.


STAGES = ("ce", "scst", "both")
UNITS = ("passages", "questions")
ALL = "all"  # the questions of all validation sets together
SET_BY_THE_GRID = (
    "data.max_train",
    "data.max_validation",
    "data.labelled_fraction",
    "data.labelled_unit",
    "seed",
    "qa.seeds",
    "output_dir",
)
PAGE = "docs/how-to/study.md"


@dataclass
class StudyData:
    """Where the passages come from. A source is a path, a list of paths, a Hub data set, or `world`.

    Args:
        train: passages with questions, of which the resources label a part.
        validation: the source of each set that readers are evaluated on, by the set's name; a passage in two sets
            belongs to the first.
        max_passages: training passages used, a seeded sample; None: all.
        max_validation: questions of each set, a seeded sample; None: all.
        development: fraction of the training passages set apart, on which generators choose their checkpoint.
        max_spans: answers of each resource that questions are generated for, a seeded sample; None: all.
        hotpotqa_context: what the passage of a HotpotQA question is (`data.hotpotqa_context`).
        seed: of these samples and of the choice of labelled passages.
    """

    train: Any = MISSING
    validation: dict[str, Any] = MISSING
    max_passages: int | None = None
    max_validation: int | None = None
    development: float = 0.05
    max_spans: int | None = None
    hotpotqa_context: str = "facts"
    seed: int = 0


@dataclass
class Resource:
    """How many questions are known: a fraction of the passages, at most `max_gold` questions of whole passages.

    The other passages give answers without questions, as do the files under `unlabelled`. With the unit `questions`
    both numbers are about questions, whatever their passages.
    """

    fraction: float = 1.0
    unit: str = "passages"
    max_gold: int | None = None
    unlabelled: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)


@dataclass
class Generator:
    """A generator to train (`stages`), or a trained one in the folder `path`.

    With `stages: scst` it learns by reward from the generator of the same resource and seed that `start` names (`from`
    in the file); the only one with `stages: ce` is the default. Where the study has none, one is trained for it with
    the study's settings alone. For a generator at a path, `start` only names the one that it is tested against.
    """

    stages: str = "scst"
    start: str | None = None
    path: str | None = None
    settings: list[str] = field(default_factory=list)


@dataclass
class Study:
    """A study file. Overrides are written as on the command line, `key=value`."""

    output_dir: Path = MISSING
    data: StudyData = field(default_factory=StudyData)
    resources: dict[str, Resource] = MISSING
    generators: dict[str, Generator] = MISSING
    filters: dict[str, list[str]] = MISSING
    amounts: list[float] = MISSING
    seeds: list[int] = MISSING
    preset: str = "paper"
    settings: list[str] = field(default_factory=list)
    generate: list[str] = field(default_factory=list)
    comparisons: list[list[str]] = field(default_factory=list)
    devices: list[str] = field(default_factory=lambda: ["cpu"])
    resamples: int = 10_000
    keep_readers: bool = False

    file = ""  # where it was read from; without a type, and so not a key


def read_study(path: Path, overrides: Sequence[str] = (), *, allow_imports: bool = False) -> Study:
    """Read a study file; `overrides` (`key=value`, nested keys with dots, values in YAML) replace its values."""
    content = read_content(path, "study", keys="data, generators, amounts", page=PAGE, allow_imports=allow_imports)
    for text in overrides:
        override(content, text, "study")
    study = typed(_written_out(content, str(path)), Study, str(path), PAGE, renamed=[(".start", ".from")])
    study.file = str(path)
    study.amounts = sorted({*study.amounts, 0.0})  # every difference is one to the reader without augmentation
    study.seeds = list(dict.fromkeys(study.seeds))
    study.generators.pop(NO_GENERATOR, None)
    _set_starts(study)
    if errors := [*_wrong_data(study), *_wrong_grid(study), *_wrong_generators(study), *_wrong_comparisons(study)]:
        raise InputError(f"{path}: " + "; ".join(errors))
    return study


# --- Short forms ---


def _written_out(content: Mapping[str, Any], file: str) -> dict[str, Any]:
    full = dict(content)
    for key in full.keys() & {"amounts", "seeds", "devices"}:
        full[key] = listed_values(full[key], f"{file}: {key}")
    for key in full.keys() & {"settings", "generate"}:
        full[key] = as_overrides(full[key], f"{file}: {key}")
    if isinstance(data := full.get("data"), dict) and not isinstance(data.get("validation", {}), dict):
        full["data"] = {**data, "validation": {"validation": data["validation"]}}
    for key, write_out in (("resources", _resource), ("generators", _generator), ("filters", as_overrides)):
        if key in full and not isinstance(full[key], dict):
            raise InputError(f"{file}: {key}: expected names with their options; see docs/how-to/study.md")
        full |= {key: {name: write_out(value, f"{file}: {key}.{name}") for name, value in full.get(key, {}).items()}}
    return full


def _resource(value: Any, where: str) -> dict[str, Any]:
    options = dict(value) if isinstance(value, dict) else {} if value is None else {"fraction": value}
    if "settings" in options:
        options["settings"] = as_overrides(options["settings"], f"{where}.settings")
    if "unlabelled" in options:
        options["unlabelled"] = listed_values(options["unlabelled"], f"{where}.unlabelled")
    return options


def _generator(value: Any, where: str) -> dict[str, Any]:
    """A mapping's keys are stages, from, path and settings; all others are overrides of `rl-qg train`."""
    if not isinstance(value, dict):
        return {"settings": as_overrides(value, where)}
    options = {key: value[key] for key in ("stages", "path") if key in value}
    train = {key: item for key, item in value.items() if key not in ("stages", "path", "from", "settings")}
    settings = [*as_overrides(value.get("settings"), f"{where}.settings"), *as_overrides(train, where)]
    if options.get("path") is not None and (settings or "stages" in value):
        raise InputError(
            f"{where}: a generator at a path is not trained; give path, and from for what it is tested against"
        )
    return {**options, "start": value.get("from"), "settings": settings}


# --- Values ---


def _set_starts(study: Study) -> None:
    """Let each generator that learns by reward start from the study's only one with `stages: ce`."""
    trained = [name for name, item in study.generators.items() if item.stages == "ce" and item.path is None]
    for name, item in study.generators.items():
        if item.stages != "scst" or item.path is not None or item.start is not None or not trained:
            continue
        if len(trained) > 1:
            raise InputError(
                f"{study.file}: generators.{name}: {' and '.join(trained)} learn by cross-entropy; say which "
                f"one it starts from, such as from: {trained[0]}"
            )
        item.start = trained[0]


def _wrong_data(study: Study) -> Iterator[str]:
    data = study.data
    sources = {"train": data.train, **{f"validation.{name}": source for name, source in data.validation.items()}}
    for key, source in sources.items():
        texts = source if isinstance(source, list) else [source]
        if not texts or not all(isinstance(text, str) for text in texts):
            yield f"data.{key}: expected a file, a list of files, or the name of a data set, got {source!r}"
    limits = {f"data.{key}": getattr(data, key) for key in ("max_passages", "max_validation", "max_spans")}
    limits |= {f"resources.{name}.max_gold": resource.max_gold for name, resource in study.resources.items()}
    yield from (f"{key}: {value} is less than 1" for key, value in limits.items() if value is not None and value < 1)
    if data.seed < 0:
        yield f"data.seed: {data.seed} is less than 0"
    if data.hotpotqa_context not in CONTEXTS:
        yield f"data.hotpotqa_context: {data.hotpotqa_context!r} is not one of {', '.join(CONTEXTS)}"
    if not 0 < data.development < 1:
        yield f"data.development: {data.development:g} is not in (0, 1)"
    if ALL in data.validation and len(data.validation) > 1:
        yield f"data.validation: {ALL} is the name for all sets together; give the set another"
    for name, resource in study.resources.items():
        if not 0 < resource.fraction <= 1:
            yield f"resources.{name}.fraction: {resource.fraction:g} is not in (0, 1]"
        if resource.unit not in UNITS:
            yield f"resources.{name}.unit: {resource.unit!r} is not one of {', '.join(UNITS)}"


def _wrong_grid(study: Study) -> Iterator[str]:
    required: dict[str, Sequence[Any]] = {"resources": [*study.resources], "seeds": study.seeds}
    required |= {"data.validation": [*study.data.validation], "devices": study.devices}
    if any(study.amounts):
        required |= {"generators": [*study.generators], "filters": [*study.filters]}
    yield from (f"{key}: give at least one" for key, values in required.items() if not values)
    yield from (f"seeds: {seed} is less than 0" for seed in study.seeds if seed < 0)
    for amount in study.amounts:
        if not 0 <= amount < math.inf:
            yield f"amounts: {amount:g} is not a finite number of at least 0"
    for name in (*study.generators, *study.resources, *study.filters, *study.data.validation):
        if not name or not all(letter.isalnum() or letter in "_." for letter in name):
            yield f"{name!r} becomes part of a file name: use letters, digits, _ and ."
    for name in study.devices:
        if name != "cpu" and not name.isdecimal():
            yield f"devices: {name} is neither cpu nor the number of a GPU"
    if study.resamples < 100:
        yield f"resamples: {study.resamples} is less than 100"
    for text in (*study.settings, *(text for resource in study.resources.values() for text in resource.settings)):
        if (key := text.lstrip("+~").partition("=")[0]) in SET_BY_THE_GRID:
            yield f"settings: {key} is set by the grid itself (data, resources, seeds, output_dir)"


def _wrong_generators(study: Study) -> Iterator[str]:
    for name, generator in study.generators.items():
        where, start = f"generators.{name}", study.generators.get(generator.start or "")
        if generator.stages not in STAGES:
            yield f"{where}.stages: {generator.stages!r} is not one of {', '.join(STAGES)}"
        if generator.start is None:
            continue
        if start is None:
            yield f"{where}.from: there is no generator {generator.start}"
        elif generator.path is None and generator.stages != "scst":
            yield f"{where}.from: only a generator with stages: scst starts from another"
        elif generator.path is None and (start.stages != "ce" or start.path is not None):
            yield f"{where}.from: {generator.start} is not a generator with stages: ce"


def _wrong_comparisons(study: Study) -> Iterator[str]:
    for pair in study.comparisons:
        if len(pair) != 2:
            yield "comparisons: expected pairs of generators, such as [qrelscore, bartscore]"
            return
        yield from (f"comparisons: there is no generator {name}" for name in pair if name not in study.generators)
    pairs = [frozenset(pair) for pair in study.comparisons]
    if len(set(pairs)) < len(pairs) or any(len(pair) < 2 for pair in pairs):
        yield "comparisons: a pair is given twice, or a generator with itself"


COMPLETE = "data.json"  # in each data folder, written last


@dataclass(frozen=True)
class ResourceData:
    """What the jobs of one resource read.

    Args:
        folder: of its files, gold.json and spans.jsonl.
        gold: human questions with their answers.
        spans: one example without a question for each answer that questions may be generated for.
        text: gold and the passages without questions, on which miniatures are pretrained.
    """

    name: str
    folder: Path
    gold: list[QAExample]
    spans: list[QAExample]
    text: list[QAExample]


@dataclass(frozen=True)
class StudyExamples:
    """All data of a study.

    Args:
        folder: of validation.json, development.json and sets.json.
        sets: the validation set of each validation question's id.
        counts: how many questions and passages there are, and how many were left out for what reason.
        sources: SHA-256 of each source.
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
    held_out = _read_validation(study, world)
    train = read_role(DataSettings(train=data.train, world=world, hotpotqa_context=data.hotpotqa_context), "train")
    clean, shared = _without(train.examples, held_out.passages)
    clean, surplus = _limit_passages(clean, data.max_passages, data.seed)
    development, rest = _split_development(clean, data.development, data.seed)
    forbidden = held_out.passages | {passage_hash(example.context) for example in development}
    counts = held_out.counts | {
        "train_passages": len({passage_hash(example.context) for example in train.examples}),
        "train_questions_on_validation_passages_dropped": shared,
        "train_questions_beyond_max_passages_left_out": surplus,
        "development_questions": len(development),
        "reading": {"train": train.report},
    }
    resources = {}
    for name, resource in study.resources.items():
        resources[name], counts[f"resource {name}"] = _resource_data(name, resource, rest, forbidden, study, root)
    key = _hash([held_out.examples, development, sorted(held_out.sets.items())])
    folder, sources = root / f"validation-{key}", held_out.sources | train.hashes
    return StudyExamples(folder, held_out.examples, development, held_out.sets, resources, counts, sources)


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
            _write_spans(resource.folder / "spans.jsonl", resource.spans)
            write_json(resource.folder / COMPLETE, {"gold": len(resource.gold), "spans": len(resource.spans)})


@dataclass
class _HeldOut:
    """The validation examples; `passages` are all those of the sets, also those that the sample leaves out."""

    examples: list[QAExample]
    sets: dict[str, str]
    counts: dict[str, Any]
    sources: dict[str, str]
    passages: set[str]


def _read_validation(study: Study, world: WorldSettings) -> _HeldOut:
    """All validation sets; with several, the ids of their questions begin with the set's name."""
    data = study.data
    held_out = _HeldOut([], {}, {"validation_questions": {}, "in_an_earlier_set_dropped": {}}, {}, set())
    for name, source in data.validation.items():
        split = read_role(
            DataSettings(train="", validation=source, world=world, hotpotqa_context=data.hotpotqa_context),
            "validation",
        )
        clean, repeated = _without(split.examples, held_out.passages)
        if not clean:
            raise InputError(f"{study.file}: data.validation.{name}: every passage is in an earlier set; leave it out")
        held_out.passages |= {passage_hash(example.context) for example in clean}
        sample = take(clean, data.max_validation, data.seed, "data.max_validation", f"questions of {name} are used")
        if len(data.validation) > 1:
            sample = [replace(example, id=f"{name}:{example.id}") for example in sample]
        held_out.examples += sample
        held_out.sets |= {example.id: name for example in sample}
        held_out.sources |= split.hashes
        held_out.counts["validation_questions"][name] = len(sample)
        held_out.counts["in_an_earlier_set_dropped"][name] = repeated
    return held_out


def _limit_passages(examples: list[QAExample], limit: int | None, seed: int) -> tuple[list[QAExample], int]:
    """The examples of at most `limit` passages, and how many are left out. Labelled ones have another seed."""
    if limit is None:
        return examples, 0
    passages = sorted({passage_hash(example.context) for example in examples})
    kept_keys = set(sorted(passages, key=lambda key: seeded_rank(seed + 2, key))[:limit])
    kept = _within(examples, kept_keys)
    report_limit("data.max_passages", limit, len(kept_keys), len(passages), "training passages are used")
    return kept, len(examples) - len(kept)


def _split_development(
    examples: list[QAExample], fraction: float, seed: int
) -> tuple[list[QAExample], list[QAExample]]:
    """Set whole passages apart; the rest are for the resources. The seed of the labelled passages is another."""
    if len({passage_hash(example.context) for example in examples}) < 2:
        raise InputError("data.train: one passage alone leaves none to choose checkpoints on; give more")
    chosen, _ = sample_labelled(examples, fraction, seed + 1)
    passages = {passage_hash(example.context) for example in chosen}
    return _within(examples, passages), _without(examples, passages)[0]


def _resource_data(
    name: str, resource: Resource, examples: list[QAExample], forbidden: set[str], study: Study, root: Path
) -> tuple[ResourceData, dict[str, int]]:
    """The data of a resource, with none of the `forbidden` passages, and its counts."""
    seed = study.data.seed
    gold, unlabelled = sample_labelled(examples, resource.fraction, seed, resource.unit)
    what = "training questions are used, and of the others passages and answers alone"
    report_limit(f"resources.{name}.fraction", resource.fraction, len(gold), len(examples), what)
    if resource.max_gold is not None:
        known = len(gold)
        gold, rest = _limit_gold(gold, resource, seed)
        report_limit(f"resources.{name}.max_gold", resource.max_gold, len(gold), known, what)
        unlabelled = [*unlabelled, *rest]
    if not gold:
        raise InputError(f"{study.file}: resources.{name}: no gold question is left; raise fraction or max_gold")
    dropped = 0
    for path in resource.unlabelled:
        more = read_role(DataSettings(train=path), "train", allow_unlabelled=True).examples
        clean, shared = _without(more, forbidden)
        dropped += shared
        unlabelled += [replace(example, id=f"{Path(path).stem}:{example.id}", question="") for example in clean]
    text = [*gold, *unlabelled]
    all_spans = answer_spans([replace(example, question="") for example in text])
    spans = take(all_spans, study.data.max_spans, seed, "data.max_spans", "answers are asked about")
    folder = root / f"{name}-{_hash([gold, spans])}"
    counts = {"gold": len(gold), "spans": len(spans), "spans_left_out": len(all_spans) - len(spans)}
    counts |= {"unlabelled_on_validation_or_development_passages_dropped": dropped}
    return ResourceData(name, folder, gold, spans, text), counts


def _limit_gold(gold: list[QAExample], resource: Resource, seed: int) -> tuple[list[QAExample], list[QAExample]]:
    """Keep whole passages (or questions, if these are the unit), in the order in which `sample_labelled` chooses them,
    while they hold at most `max_gold` questions; the other examples lose their question.
    """
    limit = resource.max_gold or 0
    if resource.unit == "questions":
        ranked = sorted((example.id for example in gold), key=lambda key: seeded_rank(seed, key))
        kept_ids = set(ranked[:limit])
        rest = [replace(example, question="") for example in gold if example.id not in kept_ids]
        return [example for example in gold if example.id in kept_ids], rest
    sizes: dict[str, int] = {}
    for example in gold:
        key = passage_hash(example.context)
        sizes[key] = sizes.get(key, 0) + 1
    kept, total = set(), 0
    for key in sorted(sizes, key=lambda key: seeded_rank(seed, key)):
        if total + sizes[key] > limit:
            break
        kept.add(key)
        total += sizes[key]
    others, _ = _without(gold, kept)
    return _within(gold, kept), [replace(example, question="") for example in others]


def _without(examples: Iterable[QAExample], passages: set[str]) -> tuple[list[QAExample], int]:
    """The examples on other passages, and how many are left out."""
    examples = list(examples)
    kept = [example for example in examples if passage_hash(example.context) not in passages]
    return kept, len(examples) - len(kept)


def _within(examples: Iterable[QAExample], passages: set[str]) -> list[QAExample]:
    return [example for example in examples if passage_hash(example.context) in passages]


def _write_spans(path: Path, spans: Sequence[QAExample]) -> None:
    with atomic_writer(path) as stream:
        for span in spans:
            answer = {"text": span.answers[0].text, "answer_start": span.answers[0].start}
            record = {"id": span.id, "title": span.title, "context": span.context, "question": "", "answers": [answer]}
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def _hash(parts: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        examples = bool(part) and isinstance(part[0], QAExample)
        digest.update((examples_hash(part) if examples else json.dumps(part)).encode())
    return digest.hexdigest()[:8]
