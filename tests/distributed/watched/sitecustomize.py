"""Notes what this process writes below a run's folder, and lets a fault strike at one of those writes.

Python imports this file when it starts, in the runs of the fault injection alone: `tests.distributed.runs` puts its
folder first on their path, and says in `FAULT` (JSON) what is to happen:

    folder, trace   what is watched, and the folder of the notes (one file for each process)
    launched        whether a launcher starts the processes
    rank, attempt   the process that is struck, and the start of an elastic run in which it is
    kill            number of the write before which the process ends by SIGKILL
    full            number of the write from which no file may grow beyond `bytes`
    memory          rows above which generator and metrics run out of memory

It strikes before the write happens. Writes of libraries in other languages (safetensors, torch.save) are not seen.
"""

import json
import os
import resource
import signal
import sys
import time

WRITING = os.O_WRONLY | os.O_RDWR
# Event -> the places of its path and of the folder's descriptor among its arguments.
EVENTS = {
    "open": (0, None),
    "os.mkdir": (0, 2),
    "os.rename": (1, 3),
    "os.remove": (0, 1),
    "os.rmdir": (0, 1),
    "os.truncate": (0, None),
}
METRICS = ("BertModel", "GPT2Model")


class Watch:
    """The audit hook of one process."""

    def __init__(self, fault):
        self.fault = fault
        self.folder = fault["folder"] + os.sep
        self.count = 0
        self.busy = False
        self.notes = None
        self.rank = int(os.environ.get("RANK", "0"))
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.struck = fault.get("rank", 0) == self.rank and attempt == fault.get("attempt", attempt)
        if "RANK" in os.environ or not fault["launched"]:  # a launcher writes nothing of ours
            self.note(event="start", path="")

    def __call__(self, event, args):
        if event not in EVENTS or self.busy:
            return
        self.busy = True
        try:
            if path := self.written(event, args):
                self.write(event, path)
        finally:
            self.busy = False

    def written(self, event, args):
        """The path that is about to change, None for one that is not watched."""
        if event == "open" and not (isinstance(args[2], int) and args[2] & WRITING):
            return None
        place, folder = EVENTS[event]
        path = args[place]
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        path = os.fsdecode(path)
        descriptor = args[folder] if folder is not None and folder < len(args) else -1
        if isinstance(descriptor, int) and descriptor >= 0:
            path = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), path)
        path = os.path.abspath(path)
        return path if path.startswith(self.folder) else None

    def write(self, event, path):
        self.count += 1
        self.note(event=event.removeprefix("os."), path=path.removeprefix(self.folder))
        if self.count == 1 and "memory" in self.fault:
            run_out_of_memory(self.fault["memory"])
        if self.struck and self.count == self.fault.get("full"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.fault["bytes"], resource.RLIM_INFINITY))
        if self.struck and self.count == self.fault.get("kill"):
            os.kill(os.getpid(), signal.SIGKILL)

    def note(self, **line):
        if self.notes is None:
            file = os.path.join(self.fault["trace"], f"{self.rank}.{time.time():.3f}.{os.getpid()}")
            self.notes = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self.notes, (json.dumps({"time": time.time(), **line}) + "\n").encode())


def run_out_of_memory(rows):
    """Make generator (where it decodes without gradient) and metric models fail on more than `rows` rows."""
    import torch

    call = torch.nn.Module._call_impl

    def limited(self, *args, **kwargs):
        name = type(self).__name__
        decodes = name == "BartDecoder" and not torch.is_grad_enabled()
        if decodes or name in METRICS:
            given = kwargs.get("input_ids", args[0] if args else None)
            if given is not None and len(given) > rows and (name in METRICS or given.shape[1] == 1):
                raise torch.OutOfMemoryError(f"injected: {name} on {len(given)} rows")
        return call(self, *args, **kwargs)

    torch.nn.Module._call_impl = limited


if "FAULT" in os.environ:
    sys.addaudithook(Watch(json.loads(os.environ["FAULT"])))
