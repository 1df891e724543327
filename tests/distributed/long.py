"""The long version of the fault injection: many kills for each stage and launch configuration.

    python -m tests.distributed.long --kills 20 --out experiments/faults/results.jsonl

It writes one line of JSON for each fault. Cases that are in the file are not run again, so the same command continues
after an interruption; delete a line to run its case again.
"""

import argparse
import json
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tqdm import tqdm

from tests.distributed.faults import FAULTS, SHORT, Case, FaultInjector
from tests.distributed.stages import STAGES

TRAINING = ("ce", "scst", "both")
ENCODERS = ("train-answers", "train-kpqa")
CHECKPOINTS = (*TRAINING, "qa", "pipeline", "best-of-n", *ENCODERS)
UNNOTED = ("augment", "evaluate", "correlate", "robustness", "separate")  # do not note what they have read
OTHERS = 3  # number of each other fault
# Launch configuration with several processes -> the stages that are tested under it.
SEVERAL = {"cpu2": (*STAGES,), "zero2": ("both",), "zero3": ("both",)}


def cases(kills: int) -> Iterator[Case]:
    """All cases of the long version, those of one process first."""
    others = min(OTHERS, kills)
    for stage in STAGES:
        yield from (Case("SIGKILL", stage, "python", seed) for seed in range(kills))
    for fault, stages in {
        "SIGTERM": [stage for stage in STAGES if stage not in SHORT],
        "disk full": [stage for stage in STAGES if stage != "robustness"],  # its one large file is the first
        "truncated checkpoint": CHECKPOINTS,
        "changed data": [stage for stage in STAGES if stage not in (*UNNOTED, *SHORT)],
        "out of memory": ("scst", "both"),
    }.items():
        yield from (Case(fault, stage, "python", seed) for stage in stages for seed in range(others))
    for launch, stages in SEVERAL.items():
        yield from (Case("SIGKILL", stage, launch, seed) for stage in stages for seed in range(kills))
        yield from (Case("SIGTERM", stage, launch, seed) for stage in stages for seed in range(others))
    yield from (Case("elastic restart", stage, "torchrun", seed) for stage in TRAINING for seed in range(others))


def main() -> None:
    arguments = _arguments()
    done = set()
    if arguments.out.exists():
        keys = Case.__dataclass_fields__
        lines = (json.loads(line) for line in arguments.out.read_text().splitlines())
        done = {Case(**{key: line[key] for key in keys}) for line in lines}
    chosen = [
        case
        for case in cases(arguments.kills)
        if case.stage in arguments.stages and case.launch in arguments.launches and case.fault in arguments.faults
    ]
    left = [case for case in chosen if case not in done]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.work, prefix="faults-") as work:
        injector = FaultInjector(Path(work))
        with (
            arguments.out.open("a") as out,
            ThreadPoolExecutor(arguments.workers) as pool,
            tqdm(total=len(chosen), initial=len(chosen) - len(left), desc="faults", unit="fault") as bar,
        ):
            jobs = {pool.submit(injector.run_case, case): case for case in left}
            failed = 0
            for job in as_completed(jobs):
                try:
                    line = job.result().json()
                except Exception:  # in the harness or in an uninterrupted run: printed, and tried again next time
                    tqdm.write(f"{jobs[job].name}: {traceback.format_exc()[-2000:]}")
                    failed += 1
                else:
                    out.write(json.dumps(line, ensure_ascii=False) + "\n")
                    out.flush()
                    failed += bool(line["problems"])
                    for problem in line["problems"]:
                        tqdm.write(f"{jobs[job].name}: {problem}")
                bar.update()
                bar.set_postfix(failed=failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the file of results, which is extended")
    parser.add_argument("--kills", type=int, default=20, help="SIGKILLs for each stage and launch configuration")
    parser.add_argument("--workers", type=int, default=2, help="cases at a time")
    parser.add_argument("--work", type=Path, help="folder for temporary files; by default that of the system")
    launches = ["python", *SEVERAL, "torchrun"]
    for name, every in (("stages", [*STAGES]), ("launches", launches), ("faults", [*FAULTS])):
        parser.add_argument(f"--{name}", nargs="+", choices=every, default=every)
    return parser.parse_args()


if __name__ == "__main__":
    main()
