"""YAML files: those of `configs/`, and those of studies and searches, which are read, changed by overrides and checked
against the dataclass of their keys.
"""

import importlib.util
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import parse_yaml, regular
from rl_qg.settings.keys import MISSING

_PACKAGE = Path(__file__).parents[1]
_PACKAGED = _PACKAGE / "configs"  # in an installed wheel
CONFIGS = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent / "configs"
COMBINED = ("rewards.Weighted", "rewards.Product")
PART = {"metric": None, "weight": 1.0, "clip": None, "scale": 1.0}  # keys of every part of a combined reward
OF_SETS = {"rewards.MultiSetReward": "metric", "rewards.CoverageSetReward": "quality"}  # the option with a metric
log = logging.getLogger(__name__)


def choices(group: str) -> list[str]:
    folder = CONFIGS / group
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def file_options(name: str, models: Mapping[str, str]) -> dict[str, Any]:
    """The options in `configs/reward/<name>.yaml`, `_target_` among them; `models` are those of `reward_models`."""
    paths = {f"${{reward_models.{key}}}": path for key, path in models.items()}

    def with_paths(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: with_paths(item) for key, item in value.items()}
        return paths.get(value, value) if isinstance(value, str) else value

    options = yaml.safe_load((CONFIGS / "reward" / f"{name}.yaml").read_text(encoding="utf-8"))
    return {key: with_paths(value) for key, value in options.items()}


def reward_options(name: str, given: Mapping[str, Any], models: Mapping[str, str], where: str) -> dict[str, Any]:
    """`file_options` with those `given`, mappings in them merged too; `InputError` for one without a value."""
    options = _merged(file_options(name, models), given)
    if missing := [key for key, value in options.items() if value == MISSING]:
        raise InputError(f"{where}: {missing[0]} of {name} has no value; give one, such as {missing[0]}: …")
    return options


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    changed = {
        key: _merged(defaults[key], value)
        if isinstance(value, Mapping) and isinstance(defaults.get(key), dict)
        else value
        for key, value in given.items()
    }
    return {**defaults, **changed}


def complete_parts(reward: Any, models: Mapping[str, str]) -> Any:
    """Add to each part of a combined reward, and to the metric of a reward of sets, the defaults of the metric's file
    in `configs/reward/`; the given options win.
    """

    def complete_part(label: str, part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part  # the metric reports what is wrong with it
        name = part.get("metric") or label
        if name not in choices("reward") or name == "custom":
            return complete_parts({**PART, **part, "metric": name}, models)
        keys = [key for key in {**file_options(name, models), **PART} if key != "_target_"]
        if unknown := sorted(map(str, part.keys() - set(keys))):
            raise InputError(f"settings: part {label!r} has no key {unknown[0]!r}; it has {', '.join(keys)}")
        options = reward_options(name, {**PART, **part}, models, f"settings: part {label!r}")
        options["metric"] = options.pop("_target_")
        return complete_parts(options, models)

    if option := OF_SETS.get(reward.get("_target_")):
        given = reward.get(option)
        options = {"metric": given} if isinstance(given, str) else given
        if isinstance(options, Mapping) and options.get("metric") in choices("reward"):
            given = reward_options(str(options["metric"]), options, models, f"settings: {option}")
            given["metric"] = given.pop("_target_")
        return {**reward, option: given}
    parts = reward.get("parts")
    if reward.get("_target_", reward.get("metric")) not in COMBINED or not isinstance(parts, Mapping):
        return reward
    return {**reward, "parts": {label: complete_part(label, part) for label, part in parts.items()}}


# Code that a study file asks to import is named before it runs, because the file may come from somebody else. This
# finds what is written out. What is not, such as a path put together from other keys, is refused where it would be
# imported: the jobs of a study run with `rewards.loading.OWN_CODE_ONLY` unless imports are allowed.
OWN = ("rewards", "rl_qg")
# The keys whose value may be the path of a class, as a YAML key, in `key=value`, or within a list of options.
_PATH = re.compile(r"(?:^|[.\W])(?:_target_|metrics?|kind|rerank)\s*[=:]\s*[\"'\[]*([^\W\d]\w*(?:\.\w+)+)")


def foreign_imports(content: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """The position in a study file and the dotted path of everything that is imported from other packages."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from foreign_imports(value, f"{where}.{key}" if where else str(key))
    elif isinstance(content, list):
        for value in content:
            yield from foreign_imports(value, where)
    elif isinstance(content, str):
        for path in _PATH.findall(f"{where.rpartition('.')[2]}={content}"):
            if path.split(".")[0] not in OWN:
                yield where, path


def check_imports(content: Any, file: Path, *, allowed: bool) -> None:
    """Log what a study file imports, before anything is imported."""
    found = [f"{path} ({_origin(path)}), named in {where}" for where, path in dict.fromkeys(foreign_imports(content))]
    if found and not allowed:
        raise InputError(
            f"{file}: would run code that is not of this package: {'; '.join(found)}; if you trust it, add "
            "--allow-imports"
        )
    for text in found:
        log.info("%s: imports %s", file, text)


def _origin(path: str) -> str:
    """The file of a package. Only the first name is looked up: finding those within it would import it."""
    try:
        spec = importlib.util.find_spec(path.split(".")[0])
    except (ImportError, ValueError):
        spec = None
    return (spec.origin or "a folder") if spec else "not found"


Form = TypeVar("Form")
# OmegaConf's names for what a file holds.
PLAIN_TERMS = {"a ListConfig, list or tuple": "a list", "ListConfig": "a list", "DictConfig": "a mapping"}
PLAIN_TERMS |= {"AnyNode": "a single value", "is not Optional": "may not be null"}


def read_content(path: Path, kind: str, *, keys: str, page: str, allow_imports: bool) -> dict[str, Any]:
    """The keys of a file of this `kind`, such as "study"; messages name some `keys` and the `page` about them."""
    try:
        content = _read_yaml(regular(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a {kind} file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not readable as YAML: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys such as {keys}; see {page}")
    check_imports(content, path, allowed=allow_imports)
    return content


class _Loader(yaml.SafeLoader):
    """Reads keys as text, so that 25 and "25" are one name, and refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                raise yaml.MarkedYAMLError(
                    problem=f"{key} is given twice", problem_mark=node.value[index][0].start_mark
                )
        self.flatten_mapping(node)
        return {str(key.value): self.construct_object(value, deep=deep) for key, value in node.value}


def _read_yaml(text: str, source: str) -> Any:
    try:
        return parse_yaml(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InputError(f"{source}: not readable as YAML: {line}{error.problem}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{source}: not readable as YAML: {' '.join(str(error).split())}") from None


def override(content: dict[str, Any], text: str, kind: str, whole: Collection[str] = ()) -> None:
    """Replace one value by `key=value`, nested keys with dots, the value in YAML. Raises `InputError`.

    What follows a name of `whole` is one key with dots.
    """
    key, equals, value = text.partition("=")
    if not equals or not key or key.startswith("-"):
        raise InputError(f"argument {text!r} is not of the form key=value with a key of the {kind} file")
    mapping, last = content, key
    while "." in last and last not in mapping:  # a key may itself have dots, such as those of `settings`
        name, _, last = last.partition(".")
        mapping = mapping.setdefault(name, {})
        if not isinstance(mapping, dict):
            raise InputError(f"{key}: {name} holds no keys in the {kind} file")
        if name in whole:
            break
    mapping[last] = _read_yaml(value, text)


def as_overrides(value: Any, where: str) -> list[str]:
    """Overrides from a list of `key=value`, or from a mapping, whose nested keys are joined by dots."""
    if isinstance(value, dict):
        return _flat(value)
    if all(isinstance(item, str) for item in _listed(value)):
        return _listed(value)
    raise InputError(f"{where}: expected overrides, as a list of key=value or as a mapping")


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> list[str]:
    texts = []
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            texts += _flat(value, f"{prefix}{key}.")
        else:
            texts.append(f"{prefix}{key}={command_line_text(value)}")
    return texts


def command_line_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        special = any(one == "" or re.search(r"[][{},'\"]", str(one)) for one in value)
        return f"[{','.join(map(_quoted_if_text if special else command_line_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_quoted_if_text(one)}' for key, one in value.items())}}}"
    return str(value)


def _quoted_if_text(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else command_line_text(value)


def quoted(text: str) -> str:
    """A text in the quotes of the command line's lists and mappings."""
    escaped = re.sub(r"(?<!\\)(\\*)('|\Z)", lambda match: 2 * match[1] + match[2].replace("'", "\\'"), text)
    return f"'{escaped}'"


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def listed_values(value: Any, where: str) -> list[Any]:
    """A list, or a single value as one, null as none. Raises `InputError` for lists and mappings in it."""
    values = _listed(value)
    if any(isinstance(item, list | dict) for item in values):  # OmegaConf lets these pass
        raise InputError(f"{where}: expected single values, got {value!r}")
    return values


def typed(
    content: Mapping[str, Any], form: type[Form], file: str, page: str, renamed: Sequence[tuple[str, str]] = ()
) -> Form:
    """The content as the dataclass `form`; `renamed` has fields and what they are called in the file."""
    config, key = OmegaConf.structured(form), ""
    try:
        for key, value in content.items():  # one at a time: not every error of a merge says its key
            config = OmegaConf.merge(config, {key: value})
        key = ""
        if missing := sorted(OmegaConf.missing_keys(config)):
            raise InputError(f"{file}: {missing[0]} has no value; see {page}")
        filled = OmegaConf.to_object(config)  # fails at ${...} that refers to nothing
    except OmegaConfBaseException as error:
        raise InputError(f"{file}: {_one_line(error, key, page, renamed)}") from None
    assert isinstance(filled, form)
    return filled


def _one_line(error: OmegaConfBaseException, key: str, page: str, renamed: Sequence[tuple[str, str]]) -> str:
    path = error.full_key if error.full_key and error.full_key.startswith(key) else key
    for name, written in renamed:
        path = path.replace(name, written)
    if isinstance(error, ConfigKeyError) and error.object_type is not None:
        keys = ", ".join(item.name for item in fields(error.object_type))
        return f"{path}: there is no key {str(error.key)!r}; the keys are {keys}"
    text = str(error.msg).splitlines()[0].rstrip(".")
    for term, plain in PLAIN_TERMS.items():
        text = text.replace(term, plain)
    return f"{path}: {text}; see {page}"
