"""One update of the trainer: loss and gradient equal the equations, however the batch is split."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ElectraModel

from rl_qg.generation.loading import add_lora
from rl_qg.settings import PeftSettings
from rl_qg.training.reference_policy import ReferencePolicy
from tests.rl_qg.generation.test_beam_search import MODELS, PAIRS, PREFIXES, prefix
from tests.rl_qg.training.word_task import WORDS, WordReward, data, lines, trainer
from tests.tiny_models import tiny_bart, tiny_t5, word_tokenizer


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
def test_a_batch_of_8_equals_4_accumulated_batches_of_2(tmp_path: Path, build: Any, stages: dict[str, float]) -> None:
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
def test_loss_and_gradient_equal_a_slow_reference(tmp_path: Path, build: Any, options: dict[str, Any]) -> None:
    """One question at a time, plain forward passes: λ·mean_k −A·log p(sample) + w·L_ce + β·KL, per gold token."""
    subject = trainer(
        tmp_path, build(25, seed=1), ce_epochs=0, max_steps=4, train_dataset=data(8), use_cpu=True, **options
    )
    subject.state.max_steps, subject.state.global_step = 4, 1
    reference = build(26, seed=2)  # with <hl>
    subject.reference = ReferencePolicy.copy_of(reference)
    rollouts: list[Any] = []
    original = subject.roll_out
    subject.roll_out = lambda *a, **k: rollouts.append(original(*a, **k)) or rollouts[-1]  # type: ignore[method-assign, func-returns-value]
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
        for position, at in enumerate(mine):
            others = rewards[:position] + rewards[position + 1 :]
            level = {
                "greedy": lambda at=row: reward(rollout.greedy, at),
                "leave_one_out": lambda others=others: sum(others) / len(others),
                "mean": lambda rewards=rewards: sum(rewards) / len(rewards),
                "none": lambda: 0.0,
            }[args.baseline]()
            advantage = args.reward_scale * (rewards[position] - level)
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


KINDS = {**MODELS, **PAIRS, **PREFIXES, "prefix of electra": lambda seed: prefix(ElectraModel, seed)}


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("adapters", [False, True])
def test_several_processes_search_for_unused_weights_where_there_may_be_some(
    tmp_path: Path, name: str, adapters: bool
) -> None:
    """Without the search, DDP ends a run in which a weight has no gradient."""
    model = KINDS[name](1)
    if adapters:
        pytest.importorskip("peft")
        model = add_lora(model, PeftSettings("lora", r=2), [7])
    subject = trainer(tmp_path, model, ce_epochs=0, num_samples=2, watch_kl=False)
    handler = subject.accelerator.ddp_handler
    assert handler is not None and handler.find_unused_parameters == (name in PAIRS)
    subject.state.max_steps = 2
    subject.compute_loss(subject.model, next(iter(subject.get_train_dataloader()))).backward()
    learning = {key: value for key, value in subject.model.named_parameters() if value.requires_grad}
    unused = [key for key, value in learning.items() if value.grad is None]
    assert learning and (not unused or handler.find_unused_parameters), unused


def test_the_gradient_depends_on_the_reward(tmp_path: Path) -> None:
    """The slow reference would also agree if all advantages were 0."""
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


def test_bf16_casts_encoder_and_decoder_and_keeps_the_direction_of_the_gradient(tmp_path: Path) -> None:
    """In rollout and update, although the library casts only in `model.forward`."""
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
