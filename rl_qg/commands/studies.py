"""The commands that run many jobs: `rl-qg search`, `rl-qg study`, and `rl-qg bench`.

rl-qg search search.yaml                            # or the name of a file that comes with the package
rl-qg study experiments/augmentation/study.yaml     # --tables: tables and page of what is done so far
rl-qg bench transfer transfer.yaml --dry-run        # print the jobs, run none
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rewards.loading import own_code_only
from rl_qg.commands.compose import compose, split_outputs, without_dashes
from rl_qg.runtime.errors import InputError, suggestion
from rl_qg.runtime.files import locked
from rl_qg.settings import Settings
from rl_qg.settings.yaml_files import CONFIGS
from rl_qg.studies.jobs import Compose
from rl_qg.studies.run_study import run_study
from rl_qg.studies.search import run_search
from rl_qg.studies.search_space import read_search
from rl_qg.studies.transfer import run_transfer

log = logging.getLogger(__name__)
FLAGS = {"--dry-run": "dry_run", "--allow-imports": "allow_imports"}


def _composed_of(file: str) -> Compose:
    """`compose` for the jobs of a file, which its messages name."""

    def composed(command: str, arguments: Sequence[str]) -> Settings:
        try:
            return compose(command, arguments)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None

    return composed


def _run_file(arguments: Sequence[str], run: Callable[..., Any], needed: str, flags: Mapping[str, str] = FLAGS) -> Any:
    """Call `run` with a YAML file, `key=value` of that file, what composes the settings of its jobs, and each flag;
    without a file say what is `needed`.
    """
    chosen = {name: flag in arguments for flag, name in flags.items()}
    file, *overrides = [text for text in arguments if text not in flags] or [""]
    if not file or file.startswith("-") or "=" in file:
        raise InputError(f"give a {needed}")
    with nullcontext() if chosen["allow_imports"] else own_code_only():
        return run(file, overrides, _composed_of(file), **chosen)


def shipped_searches() -> Mapping[str, Path]:
    return {path.stem: path for path in sorted((CONFIGS / "search").glob("*.yaml"), key=lambda path: path.stem)}


def search(arguments: Sequence[str]) -> None:
    def run(file: str, overrides: Sequence[str], composed: Compose, *, dry_run: bool, allow_imports: bool) -> None:
        read = read_search(file, overrides, shipped_searches(), allow_imports=allow_imports)
        with locked([("output_dir", read.output_dir)]):
            run_search(read, composed, dry_run=dry_run)

    names = ", ".join(shipped_searches())
    _run_file(arguments, run, f"search file first, or one of {names}; such as rl-qg search search.yaml")


def study(arguments: Sequence[str]) -> None:
    needed = "study file first, such as rl-qg study experiments/augmentation/study.yaml"
    log.info("done: see %s", _run_file(arguments, run_study, needed, FLAGS | {"--tables": "tables_only"}))


def transfer(arguments: Sequence[str]) -> None:
    """Generators trained on some data and tested on others."""
    _run_file(arguments, run_transfer, "transfer file first, such as rl-qg bench transfer transfer.yaml")


def bench(arguments: Sequence[str]) -> None:
    name, *rest = arguments or [""]
    if name not in SUBCOMMANDS:
        raise InputError(
            f"bench {name}".strip() + f": no such subcommand{suggestion(name, SUBCOMMANDS)}; choose one of "
            f"{', '.join(SUBCOMMANDS)}, such as rl-qg bench data data=squad.json output_dir=bench/squad"
        )
    SUBCOMMANDS[name](rest)


def data(arguments: Sequence[str]) -> None:
    from rl_qg.bench.benchmark_data import write_bench_data

    arguments = [*without_dashes(arguments, {"output_dir"})]
    if not any(text.startswith("output_dir=") for text in arguments):
        raise InputError("output_dir has no value; give a folder, such as output_dir=bench/squad")
    settings = compose("bench", arguments)
    folder = Path(settings.output_dir)
    with locked([("output_dir", folder)]):
        write_bench_data(settings.bench, folder)


def report(arguments: Sequence[str]) -> None:
    from rl_qg.bench.leaderboard import write_leaderboard
    from rl_qg.pages.results import check_folder

    given, outputs = split_outputs(arguments)
    results = [_named_result(text) for text in given]
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


SUBCOMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"data": data, "transfer": transfer, "report": report}
