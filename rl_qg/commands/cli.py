"""The command line: `rl-qg COMMAND key=value …`. Runs a command and reports bad input on one line."""

import gc
import logging
import os
import select
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from errno import EACCES, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, ENOTDIR, EROFS, ESPIPE
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rl_qg.commands.catalogue import (
    COMMANDS,
    RAW,
    command_help,
    group_help,
    groups_of,
    named_command,
    offered,
    overview,
    section_of,
)
from rl_qg.commands.compose import compose, resolved_yaml, unread_keys, whole_path
from rl_qg.commands.endpoints import check_endpoints, report_use
from rl_qg.runtime.errors import InputError, LocalError, Terminated, suggestion
from rl_qg.runtime.files import is_disk_full, locked
from rl_qg.settings import Settings, all_keys

log = logging.getLogger(__name__)
IMPORTED_OBJECTS = 500_000  # of PyTorch and transformers
SHELLS = ("bash", "zsh", "fish")
LONGEST = 2000  # characters of a message
PATH_FAULTS = {  # what is wrong with a path of the user, wherever it was found
    ENAMETOOLONG: "is too long for the name of a file",
    EEXIST: "is a file where a folder belongs; move it, or name another folder",
    ENOTDIR: "a file is in the place of one of these folders; move it, or name another folder",
    EISDIR: "is a folder where a file belongs; move it, or name another folder",
    ELOOP: "is a loop of links; name another path",
    EACCES: "may not be read or written; change its permissions, or name another path",
    ESPIPE: "is a pipe or device; write what it gives into a file",
    EROFS: "is on a file system that cannot be written; name another path",
}
# Modules whose warnings concern one process alone, so that every process shows them.
LOGGERS_OF_EACH_PROCESS = ("rl_qg.runtime.processes", "rl_qg.scoring.reward_scorer", "rl_qg.training.callbacks")


def completion(shell: str) -> str:
    """A script that completes commands, groups, choices and keys, all written into it: completing starts no Python.
    `eval "$(rl-qg --completion bash)"` in ~/.bashrc, zsh alike; `rl-qg --completion fish | source` in
    ~/.config/fish/config.fish.
    """
    if shell not in SHELLS:
        raise InputError(f"--completion {shell}: choose one of {', '.join(SHELLS)}")
    words: dict[str, str] = {}  # by command
    groups: dict[str, dict[str, str]] = {}  # of commands of two words, by the first
    for name in COMMANDS:
        first, _, second = name.partition(" ")
        (groups.setdefault(first, {}) if second else words)[second or first] = " ".join(words_of(name))
    names = " ".join([*words, *groups])
    if shell == "fish":
        start, seen = "complete -c rl-qg -n '__fish_seen_subcommand_from", "__fish_seen_subcommand_from"
        lines = [f"complete -c rl-qg -f -n __fish_use_subcommand -a '{names}'"]
        lines += [f"{start} {name}' -a '{known}'" for name, known in words.items()]
        for first, inner in groups.items():
            lines.append(f"{start} {first}; and not {seen} {' '.join(inner)}' -a '{' '.join(inner)}'")
            lines += [f"{start} {first}; and {seen} {name}' -a '{known}'" for name, known in inner.items()]
        return "\n".join(lines) + "\n"

    def cases(words: Mapping[str, str], indent: str) -> list[str]:
        return [f'{indent}{name}) words="{known}" ;;' for name, known in words.items()]

    lines = cases(words, " " * 6)
    for first, inner in groups.items():
        words_next = f'(( COMP_CWORD == 2 )) && words="{" ".join(inner)}"'
        lines.append(f'      {first}) {words_next} || case "${{COMP_WORDS[2]}}" in')
        lines += [*cases(inner, " " * 8), "      esac ;;"]
    template = Path(__file__).with_name("completion.bash").read_text(encoding="utf-8")
    script = template.replace("@COMMANDS@", names).replace("@CASES@", "\n".join(lines))
    return f"autoload -Uz +X compinit bashcompinit && compinit && bashcompinit\n{script}" if shell == "zsh" else script


def words_of(command: str) -> list[str]:
    """What may follow a command: each choice of its groups, and its keys with an equals sign."""
    if command in RAW:
        return [*COMMANDS[command].words]
    words = [f"{group}={choice}" for group in groups_of(command) for choice in offered(group)]
    sections, own = COMMANDS[command].sections, f"{section_of(command)}."
    keys = [key for key in all_keys() if any(key == part or key.startswith(f"{part}.") for part in sections)]
    return [*words, *(f"{key.removeprefix(own)}=" for key in [*keys, *COMMANDS[command].aliases]), "--help"]


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `rl-qg` and of the launchers. `argv` may hold the command's name; the command line follows it."""
    arguments = [*(argv or ()), *sys.argv[1:]]
    _configure_logging()
    _collect_garbage_later()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return
    name, rest = named_command(arguments)
    if (before := signal.getsignal(signal.SIGTERM)) is signal.SIG_DFL:  # else a scheduler has its own way to end us
        signal.signal(signal.SIGTERM, _terminate)
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
            line = f"error: {_one_line(str(error))}"
        elif is_disk_full(error):
            where = f"{file}: " if (file := getattr(error, "filename", None)) else ""
            fault = f"{where}the disk is full ({str(error).splitlines()[0]})"
            line = f"error: {fault}; complete files are kept: free some space, and the same command goes on"
        elif isinstance(error, OSError) and error.filename is not None and error.errno in PATH_FAULTS:
            line = f"error: {_one_line(str(error.filename))}: {PATH_FAULTS[error.errno]}"
        else:
            raise
        code = getattr(error, "exit_code", 2)
        local = isinstance(error, LocalError) or not _is_input_error(error)
    signal.signal(signal.SIGTERM, before)
    _leave(f"rl-qg {name}: {line}" if line else "", code, local=local)


def _collect_garbage_later() -> None:
    """No garbage collection until `IMPORTED_OBJECTS` exist: looking again and again through those of imported modules,
    which stay, took a quarter of the time of the imports. What the first one leaves is no longer looked at.
    """
    usual = gc.get_threshold()
    if usual[0] >= IMPORTED_OBJECTS or gc.get_freeze_count():  # this process has called it before
        return

    def begin(phase: str, info: object) -> None:
        if phase == "stop":
            gc.callbacks.remove(begin)
            gc.freeze()
            gc.set_threshold(*usual)

    gc.callbacks.append(begin)
    gc.set_threshold(IMPORTED_OBJECTS, *usual[1:])


def run_command(name: str, arguments: Sequence[str]) -> None:
    if name == "--version":
        print(f"rl-qg {version('rl-qg')}")
        return
    if name == "--completion":
        print(completion(arguments[0] if arguments else "bash"), end="")
        return
    name, arguments = named_command([name, *arguments])
    for place, text in enumerate(arguments):  # names of files among them are written to reports
        if text.encode(errors="ignore").decode() != text:
            raise InputError(f"argument {text!r}: is not UTF-8 text; give it, or name the file, in UTF-8")
        if name in RAW:  # others know which of their keys are paths
            value = text.partition("=")[2] or text
            arguments[place] = text.removesuffix(value) + whole_path(value, f"argument {text!r}")
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
        print(command_help(name, every="all" in arguments))
        return
    if "--cfg" in arguments and name not in RAW:
        print(resolved_yaml(name, [text for text in arguments if text not in ("--cfg", "job")]), end="")
        return
    settings = arguments if name in RAW else compose(name, arguments)
    if name not in RAW and (unread := unread_keys(name, arguments)):
        log.warning("%s has no effect in rl-qg %s", ", ".join(unread), name)
    if isinstance(settings, Settings):
        check_endpoints(name, settings)
    if isinstance(settings, Settings) and settings.launcher:
        return import_module("rl_qg.commands.launcher").launch(name, arguments, settings)
    with locked(_outputs(name, settings)):
        _stay_offline_without_a_hub()  # worker processes find it in their environment
        module = import_module(f"rl_qg.commands.{COMMANDS[name].module}")  # only now: composing and --help stay quick
        try:
            getattr(module, section_of(name))(settings)
        finally:
            report_use()


def _outputs(name: str, settings: Any) -> list[tuple[str, Path]]:
    """What a command will write, which no other one may write meanwhile. The first process locks it for all."""
    if name in RAW or os.environ.get("RANK", "0") != "0":
        return []
    key, value = "output_dir", settings.output_dir
    if key not in COMMANDS[name].sections:
        key, value = "output", getattr(getattr(settings, section_of(name)), "output", "")
    if value and settings.part:
        from rl_qg.data.parts import DataPart

        value = DataPart.parse(settings.part).path(Path(value), name)
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


def _one_line(text: str) -> str:
    """A message whose values and names of files break neither its line nor the terminal, nor fill the screen."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST // 2]} … {shown[-LONGEST // 2 :]}"


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
    from rewards.hub import hub_answers

    if "HF_HUB_OFFLINE" not in os.environ and not hub_answers():  # else the user has decided
        os.environ["HF_HUB_OFFLINE"] = "1"


def _configure_logging() -> None:
    rank = os.environ.get("RANK", "0")
    if rank == "0":
        logging.basicConfig(format="%(message)s", level=logging.INFO, force=True)
    else:
        logging.basicConfig(format=f"process {rank}: %(message)s", level=logging.ERROR, force=True)
        for name in LOGGERS_OF_EACH_PROCESS:
            logging.getLogger(name).setLevel(logging.WARNING)
    clients = ("httpx", "httpcore", "httpx2", "httpcore2", "openai", "huggingface_hub")
    for library in (*clients, "datasets", "absl", "DeepSpeed"):
        logging.getLogger(library).setLevel(logging.ERROR)
    # DeepSpeed sets its level when it is imported, so a filter says it too.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # of its own code
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # else at each checkpoint: "writing model shards"
