"""A file of results that grows with each measurement, and the name of the machine that it was made on.

A run that is stopped, or that fails, leaves what it has measured; the same command goes on from there. What a machine
cannot do is null, with the reason under `skipped`.
"""

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")


class NotOnThisMachine(Exception):
    """What was to be measured does not exist here; the message says why."""


def processor() -> dict[str, Any]:
    """The processor's name and family, its instructions that matter here, limits set on them, threads and torch; and
    the name of the GPU, where there is one.
    """
    facts: dict[str, str] = {}
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
    flags = facts.get("flags", "").split()
    found = {
        "name": facts.get("model name") or platform.processor() or platform.machine(),
        "family": facts.get("cpu family"),  # virtual machines hide the generation behind one name
        "model": facts.get("model"),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
        "limits": {name: os.environ[name] for name in LIMITS if os.environ.get(name)},
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    return found | ({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {})


def count_cpu_seconds() -> None:
    """Make every clock of this process that of the processor, and use one thread: for a machine that others use."""
    torch.set_num_threads(1)
    time.perf_counter = time.thread_time


class Measurements:
    """Results by name, in a JSON file that is replaced after each of them.

    Args:
        path: the file. If it has results of the same settings and machine, these are not measured again; a file of
            others is begun anew.
        settings: what the numbers depend on.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        asked = json.loads(json.dumps(settings, default=str))  # as they are read: a tuple comes back as a list
        self.found: dict[str, Any] = {"settings": asked, "processor": processor(), "measured": {}, "skipped": {}}
        known = _read(path)
        if all(known.get(name) == self.found[name] for name in ("settings", "processor")):
            self.found |= {key: known[key] for key in ("measured", "skipped") if key in known}
        self.write()

    def __getitem__(self, name: str) -> Any:
        return self.found["measured"][name]

    def measure(self, name: str, action: Callable[[], Any]) -> Any:
        """Return the result of that name, measured now if the file has none; None if this machine cannot do it."""
        measured, skipped = self.found["measured"], self.found["skipped"]
        if measured.get(name) is None:
            try:
                measured[name] = action()
                skipped.pop(name, None)
            except NotOnThisMachine as reason:
                measured[name], skipped[name] = None, str(reason)
                print(f"{name}: skipped: {reason}", flush=True)
            self.write()
        return measured[name]

    def write(self, **summary: Any) -> None:
        """Replace the file, with a summary where all is measured."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.part")
        partial.write_text(json.dumps({**self.found, **summary}, indent=1, default=str) + "\n", encoding="utf-8")
        partial.replace(self.path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
