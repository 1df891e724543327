"""How often 95 % intervals hold the true difference of two systems, by what is drawn: raters and passages as
`rl_qg.stats.crossed` does, the product of both weights, passages alone, raters alone.

    python experiments/rating/intervals.py [STUDIES]
"""

import sys
from math import inf

import numpy as np

from rl_qg.stats.crossed import CrossedDraws, CrossedValues
from rl_qg.stats.intervals import PassageDraws, interval_ends

RESAMPLES = 400
# raters, passages, passages a rater: as QAScore (hardly any passage has two raters), as QRelScore (all rate all), half
DESIGNS = {"one rater a passage": (60, 180, 3), "all rate all": (12, 60, 60), "three raters a passage": (60, 60, 3)}
# standard deviations of what raters and passages like in one system more than in the other, and of the rest, in z
SPREADS = {"raters differ": (0.3, 0.1, 1.0), "passages differ": (0.1, 0.4, 1.0), "both": (0.25, 0.35, 1.0)}


def study(design: tuple[int, int, int], spread: tuple[float, float, float], rng: np.random.Generator):
    """Rater, passage and the difference of two systems of each task; its true mean is 0."""
    raters, passages, each = design
    rater = np.repeat(np.arange(raters), each)
    order = [rng.permutation(passages) for _ in range(-(-raters * each // passages))]
    passage = np.concatenate(order)[: len(rater)] if each < passages else np.tile(np.arange(passages), raters)
    tastes = rng.normal(0, spread[0], raters)[rater] + rng.normal(0, spread[1], passages)[passage]
    return rater, passage, tastes + rng.normal(0, spread[2], len(rater))


def holds(values: np.ndarray) -> tuple[bool, float]:
    low, high = interval_ends(values, inf)
    return low <= 0 <= high, high - low


def intervals(rater: np.ndarray, passage: np.ndarray, gaps: np.ndarray, seed: int) -> dict[str, tuple[bool, float]]:
    table = np.column_stack([gaps, np.ones_like(gaps)])

    def mean(part: np.ndarray) -> np.ndarray:
        return part[:, 0] / part[:, 1]

    values: CrossedValues = CrossedDraws(rater, passage, resamples=RESAMPLES, seed=seed).sums(table).map(mean)
    weights = [
        np.concatenate([*PassageDraws(of.tolist(), resamples=RESAMPLES, seed=seed + 10 + n).blocks()])[
            :, np.unique(of, return_inverse=True)[1]
        ]
        for n, of in enumerate((rater, passage))
    ]
    product = mean(weights[0] * weights[1] @ table)
    drawn = {"both (here)": values.combined(), "product of weights": product}
    drawn |= {"passages alone": values.drawn["passages"], "raters alone": values.drawn["raters"]}
    return {name: holds(one) for name, one in drawn.items()}


def main(studies: int) -> None:
    print("| design | spread | drawn | holds the truth | mean width |\n| --- | --- | --- | ---: | ---: |")
    for design, sizes in DESIGNS.items():
        for name, spread in SPREADS.items():
            rng = np.random.default_rng(7)
            found = [intervals(*study(sizes, spread, rng), seed) for seed in range(studies)]
            for drawn in found[0]:
                held, width = (np.mean([one[drawn][at] for one in found]) for at in (0, 1))
                print(f"| {design} | {name} | {drawn} | {100 * held:.1f} % | {width:.3f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
