"""The trainer: a reward that is learned, reproducible runs, logs, and any seq2seq model."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from rl_qg.generation import decoding as rollout
from rl_qg.readers.fine_tuning import FineTuning
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trainer_base import Resumable
from rl_qg.settings import QASettings
from rl_qg.training.config import SelfCriticalConfig
from tests.questions import example
from tests.rl_qg.training.word_task import WORDS, WordReward, data, lines, trainer
from tests.tiny_models import tiny, tiny_bart, tiny_pair, word_tokenizer


@pytest.mark.slow
def test_a_reward_whose_best_question_is_known_is_learned(tmp_path: Path) -> None:
    """Two thirds of the gold questions are `w1 w1`, so cross-entropy alone learns that; the reward favours `w3 w3`."""
    mixed = [
        example(item.context, item.answers[0].text, "w3 w3" if k % 3 == 0 else "w1 w1", id=item.id)
        for k, item in enumerate(data(48))
    ]

    class Strong(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[4 * score for score in super().score(questions, contexts).scores])

    reached = {}
    for name, stages in {
        "ce": {"ce_epochs": 10, "scst_epochs": 0},
        "both": {"ce_epochs": 4, "scst_epochs": 6},
    }.items():
        subject = trainer(tmp_path / name, reward=Strong(), train_dataset=mixed, **stages)
        subject.train()
        reached[name] = subject.evaluate()["eval_reward_greedy"]
    assert reached["ce"] < 1
    assert reached["both"] > 7  # of 8


def test_a_dataset_with_the_columns_of_squad_trains_like_the_examples(tmp_path: Path) -> None:
    import datasets

    rows = [
        {
            "id": item.id,
            "title": item.title,
            "context": item.context,
            "question": item.question,
            "answers": {"text": [a.text for a in item.answers], "answer_start": [a.start for a in item.answers]},
        }
        for item in data(16)
    ]
    from_rows = trainer(tmp_path / "rows", train_dataset=datasets.Dataset.from_list(rows))
    from_examples = trainer(tmp_path / "examples")
    for subject in (from_rows, from_examples):
        subject.train()
    first, second = from_rows.model.state_dict(), from_examples.model.state_dict()
    assert all(first[name].equal(second[name]) for name in first)


def test_two_runs_with_one_seed_are_equal(tmp_path: Path) -> None:
    weights = []
    for name in ("a", "b"):
        subject = trainer(tmp_path / name, model=tiny_bart(25, seed=1, dropout=0.1))
        subject.train()
        weights.append(subject.model.state_dict())
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    timed = ("seconds_rollout", "seconds_reward", "seconds_update", "samples_per_second")
    first, second = (
        [{k: v for k, v in line.items() if k not in timed} for line in lines(tmp_path / name / "metrics.jsonl")]
        for name in ("a", "b")
    )
    assert first == second


def test_logged_parts_sum_to_the_loss_and_the_ce_stage_has_no_rollout(tmp_path: Path) -> None:
    trainer(tmp_path).train()
    logged = lines(tmp_path / "metrics.jsonl")
    assert [line["stage"] for line in logged] == ["ce", "ce", "scst", "scst"]
    for line in logged:
        scst = line.get("loss_scst", 0.0)
        assert line["loss"] == pytest.approx(line["lambda"] * scst + line["loss_ce"], abs=1e-4)
        assert ("reward_sample" in line) is (line["stage"] == "scst")
        if line["stage"] == "scst":
            assert line["advantage"] == pytest.approx(line["reward_sample"] - line["reward_greedy"], abs=1e-6)
    assert {line["step"] for line in lines(tmp_path / "samples.jsonl")} == {3, 4}


def test_the_model_at_the_boundary_is_saved_and_loads(tmp_path: Path) -> None:
    from rl_qg.generation.generator import CandidateGenerator

    trainer(tmp_path).train()
    policy = CandidateGenerator(tmp_path / "ce", device=torch.device("cpu"))
    assert len(policy.greedy(data(3), max_new_tokens=5)) == 3
    assert policy.encoder.prompt.max_source_length == 64  # what the model can read, below the 512 of the settings


def test_one_process_takes_one_gpu(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The library would spread the batch over all that it sees, and double it."""
    args = SelfCriticalConfig(output_dir=str(tmp_path), use_cpu=True, per_device_train_batch_size=8)
    args._n_gpu = 2
    subject = trainer(tmp_path, args=args)
    assert subject.args.n_gpu == 1 and subject._train_batch_size == 8
    assert "uses one of 2 GPUs; accelerate launch uses all" in caplog.text


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_a_reward_that_is_undefined_never_reaches_the_weights(tmp_path: Path, bad: float | None) -> None:
    class Sometimes(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            scores: list[float | None] = super().score(questions, contexts).scores
            return SimpleNamespace(scores=[bad if k % 3 == 0 else score for k, score in enumerate(scores)])

    subject = trainer(tmp_path, ce_epochs=0, reward=Sometimes(), eval_dataset=None)
    subject.train()
    assert all(torch.isfinite(value).all() for value in subject.model.state_dict().values())
    logged = lines(tmp_path / "metrics.jsonl")
    assert all(line["rewards_failed"] > 0 for line in logged)
    assert all(line["reward_sample"] == line["reward_sample"] for line in logged)  # no NaN in the means


@pytest.mark.slow
def test_a_rollout_that_runs_out_of_memory_is_retried_with_the_same_result(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    options = {"train_dataset": data(16), "max_steps": 4, "reward": WordReward(), "num_samples": 2}
    whole = trainer(tmp_path / "whole", **options)
    whole.train()
    sizes, real = [], rollout.decode

    def small(model: Any, states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(states))
        if len(states) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return real(model, states, *args, **kwargs)

    monkeypatch.setattr("rl_qg.training.trainer.decode", small)
    halved = trainer(tmp_path / "halved", **options)
    halved.train()
    assert sizes[:3] == [8, 4, 2] and max(sizes[3:]) == 2
    assert caplog.text.count("rollout: 8 rows do not fit into memory") == 1
    for first, second in zip(whole.model.parameters(), halved.model.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)
    kept = [
        [{key: row[key] for key in row if "seconds" not in key} for row in lines(tmp_path / name / "samples.jsonl")]
        for name in ("whole", "halved")
    ]
    assert kept[0] == kept[1] and kept[0]


def test_rollouts_use_no_dropout_and_keep_the_training_mode(tmp_path: Path) -> None:
    subject = trainer(tmp_path, model=tiny_bart(25, seed=1, dropout=0.5))
    subject.model.train()
    batch = subject.encoder(data(4))
    first, second = (subject.roll_out(batch, samples=2, greedy=True) for _ in range(2))
    assert first.greedy.tokens.equal(second.greedy.tokens)
    assert first.samples.tokens.equal(second.samples.tokens)
    assert subject.model.training


def test_a_self_critical_stage_without_a_reward_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a reward"):
        trainer(tmp_path, reward=None)
    with pytest.raises(ValueError, match="none negative, one above 0"):
        trainer(tmp_path, ce_epochs=0, scst_epochs=0)


@pytest.mark.parametrize(
    ("epochs", "fault"),
    [
        ({"ce_epochs": 1, "scst_epochs": 1e-9}, r"scst\.epochs=1e-09: is none of 3 updates"),
        ({"ce_epochs": 1e-9, "scst_epochs": 1}, r"ce\.epochs=1e-09: is none of 3 updates"),
        ({"ce_epochs": 2e9, "scst_epochs": 2e9}, r"8,000,000,000 updates are planned, of at most 2,147,483,647"),
    ],
)
def test_a_stage_without_updates_and_one_without_end_are_refused(
    tmp_path: Path, epochs: dict[str, float], fault: str
) -> None:
    with pytest.raises(InputError, match=fault):
        trainer(tmp_path, **epochs).train()


def test_a_reward_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    class Short(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[0.0])

    with pytest.raises(InputError, match="returned 1 scores for 16 questions"):
        trainer(tmp_path, ce_epochs=0, reward=Short()).train()


def tiny_mbart(vocab_size: int) -> Any:
    from transformers import MBartForConditionalGeneration

    return tiny(MBartForConditionalGeneration, vocab_size, decoder_start_token_id=2)


def tiny_mt5(vocab_size: int) -> Any:
    from transformers import MT5ForConditionalGeneration

    special = {"decoder_start_token_id": 1, "pad_token_id": 1, "eos_token_id": 2}
    return tiny(MT5ForConditionalGeneration, vocab_size, spread=1.0, **special)


@pytest.mark.parametrize("build", [tiny_pair, tiny_mbart, tiny_mt5])
def test_any_seq2seq_model_trains_saves_and_generates(tmp_path: Path, build: Any) -> None:
    """Both stages from a saved model, as in the command; nearly all parameters change."""
    from rl_qg.generation.generator import CandidateGenerator
    from rl_qg.generation.loading import load_seq2seq

    tokenizer = word_tokenizer(WORDS)
    tokenizer.add_special_tokens({"cls_token": "<s>", "sep_token": "</s>"})
    build(len(tokenizer)).save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    model, _ = load_seq2seq(str(tmp_path / "start"))
    subject = trainer(tmp_path / "run", model=model)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    subject.train()
    moved = {name for name, value in model.named_parameters() if name in before and value.shape != before[name].shape}
    moved |= {name for name, value in model.named_parameters() if name not in moved and not value.equal(before[name])}
    assert len(moved) > 0.9 * len(before)
    policy = CandidateGenerator(tmp_path / "run" / "ce", device=torch.device("cpu"))
    assert len(policy.candidates(data(2), 2, max_new_tokens=5, top_p=None, temperature=1.0)) == 2


def test_parameters_learn_at_their_own_rates(tmp_path: Path) -> None:
    # Adam's first step moves each weight by the learning rate, whatever its gradient (if that is far above epsilon).
    moved: dict[str, dict[str, torch.Tensor]] = {}
    one_update: dict[str, Any] = {"ce_epochs": 1.0, "scst_epochs": 0.0, "max_steps": 1, "weight_decay": 0.0}
    for run, factors in {
        "alike": {},
        "own": {"decoder": 1.0, "decoder.layers": 5.0, "layernorm_embedding": 0.5},
    }.items():
        subject = trainer(tmp_path / run, model=tiny_bart(25, seed=1), rate_factors=factors, **one_update)
        before = {name: value.detach().clone() for name, value in subject.model.named_parameters()}
        subject.train()
        moved[run] = {name: value.detach() - before[name] for name, value in subject.model.named_parameters()}
    for name, step in moved["alike"].items():
        factor = 5 if "decoder.layers" in name else 0.5 if "layernorm_embedding" in name else 1
        torch.testing.assert_close(moved["own"][name], factor * step, rtol=1e-3, atol=1e-7)
    assert lines(tmp_path / "own" / "metrics.jsonl")[-1]["learning_rate"] == pytest.approx(
        lines(tmp_path / "alike" / "metrics.jsonl")[-1]["learning_rate"]
    )
    with pytest.raises(InputError, match=r"rate_factors: xattention: in no name of a parameter that learns"):
        trainer(tmp_path / "wrong", rate_factors={"xattention": 2.0}).train()


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
@pytest.mark.parametrize("own", ["optimizer", "scheduler"])
def test_what_a_file_of_deepspeed_would_ignore_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    file = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto", own: {"type": "AdamW"}}
    (tmp_path / "zero.json").write_text(json.dumps(file))
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(tmp_path / "zero.json"))
    options: dict[str, Any] = {"output_dir": str(tmp_path), "use_cpu": True}
    try:
        with pytest.raises(ValueError, match=f"of DeepSpeed has its own {own}, which ignores .*; remove it"):
            SelfCriticalConfig(**options, rate_factors={"decoder": 2.0})
        if own == "optimizer":
            SelfCriticalConfig(**options)
    finally:
        unset_hf_deepspeed_config()


def test_bf16_trains_both_stages(tmp_path: Path) -> None:
    trainer(tmp_path, bf16=True).train()
    assert all(line["loss"] == line["loss"] for line in lines(tmp_path / "metrics.jsonl"))


def test_training_in_bf16_warns_where_it_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "rl_qg.runtime.trainer_base.warn_if_slow",
        lambda dtype, device, instead: asked.append((dtype, device.type, instead)),
    )
    for precision in ("no", "bf16"):
        trainer(tmp_path / precision, ce_epochs=0, max_steps=4, watch_kl=False, bf16=precision == "bf16")
        arguments = FineTuning(QASettings(), tmp_path, seed=0, use_cpu=True, precision=precision).arguments()
        model, tokenizer = tiny_bart(20), word_tokenizer(WORDS)
        Resumable(model=model, args=arguments, processing_class=tokenizer)
    assert asked == [(torch.bfloat16, "cpu", "training.precision=no")] * 2


def test_an_example_without_a_question_in_the_evaluation_data_is_named(tmp_path: Path) -> None:
    """Its loss would be no number, and with it that of all: the run would end as if it had learned nothing."""
    subject = trainer(tmp_path, eval_dataset=[*data(2), replace(data(3)[2], question="")], eval_strategy="steps")
    assert "eval_reward_greedy" in subject.evaluate()  # by itself, where only rewards may be asked for
    with pytest.raises(InputError, match=r"example e2: evaluations need a question; leave it out of the evaluation"):
        subject.train()


def test_held_out_loss_does_not_depend_on_the_batches(tmp_path: Path) -> None:
    losses = [
        trainer(tmp_path, per_device_eval_batch_size=size, eval_dataset=data(5)).evaluate()["eval_loss"]
        for size in (1, 2, 3, 5)
    ]
    assert losses == pytest.approx([losses[0]] * 4, abs=1e-5)
