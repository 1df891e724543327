"""`rl-qg explain` and `rl-qg baselines`, as a user types them, with the shipped miniatures."""

import json
from pathlib import Path

import pytest

from rewards import MetricInputError, QRelScore
from rl_qg.commands.cli import run_command
from rl_qg.runtime.errors import InputError

MODELS = Path(__file__).parents[3] / "rl_qg" / "miniatures" / "pretrained"
REWARD = ["reward=qrelscore", f"reward.encoder={MODELS / 'bert'}", f"reward.decoder={MODELS / 'gpt2'}"]
OFFLINE = ["data=world", "data.world.train_passages=40", "training.use_cpu=true"]


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)


def test_explain_takes_any_text_literally(tmp_path):
    question = "Who's born in Tessel, {when}, and ${why}?"
    context = 'Ilva "M" Maron was born in Tessel, in 1871: [see] <b>there</b>.'
    output = tmp_path / "new" / "why.html"
    run_command("explain", [*REWARD, *OFFLINE, f"question={question}", f"context={context}", f"output={output}"])
    explained = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))
    assert (explained["question"], explained["context"]) == (question, context)
    expected = QRelScore(str(MODELS / "bert"), str(MODELS / "gpt2")).score([question], [context])
    assert explained["score"] == pytest.approx(expected.scores[0])
    page = output.read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page and "<b>there</b>" not in page


@pytest.mark.slow
def test_baselines_are_estimated_and_used(tmp_path):
    output, rows = tmp_path / "baselines.json", tmp_path / "in.jsonl"
    run_command("baselines", [*REWARD, *OFFLINE, "pairs=20", f"output={output}"])
    estimates = json.loads(output.read_text(encoding="utf-8"))
    assert estimates["pairs"] == 20 and 0 < estimates["lrm"] < 1 and estimates["grg"] >= 0
    context = "Ilva Maron was born in Tessel in 1871. She studied law in Orvane."
    rows.write_text(json.dumps({"question": "Where was Ilva Maron born?", "context": context}) + "\n")
    lrm = {}
    for name, extra in (("plain", []), ("rescaled", [f"reward.baselines={output}"])):
        scored = tmp_path / f"{name}.jsonl"
        run_command("score", [*REWARD, *OFFLINE, *extra, f"input={rows}", f"output={scored}"])
        lrm[name] = json.loads(scored.read_text(encoding="utf-8"))["parts"]["lrm"]
    assert lrm["rescaled"] == pytest.approx(max(0.0, (lrm["plain"] - estimates["lrm"]) / (1 - estimates["lrm"])))


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("explain", ["question=q", "context=c", "output=file/why.html"], "output=file/why.html: cannot be written"),
        ("explain", ["question=Who", "context=c", "output=why.html"], "nothing to explain: .*no token"),
        ("baselines", ["output=b.json", "pairs=1000000"], r"baselines: only \d+ of \d+ pairs .* 1000000 are wanted"),
        ("baselines", ["output=b.json", "reward.references=true"], "baselines=None and references=False"),
        ("baselines", ["output=b.json", "reward.baselines=released"], "reward.baselines is set"),
    ],
)
def test_bad_input_is_one_line(command, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises((InputError, MetricInputError), match=message):
        run_command(command, [*REWARD, *OFFLINE, *arguments])
    assert {path.name for path in tmp_path.iterdir()} == {"file"}


def test_baselines_are_those_of_qrelscore(tmp_path):
    arguments = ["reward=bartscore", f"reward.model={MODELS / 'bart'}", *OFFLINE, f"output={tmp_path / 'b.json'}"]
    with pytest.raises(InputError, match="use reward=qrelscore"):
        run_command("baselines", arguments)


def test_baselines_log_how_to_use_them(tmp_path, caplog):
    output = tmp_path / "baselines.json"
    with caplog.at_level("INFO"):
        run_command("baselines", [*REWARD, *OFFLINE, "pairs=5", "seed=4", f"output={output}"])
    estimates = json.loads(output.read_text(encoding="utf-8"))
    assert estimates["seed"] == 4
    for part in ("lrm", "grg"):
        assert f"{part} {estimates[part]:.4f} (standard error {estimates['standard_error'][part]:.4f})" in caplog.text
    assert f"reward.baselines={output}" in caplog.text
