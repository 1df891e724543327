"""Weighted sums and products of metrics, against sums and products written out."""

import functools
import math
import os
import pickle
import re
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

import rewards
from rewards import Metric, MetricInputError, MetricResult, Product, QAScore, QRelScore, Weighted, load
from rewards.form import QuestionForm
from rewards.signature import VERSION, own_signature

SOME = [-3.0, -1.0, 0.0, 0.5, 2.0]


class Table(Metric):
    """A metric whose raw score is written in the question: "1.5;-2" scores 1.5 in column 0 and -2 in column 1."""

    name = "table"
    part_names = ("text",)

    def __init__(self, column=0, bounds=(-math.inf, math.inf), higher_is_better=True, needs=("contexts",)):
        self.column = column
        self.bounds = bounds
        self.higher_is_better = higher_is_better
        self.needs = frozenset(needs)
        self.seen = []
        self.device = None

    def choices(self):
        return {"column": self.column}

    def compute(self, inputs):
        self.seen.append(inputs)
        scores = [float(question.split(";")[self.column]) for question in inputs.questions]
        return MetricResult(scores, {"text": inputs.questions})

    def to(self, device):
        self.device = device
        return self


class Foreign:
    """A third party's reward: no attributes, and None as the score where it does not apply."""

    def score(self, questions, contexts, *, answers, references):
        self.given = (list(questions), contexts, answers, references)
        return SimpleNamespace(scores=[None if "?" not in question else 2 for question in questions])


def table(**options):
    return {"metric": f"{__name__}.Table", **options}


def scores_of(metric, *rows):
    questions = [";".join(map(str, row)) for row in rows]
    return metric.score(questions, ["c"] * len(rows)).scores


def test_weighted_is_the_sum_of_weight_times_scale_times_clipped_score():
    metric = Weighted({
        "relevance": table(weight=0.7),
        "answer": table(column=1, weight=0.3, clip=[-20, 0], scale=0.05),
        "floor": table(column=2, clip=[1, None]),
    })  # fmt: skip
    # 0.7 * 0.5 + 0.3 * 0.05 * -10 + 4;  0.7 * 2 + 0.3 * 0.05 * -20 + 1
    result = metric.score(["0.5;-10;4", "2;-99;-7"], ["c", "c"])
    assert result.scores == pytest.approx([4.2, 2.1])
    assert result.parts["answer"] == [-10.0, -99.0]  # shown as it was


def test_product_is_the_product_of_powers():
    metric = Product({
        "relevance": table(weight=0.5, clip=[0, None]),
        "answer": table(column=1, weight=-2, clip=[-20, -0.5], scale=-1),
        "plain": table(column=2),
    })  # fmt: skip
    # sqrt(4) / 10^2 * 3;  sqrt(0) / ...;  sqrt(9) / 0.5^2 * -1
    assert scores_of(metric, (4, -10, 3), (-1, -3, 5), (9, 0, -1)) == pytest.approx([0.06, 0.0, -12.0])


def test_the_real_metrics_as_parts(folders, rows):
    relevance = QRelScore(encoder=folders["bert"], decoder=folders["gpt2"])
    answer = QAScore(model=folders["roberta"], unit="word")
    metric = Weighted(
        parts={
            "qrelscore": {"weight": 0.7, "encoder": folders["bert"], "decoder": folders["gpt2"]},
            "qa": {"metric": "qascore", "weight": 0.3, "scale": 0.05, "model": folders["roberta"], "unit": "word"},
        }
    )
    result = metric.score(**rows)
    both = {"qrelscore": relevance.score(**rows), "qa": answer.score(**rows)}
    assert result.scores == pytest.approx(
        [0.7 * a + 0.3 * 0.05 * b for a, b in zip(both["qrelscore"].scores, both["qa"].scores, strict=True)]
    )
    assert list(result.parts) == list(metric.part_names)
    assert result.parts["qrelscore"] == both["qrelscore"].scores
    assert result.parts["qrelscore/grg"] == both["qrelscore"].parts["grg"]
    assert result.parts["qa/token_logprobs"] == both["qa"].parts["token_logprobs"]
    assert metric.needs == {"contexts", "answers"}
    with pytest.raises(MetricInputError, match="weighted needs answers"):
        metric.score(rows["questions"], rows["contexts"])


def test_a_part_scores_each_distinct_row_of_its_columns():
    relevance, answer = Table(), Table(needs=["answers"])
    metric = Weighted({"relevance": relevance, "answer": answer})
    result = metric.score(["1", "2", "1"], ["c", "c", "c"], answers=["a", "b", "b"], references=[["r"]] * 3)
    assert result.scores == [2.0, 4.0, 2.0]
    (inputs,) = relevance.seen
    assert (inputs.questions, inputs.answers) == (["1", "2"], ["", ""])
    (inputs,) = answer.seen
    assert (inputs.questions, inputs.answers, inputs.contexts) == (["1", "2", "1"], ["a", "b", "b"], [""] * 3)


def test_a_part_of_weight_0_is_shown_and_has_no_effect():
    for kind in (Weighted, Product):
        metric = kind({"counts": table(), "watched": table(column=1, weight=0)})
        result = metric.score(["2;-inf", "3;nan"], ["c", "c"])
        assert result.scores == [2.0, 3.0]
        assert result.parts["watched"][0] == -math.inf and math.isnan(result.parts["watched"][1])


def test_a_third_party_reward_can_be_a_part():
    foreign = Foreign()
    metric = Weighted({"theirs": foreign, "length": {"metric": Table(), "clip": [0, 1]}})
    assert metric.needs == {"contexts", "answers", "references"}
    given = {"answers": ["a", "b"], "references": [["r"], ["s", "t"]]}
    result = metric.score(["4", "-1"], ["c", "d"], **given)
    assert [list(map(list, column)) for column in foreign.given[2:]] == [list(map(list, v)) for v in given.values()]
    assert all(math.isnan(score) for score in result.scores)  # not applicable is not 0
    assert metric.bounds == (-math.inf, math.inf)
    assert re.search(rf"metric={re.escape(__name__)}\.Foreign\[code:[0-9a-f]{{8}}\]", metric.signature)
    foreign.needs = {"contexts"}
    assert Weighted({"theirs": foreign}).score(["q?"], ["c"]).scores == [2.0]
    assert foreign.given == (["q?"], ["c"], None, None)


def test_combined_rewards_nest():
    inner = {"metric": "product", "parts": {"a": table(), "b": table(column=1)}, "weight": 2}
    metric = load("weighted", parts={"both": inner, "c": table(column=2)})
    result = metric.score(["2;3;5"], ["c"])
    assert result.scores == [17.0]
    assert result.parts == {
        "both": [6.0], "both/a": [2.0], "both/a/text": ["2;3;5"], "both/b": [3.0], "both/b/text": ["2;3;5"],
        "c": [5.0], "c/text": ["2;3;5"],
    }  # fmt: skip
    assert metric.score([], []) == MetricResult([], {name: [] for name in result.parts})


class Threshold:
    def __init__(self, threshold):
        self.threshold = threshold

    def score(self, questions, contexts, *, answers, references):
        return SimpleNamespace(scores=[float(len(question) > self.threshold) for question in questions])


def test_options_and_code_of_a_third_partys_reward_are_in_the_signature():
    parts = [{"t": {"metric": f"{__name__}.Threshold", "threshold": number}} for number in (1, 2)]
    first, second = (Weighted(part).signature for part in parts)
    assert "threshold:1" in first and "threshold:2" in second and "code:" in first
    alone = load(f"{__name__}.Threshold", threshold=3).signature
    assert re.fullmatch("Threshold\\|threshold:3\\|code:[0-9a-f]{8}", alone)


@functools.lru_cache
def made_by_a_function(threshold, api_key="", questions="file.txt"):
    return Threshold(threshold)


@dataclass(frozen=True)
class Frozen:
    threshold: int = 1

    def score(self, questions, contexts, *, answers, references):
        return [1.0] * len(questions)


def test_signatures_of_what_functions_and_frozen_classes_make():
    made = load(f"{__name__}.made_by_a_function", threshold=1, api_key="secret").signature
    assert re.fullmatch("made_by_a_function\\|threshold:1\\|code:[0-9a-f]{8}", made)
    assert load(f"{__name__}.Frozen", threshold=2).signature.startswith("Frozen|threshold:2|code:")
    first, second = ({"x": 1, "y": 2}, {"y": 2, "x": 1})
    assert own_signature("n", first) == own_signature("n", second) == "n|x:1|y:2"


class LongerForm(QuestionForm):
    """Inherits the choices of a metric of this package, and has an option of its own."""

    def __init__(self, least=3, **options):
        super().__init__(**options)
        self.least = least


class ChosenForm(LongerForm):
    def choices(self):
        return {**super().choices(), "least": self.least}


def test_a_subclass_of_another_package_adds_its_options_to_inherited_choices():
    two, three = (load(f"{__name__}.LongerForm", least=number).signature for number in (2, 3))
    assert re.fullmatch(re.escape(load("form").signature) + "\\|LongerForm\\|least:2\\|code:[0-9a-f]{8}", two)
    assert two.replace("least:2", "least:3") == three
    with_choices = load(f"{__name__}.ChosenForm", least=2).signature
    assert "code:" not in with_choices and "least:2" in with_choices


def scores_of_texts(questions, contexts, **columns):
    return [1.0] * len(questions)


def test_a_function_that_scores_texts_is_no_reward():
    with pytest.raises(MetricInputError, match="it takes questions itself; give a class, or a function that returns"):
        load(f"{__name__}.scores_of_texts")


def test_the_signature_distinguishes_every_choice():
    metric = Weighted({"a": table(), "b": table(weight=0.3, clip=[None, 2], scale=0.05, column=1)})
    assert metric.signature == (
        f"weighted|a:weight=1.0,clip=none,scale=1.0,metric=table[column:0,version:{VERSION}]"
        f"|b:weight=0.3,clip=-inf..2.0,scale=0.05,metric=table[column:1,version:{VERSION}]|version:{VERSION}"
    )
    variants = [
        {"a": table()},
        {"b": table()},
        {"a": table(weight=0.1 + 0.2, bounds=(0, 1))},
        {"a": table(weight=0.3, bounds=(0, 1))},
        {"a": table(scale=2)},
        {"a": table(clip=[0, None])},
        {"a": table(clip=[None, 0])},
        {"a": table(column=1)},
        {"a": table(), "b": table()},
    ]
    signatures = {kind(parts).signature for kind in (Weighted, Product) for parts in variants}
    assert len(signatures) == 2 * len(variants)
    assert Weighted({"a": table(weight=1)}).signature == Weighted({"a": table(weight=1.0)}).signature


def test_it_moves_with_its_parts_and_can_be_pickled():
    parts = Table(), Table(column=1)
    metric = Weighted(
        {"a": parts[0], "b": {"metric": parts[1], "weight": -1}, "c": {"metric": Foreign(), "weight": 0}}
    )
    assert metric.to("meta") is metric
    assert [part.device for part in parts] == ["meta", "meta"]
    copy = pickle.loads(pickle.dumps(metric))
    everything = (["5;2"], ["c"])
    assert copy.signature == metric.signature
    assert copy.score(*everything, answers=["a"], references=[["r"]]).scores == [3.0]


def test_trl_convention():
    logged = {}
    metric = Weighted({"a": Table(needs=["answers"]), "b": Table(column=1)})
    scores = metric(
        prompts=["p"] * 3,
        completions=["1;2", [{"role": "assistant", "content": "3;4"}], "5;6"],
        context=["c", "c", None],
        answer=["x", "x", "x"],
        log_metric=lambda name, value: logged.update({name: value}),
    )
    assert scores == [3.0, 7.0, None]
    assert logged == {"weighted/a": 2.0, "weighted/b": 3.0}
    assert metric.__name__ == "weighted"


@pytest.mark.parametrize("values", [[1.0, None], [None, 1.0]])
def test_a_part_without_a_number_is_not_logged(values):
    class Other:
        def score(self, questions, contexts=None, *, answers=None, references=None):
            return SimpleNamespace(scores=[1.0, 2.0], parts={"x": values, "y": [3.0, 4.0]})

    logged = {}
    columns = {"context": ["c"] * 2, "answer": ["a"] * 2, "references": [["r"]] * 2}
    assert Weighted({"o": Other()})(completions=["p", "q"], log_metric=logged.__setitem__, **columns) == [1.0, 2.0]
    assert logged == {"weighted/o": 1.5, "weighted/o/y": 3.5}


numbers = st.sampled_from(SOME)
intervals = st.tuples(numbers, numbers).map(sorted)
parts_strategy = st.lists(
    st.fixed_dictionaries(
        {
            "bounds": intervals,
            "weight": st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]),
            "clip": st.one_of(st.none(), intervals, st.tuples(numbers, st.none()), st.tuples(st.none(), numbers)),
            "scale": st.sampled_from([-1.0, 0.5, 2.0]),
        }
    ),
    min_size=1,
    max_size=3,
)


def by_hand(kind, parts, raws):
    """The definition, one number at a time; None where a power does not exist."""
    total = 0.0 if kind is Weighted else 1.0
    for part, raw in zip(parts, raws, strict=True):
        low, high = part["clip"] or (None, None)
        value = raw if low is None or raw > low else low
        value = part["scale"] * (value if high is None or value < high else high)
        if kind is Weighted:
            total += part["weight"] * value
        else:
            try:
                power = value ** part["weight"]
            except ZeroDivisionError:
                return None
            if isinstance(power, complex):
                return None
            total *= power
    return total


def grid(parts):
    """Raw scores within the bounds: both ends, and values between."""
    columns = [[value for value in SOME if low <= value <= high] for low, high in (part["bounds"] for part in parts)]
    rows = [()]
    for column in columns:
        rows = [(*row, value) for row in rows for value in column]
    return rows


@pytest.mark.parametrize("kind", [Weighted, Product])
@given(parts=parts_strategy)
def test_scores_are_the_definition_and_the_bounds_are_the_smallest_and_largest(kind, parts):
    rows = grid(parts)
    wanted = [by_hand(kind, parts, row) for row in rows]
    built = {f"p{at}": table(column=at, **part) for at, part in enumerate(parts)}
    if None in wanted:  # a power may not exist: found when it is built
        with pytest.raises(MetricInputError, match=r"part 'p\d': a value of .* has no power"):
            kind(built)
        return
    metric = kind(built)
    assert scores_of(metric, *rows) == pytest.approx(wanted)
    assert metric.bounds == pytest.approx((min(wanted), max(wanted)))


def test_bounds_where_little_is_known():
    assert Weighted({"a": table()}).bounds == (-math.inf, math.inf)
    assert Weighted({"a": table(clip=[0, None]), "b": table(clip=[None, 1], weight=-1)}).bounds == (-1.0, math.inf)
    assert Weighted({"a": table(clip=[0, None]), "b": table(clip=[0, None], weight=-1)}).bounds == (
        -math.inf,
        math.inf,
    )
    assert Product({"a": table(clip=[0, 1]), "b": table(clip=[0, None])}).bounds == (0.0, math.inf)
    assert Product({"a": table(weight=2)}).bounds == (0.0, math.inf)


def test_a_part_whose_bounds_are_none_is_one_of_unknown_bounds():
    foreign = SimpleNamespace(score=lambda questions, *_, **__: [0.5] * len(questions), needs=(), bounds=None)
    metric = Weighted({"a": {"metric": foreign}, "b": table(bounds=(0, 1))})
    assert metric.bounds == (-math.inf, math.inf)
    assert scores_of(metric, (0.25,)) == [0.75]
    assert Weighted({"a": {"metric": foreign, "clip": [0, 1]}}).bounds == (0.0, 1.0)


@pytest.mark.parametrize("kind", [Weighted, Product])
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "parts is {}; give at least one"),
        (["qascore"], r"parts is \['qascore'\]"),
        ({"a": 0.7}, "part 'a' is 0.7; give a metric object, or options"),
        ({"a": None}, "part 'a' is None"),
        ({"a": Table}, "part 'a' is <class"),
        ({"a": {"metric": 3}}, "part 'a': reward builtins.int: has no method score"),
        ({"a": {"metric": "fractions.Fraction"}}, "part 'a': reward fractions.Fraction: has no method score"),
        ({"a": {}}, "part 'a': unknown metric 'a'; known are qrelscore"),
        ({"a": table(colum=1)}, "part 'a': it has no option 'colum'"),
        ({"a": {"metric": Table(), "column": 1}}, "part 'a': column cannot be set on a metric that is built"),
        ({"a": {"metric": "qascore", "variant": "new"}}, "part 'a': qascore: variant 'new' does not exist"),
        ({"a": table(weight="much")}, "part 'a': weight is 'much'; give a finite number"),
        ({"a": table(weight=math.nan)}, "part 'a': weight is nan"),
        ({"a": table(weight=True)}, "part 'a': weight is True"),
        ({"a": table(scale=math.inf)}, "part 'a': scale is inf"),
        ({"a": table(scale=0)}, "part 'a': scale is 0"),
        ({"a": table(clip=[1, 0])}, r"part 'a': clip is \[1.0, 0.0\]; the first must not be above"),
        ({"a": table(clip=1)}, "part 'a': clip is 1; give"),
        ({"a": table(clip="01")}, "part 'a': clip is '01'"),
        ({"a": table(clip=[0])}, r"part 'a': clip is \[0\]"),
        ({"a": table(clip=["low", 1])}, "part 'a': clip is 'low'; give a finite number"),
        ({"a|b": table()}, r"part 'a\|b': a label is made of"),
        ({"a/b": table()}, "part 'a/b': a label is made of"),
        ({"a": table(higher_is_better=False)}, "part 'a': the metric is better when lower; give it a negative weight"),
        ({"a": table(higher_is_better=False, weight=-1, scale=-1)}, "better when lower"),
        ({"a": table(bounds=(1, 0))}, r"part 'a': .*bounds is \(1, 0\); give \(smallest, largest\), or None"),
        ({"a": table(needs=["context"])}, "part 'a': .*needs is .*'context'.*; name some of contexts, answers"),
    ],
)
def test_a_wrong_part_is_one_line_that_names_it(kind, parts, message):
    with pytest.raises(MetricInputError, match=message) as caught:
        kind(parts)
    assert str(caught.value).startswith(kind.name)
    assert "\n" not in str(caught.value)


def test_a_metric_that_is_better_when_lower_has_a_negative_weight():
    assert scores_of(Weighted({"a": table(higher_is_better=False, weight=-2)}), (3,)) == [-6.0]


def test_a_metric_that_breaks_its_bounds_or_returns_too_little_is_named():
    metric = Product({"a": table(bounds=(0, 1), weight=0.5)})
    assert scores_of(metric, (0.25,)) == [0.5]
    with pytest.raises(
        MetricInputError, match=r"part 'a': a value of -0.25 \(after clip and scale\) has no power 0.5"
    ):
        scores_of(metric, (-0.25,))
    for message, short in (
        (r"part 'a': .* returned 1 scores for 2 questions", {"scores": [1.0], "parts": {}}),
        (r"part 'a': .* parts\['x'\] is \[1.0\]; give a list with", {"scores": [1.0, 2.0], "parts": {"x": [1.0]}}),
    ):
        foreign = SimpleNamespace(score=lambda *_, **__: SimpleNamespace(**short), needs=())  # noqa: B023
        with pytest.raises(MetricInputError, match=message):
            Weighted({"a": foreign}).score(["p", "q"])


def test_finite_parts_whose_sum_or_product_no_float_holds_are_one_line_and_an_unknown_part_is_none():
    largest = 3.4028235e38  # of float32, in which a trainer computes
    for kind in (Weighted({"a": table(), "b": table(column=1)}), Product({"a": table(), "b": table(column=1)})):
        assert scores_of(kind, (largest / 4, 2))[0] <= largest
        with pytest.raises(MetricInputError, match=r"finite scores of its parts make .*; lower a weight or a scale"):
            scores_of(kind, (1, 1), (largest, largest / 2))
        assert math.isnan(scores_of(kind, (math.nan, largest))[0])


@pytest.mark.parametrize(
    ("name", "models", "option"),
    [
        ("qrelscore", {"encoder": "bert", "decoder": "gpt2"}, "baselines"),
        ("bertscore", {"model": "bert"}, "rescale"),
        ("bertscore", {"model": "bert"}, "idf"),
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(folders, tmp_path, name, models, option):
    os.mkfifo(tmp_path / "values")
    given = {key: folders[model] for key, model in models.items()}
    with pytest.raises(MetricInputError, match=rf"{option}=.*values is a pipe or device; write what it gives"):
        load(name, **given, **{option: str(tmp_path / "values")})


@pytest.mark.parametrize("name", ["weighted", "product"])
def test_the_command_lines_settings_build_what_python_builds(folders, name):
    from accelerate import PartialState

    from rl_qg.commands.compose import compose
    from rl_qg.scoring.metrics import load_reward

    parts = "{qrelscore:{clip:[0.001,2]},qa:{metric:qascore,unit:word,weight:2,clip:[-20,null]}}"
    models = [f"reward_models.{key}={folder}" for key, folder in folders.items()]
    settings = compose("train", [f"reward={name}", f"reward.parts={parts}", *models])
    built = load_reward(settings.reward, PartialState(cpu=True))
    relevance = {"clip": [0.001, 2], "encoder": folders["bert"], "decoder": folders["gpt2"]}
    answer = {"metric": "qascore", "unit": "word", "weight": 2, "clip": [-20, None], "model": folders["roberta"]}
    assert built.signature == rewards.load(name, parts={"qrelscore": relevance, "qa": answer}).signature
    assert built.parts["qa"].metric.batch_size == 32
