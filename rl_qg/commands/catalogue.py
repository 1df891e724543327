"""The commands of `rl-qg`, the groups of `configs/`, and the text of `--help`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards import METRICS
from rl_qg.runtime.files import packaged_yaml
from rl_qg.settings import Settings, describe
from rl_qg.settings.yaml_files import choices

GROUPS = {  # folders of `configs/` and the file of each that is used by default; later groups override earlier ones
    "data": "squad",
    "reward": "qrelscore",
    "held_out": "none",
    "model": "bart-base",
    "peft": "none",
    "filters": "paper",
    "preset": "paper",
}


@dataclass(frozen=True)
class Command:
    """One sub-command: what it does, an example, the keys of `Settings` that it reads (whole sections, or single keys
    of one), those that its help shows first, and the module of this package whose function of its name runs it. One
    that reads its arguments itself has a text about them, and words that a shell completes.
    """

    purpose: str
    example: str
    module: str
    sections: tuple[str, ...] = ()
    common: tuple[str, ...] = ()  # where there are none, the help shows all
    arguments: str = ""
    words: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)  # another name of a key of its section: that key


def _commands(content: dict[str, Any]) -> dict[str, Command]:
    short = {name: keys.split() for name, keys in content["short"].items()} | {"all": [*Settings.__dataclass_fields__]}

    def listed(words: str) -> tuple[str, ...]:
        return tuple(key for word in words.split() for key in short.get(word, [word]))

    lists = ("sections", "common", "words")
    return {
        name: Command(**entry | {part: listed(entry[part]) for part in lists if part in entry})
        for name, entry in content["commands"].items()
    }


_CONTENT = packaged_yaml(__file__, "catalogue.yaml")
COMMANDS = _commands(_CONTENT)
HELP_GROUPS: dict[str, list[str]] = _CONTENT["groups"]  # headings of the help, and the commands below each
RAW = {name for name, command in COMMANDS.items() if command.arguments}  # these read their arguments themselves


def named_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that a command line begins with, of one word or two (`rate plan`), and what follows."""
    length = 2 if " ".join(words[:2]) in COMMANDS else 1
    return " ".join(words[:length]), [*words[length:]]


def section_of(command: str) -> str:
    """The settings section of a command, which is also the name of its function."""
    return command.replace("-", "_").replace(" ", "_")


def metrics_without_file() -> list[str]:
    """Metrics that need no options: those of `rewards.METRICS` without a file in `configs/reward/`."""
    return sorted(METRICS.keys() - set(choices("reward")))


def offered(group: str) -> list[str]:
    """The choices of a group, metrics without a file last."""
    return [*choices(group), *(metrics_without_file() if group == "reward" else [])]


def groups_of(command: str) -> list[str]:
    """The config groups that have an effect on a command."""
    read = {key.split(".")[0] for key in COMMANDS[command].sections}
    return [group for group in GROUPS if group == "preset" or {"filters": "augment"}.get(group, group) in read]


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["rl-qg: train question generators by reinforcement, with evaluation metrics as rewards", ""]
    for heading, names in HELP_GROUPS.items():
        lines += [f"{heading}:", *(f"  {name:<{width}}  {COMMANDS[name].purpose}" for name in names), ""]
    lines += ["Start with:", f"  {COMMANDS['ask'].example}", f"  {COMMANDS['pipeline'].example}", ""]
    lines += ["rl-qg COMMAND --help lists a command's settings, rl-qg --version tells the version, and"]
    return "\n".join([*lines, "rl-qg --completion bash (or zsh, fish) prints what completes commands and keys."])


def group_help(first: str) -> str:
    """The text of `rl-qg FIRST --help`, where the names of several commands begin with the same word."""
    members = {name: command for name, command in COMMANDS.items() if name.startswith(f"{first} ")}
    width = max(map(len, members))
    lines = [f"rl-qg {first}: one of these commands", ""]
    lines += [f"  {name:<{width}}  {command.purpose}" for name, command in members.items()]
    return "\n".join([*lines, "", f"rl-qg {first} … --help lists the settings of each."])


def command_help(name: str, *, every: bool = True) -> str:
    """The text of `rl-qg COMMAND --help all`: purpose, example, groups with their choices, and every key with its
    default; of `rl-qg COMMAND --help` with the common keys alone, where there are some.
    """
    command, section = COMMANDS[name], section_of(name)
    lines = [f"rl-qg {name}: {command.purpose}", "", "Example:", f"  {command.example}", ""]
    if name in RAW:
        lines += [f"Arguments: {command.arguments}."]
        keys = describe(*command.sections).splitlines() if command.sections else []
        return "\n".join([*lines, *([""] if keys else []), *(f"  {line}" for line in keys)])
    groups = (f"  {group:<8} {', '.join(offered(group))}" for group in groups_of(name))
    lines += ["Groups (choose with group=name):", *groups, ""]
    few = not every and command.common
    what = "The keys that most people set, and their" if few else "Keys and"
    lines += [f"{what} defaults (set with key=value; nested ones with dots, as ce.epochs=3):", ""]
    lines += [f"  {line}" for line in describe(*(few or command.sections)).splitlines()]
    lines += [f"  {alias}: another name of {key}" for alias, key in command.aliases.items()]
    if section in Settings.__dataclass_fields__:
        lines += ["", f"Keys below {section}: may be written without it, as in the example."]
    lines += ["", f"rl-qg {name} --help all lists all keys."] if few else []
    return "\n".join([*lines, "", "--cfg job prints the composed settings without running anything."])
