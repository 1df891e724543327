"""Pairs a second of the rewards in float32, TF32 and bf16, and what TF32 and bf16 do to the advantages.

`METRIC | published sizes`: speed, and agreement of scores from random weights; `METRIC | miniatures`: agreement of the
trained models of the package on the embedded corpus; `METRIC | plain loop`: one pair at a time in float32, with ours
over the same pairs. The advantage of a candidate is its score minus the mean of all candidates for its passage.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from metrics import FLOORS, MODELS, OURS, PLAIN, timed
from numpy.typing import NDArray
from parity import MINIATURES
from part import DEVICE, PRECISIONS, Part, arguments, dtype_of, measure_peaks, memory_watched, products, wait
from random_models import Rows, corpus_rows, made_up_rows, saved
from scipy.stats import spearmanr

from rl_qg.miniatures.cache import SHIPPED

CONTEXTS = {"full": 128, "tiny": 2}
QASCORE_CONTEXTS = {"full": 16, "tiny": 2}  # a pair costs nine times as much as one of QRelScore
PLAIN_CONTEXTS = {"full": 3, "tiny": 1}
CANDIDATES = {"full": 8, "tiny": 3}  # of each context
REPETITIONS = 3
Floats = NDArray[np.float64]


def agreement(exact: list[float], rough: list[float], group: int) -> dict[str, float | None]:
    """Between two lists of scores, of which every `group` neighbours are about one passage. Correlations are None
    where nothing varies; `same_sign` is the share of advantages with the same sign.
    """
    one, other = (np.array(scores) for scores in (exact, rough))
    advantages, others = (centred(scores, group) for scores in (one, other))
    return {
        "rank_correlation": None if flat(one, other) else float(spearmanr(one, other).statistic),
        "advantage_correlation": (None if flat(advantages, others) else float(np.corrcoef(advantages, others)[0, 1])),
        "same_sign": float((np.sign(advantages) == np.sign(others)).mean()),
        "largest_difference": float(np.abs(one - other).max()),
    }


def centred(scores: Floats, group: int) -> Floats:
    groups = scores.reshape(-1, group)
    return (groups - groups.mean(1, keepdims=True)).ravel()


def flat(*columns: Floats) -> bool:
    return any(np.ptp(column) == 0 for column in columns)


def measure(name: str, folders: list[str], rows: Rows, group: int) -> dict[str, Any]:
    """Speed and agreement of a reward in each number type."""
    found: dict[str, Any] = {"rows": len(rows["questions"])}
    exact: list[float] = []
    for precision in PRECISIONS:
        reward = OURS[name](*folders, device=DEVICE, dtype=str(dtype_of(precision)).removeprefix("torch."))
        of_type: dict[str, Any] = {}
        with products(precision), memory_watched(of_type):
            few = {column: values[: 2 * group] for column, values in rows.items()}
            timed(reward, few, {*reward.needs})  # loads what is loaded once
            wait()
            runs = [timed(reward, rows, {*reward.needs}) for _ in range(REPETITIONS)]
        scores = runs[-1][1]
        exact = exact or scores
        seconds = sorted(seconds for seconds, _ in runs)[REPETITIONS // 2]
        found[precision] = {**of_type, "pairs_per_second": len(scores) / seconds, **agreement(exact, scores, group)}
        found["gflop_needed_per_pair"] = FLOORS[name](reward, rows) / 1e9 / len(scores)
    return found


def plain_loop(name: str, folders: list[str], rows: Rows) -> dict[str, float]:
    """The plain loop and ours over the same few pairs, in float32."""
    plain, reward = PLAIN[name](*folders, device=DEVICE), OURS[name](*folders, device=DEVICE)
    triples = list(zip(rows["questions"], rows["contexts"], rows["answers"], strict=True))
    plain(*triples[0])
    timed(reward, rows, {*reward.needs})
    wait()
    start = time.perf_counter()
    values = [plain(*triple) for triple in triples]
    slow = time.perf_counter() - start
    quick, scores = timed(reward, rows, {*reward.needs})
    return {
        "rows": len(values),
        "pairs_per_second": len(values) / slow,
        "ours_pairs_per_second": len(values) / quick,
        "largest_difference": max(abs(a - b) for a, b in zip(values, scores, strict=True)),
    }


def measure_metric(part: Part, size: str, models: Path, name: str) -> None:
    group = CANDIDATES[size]
    contexts = (QASCORE_CONTEXTS if name == "qascore" else CONTEXTS)[size]

    def published() -> list[str]:
        return [saved(kind, models, size) for kind in MODELS[name]]

    rows, few = (made_up_rows(count, group, size) for count in (contexts, PLAIN_CONTEXTS[size]))
    part.measure(f"{name} | published sizes", lambda: measure(name, published(), rows, group))
    part.measure(f"{name} | plain loop", lambda: plain_loop(name, published(), few))
    trained = [str(SHIPPED / kind) for kind in MINIATURES[name]]
    of_corpus = corpus_rows(CONTEXTS[size], group)
    part.measure(f"{name} | miniatures", partial(measure, name, trained, of_corpus, group))


def main() -> None:
    options = arguments(__doc__)
    size = options.size
    part = Part(options, {"contexts": CONTEXTS[size], "candidates": CANDIDATES[size]})
    measure_peaks(part)
    for name in MODELS:
        measure_metric(part, size, options.models, name)
    part.finish()


if __name__ == "__main__":
    main()
