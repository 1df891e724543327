"""`rl-qg train-selector`: pools of a generator and human questions to a selector, continued after a kill."""

import json
import logging
from pathlib import Path

import pytest

from rl_qg.asking import ask_documents as selector_stage
from rl_qg.asking.learned_selector import FEATURES, LearnedSelector
from rl_qg.commands.cli import run_command
from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.runtime.errors import InputError
from tests.rl_qg.generation.test_question_pool import tiny


def test_a_selector_from_data_to_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(selector_stage, "PASSAGES", 2)
    tiny(Path("model"), granularity="sentence", mode="one2one")
    examples = [
        QAExample(f"{k}{end}", "t", f"W{k} w2 w3 . W4 w{k + 1} w5 .", f"w{k} w{end} ?", (Answer("w2", 3),))
        for k in range(5)
        for end in (2, 3)
    ]
    write_squad("dev.json", examples)
    command = ["data.train=dev.json", "model.path=model", "output=s.json", "candidates=4", "training.use_cpu=true"]
    run_command("train-selector", command)
    first, pools = Path("s.json").read_bytes(), Path("s.pools.jsonl").read_bytes()
    assert json.loads(first)["features"] == list(FEATURES)
    selector = LearnedSelector.load(Path("s.json"))
    assert selector.passages == 5 and selector.size.intercept == 2.0  # people asked two questions about each
    assert (selector.strategy, selector.model) == ("sentence_one2one", "model")
    selector.warn_unless_of("sentence_one2one")
    assert "the selector has learned" not in caplog.text
    selector.warn_unless_of("type_one2one")
    assert "of sentence_one2one by model, and these are of type_one2one" in caplog.text
    Path("s.pools.jsonl").write_bytes(pools[:-9])
    run_command("train-selector", command)
    assert (Path("s.pools.jsonl").read_bytes(), Path("s.json").read_bytes()) == (pools, first)
    with pytest.raises(InputError, match=r"holds pools made with other settings \(seed: 0 -> 1\)"):
        run_command("train-selector", [*command, "seed=1"])
    with pytest.raises(InputError, match=r"holds pools made with other settings \(model_format: None -> valhalla-e2e"):
        run_command("train-selector", [*command, "model.format=valhalla-e2e-qg"])
    Path("a.txt").write_text(examples[0].context)
    ask = [
        "a.txt",
        "strategy=sentence_one2one",
        "model.path=model",
        "select=learned",
        "selector=s.json",
        "candidates=4",
    ]
    run_command("ask", [*ask, "number=auto", "output=a.jsonl"])
    (row,) = map(json.loads, Path("a.jsonl").read_text().splitlines())
    assert row["questions"] and "by learned" in row["questions"][0]["reason"]
    with caplog.at_level(logging.INFO):
        run_command("train-selector", [*command[:2], *command[3:], "output=few.json", "max_passages=4"])
    assert "train_selector.max_passages=4: 4 of 5 passages with questions are used" in caplog.messages
    for keys, message in (
        (["output=s.txt"], r"output=s\.txt: give a name that ends in \.json"),
        (["output=t.json", "model.path="], "model.path has no value; give a model of model.task=sets"),
    ):
        with pytest.raises(InputError, match=message):
            run_command("train-selector", [*command, *keys])
