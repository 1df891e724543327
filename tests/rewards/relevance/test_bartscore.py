"""BARTScore against the published numbers, against a slow reference, and its properties."""

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards import BARTScore, MetricInputError
from tests.rewards.reference import translation_score

DIRECTIONS = ("faithfulness", "precision", "recall", "f")


@pytest.fixture(scope="module", params=DIRECTIONS)
def metric(request, folders):
    return BARTScore(folders["bart"], request.param, batch_size=4)


def score(metric, rows):
    return metric.score(rows["questions"], rows["contexts"], references=rows["references"])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_published_numbers(golden, golden_models, direction):
    rows = {
        "questions": [case["question"] for case in golden],
        "contexts": [case["context"] for case in golden],
        "references": [[case["reference"]] for case in golden],
    }
    got = score(BARTScore(golden_models["bart"], direction), rows).scores
    for row, case in enumerate(golden):
        for source in ("bartscore_official", "bartscore_f64"):
            want = case["expected"][source]
            precision, recall = want["ref_to_hypo"], want["hypo_to_ref"]
            number = {"faithfulness": want["src_to_question"], "precision": precision, "recall": recall,
                      "f": (precision + recall) / 2}[direction]  # fmt: skip
            assert got[row] == pytest.approx(number, abs=1e-5), case["id"]


def test_slow_reference(metric, folders, rows):
    got = score(metric, rows)

    def mean(pairs):
        values = [translation_score(folders["bart"], source, target) for source, target in pairs]
        return sum(values) / len(values)

    for row, (question, context) in enumerate(zip(rows["questions"], rows["contexts"], strict=True)):
        gold = rows["references"][row]
        parts = {
            "faithfulness": mean([(context, question)]),
            "precision": mean([(reference, question) for reference in gold]),
            "recall": mean([(question, reference) for reference in gold]),
        }
        for name, values in got.parts.items():
            assert values[row] == pytest.approx(parts[name], rel=1e-5)
        total = (parts["precision"] + parts["recall"]) / 2 if metric.direction == "f" else parts[metric.direction]
        assert got.scores[row] == pytest.approx(total, rel=1e-5)
    assert set(got.parts) == ({"precision", "recall"} if metric.direction == "f" else {metric.direction})


def test_order_batch_size_and_padding_change_nothing(metric, folders, rows):
    together = score(metric, rows).scores
    turned = score(metric, {name: column[::-1] for name, column in rows.items()}).scores
    alone = BARTScore(folders["bart"], metric.direction, batch_size=1)
    assert turned[::-1] == pytest.approx(together, rel=1e-5)
    assert score(alone, rows).scores == pytest.approx(together, rel=1e-5)


def test_a_context_is_encoded_once_for_all_its_questions(folders):
    metric = BARTScore(folders["bart"], batch_size=3)
    encoded = []
    metric.model.model.get_encoder().register_forward_hook(
        lambda module, arguments, options, output: encoded.append(len(options["input_ids"])), with_kwargs=True
    )
    metric.score(["Who?", "Where?", "Why?", "When?"], ["Arlen", "Esk", "Arlen", "Arlen"])
    assert encoded == [2]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=80), st.text(max_size=40)), min_size=1, max_size=3))
def test_any_text_gives_a_finite_score_of_at_most_zero(metric, triples):
    questions, contexts, gold = (list(column) for column in zip(*triples, strict=True))
    result = metric.score(questions, contexts, references=[[text, "Who?"] for text in gold])
    assert all(math.isfinite(value) and value <= 0 for value in result.scores)


def test_only_what_the_direction_reads_is_needed(folders):
    assert BARTScore(folders["bart"]).needs == {"contexts"}
    metric = BARTScore(folders["bart"], "recall")
    assert metric.score(["Who?"], references=[["Why?"]]).scores[0] < 0
    with pytest.raises(MetricInputError, match=r"references\[1\] is \[\]"):
        metric.score(["Who?", "Why?"], references=[["Why?"], []])
    with pytest.raises(MetricInputError, match=r"references\[0\] is 'Why\?'"):
        metric.score(["Who?"], references=["Why?"])


def test_pickle(metric, rows):
    copy = pickle.loads(pickle.dumps(metric))
    assert score(copy, rows).scores == pytest.approx(score(metric, rows).scores, rel=1e-6)
    assert copy.needs == metric.needs


def test_signature_names_every_choice(folders):
    chosen = [BARTScore(folders["bart"], direction) for direction in DIRECTIONS]
    chosen.append(BARTScore(folders["bart"], dtype="bfloat16"))
    assert len({metric.signature for metric in chosen}) == len(chosen)
    assert chosen[0].signature.startswith("bartscore|direction:faithfulness|model:bart@")


def test_wrong_choices(folders):
    with pytest.raises(MetricInputError, match="direction 'both' does not exist"):
        BARTScore(folders["bart"], "both")
    with pytest.raises(MetricInputError, match="a BART-like encoder-decoder is needed"):
        BARTScore(folders["bert"])
