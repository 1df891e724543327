"""The promise of every command: an output that is complete, or one line that says what is wrong and where."""

import json
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModel

from rl_qg.commands.catalogue import named_command
from rl_qg.commands.cli import main
from tests import processes
from tests.properties.draws import Draw
from tests.properties.files import lay_out
from tests.properties.mutations import mutate

LIMIT = 100  # seconds of a command, ten times as long where it trains
PATIENCE = 1500  # seconds without a result, after which the process is killed
MEMORY = 6 * 2**30  # bytes of addresses
LONGEST = 2100  # characters of a message, with the name of the command
STOPPED = 90  # the exit code of a command whose work would begin
WORK = (  # training, and servers
    "rl_qg.commands.runs.with_miniatures",
    "rl_qg.commands.training.with_encoder",
    "rl_qg.evaluation.qa_evaluation.with_encoder",
    "rl_qg.commands.estimate.peak_memory",
    "rl_qg.web.server.OrderlyServer.run",
)
SERVERS = WORK[-1:]


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code, the last line, and what breaks the promise (empty: nothing)."""

    code: int
    line: str
    faults: Sequence[str]


class Late(BaseException):
    """A command has taken too long."""


def run_draws(draws: Sequence[Draw], root: Path, environment: Mapping[str, str], *, stop: bool) -> Iterator[Outcome]:
    """Run commands one after the other in a process of their own, each in a new folder. `stop`: only until their work
    begins. Where one ends that process, this is its outcome, and the next begins another.
    """
    left = [*draws]
    while left:
        done = 0
        with TemporaryDirectory() as name:
            results = Path(name, "results")
            results.touch()
            stops = WORK if stop else SERVERS
            process = processes.start(_run_all, left, root, results, stops, environment=environment)
            try:
                last, ended = time.monotonic(), False
                while not ended and time.monotonic() < last + PATIENCE:
                    ended = process.poll() is not None  # before the last results are read
                    for line in results.read_text(encoding="utf-8").split("\n")[done:-1]:
                        done, last = done + 1, time.monotonic()
                        yield Outcome(**json.loads(line))
                    time.sleep(0.1)
            finally:
                process.kill()
        if done < len(left):
            done += 1
            yield Outcome(-1, "", (f"ends its process with {process.returncode}",))
        left = left[done:]


def _run_all(draws: Sequence[Draw], root: Path, results: Path, stops: Sequence[str]) -> None:
    limit = LIMIT if stops == WORK else 10 * LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _late)
    for name in stops:
        patch(name, _stop).start()
    for draw in draws:
        with TemporaryDirectory() as name, results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(_run(draw, root, Path(name, "user"), limit))) + "\n")


def _stop(*arguments: Any, **options: Any) -> None:
    raise SystemExit(STOPPED)


def _late(*arguments: Any) -> None:
    raise Late


def _run(draw: Draw, root: Path, folder: Path, limit: int) -> Outcome:
    folder.mkdir()
    lay_out(root, folder)
    if draw.change:
        file, kind, share = draw.change
        mutate(folder / file, kind, share)
    before = _files(folder)
    out, err, code = StringIO(), StringIO(), 0
    os.chdir(folder)
    signal.alarm(limit)
    try:
        with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["rl-qg", *draw.words]):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    except Late:
        return Outcome(-1, "", (f"does not end within {limit} seconds",))
    except Exception:
        err.write(traceback.format_exc())
        code = 1
    finally:
        signal.alarm(0)
        os.chdir("/")
    lines = [line for line in re.split(r"[\r\n]+", err.getvalue()) if line.strip()]
    faults = tuple(_faults(draw, code, lines, folder, before, out.getvalue()))
    return Outcome(code, lines[-1] if lines else "", faults)


def _files(folder: Path) -> dict[Path, bytes]:
    """The user's data files."""
    return {path: path.read_bytes() for path in sorted(folder.glob("in/*")) if path.is_file()}


def _faults(
    draw: Draw, code: int, lines: list[str], folder: Path, before: Mapping[Path, bytes], out: str
) -> Iterator[str]:
    if any("Traceback" in line for line in lines):
        yield "a traceback: " + " | ".join(line.strip() for line in lines[-7:])
    elif code == 2 or (code == 1 and lines):
        yield from message_faults(draw, lines)
    elif code not in (0, STOPPED):
        yield f"exit code {code}"
    if changed := [path for path, content in before.items() if not path.is_file() or path.read_bytes() != content]:
        yield f"changes {changed[0].relative_to(folder)}"
    if code == 0:
        yield from output_faults(draw, folder, out)


def message_faults(draw: Draw, lines: list[str]) -> Iterator[str]:
    """What is wrong with the last line of a command that was refused."""
    name, _ = named_command(draw.words)
    start, line = f"rl-qg {name}: error: ", lines[-1]
    if not line.startswith(start):
        yield f"the last line is no message of {name}"
    if sum(text.startswith("rl-qg ") for text in lines) > 1:
        yield "more than one message"
    if len(line) > LONGEST:
        yield f"a message of {len(line)} characters"
    if not line.removeprefix(start).isprintable():
        yield "a message with control characters"
    values = [word.partition("=")[2] or word for word in draw.words]
    blank = any(not re.search(r"\w", value) for value in values)  # nothing to name
    named = _names(draw) & {*re.split(r"\W+", line.removeprefix(start))}
    shown = ["".join(one if one.isprintable() else repr(one)[1:-1] for one in value) for value in values]
    if (
        not blank and not named and not any(f" {value}: " in f" {line.removeprefix(start)}" for value in shown)
    ):  # a file of one letter
        yield "the message names no key and no file of the command"


def _names(draw: Draw) -> set[str]:
    """What a message can name: the words in keys, values and names of files."""
    given = [*draw.words, *([draw.change[0]] if draw.change else [])]
    keys = {word.partition("=")[0] for word in draw.words if "=" in word}
    return keys | {part for word in given for part in re.split(r"\W+", word) if len(part) > 2}


def output_faults(draw: Draw, folder: Path, out: str) -> Iterator[str]:
    """What is wrong with the files of a command that says it is done; `out` is what it printed."""
    data = [(), *((part,) for part in ("in", "models", "made", "study"))]
    around = folder.parent  # an output may be ../x
    new = [path for path in around.rglob("*") if path.is_file() and path.relative_to(around).parts[1:2] not in data]
    name = " ".join(draw.words[:2]) if draw.words[0] in ("rate", "bench") else draw.words[0]
    if not new and not out and not any("dry-run" in word for word in draw.words):
        yield "done, and nothing was written"
    passed_on = draw.change is not None and draw.change[1] in ("nan", "infinity")  # in fields that no command reads
    faults = [fault for path in new for fault in file_faults(path, with_nan=passed_on)]
    yield from faults
    if not faults and not passed_on and (check := CHECKS.get(name)):
        yield from check({path.name: path for path in new})


def file_faults(path: Path, *, with_nan: bool = False) -> Iterator[str]:
    """A file that is empty, or that its readers would refuse; `with_nan`: it may have the NaN of its input."""
    strict = partial(parsed, with_nan=with_nan)
    try:
        if path.suffix == ".json":
            strict(path.read_text(encoding="utf-8"))
        elif path.suffix == ".jsonl":
            [strict(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        elif path.suffix in (".html", ".csv", ".txt", ".md", ".yaml") and not path.read_text(encoding="utf-8").strip():
            yield f"{path.name} is empty"
        if path.suffix == ".html" and not path.read_text(encoding="utf-8").rstrip().endswith("</html>"):
            yield f"{path.name} is no complete page"
        if path.name == "model.safetensors" and not path.parent.name.startswith("checkpoint"):
            yield from model_faults(path.parent)
    except ValueError as error:
        yield f"{path.name} does not load: {error}"


def model_faults(folder: Path) -> Iterator[str]:
    """A saved model whose states are not finite: its training has failed."""
    model = AutoModel.from_pretrained(folder, trust_remote_code=False).eval()
    ids = torch.arange(4)[None]
    decoder = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        states = model(input_ids=ids, **decoder)[0]
    if not states.isfinite().all():
        yield f"the states of the model in {folder.name} are not finite"


def parsed(text: str, *, with_nan: bool = False) -> Any:
    """JSON as every reader takes it: without NaN, and text that can be encoded."""

    def refuse(word: str) -> None:
        if not with_nan:
            raise ValueError(f"{word} is no JSON")

    value = json.loads(text, parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def rows(path: Path) -> list[Any]:
    return [parsed(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


# Counts that must add up, by command. Each gets the new files by name.


def _answers_lie_in_passages(files: Mapping[str, Path]) -> Iterator[str]:
    for name, path in files.items():
        found = rows(path) if name.endswith(".jsonl") else []
        if name.endswith(".jsonl") and not found:
            yield f"{name} holds nothing"
        for row in found:
            if "answer_start" in row:
                start = row["answer_start"]
                if row["context"][start : start + len(row["answer"])] != row["answer"]:
                    yield f"{name}: an answer is not at its place"


def _augmented(files: Mapping[str, Path]) -> Iterator[str]:
    report = next((parsed(path.read_text()) for name, path in files.items() if name.endswith(".report.json")), None)
    if report is None:
        yield "no report"
        return
    dropped = sum(report.get("dropped", {}).values())
    if report["candidates"] != dropped + report["kept"] or report["sampled"] > report["kept"]:
        yield f"counts do not add up: {report}"
    if report["gold"] + report["sampled"] == 0:
        yield "an empty result"


def _scored(files: Mapping[str, Path]) -> Iterator[str]:
    for name, path in files.items():
        if name.endswith(".jsonl"):
            found = rows(path)
            if not found or any("score" not in row for row in found):
                yield f"{name}: rows without a score"


def _evaluated(files: Mapping[str, Path]) -> Iterator[str]:
    if path := files.get("evaluate.json"):
        scores = parsed(path.read_text())["scores"]
        whole = [row["n"] for row in scores if row["by"] == "all"]
        if not whole or min(whole) < 1:
            yield "scores of nothing"


def _benchmark(files: Mapping[str, Path]) -> Iterator[str]:
    for name in ("train.json", "validation.json", "test.json"):
        if name in files and not parsed(files[name].read_text())["data"]:
            yield f"{name} holds nothing"


CHECKS: dict[str, Callable[[Mapping[str, Path]], Iterator[str]]] = {
    "answers": _answers_lie_in_passages,
    "generate": _answers_lie_in_passages,
    "augment": _augmented,
    "score": _scored,
    "evaluate": _evaluated,
    "bench data": _benchmark,
}
