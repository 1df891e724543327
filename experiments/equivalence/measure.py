"""How far a run moves when it is spread differently: the runs of tests/rl_qg/training/test_equivalence.py, with gaps.

    PYTHONPATH=. OMP_NUM_THREADS=1 python experiments/equivalence/measure.py      # writes results.json beside itself

About three minutes on two cores, and two more where DeepSpeed compiles its Adam for CPUs for the first time.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file

from tests.rl_qg.training.test_equivalence import gap_in_log, gap_in_weights, launched, logged, rollouts, run

HERE = Path(__file__).parent
RUNS = ("4x1:4:1:16", "2x2:2:2:16", "again:2:2:16")  # name, batch of a process, accumulation, examples
SHARDED = ("zero1", "zero2", "zero3", "zero1_offload", "zero2_offload", "zero3_offload", "fsdp")


def compared(first: tuple[Path, int], second: tuple[Path, int]) -> dict[str, Any]:
    """What is equal to the bit, and the largest gaps."""
    one, two = (load_file(folder / "final" / "model.safetensors") for folder, _ in (first, second))
    found = {
        "rollouts_and_rewards_bitwise": rollouts(*first) == rollouts(*second),
        "log_bitwise": logged(first[0]) == logged(second[0]),
        "weights_bitwise": all(torch.equal(one[key], two[key]) for key in one),
        "log_gap": gap_in_log(first[0], second[0]),
        "weights_gap": gap_in_weights(first[0], second[0]),
    }
    print(found, flush=True)
    return found


def main() -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        alone = run(root / "alone", 8, 1), 1
        results = {"one process, 8, again": compared(alone, (run(root / "again", 8, 1), 1))}
        parts = {(batch, 8 // batch): run(root / f"{batch}x{8 // batch}", batch, 8 // batch) for batch in (4, 2, 1)}
        for (batch, accumulation), folder in parts.items():
            results[f"one process, {batch} x {accumulation} / one process, 8"] = compared(
                alone, (folder, accumulation)
            )
        together = launched("cpu2", root / "cpu2", *RUNS)
        whole, halves = (together / "4x1", 1), (together / "2x2", 2)
        results["two processes, 4 / one process, 8"] = compared(alone, whole)
        results["two processes, 4 / one process, 4 x 2"] = compared((parts[4, 2], 2), whole)
        results["two processes, 2 x 2 / one process, 8"] = compared(alone, halves)
        results["two processes, 2 x 2 / two processes, 4"] = compared(whole, halves)
        results["two processes, 2 x 2, again"] = compared(halves, (together / "again", 2))
        for config in SHARDED:
            for name, plain in (("4x1", whole), ("2x2", halves)):
                numbers = ":".join([name, *name.split("x"), "16"])
                sharded = launched(config, root / f"{config}-{name}", numbers) / name, plain[1]
                results[f"{config}, two processes, {name} / plain data parallelism"] = compared(plain, sharded)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
