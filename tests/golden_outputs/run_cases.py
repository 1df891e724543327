"""Run the commands of cases, each in a forked process: `python run_cases.py FOLDER FIRST CASES.txt …`.

FIRST is the folder of another version that runs the same cases, or the same folder. Each case begins when it is done
there, with the WordPiece miniatures that were trained there: `tokenizers` gives their pieces other numbers each time.

A line `# name` begins a case, and each line of it is a command:

- `$ rl-qg …` is run to its end;
- `& rl-qg …` is a server, which goes on until the case ends;
- `$ http PATH` gets a page of it, and `$ http PATH field=value …` sends a form, or `{…}` JSON.

The package is the first on the import path, this version or an older one: nothing of it is used but its command line.
`environment` says under which variables this runs.
"""

import atexit
import gc
import importlib
import io
import os
import pkgutil
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener

HERE = Path(__file__).resolve().parent
INPUTS = HERE / "inputs"
FIXED = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "RL_QG_PACKED": "never",  # the same products on every processor
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
    """The cases of a file."""
    parts = path.read_text(encoding="utf-8").split("\n# ")[1:]
    cases = []
    for name, *lines in (part.split("\n") for part in parts):
        cases.append(Case(name.strip(), tuple(line for line in lines if line.startswith(("$ ", "& ")))))
    return cases


def environment(tree: Path, home: Path) -> dict[str, str]:
    """Of a user with an empty home, who works with the package of `tree`, and has modules beside the inputs."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {**kept, **FIXED, "HOME": str(home), "PYTHONPATH": f"{tree}{os.pathsep}{home / 'inputs'}"}


def start(tree: Path, folder: Path, files: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Begin to run the cases of files in `folder`; its `home` is that of the user."""
    (folder / "home").mkdir(parents=True)
    shutil.copytree(INPUTS, folder / "home" / "inputs")  # some commands write beside what they read
    command = [sys.executable, str(HERE / "run_cases.py"), str(folder), *map(str, files)]
    return subprocess.Popen(command, cwd=folder, env=environment(tree, folder / "home"))


def run(case: Case, folder: Path) -> None:
    """Run a case in `folder/NAME`, where `in` are the inputs; what its commands print is beside what they write."""
    work = folder / case.name
    work.mkdir()
    (work / "in").symlink_to(folder / "home" / "inputs")
    server, address = 0, ""
    browser = build_opener(HTTPCookieProcessor())
    for number, command in enumerate(case.commands, 1):
        out, err = work / f"command-{number}.out", work / f"command-{number}.err"
        program, *arguments = shlex.split(command[2:])
        end = ""
        if program == "http":
            end = _request(browser, address, arguments)
        elif child := os.fork():
            if command.startswith("& "):
                server, address = child, _address(out)
            else:
                end = f"exit code {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"
        else:
            _command(arguments, work, out, err if command.startswith("$ ") else err.with_suffix(".log"))
        with err.open("a", encoding="utf-8") as stream:
            stream.write(f"\n{command}\n{end}\n")
    if server:
        os.kill(server, signal.SIGTERM)
        os.waitpid(server, 0)


def _address(out: Path) -> str:
    """Where a server that has just begun is, as it prints; it is ready."""
    limit = time.monotonic() + 300
    while time.monotonic() < limit:
        found = re.search(r"at (http://\S+)\n", out.read_text(encoding="utf-8")) if out.exists() else None
        with suppress(URLError):
            if found and not _request(build_opener(), found[1], ["/readyz"]).startswith("503"):
                return found[1]
        time.sleep(0.1)
    raise TimeoutError(f"{out}: no server has begun within five minutes")


def _request(browser: OpenerDirector, address: str, arguments: Sequence[str]) -> str:
    """The answer to a request, as status, path after redirects, and text; `csrf` is filled in from the page before."""
    path, *fields = arguments
    data, headers = None, {}
    if fields and fields[0].startswith("{"):
        data, headers = fields[0].encode(), {"Content-Type": "application/json"}
    elif fields:
        form = dict(field.split("=", 1) for field in fields)
        before = str(getattr(browser, "page", ""))
        found = re.search(r'name="csrf" value="(\w+)"', before)
        data = urlencode(form | ({"csrf": found[1]} if found else {})).encode()
        headers = {"Origin": address}
    try:
        answer = browser.open(Request(address + path, data, headers), timeout=120)
    except HTTPError as error:
        answer = error
    text = answer.read().decode("utf-8")
    browser.page = text  # type: ignore[attr-defined]
    return f"{answer.status} {urlsplit(answer.url).path}\n{text}"


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


def _prepare() -> None:
    """What every command does first, so that forked processes need not.

    All modules of the package are imported, and so the libraries; some need what is not installed. The settings of
    most cases are composed, which the package keeps.
    """
    for name in ("rewards", "rl_qg"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                with suppress(Exception):
                    importlib.import_module(module.name)
    for choices in ([], ["preset=smoke"]):
        sys.argv = ["rl-qg", "train", *choices, "--cfg", "job"]
        with redirect_stdout(io.StringIO()):
            runpy.run_module("rl_qg", run_name="__main__", alter_sys=True)
    gc.freeze()  # forked processes share these pages


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    folder = Path(sys.argv[1])
    cases = [case for path in sys.argv[2:] for case in read_cases(Path(path))]
    _prepare()
    for number, case in enumerate(cases, 1):
        print(f"{folder.name}: {number} of {len(cases)}: {case.name}", file=sys.stderr, flush=True)
        run(case, folder)
