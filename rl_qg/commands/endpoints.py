"""Language models behind addresses: which commands can ask one, and whether documents may be sent."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rewards.endpoint import USED, Endpoint, checked_url, is_local
from rl_qg.commands.catalogue import COMMANDS
from rl_qg.runtime.errors import InputError
from rl_qg.settings import Settings

if TYPE_CHECKING:
    from rl_qg.generation.endpoint import EndpointGenerator

SCHEMES = ("http://", "https://")
GENERATORS = {"generate": "model.path", "ask": "ask.model.path"}  # where it is named
# What a server does not follow, and the values that are let pass: one question of an answer is asked for.
UNUSED: dict[str, Any] = {"model.language": None, "model.format": None, "generate.engine": "own"}
UNUSED |= {"generate.precision": "no", "generate.num_beams": 8}


def check_endpoints(command: str, settings: Settings) -> None:
    """Say where documents will be sent, before anything is read, and let the user agree where that is another machine.

    Raises `InputError` without that, and for a command that cannot use such a model.
    """
    hosts, read = dict[str, None](), tuple(f"{name}." for name in COMMANDS[command].sections)
    for key, url in _addresses(asdict(settings)):
        if not f"{key}.".startswith(read):
            continue
        if key.endswith("path") and GENERATORS.get(command) != key:
            raise InputError(
                f"{key.removeprefix(f'{command}.')}={checked_url(url)}: is the address of a language model, which "
                "rl-qg generate and rl-qg ask can use, as rewards can (reward=judge); give a folder or a Hub name"
            )
        if not is_local(checked_url(url)):
            hosts["/".join(url.split("/")[:3])] = None
    if not hosts or os.environ.get("RANK", "0") != "0":
        return
    logging.getLogger(__name__).warning("passages, answers and questions are sent to %s", ", ".join(hosts))
    is_alone = os.environ.get("WORLD_SIZE", "1") == "1" and not settings.launcher
    if not settings.yes and not (is_alone and sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("documents would leave this machine, and nobody can be asked here; add yes=true to allow it")
    if not settings.yes:
        print("send them? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise InputError("nothing was sent; add yes=true to agree without being asked")


def report_use() -> None:
    """Say what this command has asked of models behind addresses, and what that cost; nothing where it asked none."""
    if USED:
        cost = f", cost {USED['cost']:.4g}" if "cost" in USED else ""
        counts = USED["requests"], USED["tokens"], cost, USED["kept"]
        logging.getLogger(__name__).info("%d requests, %d tokens%s; %d answers were kept earlier", *counts)
    USED.clear()


def _addresses(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The addresses of models in settings, with their keys."""
    for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
        if isinstance(inner, Mapping | list):
            yield from _addresses(inner, f"{key}{name}.")
        elif name in ("path", "url") and str(inner).startswith(SCHEMES):
            yield f"{key}{name}", inner


def asked_generator(path: str, settings: Settings) -> "EndpointGenerator | None":
    """The model behind the address `path`; None for a folder or a name. `InputError` for what it cannot do."""
    if not path.startswith(SCHEMES):
        return None
    from rl_qg.generation.endpoint import EndpointGenerator

    given = {name: attrgetter(name)(settings) for name in UNUSED}
    if faults := [f"{name}={value}" for name, value in given.items() if value not in (UNUSED[name], 1)]:
        instead = "leave it out (do_sample=true num_samples=n gives several questions of an answer)"
        raise InputError(f"{', '.join(faults)}: a model behind an address has no such choice; {instead}")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError(f"model.path={path}: one process asks; run the command alone, with endpoint.concurrency=16")
    options = asdict(settings.endpoint)
    more = {name: options.pop(name) for name in ("prompt", "max_new_tokens")}
    return EndpointGenerator(Endpoint(path, options.pop("name"), **options), **more)
