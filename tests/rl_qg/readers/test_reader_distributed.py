"""One update is the same update however it is spread: over batches, accumulation and processes."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertForQuestionAnswering,
    DistilBertForQuestionAnswering,
    TrainerCallback,
    TrainingArguments,
)

from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.reader import Windows, best_answers, encode, load_model, load_tokenizer
from rl_qg.readers.train_reader import QATrainer, train_reader
from rl_qg.runtime.files import read_json, write_json
from rl_qg.settings import QAModelSettings, QASettings
from tests.processes import together
from tests.tiny_models import piece_tokenizer, save, tiny

WORDS = ["the", "red", "fox", "ran", "from", "paris", "to", "rome", "and", "saw", "a", "blue", "owl", "who", "?"]
KINDS = ("distilbert", "bert")
# Batch size and accumulation for eight windows in all.
ONE_PROCESS = ((8, 1), (4, 2), (2, 4))
TWO_PROCESSES = ((4, 1), (2, 2))


def examples(count: int) -> list[QAExample]:
    """Passages of very different lengths, so that batches differ in their padding."""
    rng = np.random.default_rng(5)
    computed = []
    for number in range(count):
        words = list(rng.choice(WORDS[:-2], size=3 + 5 * (number % 4)))
        context, position = " ".join(words), int(rng.integers(len(words)))
        start = len(" ".join(words[:position])) + (position > 0)
        computed.append(QAExample(f"q{number}", "t", context, "who ?", (Answer(str(words[position]), start),)))
    return computed


def save_model(folder: Path, kind: str) -> Path:
    tokenizer = piece_tokenizer(WORDS, model_max_length=64)
    model = {"bert": BertForQuestionAnswering, "distilbert": DistilBertForQuestionAnswering}[kind]
    save(folder, tokenizer, tiny(model, len(tokenizer), layers=2, spread=0.2))
    return folder


def windows_of(model: Path, items: list[QAExample]) -> Windows:
    tokenizer, token_types = load_tokenizer(str(model), max_length=48)
    return encode(items, tokenizer, max_length=48, doc_stride=8, token_types=token_types)


class KeepGradients(TrainerCallback):
    """Copies the gradients of the update, as the optimizer sees them."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs) -> None:
        """Clone every gradient."""
        parameters = getattr(model, "module", model).named_parameters()
        self.gradients = {name: parameter.grad.clone() for name, parameter in parameters}


def one_update(model: Path, output: Path, *, batch_size: int, accumulation: int) -> dict[str, torch.Tensor]:
    """Loss and gradients of one update over eight windows."""
    tokenizer, _ = load_tokenizer(str(model), max_length=48)
    kept = KeepGradients()
    trainer = QATrainer(
        load_model(str(model)),
        TrainingArguments(
            output_dir=str(output / "trainer"),
            max_steps=1,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=0.0,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            remove_unused_columns=False,
            use_cpu=True,
        ),
        processing_class=tokenizer,
        train_dataset=windows_of(model, examples(8)),
        callbacks=[kept],
    )
    trainer.train()
    return {"loss": torch.tensor(trainer.state.log_history[0]["loss"]), **kept.gradients}


def by_hand(model: Path) -> dict[str, torch.Tensor]:
    """The same, one window at a time and without padding: the mean of sixteen cross-entropies."""
    network, windows = load_model(str(model)).eval(), windows_of(model, examples(8))
    total = torch.zeros(())
    for index in range(len(windows)):
        item = windows[index]
        labels = item.pop("labels")
        output = network(
            **{name: torch.tensor(np.array(value), dtype=torch.long)[None] for name, value in item.items()}
        )
        for logits, label in zip((output.start_logits, output.end_logits), labels, strict=True):
            total = total - logits[0].log_softmax(0)[int(label)]
    loss = total / 16
    loss.backward()
    return {"loss": loss.detach(), **{name: parameter.grad for name, parameter in network.named_parameters()}}


def settings_for(model: Path) -> QASettings:
    return QASettings(
        model=QAModelSettings(str(model)),
        epochs=2,
        learning_rate=1e-3,
        batch_size=4,
        max_length=32,
        doc_stride=8,
        seeds=[0, 1],
    )


def validation() -> list[QAExample]:
    """Thirteen questions, one of them about a passage of several windows: the last batch is not full."""
    items = examples(13)
    items[3] = replace(items[3], context=" ".join([items[3].context] * 3))
    return items


def assert_equal_updates(computed: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert computed.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            computed[name], value, rtol=1e-4, atol=2e-6, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.fixture(scope="module")
def models_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        save_model(folder / kind, kind)
    return folder


@pytest.fixture(scope="module")
def two_processes(models_folder, tmp_path_factory) -> Path:
    """What two processes wrote: updates of both models in both layouts, and a whole run of the reader."""
    output = tmp_path_factory.mktemp("two-processes")
    together(worker, models_folder, output)
    return output


def worker(models_folder: Path, output: Path) -> None:
    rank = int(os.environ["RANK"])
    for kind in KINDS:
        for batch_size, accumulation in TWO_PROCESSES:
            computed = one_update(models_folder / kind, output, batch_size=batch_size, accumulation=accumulation)
            save_file(computed, output / f"{kind}-{batch_size}x{accumulation}-rank-{rank}.safetensors")
    settings = settings_for(models_folder / "distilbert")
    result = train_reader(examples(16), validation(), settings=settings, output_dir=output / "qa", use_cpu=True)
    write_json(output / f"rank-{rank}.json", result)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch_size", "accumulation"), ONE_PROCESS)
def test_an_update_is_that_of_single_windows_by_hand(models_folder, tmp_path, kind, batch_size, accumulation) -> None:
    computed = one_update(models_folder / kind, tmp_path, batch_size=batch_size, accumulation=accumulation)
    assert_equal_updates(computed, by_hand(models_folder / kind))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch_size", "accumulation"), TWO_PROCESSES)
def test_an_update_of_two_processes_is_the_same(models_folder, two_processes, kind, batch_size, accumulation) -> None:
    for rank in range(2):
        computed = load_file(two_processes / f"{kind}-{batch_size}x{accumulation}-rank-{rank}.safetensors")
        assert_equal_updates(computed, by_hand(models_folder / kind))


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_train_and_predict_as_one_program(models_folder, two_processes) -> None:
    output, items = two_processes / "qa", validation()
    results = [read_json(two_processes / f"rank-{rank}.json") for rank in range(2)]
    assert results[0] == results[1] == read_json(output / "qa_metrics.json")
    assert [row["seed"] for row in results[0]["seeds"]] == [0, 1]
    assert not list(output.rglob("checkpoint-*")) and not list(output.rglob("*.part"))

    # Gathered from two processes, the logits give what one process reads with the saved reader.
    tokenizer, _ = load_tokenizer(str(output), max_length=32)
    reader = load_model(str(output)).eval()
    windows = encode(items, tokenizer, max_length=32, doc_stride=8, token_types=False)
    assert len(windows) % 4 and len(windows) > len(items)
    start_logits, end_logits = np.full((2, len(windows), 32), -100.0)
    for index in range(len(windows)):
        ids = torch.tensor(windows[index]["input_ids"], dtype=torch.long)
        logits = reader(input_ids=ids[None])
        start_logits[index, : len(ids)] = logits.start_logits[0].detach()
        end_logits[index, : len(ids)] = logits.end_logits[0].detach()
    expected = best_answers(windows, items, start_logits, end_logits, n_best=20, max_answer_length=30)
    assert read_json(output / "predictions.json") == expected

    # A single process takes the finished run as it is.
    settings = settings_for(models_folder / "distilbert")
    assert train_reader(examples(16), items, settings=settings, output_dir=output, use_cpu=True) == results[0]
