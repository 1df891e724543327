"""QAAligned and the one-to-one assignment of question-answer pairs: loops, hand-worked numbers, and properties."""

import json
import os
from itertools import permutations
from statistics import mean

import pytest
from hypothesis import given, settings, strategies as st

from rewards import MetricInputError, QAAligned, load, published_base
from rewards.base import Metric, MetricResult
from rewards.sets import Multi, PairScores, pair_text
from tests.lmqg_outputs import official_scores, published_outputs

WORDS = st.sampled_from(["who", "when", "ada", "1815", "lovelace"])
PAIR = st.tuples(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), WORDS)
GROUPS = st.lists(PAIR, max_size=4)
GOLD = st.lists(PAIR, min_size=1, max_size=4)


class Overlap(Metric):
    """Shared words over all words of two texts: symmetric, from 0 to 1."""

    name = "overlap"
    needs = frozenset({"references"})
    bounds = (0.0, 1.0)

    def choices(self):
        return {}

    def compute(self, inputs):
        rows = zip(inputs.questions, inputs.references, strict=True)
        return MetricResult([max(overlap(text, gold) for gold in group) for text, group in rows], {})


def overlap(first, second):
    one, other = set(first.split()), set(second.split())
    return len(one & other) / len(one | other)


def published_loop(predictions, references, score):
    """Precision, recall and F1 of one passage as the released code computes them, without its printing."""
    group = list({pair_text(*pair) for pair in predictions})
    gold = [pair_text(*pair) for pair in references]
    if not group:
        return 0.0, 0.0, 0.0
    precision = mean(max(score(one, other) for other in gold) for one in group)
    recall = mean(max(score(one, other) for one in group) for other in gold)
    return precision, recall, 2 * precision * recall / (precision + recall + 1e-6)


def parts(predictions, references, metric=None):
    scores = QAAligned(metric or Overlap()).score([predictions], [references])
    return {part: values[0] for part, values in scores.columns().items()}


@given(GROUPS, GOLD)
@settings(max_examples=60, deadline=None)
def test_it_is_the_double_loop(predictions, references):
    got = parts(predictions, references)
    assert [got[part] for part in ("precision", "recall", "f1")] == pytest.approx(
        published_loop(predictions, references, overlap)
    )


def test_it_is_the_double_loop_for_a_metric_whose_sides_differ():
    rouge = load("coco_rouge_l")  # weighs recall more: s(h, g) is not s(g, h)
    predictions = [("who wrote it", "Ada"), ("when was it", "1815"), ("who", "Babbage")]
    references = [("who wrote the notes", "Ada Lovelace"), ("when", "1815")]

    def score(one, other):
        return rouge.score([one], references=[[other]]).scores[0]

    assert score(pair_text(*predictions[0]), pair_text(*references[0])) != pytest.approx(
        score(pair_text(*references[0]), pair_text(*predictions[0]))
    )
    got = parts(predictions, references, rouge)
    assert [got[part] for part in ("precision", "recall", "f1")] == pytest.approx(
        published_loop(predictions, references, score)
    )


def test_numbers_worked_out_by_hand():
    # "question: a, answer: x" and "question: b, answer: y" share 2 of 6 words; an equal pair scores 1.
    got = parts([("a", "x"), ("b", "y"), ("b", "y")], [("a", "x")])
    assert got["precision"] == pytest.approx((1 + 2 / 6) / 2)  # the repetition is out
    assert got["recall"] == 1
    assert got["f1"] == pytest.approx(2 * (2 / 3) / (5 / 3 + 1e-6))
    assert got["one_to_one_precision"] == pytest.approx(1 / 2)  # the second pair has no partner
    assert got["one_to_one_recall"] == 1
    assert got["one_to_one_f1"] == pytest.approx(2 / 3)


def test_a_corpus_is_the_mean_over_passages_and_no_prediction_is_zero():
    scores = QAAligned(Overlap()).score([[("a", "x")], []], [[("a", "x")], [("b", "y")]])
    assert scores.precision == [1, 0] and scores.one_to_one_recall == [1, 0]
    assert scores.mean()["precision"] == 0.5
    assert scores.f1 == pytest.approx([2 / (2 + 1e-6), 0], abs=1e-12)  # the epsilon of the released code
    assert QAAligned(Overlap()).score([[]], [[("a", "x")]]).f1 == [0]  # where the released code ends with an error


@given(GOLD, GOLD)
@settings(max_examples=60, deadline=None)
def test_swapping_roles_swaps_precision_and_recall(predictions, references):
    predictions, references = list(dict.fromkeys(predictions)), list(dict.fromkeys(references))
    one, other = parts(predictions, references), parts(references, predictions)
    assert one["precision"] == pytest.approx(other["recall"]) and one["recall"] == pytest.approx(other["precision"])
    assert one["f1"] == pytest.approx(other["f1"])


@given(GOLD, GOLD, st.data())
@settings(max_examples=60, deadline=None)
def test_a_repeated_human_pair_changes_recall_only(predictions, references, data):
    repeated = [*references, data.draw(st.sampled_from(references))]
    one, other = parts(predictions, references), parts(predictions, repeated)
    assert one["precision"] == pytest.approx(other["precision"])
    gold = [max(overlap(pair_text(*h), pair_text(*g)) for h in predictions) for g in repeated]
    assert other["recall"] == pytest.approx(mean(gold))


def test_repetitions_of_predictions_change_nothing():
    predictions, references = [("a b", "x"), ("c", "y")], [("a", "x"), ("d", "z")]
    assert parts(predictions * 3, references) == parts(predictions, references)


def test_one_good_pair_in_other_words_is_not_punished_by_qaaligned_but_by_one_to_one():
    good, bad = ("who was ada lovelace", "countess"), ("x", "y")
    paraphrases = [("was who ada lovelace", "countess"), ("ada was who lovelace", "countess")]
    references = [good, ("when", "1815"), ("where", "london")]
    few, many = parts([good, bad], references), parts([good, *paraphrases, bad], references)
    assert many["precision"] > few["precision"] + 0.1
    assert many["recall"] == pytest.approx(few["recall"])
    assert many["one_to_one_precision"] < few["one_to_one_precision"]
    # The other pairs of the assignment gain what the template's words alone are worth, and no more.
    assert many["one_to_one_f1"] < many["f1"]


@given(st.lists(st.tuples(GROUPS, GOLD), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_one_to_one_is_multi_of_the_texts(documents):
    predictions, references = [one for one, _ in documents], [gold for _, gold in documents]
    scores = QAAligned(Overlap()).score(predictions, references)
    texts = [[[pair_text(*pair) for pair in group] for group in side] for side in (predictions, references)]
    multi = Multi(Overlap()).score(*texts)
    assert scores.one_to_one_precision == pytest.approx(multi.precision)
    assert scores.one_to_one_recall == pytest.approx(multi.recall)
    assert scores.one_to_one_f1 == pytest.approx(multi.f1)


@given(GOLD, GOLD)
@settings(max_examples=40, deadline=None)
def test_one_to_one_is_the_best_of_all_assignments(predictions, references):
    rows, columns = sorted(set(predictions)), references
    if len(rows) > len(columns):
        rows, columns = columns, rows
    score = {(r, c): overlap(pair_text(*r), pair_text(*c)) for r in rows for c in columns}
    best = max(
        sum(score[r, c] for r, c in zip(rows, chosen, strict=False)) for chosen in permutations(columns, len(rows))
    )
    got = parts(predictions, references)
    assert got["one_to_one_precision"] * len(set(predictions)) == pytest.approx(best)
    assert got["one_to_one_recall"] * len(references) == pytest.approx(best)


def test_scores_below_zero_count_in_qaaligned_and_not_in_one_to_one():
    class Below(Overlap):
        bounds = (-1.0, 1.0)

        def compute(self, inputs):
            return MetricResult([-0.5] * len(inputs.questions), {})

    got = parts([("a", "x")], [("a", "x")], Below())
    assert (got["precision"], got["recall"]) == (-0.5, -0.5) and got["one_to_one_f1"] == 0


def test_published_bases(folders):
    metric = published_base("bertscore", model=folders["bert"], layer=1)
    assert (metric.part, metric.layer) == ("precision", 1)
    predictions, references = [("Who built the mill?", "Ida")], [("Who built it?", "Ida Koll")]
    result = metric.score([pair_text(*predictions[0])], references=[[pair_text(*references[0])]])
    assert parts(predictions, references, metric)["recall"] == pytest.approx(result.parts["precision"][0])
    assert result.parts["precision"] != result.parts["f"]
    with pytest.raises(MetricInputError, match="'bleu4' was not published under QAAligned; use bertscore or"):
        published_base("bleu4")
    mover = pytest.importorskip("ot") and published_base("moverscore", "ja", model=folders["bert"])
    assert mover.variant == "v2"


def test_the_signature_names_what_changes_a_number():
    signature = QAAligned(load("rouge_l"), tokenize="ptb").signature
    assert signature.startswith("qa_aligned|repetitions:once|epsilon:1e-06|empty:zero|one_to_one:multi|same:ptb")
    assert load("rouge_l").signature in signature
    assert signature == QAAligned(load("rouge_l")).score([[]], [[("a", "b")]]).signature
    assert PairScores.parts()[:3] == ("precision", "recall", "f1")


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        ([[]], [], "1 sets of predictions but 0 of references"),
        ([[("a", "b")]], [[]], r"references\[0\] is empty; leave out passages without human pairs"),
        ([[("a",)]], [[("a", "b")]], r"predictions\[0\]\[0\] is \('a',\); give \(question, answer\), two texts"),
        ([["ab"]], [[("a", "b")]], r"predictions\[0\]\[0\] is 'ab'; give"),
        ([[("a", 1)]], [[("a", "b")]], r"predictions\[0\]\[0\] is \('a', 1\)"),
        (["ab"], [[("a", "b")]], r"predictions\[0\] is 'ab'; give a list of \(question, answer\)"),
        ("ab", [[("a", "b")]], "predictions is 'ab'; give one list of pairs per passage"),
    ],
)
def test_bad_input_is_one_line(predictions, references, message):
    with pytest.raises(MetricInputError, match=message):
        QAAligned(Overlap()).score(predictions, references)


def test_metrics_that_cannot_compare_pairs_are_refused():
    class Asking(Overlap):
        needs = frozenset({"references", "answers"})

    with pytest.raises(
        MetricInputError, match="qa_aligned: overlap reads answers, and a pair is compared with a pair"
    ):
        QAAligned(Asking())

    class Free(Overlap):
        needs = frozenset()

    with pytest.raises(MetricInputError, match="does not use references"):
        QAAligned(Free())
    with pytest.raises(MetricInputError, match=r"builtins\.str is no rewards.Metric"):
        QAAligned("bertscore")


@pytest.mark.slow
@pytest.mark.parametrize("base", ["bertscore", "moverscore"])
def test_the_published_f1(base):
    """Where the encoders are there: `RL_QG_ROBERTA_LARGE` and `RL_QG_DISTILBERT` name their folders."""
    variable = {"bertscore": "RL_QG_ROBERTA_LARGE", "moverscore": "RL_QG_DISTILBERT"}[base]
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} names no folder of the encoder with which the F1 was published")
    outputs = published_outputs()
    layer = {"layer": 17} if base == "bertscore" else {}
    scores = QAAligned(published_base(base, model=folder, **layer)).score(
        [output.pairs for output in outputs], [output.human for output in outputs]
    )
    name = {"bertscore": "BERTScore", "moverscore": "MoverScore"}[base]
    # 16 of 2,429 paragraphs are aligned to none: their F1 is unknown here.
    assert scores.mean()["f1"] == pytest.approx(official_scores()["test"][f"QAAlignedF1Score ({name})"], abs=2e-3)
    assert json.dumps(scores.mean())
