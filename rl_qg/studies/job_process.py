"""One job of a study: `python -m rl_qg.studies.job_process PROGRAM COMMAND ARGUMENT …` runs the module PROGRAM.

The process ends when the one that started it ends: a job that outlived its study would write into folders that the
next run of the study writes into.
"""

import os
import runpy
import sys
import threading


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written: it returns when the parent has ended
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if device := os.environ.get("CUDA_VISIBLE_DEVICES"):
        import torch

        if not torch.cuda.is_available():  # the job would run on the CPU without a word
            sys.exit(f"there is no GPU {device} on this machine; see devices")
    program, *arguments = sys.argv[1:]
    sys.argv = ["rl-qg", *arguments]  # what the run record shows
    runpy.run_module(program, run_name="__main__")
