"""`rl-qg bench`: data of a benchmark, tables of transfer, and the leaderboard.

    rl-qg bench data data=squad.json output_dir=bench/squad
    rl-qg bench transfer transfer.yaml output_dir=runs/transfer
    rl-qg bench report runs/eval-en german=runs/eval-de output=leaderboard

Each subcommand reads its own arguments. `docs/reference/bench.md` explains them.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from rl_qg.commands.catalogue import suggestion
from rl_qg.commands.compose import compose
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.locks import locked

log = logging.getLogger(__name__)


def bench(arguments: Sequence[str]) -> None:
    """The command: the name of a subcommand, then its arguments."""
    name, *rest = arguments or [""]
    if name not in SUBCOMMANDS:
        raise InputError(
            f"bench {name}".strip() + f": no such subcommand{suggestion(name, SUBCOMMANDS)}; choose one of "
            f"{', '.join(SUBCOMMANDS)}, such as rl-qg bench data data=squad.json output_dir=bench/squad"
        )
    SUBCOMMANDS[name](rest)


def data(arguments: Sequence[str]) -> None:
    """Read, divide and write data (`rl_qg.bench.data_stage`)."""
    from rl_qg.bench.data_stage import write_bench_data

    if not any(text.startswith("output_dir=") for text in arguments):
        raise InputError("output_dir has no value; give a folder, such as output_dir=bench/squad")
    settings = compose("bench", arguments)
    folder = Path(settings.output_dir)
    with locked([("output_dir", folder)]):
        write_bench_data(settings.bench, folder)


def report(arguments: Sequence[str]) -> None:
    """One page of results of several models on several data (`rl_qg.bench.leaderboard`)."""
    from rl_qg.bench.leaderboard import write_leaderboard
    from rl_qg.evaluation.result_pages import check_folder

    outputs = [text.partition("=")[2] for text in arguments if text.startswith("output=")]
    results = [_named_result(text) for text in arguments if not text.startswith("output=")]
    if len(outputs) > 1 or not results or any(name == "" or str(path).startswith("-") for name, path in results):
        raise InputError(
            "give results and one output=FOLDER, such as rl-qg bench report runs/eval-en german=runs/eval-de "
            "output=leaderboard"
        )
    folder = check_folder(outputs[0] if outputs else "", "leaderboard", name="leaderboard")
    with locked([("output", folder)]):
        write_leaderboard(results, folder)


def _named_result(text: str) -> tuple[str | None, Path]:
    """A result, and the name of its data where it has the form NAME=RESULT."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).expanduser().exists():
        return None, Path(text).expanduser()
    return name, Path(path).expanduser()


def transfer(arguments: Sequence[str]) -> None:
    """Generators trained on some data and tested on others (`rl_qg.commands.transfer_stage`)."""
    from rl_qg.commands.transfer_stage import bench_transfer

    bench_transfer(arguments)


SUBCOMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"data": data, "transfer": transfer, "report": report}
