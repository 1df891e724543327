"""Peak memory of the commands that run over many rows, at two sizes.

    OMP_NUM_THREADS=1 python experiments/memory/measure.py --out experiments/memory/results.json

Each command runs in a process of its own; its peak is what the kernel says when it has ended (`ru_maxrss`). This
process imports nothing large, because a child's peak begins with its parent's.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOOR = "from rl_qg.commands.cli import main; main()"
COMMON = ["training.use_cpu=true"]
BATCHED = ["max_new_tokens=8", "batch_size=64"]
SHIPPED = HERE.parents[1] / "rl_qg" / "miniatures" / "pretrained"
REAL = ["reward=qrelscore", f"reward.encoder={SHIPPED / 'bert'}", f"reward.decoder={SHIPPED / 'gpt2'}"]


def commands(data: Path, out: Path) -> dict[str, list[str]]:
    """The arguments of `rl-qg`, by a name for the table."""
    generate = ["generate", f"model.path={data / 'model'}", f"data.train={data / 'train.jsonl'}", *COMMON, *BATCHED]
    score = ["score", *COMMON]
    return {
        "generate, 2 beams": [*generate, f"output={out / 'beams.jsonl'}", "num_beams=2"],
        "generate, 2 samples": [
            *generate,
            f"output={out / 'samples.jsonl'}",
            "do_sample=true",
            "num_samples=2",
            "top_p=1.0",
        ],
        "score, toy reward": [
            *(*score, "reward._target_=toy.Length"),
            *(f"input={data / 'candidates.jsonl'}", f"output={out / 'toy.jsonl'}"),
        ],
        "score, QRelScore": [*score, *REAL, f"input={data / 'short.jsonl'}", f"output={out / 'qrelscore.jsonl'}"],
        "augment": [
            "augment",
            f"questions={data / 'candidates.jsonl'}",
            f"gold={data / 'train.jsonl'}",
            f"output={out / 'augmented.json'}",
        ],
    }


def run(arguments: list[str]) -> tuple[float, float]:
    """Run a Python process to its end; return its peak in MiB and its seconds."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
        "HF_HUB_OFFLINE": "1",
    }
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([sys.executable, *arguments], env=environment, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            sys.exit(f"{' '.join(arguments)}\n{said.read().decode(errors='replace')[-3000:]}")
    return usage.ru_maxrss / 1024, time.perf_counter() - began


def main() -> None:
    """Measure every command at every size, and write what was found after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs=2, default=[10_000, 100_000], metavar="ROWS")
    parser.add_argument("--only", default="", help="commands whose name begins so")
    args = parser.parse_args()
    found = json.loads(args.out.read_text()) if args.out.exists() else {"peaks": {}}
    found["machine"] = {"platform": platform.platform(), "python": platform.python_version()}
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            data, out = Path(folder) / f"in-{size}", Path(folder) / f"out-{size}"
            out.mkdir()
            run([str(HERE / "inputs.py"), str(data), str(size)])
            for name, arguments in commands(data, out).items():
                if not name.startswith(args.only):
                    continue
                peak, seconds = run(["-c", DOOR, *arguments])
                row = found["peaks"].setdefault(name, {})
                row[str(size)] = {"peak_mib": round(peak, 1), "seconds": round(seconds, 1)}
                peaks = [row[str(rows)]["peak_mib"] for rows in args.sizes if str(rows) in row]
                if len(peaks) == 2:
                    row["ratio"] = round(peaks[1] / peaks[0], 4)
                print(f"{name:<20} {size:>8,} rows {peak:8.1f} MiB {seconds:7.1f} s", flush=True)
                args.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
