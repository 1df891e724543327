"""Records the writes of this process below a run folder, and injects a fault at one of them.

Python imports this file when it starts. This happens only in the runs of the fault injection: `tests.distributed.runs`
puts its folder first on their path, and describes the fault in the environment variable `FAULT` (JSON):

    folder, trace   the run folder, and the folder of the records (one file for each process)
    launched        whether a launcher starts the processes
    rank, attempt   the process in which the fault is injected, and in which start of an elastic run
    kill            number of the write before which the process is killed by SIGKILL
    full            number of the write from which no file may grow beyond `bytes`
    memory          number of rows above which generator and metrics run out of memory

The fault is injected before the write. Writes by libraries in other languages (safetensors, torch.save) are not seen.
"""

import json
import os
import resource
import signal
import sys
import time

WRITING = os.O_WRONLY | os.O_RDWR
# Event -> the positions of its path and of the folder's descriptor in its arguments.
EVENTS = {
    "open": (0, None),
    "os.mkdir": (0, 2),
    "os.rename": (1, 3),
    "os.remove": (0, 1),
    "os.rmdir": (0, 1),
    "os.truncate": (0, None),
}
METRICS = ("BertModel", "GPT2Model")


class WriteHook:
    """The audit hook of one process."""

    def __init__(self, fault):
        self.fault = fault
        self.folder = fault["folder"] + os.sep
        self.count = 0
        self.busy = False
        self.records = None
        self.rank = int(os.environ.get("RANK", "0"))
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.is_target = fault.get("rank", 0) == self.rank and attempt == fault.get("attempt", attempt)
        if "RANK" in os.environ or not fault["launched"]:  # the launcher itself writes no results
            self.record(event="start", path="")

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
        """The path that is about to be written; None if it is not below the run folder."""
        if event == "open" and not (isinstance(args[2], int) and args[2] & WRITING):
            return None
        position, folder = EVENTS[event]
        path = args[position]
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
        self.record(event=event.removeprefix("os."), path=path.removeprefix(self.folder))
        if self.count == 1 and "memory" in self.fault:
            run_out_of_memory(self.fault["memory"])
        if self.is_target and self.count == self.fault.get("full"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.fault["bytes"], resource.RLIM_INFINITY))
        if self.is_target and self.count == self.fault.get("kill"):
            os.kill(os.getpid(), signal.SIGKILL)

    def record(self, **line):
        if self.records is None:
            file = os.path.join(self.fault["trace"], f"{self.rank}.{time.time():.3f}.{os.getpid()}")
            self.records = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self.records, (json.dumps({"time": time.time(), **line}) + "\n").encode())


def run_out_of_memory(rows):
    """Make generator (when it decodes without gradient) and metric models fail on more than `rows` rows."""
    import torch

    call = torch.nn.Module._call_impl

    def limited(self, *args, **kwargs):
        name = type(self).__name__
        decodes = name == "BartDecoder" and not torch.is_grad_enabled()
        if decodes or name in METRICS:
            ids = kwargs.get("input_ids", args[0] if args else None)
            if ids is not None and len(ids) > rows and (name in METRICS or ids.shape[1] == 1):
                raise torch.OutOfMemoryError(f"injected: {name} on {len(ids)} rows")
        return call(self, *args, **kwargs)

    torch.nn.Module._call_impl = limited


if "FAULT" in os.environ:
    sys.addaudithook(WriteHook(json.loads(os.environ["FAULT"])))
