"""BARTScore against the published numbers, against a slow reference, and its properties."""

import json
import math
import os
import pickle

import pytest
import torch
from hypothesis import given, settings, strategies as st

from rewards import BARTScore, MetricInputError, load
from tests.rewards.conftest import roberta_tokenizer, without
from tests.rewards.reference import translation_score
from tests.tiny_models import save, tiny_bart

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


@pytest.mark.parametrize(("direction", "cut"), [("faithfulness", 2), ("precision", 3), ("f", 3)])
def test_cut_texts_are_counted_once_and_logged_once(folders, caplog, direction, cut):
    long = [f"{word} " * 2000 for word in ("mill", "river", "town")]
    metric = BARTScore(folders["bart"], direction)
    metric.score(["Who?", long[0], "Where?"], ["a", "b", long[1]], references=[["a"], ["b"], [long[1], long[2]]])
    assert metric.truncated == cut
    assert [text.partition(" than ")[0] for text in caplog.messages] == ["bartscore: a text is longer"]


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
    with pytest.raises(MetricInputError, match=r"references\[1\] is empty"):
        metric.score(["Who?", "Why?"], references=[["Why?"], []])
    with pytest.raises(MetricInputError, match=r"references\[0\] is one text"):
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


def test_a_tokenizer_without_padding_changes_nothing(folders, tmp_path, rows):
    bare = BARTScore(without(folders["bart"], tmp_path / "bart", "pad_token"), "f")
    assert bare.model.tokenizer.pad_token_id is None
    assert score(bare, rows).scores == pytest.approx(score(BARTScore(folders["bart"], "f"), rows).scores)


def test_wrong_choices(folders):
    with pytest.raises(MetricInputError, match="direction 'both' does not exist"):
        BARTScore(folders["bart"], "both")
    with pytest.raises(MetricInputError, match="a BART-like encoder-decoder is needed"):
        BARTScore(folders["bert"])


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Another BART of the same size: as a folder, and as a file of its weights alone."""
    root = tmp_path_factory.mktemp("tuned")
    tokenizer = roberta_tokenizer()
    model = tiny_bart(len(tokenizer), spread=0.4, positions=40, decoder_layers=2, seed=7)
    torch.save(model.state_dict(), root / "bart_score.pth")
    return save(root / "model", tokenizer, model), root / "bart_score.pth"


def test_weights_of_a_torch_file_score_as_the_model_they_are_of(folders, tuned, rows):
    folder, file = tuned
    plain = BARTScore(folders["bart"])
    metric = load("bartscore", model=folders["bart"], weights=str(file))
    got = score(metric, rows).scores
    assert got == pytest.approx(score(BARTScore(folder), rows).scores, rel=1e-6)
    assert got[0] == pytest.approx(translation_score(folder, rows["contexts"][0], rows["questions"][0]), rel=1e-5)
    assert min(abs(a - b) for a, b in zip(got, score(plain, rows).scores, strict=True)) > 0.01
    assert "|weights:bart_score.pth@" in metric.signature and "weights" not in plain.signature
    assert pickle.loads(pickle.dumps(metric)).signature == metric.signature


def test_a_weight_that_is_shared_may_be_missing_and_no_other(folders, tuned, rows, tmp_path):
    state = torch.load(tuned[1], weights_only=True)
    del state["lm_head.weight"], state["model.encoder.embed_tokens.weight"]
    torch.save(state, tmp_path / "less.pth")
    less = BARTScore(folders["bart"], weights=tmp_path / "less.pth")
    assert score(less, rows).scores == score(BARTScore(folders["bart"], weights=tuned[1]), rows).scores
    del state["final_logits_bias"]
    torch.save(state, tmp_path / "less.pth")
    with pytest.raises(MetricInputError, match=r"it lacks the weights 'final_logits_bias', of 1\)"):
        BARTScore(folders["bart"], weights=tmp_path / "less.pth")


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def test_files_without_these_weights_are_one_clear_line(folders, tuned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = tuned[1].read_bytes()
    state = torch.load(tuned[1], weights_only=True)
    (tmp_path / "half.pth").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.pth").write_bytes(b"")
    (tmp_path / "text.pth").write_text("hello world")
    (tmp_path / "code.pth").write_bytes(pickle.dumps({"lm_head.weight": Harmful()}))
    saved = {
        "list.pth": [torch.zeros(2)],
        "epoch.pth": {"state": state, "epoch": 3},
        "bert.pth": {"bert.weight": torch.zeros(2)},
        "more.pth": {**state, "head.bias": torch.zeros(2)},
        "wide.pth": {**state, "final_logits_bias": torch.zeros(1, 3)},
        "nan.pth": {**state, "model.decoder.layers.0.fc1.bias": torch.full((32,), float("nan"))},
    }
    for name, content in saved.items():
        torch.save(content, tmp_path / name)
    damaged = "is damaged, or no torch file of weights alone"
    for name, message in {
        "none.pth": r"it cannot be read \(No such file or directory\)",
        **dict.fromkeys(("half.pth", "empty.pth", "text.pth", "code.pth"), damaged),
        **dict.fromkeys(("list.pth", "epoch.pth"), "holds no state dict"),
        "bert.pth": "it lacks the weights 'final_logits_bias', of ",
        "more.pth": r"it has other weights 'head.bias', of 1\)",
        "wide.pth": r"other sizes of weights 'final_logits_bias', of 1\)",
    }.items():
        with pytest.raises(MetricInputError, match=f"'{name}' cannot be used: .*{message}") as error:
            BARTScore(folders["bart"], weights=name)
        assert "\n" not in str(error.value)
    for no_path in (3, "", ["bart_score.pth"]):
        with pytest.raises(MetricInputError, match=r"bartscore: weights .* is no path of a file"):
            BARTScore(folders["bart"], weights=no_path)
    with pytest.raises(MetricInputError, match=r"layers\.0\.fc1\.bias are not all finite numbers"):
        BARTScore(folders["bart"], weights="nan.pth")
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("as_file", [False, True])
def test_max_min_maps_the_set_to_0_and_1(folders, rows, tmp_path, as_file):
    plain = BARTScore(folders["bart"])
    scores = score(plain, rows).scores
    low, high = min(scores), max(scores)
    summary = tmp_path / "scored.summary.json"
    summary.write_text(json.dumps({"signature": plain.signature, "score": {"min": low, "max": high}}))
    metric = BARTScore(folders["bart"], max_min=summary if as_file else [low, high])
    got = score(metric, rows)
    assert got.scores == pytest.approx([(value - low) / (high - low) for value in scores], abs=1e-6)
    assert (min(got.scores), max(got.scores)) == pytest.approx((0, 1), abs=1e-6)
    assert got.parts["faithfulness"] == pytest.approx(scores, rel=1e-6)
    assert metric.bounds == (-math.inf, pytest.approx(-low / (high - low)))
    assert f"|max_min:{low:.10g}..{high:.10g}|" in metric.signature


def test_max_min_worked_by_hand(folders, rows):
    """Limits -6 and -2: a score s becomes (s + 6) / 4, and 0, the highest there is, 1.5."""
    metric = BARTScore(folders["bart"], max_min=[-6, -2])
    plain = score(BARTScore(folders["bart"]), rows).scores
    assert score(metric, rows).scores == pytest.approx([(value + 6) / 4 for value in plain], rel=1e-6)
    assert metric.bounds[1] == 1.5


def test_limits_that_are_none_are_one_clear_line(folders, tuned, tmp_path):
    signature = BARTScore(folders["bart"]).signature
    contents = {
        "text.json": "{",
        "list.json": "[1]",
        "empty.json": json.dumps({"signature": signature, "score": None}),
        "other.json": json.dumps({"signature": "qascore|version:1", "score": {"min": -3, "max": -1}}),
        "one.json": json.dumps({"signature": signature, "score": {"min": -3, "max": -3}}),
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    for limits, message in (
        ([-1], "are no two numbers"),
        ([-1, -3], r"max_min=\[-1, -3\] are no two numbers \[low, high\] with low below high"),
        ([-1, math.inf], "are no two numbers"),
        (["a", 2], "are no two numbers"),
        (3, "are no two numbers"),
        (tmp_path / "none.json", "has no limits of scores"),
        (tmp_path / "text.json", "has no limits of scores"),
        (tmp_path / "list.json", "has no limits of scores"),
        (tmp_path / "empty.json", "has no limits of scores"),
        (tmp_path / "other.json", r"are scores of qascore\|version:1, but this is bartscore"),
        (tmp_path / "one.json", "are no two numbers"),
    ):
        with pytest.raises(MetricInputError, match=message) as error:
            BARTScore(folders["bart"], max_min=limits)
        assert "\n" not in str(error.value)
    (tmp_path / "own.json").write_text(json.dumps({"signature": signature, "score": {"min": -3, "max": -1}}))
    with pytest.raises(MetricInputError, match=r"are scores of .*, but this is .*weights:bart_score\.pth"):
        BARTScore(folders["bart"], weights=tuned[1], max_min=tmp_path / "own.json")
