"""Memory and time of millions of rows: `rl-qg augment` through filters, sample and write, and the input of a reader.

    python experiments/scaling/bounded.py augment --squad SQUAD.json --rows 1000000 --folder /tmp/rows
    python experiments/scaling/bounded.py reader --squad SQUAD.json --rows 3000000 --folder /tmp/rows --tokenizer BERT

Rows are made by `candidates.py`. Each writes its part of results.json: bytes at the peak, seconds of the processor
(other work on the machine makes the clock's seconds longer), rows.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import candidates
import numpy as np
from accelerate import PartialState
from measure import RESULTS, write
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from rl_qg.data.splits import training_stream
from rl_qg.readers.reader import WindowCollator, Windows, encode_in_parts, stored_windows
from rl_qg.readers.train_reader import LengthGrouped
from rl_qg.settings import DataSettings

FILTERS = ["filters=distinct", "+augment.filters.near_duplicates={}"]
REPEATED = 20_000  # examples that are tokenised; their windows are written again until there are enough


def augment(squad: Path, rows: int, folder: Path) -> dict[str, Any]:
    """Filters, a sample of a tenth, and the output as JSON lines."""
    questions = folder / f"questions-{rows}.jsonl"
    if not questions.exists():
        candidates.write(questions, candidates.sentences(squad), rows)
    keys = {"questions": questions, "gold": squad, "output": folder / "augmented.jsonl", "num_samples": rows // 10}
    command = [sys.executable, "-m", "rl_qg", "augment", *FILTERS]
    begun = time.perf_counter()
    process = subprocess.Popen([*command, *(f"augment.{key}={value}" for key, value in keys.items())])
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    seconds = {
        "seconds": round(time.perf_counter() - begun),
        "processor_seconds": round(used.ru_utime),
    }
    return {"rows": rows, "peak_bytes": used.ru_maxrss * 1024, **seconds, "bytes_on_disk": questions.stat().st_size}


def reader(squad: Path, rows: int, folder: Path, tokenizer_name: str) -> dict[str, Any]:
    """Rows as a stream, and as many windows as rows, mapped, all of them read in the order of training."""
    data = folder / f"rows-{rows}.jsonl"
    if not data.exists():
        candidates.write(data, candidates.sentences(squad), rows, for_readers=True)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_name, trust_remote_code=False)
    peak = {"RssAnon": 0, "RssFile": 0}
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(peak, done))
    begun = _now(peak)
    watcher.start()
    stream = training_stream(DataSettings(train=str(data)))
    few = [example for _, example in zip(range(REPEATED), stream, strict=False)]

    def make() -> Iterator[Windows]:
        parts = [*encode_in_parts(few, tokenizer, max_length=384, doc_stride=128, token_types=False)]
        for first in range(0, rows, REPEATED):
            yield from (replace(part, offsets=None, examples=part.examples + first) for part in parts)

    windows = stored_windows(folder / "windows", {"rows": rows}, make, PartialState(cpu=True))
    sampler = LengthGrouped(windows.lengths, 32, 0)
    loader = DataLoader(windows, 32, sampler=sampler, collate_fn=WindowCollator(0))  # type: ignore[arg-type]
    for _ in zip(range(100), loader, strict=False):
        pass
    tokens = sum(int((windows[index]["input_ids"] >= 0).sum()) for index in sampler)
    assert tokens == len(windows.ids) and len(stream) == rows
    done.set()
    watcher.join()
    return {
        "rows": rows,
        **windows.counts(),
        "process_bytes": begun["RssAnon"] + begun["RssFile"],
        "private_bytes": peak["RssAnon"],
        "mapped_bytes": peak["RssFile"],
        "bytes_on_disk": sum(path.stat().st_size for path in (folder / "windows").rglob("*")),
        "bytes_of_arrays": int(sum(array.nbytes for array in vars(windows).values() if isinstance(array, np.ndarray))),
    }


def _watch(peak: dict[str, int], done: threading.Event) -> None:
    while not done.wait(0.2):
        peak |= {name: max(peak[name], size) for name, size in _now(peak).items()}


def _now(names: dict[str, int]) -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {line[0][:-1]: int(line[1]) * 1024 for line in lines if line[0][:-1] in names}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["augment", "reader"])
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tokenizer", default="")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.what == "augment":
        found = augment(args.squad, args.rows, args.folder)
    else:
        found = reader(args.squad, args.rows, args.folder, args.tokenizer)
    name = f"bounded {args.what}"
    write({name: {**json.loads(RESULTS.read_text()).get(name, {}), str(args.rows): found}})
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
