"""The study file: a grid of generators, filters, amounts, resources and seeds, read from YAML and checked whole.

Its form is explained in `docs/study.md`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from rl_qg.errors import InputError

STAGES = ("ce", "scst", "both")
NONE = "none"  # the generator of the reader that learns from gold alone


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
    in the file), by default the one that learns by cross-entropy with the study's settings alone. For one at a path,
    `start` only names the generator that it is tested against.
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
        raise InputError(f"{path}: expected keys such as data, generators, amounts; see docs/study.md")
    for text in overrides:
        _override(raw, text)
    return _study(str(path), raw)


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
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise InputError(f"{text}: the value is not readable as YAML") from None


def _study(file: str, raw: dict[str, Any]) -> Study:
    values = _known(raw, Study, file, without=("file",))
    amounts = _numbers(values["amounts"], f"{file}: amounts")
    seeds = [int(seed) for seed in _numbers(values["seeds"], f"{file}: seeds")]
    generators = _named(values["generators"], f"{file}: generators")
    study = Study(
        file=file,
        output_dir=Path(str(values["output_dir"])),
        data=_data(values["data"], f"{file}: data"),
        resources=tuple(_resource(*item, file) for item in _named(values["resources"], f"{file}: resources")),
        generators=tuple(_generator(*item, file) for item in generators if item[0] != NONE),
        filters={
            name: as_overrides(options, f"{file}: filters.{name}")
            for name, options in _named(values["filters"], f"{file}: filters")
        },
        amounts=tuple(sorted(set(amounts) | {0.0})),  # every difference is one to the reader without augmentation
        seeds=tuple(dict.fromkeys(seeds)),
        preset=str(values["preset"]),
        settings=as_overrides(values["settings"], f"{file}: settings"),
        generate=as_overrides(values["generate"], f"{file}: generate"),
        comparisons=tuple(_pair(pair, file) for pair in values["comparisons"] or ()),
        devices=tuple(str(device) for device in _listed(values["devices"])),
        resamples=int(values["resamples"]),
        keep_readers=bool(values["keep_readers"]),
    )
    _check(study)
    return study


def _check(study: Study) -> None:
    """Refuse what cannot be, all at once."""
    names = [generator.name for generator in study.generators]
    trained = {generator.name: generator for generator in study.generators}
    augments = any(study.amounts)
    data, faults = study.data, []
    faults += [f"amounts: {amount} is negative" for amount in study.amounts if amount < 0]
    faults += ["generators: name at least one, or leave amounts at [0]"] if augments and not names else []
    faults += ["filters: name at least one, such as paper: []"] if augments and not study.filters else []
    faults += ["seeds: name at least one"] if not study.seeds else []
    faults += ["devices: name at least one, such as cpu"] if not study.devices else []
    faults += ["resamples: must be at least 100"] if study.resamples < 100 else []
    faults += ["data.development must be in (0, 1)"] if not 0 < data.development < 1 else []
    for generator in study.generators:
        start = generator.start
        if start is None:
            continue
        if generator.path is not None and start not in trained:
            faults.append(f"generators.{generator.name}.from: there is no generator {start}")
        if generator.path is None and (start not in trained or trained[start].stages == "scst" or trained[start].path):
            faults.append(f"generators.{generator.name}.from: {start} is no generator with stages: ce")
    for pair in study.comparisons:
        faults += [f"comparisons: there is no generator {name}" for name in pair if name not in names]
    for resource in study.resources:
        if not 0 < resource.fraction <= 1:
            faults.append(f"resources.{resource.name}: {resource.fraction} is not in (0, 1]")
    for name in (*names, *study.filters, *(resource.name for resource in study.resources), *study.data.validation):
        if not name or not all(letter.isalnum() or letter in "_." for letter in name):
            faults.append(f"{name!r} becomes part of a file name: use letters, digits, _ and .")
    if faults:
        raise InputError(f"{study.file}: " + "; ".join(faults))


def _data(value: Any, where: str) -> StudyData:
    values = _known(value, StudyData, where)
    validation = values["validation"]
    named = validation if isinstance(validation, dict) else {"validation": validation}
    if not named:
        raise InputError(f"{where}.validation: name at least one set, such as validation: dev.json")
    return StudyData(**{**values, "validation": {str(name): source for name, source in named.items()}})


def _resource(name: str, value: Any, file: str) -> Resource:
    where = f"{file}: resources.{name}"
    if not isinstance(value, dict):
        value = {} if value is None else {"fraction": value}
    values = _known(value, Resource, where, without=("name",))
    values["unlabelled"] = tuple(map(str, _listed(values["unlabelled"])))
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
    path = own.get("path")
    settings = (*as_overrides(own.get("settings"), where), *as_overrides(others, where))
    if path is not None and (settings or "stages" in own):
        raise InputError(
            f"{where}: a generator at a path is not trained; give path, and from for what it is tested against"
        )
    return Generator(name, stages, own.get("from"), path, settings)


def _pair(value: Any, file: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{file}: comparisons: expected pairs of generators, such as [qrelscore, bartscore]")
    return str(value[0]), str(value[1])


def as_overrides(value: Any, where: str) -> tuple[str, ...]:
    """Overrides from a list of `key=value`, or from a mapping, whose nested keys are joined by dots."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, dict):
        return tuple(_flat(value))
    raise InputError(f"{where}: expected overrides, as a list of key=value or as a mapping")


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> list[str]:
    texts = []
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            texts += _flat(value, f"{prefix}{key}.")
        else:
            texts.append(f"{prefix}{key}={_text(value)}")
    return texts


def _text(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return "{}" if value == {} else str(value)


def _known(value: Any, kind: type, where: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """The values of a mapping with the defaults of a dataclass; keys it does not have are refused."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected keys and values, got {type(value).__name__}")
    places = {item.name: item for item in fields(kind) if item.name not in without}
    if unknown := [str(key) for key in value if key not in places]:
        raise InputError(f"{where}: there is no key {unknown[0]!r}; the keys are {', '.join(places)}")
    if missing := [key for key, item in places.items() if item.default is MISSING and key not in value]:
        raise InputError(f"{where}: {missing[0]} has no value; see docs/study.md")
    return {key: value.get(key, item.default) for key, item in places.items()}


def _named(value: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        raise InputError(f"{where}: expected at least one name with its options; see docs/study.md")
    return [(str(name), options) for name, options in value.items()]


def _numbers(value: Any, where: str) -> list[float]:
    numbers = _listed(value)
    if wrong := [item for item in numbers if isinstance(item, bool) or not isinstance(item, int | float)]:
        raise InputError(f"{where}: {wrong[0]!r} is no number")
    return [float(number) for number in numbers]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
