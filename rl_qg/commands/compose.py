"""The settings of a command, composed from its `key=value` arguments, the dataclasses and the files of `configs/`.

This is the only file that uses Hydra: it composes the files, and its grammar says what a value such as `{a: [1, b]}`
is. A command reads its own section without the section's name: `rl-qg generate num_beams=4` sets `generate.num_beams`.
"""

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from itertools import takewhile
from operator import attrgetter
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from rl_qg.commands.catalogue import COMMANDS, GROUPS, groups_of, metrics_without_file, offered, section_of
from rl_qg.runtime.errors import InputError, suggestion
from rl_qg.settings import Settings, all_keys
from rl_qg.settings.keys import MISSING
from rl_qg.settings.training import WORLD
from rl_qg.settings.yaml_files import CONFIGS, complete_parts, quoted

# Keys by which a preset limits how many rows of a source are used.
LIMITS = {
    "data.train": ("data.max_train", "data.labelled_fraction", "augment.num_samples"),
    "data.validation": (
        *("data.max_validation", "training.eval_samples"),
        *("evaluation.max_examples", "evaluation.check_reward"),
    ),
    "data.unlabelled": ("augment.num_samples",),
    "augment.questions": ("augment.num_samples",),
}
# What OmegaConf says of a wrong value -> what is said instead.
_PLAIN_TERMS = {
    r"Value '(.*)' of type '\w+' could not be converted to Integer": "is not a whole number",
    r"Value '(.*)' of type '\w+' could not be converted to Float": "is not a number",
    r"Value '(.*)' is not a valid bool": "is neither true nor false",
    r"Value '(.*)' of type '\w+' is not .*str": "is not a text",
    r"is not Optional": "has no value; give one",
    r"Cannot assign \w+ to Dict": "is no mapping; write it as {a: 1, b: 2}",
    r"is not a ListConfig": "is no list; write it as [a,b]",
    r"DictConfig": "is no mapping; write it as {a: 1, b: 2}",
}
_TEXTS = (str, str | None)
_FREE_TEXTS = ("explain.question", "explain.context")  # as they are typed, whatever they look like
_NO_PATHS = (*_FREE_TEXTS, "export.prompt", "model.prefix")  # texts in which ~ is no home folder
FREE_KEYS = ("augment.filters.", "cluster.parameters.", "training.rate_factors.")  # names of people's own follow
_UNREADABLE = object()
_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|)(?P<key>[^=]+)=(?P<value>.*)", re.DOTALL)


def compose(command: str, overrides: Sequence[str]) -> Settings:
    given = full_overrides(command, overrides)
    for name, value in given:
        for one in leaves(value) if name not in _NO_PATHS else ():  # in quotes, lists and mappings too
            whole_path(one, f"{name}={one}")
    config = _composed({name: value for name, value in given if _chooses(name, value)})
    try:
        for name, value in given:  # one at a time: the error knows its key
            if name not in _FREE_TEXTS and not _chooses(name, value):
                _set(config, name, value, command)
        for name, value in given:
            if "${" in str(value) and name not in _FREE_TEXTS and not _chooses(name, value):
                key = name.lstrip("+")
                resolved = _resolved(config, key)
                if "${" not in str(resolved):  # which an escaped one still has
                    _set(config, key, resolved, command)  # it may be of another type
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise InputError(f"{missing[0]} has no value; give one, such as {missing[0]}=…")
        settings = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise InputError(_one_line(error)) from None
    assert isinstance(settings, Settings)
    settings.reward = complete_parts(settings.reward, settings.reward_models)
    for name, text in given:
        if name in _FREE_TEXTS:
            setattr(settings.explain, name.rpartition(".")[2], text)
    settings.check()
    apart = {one: entry.sections for one, entry in COMMANDS.items() if "output_dir" not in entry.sections}
    for name in ("part", "launcher"):
        read = [one for one, sections in apart.items() if name in sections]
        if (value := getattr(settings, name)) is not None and command not in read:
            raise InputError(f"{name}={value}: is for {', '.join(read)}; leave it out")
    return settings


def whole_path(value: Any, shown: str) -> Any:
    """The value, in full if it begins with a home folder (no shell does so after `key=`); `InputError` if nobody's."""
    home = value.partition("/")[0] if isinstance(value, str) else ""
    if home.startswith("~") and " " not in home and os.path.expanduser(home) == home:
        raise InputError(f"{shown}: there is no such home folder; write the whole path")
    return os.path.expanduser(value) if home.startswith("~") and home != value else value


def _resolved(config: Any, name: str) -> Any:
    """The value of a key, with what its references mean in their place."""
    value = OmegaConf.select(config, name)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _chooses(name: str, value: Any) -> bool:
    """Whether an override chooses a file of a group; a mapping changes options of what is chosen."""
    return name in GROUPS and not isinstance(value, dict)


def resolved_yaml(command: str, overrides: Sequence[str]) -> str:
    return yaml.safe_dump(asdict(compose(command, overrides)), sort_keys=False, allow_unicode=True)


def own_overrides(command: str, overrides: Sequence[str]) -> list[tuple[str, Any]]:
    """Overrides as names and values, with section names.

    A key below one of `FREE_KEYS` is changed where there is one, and added where there is none. Keys may be written as
    options too: see `without_dashes`.
    """
    section = Settings.__dataclass_fields__.get(section_of(command))
    section_fields = section.type.__dataclass_fields__ if section else {}  # type: ignore[union-attr]
    section_keys, aliases = set(section_fields), COMMANDS[command].aliases
    switches = {name for name, item in section_fields.items() if item.type is bool}
    overrides = [*without_dashes(overrides, {*all_keys(), *GROUPS, *section_keys, *aliases}, switches)]
    # A group comes before a key of its name; but `data` may be a key of a command that reads nothing of that group.
    groups = GROUPS.keys() - ({"data"} & section_keys if "data" not in groups_of(command) else set())
    overrides = _with_input(command, overrides)
    full: list[tuple[str, Any]] = []
    for text in overrides:
        match = _OVERRIDE.fullmatch(text)
        if text.startswith("-") or match is None:
            fault = f"argument {text!r} is not of the form key=value; rl-qg {command} --help all lists the keys"
            raise InputError(fault)
        sign, key, value = match.groups()
        key = aliases.get(key, key)
        if key.startswith("filters.") or (key == "filters" and value.startswith("{")):
            key = f"augment.{key}"
        elif key.split(".")[0] in section_keys and key not in groups:
            key = f"{section_of(command)}.{key}"
        value = value if key in _NO_PATHS else whole_path(value, f"{key}={value}")
        if f"{key}.".startswith(FREE_KEYS) and sign in ("", "+"):
            sign = "++"
        is_choice = key in GROUPS and (key == "preset" or not value.startswith("{"))  # which has no options
        meant = value.strip("'\"") if is_choice else _value(key, value)
        if sign and _chooses(key, meant):
            raise InputError(f"settings: {sign}{key}: there is such a group; leave out the {sign}")
        full.append((f"{sign}{key}", meant))
    return full


def full_overrides(command: str, overrides: Sequence[str]) -> list[tuple[str, Any]]:
    """`own_overrides`, and the groups that a key implies."""
    full = own_overrides(command, overrides)
    given = {name.lstrip("+"): value for name, value in full}
    if "preset" in given:
        full = [*_limits_lifted(given), *full]
    for group in ("reward", "held_out"):
        if f"{group}._target_" in given and group not in given:
            full.insert(0, (group, "custom"))
    if "data.train" in given and "data" not in given:
        full.insert(0, ("data", "files"))  # a preset's settings for its own data are not for these files
    return full


def unread_keys(command: str, overrides: Sequence[str]) -> list[str]:
    """The keys among the overrides that the command does not read; choices of groups are not told apart."""
    read = COMMANDS[command].sections
    given = [name.lstrip("+") for name, value in own_overrides(command, overrides) if not _chooses(name, value)]
    return [name for name in given if not any(name == part or name.startswith(f"{part}.") for part in read)]


def split_outputs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What a command without settings is given: what is no `output=FILE`, and the files."""
    given = [*without_dashes(arguments, {"output"})]
    outputs = [text.removeprefix("output=") for text in given if text.startswith("output=")]
    return [text for text in given if not text.startswith("output=")], outputs


def without_dashes(arguments: Sequence[str], keys: Collection[str], switches: Collection[str] = ()) -> Iterator[str]:
    """`--output FILE` and `--output=FILE` as `output=FILE`, for each of the keys; `--json`, a switch, as `json=true`.

    A key may have hyphens in the place of underscores.
    """
    waiting = iter(arguments)
    for text in waiting:
        option, equals, value = text.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not text.startswith("--") or name not in keys:
            yield text
        elif equals:
            yield f"{name}={value}"
        elif name in switches:
            yield f"{name}=true"
        elif (value := next(waiting, "")) and not value.startswith("--"):
            yield f"{name}={value}"
        else:
            raise InputError(f"argument {text!r} has no value; give one, such as {name}=…")


def _limits_lifted(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Overrides that undo the limits of a preset where the source is the user's, and not the embedded corpus.

    They come before the given ones, so that a limit of the user's own wins.
    """
    train = given.get("data.train", given.get("data", WORLD))  # without data.validation it is divided
    own = [source for source in LIMITS if given.get(source, train) not in (WORLD, None, "")]
    keys = dict.fromkeys(key for source in own for key in LIMITS[source])
    return [(key, attrgetter(key)(Settings())) for key in keys]


def _with_input(command: str, overrides: Sequence[str]) -> list[str]:
    """The files that come first as the key `input`; `ask` takes several."""
    most = {"answers": 1, "ask": len(overrides)}.get(command, 0)
    first = takewhile(lambda text: "=" not in text or os.path.exists(text), overrides[:most])
    files = [whole_path(text, f"input={text}") for text in first]
    if not files:
        return list(overrides)
    names = files[0] if len(files) == 1 else f"[{','.join(map(quoted, files))}]"
    return [f"input={names}", *overrides[len(files) :]]


def _composed(chosen: Mapping[str, str]) -> Any:
    """The dataclasses with the files of all groups: chosen ones, those that a preset chooses, or default ones."""
    for group, name in chosen.items():
        if name not in (known := offered(group)):
            fault = f"is not a valid choice{suggestion(name, known)}; choose one of {', '.join(known)}"
            raise InputError(f"settings: {group}={name} {fault}")
    return deepcopy(_of_files(tuple(f"{group}={name}" for group, name in chosen.items())))


@cache
def _of_files(choices: tuple[str, ...]) -> Any:
    """Kept, since Hydra takes a fifth of a second, and a study composes the settings of many jobs.

    The dataclasses come last: Hydra would copy them for each file.
    """
    from hydra import compose as hydra_compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store("command", {"defaults": [{group: choice} for group, choice in GROUPS.items()]})
    for name in metrics_without_file():
        store.store(name, {"_target_": name}, group="reward")
    with initialize_config_dir(version_base=None, config_dir=str(CONFIGS)):
        of_files = hydra_compose("command", overrides=[*choices])
    config = OmegaConf.merge(OmegaConf.structured(Settings), of_files)
    OmegaConf.set_struct(config, True)
    return config


def _set(config: Any, name: str, value: Any, command: str) -> None:
    """Change a key that there is; `+key` adds one, `++key` does either."""
    key = name.lstrip("+")
    if name == f"+{key}" and not isinstance(value, dict | list) and OmegaConf.select(config, key) is not None:
        raise InputError(f"settings: +{key}: there is such a key; leave out the +")
    try:
        OmegaConf.update(config, key, value, merge=True, force_add=name != key)
    except (ConfigAttributeError, ConfigKeyError) as error:
        key = error.full_key or key
        if key.startswith(("reward.", "held_out.")):
            fault = f"the metric has no key {key!r}; docs/explanation/metrics.md names the options of each"
        else:
            fault = f"there is no key or group {key!r}{_similar(key, command)}; rl-qg {command} --help all lists them"
        raise InputError(f"settings: {fault}") from None


def _value(key: str, text: str) -> Any:
    """What a text on the command line means. What can only be a text is one, whatever characters it has.

    In quotes it is what they hold; lists and mappings are read where the key is no text, unless a file has that name.
    """
    if key in _FREE_TEXTS or text in ("", MISSING):
        return text
    if text == "null":
        return None
    kind, exists = all_keys().get(key), os.path.exists(text)  # Path.exists raises where a name is too long
    parsed = _parsed(text)
    if "${" in text:  # a reference to another key, or a list with one
        return text if parsed is _UNREADABLE else parsed
    if text[0] in "\"'" and not exists and parsed is not _UNREADABLE:
        return parsed
    if text[0] in "[{" and kind not in _TEXTS and not exists:
        return _listed(key, text) if parsed is _UNREADABLE else parsed
    return text if kind in _TEXTS or (kind is Any and exists) or parsed is _UNREADABLE else parsed


def _listed(key: str, text: str) -> list[str]:
    """A list of file names with characters that Hydra reserves."""
    inner = text[1:-1]
    if text[0] == "[" and text[-1] == "]" and not set(inner) & set("[]{}'\""):
        return [item.strip() for item in inner.split(",")]
    raise InputError(
        f"settings: {key}={text} cannot be read; write a list as [a,b], a mapping as {{a: 1, b: 2}}, and put texts "
        "with other characters in quotes"
    )


def _parsed(text: str) -> Any:
    """The one value that a text is in Hydra's grammar; `_UNREADABLE` where it is none, or a choice of several."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(f"key={text}")
    except HydraException:
        return _UNREADABLE
    except ValueError:  # Python reads no number of more digits than `sys.get_int_max_str_digits`
        raise InputError(f"settings: {text:.20}… has {len(text)} characters: the number is too large") from None
    if override.is_sweep_override():
        return _UNREADABLE
    value = override.value()
    if any(isinstance(one, int) and abs(one) > sys.float_info.max for one in leaves(value)):
        raise InputError(f"settings: {text:.20}… has {len(text)} characters: the number is too large")
    return value


def leaves(value: Any) -> Iterator[Any]:
    """The values of nested mappings and lists."""
    if isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(one)
    else:
        yield value


def _one_line(error: Exception) -> str:
    """What OmegaConf found wrong, on one line: the key, and what is valid instead."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    text = re.sub(r"\s*(object_type|reference_type)=\S+", "", text)
    key = getattr(error, "full_key", None) or ""
    for term, plain in _PLAIN_TERMS.items():
        if match := re.search(term, text):
            value = f"={match[1]}" if match.groups() else ""
            return f"settings: {key}{value} {plain}"
    return "settings: " + text.replace("full_key: ", "key: ")


def _similar(key: str, command: str) -> str:
    """The key that was meant: of those that the command reads one with the same last part, or one that is spelt alike
    in the same section; then the same of all keys.
    """
    short = [name.removeprefix(own) for name in all_keys() if name.startswith(own := f"{section_of(command)}.")]
    read = [
        name for name in all_keys() if f"{name}.".startswith(tuple(f"{part}." for part in COMMANDS[command].sections))
    ]
    section, _, last = key.rpartition(".")
    for known in ([*short, *read], [*all_keys(), *GROUPS]):
        if same := [name for name in known if name.rpartition(".")[2] == last]:
            return f"; did you mean {same[0]!r}?"
        if near := section and suggestion(key, [name for name in read if name.startswith(f"{section}.")]):
            return near
    return suggestion(key, [*short, *all_keys(), *GROUPS])
