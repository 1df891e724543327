"""What every metric does with unusual input: a finite score, or one line that names the position."""

import math

import pytest
from hypothesis import given, settings, strategies as st

from rewards import BARTScore, MetricInputError, Product, QAScore, QRelScore, ReaderScore, Weighted

KINDS = ("qrelscore", "qrelscore-paper", "qascore", "qascore-official", "bartscore", "weighted", "reader", "gated")


@pytest.fixture(scope="module")
def metrics(folders):
    return {
        "qrelscore": QRelScore(folders["bert"], folders["gpt2"]),
        "qrelscore-paper": QRelScore(folders["bert"], folders["gpt2"], "paper"),
        "qascore": QAScore(folders["roberta"], truncation="answer"),
        "qascore-official": QAScore(folders["roberta"], "official"),
        "bartscore": BARTScore(folders["bart"]),
        "weighted": Weighted(
            {
                "local": {"metric": QRelScore(folders["bert"], folders["gpt2"]), "weight": 0.5},
                "answer": {"metric": QAScore(folders["roberta"]), "clip": [-50, 0], "scale": 0.02},
            }
        ),
        "reader": ReaderScore(folders["reader"], "log_probability", abstain=True),
        "gated": Product({"reader": {"model": folders["reader"]}, "form": {}}),
    }


@pytest.fixture(params=KINDS)
def metric(request, metrics):
    return metrics[request.param]


def score(metric, rows):
    questions, contexts, answers = (list(column) for column in zip(*rows, strict=True))
    return metric.score(questions, contexts, answers=answers)


def check(metric, result, rows):
    assert len(result.scores) == len(rows)
    assert all(map(math.isfinite, result.scores))
    if "qascore" in metric.name:
        assert max(result.scores) <= 0
    if "grg" in result.parts:
        assert min(result.parts["grg"]) >= 0


TEXT = st.text(max_size=60)
ROWS = st.lists(st.tuples(TEXT, TEXT, st.text(min_size=1, max_size=12)), min_size=1, max_size=5)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(rows=ROWS, order=st.randoms(use_true_random=False))
def test_any_text_any_order_any_repetition(metrics, kind, rows, order):
    """Finite for every text; the same alone, doubled, in another order, and next to longer rows (padding)."""
    metric = metrics[kind]
    together = score(metric, rows)
    check(metric, together, rows)
    positions = [*range(len(rows)), *range(len(rows))]
    order.shuffle(positions)
    again = score(metric, [rows[at] for at in positions]).scores
    assert again == pytest.approx([together.scores[at] for at in positions], rel=1e-5, abs=1e-5)
    beside = score(metric, [rows[0], ("Where is the mill? " * 9, "The town of Arlen. " * 9, "the mill " * 9)])
    assert beside.scores[0] == pytest.approx(together.scores[0], rel=1e-5, abs=1e-5)


AWKWARD = [
    "",
    " ",
    "?",
    "!?…",
    "[SEP] [CLS] [PAD]",
    "</s><s><mask>",
    "<|endoftext|>",
    "\x00",
    "🙂",
    "ﷺ" * 20,
    "a" * 500,
]


@pytest.mark.parametrize("question", AWKWARD)
def test_awkward_questions_and_contexts(metric, question):
    rows = [(question, "The mill was built by Ida.", "Ida"), ("Who built the mill?", question, "Ida")]
    check(metric, score(metric, rows), rows)


def test_a_context_of_20000_tokens(metric):
    rows = [("Who built the mill?", "The mill on the river Esk was built by Ida Koll. " * 1900, "Ida Koll")]
    assert len(rows[0][1].split()) > 20_000
    check(metric, score(metric, rows), rows)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"contexts": ["c"]}, "2 questions but 1 contexts"),
        ({"contexts": ["c", "c"], "answers": ["a"] * 3}, "2 questions but 3 answers"),
        ({"contexts": ["c", None]}, r"contexts\[1\] is NoneType"),
        ({}, "needs (answers|contexts)"),
    ],
)
def test_lists_that_do_not_fit(metric, columns, message):
    answers = {"answers": ["a", "a"]} if columns else {}
    with pytest.raises(MetricInputError, match=message) as caught:
        metric.score(["q", "q"], **{**answers, **columns})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["qascore", "qascore-official", "weighted"])
def test_an_answer_that_is_missing_is_named(metrics, kind):
    with pytest.raises(MetricInputError, match=r"answers\[1\] is empty"):
        metrics[kind].score(["q", "q"], ["c", "c"], answers=["a", ""])
    with pytest.raises(MetricInputError, match="needs answers"):
        metrics[kind].score(["q", "q"], ["c", "c"])
