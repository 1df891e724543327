"""A reader's training that is stopped and goes on: the same files; another run's folder is refused."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rl_qg.readers.reader import load_model
from rl_qg.readers.train_reader import QATrainer
from rl_qg.runtime.errors import InputError
from tests.toy_reader import contents, run, toy_examples, toy_settings


@pytest.fixture(scope="module")
def whole(distilbert, tmp_path_factory) -> Path:
    """A run of two seeds that nothing interrupted."""
    output = tmp_path_factory.mktemp("whole")
    run(output, toy_settings(distilbert, seeds=[0, 1]))
    return output


@pytest.fixture(scope="module", autouse=True)
def _collected_once() -> Iterator[None]:
    """The library collects garbage whenever training begins; what is loaded by now need not be looked at each time."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_only_the_seed_changes_the_result(distilbert, whole, tmp_path) -> None:
    run(tmp_path / "same", toy_settings(distilbert, seeds=[0, 1]))
    assert contents(tmp_path / "same") == contents(whole)
    run(tmp_path / "other", toy_settings(distilbert, seeds=[1], epochs=1))
    heads = [load_model(str(folder)).state_dict()["qa_outputs.weight"] for folder in (whole, tmp_path / "other")]
    assert not torch.allclose(*heads, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "calls", "steps_left"),
    [("training_step", 2, 12), ("training_step", 5, 9), ("training_step", 8, 6), ("predict_logits", 1, 0)],
)
def test_an_interrupted_run_ends_with_the_same_files(
    distilbert, whole, tmp_path, monkeypatch, where, calls, steps_left
) -> None:
    """Two seeds, two epochs of three steps: stopped before and after a checkpoint, in the second seed, at its end."""
    settings = toy_settings(distilbert, seeds=[0, 1])
    count = {"training_step": 0, "predict_logits": 0}

    def counting(name: str, limit: int):
        original = getattr(QATrainer, name)

        def wrapped(self, *args, **kwargs):
            count[name] += 1
            if name == where and count[name] > limit:
                raise KeyboardInterrupt
            return original(self, *args, **kwargs)

        return wrapped

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(QATrainer, where, counting(where, calls))
        run(tmp_path / "resumed", settings)
    assert not (tmp_path / "resumed" / "qa_metrics.json").exists()
    count["training_step"] = 0
    monkeypatch.setattr(QATrainer, "training_step", counting("training_step", 100))
    run(tmp_path / "resumed", settings)
    assert count["training_step"] == steps_left
    assert contents(tmp_path / "resumed") == contents(whole)


def test_an_incomplete_checkpoint_is_skipped(distilbert, whole, tmp_path, monkeypatch) -> None:
    settings = toy_settings(distilbert, seeds=[0, 1])

    def stop(self, windows):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(QATrainer, "predict_logits", stop)
        run(tmp_path / "torn", settings)
    (checkpoint,) = (tmp_path / "torn" / "seed-0").glob("checkpoint-*")
    state = (checkpoint / "trainer_state.json").read_text()
    (checkpoint / "trainer_state.json").write_text(state[: len(state) // 2])
    (checkpoint / "model.safetensors").write_bytes(b"torn")
    run(tmp_path / "torn", settings)
    assert contents(tmp_path / "torn") == contents(whole)


@pytest.mark.slow
def test_a_run_stopped_at_its_last_step_within_an_epoch_ends_with_the_same_files(
    distilbert, tmp_path, monkeypatch
) -> None:
    settings = toy_settings(distilbert, max_steps=4)
    run(tmp_path / "straight", settings)

    def stop(self, windows):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(QATrainer, "predict_logits", stop)
        run(tmp_path / "resumed", settings)
    assert (tmp_path / "resumed" / "seed-0" / "checkpoint-4").is_dir()
    run(tmp_path / "resumed", settings)
    assert contents(tmp_path / "resumed") == contents(tmp_path / "straight")


def test_finished_seeds_are_not_trained_again(distilbert, tmp_path, monkeypatch) -> None:
    before = run(tmp_path / "qa", toy_settings(distilbert, seeds=[0]))
    again = run(tmp_path / "qa", toy_settings(distilbert, seeds=[0, 1]))
    assert again["seeds"][0] == before["seeds"][0] and len(again["seeds"]) == 2

    def forbidden(*args, **kwargs):
        raise AssertionError("loaded although everything is finished")

    monkeypatch.setattr("rl_qg.readers.reader.load_model", forbidden)
    monkeypatch.setattr("rl_qg.readers.reader.load_tokenizer", forbidden)
    assert run(tmp_path / "qa", toy_settings(distilbert, seeds=[0, 1])) == again


def test_other_settings_data_or_seed_order_are_refused(distilbert, tmp_path) -> None:
    settings = toy_settings(distilbert, seeds=[0, 1], epochs=1)
    run(tmp_path / "qa", settings)
    before = contents(tmp_path / "qa")
    with pytest.raises(
        InputError, match=r"seed-0: holds a reader with other settings \(learning_rate\): choose another"
    ):
        run(tmp_path / "qa", replace(settings, learning_rate=1e-4))
    changed = r"data.train: has changed since .*seed-0 was begun \(SHA-256 of its examples \w{8}, now \w{8}\)"
    with pytest.raises(InputError, match=changed):
        run(tmp_path / "qa", settings, train=toy_examples(47, 1))
    with pytest.raises(InputError, match=changed):  # the order decides the batches
        run(tmp_path / "qa", settings, train=toy_examples(48, 1)[::-1])
    with pytest.raises(InputError, match=r"seed-1: holds a reader with other settings \(keeps_model\)"):
        run(tmp_path / "qa", replace(settings, seeds=[1, 0]))
    assert contents(tmp_path / "qa") == before
    (tmp_path / "qa" / "seed-1" / "qa_metrics.json").unlink()  # as if killed before
    accepted = run(tmp_path / "qa", settings, train=toy_examples(47, 1), accept_changed_data=True)
    assert [row["seed"] for row in accepted["seeds"]] == [0, 1]
    others = [replace(one, id=f"other-{one.id}") for one in toy_examples(24, 2)]
    with pytest.raises(InputError, match=r"qa: its finished readers were scored on other questions"):
        run(tmp_path / "qa", settings, validation=others, accept_changed_data=True)


def test_batches_by_length_go_on_after_an_interruption_and_pad_less(distilbert, tmp_path, monkeypatch) -> None:
    settings, seen = toy_settings(distilbert, by_length=True), list[list[list[int]]]()
    step = QATrainer.training_step

    def recorded(self, model, inputs, *args, **kwargs):
        if len(seen) == limit:
            raise KeyboardInterrupt
        seen.append([ids[ids != 0].tolist() for ids in inputs["input_ids"]])
        return step(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(QATrainer, "training_step", recorded)
    limit = 100
    run(tmp_path / "whole", settings)
    whole, limit, seen[:] = [*seen], 4, []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "resumed", settings)
    limit, seen[:] = 100, []
    run(tmp_path / "resumed", settings)
    assert seen == whole[3:]
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")
    assert whole[:3] != whole[3:]  # another order in each epoch
    longest, *_, shortest = [[len(ids) for ids in batch] for batch in whole[:3]]
    assert min(longest) >= max(shortest)


def test_what_a_reader_was_trained_with_is_compared_in_both_directions(distilbert, tmp_path) -> None:
    for first in (True, False):
        folder = tmp_path / str(first)
        run(folder, toy_settings(distilbert, by_length=first, max_steps=1))
        with pytest.raises(InputError, match=r"other settings .*by_length"):
            run(folder, toy_settings(distilbert, by_length=not first, max_steps=1))


def test_training_in_bfloat16_on_a_cpu_uses_no_fused_attention(distilbert, tmp_path, monkeypatch) -> None:
    used = set()
    step = QATrainer.training_step

    def recorded(self, model, *args, **kwargs):
        used.add((self.args.bf16, model.config._attn_implementation))
        return step(self, model, *args, **kwargs)

    monkeypatch.setattr(QATrainer, "training_step", recorded)
    run(tmp_path / "exact", toy_settings(distilbert, max_steps=1))
    run(tmp_path / "short", toy_settings(distilbert, max_steps=1), precision="bf16")
    assert used == {(False, "sdpa"), (True, "eager")}
