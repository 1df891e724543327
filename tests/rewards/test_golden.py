"""Every metric against stored numbers of the slow reference, for the miniatures that ship with the package."""

import json

import pytest

from rewards import BARTScore, QAScore, QRelScore
from tests.rewards.make_golden import GOLDEN, PRETRAINED

CASES = json.loads(GOLDEN.read_text(encoding="utf-8"))
COLUMNS = {f"{field}s": [case[field] for case in CASES] for field in ("question", "context", "answer")}
MODEL = {name: str(PRETRAINED / name) for name in ("bert", "gpt2", "roberta", "bart")}


@pytest.mark.parametrize("variant", ["official", "paper"])
def test_qrelscore(variant):
    result = QRelScore(MODEL["bert"], MODEL["gpt2"], variant).score(COLUMNS["questions"], COLUMNS["contexts"])
    for row, case in enumerate(CASES):
        want = case["expected"][f"qrelscore_{variant}"]
        got = {**{part: values[row] for part, values in result.parts.items()}, "score": result.scores[row]}
        assert got == pytest.approx(want, rel=1e-5, abs=1e-5), case["question"]


@pytest.mark.parametrize(("variant", "unit"), [("paper", "token"), ("paper", "word"), ("official", "token")])
def test_qascore(variant, unit):
    result = QAScore(MODEL["roberta"], variant, unit).score(**COLUMNS)
    for row, case in enumerate(CASES):
        want = case["expected"][f"qascore_{variant}_{unit}"]
        assert result.parts["token_logprobs"][row] == pytest.approx(want, rel=1e-5, abs=1e-5), case["question"]


def test_bartscore():
    got = BARTScore(MODEL["bart"]).score(COLUMNS["questions"], COLUMNS["contexts"]).scores
    assert got == pytest.approx([case["expected"]["bartscore"] for case in CASES], abs=1e-5)
