"""Q-BLEU with the case restored: the released code's values, and equal scores in every process."""

import json
import os
import subprocess
import sys

import pytest

from rewards import MetricInputError, load
from tests.rewards.conftest import GOLDEN

FILE = GOLDEN / "fixtures" / "answerability_cases.jsonl"


@pytest.mark.slow
def test_published_numbers_and_ties_in_a_fixed_order() -> None:
    pytest.importorskip("truecase", reason="needs the package truecase")
    if not FILE.is_file():
        pytest.skip("the golden numbers (../shared/golden) are not here")
    cases = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    cases = [case for case in cases if case["type"] == "answerability_set"]
    metric = load("q_bleu1_truecased")
    assert "|truecase:" in metric.signature and "|ties:first|" in metric.signature
    questions, references = ([case[side] for case in cases] for side in ("hypothesis", "reference"))
    result = metric.score(questions, references=[[text] for text in references])
    assert result.scores == pytest.approx([case["expected"]["qbleu1"] for case in cases], abs=1e-9)
    assert result.parts["ngram"] == pytest.approx([case["expected"]["bleu1"] for case in cases], abs=1e-9)
    # Forms of a word are held in sets, whose order depends on the hash seed of the process.
    forms = metric._caser.word_casing_lookup
    assert all(isinstance(found, list) and found == sorted(found) for found in list(forms.values())[:1000])


def test_without_the_package_an_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['truecase'] = None\n"
        "from rewards import load\n"
        "try: load('q_bleu1_truecased')\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
    assert "q_bleu_truecased needs the package truecase: pip install 'rl-qg[truecase]'" in done.stdout, done.stderr
    with pytest.raises(MetricInputError, match="order"):
        load("q_bleu1_truecased", order=5)
