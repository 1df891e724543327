"""The command line: `rl-qg COMMAND key=value …`. Runs a command and reports bad input on one line."""

import logging
import os
import select
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rl_qg.commands.catalogue import (
    COMMANDS,
    RAW,
    command_help,
    group_help,
    named_command,
    overview,
    section_of,
    suggestion,
)
from rl_qg.commands.compose import compose, resolved_yaml
from rl_qg.runtime.errors import InputError, LocalError, Terminated
from rl_qg.runtime.json_files import is_disk_full
from rl_qg.runtime.locks import locked

# Modules whose warnings concern one process alone, so that every process shows them.
LOGGERS_OF_EACH_PROCESS = (
    "rl_qg.runtime.out_of_memory",
    "rl_qg.evaluation.reward_scorer",
    "rl_qg.training.callbacks",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `rl-qg` and of the launchers. `argv` may hold the command's name; the command line follows it."""
    arguments = [*(argv or ()), *sys.argv[1:]]
    _configure_logging()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return
    name, rest = named_command(arguments)
    before = signal.signal(signal.SIGTERM, _terminate)
    line, code, local = "", 0, False
    try:
        run_command(name, rest)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _output_is_closed():
            raise
    except KeyboardInterrupt:
        line, code = "interrupted; the same command continues from its last saved state", 130
    except Terminated as end:
        line, code = "stopped by SIGTERM; the same command continues from its last saved state", int(str(end.code))
    except Exception as error:
        if _is_input_error(error):
            line = f"error: {error}"
        elif is_disk_full(error):
            line = f"error: {_disk_full(error)}"
        else:
            raise
        code = 2
        local = isinstance(error, LocalError) or not _is_input_error(error)
    signal.signal(signal.SIGTERM, before)
    _leave(f"rl-qg {name}: {line}" if line else "", code, local=local)


def run_command(name: str, arguments: Sequence[str]) -> None:
    """Compose the settings of one command and run it.

    Raises:
        InputError: unknown command, group, key or value, or whatever the command finds wrong.
    """
    if name == "--version":
        print(f"rl-qg {version('rl-qg')}")
        return
    if name == "--completion":
        from rl_qg.commands.completion import completion

        print(completion(arguments[0] if arguments else "bash"), end="")
        return
    name, arguments = named_command([name, *arguments])
    if subcommands := [known for known in COMMANDS if known.startswith(f"{name} ")]:
        if "-h" in arguments or "--help" in arguments:
            print(group_help(name))
            return
        given = f"{name} {arguments[0]}" if arguments else name
        fault = f"no such command{suggestion(given, subcommands)}; choose" if arguments else "give"
        raise InputError(f"{fault} one of {', '.join(subcommands)}, such as {COMMANDS[subcommands[0]].example}")
    if name not in COMMANDS:
        known = [*COMMANDS, *(words.split()[0] for words in COMMANDS)]
        raise InputError(f"no such command{suggestion(name, known)}; choose one of {', '.join(COMMANDS)}")
    if "-h" in arguments or "--help" in arguments:
        print(command_help(name))
        return
    if "--cfg" in arguments and name not in RAW:
        print(resolved_yaml(name, [text for text in arguments if text not in ("--cfg", "job")]), end="")
        return
    settings = arguments if name in RAW else compose(name, arguments)
    with locked(_outputs(name, settings)):
        _stay_offline_without_a_hub()  # worker processes find it in their environment
        module = import_module(f"rl_qg.commands.{COMMANDS[name].module}")  # only now: composing and --help stay quick
        getattr(module, section_of(name))(settings)


def _outputs(name: str, settings: Any) -> list[tuple[str, Path]]:
    """What a command will write, which no other one may write meanwhile. The first process locks it for all."""
    if name in RAW or os.environ.get("RANK", "0") != "0":
        return []
    key, value = "output_dir", settings.output_dir
    if key not in COMMANDS[name].sections:
        key, value = "output", getattr(getattr(settings, section_of(name)), "output", "")
    return [(key, Path(value))] if value else []


def _output_is_closed() -> bool:
    """Whether the reader of our output, such as `head`, has seen enough; if so, what is left goes nowhere.

    The pipe itself is asked: writing again would not fail where the first failure has emptied the buffer.
    """
    pipe = select.poll()
    pipe.register(1)
    if not any(events & (select.POLLERR | select.POLLHUP) for _, events in pipe.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return True


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _disk_full(error: Exception) -> str:
    """The line for a full disk where the code that wrote has not caught it."""
    name = getattr(error, "filename", None)
    where = f"{name}: " if name else ""
    return (
        f"{where}the disk is full ({str(error).splitlines()[0]}); complete files are kept: free some space, and the "
        "same command goes on"
    )


def _is_input_error(error: Exception) -> bool:
    """Whether it is our `InputError`, or that of `rewards`, which is compared by name: this file loads no metric."""
    return isinstance(error, InputError) or "MetricInputError" in (kind.__name__ for kind in type(error).__mro__)


def _leave(message: str, code: int, *, local: bool = False) -> None:
    """Print the last message and end the process; return when all went well and no process group is left to close.

    The main process prints what is true of all processes, every process what is `local` to it.
    """
    rank = os.environ.get("RANK", "0")
    if message and (local or rank == "0"):
        print(message if rank == "0" else f"process {rank}: {message}", file=sys.stderr)
    if "torch" in sys.modules:
        from rl_qg.runtime.processes import exit_process

        exit_process(code)
    if code:
        sys.exit(code)


def _stay_offline_without_a_hub() -> None:
    """Check once whether the Hub answers; where it does not, the libraries use their cache or fail at once.

    Without this they try again for half a minute. They read the variable when they are imported, so this comes before.
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
        for name in LOGGERS_OF_EACH_PROCESS:
            logging.getLogger(name).setLevel(logging.WARNING)
    for library in ("httpx", "httpcore", "huggingface_hub", "datasets", "absl", "DeepSpeed"):
        logging.getLogger(library).setLevel(logging.ERROR)
    # DeepSpeed sets its level when it is imported, so a filter says it too.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # of its own code
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # else at each checkpoint: "writing model shards"
