"""Training for answers, pairs, and both tasks of one model: all stages, adapters, resume, rewards that are refused."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.splits import Splits
from rl_qg.generation.end_to_end import generate_pairs
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.propose_answers import GeneratedAnswers
from rl_qg.generation.tasks import pair_parts, task_rows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trainer_base import last_checkpoint
from rl_qg.settings import CESettings, ModelSettings, PeftSettings, SCSTSettings, Settings, TrainingSettings
from rl_qg.training.stages import train
from rl_qg.training.trainer import SelfCriticalTrainer
from tests.rl_qg.training.test_resume import assert_equal_runs
from tests.rl_qg.training.word_task import WORDS, WordReward, lines, trainer
from tests.tiny_models import save, tiny_bart, tiny_t5, word_tokenizer

CPU = torch.device("cpu")


def data(passages: int) -> list[QAExample]:
    """Two questions about each passage of two sentences."""
    examples = []
    for k in range(passages):
        words = [f"w{(k + j) % 20}" for j in range(8)]
        context = " ".join(words[:4]) + " .\n\n" + " ".join(words[4:])
        for number, word in enumerate((words[1], words[5])):
            examples.append(
                QAExample(f"e{k}-{number}", "", context, f"w3 {word}", (Answer(word, context.index(word)),))
            )
    return examples


def splits() -> Splits:
    unlabelled = [replace(example, id=f"u-{example.id}", question="") for example in data(12)[-4:]]
    return Splits(data(8), unlabelled, data(10)[-4:])


def settings(folder: Path, start: str, task: str, **rest: Any) -> Settings:
    return Settings(
        output_dir=str(folder),
        model=ModelSettings(start, task=task, max_source_length=48, max_target_length=24),
        training=TrainingSettings(
            batch_size=4, logging_steps=1, eval_steps=2, eval_samples=4, save_steps=2, use_cpu=True, report_to="none"
        ),
        ce=CESettings(epochs=10, learning_rate=3e-3),  # few updates, or large ones, leave the loss to chance
        scst=SCSTSettings(epochs=1, learning_rate=1e-2, max_new_tokens=12),
        **rest,
    )


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, tokenizer = tmp_path_factory.mktemp("start"), word_tokenizer(f"{WORDS} .")
    models = {"bart": tiny_bart(len(tokenizer), seed=1, positions=96), "t5": tiny_t5(len(tokenizer), seed=1)}
    return {name: save(folder / name, tokenizer, model) for name, model in models.items()}


@pytest.mark.parametrize(
    ("task", "start", "adapters"),
    [("pairs", "bart", "none"), ("answers", "t5", "none"), ("multitask", "bart", "lora"), ("pairs", "t5", "lora")],
)
def test_each_task_learns_by_both_stages(
    tmp_path: Path, starts: dict[str, str], task: str, start: str, adapters: str
) -> None:
    if adapters == "lora":
        pytest.importorskip("peft")
    chosen = settings(tmp_path, starts[start], task, peft=PeftSettings(adapters, r=4))
    final = train(chosen, splits(), WordReward(), WordReward())
    assert json.loads((final / "prompt.json").read_text())["task"] == task
    log = lines(tmp_path / "metrics.jsonl")
    rewards = [line["reward_sample"] for line in log if "reward_sample" in line]
    assert rewards and all(map(math.isfinite, rewards))
    assert any("reward_sample_written" in line for line in log)
    evaluations = [line for line in log if "eval_loss" in line]
    assert evaluations[-1]["eval_loss"] < evaluations[0]["eval_loss"]
    assert all(math.isfinite(line["eval_held_out"]) for line in evaluations)
    generator, context = CandidateGenerator(final, device=CPU), splits().validation[0].context
    assert generator.task == task
    if task == "pairs":
        (pairs,) = generate_pairs(generator, [context], max_new_tokens=24)
        assert all(context.startswith(pair.answer, pair.answer_start) for pair in pairs)
    else:
        (spans,) = GeneratedAnswers(generator, None)([context])
        assert all(0 <= span.start < span.end <= len(context) for span in spans)


def pair_trainer(folder: Path, rows: Sequence[QAExample], **options: Any) -> SelfCriticalTrainer:
    model = tiny_bart(len(word_tokenizer(WORDS)), seed=1, positions=96, hidden=32)
    return trainer(folder, model=model, task="pairs", train_dataset=rows, eval_dataset=rows, **options)


def test_pairs_are_learned(tmp_path: Path) -> None:
    """Cross-entropy teaches a tiny model the pairs of its passages, in their form."""
    rows = task_rows("pairs", data(4))
    subject = pair_trainer(
        tmp_path,
        rows,
        ce_epochs=60,
        scst_epochs=0,
        reward=None,
    )
    subject.train()
    batch = subject.encoder.batch(rows)
    tokens = subject.model.generate(**batch, max_new_tokens=24, num_beams=1, do_sample=False)[:, 1:]
    texts = subject.encoder.decoded(tokens, rows)
    assert [pair_parts(text) for text in texts] == [pair_parts(row.question) for row in rows]


class ValidPairs(WordReward):
    """1 for every question: the reward of a text is the share of its places with a valid pair."""

    def score(self, questions: Any, contexts: Any, **columns: Any) -> list[float]:
        return [1.0] * len(questions)


@pytest.mark.slow
def test_self_critical_training_raises_the_share_of_valid_pairs(tmp_path: Path) -> None:
    rows = task_rows("pairs", data(8))
    subject = pair_trainer(
        tmp_path,
        rows,
        ce_epochs=25,
        scst_epochs=60,
        scst_learning_rate=1e-2,
        baseline="leave_one_out",
        num_samples=8,
        normalise_advantage="running",
        ce_weight="rest",
        max_grad_norm=1.0,
        schedule="constant",
        max_new_tokens=16,
        reward=ValidPairs(),
    )
    subject.train()
    rewards = [
        line["reward_sample"] for line in lines(tmp_path / "metrics.jsonl") if line.get("reward_sample") is not None
    ]
    assert sum(rewards[-8:]) / 8 > sum(rewards[:8]) / 8 + 0.2


@pytest.mark.slow
@pytest.mark.parametrize("task", ["pairs", "multitask"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, task: str) -> None:
    rows = task_rows(task, data(12))
    options = {
        "task": task,
        "train_dataset": rows,
        "eval_dataset": rows[:4],
        "save_strategy": "steps",
        "save_steps": 3,
    }
    options |= {"per_device_train_batch_size": 4, "ce_epochs": 1, "scst_epochs": 1}
    dropout = lambda seed: tiny_bart(25, seed=seed, positions=96, dropout=0.1)  # noqa: E731
    whole = trainer(tmp_path / "whole", model=dropout(1), **options)
    whole.train()
    cut = trainer(tmp_path / "cut", model=dropout(1), **options)

    class Kill(Exception):
        pass

    update = cut.training_step

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        if cut.state.global_step == 5:
            raise Kill
        return update(*args, **kwargs)

    cut.training_step = step  # type: ignore[method-assign]
    with pytest.raises(Kill):
        cut.train()
    again = trainer(tmp_path / "cut", model=dropout(9), **options)
    again.train(resume_from_checkpoint=last_checkpoint(tmp_path / "cut"))
    assert_equal_runs(whole, again)


class Negative(WordReward):
    bounds = (-math.inf, 0.0)


class OfReferences(WordReward):
    needs = frozenset({"references"})


@pytest.mark.parametrize(
    ("reward", "message"),
    [(Negative(), r"scst\.pair_floor: the reward word-reward is never above 0"), (OfReferences(), "gold questions")],
)
def test_a_reward_that_cannot_score_pairs_is_refused_before_training(
    tmp_path: Path, starts: dict[str, str], reward: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train(settings(tmp_path, starts["bart"], "pairs"), splits(), reward)
