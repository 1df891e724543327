"""Language models behind addresses: which commands can ask one, and whether documents may be sent."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rewards.endpoint import checked_url, is_local, is_url
from rl_qg.commands.catalogue import COMMANDS
from rl_qg.runtime.errors import InputError
from rl_qg.settings import GenerateSettings, Settings

if TYPE_CHECKING:
    from accelerate import PartialState

    from rl_qg.generation.endpoint import EndpointGenerator

GENERATORS = {
    "generate": "model.path",
    "ask": "ask.model.path",
}  # where it is named
log = logging.getLogger(__name__)


def check_endpoints(command: str, settings: Settings) -> None:
    """Say where documents will be sent, before anything is read, and let the user agree where that is another machine.

    Raises `InputError` without that, and for a command that cannot use such a model.
    """
    hosts = dict[str, None]()
    for key, url in _addresses(command, asdict(settings)):
        if key.endswith("path") and GENERATORS.get(command) != key:
            raise InputError(
                f"{key.removeprefix(f'{command}.')}={checked_url(url)}: is the address of a language model, which "
                "rl-qg generate and rl-qg ask can use, as rewards can (reward=judge); give a folder or a Hub name"
            )
        if not is_local(checked_url(url)):
            hosts[f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"] = None
    if not hosts or os.environ.get("RANK", "0") != "0":
        return
    log.warning("passages, answers and questions are sent to %s", ", ".join(hosts))
    if settings.yes:
        return
    alone = os.environ.get("WORLD_SIZE", "1") == "1" and not settings.launcher
    if not (alone and sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("documents would leave this machine, and nobody can be asked here; add yes=true to allow it")
    print("send them? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("nothing was sent; add yes=true to agree without being asked")


def _addresses(command: str, value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The addresses of models in the keys that a command reads, with their keys."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _addresses(command, inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _addresses(command, inner, key)
    elif is_url(value) and key.rpartition(".")[2] in ("path", "url") and _is_read(command, key):
        yield key, value


def _is_read(command: str, key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in COMMANDS[command].sections)


def asked_generator(path: str, settings: Settings, state: "PartialState") -> "EndpointGenerator | None":
    """The model behind the address `path`; None for a folder or a name."""
    if not is_url(path):
        return None
    from rl_qg.generation.endpoint import EndpointGenerator

    if state.num_processes > 1:
        raise InputError(
            f"model.path={path}: is asked by one process; run the command alone, with endpoint.concurrency=16 or more"
        )
    return EndpointGenerator.of(path, settings.endpoint)


def of_endpoint(settings: Settings) -> GenerateSettings:
    """The settings of `generate` where the model is behind an address; `InputError` for keys that it cannot follow."""
    options = settings.generate
    usual = GenerateSettings()
    given = {"model.language": settings.model.language, "model.format": settings.model.format}
    given |= {name: getattr(options, name) for name in ("engine", "precision")}
    faults = [f"{name}={value}" for name, value in given.items() if value != getattr(usual, name, None)]
    if not options.do_sample and options.num_beams not in (1, usual.num_beams):
        faults.append(f"num_beams={options.num_beams}")
    if faults:
        raise InputError(
            f"{', '.join(faults)}: a model behind an address has no such choice; leave it out (do_sample=true "
            "num_samples=n gives several questions of an answer)"
        )
    options = options if options.do_sample else replace(options, num_beams=1)
    options.check()
    return options
