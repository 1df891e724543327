"""What a row costs beside the GPU: bytes on disk and in memory, and rows per second, of augmentation and the reader.

    python experiments/scaling/rows.py --squad ../shared/data/squad/dev_part1-v1.1.json.gz \\
        --tokenizer ../shared/golden/models/tiny-bert

Every question of the file becomes two candidates. Memory is the slope between two sizes, by tracemalloc in a run of
its own; time is that of the larger size without it.
"""

import argparse
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measure import write
from transformers import AutoTokenizer

from rl_qg.augmentation.augment import augment
from rl_qg.data.examples import QAExample
from rl_qg.data.reading import read_examples
from rl_qg.readers.reader import encode_in_parts
from rl_qg.settings import AugmentSettings


def candidates(path: Path, examples: Sequence[QAExample]) -> float:
    """Write a questions.jsonl and return its bytes per line."""
    with path.open("w", encoding="utf-8") as stream:
        for example in examples:
            for number in range(2):
                record = {
                    "id": example.id,
                    "candidate": number,
                    "title": example.title,
                    "context": example.context,
                    "answer": example.answers[0].text,
                    "answer_start": example.answers[0].start,
                    "question": f"{example.question[:-1]} then, number {number}?",
                    "logprob": -12.345678,
                }
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path.stat().st_size / (2 * len(examples))


def slopes(work: Callable[[int], Any], small: int, large: int) -> dict[str, float]:
    """Bytes per row at the peak and held at the end (both between the two sizes), and rows per second."""
    peaks, ends = [], []
    for rows in (small, large):
        tracemalloc.start()
        kept = work(rows)
        end, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        peaks.append(peak)
        ends.append(end)
        del kept
    start = time.perf_counter()
    kept = work(large)
    seconds = time.perf_counter() - start
    del kept
    more = large - small
    return {
        "rows": large,
        "peak_bytes": round((peaks[1] - peaks[0]) / more),
        "held_bytes": round((ends[1] - ends[0]) / more),
        "rows_per_second": round(large / seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    args = parser.parse_args()
    examples = list(read_examples(args.squad, role="train").examples)
    gold, half = examples[:50], len(examples) // 2
    found: dict[str, Any] = {"examples": len(examples)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {}
        for count in (half, len(examples)):
            files[2 * count] = folder / f"{count}.jsonl"
            found["bytes_per_candidate"] = round(candidates(files[2 * count], examples[:count]))
        distinct = {"length": {}, "answer_in_question": {}, "gold_duplicates": {}, "duplicates": {}}

        def augmented(rows: int, *, share: float = 1.0) -> None:
            target = folder / f"augmented-{rows}.json"
            settings = AugmentSettings(num_samples=int(share * rows), filters=dict(distinct))
            augment(files[rows], gold, target, settings=settings)

        found["augment, all sampled"] = slopes(augmented, 2 * half, 2 * len(examples))
        found["augment, a tenth sampled"] = slopes(
            lambda rows: augmented(rows, share=0.1), 2 * half, 2 * len(examples)
        )
        augmented(2 * len(examples))
        augmented(2 * half)
        written = folder / f"augmented-{2 * len(examples)}.json"
        rows = len(read_examples(written, role="train").examples)
        less = len(read_examples(folder / f"augmented-{2 * half}.json", role="train").examples)
        paths = {rows: written, less: folder / f"augmented-{2 * half}.json"}
        found["bytes_per_augmented_question"] = round(written.stat().st_size / rows)
        found["read augmented.json"] = slopes(lambda count: read_examples(paths[count], role="train"), less, rows)
        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer, trust_remote_code=False)
        windows: dict[str, float] = {}

        def windowed(count: int) -> Any:
            options: dict[str, Any] = {"max_length": 384, "doc_stride": 128, "token_types": False}
            done = [*encode_in_parts(examples[:count], tokenizer, **options)]
            windows.update(tokens=float(sum(len(part.ids) for part in done)), windows=float(sum(map(len, done))))
            return done

        found["reader's windows"] = slopes(windowed, half, len(examples))
        found["tokens_per_window"] = round(windows["tokens"] / windows["windows"])
        found["windows_per_question"] = round(windows["windows"] / len(examples), 2)
    write({"rows": found})
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
