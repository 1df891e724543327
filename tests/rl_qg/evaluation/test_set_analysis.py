"""Sets of questions in `rl-qg evaluate`: means over passages, worked out by hand."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewards
from rewards.overlap.bleu import Bleu
from rl_qg.evaluation.evaluate import evaluate
from rl_qg.evaluation.references import GoldQuestions
from rl_qg.evaluation.sets import MISSING, SELF_BLEU, passage_sets, set_record
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.kept_scores import MetricRow
from rl_qg.settings import EvaluateSettings
from tests.toy_metrics import WordCount, write_lines


def row(context: str | None, question: str, *references: str) -> MetricRow:
    return MetricRow(f"f: {question}", question, context, None, references or None)


ONE = [row("p", "a b", "a b", "x y"), row("p", "c d", "x y"), row("q", "e f", "e f")]
TWO = [row("p", "x y", "x y")]


def values(record: dict[str, Any], metric: str) -> dict[tuple[str, str], float]:
    return {(row["predictions"], row["part"]): row["value"] for row in record["sets"] if row["metric"] == metric}


def test_means_over_passages_worked_out_by_hand(tmp_path: Path) -> None:
    sets = passage_sets({"one": ONE, "two": TWO}, None)
    record = set_record(sets, {"bleu": Bleu(1, "coco")}, tmp_path, resamples=200, seed=0)
    parts = values(record, "bleu")
    # p: {a b, c d} against {a b, x y}: one pair of 1, one of 0; q: {e f} against {e f}, which two never asks
    assert parts["one", "precision"] == pytest.approx((1 / 2 + 1) / 2, abs=1e-6)
    assert parts["one", "recall"] == pytest.approx((1 / 2 + 1) / 2, abs=1e-6)
    assert parts["one", "averaged"] == pytest.approx((1 / 2 + 1) / 2, abs=1e-6)
    assert parts["two", "precision"] == pytest.approx((1 + 0) / 2, abs=1e-6)
    assert parts["two", "recall"] == pytest.approx((1 / 2 + 0) / 2, abs=1e-6)
    assert parts["two", "f1"] == pytest.approx((2 / 3 + 0) / 2, abs=1e-6)
    assert values(record, MISSING) == {("one", "mean"): 0.0, ("two", "mean"): 1.0}
    assert values(record, SELF_BLEU)["one", "mean"] == pytest.approx(0, abs=1e-6)
    assert record["set_counts"] == {"passages": 2, "without_questions": {"one": 0, "two": 1}, "left_out": 0}
    assert record["set_signatures"]["bleu"].startswith("multi|") and not record["not_in_sets"]
    interval = next(row for row in record["sets"] if (row["predictions"], row["part"]) == ("two", "recall"))
    # draws of two passages reach 0 and 0.5; widened by √2 · 12.706 / 1.96 (Student's t) that is beyond the bounds
    assert (interval["low"], interval["value"], interval["high"], interval["n"]) == (0.0, pytest.approx(0.25), 1.0, 2)


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    metrics = {"bleu": Bleu(2, "coco")}
    rng, expected = np.random.default_rng(0), None
    for _ in range(4):
        shuffled = [ONE[number] for number in rng.permutation(len(ONE))]
        parts = values(
            set_record(passage_sets({"one": shuffled}, None), metrics, tmp_path, resamples=2, seed=0), "bleu"
        )
        assert expected is None or parts == pytest.approx(expected)
        expected = parts


def test_references_of_any_row_are_those_of_the_passage() -> None:
    for rows in ([row("p", "a"), row("p", "b", "r")], [row("p", "b", "r"), row("p", "a")]):
        assert passage_sets({"one": rows}, None).references == [["r"]]


def test_gold_gives_all_questions_of_a_passage(tmp_path: Path) -> None:
    gold = [
        {"id": str(at), "context": "p", "question": f"q {at}", "answers": {"text": ["p"], "answer_start": [0]}}
        for at in range(3)
    ]
    gold.append({**gold[0], "id": "elsewhere", "context": "another passage"})
    sets = passage_sets({"one": TWO}, GoldQuestions(str(write_lines(tmp_path / "gold.jsonl", gold))))
    assert sets.references == [["q 0", "q 1", "q 2"]] and sets.predictions == {"one": [["x y"]]}
    assert sets.left_out == 1


def test_a_repeated_reference_counts_as_often_as_people_asked_it(tmp_path: Path) -> None:
    """As in `match_sets` and `cardinality_difference`; several rows may name the same references."""
    questions = ["a b", "a b", "x y"]
    gold = [
        {"id": str(at), "context": "p", "question": text, "answers": {"text": ["p"], "answer_start": [0]}}
        for at, text in enumerate(questions)
    ]
    path = str(write_lines(tmp_path / "gold.jsonl", gold))
    rows = [row("p", "a b", *questions), row("p", "x y", "x y", *questions[:2])]
    for sets in (passage_sets({"one": rows}, GoldQuestions([path, path])), passage_sets({"one": rows}, None)):
        assert [sorted(texts) for texts in sets.references] == [questions]
        record = set_record(sets, {"bleu": Bleu(1, "coco")}, tmp_path / "scores", resamples=5, seed=0)
        assert values(record, MISSING)["one", "mean"] == 3 - 2
        assert values(record, "bleu")["one", "recall"] == pytest.approx(2 / 3, abs=1e-6)
        numbers = {(line["predictions"], line["part"]): line["value"] for line in record["set_measures"]}
        assert numbers["human questions", "mean"] == 3 and numbers["one", "absolute difference"] == 1


def test_a_published_system_has_the_published_difference_in_number(tmp_path: Path) -> None:
    """Of SQuAD's 2,429 test paragraphs 34 have a question twice: without these 50 the mean would be off by .0206."""
    folder = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "multi_qg"
    if not folder.is_dir():
        pytest.skip("the published predictions (../shared/data/multi_qg) are not here")
    with gzip.open(next(folder.glob("predictions/SQuADDu_one2one*.gz")), "rt", encoding="utf-8") as stream:
        documents = [json.loads(line) for line in stream]
    rows = [
        row(document["document"], question, *document["questions"])
        for document in documents
        for question in document["predictions"]
    ]
    sets = passage_sets({"one2one": rows}, None)
    differences = rewards.cardinality_difference(sets.predictions["one2one"], sets.references)
    assert np.mean(differences) == pytest.approx(-0.10580485796624126, abs=1e-12)  # len_diff of its evaluation
    repeated = {d["document"] for d in documents if len(set(d["questions"])) < len(d["questions"])}
    assert len(repeated) == 34
    few = passage_sets({"one2one": [one for one in rows if one.context in repeated]}, None)
    chosen = [document for document in documents if document["document"] in repeated]
    metric = rewards.load("coco_bleu1")
    expected = rewards.match_sets(metric, [d["predictions"] for d in chosen], [d["questions"] for d in chosen])
    record = set_record(few, {"bleu": metric}, tmp_path, resamples=2, seed=0)
    assert values(record, "bleu")["one2one", "recall"] == pytest.approx(expected.mean()["recall"], abs=1e-12)


def test_metrics_that_cannot_score_sets_are_named(tmp_path: Path) -> None:
    class Asking(Bleu):
        def __init__(self) -> None:
            super().__init__()
            self.needs = frozenset({"references", "answers"})

    context = rewards.load("answerability", against="context")
    metrics: dict[str, Any] = {"words": WordCount(), "asking": Asking(), "context": context}
    record = set_record(passage_sets({"one": ONE}, None), metrics, tmp_path, resamples=2, seed=0)
    whys = {label: why.partition(",")[0] for label, why in record["not_in_sets"].items()}
    assert whys == {
        "words": "multi: tests.toy_metrics.WordCount is no rewards.Metric",
        "asking": "it needs an answer",
        "context": "multi: answerability does not use references",
    }
    assert {row["metric"] for row in record["sets"]} == {SELF_BLEU, MISSING} == set(record["set_signatures"])


def test_a_killed_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(Exception):
        pass

    class Counting(Bleu):
        calls, last = 0, 10**9

        def compute(self, inputs: Any) -> Any:
            Counting.calls += 1
            if Counting.calls > Counting.last:
                raise Killed
            return super().compute(inputs)

    monkeypatch.setattr("rl_qg.evaluation.sets.PASSAGES_AT_ONCE", 2)
    sets = passage_sets({"one": [row(f"p{at}", f"a b {at}", "a b c", "x y") for at in range(7)]}, None)
    whole = set_record(sets, {"bleu": Counting(2)}, tmp_path / "whole", resamples=5, seed=0)
    needed, Counting.calls, Counting.last = Counting.calls, 0, 5
    with pytest.raises(Killed):
        set_record(sets, {"bleu": Counting(2)}, tmp_path / "killed", resamples=5, seed=0)
    Counting.calls, Counting.last = 0, 10**9
    assert set_record(sets, {"bleu": Counting(2)}, tmp_path / "killed", resamples=5, seed=0) == whole
    assert 0 < Counting.calls < needed
    Counting.calls = 0
    set_record(sets, {"bleu": Counting(2)}, tmp_path / "killed", resamples=5, seed=0)
    assert Counting.calls == 0


def test_rows_without_passage_or_references_are_one_line() -> None:
    with pytest.raises(InputError, match="f: a: no 'context', and sets=true"):
        passage_sets({"one": [row(None, "a", "b")]}, None)
    with pytest.raises(InputError, match="f: a: no references, and sets=true"):
        passage_sets({"one": [row("p", "a")]}, None)


def test_the_command_writes_scores_of_sets(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "q.jsonl",
        [{"question": one.question, "context": one.context, "references": list(one.references or ())} for one in ONE],
    )
    settings = EvaluateSettings(predictions=str(path), sets=True, resamples=20)
    evaluate({"bleu": rewards.load("coco_bleu1"), "words": WordCount()}, settings, tmp_path / "out")
    record = json.loads((tmp_path / "out" / "evaluate.json").read_text())
    assert values(record, "bleu")["q", "precision"] == pytest.approx(0.75, abs=1e-6)
    text = (tmp_path / "out" / "evaluate.txt").read_text(encoding="utf-8")
    assert "Sets of questions" in text and "words left out: multi: tests.toy_metrics.WordCount is no" in text
    assert (tmp_path / "out" / "tables" / "sets.csv").exists()
