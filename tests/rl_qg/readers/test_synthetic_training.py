"""Readers taught by synthetic questions alone: the draws of trials, their choice, and what the best is trained on."""

import logging
import math
from pathlib import Path
from typing import Any

import pytest

from rl_qg.data.examples import passage_hash
from rl_qg.readers.reader import score_predictions
from rl_qg.readers.train_reader import draw_trials, train_on_synthetic, train_reader, trial_questions
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.settings import QASettings, ReaderTrials
from tests.toy_reader import save_distilbert, toy_examples, toy_settings


def test_trials_are_drawn_evenly_from_the_published_space() -> None:
    trials = draw_trials(ReaderTrials(count=2000))
    assert trials == draw_trials(ReaderTrials(count=2000)) != draw_trials(ReaderTrials(count=2000, seed=1))
    assert trials[:10] == draw_trials(ReaderTrials(count=10))  # more trials begin with the same ones
    rates = [math.log10(trial["learning_rate"]) for trial in trials]
    assert -6 <= min(rates) < -5.9 and -4.1 < max(rates) <= -4
    assert sum(rate < -5 for rate in rates) / 2000 == pytest.approx(0.5, abs=0.05)  # on the logarithmic scale
    for name, values in (("epochs", [1, 2, 3, 4, 5]), ("batch_size", [4, 8, 16, 32, 64])):
        counts = [sum(trial[name] == value for trial in trials) for value in values]
        assert sum(counts) == 2000 and min(counts) > 300


def test_trials_train_and_judge_on_different_passages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    examples = toy_examples(60, 1)
    train, validation = trial_questions("ce", examples, ReaderTrials(count=1, train=20, validation=10))
    assert len(train) == 20 and len(validation) == 10
    assert caplog.messages == [
        "qa_evaluate.trials.validation=10: 10 of 60 questions judge the trials",
        "qa_evaluate.trials.train=20: 20 of 50 other questions train the trials",
    ]
    first, second = ({passage_hash(example.context) for example in part} for part in (train, validation))
    assert not first & second
    with pytest.raises(InputError, match="ce: the 3 questions are about too few passages"):
        trial_questions("ce", toy_examples(3, 1), ReaderTrials(count=1))


def test_the_best_trial_on_synthetic_questions_is_trained_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for training, whose F1 is best near a learning rate of 1e-5: human questions decide nothing."""
    calls: list[dict[str, Any]] = []
    synthetic, gold = toy_examples(40, 1), toy_examples(6, 2)

    def stand_in(train: Any, validation: Any, *, settings: QASettings, output_dir: Path, **options: Any) -> Any:
        calls.append({"train": train, "validation": validation, "settings": settings, "folder": output_dir})
        f1 = 100 / (1 + abs(math.log10(settings.learning_rate) + 5))
        for seed in settings.seeds:
            rows = {example.id: {"exact_match": 0.0, "f1": 0.5} for example in validation}
            write_json(output_dir / f"seed-{seed}" / "question_scores.json", rows)
        (output_dir / "model.safetensors").write_bytes(b"weights")
        return {"exact_match": 0.0, "f1": f1}

    monkeypatch.setattr("rl_qg.readers.train_reader.train_reader", stand_in)
    trials = ReaderTrials(count=8, train=12, validation=8)
    result = train_on_synthetic(
        "ce", synthetic, gold, settings=QASettings(seeds=[3, 4], max_steps=7), trials=trials, folder=tmp_path
    )
    best = min(draw_trials(trials), key=lambda trial: abs(math.log10(trial["learning_rate"]) + 5))
    assert result.chosen["learning_rate"] == best["learning_rate"] and len(result.trials) == 8
    *searched, last = calls
    assert all(call["validation"] != gold and call["settings"].seeds == [3] for call in searched)
    assert last["train"] == synthetic and last["validation"] == gold and last["settings"].seeds == [3, 4]
    used = last["settings"]
    assert (used.epochs, used.batch_size, used.max_steps) == (best["epochs"], best["batch_size"], -1)
    assert result.scores["f1"].shape == (2, 6) and result.scores["f1"].mean() == 50
    assert not list(tmp_path.rglob("*.safetensors"))


def test_without_trials_it_is_the_reader_of_rl_qg_qa(tmp_path: Path) -> None:
    """And a second call trains nothing again, without its weights."""
    settings = toy_settings(save_distilbert(tmp_path / "model", size=16), seeds=[0, 1], max_steps=2)
    synthetic, gold = toy_examples(16, 1), toy_examples(8, 2)
    plain = train_reader(synthetic, gold, settings=settings, output_dir=tmp_path / "plain", use_cpu=True)
    given = {"settings": settings, "trials": ReaderTrials(), "folder": tmp_path / "qa", "use_cpu": True}
    result = train_on_synthetic("ce", synthetic, gold, **given)
    assert result.scores["f1"].mean() == pytest.approx(plain["f1"])
    for seed, row in enumerate(result.scores["exact_match"]):
        answers = read_json(tmp_path / "qa" / "reader" / f"seed-{seed}" / "predictions.json")
        assert row.mean() == pytest.approx(score_predictions(answers, gold).exact_match)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "qa").rglob("predictions.json")}
    again = train_on_synthetic("ce", synthetic, gold, **given)
    assert (again.scores["f1"] == result.scores["f1"]).all()
    seeds = [path for path in times if path.parent.name.startswith("seed-")]
    assert len(seeds) == 2 and all(path.stat().st_mtime_ns == times[path] for path in seeds)
    assert not list((tmp_path / "qa").rglob("*.safetensors"))
