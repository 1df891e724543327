"""QRelScore's equations 5 and 10 worked by hand, and the layers of its Table 3."""

import pytest

from rewards import QRelScore
from rewards.relevance.local_relevance import _layer_numbers


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


TABLE_3 = {"first": (0, 1, 2, 3), "middle": (4, 5, 6, 7), "last": (8, 9, 10, 11), "specific": (0, 3, 7, 11)}
"""The layers of M2 to M5, counted from 0."""


@pytest.mark.parametrize(
    ("depth", "want"),
    [
        (12, {name: [layer + 1 for layer in layers] for name, layers in TABLE_3.items()}),
        (6, {"first": [1, 2], "middle": [3, 4], "last": [5, 6], "specific": [1, 2, 4, 6]}),
        (4, {"first": [1], "middle": [2, 3], "last": [4], "specific": [1, 3, 4]}),
        (1, {"first": [1], "last": [1], "specific": [1], "all": [1]}),
    ],
)
def test_named_layers(depth, want):
    assert {name: _layer_numbers(name, depth) for name in want} == want


@pytest.mark.parametrize("depth", range(3, 30))
def test_thirds_are_all_layers_in_order(depth):
    thirds = [_layer_numbers(name, depth) for name in ("first", "middle", "last")]
    assert [layer for third in thirds for layer in third] == [*range(1, depth + 1)]
    sizes = [*map(len, thirds)]
    assert sizes[0] == sizes[2] and abs(sizes[1] - sizes[0]) <= 1
    assert _layer_numbers("specific", depth) == sorted({1, *(third[-1] for third in thirds)})


def test_the_signature_has_the_numbers_of_named_layers(folders):
    def layers(**options):
        signature = QRelScore(folders["bert"], folders["gpt2"], **options).signature
        return dict(field.split(":", 1) for field in signature.split("|")[1:])["layers"]

    assert (layers(), layers(layers=[1, 2]), layers(layers="specific")) == ("all", "all", "all")
    assert (layers(layers="first"), layers(layers="last")) == ("1", "2")
