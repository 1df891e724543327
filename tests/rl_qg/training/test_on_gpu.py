"""A whole self-critical step on a GPU that is not there: the same numbers, one device, and few waits of the host."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import T5ForConditionalGeneration, TrainerControl, TrainerState

from rl_qg.generation import decoding
from rl_qg.training import callbacks
from rl_qg.training.callbacks import KLCoefficient
from rl_qg.training.objectives import adapted_coefficient
from tests.pretended_gpu import CUDA, Moved, PretendedGPU, move_model, moved
from tests.rl_qg.training.word_task import WORDS, trainer
from tests.tiny_models import tiny, tiny_bart, tiny_pair, tiny_prefix, word_tokenizer

SPECIAL = {"decoder_start_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
OPTIONS: dict[str, Any] = {"ce_epochs": 0, "num_samples": 2, "watch_kl": False}


def step(folder: Path, model: Any, **options: Any) -> tuple[Any, Any, dict[str, Any]]:
    """A trainer with a model, its loss function, and a batch."""
    subject = trainer(folder, model=model, **{**OPTIONS, **options})
    subject.create_optimizer_and_scheduler(4)
    subject.state.max_steps = 4
    return subject, subject.model, next(iter(subject.get_train_dataloader()))


@pytest.mark.parametrize("baseline", ["greedy", "leave_one_out"])
@pytest.mark.parametrize("kind", ["bart", "divergence", "t5", "pair", "prefix"])
def test_a_step_has_the_same_numbers_on_one_device(tmp_path: Path, kind: str, baseline: str) -> None:
    def made() -> Any:
        size = len(word_tokenizer(WORDS))
        if kind == "t5":
            return tiny(T5ForConditionalGeneration, size, decoder_start_token_id=0)
        if kind in ("bart", "divergence"):
            return tiny_bart(size, seed=1)
        model = tiny_pair(size) if kind == "pair" else tiny_prefix(size, pad_token_id=1)
        model.config.update(SPECIAL)
        model.generation_config.update(**SPECIAL)
        return model

    options = {"baseline": baseline, "kl_coefficient": 0.1 * (kind == "divergence")}
    subject, model, batch = step(tmp_path / "cpu", made(), **options)
    expected = subject.compute_loss(model, batch)
    expected.backward()
    subject, pretended, batch = step(tmp_path / "gpu", made(), **options)
    move_model(pretended)
    with PretendedGPU() as gpu:
        loss = subject.compute_loss(pretended, {name: moved(value) for name, value in batch.items()})
        loss.backward()
    assert isinstance(loss, Moved)
    torch.testing.assert_close(loss.payload, expected)
    for here, there in zip(model.parameters(), pretended.parameters(), strict=True):
        assert (here.grad is None) == (there.grad is None)
        if here.grad is not None:
            torch.testing.assert_close(there.grad.payload, here.grad, rtol=1e-4, atol=1e-5)
    # One wait in four tokens, then for lengths and texts; the update has none, but that the reference is stored once.
    waits = {place: count for place, count in gpu.waits.items() if "reference_policy.py: save_file" not in place}
    assert sum(waits.values()) <= 5, waits
    assert all(place.split(", ")[1].startswith(("decoding.py", "prompts.py")) for place in waits), waits


def updated(subject: Any, model: Any, batch: dict[str, Any]) -> None:
    """An update as the library's loop makes it, with its callbacks."""
    handler = subject.callback_handler
    handler.model, handler.optimizer = model, subject.optimizer
    given = subject.args, subject.state, subject.control
    subject.compute_loss(model, batch).backward()
    subject._get_grad_norm(model, subject._clip_grad_norm(model))
    handler.on_pre_optimizer_step(*given)
    subject.optimizer.step()
    handler.on_optimizer_step(*given)
    subject.lr_scheduler.step()
    model.zero_grad()
    subject.state.global_step += 1
    handler.on_step_end(*given)


def test_updates_by_a_nucleus_have_the_same_numbers_and_wait_for_the_norm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "LIKELIEST", 3)  # fewer than a nucleus has here
    size, found = len(word_tokenizer(WORDS)), []
    options = {"top_p": 0.9, "normalise_advantage": "running", "baseline": "leave_one_out", "max_grad_norm": 0.1}
    for name in ("cpu", "gpu"):
        subject, model, batch = step(tmp_path / name, tiny_bart(size, seed=1), **options)
        gpu = PretendedGPU()
        subject.optimizer = subject.lr_scheduler = None
        if name == "gpu":
            move_model(model)
            batch = {key: moved(value) for key, value in batch.items()}
            monkeypatch.setattr(callbacks, "PartialState", lambda: SimpleNamespace(num_processes=1, device=CUDA))
        with gpu:
            subject.create_optimizer_and_scheduler(4)
            for _ in range(3):
                updated(subject, model, batch)
        # The gradient of a key's bias is rounding noise, which Adam scales up to full steps.
        weights = {key: value for key, value in model.named_parameters() if not key.endswith("k_proj.bias")}
        found.append((subject.advantage_scale.value, weights))
    (scale, weights), (other_scale, others) = found
    assert other_scale == scale > 0
    for key, value in weights.items():
        torch.testing.assert_close(others[key].payload, value.data, rtol=1e-4, atol=1e-5)
    by_file = {place.split(", ")[1].partition(":")[0] for place in gpu.waits}
    assert by_file == {"decoding.py", "prompts.py", "trainer_base.py"}, gpu.waits
    # Of each update: ends, a length, texts, and whether the norm is finite.
    assert sum(gpu.waits.values()) <= 3 * 5, gpu.waits
    assert subject.args.logging_nan_inf_filter is False  # the library would read every loss


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_divergence_of_an_update_is_read_where_it_is_needed(on_gpu: bool) -> None:
    args: Any = (None, TrainerState(), TrainerControl())
    subject, expected = KLCoefficient(0.5, 1.0), 0.5
    with PretendedGPU() as gpu:
        for number in range(1, 3):
            for sums in ((2.0, 1), (4.5, 5)):  # two accumulated batches
                subject.add(*(moved(torch.tensor(one)) if on_gpu else torch.tensor(one) for one in sums))
            subject.on_step_end(*args)
            subject.on_step_end(*args)  # of an update without a divergence
            assert sum(gpu.waits.values()) == on_gpu * (number - 1)
            expected = adapted_coefficient(expected, 6.5 / 6, 1.0)
            assert subject.value == subject.value == subject.state()["args"]["value"] == expected
    assert sum(gpu.waits.values()) == 2 * on_gpu
