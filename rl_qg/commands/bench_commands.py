"""`rl-qg bench`: data of a benchmark, and tables of transfer.

    rl-qg bench data data=squad.json output_dir=bench/squad
    rl-qg bench transfer transfer.yaml output_dir=runs/transfer

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


def transfer(arguments: Sequence[str]) -> None:
    """Generators trained on some data and tested on others (`rl_qg.commands.transfer_stage`)."""
    from rl_qg.commands.transfer_stage import bench_transfer

    bench_transfer(arguments)


SUBCOMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"data": data, "transfer": transfer}
