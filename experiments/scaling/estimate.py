"""What `rl-qg estimate` says beside what then happens: train, generate, score and qa at three sizes each.

    OMP_NUM_THREADS=1 python experiments/scaling/estimate.py

Miniatures on the embedded corpus. Writes its part of results.json: seconds of the processor and of
the clock (other work on the machine makes these longer), and bytes at the peak, estimated and measured.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import write

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from world_settings import WORLD_SETTINGS

from rl_qg.commands.estimate import peak_memory

BEAMS = ("generate.num_beams=8", "generate.batch_size=16")
SCORED = (1000, 2000, 4000)  # the first questions of generate at its smallest size
SIZES: dict[str, list[list[str]]] = {
    "train": [[f"ce.epochs={40 * scst:g}", f"scst.epochs={scst}"] for scst in (0.125, 0.25, 0.5)],
    "generate": [[*BEAMS, f"data.max_train={rows}"] for rows in (500, 1000, 2000)],
    "score": [["reward=qrelscore", f"input=questions-{rows}.jsonl"] for rows in SCORED],
    "qa": [["qa.seeds=[0]", "qa.threads=null", f"data.max_train={rows}"] for rows in (1000, 2000, 4000)],
}


def rl_qg(*words: str, folder: Path) -> tuple[str, dict[str, float]]:
    """What the command writes to its standard output, and what it took."""
    start, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with peak_memory() as peak:
        command = [sys.executable, "-m", "rl_qg", *words]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return done.stdout, {
        "seconds": time.monotonic() - start,
        "processor_seconds": processor,
        "bytes": peak[0],
    }


def main() -> None:
    results: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for command, sizes in SIZES.items():
            for size, more in zip(("small", "middle", "large"), sizes, strict=True):
                words = [command, "data=world", *WORLD_SETTINGS, *more]
                out, cost = rl_qg("estimate", *words, folder=folder)
                found = json.loads(out)
                output = "output_dir=run" if command in ("train", "qa") else "output=output.jsonl"
                actual = rl_qg(*words, output, folder=folder)[1]
                estimated = found["estimates"]["this machine"]
                ratio = {key: estimated[key] / actual[key] for key in actual}
                results[f"{command} {size}"] = {
                    **{key: found[key] for key in ("total", "measured", "operations", "tokens")},
                    **{"estimated": estimated, "actual": actual, "ratio": ratio, "of_the_estimate": cost},
                }
                write({"estimate": results})
                if (command, size) == ("generate", "small"):
                    lines = (folder / "output.jsonl").read_text().splitlines(keepends=True)
                    for rows in SCORED:
                        (folder / f"questions-{rows}.jsonl").write_text("".join(lines[:rows]))
                for made in [*folder.glob("run"), *folder.glob("output*")]:
                    subprocess.run(["rm", "-r", str(made)], check=True)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    main()
