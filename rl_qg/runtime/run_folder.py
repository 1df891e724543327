"""The run folder: which run a folder holds, and whether a command may continue it."""

import json
import logging
import os
import platform
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from rewards.signature import SECRET_KEY
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, check_unchanged, read_record, read_yaml, write_json, writing

log = logging.getLogger(__name__)
FILE = "run.json"
PACKAGES = ("rl-qg", "torch", "transformers", "accelerate", "datasets", "trl", "peft", "deepspeed")
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_FORM = {"hardware": dict, "arithmetic": dict, "data": dict, "reward_code": dict, "earlier": list}
CONFIG = "config.yaml"
CODE = "reward_code"  # field of the record: files with rewards that are not of this package
ACCEPT = "accept_changed_data"  # says how to continue a run, and is not part of its settings
TRAINED = "trained.json"  # written last: all training stages are complete
MEASURES = "measures.json"  # in the folder of a stop (`training.stop_after`), written last: it is measured
# New keys, with the value under which everything is as before: a run whose `config.yaml` lacks them is the same run.
# `reward.…` stands for an option of `reward`, of `held_out`, and of the parts of both.
ADDED: dict[str, Any] = {"ce.average": 1, "ce.by_length": False, "reward.titles": False, "training.rate_factors": {}}
# Options of a judge that say how it is asked: a run goes on with others.
ASKING = ("budget", "input_price", "output_price", "max_cost", "concurrency", "kept", "key_variable")
# What settings of one command alone have; those that train a generator have the sections of the others too.
OF_COMMANDS = ("stages", "train_answers", "train_kpqa", "train_sentences", "qa", "retrieve")


def run_record(
    settings: Mapping[str, Any],
    *,
    command: Sequence[str],
    seed: int,
    data: Mapping[str, str],
    leakage: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Describe this run as plain JSON values: command, code, versions, hardware, arithmetic and data.

    Args:
        settings: the resolved settings; only their hash is kept, `config.yaml` holds them.
        command: the command line (`sys.argv`). Values of keys such as `hub_token=` or `--password`, and logins inside
            URLs, are replaced by `***`. Of the environment only `WORLD_SIZE` is read.
        seed: of the run.
        data: source name to SHA-256.
        leakage: the result of the leakage check (see `rl_qg.data.splits`).
        extra: further fields; a name of the fields above raises `ValueError`.
    """
    from rewards.arithmetic import arithmetic  # imports torch

    record = {
        "command": _without_secrets(command),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "code": git_state(Path(__file__)),
        "settings_sha256": sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest(),
        "seed": seed,
        "versions": {"python": platform.python_version(), **package_versions()},
        "hardware": hardware(),
        "arithmetic": arithmetic(),
        "data": dict(data),
        "leakage": dict(leakage),
    }
    if shared := record.keys() & (extra or {}).keys():
        raise ValueError(f"extra would replace {', '.join(sorted(shared))} of the run record; choose other names")
    return {**record, **(extra or {})}


def read_run_record(folder: Path) -> dict[str, Any]:
    """What `run.json` says; empty where there is none."""
    if not (path := folder / FILE).exists():
        return {}
    record = read_record(path)
    for name, form in _FORM.items():
        if not isinstance(record.get(name, form()), form):
            raise InputError(f"{path}: field {name!r} is not as the run wrote it; restore the file, or delete it")
    return record


def write_run_record(folder: Path, record: Mapping[str, Any]) -> Path:
    """Write `run.json`; the record of an interrupted run is kept in short form under `earlier`.

    A warning says what has changed since of what decides the last digits (`arithmetic`).
    """
    path = folder / FILE
    earlier = []
    if last := read_run_record(folder):
        now, begun = record.get("arithmetic", {}), last.get("arithmetic", {})
        changed = [f"{name} {begun[name]}, now {now[name]}" for name in begun.keys() & now if begun[name] != now[name]]
        if changed:
            log.warning(
                "%s: numbers may differ in their last digits from here on: %s", folder, "; ".join(sorted(changed))
            )
        earlier = [*last.get("earlier", []), {key: last.get(key) for key in ("command", "started", "code")}]
    write_json(path, {**record, **({"earlier": earlier} if earlier else {})})
    return path


def check_continuation(folder: Path, hashes: Mapping[str, str], *, accept: bool, trained: bool) -> None:
    """Raise `InputError` where the data or the rewards' code of a continued run have changed since its start, unless
    `accept`, or, until it is `trained`, the number of processes, with which updates and schedules would differ.
    """
    record = read_run_record(folder)
    begun, size = record.get("hardware", {}).get("world_size"), int(os.environ.get("WORLD_SIZE", "1"))
    if begun not in (None, size) and not trained:
        raise InputError(
            f"{folder}: was begun with {begun} processes, and these are {size}: its updates would differ; start "
            f"{begun} again, or name another output_dir"
        )
    check_unchanged({**record.get("data", {}), **record.get(CODE, {})}, hashes, folder, accept=accept)


def git_state(source: Path) -> dict[str, Any]:
    """Return the `commit` that tracks the file `source`, and whether the work tree is `dirty`; None outside git.

    An installed copy inside another repository (in a virtual environment) is not tracked there, so it has no commit.
    """

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=source.parent, capture_output=True, text=True, timeout=30, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD") if git("ls-files", source.name) else None
    return {"commit": commit, "dirty": bool(git("status", "--porcelain")) if commit else None}


def package_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def hardware() -> dict[str, Any]:
    """Platform, processor, memory in GiB, accelerators, and the number of processes of this run."""
    import torch

    names, memory = list[str](), None
    with suppress(OSError):
        names = re.findall(
            r"^model name[^:]*: *(.*\S)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE
        )
    with suppress(ValueError, OSError, AttributeError):  # not every platform tells
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return {
        "platform": platform.platform(),
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count(),
        "memory_gib": memory,
        "accelerators": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
    }


def _without_secrets(command: Sequence[str]) -> list[str]:
    cleaned: list[str] = []
    hide_next = False
    for argument in command:
        key, equals, _ = argument.partition("=")
        secret = SECRET_KEY.search(key) is not None
        if hide_next:
            argument = "***"
        elif secret and equals:
            argument = f"{key}=***"
        cleaned.append(_URL_LOGIN.sub("***", argument))
        hide_next = secret and not equals and argument.startswith("-")
    return cleaned


def check_run_folder(folder: Path, settings: Mapping[str, Any], unused: Collection[str] = ()) -> bool:
    """Return whether `folder` holds a run with these settings that can be continued; raise `InputError` for other
    settings, or files that do not belong to a run. Writes nothing.

    Sections in `unused` may differ: no result in the folder depends on them yet. A run that ended before its first
    result (a wrong path, a hub that cannot be reached) does not claim its folder.
    """
    try:
        names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise InputError(f"output_dir={folder}: cannot be read ({error.strerror}); name another folder") from None
    complete = {name for name in names if not (name.startswith(".") and name.endswith(".part"))}
    if complete <= {CONFIG, FILE}:
        return False
    if CONFIG not in complete:
        raise InputError(
            f"output_dir={folder}: not empty and not a run folder; name another, or empty it if you need none of it"
        )
    earlier = read_yaml(folder / CONFIG)
    made_by = (next((name for name in OF_COMMANDS if name in each), None) for each in (earlier, settings))
    if len({*made_by}) > 1:
        raise InputError(f"output_dir={folder}: holds what another command has made; name another folder")
    now = json.loads(json.dumps(dict(settings)))
    changed = [
        f"{key}: {old!r} -> {new!r}"
        for key, old, new in _differences(earlier, now)
        if key.partition(".")[0] not in unused and not _is_added(key, old, new)
    ]
    if changed:
        raise InputError(
            f"output_dir={folder}: holds a run with other settings ({'; '.join(changed[:3])}); "
            "name another folder for a new run"
        )
    return True


def claim_run_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make `folder` the run folder of these settings by writing `config.yaml`. Call `check_run_folder` first."""
    with writing(folder, "output_dir", "folder"), atomic_writer(folder / CONFIG) as stream:
        stream.write(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))


def stop_folder(run: Path, passes: float) -> Path:
    """The folder of the model after so many passes over the data, such as `epoch-2`."""
    return run / f"epoch-{passes:g}"


def _is_added(key: str, old: Any, new: Any) -> bool:
    """Whether a key is new, and has the value under which that changes nothing."""
    section, _, rest = key.partition(".")
    if section in ("reward", "held_out"):
        key = f"reward.{rest.rpartition('.')[2]}"
    return old is None and key in ADDED and bool(new == ADDED[key])


def _differences(earlier: Any, now: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(earlier, dict) and isinstance(now, dict):
        for name in [*earlier, *(name for name in now if name not in earlier)]:
            is_for_answers = name in ASKING and "rewards.Judge" in (now.get("_target_"), now.get("metric"))
            if is_for_answers or (not key and name in (ACCEPT, "output_dir")):
                continue
            yield from _differences(earlier.get(name), now.get(name), f"{key}.{name}" if key else str(name))
    # As texts, because NaN is the same setting as NaN, also in a list.
    elif earlier != now and json.dumps(earlier, default=str) != json.dumps(now):
        yield key, earlier, now
