"""The analysis of scores of questions, some of which have none."""

import numpy as np
import pytest

from rl_qg.evaluation.predictions import Predictions, draw_rows
from rl_qg.scoring.kept_scores import MetricRow
from rl_qg.stats.intervals import PassageDraws


def test_means_are_over_the_questions_that_have_a_score() -> None:
    rows = [MetricRow(f"line {number}", "Who?", text) for number, text in enumerate("aabc")]
    scores, draws = np.array([1.0, np.nan, 4.0, 6.0]), PassageDraws(list("aabc"), resamples=30)
    (found,) = draw_rows(Predictions("p", rows, {"m": scores}, {}, draws), {})
    weights = np.concatenate([*draws.blocks()])[:, [0, 1, 2]]  # of the passages: each has one question with a score
    slow = [np.average(scores[[0, 2, 3]], weights=row) for row in weights]
    assert found.values == pytest.approx(slow) and not found.complete
