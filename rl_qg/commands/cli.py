"""The door: `rl-qg COMMAND key=value …`. Composes the settings with Hydra, runs a command, and turns bad input into
one line.

This is the only file that sees Hydra. A command reads its own section of the settings without the section's name:
`rl-qg generate num_beams=4` sets `generate.num_beams`.
"""

import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rl_qg.commands.catalogue import (
    COMMANDS,
    CONFIGS,
    GROUPS,
    RAW,
    describe,
    metrics_without_file,
    offered,
    overview,
    section_of,
)
from rl_qg.commands.reward_options import complete_parts
from rl_qg.runtime.errors import InputError, LocalError, Terminated
from rl_qg.runtime.json_files import is_disk_full
from rl_qg.settings import Settings

KEY = re.compile(r"^(?P<sign>\+\+|\+|~)?(?P<key>[^=]+)(?P<rest>=.*)?$", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry of `rl-qg` and of the scripts. `argv` may start with a command's name and is completed from the command
    line.
    """
    arguments = [*(argv or ()), *sys.argv[1:]]
    _configure_logging()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return
    name, *rest = arguments
    before = signal.signal(signal.SIGTERM, _terminate)
    line, code, alone = "", 0, False
    try:
        run_command(name, rest)
    except KeyboardInterrupt:
        line, code = "interrupted; the same command goes on where it stood", 130
    except Terminated as end:
        line, code = "stopped by SIGTERM; the same command goes on where it stood", int(str(end.code))
    except Exception as error:
        if _is_input_error(error):
            line = f"error: {error}"
        elif is_disk_full(error):
            line = f"error: {_disk_full(error)}"
        else:
            raise
        code = 2
        alone = isinstance(error, LocalError) or not _is_input_error(error)
    signal.signal(signal.SIGTERM, before)
    _leave(f"rl-qg {name}: {line}" if line else "", code, alone=alone)


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _disk_full(error: Exception) -> str:
    """A full disk where no part has said more about it."""
    name = getattr(error, "filename", None)
    where = f"{name}: " if name else ""
    return (
        f"{where}the disk is full ({str(error).splitlines()[0]}); what was complete before is whole: free some space, "
        "and the same command goes on"
    )


def run_command(name: str, arguments: Sequence[str]) -> None:
    """Compose the settings of one command and run it.

    Raises:
        InputError: unknown command, group, key or value, or whatever the command finds wrong.
    """
    if name not in COMMANDS:
        raise InputError(f"no such command; choose one of {', '.join(COMMANDS)}")
    if "-h" in arguments or "--help" in arguments:
        print(describe(name))
        return
    if name in RAW:
        _stay_offline_without_a_hub()  # workers find it in their environment
        from rl_qg.commands import commands

        getattr(commands, name)(arguments)
        return
    if "--cfg" in arguments:
        print(resolved_yaml(name, [text for text in arguments if text not in ("--cfg", "job")]), end="")
        return
    settings = compose(name, arguments)
    _stay_offline_without_a_hub()
    from rl_qg.commands import commands  # only now: composing and --help stay quick

    run: Callable[[Settings], None] = getattr(commands, section_of(name))
    run(settings)


def compose(command: str, overrides: Sequence[str]) -> Settings:
    """The checked settings of a command. Raises `InputError` for a wrong group, key or value."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    texts, overrides = _texts(command, overrides)
    config = _compose(command, overrides)
    try:
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise InputError(f"{missing[0]} has no value; give one, such as {missing[0]}=…")
        models: Any = OmegaConf.to_container(config.reward_models, resolve=True)
        reward = complete_parts(OmegaConf.to_container(config.reward, resolve=True), models)
        typed = OmegaConf.merge(OmegaConf.structured(Settings), {**config, "reward": {}})
        settings = OmegaConf.to_object(typed)
    except OmegaConfBaseException as error:
        raise InputError(_one_line(error, command)) from None
    assert isinstance(settings, Settings) and isinstance(reward, dict)
    settings.reward = {str(key): value for key, value in reward.items()}
    for key, text in texts.items():
        setattr(settings.explain, key, text)
    settings.check()
    return settings


def _texts(command: str, overrides: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Take texts of a person's own out of the overrides: Hydra would read their commas, quotes and braces."""
    begins = {f"{key}=": key for key in ("question", "context")} if command == "explain" else {}
    texts, others = {}, []
    for override in overrides:
        begin = next((begin for begin in begins if override.startswith(begin)), None)
        if begin is None:
            others.append(override)
        else:
            texts[begins[begin]] = override.removeprefix(begin)
    return texts, others


def resolved_yaml(command: str, overrides: Sequence[str]) -> str:
    """The composed settings as YAML (`--cfg job`)."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(asdict(compose(command, overrides))))


def _compose(command: str, overrides: Sequence[str]) -> Any:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    for name in metrics_without_file():
        ConfigStore.instance().store(name, {"_target_": name}, group="reward")
    with initialize_config_dir(version_base=None, config_dir=str(CONFIGS)):
        try:
            return hydra_compose("config", overrides=complete(command, overrides))
        except (HydraException, OmegaConfBaseException) as error:
            raise InputError(_one_line(error, command)) from None


def complete(command: str, overrides: Sequence[str]) -> list[str]:
    """Write overrides out in full: section names put in front, and the group that a key implies.

    Filters are what the user makes them: a key below `filters` is changed or added.
    """
    field = Settings.__dataclass_fields__.get(section_of(command))
    own = set(field.type.__dataclass_fields__) if field is not None else set()  # type: ignore[union-attr]
    full = []
    if command == "answers" and overrides and "=" not in overrides[0]:
        overrides = [f"input={_quoted(overrides[0])}", *overrides[1:]]
    for text in overrides:
        match = KEY.match(text)
        if text.startswith("-") or match is None or match["rest"] is None:
            raise InputError(f"argument {text!r} is not of the form key=value; rl-qg {command} --help lists the keys")
        key, sign = match["key"], match["sign"] or ""
        if key in GROUPS and match["rest"] == "=null":
            raise InputError(f"settings: {key}=null is no choice; choose one of {offered(key)}")
        qualified = f"{section_of(command)}.{key}" if key.split(".")[0] in own and key not in GROUPS else key
        if key.startswith("filters."):
            qualified = f"augment.{key}"
        if qualified.startswith("augment.filters.") and sign in ("", "+"):
            sign = "++"
        full.append(f"{sign}{qualified}{match['rest']}")
    keys = [text.lstrip("+").split("=")[0] for text in full]
    if "reward._target_" in keys and "reward" not in keys:
        full.insert(0, "reward=custom")
    if "data.train" in keys and "data" not in keys:
        full.insert(0, "data=files")  # what a preset says of its own data does not hold for these
    return full


def _quoted(name: str) -> str:
    """A file's name as Hydra reads one text, whatever signs it has; a list of names stays one."""
    if name.startswith("[") and not Path(name).exists():
        return name
    escaped = re.sub(r"(\\*)('|$)", lambda match: 2 * match[1] + match[2].replace("'", "\\'"), name)
    return f"'{escaped}'"


def _one_line(error: Exception, command: str) -> str:
    """What Hydra found wrong, in our words where its own help nobody: the key or choice, and what there is instead."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if match := re.search(r"Could not override '([^']+)'", text):
        key = getattr(error.__cause__, "full_key", None) or match[1]
        return f"settings: there is no key or group {key!r}; rl-qg {command} --help lists them"
    if match := re.search(r"Could not find '([^/']+)/([^']+)'", text):
        return f"settings: {match[1]}={match[2]} is no choice; choose one of {offered(match[1])}"
    text = re.sub(r"\s*(object_type|reference_type)=\S+", "", text)
    return "settings: " + text.replace("full_key: ", "key: ")


def _is_input_error(error: Exception) -> bool:
    """Ours, or the one that `rewards` raises for bad input (asked by name: this file loads no metric)."""
    return isinstance(error, InputError) or type(error).__name__ == "MetricInputError"


def _leave(message: str, code: int, *, alone: bool = False) -> None:
    """Say the last word and end the process; return when all went well and nothing else is left to end.

    What is true of all processes the main one says; `alone`: what only this one knows.
    """
    rank = os.environ.get("RANK", "0")
    if message and (alone or rank == "0"):
        print(message if rank == "0" else f"process {rank}: {message}", file=sys.stderr)
    if "torch" in sys.modules:
        from rl_qg.runtime.processes import leave

        leave(code)
    if code:
        sys.exit(code)


def _stay_offline_without_a_hub() -> None:
    """Ask once whether the Hub answers; where it does not, the libraries use their cache or fail at once.

    Left alone they try again for half a minute. Their switch is read when they are imported, so this comes before.
    """
    if "HF_HUB_OFFLINE" in os.environ:
        return  # the user has decided
    import urllib.error
    import urllib.request

    try:
        urllib.request.urlopen(os.environ.get("HF_ENDPOINT", "https://huggingface.co"), timeout=3)
    except urllib.error.HTTPError:
        return  # it answers
    except OSError:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def _configure_logging() -> None:
    rank = os.environ.get("RANK", "0")
    if rank == "0":
        logging.basicConfig(format="%(message)s", level=logging.INFO, force=True)
    else:
        logging.basicConfig(format=f"process {rank}: %(message)s", level=logging.ERROR, force=True)
        # what happens to one process alone
        for name in ("rl_qg.runtime.out_of_memory", "rl_qg.evaluation.reward_scorer", "rl_qg.training.callbacks"):
            logging.getLogger(name).setLevel(logging.WARNING)
    for library in ("httpx", "httpcore", "huggingface_hub", "datasets", "absl", "DeepSpeed"):
        logging.getLogger(library).setLevel(logging.ERROR)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault(
        "HF_HUB_DISABLE_PROGRESS_BARS", "1"
    )  # "writing model shards" at each checkpoint of a small model
