"""QAScore against the published numbers, against a slow reference, and its properties."""

import math
import pickle

import pytest
from hypothesis import given, settings, strategies as st

from rewards import MetricInputError, QAScore
from tests.rewards.conftest import without
from tests.rewards.reference import answer_logprobs

CHOICES = (("paper", "token"), ("paper", "word"), ("official", "token"))


@pytest.fixture(scope="module", params=CHOICES, ids="-".join)
def metric(request, folders):
    variant, unit = request.param
    return QAScore(folders["roberta"], variant, unit, batch_size=5)


def score(metric, rows):
    return metric.score(rows["questions"], rows["contexts"], answers=rows["answers"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "unit", "total", "parts"),
    [
        ("paper", "token", "sum", "token_logprobs"),
        ("paper", "word", "word_sum", "word_logprobs"),
        ("official", "token", "mean", "scores"),
    ],
)
def test_published_numbers(golden, golden_models, variant, unit, total, parts):
    rows = {f"{field}s": [case[field] for case in golden] for field in ("question", "context", "answer")}
    got = score(QAScore(golden_models["roberta"], variant, unit), rows)
    for row, case in enumerate(golden):
        want = case["expected"][f"qascore_{variant}"]
        assert got.scores[row] == pytest.approx(want[total], rel=1e-5, abs=1e-5), case["id"]
        assert got.parts["token_logprobs"][row] == pytest.approx(want[parts], rel=1e-5, abs=1e-5), case["id"]


def test_slow_reference(metric, folders, rows):
    got = score(metric, rows)
    for row, (question, context, answer) in enumerate(
        zip(rows["questions"], rows["contexts"], rows["answers"], strict=True)
    ):
        want = answer_logprobs(folders["roberta"], question, context, answer, variant=metric.variant, unit=metric.unit)
        assert got.parts["token_logprobs"][row] == pytest.approx(want, rel=1e-5, abs=1e-5)
        total = sum(want) / len(want) if metric.variant == "official" else sum(want)
        assert got.scores[row] == pytest.approx(total, rel=1e-5)


def test_order_batch_size_and_padding_change_nothing(metric, folders, rows):
    together = score(metric, rows).scores
    turned = score(metric, {name: column[::-1] for name, column in rows.items()}).scores
    alone = QAScore(folders["roberta"], metric.variant, metric.unit, batch_size=1)
    assert turned[::-1] == pytest.approx(together, rel=1e-5)
    assert score(alone, rows).scores == pytest.approx(together, rel=1e-5)


@pytest.mark.parametrize("position", [0, 5, 11])
def test_a_window_around_the_answer(folders, position):
    """For any position of the answer the window contains it, is full, and scores as the slow reference does."""
    words = ["the mill was built"] * 12
    words[position] = "by Ida Koll in 1204"
    context, question = " ".join(words), "Who built it?"
    metric = QAScore(folders["roberta"], truncation="answer")
    got = metric.score([question], [context], answers=["Ida Koll"])
    want = answer_logprobs(
        folders["roberta"], question, context, "Ida Koll", variant="paper", unit="token", truncation="answer"
    )
    assert got.parts["token_logprobs"][0] == pytest.approx(want, rel=1e-5)
    assert metric.truncated == 1
    kept = metric._cut(context, metric.model.ids([context])[0], "Ida Koll", 20)
    assert len(kept) == metric.model.max_tokens - 20
    assert "Ida Koll" in metric.model.tokenizer.decode(kept)


def test_without_the_answer_in_it_the_beginning_of_the_context_is_cut(folders, caplog):
    context = "the mill was built " * 12
    plain, window = (QAScore(folders["roberta"], truncation=kind) for kind in ("beginning", "answer"))
    want = plain.score(["Who?"], [context], answers=["Brandt"]).scores
    assert window.score(["Who?"], [context], answers=["Brandt"]).scores == pytest.approx(want)
    assert "its context is cut (logged once" in caplog.text
    assert plain.truncated == window.truncated == 1


def test_an_answer_longer_than_the_model_is_scored_at_its_end(metric):
    result = metric.score(["Who?"], ["Arlen"], answers=["mill " * 90])
    values = result.parts["token_logprobs"][0]
    assert len(values) <= 56
    assert math.isfinite(result.scores[0]) and result.scores[0] < 0


def test_an_answer_that_is_cut_counts_without_a_passage_too(folders):
    metric = QAScore(folders["roberta"])
    metric.score(["Who?"] * 2, ["", "Arlen"], answers=["mill " * 90] * 2)
    assert metric.truncated == 2


def test_a_tokenizer_without_padding_changes_nothing(folders, tmp_path, rows):
    bare = QAScore(without(folders["roberta"], tmp_path / "roberta", "pad_token"))
    assert bare.model.tokenizer.pad_token_id is None
    assert score(bare, rows).scores == pytest.approx(score(QAScore(folders["roberta"]), rows).scores)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40), st.text(min_size=1, max_size=8)), max_size=3))
def test_any_text_gives_a_finite_score_of_at_most_zero(metric, triples):
    questions, contexts, answers = (list(column) for column in zip(*triples, strict=True)) if triples else ([], [], [])
    result = metric.score(questions, contexts, answers=answers)
    assert len(result.scores) == len(triples)
    assert all(math.isfinite(value) and value <= 0 for value in result.scores)


def test_an_empty_answer_is_an_error_that_names_it(metric):
    with pytest.raises(MetricInputError, match=r"answers\[2\] is empty"):
        metric.score(["Who?", "Who?", "Why?"], ["Arlen"] * 3, answers=["Ida", "Ida", ""])


def test_pickle(metric, rows):
    copy = pickle.loads(pickle.dumps(metric))
    assert score(copy, rows).scores == pytest.approx(score(metric, rows).scores, rel=1e-6)


def test_signature_names_every_choice(folders):
    chosen = [QAScore(folders["roberta"], variant, unit) for variant, unit in CHOICES]
    chosen += [QAScore(folders["bert"]), QAScore(folders["roberta"], dtype="bfloat16")]
    chosen += [QAScore(folders["roberta"], truncation="answer")]
    assert len({metric.signature for metric in chosen}) == len(chosen)
    assert chosen[0].signature.startswith("qascore|variant:paper|unit:token|model:roberta@")


def test_a_bert_predicts_answers_too(folders, rows):
    assert max(score(QAScore(folders["bert"]), rows).scores) < 0


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("roberta", {"truncation": "end"}, "truncation 'end' does not exist; use beginning or answer"),
        ("roberta", {"variant": "x"}, "variant 'x' does not exist"),
        ("roberta", {"variant": "official", "unit": "word"}, "unit 'word' does not exist for variant 'official'"),
        ("bert", {"unit": "word"}, "do not mark spaces"),
        ("gpt2", {}, "a masked language model is needed"),
        ("bart", {}, "a masked language model is needed"),
    ],
)
def test_wrong_choices(folders, model, options, message):
    with pytest.raises(MetricInputError, match=message):
        QAScore(folders[model], **options)
