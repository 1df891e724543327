"""Training for the reward of a set: both stages, credit of questions, resume, what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rewards import CoverageSetReward, MultiSetReward
from rl_qg.data.splits import Splits
from rl_qg.generation.decoding import Decoded
from rl_qg.generation.sets import question_parts, set_rows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trainer_base import last_checkpoint
from rl_qg.settings import AskSettings, CESettings, ModelSettings, SCSTSettings, Settings, TrainingSettings
from rl_qg.training.set_credit import without_cut_part
from rl_qg.training.stages import check_task_reward, train
from rl_qg.training.trainer import SelfCriticalTrainer
from rl_qg.training.trl_stages import check_algorithm
from tests.rl_qg.training.test_resume import assert_equal_runs
from tests.rl_qg.training.test_task_training import data
from tests.rl_qg.training.word_task import WORDS, WordReward, lines, trainer
from tests.tiny_models import save, tiny_bart, word_tokenizer

SETS = {"task": "sets", "granularity": "paragraph", "mode": "one2many"}


def settings(folder: Path, start: str = "none", **options: Any) -> Settings:
    return Settings(
        output_dir=str(folder),
        model=ModelSettings(start, max_source_length=48, max_target_length=24),
        ask=AskSettings(granularity="paragraph"),
        training=TrainingSettings(
            batch_size=4, logging_steps=1, eval_steps=2, eval_samples=4, save_steps=2, use_cpu=True, report_to="none"
        ),
        ce=CESettings(epochs=2, learning_rate=1e-2),
        scst=SCSTSettings(epochs=2, learning_rate=1e-2, max_new_tokens=12, baseline="leave_one_out", **options),
    )


@pytest.mark.parametrize(
    ("credit", "reward"),
    [("marginal", MultiSetReward()), ("to_go", CoverageSetReward(per_sentence=1, quality={"metric": "q_bleu1_free"}))],
)
def test_sets_learn_by_both_stages(tmp_path: Path, credit: str, reward: Any) -> None:
    tokenizer = word_tokenizer(f"{WORDS} .")
    start = save(tmp_path / "start", tokenizer, tiny_bart(len(tokenizer), seed=1, positions=96))
    splits = Splits(data(8), [replace(example, id="u", question="") for example in data(1)], data(10)[-4:])
    final = train(settings(tmp_path / "run", start, credit=credit), splits, reward, MultiSetReward("q_bleu1"))
    assert json.loads((final / "prompt.json").read_text())["granularity"] == "paragraph"
    log = lines(tmp_path / "run" / "metrics.jsonl")
    learned = [line for line in log if "reward_sample" in line]
    assert learned and all(math.isfinite(line["reward_sample"]) for line in learned)
    assert {f"reward_sample_{name}" for name in ("written", *reward.part_names)} <= learned[-1].keys()
    assert any(line["advantage_abs"] > 0 for line in learned)
    assert all(math.isfinite(line["eval_held_out"]) for line in log if "eval_loss" in line)
    credited = [row for row in lines(tmp_path / "run" / "samples.jsonl") if row.get("credits_sample")]
    assert credited
    assert all(len(row["credits_sample"]) == len(question_parts(row["sample"])) for row in credited)


def set_trainer(folder: Path, passages: int = 12, **options: Any) -> SelfCriticalTrainer:
    rows = set_rows("paragraph", "one2many", data(passages))
    given = {"reward": MultiSetReward(), "train_dataset": rows, "eval_dataset": rows[:4], **SETS, **options}
    model = given.pop("model", None) or tiny_bart(len(word_tokenizer(WORDS)), seed=1, positions=96)
    return trainer(folder, model=model, **given)


def weights(folder: Path, **options: Any) -> torch.Tensor:
    """All weights after the same stage of cross-entropy, and one pass of the other."""
    subject = set_trainer(
        folder, 4, ce_epochs=20, scst_epochs=1, baseline="leave_one_out", num_samples=8,
        per_device_train_batch_size=4, schedule="constant", max_new_tokens=16, eval_dataset=None, **options,
    )  # fmt: skip
    subject.train()
    return torch.cat([value.detach().flatten() for value in subject.model.parameters()])


def test_the_trainer_uses_the_credit_of_questions(tmp_path: Path) -> None:
    """After the same cross-entropy the credit changes the updates, also those with a clipped ratio."""
    options: list[dict[str, Any]] = [{}, {"credit": "marginal"}, {"credit": "marginal", "updates_per_rollout": 2}]
    whole, marginal, clipped = (weights(tmp_path / f"{at}", **given) for at, given in enumerate(options))
    assert (whole - marginal).abs().max() > 1e-4 and (clipped - marginal).abs().max() > 1e-4


def test_a_text_that_does_not_end_loses_its_last_part() -> None:
    tokens = torch.tensor([[5, 2, 1], [5, 6, 7], [5, 6, 7]])
    mask = torch.tensor([[True, True, False], [True] * 3, [True] * 3])
    for separator in ("<question>", "<pair>"):
        texts = ["a", f"a {separator} b", "b"]
        assert without_cut_part(texts, Decoded(tokens, mask), 2, separator) == ["a", f"a {separator}", ""]
    assert question_parts("a <question>") == ["a", ""]


@pytest.mark.parametrize("task", ["pairs", "questions", "answers", "multitask"])
def test_a_pair_that_is_cut_is_not_rewarded(task: str) -> None:
    """Generation leaves it out, too: an answer "Hen" stands in a text about Henri."""
    text, tokens = "Who? <answer> Ida <pair> Who else? <answer> Hen", torch.tensor([[5, 6, 7]])
    encoder = SimpleNamespace(decoded=lambda tokens, examples: [text])
    subject = SimpleNamespace(encoder=encoder, args=SimpleNamespace(task=task), special_tokens=SimpleNamespace(end=2))
    found = SelfCriticalTrainer.texts(subject, Decoded(tokens, tokens > 0), [])  # type: ignore[arg-type]
    assert found == ["Who? <answer> Ida <pair>" if task == "pairs" else text]


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    options = {
        "credit": "marginal", "baseline": "leave_one_out", "num_samples": 3, "normalise_advantage": "running",
        "save_strategy": "steps", "save_steps": 3, "per_device_train_batch_size": 4, "clip_advantage": 2.0,
    }  # fmt: skip
    dropout = lambda seed: tiny_bart(25, seed=seed, positions=96, dropout=0.1)  # noqa: E731
    whole = set_trainer(tmp_path / "whole", model=dropout(1), **options)
    whole.train()
    cut = set_trainer(tmp_path / "cut", model=dropout(1), **options)
    update = cut.training_step

    class Kill(Exception):
        pass

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        if cut.state.global_step == 5:
            raise Kill
        return update(*args, **kwargs)

    cut.training_step = step  # type: ignore[method-assign]
    with pytest.raises(Kill):
        cut.train()
    again = set_trainer(tmp_path / "cut", model=dropout(9), **options)
    again.train(resume_from_checkpoint=last_checkpoint(tmp_path / "cut"))
    assert_equal_runs(whole, again)


@pytest.mark.slow
def test_the_reward_of_the_set_rises(tmp_path: Path) -> None:
    subject = set_trainer(
        tmp_path, 8, model=tiny_bart(len(word_tokenizer(WORDS)), seed=1, positions=96, hidden=32),
        credit="marginal", ce_epochs=12, scst_epochs=30, scst_learning_rate=1e-2, baseline="leave_one_out",
        num_samples=8, max_grad_norm=1.0, normalise_advantage="running", ce_weight="rest", schedule="constant",
        max_new_tokens=12, eval_dataset=None,
    )  # fmt: skip
    subject.train()
    rewards = [line["reward_sample"] for line in lines(tmp_path / "metrics.jsonl") if "reward_sample" in line]
    assert sum(rewards[-8:]) / 8 > sum(rewards[:8]) / 8 + 0.1


@pytest.mark.parametrize(
    ("granularity", "credit", "reward", "message"),
    [
        ("paragraph", "whole", WordReward(), "reward word-reward: scores single questions, and the model writes sets"),
        (None, "whole", MultiSetReward(), "scores sets of questions, and model.task=questions writes none; give ask"),
        (None, "marginal", WordReward(), "scst.credit=marginal: is for sets of questions; give ask.granularity"),
    ],
)
def test_a_reward_of_the_other_kind_is_refused(
    tmp_path: Path, granularity: str | None, credit: str, reward: Any, message: str
) -> None:
    given = replace(settings(tmp_path, credit=credit), ask=AskSettings(granularity=granularity))
    with pytest.raises(InputError, match=message):
        check_task_reward(given, reward)
    check_task_reward(replace(given, stages="ce"), reward)


def test_the_second_reward_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="held_out word-reward: scores single questions"):
        check_task_reward(settings(tmp_path), MultiSetReward(), WordReward())


@pytest.mark.parametrize("algorithm", ["scst", "rloo", "grpo"])
def test_a_reward_that_is_better_when_lower_is_refused_where_the_highest_is_wanted(
    tmp_path: Path, algorithm: str
) -> None:
    class Errors(WordReward):
        higher_is_better = False

    given = replace(settings(tmp_path), ask=AskSettings(), algorithm=algorithm)
    given = replace(given, scst=replace(given.scst, credit="whole"))
    for rewards in ((Errors(), None), (WordReward(), Errors())):
        with pytest.raises(InputError, match=r"^(reward|held_out) word-reward: is better when lower"):
            check_task_reward(given, *rewards)
    check_task_reward(replace(given, algorithm="best_of_n"), Errors())  # takes the lowest
    with pytest.raises(InputError, match=r"^held_out word-reward: is better when lower"):
        check_task_reward(replace(given, algorithm="best_of_n"), WordReward(), Errors())


def test_other_algorithms_refuse_credit_of_questions(tmp_path: Path) -> None:
    given = replace(settings(tmp_path, credit="to_go"), algorithm="rloo")
    with pytest.raises(InputError, match=r"algorithm=rloo: cannot honour scst\.credit=to_go"):
        check_algorithm(given)
