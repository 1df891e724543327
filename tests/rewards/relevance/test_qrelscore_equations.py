"""QRelScore's equations 5 and 10 worked by hand."""

import pytest

from rewards import QRelScore


class Measured:
    """One half of the metric, with given values."""

    def __init__(self, *values):
        self.values = values

    def scores(self, questions, contexts):
        return list(self.values[: len(questions)])


def test_equation_10_worked_by_hand(folders):
    """The harmonic means of (0.6, 0.3), (0.5, 0.5), (0.8, 0.2) are 0.36 / 0.9 = 0.4, 0.5 / 1 = 0.5 and 0.32 / 1 =
    0.32; (0.4 + max(0.5, 0.32)) / 2 = 0.45. The harmonic mean of 0.4 and 0.5 would be 0.444.
    """
    metric = QRelScore(folders["bert"], folders["gpt2"], "paper", references=True)
    metric.local, metric.globally = Measured(0.6, 0.5, 0.8), Measured(0.3, 0.5, 0.2)
    result = metric.score(["Who?"], ["A town."], references=[["Who is it?", "Who was it?"]])
    assert result.scores == pytest.approx([0.45])
    assert result.parts == {"lrm": [0.6], "grg": [0.3], "reference": pytest.approx([0.5])}


@pytest.mark.parametrize(
    ("options", "lrm", "score"),
    [
        ({"variant": "paper"}, -0.1 / 0.6, 2 * (-1 / 6) * 0.5 / (0.5 - 1 / 6)),  # -0.5
        ({"variant": "official"}, 0.0, 0.0),
        ({"variant": "paper", "clip_rescaled": True}, 0.0, 0.0),
        ({"variant": "official", "clip_rescaled": False}, -1 / 6, -0.5),
    ],
)
def test_equation_5_is_linear_in_the_paper_and_clipped_in_official(folders, options, lrm, score):
    """lrm 0.3 with b = 0.4 is (0.3 - 0.4) / 0.6; grg 0.6 with b = 0.2 is 0.4 / 0.8 = 0.5."""
    metric = QRelScore(folders["bert"], folders["gpt2"], baselines={"lrm": 0.4, "grg": 0.2}, **options)
    metric.local, metric.globally = Measured(0.3), Measured(0.6)
    result = metric.score(["Who?"], ["A town."])
    assert result.parts == {"lrm": pytest.approx([lrm]), "grg": pytest.approx([0.5])}
    assert result.scores == pytest.approx([score])
