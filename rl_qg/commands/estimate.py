"""`rl-qg estimate COMMAND key=value …`: what a command will cost, from a little of its work.

The command itself runs in a process of its own: first whole with the least work, for what does not depend on the rows;
then without evaluations on more and more rows, until their time stands out. Both run once more to count operations,
from which a model says what named GPUs take (`rl_qg.runtime.operations`).
"""

import json
import logging
import os
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import accumulate
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, NamedTuple

from rl_qg.commands.catalogue import COMMANDS, section_of
from rl_qg.commands.compose import compose
from rl_qg.commands.outputs import question_table
from rl_qg.data.examples import passage_hash, seeded_rank
from rl_qg.data.splits import load_splits, read_role, training_stream
from rl_qg.miniatures.in_settings import NAMES, with_miniatures
from rl_qg.runtime.errors import InputError, suggestion
from rl_qg.runtime.files import read_json_lines, read_record, write_json_lines
from rl_qg.runtime.run_folder import FILE, TRAINED
from rl_qg.settings import Settings
from rl_qg.settings.training import WORLD

UNITS = {"train": "updates", "generate": "answers", "score": "questions", "qa": "questions"}
STANDS_OUT = 8.0  # seconds of the processor that more rows must take, or a quarter of those of few if that is more
MOST_RUNS = 6
NEVER = 10**9  # updates between evaluations
Run = dict[str, Any]
log = logging.getLogger(__name__)


class ShareOfWork(NamedTuple):
    """Rows or updates of a command (0: a run tells), the smallest share worth a run; settings and rows of a share."""

    total: int
    least: float
    part: Callable[[float], Settings]
    rows: Callable[[float], int] | None = None  # None: the share of the total


def estimate(arguments: Sequence[str]) -> None:
    name, *rest = arguments or [""]
    if name not in UNITS:
        fault = "cannot be estimated" if name in COMMANDS else f"no such command{suggestion(name, UNITS)}"
        known = f"give one of {', '.join(UNITS)}, such as {COMMANDS['estimate'].example}"
        raise InputError(f"{name}: {fault}; {known}" if name else known)
    settings = compose(name, rest)
    check(name, settings)
    if settings.stages != "both":
        (settings.scst if settings.stages == "ce" else settings.ce).epochs = 0.0
    import torch

    from rl_qg.pages.results import text_table
    from rl_qg.runtime.operations import ASSUMED, CONTEXT, GPUS
    from rl_qg.runtime.processes import worker_pool

    with worker_pool(1, torch.get_num_threads()) as pool, peak_memory() as peak:
        try:
            found = pool.submit(measure, name, settings).result()
        except BrokenProcessPool:
            raise InputError(f"{name}: its process was ended; if memory was short, lower its batch_size") from None
    needed = peak[0] - found.pop("imported") + CONTEXT
    here = {"seconds": found.pop("seconds"), "processor_seconds": found.pop("processor"), "bytes": peak[0]}
    places = {"this machine": here} | {gpu: {"seconds": found.pop(gpu), "bytes": needed} for gpu in GPUS}
    total, measured, tokens, operations = (found[key] for key in ("total", "measured", "tokens", "operations"))
    log.info(
        f"{name}: {total:,} {UNITS[name]}, {tokens:.2g} tokens through models, {operations:.2g} operations\n"
        f"this machine: measured with {measured:,} of them, to which the others are taken to be like\n"
        f"GPUs: by a model, not measured; assumed: {ASSUMED}"
    )
    if not sys.stdout.isatty():
        print(json.dumps(found | {"estimates": places}))
        return
    sizes = {gpu: f" of {one.memory / 1e9:.0f}" for gpu, one in GPUS.items()}
    rows = [(place, time_text(one["seconds"]), f"{one['bytes'] / 1e9:.1f}") for place, one in places.items()]
    print(text_table([{"on": on, "time": took, "GB": size + sizes.get(on, "")} for on, took, size in rows]))


def check(name: str, settings: Settings) -> None:
    """Raise `InputError` for what a little of the work does not tell."""
    trains = name == "train"
    read = {"generate": settings.model.path, "score": settings.reward, "qa": settings.qa.model.path}
    named = json.dumps(read.get(name, [settings.model.path, settings.reward]))
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError("an estimate is of one process; start it without accelerate launch")
    for key in ("part", "launcher"):
        if (value := getattr(settings, key)) is not None:
            raise InputError(f"{key}={value}: leave it out; each of n parts takes an n-th of the rows")
    if trains and (settings.algorithm, settings.task) != ("scst", "questions"):
        raise InputError("training can be estimated with algorithm=scst and model.task=questions alone")
    if trains and settings.training.stop_after is not None:
        raise InputError("training.stop_after: leave it out; an estimate is of it all")
    if settings.data.train != WORLD and f'"{NAMES[0]}' in named:
        raise InputError("miniatures are pretrained on all rows of the data; give folders of models")


def time_text(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The largest memory, in bytes, of all child processes together, as long as the block runs."""
    import psutil

    peak, end = [0], Event()

    def look() -> None:
        while not end.wait(0.05):
            with suppress(psutil.Error):  # one of them has ended
                children = psutil.Process().children(recursive=True)
                peak[0] = max(peak[0], sum(child.memory_info().rss for child in children))

    Thread(target=look, daemon=True).start()
    try:
        yield peak
    finally:
        end.set()


# --- in the process that measures


def measure(name: str, settings: Settings) -> Run:
    """Run the command as this file says, in a process that has done nothing else."""
    import psutil
    from accelerate import PartialState

    from rl_qg.runtime.operations import GPUS

    warnings.simplefilter("ignore")
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    log.setLevel(logging.INFO)
    command = getattr(import_module(f"rl_qg.commands.{COMMANDS[name].module}"), section_of(name))
    if settings.data.train == WORLD:  # miniatures are made now, and found by each run
        settings = with_miniatures(settings, [], PartialState(cpu=settings.training.use_cpu), reader=name == "qa")
    process = psutil.Process()
    found: Run = {"command": name, "unit": UNITS[name], "imported": process.memory_info().rss}
    started = {"seconds": time.time() - process.create_time(), "processor": _processor()}
    with TemporaryDirectory() as folder:
        work = work_of(name, settings, Path(folder))
        run = partial(_run, name, command, settings, work, folder)
        whole = run(work.least, bare=False)
        total = found["total"] = whole.get("total", work.total)
        share = max(work.least, min(1.0, 4 / total))  # of a training four updates
        runs, more = [run(share)], 0.0
        while share < 1 and len(runs) < MOST_RUNS and more < max(STANDS_OUT, runs[0]["processor"] / 4):
            share = min(1.0, share * (2 if runs[0]["processor"] > STANDS_OUT else 4))
            runs.append(run(share))
            more = runs[-1]["processor"] - runs[0]["processor"]
        counts = [run(work.least, bare=False, count=True), run(runs[0]["share"], count=True)]
    last = runs[-1]
    first = runs[0] if runs[0]["rows"] < last["rows"] else dict.fromkeys(last, 0.0)
    each = {key: max(0.0, last[key] - first[key]) / (last["rows"] - first["rows"]) for key in started}
    each |= {key: number / counts[1]["rows"] for key, number in counts[1]["counts"].items()}
    numbers = whole | counts[0]["counts"]
    once = {key: max(0.0, numbers[key] - each[key] * whole["rows"]) for key in each}
    evaluations = total // settings.training.eval_steps * whole.get("evaluation", 0.0) / max(once["seconds"], 1e-9)
    full = {key: (1 + evaluations) * once[key] + each[key] * total + started.get(key, 0.0) for key in each}
    other = max(0.0, full["processor"] - full.pop("in_operations"))  # a GPU does not take it over
    return {**found, **full, **{gpu: full[gpu] + other for gpu in GPUS}, "measured": last["rows"]}


def _processor() -> float:
    """Seconds of this process and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _run(
    name: str,
    command: Callable[[Settings], Any],
    settings: Settings,
    work: ShareOfWork,
    folder: str,
    share: float,
    *,
    bare: bool = True,
    count: bool = False,
) -> Run:
    """Run a command with a share of its work, `bare` without evaluations, and return what it took."""
    from rewards.arithmetic import VARIABLE
    from rl_qg.runtime.operations import OperationCounter

    log.info("estimate: %s with a little of its work%s", name, ", counted" if count else "")
    part = work.part(share)
    if bare:
        few, none = replace(part.training, eval_samples=1), replace(part.evaluation, check_reward=0)
        part = replace(part, training=few, evaluation=none)
    with TemporaryDirectory(dir=folder) as output:
        part = replace(part, output_dir=f"{output}/run")
        section: Any = getattr(part, section_of(name), None)
        if hasattr(section, "output"):
            setattr(part, section_of(name), replace(section, output=f"{output}/output.jsonl"))
        found: Run = {"share": share, "rows": work.rows(share) if work.rows else round(share * work.total)}
        start, used = time.perf_counter(), _processor()
        if count:
            os.environ[VARIABLE] = "never"  # packed products are not counted
            with OperationCounter() as counter:
                command(replace(part, qa=replace(part.qa, threads=None)))  # other processes are not either
            found["counts"] = counter.counts
        else:
            command(part)
        found |= {"seconds": time.perf_counter() - start, "processor": _processor() - used}
        return found | (_training(settings, Path(output, "run")) if name == "train" else {})


def _training(settings: Settings, run: Path) -> Run:
    """Of a training of a little of these settings: its updates, those of the `total`, seconds of an evaluation."""
    note, examples, training = read_record(run / TRAINED), read_record(run / FILE)["examples"], settings.training
    passes, more, repeats = settings.ce.epochs, settings.scst.epochs, settings.scst.updates_per_rollout
    mixed, size = note.get("unlabelled", {}), training.batch_size * training.gradient_accumulation_steps
    rows, mixes_later = examples["gold"], examples["unlabelled"] and settings.scst.unlabelled_share != 0
    total = ceil((passes + more) * ceil(rows / size))  # as the library counts, which reads whole passes
    if mixed.get("share") or repeats > 1 or settings.ce.by_length or (settings.stages == "ce" and mixes_later):
        total = ceil(passes * rows / size)
        rows = mixed["examples"] / mixed["share"] if mixed.get("share") else rows
        total += ceil(more * rows / size) * repeats
    seconds = [line.get("eval_runtime", 0.0) for _, line in read_json_lines(run / "metrics.jsonl")]
    return {"rows": note["steps"], "total": total, "evaluation": max(seconds)}


def work_of(name: str, settings: Settings, folder: Path) -> ShareOfWork:
    data, qa, ce, scst = settings.data, settings.qa, settings.ce, settings.scst

    def shorter(share: float) -> Settings:
        """A training with a share of the passes over the same data, evaluated only at the ends of its stages."""
        few = replace(settings.training, eval_steps=NEVER, save_steps=NEVER)
        passes = {"ce": replace(ce, epochs=share * ce.epochs), "scst": replace(scst, epochs=share * scst.epochs)}
        return replace(settings, training=few, **passes)  # type: ignore[arg-type]

    if name == "train":
        splits, size = load_splits(data), settings.training.batch_size * settings.training.gradient_accumulation_steps
        rows = ce.epochs * len(splits.gold), scst.epochs * (len(splits.gold) + len(splits.unlabelled))
        return ShareOfWork(0, min(1.0, size / min(filter(None, rows), default=1)), shorter)  # an update of each stage
    if name == "score":
        return _scoring(settings, folder)
    total, validation, least = len(training_stream(data, spans=name == "generate")), NEVER, 4 * qa.batch_size
    if name == "generate":
        total, least = min(total, settings.generate.max_answers or total), settings.generate.batch_size
    else:
        validation = min(len(read_role(data, "validation").examples), data.max_validation or NEVER)

    def fewer(share: float) -> Settings:
        less = replace(data, max_train=ceil(share * total), max_validation=ceil(share * validation))
        steps = ceil(share * qa.max_steps) if qa.max_steps > 0 else qa.max_steps
        return replace(settings, data=less, qa=replace(qa, max_steps=steps))

    def answers(share: float) -> int:  # of a sample of questions, of which several may have one answer
        return len(training_stream(fewer(share).data, spans=True))

    return ShareOfWork(total, min(1.0, least / total), fewer, answers if name == "generate" else None)


def _scoring(settings: Settings, folder: Path) -> ShareOfWork:
    """The questions of a share of the passages, since a metric reads a passage once for all of its questions."""
    from rl_qg.data.question_tables import TableRow

    options, table = settings.score, question_table(settings.score, settings)

    def passage(row: TableRow) -> str:
        return passage_hash(table.value(row, "context") or row.where)

    counts = Counter(map(passage, table))
    total, order = counts.total(), sorted(counts, key=partial(seeded_rank, settings.seed))
    before = dict(zip(order, accumulate((counts[one] for one in order), initial=0), strict=False))

    def scoring(share: float) -> Settings:
        path = folder / "questions.jsonl"
        write_json_lines(path, (row.fields for row in table if before[passage(row)] < share * total))
        return replace(settings, score=replace(options, input=str(path)))

    def rows(share: float) -> int:
        return sum(number for one, number in counts.items() if before[one] < share * total)

    return ShareOfWork(total, min(1.0, options.batch_size / max(1, total)), scoring, rows)
