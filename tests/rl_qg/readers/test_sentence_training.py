"""Training classifiers of sentences: what they learn, when they stop, how they resume, and the folder they leave."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rl_qg.commands.cli import run_command
from rl_qg.data.examples import write_squad
from rl_qg.readers.fine_tuning import FineTuning
from rl_qg.readers.sentences import SentenceClassifier, best_threshold, decisions, labelled_sentences, set_aside
from rl_qg.readers.train_sentences import SentenceTrainer, epochs_without_gain, train_sentences
from rl_qg.runtime.errors import InputError, Terminated
from rl_qg.runtime.trainer_base import Preemption
from rl_qg.settings import QAModelSettings
from tests.rl_qg.readers.toy_sentences import passages, save_encoder, toy_settings
from tests.tiny_models import piece_tokenizer, save, tiny
from tests.toy_reader import FILLER


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def test_it_learns_which_words_are_worth_a_question_and_its_folder_is_all_it_needs(
    encoder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    validation = passages(20, 2)
    settings = toy_settings(encoder, threshold="tuned", pooling="mean", learning_rate=2e-3, batch_size=8, epochs=6)
    metrics = train_sentences(passages(60, 1), validation, FineTuning(settings, folder, seed=3, use_cpu=True))
    assert metrics == json.loads((folder / "sentence_metrics.json").read_text())
    assert metrics["scores"]["f1"]["value"] > 0.95
    gap = metrics["baselines"]["every"]["difference"]["f1"]
    assert gap["low"] > 0.05 and gap["p"] < 0.01
    assert metrics["set_aside"] == "articles" and metrics["sentences"] == 4 * metrics["passages"]
    encoder.rename(tmp_path / "elsewhere")  # the folder needs nothing but itself
    try:
        classifier = SentenceClassifier.from_pretrained(folder)
    finally:
        (tmp_path / "elsewhere").rename(encoder)
    assert (classifier.kind, classifier.labels) == ("worthiness", ("worthy",))
    texts = [["The fox saw a red.", "Very near to a the.", "Was paris and the a."], [], ["The the a a to."]]
    assert classifier.worthy(texts) == [[True, False, True], [], [False]]
    whole = classifier(texts)
    assert [rows.shape for rows in whole] == [(3, 1), (0, 1), (1, 1)]
    alone = [classifier([[text]])[0][0, 0] for text in texts[0]]
    np.testing.assert_allclose(whole[0][:, 0], alone, rtol=1e-5)
    with pytest.raises(InputError, match="kind=worthiness knows no types"):
        classifier.types(texts)
    with pytest.raises(InputError, match=r"ask\.types=.*it is of kind=worthiness; train one with kind=types"):
        SentenceClassifier.from_pretrained(folder, key="ask.types", kinds=("types",))


def test_scores_and_thresholds_are_those_of_the_saved_model(encoder: Path, tmp_path: Path) -> None:
    """Computed again from the folder: which articles were set aside, the tuned thresholds, and F1 by counting."""
    train, validation = passages(40, 1), passages(15, 2)
    settings = toy_settings(encoder, kind="types", epochs=1, threshold="tuned", development=0.25)
    metrics = train_sentences(train, validation, FineTuning(settings, tmp_path, seed=3, use_cpu=True))
    classifier = SentenceClassifier.from_pretrained(tmp_path)
    assert metrics["thresholds"] == dict(zip(classifier.labels, classifier.thresholds, strict=True))
    assert metrics["examples"]["train"]["questions"] + metrics["examples"]["development"]["questions"] == len(train)
    labelled, _ = labelled_sentences(validation, "types")
    rows = np.concatenate(classifier([one.sentences for one in labelled]))
    chosen = decisions(rows, classifier.thresholds, at_least_one=True)
    actual = np.concatenate([one.labels for one in labelled])
    f1 = 2 * (chosen & actual).sum() / (chosen.sum() + actual.sum())
    assert metrics["scores"]["f1"]["value"] == pytest.approx(f1)
    who, where = (classifier.labels.index(name) for name in ("who", "where"))
    frequent = max(who, where, key=lambda label: actual[:, label].sum())
    baseline = metrics["baselines"]["most_frequent"]["scores"]
    assert baseline["precision"]["value"] == pytest.approx(actual[:, frequent].mean())
    assert metrics["labels"]["who"]["support"] == actual[:, who].sum()
    own = json.loads((tmp_path / "config.json").read_text())["sentence_classifier"]
    assert own["kind"] == "types" and own["thresholds"] == list(classifier.thresholds)
    assert own["weights"][classifier.labels.index("why")] == 1.0  # nobody asked


def test_types_are_learned_and_every_sentence_has_one(tmp_path: Path) -> None:
    encoder = save_encoder(tmp_path / "encoder", spread=0.3)
    settings = toy_settings(encoder, kind="types", batch_size=8, epochs=8, patience=9)
    metrics = train_sentences(passages(120, 1), passages(15, 2), FineTuning(settings, tmp_path, seed=3, use_cpu=True))
    assert metrics["labels"]["who"]["f1"]["value"] > 0.9 and metrics["labels"]["where"]["f1"]["value"] > 0.9
    classifier = SentenceClassifier.from_pretrained(tmp_path)
    assert classifier.types([["The fox saw a and.", "Very paris was near to."], ["A fox near rome and."]]) == [
        *([["who"], ["where"]], [["who", "where"]])
    ]
    assert all(len(found) >= 1 for found in classifier.types([["Very very a the and.", "The a to near ran."]])[0])
    with pytest.raises(InputError, match="kind=types does not say"):
        classifier.worthy([["A fox."]])


def test_only_the_hierarchical_one_learns_the_place_in_the_passage(encoder: Path, tmp_path: Path) -> None:
    """All sentences are alike, and the first of each passage is asked about."""
    scores = {}
    for kind, size in (("hierarchical", 8), ("worthiness", 32)):
        metrics = train_sentences(
            *(passages(50, 1, first_only=True), passages(20, 2, first_only=True)),
            FineTuning(
                toy_settings(encoder, kind=kind, batch_size=size, epochs=5, patience=9),
                tmp_path / kind,
                seed=3,
                use_cpu=True,
            ),
        )
        scores[kind] = metrics["scores"]["accuracy"]["value"]
    assert scores["hierarchical"] > 0.95
    assert scores["worthiness"] < 0.8  # 3 of 4 are right where all are said to be not worthy


# --- When it stops, and how it goes on ---


def test_patience_counts_epochs_since_the_lowest_loss() -> None:
    def waited(*losses: float) -> int:
        log = [entry for loss in losses for entry in ({"loss": 0.1}, {"eval_loss": loss})]
        return epochs_without_gain(SimpleNamespace(log_history=log))  # type: ignore[arg-type]

    assert [waited(), waited(3.0), waited(3.0, 2.0), waited(2.0, 3.0, 2.0), waited(2.0, 1.0, 1.5, 1.2)] == [
        0,
        0,
        0,
        2,
        2,
    ]


def test_it_stops_early_and_keeps_the_best_epoch(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the sentence alone there is nothing to learn: the held-out loss soon rises."""
    losses: list[float] = []
    original = SentenceTrainer.evaluate

    def evaluate(self: SentenceTrainer, *args: object, **kwargs: object) -> dict[str, float]:
        found = original(self, *args, **kwargs)
        losses.append(found["eval_loss"])
        return found

    monkeypatch.setattr(SentenceTrainer, "evaluate", evaluate)
    data = (passages(24, 1, first_only=True), passages(5, 2, first_only=True))
    settings = toy_settings(encoder, epochs=40)
    metrics = train_sentences(*data, FineTuning(settings, tmp_path, seed=3, use_cpu=True))
    best = int(np.argmin(losses))
    assert len(losses) == best + 1 + 2 < 40
    assert (metrics["best"]["loss"], metrics["best"]["epoch"]) == (losses[best], best + 1)
    kept = SentenceClassifier.from_pretrained(tmp_path)
    _, development, _ = set_aside(data[0], settings.development, 3)
    labelled, _ = labelled_sentences(development, "worthiness")
    rows = np.concatenate(kept([one.sentences for one in labelled])).astype(np.float64)
    actual = np.concatenate([one.labels for one in labelled])
    assert -np.log(np.where(actual, rows, 1 - rows)).mean() == pytest.approx(losses[best], rel=1e-4)


def test_a_stopped_training_goes_on_to_the_same_folder(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM within an epoch, whose loss at that step must not count, and again at the end of one."""
    original = Preemption.on_step_end

    def stop_at(step: int) -> None:
        def stop(self: Preemption, args: object, state: object, control: object, **kwargs: object) -> None:
            self.signalled = state.global_step == step  # type: ignore[attr-defined]
            original(self, args, state, control, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(Preemption, "on_step_end", stop)

    def train(name: str) -> tuple[bytes, str]:
        settings = toy_settings(encoder, kind="hierarchical", epochs=9, patience=1, learning_rate=0.05, batch_size=4)
        folder = tmp_path / name
        data = (passages(14, 1), passages(4, 2))
        train_sentences(*data, FineTuning(settings, folder, seed=3, use_cpu=True))
        return (folder / "model.safetensors").read_bytes(), (folder / "sentence_metrics.json").read_text()

    whole = train("whole")
    for step in (2, 4):  # an epoch has four updates
        stop_at(step)
        with pytest.raises(Terminated):
            train("stopped")
        state = json.loads((tmp_path / "stopped" / f"checkpoint-{step}" / "trainer_state.json").read_text())
        assert sum("eval_loss" in entry for entry in state["log_history"]) == (step == 4)
    monkeypatch.undo()
    assert train("stopped") == whole
    monkeypatch.setattr("rl_qg.readers.train_sentences._trainer", lambda *_, **__: pytest.fail("trained again"))
    assert train("stopped") == whole


# --- Bad input, and the command ---


def test_unusable_data_settings_and_models_are_one_line(encoder: Path, tmp_path: Path) -> None:
    def fault(train: list, **changes: object) -> str:
        with pytest.raises(InputError) as error:
            tuning = FineTuning(toy_settings(encoder, **changes), tmp_path / "run", seed=0, use_cpu=True)
            train_sentences(train, passages(2, 0), tuning)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "data.train: no example with a question is there for development" in fault(passages(1, 1))
    assert "max_length=128 is above the 64 tokens" in fault(passages(4, 1), max_length=128)
    assert "no such folder" in fault(passages(4, 1), model=QAModelSettings("/no/model"))
    from transformers import BertModel

    bare = piece_tokenizer(FILLER, pairs=False, model_max_length=64)
    path = save(tmp_path / "bare", bare, tiny(BertModel, len(bare)))
    assert "no class token first: use train_sentences.pooling=mean" in fault(
        passages(4, 1), model=QAModelSettings(path), pooling="cls"
    )
    with pytest.raises(InputError, match=r"^folder=.*it is no folder of rl-qg train-sentences"):
        SentenceClassifier.from_pretrained(encoder)


def test_the_command_and_its_refusals(encoder: Path, tmp_path: Path) -> None:
    write_squad(tmp_path / "train.json", passages(8, 1))
    write_squad(tmp_path / "dev.json", passages(3, 2))
    arguments = [
        *(f"data.train={tmp_path / 'train.json'}", f"data.validation={tmp_path / 'dev.json'}"),
        *(f"model.path={encoder}", "max_steps=2", "max_length=32", "batch_size=4", "threshold=0.5"),
        *("training.use_cpu=true", "kind=hierarchical", f"output_dir={tmp_path / 'run'}"),
    ]
    run_command("train-sentences", arguments)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(record["data"]) == 2
    assert SentenceClassifier.from_pretrained(tmp_path / "run").thresholds == (0.5,)
    with pytest.raises(InputError, match=r"other settings \(train_sentences\.kind: 'hierarchical' -> 'types'\)"):
        run_command("train-sentences", [*arguments, "kind=types"])
    with pytest.raises(InputError, match="sentences that were asked about would count as not worth a question"):
        run_command("train-sentences", [*arguments, "data.labelled_fraction=0.5", "data.labelled_unit=questions"])
    with pytest.raises(InputError, match=r"train_sentences\.threshold=0\.4 is not one of 0\.5, tuned"):
        run_command("train-sentences", [*arguments, "threshold=0.4"])


def test_tuning_changes_only_the_thresholds(encoder: Path, tmp_path: Path) -> None:
    probabilities, thresholds = {}, {}
    texts = [["The fox saw a.", "Very near to a.", "Was paris and the."]]
    for name in ("0.5", "tuned"):
        settings = toy_settings(encoder, threshold=name, epochs=1, development=0.0)
        data = (passages(12, 1), passages(6, 2))
        train_sentences(*data, FineTuning(settings, tmp_path / name, seed=3, use_cpu=True))
        classifier = SentenceClassifier.from_pretrained(tmp_path / name, device=torch.device("cpu"))
        probabilities[name], thresholds[name] = classifier(texts)[0], classifier.thresholds
    np.testing.assert_array_equal(probabilities["0.5"], probabilities["tuned"])
    labelled, _ = labelled_sentences(passages(6, 2), "worthiness")  # development=0: the validation data
    rows = np.concatenate(classifier([one.sentences for one in labelled]))[:, 0]
    best = best_threshold(rows, np.concatenate([one.labels for one in labelled])[:, 0])
    assert thresholds == {"0.5": (0.5,), "tuned": (pytest.approx(best, abs=1e-6),)}
