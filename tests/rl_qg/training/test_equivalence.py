"""A run has the same result however it is distributed: over batches, over processes, and with ZeRO or FSDP.

Several updates of both stages with real processes on CPU: the same questions are sampled, the same rewards and means
are logged, and the final weights equal those of one process. The generator ends questions about every second context
at once, so rollouts have different lengths in each process, and some are empty in one process only.
"""

import json
import math
import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from sysconfig import get_path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors.torch import load_file, save_file
from transformers import BartForConditionalGeneration, M2M100ForConditionalGeneration

from rl_qg.data.examples import QAExample
from rl_qg.training.run_files import save_model_folder
from tests.processes import accelerate_environment, together as run_together
from tests.questions import example
from tests.rl_qg.training.word_task import WORDS, lines, trainer
from tests.tiny_models import tiny, tiny_bart, word_tokenizer

SHORT = 9  # source tokens, special ones included, up to which a question ends at once
OF_TIME = ("seconds", "per_second", "runtime")
HELD_OUT = "w19 w19"  # the first words of the contexts of evaluations
# Attention does not change when the same number is added to the scores of all keys: the gradient of a key's bias is
# rounding noise, which Adam scales up to full steps.
WITHOUT_EFFECT = ".k_proj.bias"
COMPILES = shutil.which("c++") is not None and Path(get_path("include"), "Python.h").is_file()
CLOSE = 1e-5  # measured: 1e-6 in the log and 2e-6 in a weight (experiments/equivalence)


class EndsAtOnce(BartForConditionalGeneration):
    """BART that ends every question about a short context with the first token."""

    def forward(self, *args: Any, attention_mask: torch.Tensor, **kwargs: Any) -> Any:
        output = super().forward(*args, attention_mask=attention_mask, **kwargs)
        end = torch.zeros(output.logits.shape[-1])
        end[self.generation_config.eos_token_id] = 20.0
        short = attention_mask.sum(-1) <= SHORT  # in rollouts one row for several questions side by side
        rows = short.repeat_interleave(len(output.logits) // len(short))
        output.logits = output.logits + rows[:, None, None] * end
        return output


class RecordedReward:
    """Counts words shared with the context, the first ones with the largest weight; appends each call to `file`."""

    signature = "recorded-reward"

    needs = frozenset({"contexts"})

    def __init__(self, file: Path) -> None:
        self.file = file

    def score(self, questions: Sequence[str], contexts: Sequence[str], **_: Any) -> Any:
        scores = [
            sum(1 / (position + 1) for position, word in enumerate(question.split()) if word in context.split())
            for question, context in zip(questions, contexts, strict=True)
        ]
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(list(zip(contexts, questions, scores, strict=True))) + "\n")
        return SimpleNamespace(scores=scores)


def data(count: int, begin: str = "") -> list[QAExample]:
    """Different contexts, every second one short."""
    return [
        example(
            begin + " ".join(f"w{(k + j) % 19}" for j in range(4 if k % 2 else 6 + k % 5)),
            f"w{(k + 1) % 19}",
            " ".join(f"w{(k * j) % 20}" for j in range(1, 2 + k % 4)),
            id=f"e{k}",
        )
        for k in range(count)
    ]


def run(folder: Path, batch: int, accumulation: int, count: int = 16, *, bf16: bool = False) -> Path:
    """One epoch of cross-entropy and two of self-critical training, with a KL penalty, and evaluations at steps 2, 3
    and 6. `folder` then has rollouts, log, and weights before and after.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ.get("RANK", "0"))
    size = len(word_tokenizer(WORDS))
    if folder.name == "m2m100":
        model: Any = tiny(M2M100ForConditionalGeneration, size, encoder_layerdrop=0.5, decoder_layerdrop=0.5)
    else:
        model = tiny_bart(size, seed=1)
        model.__class__ = EndsAtOnce
    subject = trainer(
        folder,
        model,
        reward=RecordedReward(folder / f"rollouts-{rank}.jsonl"),
        train_dataset=data(count),
        eval_dataset=data(5, HELD_OUT + " "),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        ce_epochs=1,
        scst_epochs=2,
        max_grad_norm=1.0,
        kl_coefficient=0.1,
        eval_strategy="steps",
        eval_steps=3,
        per_device_eval_batch_size=2,
        bf16=bf16,
    )
    if rank == 0:
        save_file(
            {key: value.clone() for key, value in subject.model.state_dict().items()}, folder / "start.safetensors"
        )
    subject.train()
    save_model_folder(subject, folder / "final")
    return folder


def launched(config: str, folder: Path, *runs: str) -> Path:
    """Two processes under `configs/accelerate/CONFIG.yaml`; each run is NAME:BATCH:ACCUMULATION:COUNT; those of
    the names `bf16` and `m2m100` are in bf16.
    """
    run_together(worker, str(folder), *runs, environment=accelerate_environment(config))
    return folder


def worker(folder: str, *runs: str) -> None:
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        use_cpus_as_gpus()
    for text in runs:
        name, *numbers = text.split(":")
        run(Path(folder) / name, *map(int, numbers), bf16=name in ("bf16", "m2m100"))


def use_cpus_as_gpus() -> None:
    """Let FSDP run on CPU, which torch supports; accelerate would silently replace it by plain data parallelism."""
    torch.distributed.init_process_group("gloo")
    PartialState._prepare_backend = lambda self, *args, **kwargs: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))


def calls(folder: Path) -> list[list[list[tuple[str, str, float]]]]:
    """For each process and batch, context, question and score of every rollout; without evaluations."""
    files = sorted(folder.glob("rollouts-*.jsonl"))
    processes = [[[tuple(row) for row in json.loads(line)] for line in file.open(encoding="utf-8")] for file in files]
    return [[call for call in process if not call[0][0].startswith(HELD_OUT)] for process in processes]


def rollouts(folder: Path, accumulation: int) -> list[list[tuple[str, str, float]]]:
    """For each update, the rollouts of all processes, sorted."""
    processes = calls(folder)
    updates = range(0, len(processes[0]), accumulation)
    return [
        sorted(chain.from_iterable(chain(*(process[at : at + accumulation] for process in processes))))
        for at in updates
    ]


def logged(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without times."""
    return [
        {key: value for key, value in line.items() if not any(word in key for word in OF_TIME)}
        for line in lines(folder / "metrics.jsonl")
    ]


def gap_in_log(first: Path, second: Path) -> float:
    """Largest relative difference of a logged number."""
    pairs = [
        (line[key], other[key])
        for line, other in zip(logged(first), logged(second), strict=True)
        for key in line.keys() | other.keys()
        if key != "stage"
    ]
    return max(abs(one - two) / max(1e-2, abs(one)) for one, two in pairs)


def gap_in_weights(first: Path, second: Path) -> float:
    """Largest difference of a weight tensor, relative to its change by training."""
    start = load_file(first / "start.safetensors")
    one, two = (load_file(folder / "final" / "model.safetensors") for folder in (first, second))
    assert one.keys() == two.keys()
    norms = {key: (float((one[key] - two[key]).norm()), float((one[key] - start[key]).norm())) for key in one}
    assert sum(change > 1e-2 for _, change in norms.values()) > 20  # the weights have changed
    return max(
        gap / change if change else gap for key, (gap, change) in norms.items() if not key.endswith(WITHOUT_EFFECT)
    )


def assert_equal(first: tuple[Path, int], second: tuple[Path, int]) -> None:
    """Rollouts and rewards are bitwise equal, log and weights up to `CLOSE`. Runs come with their accumulation."""
    assert rollouts(*second) == rollouts(*first)
    assert gap_in_log(first[0], second[0]) < CLOSE
    assert gap_in_weights(first[0], second[0]) < CLOSE


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("alone") / "8x1", 8, 1)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return launched("cpu2", tmp_path_factory.mktemp("two"), "4x1:4:1:16", "2x2:2:2:16", "again:2:2:16", "odd:4:1:13")


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "accumulation"), [(4, 2), (2, 4), (1, 8)])
def test_accumulated_batches_equal_one_large_batch(tmp_path: Path, alone: Path, batch: int, accumulation: int) -> None:
    assert len(rollouts(alone, 1)) == 4
    assert_equal((alone, 1), (run(tmp_path / "parts", batch, accumulation), accumulation))


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_equal_one(alone: Path, together: Path) -> None:
    assert_equal((alone, 1), (together / "4x1", 1))
    assert_equal((alone, 1), (together / "2x2", 2))


@pytest.mark.slow
@pytest.mark.distributed
def test_two_runs_of_two_processes_are_bitwise_equal(together: Path) -> None:
    assert calls(together / "again") == calls(together / "2x2")
    assert logged(together / "again") == logged(together / "2x2")
    first, second = (load_file(together / name / "final" / "model.safetensors") for name in ("2x2", "again"))
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.slow
@pytest.mark.distributed
def test_rollouts_end_at_different_steps_on_the_two_processes(together: Path) -> None:
    """A precondition of the other tests: in one process all questions end at once, in the other they do not."""
    longest = [
        [max(len(question.split()) for _, question, _ in call) for call in process]
        for process in calls(together / "2x2")
    ]
    assert any(min(pair) == 0 < max(pair) for pair in zip(*longest, strict=True))
    assert len({abs(one - two) for one, two in zip(*longest, strict=True)}) > 1


@pytest.mark.slow
@pytest.mark.distributed
def test_the_last_batch_is_filled_from_the_start_of_the_epoch(tmp_path: Path, together: Path) -> None:
    """13 examples, 8 an update: the last update of one process has 5, that of two has these and 3 of the first."""
    shorter = [[context for context, *_ in update] for update in rollouts(run(tmp_path / "odd", 8, 1, 13), 1)]
    filled = [[context for context, *_ in update] for update in rollouts(together / "odd", 1)]
    assert [len(set(update)) for update in shorter] == [8, 5, 8, 5]
    assert [len(set(update)) for update in filled] == [8, 8, 8, 8]
    for first, last, whole in zip(shorter[::2], shorter[1::2], filled[1::2], strict=True):
        assert set(last) < set(whole) and set(whole) - set(last) < set(first)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
@pytest.mark.skipif(
    not COMPILES, reason="no C++ compiler or Python.h, and deepspeed's first start on a CPU needs both"
)
@pytest.mark.parametrize("config", ["zero1", "zero2", "zero3"])
def test_zero_equals_plain_data_parallelism(tmp_path: Path, together: Path, config: str) -> None:
    assert_equal((together / "2x2", 2), (launched(config, tmp_path, "2x2:2:2:16") / "2x2", 2))


@pytest.mark.slow
@pytest.mark.distributed
def test_fsdp_equals_plain_data_parallelism(tmp_path: Path, together: Path) -> None:
    assert_equal((together / "2x2", 2), (launched("fsdp", tmp_path, "2x2:2:2:16") / "2x2", 2))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("config", ["cpu2", "fsdp", "zero1", "zero3"])
def test_bf16_has_the_losses_of_float32(tmp_path: Path, alone: Path, config: str) -> None:
    """Of the questions that people wrote: those that are sampled change with the last digits of a probability."""
    if config.startswith("zero") and (find_spec("deepspeed") is None or not COMPILES):
        pytest.skip("deepspeed, or what it compiles with, is not installed")
    found = logged(launched(config, tmp_path, "bf16:4:1:16") / "bf16")
    exact = logged(alone)
    assert [line["step"] for line in found] == [line["step"] for line in exact]
    assert all(math.isfinite(line["loss"]) for line in found if "loss" in line)
    for name in ("loss_ce", "eval_loss"):
        pairs = [(one[name], other[name]) for one, other in zip(exact, found, strict=True) if name in one]
        assert max(abs(one - other) / one for one, other in pairs) < 1e-2


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("config", ["fsdp", "zero1", "zero3"])
def test_positions_in_a_buffer_and_layers_dropped_at_random(tmp_path: Path, config: str) -> None:
    if config.startswith("zero") and (find_spec("deepspeed") is None or not COMPILES):
        pytest.skip("deepspeed, or what it compiles with, is not installed")
    found = logged(launched(config, tmp_path, "m2m100:4:1:16") / "m2m100")
    losses = [line["loss"] for line in found if "loss" in line]
    assert len(losses) == 6 and all(map(math.isfinite, losses))
