"""The trainer: equal updates however the batch is split, a reward that is learned."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rl_qg.data.examples import QAExample
from rl_qg.generation import decoding as rollout
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.trainer import SelfCriticalConfig, SelfCriticalTrainer
from tests.questions import example
from tests.tiny_models import tiny, tiny_bart, tiny_pair, tiny_t5, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(20))


def data(count: int) -> list[QAExample]:
    return [
        example(
            " ".join(f"w{(k + j) % 20}" for j in range(4 + k % 5)),
            f"w{(k + 1) % 20}",
            " ".join(f"w{(k * j) % 20}" for j in range(1, 2 + k % 4)),
            id=f"e{k}",
        )
        for k in range(count)
    ]


class WordReward:
    """1 for every `w3` among the first two words, so the best question is known."""

    signature = "word-reward"

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        return SimpleNamespace(scores=[float(question.split()[:2].count("w3")) for question in questions])


def trainer(folder: Path, model: Any = None, **options: Any) -> SelfCriticalTrainer:
    tokenizer = word_tokenizer(WORDS)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "ce_epochs": 1,
        "scst_epochs": 1,
        "learning_rate": 1e-2,
        "scst_learning_rate": 1e-2,
        "max_new_tokens": 6,
        "logging_steps": 1,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "max_grad_norm": 0.0,
        "seed": 3,
    }
    rest = {key: options.pop(key) for key in ("reward", "held_out", "train_dataset", "eval_dataset") if key in options}
    return SelfCriticalTrainer(
        model=model or tiny_bart(len(tokenizer), seed=1),
        args=SelfCriticalConfig(output_dir=str(folder), **{**settings, **options}),
        **{"reward": WordReward(), "train_dataset": data(16), "eval_dataset": data(5), **rest},
        processing_class=tokenizer,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def gradients_of_first_update(
    folder: Path, build: Any, batch: int, accumulation: int, **options: Any
) -> dict[str, Any]:
    tokenizer = word_tokenizer(WORDS)
    subject = trainer(
        folder,
        build(len(tokenizer), seed=1),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        train_dataset=data(8),
        max_steps=1,
        optim="sgd",
        learning_rate=1.0,
        scst_learning_rate=1.0,
        weight_decay=0.0,
        **options,
    )
    before = {name: value.detach().clone() for name, value in subject.model.named_parameters()}
    subject.train()
    step = {name: before[name] - value.detach() for name, value in subject.model.named_parameters()}
    return {"loss": lines(folder / "metrics.jsonl")[0]["loss"], "step": step}


@pytest.mark.parametrize("build", [tiny_bart, tiny_t5])
@pytest.mark.parametrize("stages", [{"ce_epochs": 1, "scst_epochs": 0}, {"ce_epochs": 0, "scst_epochs": 1}])
def test_batch_8_equals_2x4_accumulation(tmp_path: Path, build: Any, stages: dict[str, float]) -> None:
    whole = gradients_of_first_update(tmp_path / "a", build, 8, 1, **stages)
    parts = gradients_of_first_update(tmp_path / "b", build, 2, 4, **stages)
    assert parts["loss"] == pytest.approx(whole["loss"], abs=1e-5)
    step, split = (torch.cat([value.flatten() for value in run["step"].values()]) for run in (whole, parts))
    assert step.norm() > 1e-2
    assert (step - split).norm() < 1e-5 * step.norm()


EQUATIONS: list[dict[str, Any]] = [
    {},
    {"baseline": "greedy", "num_samples": 2, "reward_scale": 3.0, "label_smoothing_factor": 0.1},
    {"baseline": "leave_one_out", "num_samples": 3, "ce_weight": "rest", "lambda_max": 0.8},
    {"baseline": "mean", "num_samples": 2, "clip_advantage": 0.3},
    {"baseline": "none", "kl_coefficient": 0.7, "kl_estimator": "k3"},
    {"baseline": "leave_one_out", "num_samples": 2, "kl_coefficient": 0.7, "kl_estimator": "exact"},
    {"activation_checkpointing": True},
]


@pytest.mark.parametrize("build", [tiny_bart, tiny_t5])
@pytest.mark.parametrize("options", EQUATIONS, ids=lambda options: "-".join(map(str, options.values())) or "paper")
def test_loss_and_gradient_are_the_equation_worked_out_slowly(
    tmp_path: Path, build: Any, options: dict[str, Any]
) -> None:
    """One question at a time, plain forward passes: λ·mean_k −A·log p(sample) + w·L_ce + β·KL, per gold token."""
    subject = trainer(
        tmp_path, build(25, seed=1), ce_epochs=0, max_steps=4, train_dataset=data(8), use_cpu=True, **options
    )
    subject.state.max_steps, subject.state.global_step = 4, 1
    reference = build(26, seed=2)  # with <hl>
    subject.reference = ReferencePolicy.copy_of(reference)
    rollouts: list[Any] = []
    original = subject._roll_out
    subject._roll_out = lambda *a, **k: rollouts.append(original(*a, **k)) or rollouts[-1]  # type: ignore[method-assign, func-returns-value]
    batch, model = subject.encoder(data(8)), subject.model
    if options.get("activation_checkpointing"):
        model.activation_checkpointing_enable()
    model.train()
    loss = subject.compute_loss(model, dict(batch))
    fast = torch.autograd.grad(loss, list(model.parameters()))
    model.activation_checkpointing_disable()

    def logprobs(policy: Any, ids: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        decoder_input = torch.tensor([[model.config.decoder_start_token_id, *tokens[:-1]]])
        return policy(input_ids=ids, decoder_input_ids=decoder_input).logits[0].log_softmax(-1)

    args, (rollout,) = subject.args, rollouts
    copies = args.num_samples
    weight, total = 0.5 * args.lambda_max, torch.zeros(())
    for row, item in enumerate(data(8)):
        ids = subject.encoder.batch([item])["input_ids"]

        def reward(decoded: Any, at: int) -> float:
            text = subject.processing_class.decode(decoded.tokens[at], skip_special_tokens=True)
            return WordReward().score([text], None).scores[0]

        mine = range(row * copies, (row + 1) * copies)
        rewards = [reward(rollout.samples, at) for at in mine]
        for place, at in enumerate(mine):
            others = rewards[:place] + rewards[place + 1 :]
            level = {
                "greedy": lambda at=row: reward(rollout.greedy, at),
                "leave_one_out": lambda others=others: sum(others) / len(others),
                "mean": lambda rewards=rewards: sum(rewards) / len(rewards),
                "none": lambda: 0.0,
            }[args.baseline]()
            advantage = args.reward_scale * (rewards[place] - level)
            if args.clip_advantage is not None:
                advantage = max(-args.clip_advantage, min(args.clip_advantage, advantage))
            tokens = rollout.samples.tokens[at][rollout.samples.mask[at]].tolist()
            log_p = logprobs(model, ids, tokens)
            chosen = log_p[range(len(tokens)), tokens]
            total = total - weight * advantage * chosen.sum() / copies
            log_q = logprobs(reference, ids, tokens).detach()
            if args.kl_estimator == "exact":
                kl = (log_p.exp() * (log_p - log_q)).sum()
            else:
                gap = log_q[range(len(tokens)), tokens] - chosen
                kl = (gap.exp() - gap - 1).sum()
            total = total + args.kl_coefficient * kl / copies
        gold = subject.encoder.targets([item])[0]
        log_p, smoothing = logprobs(model, ids, gold), args.label_smoothing_factor
        ce = -(1 - smoothing) * log_p[range(len(gold)), gold].sum() - smoothing * log_p.mean(-1).sum()
        total = total + (1 - weight if args.ce_weight == "rest" else 1) * ce
    total = total / (batch["labels"] != -100).sum()  # type: ignore[operator]
    torch.testing.assert_close(loss, total, atol=1e-5, rtol=1e-5)
    slow = torch.autograd.grad(total, list(model.parameters()))
    first, second = (torch.cat([g.flatten() for g in grads]) for grads in (fast, slow))
    assert first.norm() > 1e-2
    assert (first - second).norm() < 1e-4 * second.norm()


def test_the_reward_part_is_there_at_all(tmp_path: Path) -> None:
    """The slow equation would also hold if all advantages were 0."""
    subject = trainer(tmp_path, ce_epochs=0, max_steps=4, train_dataset=data(8), watch_kl=False)
    subject.state.max_steps, subject.state.global_step = 4, 1
    subject.model.train()
    batch = subject.encoder(data(8))
    gradients = []
    for scale in (1.0, 0.0):
        subject.args.reward_scale = scale
        loss = subject.compute_loss(subject.model, dict(batch))
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(subject.model.parameters()))]))
    assert (gradients[0] - gradients[1]).norm() > 1e-3


def test_a_reward_whose_best_question_is_known_is_learned(tmp_path: Path) -> None:
    """Two gold questions in three are `w1 w1`, so cross-entropy ends there; the reward wants `w3 w3` and tips the
    balance.
    """
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


def test_a_dataset_with_squads_columns_trains_as_the_examples_do(tmp_path: Path) -> None:
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


def test_two_runs_are_equal(tmp_path: Path) -> None:
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


def test_logged_parts_add_up_and_the_ce_stage_takes_no_rollout(tmp_path: Path) -> None:
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


def test_ce_is_kept_at_the_boundary_and_loads(tmp_path: Path) -> None:
    from rl_qg.generation.generator import QuestionGenerator

    trainer(tmp_path).train()
    policy = QuestionGenerator(tmp_path / "ce", device=torch.device("cpu"))
    assert len(policy.greedy(data(3), max_new_tokens=5)) == 3
    assert policy.encoder.prompt.max_source_length == 512


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


def test_a_rollout_that_runs_out_of_memory_changes_nothing(tmp_path: Path, monkeypatch, caplog) -> None:
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


def test_rollouts_use_no_dropout_and_leave_the_mode_as_it_was(tmp_path: Path) -> None:
    subject = trainer(tmp_path, model=tiny_bart(25, seed=1, dropout=0.5))
    subject.model.train()
    batch = subject.encoder(data(4))
    first, second = (subject._roll_out(batch, samples=2, greedy=True) for _ in range(2))
    assert first.greedy.tokens.equal(second.greedy.tokens)
    assert first.samples.tokens.equal(second.samples.tokens)
    assert subject.model.training


def test_a_self_critical_stage_without_a_reward_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a reward"):
        trainer(tmp_path, reward=None)
    with pytest.raises(ValueError, match="none negative, one above 0"):
        trainer(tmp_path, ce_epochs=0, scst_epochs=0)


def test_a_reward_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    class Short(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[0.0])

    with pytest.raises(ValueError, match="returned 1 scores for 16 questions"):
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
    """Through both stages from a folder, as the command does; every parameter that gets a gradient moves."""
    from rl_qg.generation.generator import QuestionGenerator
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
    policy = QuestionGenerator(tmp_path / "run" / "ce", device=torch.device("cpu"))
    assert len(policy.candidates(data(2), 2, max_new_tokens=5, top_p=None, temperature=1.0)) == 2


def test_bf16_trains_both_stages(tmp_path: Path) -> None:
    trainer(tmp_path, bf16=True).train()
    assert all(line["loss"] == line["loss"] for line in lines(tmp_path / "metrics.jsonl"))


def test_held_out_loss_does_not_depend_on_the_batches(tmp_path: Path) -> None:
    found = [
        trainer(tmp_path, per_device_eval_batch_size=size, eval_dataset=data(5)).evaluate()["eval_loss"]
        for size in (1, 2, 3, 5)
    ]
    assert found == pytest.approx([found[0]] * 4, abs=1e-5)


def test_bf16_casts_the_encoder_too_and_leaves_the_gradient_its_direction(tmp_path: Path) -> None:
    """In rollout and update, though the library casts in `model.forward` alone."""
    gradients, seen = [], set()
    for bf16 in (False, True):
        subject = trainer(tmp_path / str(bf16), bf16=bf16, ce_epochs=0, max_steps=4, watch_kl=False)
        subject.state.max_steps, subject.state.global_step = 4, 1
        if bf16:
            for name, module in subject.model.named_modules():
                if name.endswith(("fc1", "lm_head")):
                    module.register_forward_hook(lambda module, given, out: seen.add(out.dtype))
        batch = dict(subject.encoder(data(8)))
        subject.model.train()
        loss = subject.compute_loss(subject.accelerator.prepare(subject.model), batch)
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in subject.model.parameters() if p.grad is not None]))
    assert seen == {torch.bfloat16}
    assert torch.nn.functional.cosine_similarity(gradients[0], gradients[1], dim=0) > 0.99
