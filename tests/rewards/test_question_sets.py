"""Scores of sets of questions against the published numbers, all assignments, and their properties."""

import itertools
import json
from importlib.metadata import version

import pytest
from hypothesis import given, settings, strategies as st

from rewards import MetricInputError, __version__, load
from rewards.base import Metric, MetricResult
from rewards.sets import (
    Multi,
    cardinality_difference,
    cardinality_signature,
    distinct,
    match_sets,
    self_bleu,
    self_bleu_signature,
)
from rewards.words import ptb
from tests.rewards.conftest import GOLDEN

FILE = GOLDEN / "fixtures" / "multi_cases.jsonl"


@pytest.fixture(scope="module")
def cases():
    if not FILE.is_file():
        pytest.skip("the golden numbers (../shared/golden) are not here")
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


class Looked(Metric):
    """Scores looked up in a table of pairs of texts; 0 for others, the best of several references."""

    name = "looked"
    needs = frozenset({"references"})
    bounds = (0.0, 1.0)

    def __init__(self, table):
        self.table = table

    def choices(self):
        return {}

    def compute(self, inputs):
        rows = zip(inputs.questions, inputs.references, strict=True)
        return MetricResult([max(self.table.get((text, gold), 0.0) for gold in group) for text, group in rows], {})


class Passages(Looked):
    needs = frozenset({"references", "contexts"})


def check(scores, want, key):
    got = {
        f"multi_{key}_prec": scores.precision[0],
        f"multi_{key}_rec": scores.recall[0],
        f"multi_{key}_F1": scores.f1[0],
    }
    assert got == pytest.approx({name: want[name] for name in got}, abs=2e-9)


def test_published_numbers(cases):
    for case in cases:
        predictions, references, want = (
            [case["raw_predictions"]],
            [case["raw_references"]],
            case["expected"]["metrics"],
        )
        empty = case["placeholder"]
        for name, key in (("coco_bleu4", "Bleu_4"), ("coco_rouge_l", "ROUGE_L")):
            scores = Multi(load(name), placeholder=empty, decimals=5).score(predictions, references)
            check(scores, want, key)
            assert scores.averaged[0] == pytest.approx(want[f"avg_{key}"], abs=1e-9), case["id"]
        assert self_bleu(predictions)[0] == pytest.approx(want["avg_self-BLEU2"], abs=1e-9), case["id"]
        assert cardinality_difference(predictions, references, placeholder=empty) == [want["len_diff"]]


def test_published_assignments_of_given_scores(cases):
    """METEOR and q-BLEU1 of the pairs are given: the assignment is checked."""
    for case in cases:
        texts, golds = case["predictions"], case["references"]
        pairs = list(itertools.product(texts, golds))
        bleu = load("coco_bleu1").score([text for text, _ in pairs], references=[[gold] for _, gold in pairs]).scores
        given = [value for row in case["given"]["answerability"] for value in row]
        tables = {
            "METEOR": [value for row in case["given"]["METEOR"] for value in row],
            "q-BLEU1": [0.66 * one + 0.34 * other for one, other in zip(given, bleu, strict=True)],
        }
        for key, values in tables.items():
            metric = Looked(dict(zip(pairs, values, strict=True)))
            check(Multi(metric, decimals=5, tokenize="none").score([texts], [golds]), case["expected"]["metrics"], key)


WORDS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4).map(" ".join)
SETS = st.lists(WORDS, max_size=5)


def best_by_trying(metric, predictions, references):
    """Sum of the best one-to-one pairs, by trying them all."""
    if not predictions or not references:
        return 0.0
    table = [metric.score([text] * len(references), references=[[gold] for gold in references]).scores
             for text in predictions]  # fmt: skip
    if len(predictions) > len(references):
        table = [list(column) for column in zip(*table, strict=True)]
    columns = range(len(table[0]))
    return max(sum(row[at] for row, at in zip(table, chosen, strict=True))
               for chosen in itertools.permutations(columns, len(table)))  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(SETS, SETS, st.randoms(use_true_random=False))
def test_the_assignment_is_the_best_and_order_does_not_matter(predictions, references, order):
    metric = load("rouge_l")
    scores = match_sets(metric, [predictions], [references])
    once = distinct([predictions])[0]
    total = best_by_trying(metric, once, references)
    if once and references:
        assert scores.precision[0] == pytest.approx(total / len(once))
        assert scores.recall[0] == pytest.approx(total / len(references))
    for group in (predictions, references):
        order.shuffle(group)
    again = match_sets(metric, [predictions], [references])
    assert again.mean() == pytest.approx(scores.mean(), abs=1e-12)
    assert self_bleu([predictions]) == pytest.approx(self_bleu([once[::-1]]), abs=1e-12)


def test_empty_sets_and_perfect_ones():
    questions = ["Who founded Arlen?", "When did the mill burn?"]
    scores = match_sets(load("rouge_l"), [[], questions, [], questions], [questions, [], [], questions[::-1]])
    for values in (scores.precision, scores.recall, scores.f1, scores.averaged):
        assert values == [0.0, 0.0, 1.0, 1.0]
    assert scores.mean() == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "averaged": 0.5}
    assert match_sets(load("rouge_l"), [], []).mean()["f1"] == 0.0
    assert self_bleu([[], ["Who?"]]) == [0.0, 0.0]
    assert cardinality_difference([[], questions], [questions, []]) == [2, -2]


def test_repetitions_of_one_good_question_do_not_raise_recall():
    """By hand: one distinct question that equals one of four references."""
    gold = ["Who founded Arlen?", "When did it burn?", "Why was it sold?", "Where is the mill?"]
    again = ["Who founded Arlen?", "who founded Arlen", "Who founded Arlen ?"]
    scores = match_sets(load("coco_rouge_l"), [again], [gold])
    assert (scores.precision, scores.recall, scores.averaged) == ([1.0], [0.25], [1.0])
    assert scores.f1 == [pytest.approx(2 * 0.25 / 1.25)]
    assert cardinality_difference([again], [gold]) == [3]


def test_scores_of_a_document_do_not_depend_on_other_documents():
    sets = [["Who?", "When did it burn?"], ["Why was it sold?"], []]
    gold = [["Who was it?"], ["When did it burn?", "Why?"], ["What?"]]
    together = match_sets(load("chrf"), sets, gold)
    for at in range(3):
        alone = match_sets(load("chrf"), [sets[at]], [gold[at]])
        assert (alone.f1, alone.averaged) == ([together.f1[at]], [together.averaged[at]])


def test_repetitions_are_found_by_their_words():
    assert distinct([["who built it", "Who built it?", "Why?"]]) == [["Who built it?", "Why?"]]
    assert distinct([["Who built it?", "who built it"]]) == distinct([["who built it", "Who built it?"]])
    assert ptb("Who built it?") == ptb("who built it")
    assert distinct([["Who built it?", "who built it"]], tokenize="none") == [["Who built it?", "who built it"]]
    assert distinct([[]], placeholder="odd") == [["odd"]]


def test_contexts_go_to_metrics_that_need_them():
    class Both(Looked):
        needs = frozenset({"references", "contexts"})

        def compute(self, inputs):
            return MetricResult([float(context == "c1") for context in inputs.contexts], {})

    assert match_sets(Both({}), [["a", "b"], ["a"]], [["x"], ["y"]], ["c0", "c1"]).precision == [0.0, 1.0]
    with pytest.raises(MetricInputError, match="looked needs contexts"):
        match_sets(Both({}), [["a"]], [["x"]])


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: match_sets(load("rouge_l"), [["a"]], []), "1 sets of predictions but 0 of references"),
        (lambda: match_sets(load("rouge_l"), ["a"], [["b"]]), r"predictions\[0\] is 'a'"),
        (lambda: match_sets(load("rouge_l"), [["a"]], ["who"]), r"references\[0\] is 'who'; give a list of texts"),
        (lambda: match_sets(load("rouge_l"), [["a"]], [None]), r"references\[0\] is None"),
        (lambda: match_sets(load("rouge_l"), [None], [["a"]]), r"predictions\[0\] is None"),
        (lambda: match_sets(load("rouge_l"), [["a"]], [[None]]), r"references\[0\] is \[None\]"),
        (lambda: match_sets(load("rouge_l"), None, [["a"]]), "predictions is None; give one list of texts per"),
        (lambda: match_sets(load("rouge_l"), ["a"], "a"), r"predictions\[0\] is 'a'"),
        (lambda: cardinality_difference([["a"]], []), "1 sets of predictions but 0 of references"),
        (lambda: cardinality_difference([["a"]], ["abc"]), r"references\[0\] is 'abc'"),
        (lambda: self_bleu("ab"), "predictions is 'ab'"),
        (lambda: match_sets(Passages({}), [["a"], ["b"]], [["a"], ["b"]], ["x"]), "2 documents but 1 contexts"),
        (lambda: match_sets(Passages({}), [["a"]], [["a"]], ["x", "y"]), "1 documents but 2 contexts"),
        (lambda: match_sets(Passages({}), [["a"]], [["a"]], "x"), "multi: contexts is 'x'; give a list of one text"),
        (lambda: match_sets(Passages({}), [["a"]], [["a"]], [None]), r"multi: contexts is \[None\]"),
        (lambda: match_sets(Looked({("a", "b"): -1.0}), [["a"]], [["b"]]), "looked scores -1 for a pair, .*clip=True"),
        (lambda: Multi(load("answerability", against="context")), "answerability does not use references"),
    ],
)
def test_bad_input_is_one_line(act, message):
    with pytest.raises(MetricInputError, match=message) as caught:
        act()
    assert "\n" not in str(caught.value)


class Unbounded(Looked):
    bounds = (float("-inf"), 1.0)


class LogLikelihood(Looked):
    bounds = (float("-inf"), 0.0)


class Distance(Looked):
    higher_is_better = False


def test_a_metric_without_a_lower_bound_raises_unless_clipped():
    with pytest.raises(MetricInputError, match=r"looked may score below 0, .* or clip=True to count"):
        Multi(Unbounded({}))
    assert Multi(Unbounded({}), clip=True).clip


@pytest.mark.parametrize("kind", [LogLikelihood, Distance])
@pytest.mark.parametrize("clip", [False, True])
def test_a_metric_that_clipping_makes_0_raises(kind, clip):
    with pytest.raises(MetricInputError, match="better when lower or never above 0") as caught:
        Multi(kind({}), clip=clip)
    assert "clip" not in str(caught.value)


def test_clipped_scores_by_hand():
    """0.5 for "a" with "x"; "b" matches no reference: its pair counts 0, not -2, in `averaged` too."""
    table = {("a", "x"): 0.5, ("a", "y"): -1.0, ("b", "x"): 0.25, ("b", "y"): -2.0}
    scores = Multi(Unbounded(table), clip=True).score([["a", "b"]], [["x", "y"]])
    assert (scores.precision, scores.recall, scores.f1) == ([0.25], [0.25], [0.25])
    assert Multi(Unbounded(table), clip=True).score([["b"]], [["y"]]).averaged == [0.0]
    assert scores.averaged == [pytest.approx((0.5 + 0.25) / 2)]


def test_a_reward_that_does_not_say_what_it_needs_is_refused():
    with pytest.raises(MetricInputError, match=r"Plain is no rewards\.Metric"):
        Multi(type("Plain", (), {"score": lambda self, questions: [0.0 for _ in questions]})())  # type: ignore[arg-type]


def test_moverscore_can_be_clipped_and_bartscore_cannot(folders):
    pytest.importorskip("ot")
    metric = load("moverscore", model=folders["bert"])
    questions = ["Who built the mill on the Esk?", "When did it burn?"]
    assert Multi(metric, clip=True).score([questions], [questions[::-1]]).f1 == [pytest.approx(1.0, abs=1e-5)]
    with pytest.raises(MetricInputError, match="bartscore is better when lower or never above 0"):
        Multi(load("bartscore", model=folders["bart"], direction="precision"), clip=True)


def test_signature():
    metric = load("coco_bleu4")
    assert Multi(metric).signature == f"multi|same:ptb|empty:zero|decimals:all|metric:{metric.signature}"
    assert "|decimals:5|" in Multi(metric, decimals=5).signature
    assert Multi(metric, tokenize="13a").signature.startswith(f"multi|same:13a|sacrebleu:{version('sacrebleu')}|")
    assert Multi(metric, clip=True).signature == (
        f"multi|same:ptb|empty:zero|decimals:all|clip:0|metric:{metric.signature}"
    )


def test_signatures_of_self_bleu_and_cardinality():
    assert self_bleu_signature() == f"self_bleu|same:ptb|metric:{load('coco_bleu2').signature}"
    assert self_bleu_signature(4, tokenize="words") == (
        f"self_bleu|same:words|metric:{load('coco_bleu4', tokenize='words').signature}"
    )
    assert cardinality_signature() == f"cardinality_difference|same:ptb|empty:zero|version:{__version__}"
    assert "|empty:placeholder|" in cardinality_signature(placeholder="odd")
    assert f"|same:13a|sacrebleu:{version('sacrebleu')}|" in cardinality_signature(tokenize="13a")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_pairs_have_the_largest_sum_of_all_assignments(data):
    questions = data.draw(st.lists(st.sampled_from("abcde"), max_size=4))
    references = data.draw(st.lists(st.sampled_from("vwxyz"), max_size=4, unique=True))
    table = {(a, b): data.draw(st.integers(0, 9)) / 10 for a in dict.fromkeys(questions) for b in references}
    (pairs,) = Multi(Looked(table)).pairs([questions], [references])
    assert all(score == table[questions[row], references[column]] for row, column, score in pairs)
    assert len({row for row, _, _ in pairs}) == len({column for _, column, _ in pairs}) == len(pairs)
    assert all(questions.index(questions[row]) == row for row, _, _ in pairs), "of equal ones the first"
    distinct_ones = list(dict.fromkeys(questions))
    size = min(len(distinct_ones), len(references))
    sums = [
        sum(table[pair] for pair in zip(chosen, order, strict=True))
        for chosen in itertools.permutations(distinct_ones, size)
        for order in itertools.combinations(references, size)
    ]
    assert sum(score for _, _, score in pairs) == pytest.approx(max(sums, default=0))


def test_a_pair_without_a_score_is_an_error_in_one_line():
    class Half(Looked):
        def compute(self, inputs):
            return MetricResult([float("nan") if "x" in text else 0.5 for text in inputs.questions], {})

    for clip in (False, True):
        with pytest.raises(MetricInputError, match="set 1: the metric has no score for 'x y' against 'b'"):
            Multi(Half({}), clip=clip).score([["a"], ["a", "x y"]], [["a"], ["b"]])
