"""Lists of metrics in the settings."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import PartialState

import rewards
from rl_qg.commands.compose import compose
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.metrics import PartOf, load_metrics, metric_options
from rl_qg.scoring.reward_scorer import direction_of, is_signed, signature_of

MODELS = {"bert": "my-bert", "gpt2": "my-gpt2", "roberta": "r", "bart": "b"}


def test_names_mappings_and_paths() -> None:
    entries = ["bleu4", {"metric": "bleu4", "variant": "coco", "label": "coco"}, "my.package.Metric"]
    entries += [{"_target_": "a.B", "x": 1}, {"metric": "qrelscore", "decoder": "mine"}]
    options = metric_options(entries, MODELS)
    assert list(options) == ["bleu4", "coco", "Metric", "B", "qrelscore"]
    assert options["bleu4"] == {"_target_": "bleu4"}
    assert options["coco"] == {"_target_": "bleu4", "variant": "coco"}
    assert options["Metric"] == {"_target_": "my.package.Metric"} and options["B"] == {"_target_": "a.B", "x": 1}
    defaults = compose("score", ["reward=qrelscore"]).reward
    assert options["qrelscore"] == {**defaults, "encoder": "my-bert", "decoder": "mine"}


def test_names_in_the_spelling_of_papers() -> None:
    assert metric_options(["ROUGE-L", "Q-BLEU1"], MODELS) == {
        "ROUGE-L": {"_target_": "rouge_l"},
        "Q-BLEU1": {"_target_": "q_bleu1"},
    }
    options = metric_options(["QRelScore"], MODELS)["QRelScore"]  # with the options of its file
    assert options == metric_options(["qrelscore"], MODELS)["qrelscore"]


def test_one_metric_needs_no_list() -> None:
    assert metric_options("bleu4", MODELS) == metric_options(["bleu4"], MODELS)
    mine = {"metric": "bleu4", "label": "mine"}
    assert metric_options(mine, MODELS) == metric_options([mine], MODELS) == {"mine": {"_target_": "bleu4"}}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        *((nothing, "metrics has no value") for nothing in ([], "", None, {})),
        (3, "metrics is 3; name some"),
        (["bleu9"], r"metrics\[0\]: unknown metric 'bleu9'; known are qrelscore"),
        (["bleu4", "bleu4"], r"metrics\[1\]: there is a metric 'bleu4' already"),
        ([3], r"metrics\[0\] is 3; give a name"),
        ([{"label": "x"}], "give either metric"),
        ([{"metric": "bleu4", "_target_": "a.B"}], "give either metric"),
        ([{"metric": "bleu4", "label": "a/b"}], "label 'a/b' would name a file"),
    ],
)
def test_wrong_entries(entries: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric_options(entries, MODELS)


def test_a_part_instead_of_the_score() -> None:
    class Two:
        part_names, needs, signature = ("lrm", "tokens"), frozenset({"contexts"}), "two"

        def score(self, *columns: Any, **named: Any) -> Any:
            return SimpleNamespace(scores=[9.0], parts={"lrm": [0.25], "tokens": [[1.0]]})

    part = PartOf(Two(), "lrm", "two_lrm")
    assert part.score(["q"], ["c"]).scores == [0.25]
    assert (part.signature, part.needs) == ("two|part:lrm", {"contexts"})
    with pytest.raises(InputError, match="it has no part 'grg'; score may be lrm, tokens"):
        PartOf(Two(), "grg", "x")
    with pytest.raises(InputError, match="part 'tokens' is not a single number"):
        PartOf(Two(), "tokens", "x").score(["q"])


def test_a_part_of_a_metric_without_a_signature_is_as_little_trusted_and_scored_as_a_whole() -> None:
    class Whole:
        part_names, needs, whole_set = ("rank",), frozenset({"contexts"}), True

        def score(self, *columns: Any, **named: Any) -> Any:
            return SimpleNamespace(scores=[9.0], parts={"rank": [1.0]})

    part = PartOf(Whole(), "rank", "rank")  # a traceback before
    assert part.signature == f"{signature_of(Whole())}|part:rank" and not is_signed(part)
    assert part.whole_set


class Unsigned:
    """A custom metric without a signature."""

    def __init__(self, x: int = 0) -> None:
        self.x = x

    def score(self, questions: Any, contexts: Any, **columns: Any) -> Any:
        return SimpleNamespace(scores=[self.x] * len(questions), parts={})


def test_a_metric_without_signature_is_identified_by_its_options() -> None:
    entries = [{"_target_": f"{__name__}.Unsigned", "x": x, "label": f"x{x}"} for x in (1, 2)]
    settings = compose("correlate", ["training.use_cpu=true"])
    loaded = load_metrics(entries, settings, PartialState(cpu=True))
    first, second = (signature_of(metric) for metric in loaded.values())
    assert first != second and first.startswith("Unsigned|x:1|code:")
    signed = load_metrics(["tests.toy_metrics.WordCount"], settings, PartialState(cpu=True))["WordCount"]
    assert signature_of(signed).startswith("words")


def test_a_reward_of_sets_is_no_metric_of_a_list() -> None:
    with pytest.raises(
        InputError, match=r"generate\.rerank\[0\]: multi_set scores sets of questions, not single ones"
    ):
        metric_options(["Multi-Set"], MODELS, key="generate.rerank")


def test_every_short_name_makes_an_entry() -> None:
    needy = {"judge": {"model": "m"}, "retrievability": {"passages": "p.jsonl"}}
    entries = [{"metric": name, **needy.get(name, {})} for name in rewards.METRICS]
    assert len(metric_options(entries, MODELS)) == len(rewards.METRICS)


READER = "reward_models.reader=my-reader"


def _as_key(parts: Any) -> str:
    return json.dumps(parts).replace('"', "")


def test_a_list_takes_what_the_reward_takes() -> None:
    """With the same options, those of the parts and the models within them included."""
    models = {**MODELS, "reader": "my-reader"}
    gated = compose("score", ["reward=gated", "reward.parts.form.max_copied=6", READER]).reward
    assert gated["parts"]["form"]["vocabulary"] == gated["parts"]["reader"]["model"] == "my-reader"
    entry = {"metric": "gated", "parts": {"form": {"max_copied": 6}}}  # the other parts stay
    assert metric_options([entry], models) == {"gated": gated}
    parts = {"gated": {"parts": {"form": {"max_copied": 6}}}, "bleu4": {"weight": 0.5}}
    whole = compose("score", ["reward=weighted", "reward.parts=" + _as_key(parts), READER]).reward
    assert whole["parts"]["gated"]["parts"] == gated["parts"]  # a combined reward as a part of another
    for entry in ({"metric": "weighted", "parts": parts}, {"_target_": "rewards.Weighted", "parts": parts}):
        assert [*metric_options([entry], models).values()] == [whole]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("judge", r"metrics\[0\]: model of judge has no value"),
        ("product", r"metrics\[0\]: parts of product has no value"),
        ({"metric": "product", "parts": {"mine": {"metric": "kpqa"}}}, r"part 'mine': model of kpqa has no value"),
    ],
)
def test_an_option_that_must_be_given(entry: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric_options([entry], MODELS)
    if isinstance(entry, dict):
        with pytest.raises(InputError, match=message):
            compose("score", ["reward=product", "reward.parts=" + _as_key(entry["parts"])])


def test_a_part_that_is_better_when_lower_says_so() -> None:
    rank = rewards.load("retrievability", passages=["Ada wrote it.", "Bob drew it."])
    names = rewards.load("faithfulness")
    both = rewards.Weighted({"r": rank, "n": names})
    for metric, lower in ((rank, {"rank"}), (names, {"unsupported"}), (both, {"r/rank", "n/unsupported"})):
        found = {part for part in metric.part_names if direction_of(PartOf(metric, part, "x")) < 0}
        assert found == lower
