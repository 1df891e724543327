"""The study file: a grid of generators, filters, amounts, resources and seeds, read from YAML and checked whole.

Its form is explained in `docs/how-to/study.md`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from rl_qg.reports.study_plots import NONE
from rl_qg.runtime.errors import InputError
from rl_qg.studies.values import as_overrides, known, limit, listed, named, numbers, optional_text, source, whole

STAGES = ("ce", "scst", "both")
ALL = "all"  # the questions of all validation sets together
SET_BY_THE_GRID = ("data.max_train", "data.max_validation", "data.labelled_fraction", "seed", "qa.seeds", "output_dir")


@dataclass(frozen=True)
class StudyData:
    """Where the passages come from. A source is a path, a list of paths, a Hub data set, or `world`.

    Args:
        train: passages with questions, of which the resources label a part.
        validation: each set that readers are judged on, by name; a passage in two sets belongs to the first.
        max_passages: training passages used, a seeded sample; None: all.
        max_validation: questions of each set, a seeded sample; None: all.
        development: share of the training passages set apart, on which generators choose their checkpoint.
        max_spans: answers of each resource that questions are generated for, a seeded sample; None: all.
        seed: of these samples and of the choice of labelled passages.
    """

    train: Any
    validation: dict[str, Any]
    max_passages: int | None = None
    max_validation: int | None = None
    development: float = 0.05
    max_spans: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Resource:
    """How many questions are known: a share of the passages, at most `max_gold` questions of whole passages.

    The other passages give answers without questions, as do the files under `unlabelled`.
    """

    name: str
    fraction: float = 1.0
    max_gold: int | None = None
    unlabelled: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generator:
    """A generator to train (`stages`), or one that stands at `path`.

    With `stages: scst` it learns by reward from the generator of the same resource and seed that `start` names (`from`
    in the file); the only one with `stages: ce` is the default. Where the study has none, one is trained for it with
    the study's settings alone. For a generator at a path, `start` only names the one that it is tested against.
    """

    name: str
    stages: str = "scst"
    start: str | None = None
    path: str | None = None
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """A checked study file; overrides are written as on the command line, `key=value`."""

    file: str
    output_dir: Path
    data: StudyData
    resources: tuple[Resource, ...]
    generators: tuple[Generator, ...]
    filters: dict[str, tuple[str, ...]]
    amounts: tuple[float, ...]
    seeds: tuple[int, ...]
    preset: str = "paper"
    settings: tuple[str, ...] = ()
    generate: tuple[str, ...] = ()
    comparisons: tuple[tuple[str, str], ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    resamples: int = 10_000
    keep_readers: bool = False


def read_study(path: Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study file; `overrides` (`key=value`, nested keys with dots, values in YAML) win over it.

    Raises:
        InputError: naming the file and the key.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a study file") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: expected keys such as data, generators, amounts; see docs/how-to/study.md")
    raw = _with_text_keys(raw)
    for text in overrides:
        _override(raw, text)
    return _study(str(path), raw)


def _with_text_keys(value: Any) -> Any:
    """The same with every key as text, so that 25 and "25" name one resource."""
    if not isinstance(value, dict):
        return value
    texts = [(str(key), _with_text_keys(item)) for key, item in value.items()]
    return dict(texts) if len(dict(texts)) == len(value) else value  # two written alike are refused by name later


def _override(raw: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key or key.startswith("-"):
        raise InputError(f"argument {text!r} is not of the form key=value with a key of the study file")
    place = raw
    *outer, last = key.split(".")
    for name in outer:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise InputError(f"{key}: {name} holds no keys in the study file")
    try:
        place[last] = _with_text_keys(yaml.safe_load(value))
    except yaml.YAMLError:
        raise InputError(f"{text}: the value is not readable as YAML") from None


def _study(file: str, raw: dict[str, Any]) -> Study:
    values = known(raw, Study, file, without=("file",))
    amounts = numbers(values["amounts"], f"{file}: amounts")
    seeds = [whole(seed, f"{file}: seeds") for seed in listed(values["seeds"])]
    generators = [
        _generator(*item, file) for item in named(values["generators"], f"{file}: generators") if item[0] != NONE
    ]
    if not isinstance(values["output_dir"], str) or not isinstance(values["keep_readers"], bool):
        raise InputError(f"{file}: output_dir must be the name of a folder, keep_readers true or false")
    study = Study(
        file=file,
        output_dir=Path(values["output_dir"]),
        data=_data(values["data"], f"{file}: data"),
        resources=tuple(_resource(*item, file) for item in named(values["resources"], f"{file}: resources")),
        generators=tuple(_started(generators, file)),
        filters={
            name: as_overrides(options, f"{file}: filters.{name}")
            for name, options in named(values["filters"], f"{file}: filters")
        },
        amounts=tuple(sorted(set(amounts) | {0.0})),  # every difference is one to the reader without augmentation
        seeds=tuple(dict.fromkeys(seeds)),
        preset=str(values["preset"]),
        settings=as_overrides(values["settings"], f"{file}: settings"),
        generate=as_overrides(values["generate"], f"{file}: generate"),
        comparisons=tuple(_pair(pair, file) for pair in listed(values["comparisons"])),
        devices=tuple(str(device) for device in listed(values["devices"])),
        resamples=whole(values["resamples"], f"{file}: resamples", 100),
        keep_readers=values["keep_readers"],
    )
    _check(study)
    return study


def _check(study: Study) -> None:
    """Refuse what cannot be, all at once."""
    faults = [*_grid_faults(study), *_generator_faults(study), *_comparison_faults(study), *_setting_faults(study)]
    names = [generator.name for generator in study.generators] + [resource.name for resource in study.resources]
    for name in (*names, *study.filters, *study.data.validation):
        if not name or not all(letter.isalnum() or letter in "_." for letter in name):
            faults.append(f"{name!r} becomes part of a file name: use letters, digits, _ and .")
    if faults:
        raise InputError(f"{study.file}: " + "; ".join(faults))


def _grid_faults(study: Study) -> Iterator[str]:
    yield from (f"amounts: {amount} is negative" for amount in study.amounts if amount < 0)
    if any(study.amounts) and not study.generators:
        yield "generators: name at least one, or leave amounts at [0]"
    if any(study.amounts) and not study.filters:
        yield "filters: name at least one, such as paper: []"
    if not study.seeds:
        yield "seeds: name at least one"
    if not study.devices:
        yield "devices: name at least one, such as cpu"
    for name in study.devices:
        if name != "cpu" and not name.isdecimal():
            yield f"devices: {name} is neither cpu nor the number of a GPU"
    if not 0 < study.data.development < 1:
        yield "data.development must be in (0, 1)"
    if ALL in study.data.validation and len(study.data.validation) > 1:
        yield f"data.validation: {ALL} is the name for all sets together; give the set another"
    for resource in study.resources:
        if not 0 < resource.fraction <= 1:
            yield f"resources.{resource.name}: {resource.fraction} is not in (0, 1]"


def _generator_faults(study: Study) -> Iterator[str]:
    trained = {generator.name: generator for generator in study.generators}
    for generator in study.generators:
        start, where = generator.start, f"generators.{generator.name}.from"
        if start is None:
            continue
        if generator.path is not None:
            if start not in trained:
                yield f"{where}: there is no generator {start}"
        elif generator.stages != "scst":
            yield f"{where}: only one with stages: scst starts from another"
        elif start not in trained or trained[start].stages != "ce" or trained[start].path:
            yield f"{where}: {start} is no generator with stages: ce"


def _comparison_faults(study: Study) -> Iterator[str]:
    names = {generator.name for generator in study.generators}
    for name in (name for pair in study.comparisons for name in pair if name not in names):
        yield f"comparisons: there is no generator {name}"
    pairs = [frozenset(pair) for pair in study.comparisons]
    if len(set(pairs)) < len(pairs) or any(len(pair) < 2 for pair in pairs):
        yield "comparisons: a pair stands there twice, or a generator beside itself"


def _setting_faults(study: Study) -> Iterator[str]:
    for text in (*study.settings, *(text for resource in study.resources for text in resource.settings)):
        if (key := text.lstrip("+~").partition("=")[0]) in SET_BY_THE_GRID:
            yield f"settings: {key} is set by the grid itself (data, resources, seeds, output_dir)"


def _data(value: Any, where: str) -> StudyData:
    values = known(value, StudyData, where)
    validation = values["validation"]
    sets = validation if isinstance(validation, dict) else {"validation": validation}
    if not sets:
        raise InputError(f"{where}.validation: name at least one set, such as validation: dev.json")
    share = values["development"]
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise InputError(f"{where}.development: {share!r} is no share of the training passages")
    return StudyData(
        train=source(values["train"], f"{where}.train"),
        validation={str(name): source(one, f"{where}.validation.{name}") for name, one in sets.items()},
        **{key: limit(values[key], f"{where}.{key}") for key in ("max_passages", "max_validation", "max_spans")},
        development=share,
        seed=whole(values["seed"], f"{where}.seed"),
    )


def _resource(name: str, value: Any, file: str) -> Resource:
    where = f"{file}: resources.{name}"
    if not isinstance(value, dict):
        value = {} if value is None else {"fraction": value}
    values = known(value, Resource, where, without=("name",))
    if values["unlabelled"]:
        values["unlabelled"] = tuple(listed(source(listed(values["unlabelled"]), f"{where}.unlabelled")))
    values["unlabelled"] = values["unlabelled"] or ()
    values["max_gold"] = limit(values["max_gold"], f"{where}.max_gold")
    values["settings"] = as_overrides(values["settings"], f"{where}.settings")
    if isinstance(values["fraction"], bool) or not isinstance(values["fraction"], int | float):
        raise InputError(f"{where}: expected a share of the passages in (0, 1], got {values['fraction']!r}")
    return Resource(name=name, **values)


def _generator(name: str, value: Any, file: str) -> Generator:
    """A mapping's own keys are stages, from, path and settings; all others are overrides of `rl-qg train`."""
    where = f"{file}: generators.{name}"
    if not isinstance(value, dict):
        return Generator(name, settings=as_overrides(value, where))
    own = {key: value[key] for key in ("stages", "from", "path", "settings") if key in value}
    others = {key: item for key, item in value.items() if key not in own}
    stages = own.get("stages", "scst")
    if stages not in STAGES:
        raise InputError(f"{where}.stages: {stages!r} is not one of {', '.join(STAGES)}")
    path, start = (optional_text(own.get(key), f"{where}.{key}") for key in ("path", "from"))
    settings = (*as_overrides(own.get("settings"), where), *as_overrides(others, where))
    if path is not None and (settings or "stages" in own):
        raise InputError(
            f"{where}: a generator at a path is not trained; give path, and from for what it is tested against"
        )
    return Generator(name, stages, start, path, settings)


def _started(generators: Sequence[Generator], file: str) -> Iterator[Generator]:
    """The generators, each one that learns by reward with the one it starts from, where the study has one."""
    plain = [item.name for item in generators if item.stages == "ce" and item.path is None]
    for item in generators:
        if item.stages != "scst" or item.path is not None or item.start is not None or not plain:
            yield item
        elif len(plain) > 1:
            raise InputError(
                f"{file}: generators.{item.name}: {' and '.join(plain)} learn by cross-entropy; say which "
                f"one it starts from, such as from: {plain[0]}"
            )
        else:
            yield replace(item, start=plain[0])


def _pair(value: Any, file: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{file}: comparisons: expected pairs of generators, such as [qrelscore, bartscore]")
    return str(value[0]), str(value[1])
