"""The ablations of QRelScore: each choice by itself, against the published numbers and a slow reference."""

import math
import pickle

import pytest

from rewards import MetricInputError, QRelScore, load
from tests.rewards.ablated import AblatedQRelScore, ablated
from tests.rewards.reference import global_relevance, local_relevance
from tests.rewards.relevance.test_qrelscore import decoded  # noqa: F401

VARIANTS = ("official", "paper")


@pytest.fixture(scope="module", params=VARIANTS)
def metric(request, folders):
    return QRelScore(folders["bert"], folders["gpt2"], request.param)


ABLATIONS = {
    "layers_greedy": {},
    "layers_greedy_unnormalised": {"attention": "raw"},
    "layers_average": {"aggregation": "mean"},
    "layers_mover": {"aggregation": "mover"},
}


@pytest.mark.slow
@pytest.mark.parametrize("key", ABLATIONS)
def test_ablations_of_the_paper(golden, golden_models, key):
    """Every layer of every aggregation and attention, against an independent float64 evaluation."""
    metric = AblatedQRelScore(golden_models["bert"], golden_models["gpt2"], "paper", **ABLATIONS[key])
    for case in golden:
        pairs, _ = metric.local.pairs([case["question"]], [case["context"]])
        got = metric.local.layer_scores(pairs).mean(0).tolist()
        assert got == pytest.approx(case["expected"]["qrelscore_paper"]["lrm"][key], abs=1e-5), case["id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "key"),
    [
        ("first_half", "lrm_greedy_first_half"),
        ("second_half", "lrm_greedy_second_half"),
        ("last", "lrm_greedy_last"),
        ([4], "lrm_greedy_last"),
        ((1, 2), "lrm_greedy_first_half"),
    ],
)
def test_layers_of_the_paper(golden, golden_models, layers, key):
    metric = AblatedQRelScore(golden_models["bert"], golden_models["gpt2"], "paper", layers=layers)
    got = metric.local.scores([case["question"] for case in golden], [case["context"] for case in golden])
    assert got == pytest.approx([case["expected"]["qrelscore_paper"]["lrm"][key] for case in golden], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"gain": "absolute"}, "grg_abs"),
        ({"clip_gain": False}, "gain_ratio_unclipped"),
        ({"gain": "absolute", "clip_gain": False}, "gain_abs_unclipped"),
    ],
)
def test_gains_of_the_paper(golden, golden_models, options, key):
    metric = AblatedQRelScore(golden_models["bert"], golden_models["gpt2"], "paper", **options)
    result = metric.score([case["question"] for case in golden], [case["context"] for case in golden])
    for row, case in enumerate(golden):
        want = case["expected"]["qrelscore_paper"]
        size = abs(want["grg"]["conf_base"][0]) if "abs" in key else 1  # float32 sums of hundreds of log-probabilities
        assert result.parts["grg"][row] == pytest.approx(want["grg"][key], abs=1e-5 + 1e-6 * size)
        if key == "grg_abs":
            assert result.scores[row] == pytest.approx(want["qrel_abs"], abs=1e-5)


@pytest.mark.slow
def test_unclipped_gain_and_layers_of_the_released_code(golden, golden_models):
    cases = [case for case in golden if case["expected"]["qrelscore_official_f64"]["qrel"] is not None]
    metric = AblatedQRelScore(golden_models["bert"], golden_models["gpt2"], clip_gain=False)
    result = metric.score([case["question"] for case in cases], [case["context"] for case in cases])
    for row, case in enumerate(cases):
        want = case["expected"]["qrelscore_official_f64"]
        assert result.parts["grg"][row] == pytest.approx(want["grm_unclipped"], abs=1e-5), case["id"]
        pairs, _ = metric.local.pairs([case["question"]], [case["context"]])
        assert metric.local.layer_scores(pairs)[0].tolist() == pytest.approx(want["lrm_layers"], abs=1e-5), case["id"]


@pytest.mark.parametrize(
    "switches",
    [
        {"attention": "weighted"},
        {"attention": "raw", "aggregation": "mean"},
        {"attention": "hard", "aggregation": "mean"},
        {"aggregation": "mover"},
        {"layers": [2]},
        {"layers": [1], "power": 3.0},
        {"power": 2.0},
        {"last_tokens": "keep"},
        {"last_tokens": "skip"},
    ],
)
def test_each_local_option_alone(folders, rows, metric, switches):
    chosen = AblatedQRelScore(folders["bert"], folders["gpt2"], metric.variant, **switches)
    got = chosen.local.scores(rows["questions"], rows["contexts"])
    want = [
        local_relevance(folders["bert"], question, context, variant=metric.variant, **switches)
        for question, context in zip(rows["questions"], rows["contexts"], strict=True)
    ]
    assert got == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize(
    "switches",
    [
        {"confidence": "probability"},
        {"confidence": "log_likelihood"},
        {"scope": "context"},
        {"scope": "sequence"},
        {"gain": "absolute", "clip_gain": False},
    ],
)
def test_each_global_option_alone(folders, rows, metric, switches):
    chosen = AblatedQRelScore(folders["bert"], folders["gpt2"], metric.variant, **switches)
    got = chosen.globally.scores(rows["questions"], rows["contexts"])
    want = [
        global_relevance(folders["gpt2"], question, context, variant=metric.variant, **switches)
        for question, context in zip(rows["questions"], rows["contexts"], strict=True)
    ]
    assert got == pytest.approx(want, rel=1e-5, abs=1e-5)


def test_power_mean_lies_between_the_smallest_and_the_largest_layer(folders, rows):
    def local(power):
        metric = AblatedQRelScore(folders["bert"], folders["gpt2"], power=power)
        return metric.local.scores(rows["questions"][:1], rows["contexts"][:1])[0]

    metric = AblatedQRelScore(folders["bert"], folders["gpt2"])
    pairs, _ = metric.local.pairs(rows["questions"][:1], rows["contexts"][:1])
    layers = [max(0.0, value) for value in metric.local.layer_scores(pairs)[0].tolist()]
    assert local("inf") == pytest.approx(max(layers))
    assert local("-inf") == pytest.approx(min(layers))
    assert local(0) == pytest.approx(math.prod(layers) ** (1 / len(layers)), abs=1e-6)
    assert [local(power) for power in (-3, -1, 0, 2, 5)] == sorted(local(power) for power in (-3, -1, 0, 2, 5))


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
    assert {name: ablated.layer_numbers(name, depth) for name in want} == want


@pytest.mark.parametrize("depth", range(3, 30))
def test_thirds_are_all_layers_in_order(depth):
    thirds = [ablated.layer_numbers(name, depth) for name in ("first", "middle", "last")]
    assert [layer for third in thirds for layer in third] == [*range(1, depth + 1)]
    sizes = [*map(len, thirds)]
    assert sizes[0] == sizes[2] and abs(sizes[1] - sizes[0]) <= 1
    assert ablated.layer_numbers("specific", depth) == sorted({1, *(third[-1] for third in thirds)})


def test_the_signature_has_the_numbers_of_named_layers(folders):
    def layers(**options):
        signature = AblatedQRelScore(folders["bert"], folders["gpt2"], **options).signature
        return dict(field.split(":", 1) for field in signature.split("|")[1:])["layers"]

    assert (layers(), layers(layers=[1, 2]), layers(layers="specific")) == ("all", "all", "all")
    assert (layers(layers="first"), layers(layers="last")) == ("1", "2")


@pytest.mark.parametrize("gain", ["absolute", "relative"])
def test_only_an_absolute_gain_is_a_difference_in_float64(folders, decoded, gain):  # noqa: F811
    """`tests/rewards/test_frozen.py` has the numbers."""
    AblatedQRelScore(folders["bert"], folders["gpt2"], gain=gain).score(["Who?"], ["Arlen lies on the Esk."])
    assert decoded.exact == [gain == "absolute"]


def test_without_choices_it_is_the_metric(folders, rows, metric):
    name = "experiments.qrelscore-ablation.ablated.AblatedQRelScore"
    same = load(name, encoder=folders["bert"], decoder=folders["gpt2"], variant=metric.variant)
    assert same.signature.startswith(f"{metric.signature}|AblatedQRelScore|")  # it is another package's
    assert pickle.loads(pickle.dumps(same)).score(rows["questions"], rows["contexts"]) == metric.score(
        rows["questions"], rows["contexts"]
    )


@pytest.mark.slow
def test_the_signature_names_every_choice(folders):
    base = AblatedQRelScore(folders["bert"], folders["gpt2"])
    switches = [
        {"attention": "raw"},
        {"aggregation": "mean"},
        {"layers": "last"},
        {"layers": "first"},
        {"power": 2},
        {"last_tokens": "keep"},
        {"confidence": "log_likelihood"},
        {"scope": "context"},
        {"gain": "absolute"},
        {"clip_gain": False},
    ]
    others = [AblatedQRelScore(folders["bert"], folders["gpt2"], **switch) for switch in switches]
    assert len({metric.signature for metric in [base, *others]}) == len(others) + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "soft"}, "attention 'soft' does not exist; use hard or weighted or raw"),
        ({"layers": "upper"}, "layers 'upper' does not exist; use one of all, first"),
        ({"layers": [3]}, r"layers \[3\] do not fit the encoder; give different numbers from 1 to 2"),
        ({"layers": []}, "do not fit the encoder"),
        ({"layers": 3}, "layers 3 are neither a name nor a list of whole numbers"),
        ({"layers": [1.0]}, r"layers \[1.0\] are neither a name nor a list of whole numbers"),
        ({"clip_gain": "no"}, "clip_gain 'no' is neither true nor false"),
        ({"layers": "middle"}, "an encoder of depth 2 has no layers 'middle'; give numbers from 1 to 2"),
        ({"power": "two"}, "power 'two' is not a number"),
    ],
)
def test_wrong_choices(folders, options, message):
    with pytest.raises(MetricInputError, match=message):
        AblatedQRelScore(folders["bert"], folders["gpt2"], **options)
