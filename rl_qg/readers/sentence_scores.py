"""Precision, recall, F1 and accuracy of sentence classifiers, with intervals over passages, and thresholds for F1.

Source: "Multi-Question Generation" (docs/papers.md), tables 1 and 2: precision, recall and F1 of the positive label
over all sentences; accuracy over all decisions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.confidence_intervals import SHARE, Floats, PassageDraws, difference, difference_p, estimate

MEASURES = ("precision", "recall", "f1", "accuracy")
Decisions = NDArray[np.bool_]


# --- Scores ---


def label_scores(
    predicted: Decisions, actual: Decisions, names: Sequence[str], draws: PassageDraws
) -> dict[str, dict[str, Any]]:
    """The measures of each label as plain JSON, with the number of sentences that have it, `support`.

    Args:
        predicted: bool (sentences, labels).
        actual: the same shape.
        names: of the labels.
        draws: of the passages of the sentences.
    """
    counts = _counts(predicted, actual, draws)
    return {
        name: {**_intervals(_measures(counts[:, number]), draws), "support": int(actual[:, number].sum())}
        for number, name in enumerate(names)
    }


def compared_scores(
    predicted: Decisions, actual: Decisions, baselines: Mapping[str, Decisions], draws: PassageDraws
) -> dict[str, Any]:
    """The measures over all decisions together, and with several labels `macro_f1`, the mean F1 of the labels that any
    sentence has; those of each baseline, and the paired differences from them with their p-values.
    """
    own = _together(predicted, actual, draws)
    result: dict[str, Any] = {"scores": _intervals(own, draws), "baselines": {}}
    for name, other in baselines.items():
        values = _together(other, actual, draws)
        result["baselines"][name] = {
            "scores": _intervals(values, draws),
            "difference": {measure: _difference(own[measure], values[measure], draws) for measure in own},
        }
    return result


def paired_f1(first: Decisions, second: Decisions, actual: Decisions, draws: PassageDraws) -> dict[str, Any]:
    """F1 of the first minus that of the second, over all decisions, with its interval and p-value."""
    return _difference(_together(first, actual, draws)["f1"], _together(second, actual, draws)["f1"], draws)


def _difference(first: Floats, second: Floats, draws: PassageDraws) -> dict[str, Any]:
    gaps = difference(first, second)
    units = draws.units_of()
    shown = estimate(gaps, len(draws.passage_index), passages=units).to_dict()
    return {**shown, "p": difference_p(gaps, units)}


def _counts(predicted: Decisions, actual: Decisions, draws: PassageDraws) -> Floats:
    """For each draw and label how many sentences have it by both, by the prediction, in fact, are decided rightly, and
    are there: (1 + resamples, labels, 5).
    """
    parts = (predicted & actual, predicted, actual, predicted == actual, np.ones_like(actual))
    table = np.stack([part.astype(np.float64) for part in parts], axis=-1)
    return draws.sums(table.reshape(len(table), -1)).reshape(-1, *table.shape[1:])


def _together(predicted: Decisions, actual: Decisions, draws: PassageDraws) -> dict[str, Floats]:
    counts = _counts(predicted, actual, draws)
    result = _measures(counts.sum(axis=1))
    if actual.shape[1] > 1:
        present = actual.any(axis=0)
        each = np.stack([_measures(counts[:, number])["f1"] for number in np.flatnonzero(present)])
        result["macro_f1"] = np.nan_to_num(each).mean(axis=0)
    return result


def _measures(counts: Floats) -> dict[str, Floats]:
    """The measures of counts (draws, 5), each (draws,); NaN where nothing is divided by nothing."""
    both, predicted, actual, right, total = counts.T
    with np.errstate(invalid="ignore", divide="ignore"):
        values = (both / predicted, both / actual, 2 * both / (predicted + actual), right / total)
    return dict(zip(MEASURES, values, strict=True))


def _intervals(measures: Mapping[str, Floats], draws: PassageDraws) -> dict[str, Any]:
    count, units = len(draws.passage_index), draws.units_of()
    why = "no sentence to divide by"
    return {
        name: estimate(values, count, passages=units, why=why, bounds=SHARE).to_dict()
        for name, values in measures.items()
    }


# --- Thresholds ---


def best_threshold(probabilities: NDArray[np.floating[Any]], actual: Decisions) -> float:
    """The threshold with the best F1 for `p >= threshold`, halfway to the next lower probability; of equally good ones
    the nearest to 0.5. 0.5 where no sentence has the label.

    Args:
        probabilities: (sentences,).
        actual: bool (sentences,).
    """
    if not actual.any():
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order].astype(np.float64), np.cumsum(actual[order])
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of each group of equal probabilities
    f1 = 2 * hits[last] / (last + 1 + actual.sum())
    below = np.append(values[last[:-1] + 1], 0.0)
    thresholds = (values[last] + below) / 2
    good = thresholds[f1 == f1.max()]
    return float(good[np.abs(good - 0.5).argmin()])
