"""Run the commands of cases, each in a forked process: `python run_cases.py FOLDER CASES.txt …`.

The package is the first on the import path, this version or an older one: nothing of it is used but its command line.
`environment` says under which variables this runs.
"""

import atexit
import gc
import importlib
import os
import pkgutil
import runpy
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
INPUTS = HERE / "inputs"
FIXED = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "RL_QG_PACKED": "never",  # nothing depends on measured times
    "HF_HUB_OFFLINE": "1",
    "DS_ACCELERATOR": "cpu",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}


@dataclass(frozen=True)
class Case:
    """Commands that run in a folder of their own, one after the other."""

    name: str
    commands: tuple[str, ...]


def read_cases(path: Path) -> list[Case]:
    """The cases of a file: a line `# name` begins one, and `$ rl-qg …` is a command of it."""
    parts = path.read_text(encoding="utf-8").split("\n# ")[1:]
    cases = []
    for name, *lines in (part.replace("\\\n", "").split("\n") for part in parts):
        cases.append(Case(name.strip(), tuple(line[2:] for line in lines if line.startswith("$ "))))
    return cases


def environment(tree: Path, home: Path) -> dict[str, str]:
    """Of a user with an empty home, who works with the package of `tree`, and has modules beside the inputs."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {**kept, **FIXED, "HOME": str(home), "PYTHONPATH": f"{tree}{os.pathsep}{INPUTS}"}


def start(tree: Path, folder: Path, files: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Begin to run the cases of files in `folder`; its `home` is that of the user."""
    (folder / "home").mkdir(parents=True)
    command = [sys.executable, str(HERE / "run_cases.py"), str(folder), *map(str, files)]
    return subprocess.Popen(command, cwd=folder, env=environment(tree, folder / "home"))


def run(case: Case, folder: Path) -> None:
    """Run a case in `folder/NAME`, where `in` are the inputs; what its commands print is beside what they write."""
    work = folder / case.name
    work.mkdir()
    (work / "in").symlink_to(INPUTS)
    for number, command in enumerate(case.commands, 1):
        out, err = work / f"command-{number}.out", work / f"command-{number}.err"
        child = os.fork()
        if not child:
            _command(shlex.split(command)[1:], work, out, err)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with err.open("a", encoding="utf-8") as stream:
            stream.write(f"\n$ {command}\nexit code {code}\n")


def _command(arguments: list[str], work: Path, *files: Path) -> None:
    """`rl-qg ARGUMENTS`; this process ends with it."""
    code = 1
    try:
        for number, path in enumerate(files, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
        os.chdir(work)
        sys.argv = ["rl-qg", *arguments]
        runpy.run_module("rl_qg", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _import_everything() -> None:
    """All modules of the package, and so the libraries: forked processes need not. Some need what is not installed."""
    for name in ("rewards", "rl_qg"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                with suppress(Exception):
                    importlib.import_module(module.name)
    gc.freeze()  # forked processes share these pages


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    _import_everything()
    cases = [case for path in sys.argv[2:] for case in read_cases(Path(path))]
    for number, case in enumerate(cases, 1):
        print(f"{Path.cwd().name}: {number} of {len(cases)}: {case.name}", file=sys.stderr, flush=True)
        run(case, Path(sys.argv[1]))
