"""Weights sharded over two processes by FSDP, compared with a model that is not sharded."""

from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import M2M100ForConditionalGeneration

from rl_qg.generation.sharing import share_encoder_pass
from rl_qg.runtime import trainer_base
from rl_qg.runtime.trainer_base import WholeWeights, gather_all
from tests.processes import together
from tests.tiny_models import tiny, tiny_bart, tiny_t5

BUILDERS = (tiny_bart, tiny_t5)


def batch() -> dict[str, torch.Tensor]:
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 1, 1], [11, 12, 13, 1]])
    return {"input_ids": ids, "mask": ids.ne(1).long(), "rows": torch.tensor([[2, 5, 6], [2, 7, 1], [2, 9, 9]] * 2)}


def loss_of(bare: torch.nn.Module, model: torch.nn.Module) -> torch.Tensor:
    """The sum of squared logits of two rows for each of three contexts."""
    given, context = batch(), torch.tensor([0, 0, 1, 1, 2, 2])
    with share_encoder_pass(bare, given["mask"], context):
        return (
            model(
                input_ids=given["input_ids"],
                attention_mask=given["mask"][context],
                decoder_input_ids=given["rows"],
            )
            .logits.square()
            .mean()
        )


class Collectives(TorchDispatchMode):
    """Counts those of the block."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.namespace in ("c10d", "_c10d_functional") and "wait" not in str(function)
        return function(*args, **(kwargs or {}))


def worker() -> None:
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    for build in BUILDERS:
        plain, model = build(20, seed=1), build(20, seed=1)
        whole = WholeWeights(model)
        for part in (model.get_encoder(), model.get_decoder()):
            for layer in getattr(part, "layers", getattr(part, "block", [])):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for at_once in (1 << 26, 1000):  # as loaded, and after an update
            trainer_base.AT_ONCE = at_once
            with Collectives() as collectives, whole.of(model) as policy, whole.of(model) as again:
                assert policy is again
                assert collectives.count == 1 if at_once == 1 << 26 else 1 < collectives.count < 10
                for (name, value), expected in zip(policy.named_parameters(), plain.parameters(), strict=True):
                    torch.testing.assert_close(value.data, expected.data, msg=lambda text, n=name: f"{n}: {text}")
                assert policy.training == model.training
                torch.testing.assert_close(loss_of(policy, policy), loss_of(plain, plain))
            assert sum(value.numel() for value in policy.parameters()) == 0
            with Collectives() as collectives, whole.of(model, without=dict(plain.named_parameters())) as policy:
                assert collectives.count == sum(value.numel() for value in policy.parameters()) == 0
            loss_of(plain, plain).backward()
            loss_of(model, model).backward()
            gradients = {name: gather_all([value.grad])[0] for name, value in model.named_parameters()}
            for name, value in plain.named_parameters():
                torch.testing.assert_close(gradients[name], value.grad, msg=lambda text, n=name: f"{n}: {text}")
            for subject in (plain, model):
                torch.optim.SGD(subject.parameters(), lr=0.1).step()
                subject.zero_grad()


@pytest.mark.slow
@pytest.mark.distributed
def test_a_sharded_model_is_gathered_once_and_updated_like_a_whole_one() -> None:
    together(worker)


def test_the_whole_weights_of_a_model_without_shards_are_a_copy() -> None:
    model = tiny_bart(20, seed=1)
    whole = WholeWeights(model)
    with whole.of(model) as policy:
        assert policy is not model
        for first, second in zip(policy.parameters(), model.parameters(), strict=True):
            assert torch.equal(first, second) and first.data_ptr() != second.data_ptr()


def test_buffers_have_the_number_type_to_which_the_model_was_cast() -> None:
    """DeepSpeed casts the model that it trains in bf16, and with it the positions of M2M100."""
    model = tiny(M2M100ForConditionalGeneration, 20)
    whole = WholeWeights(model)
    model.bfloat16()
    ids = batch()["input_ids"]
    with whole.of(model) as policy:
        logits = policy(input_ids=ids, decoder_input_ids=ids).logits
    assert torch.equal(logits, model(input_ids=ids, decoder_input_ids=ids).logits)


@pytest.mark.parametrize("build", BUILDERS)
def test_several_rows_share_one_pass_of_the_encoder(build) -> None:
    model = build(20, seed=1)
    given, context = batch(), torch.tensor([0, 0, 1, 1, 2, 2])
    repeated = model(
        input_ids=given["input_ids"][context],
        attention_mask=given["mask"][context],
        decoder_input_ids=given["rows"],
    ).logits
    seen = []
    handle = model.get_encoder().register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    loss = loss_of(model, model)
    handle.remove()
    torch.testing.assert_close(loss, repeated.square().mean())
    assert seen == [3]
    assert not model.get_encoder()._forward_pre_hooks and not model.get_encoder()._forward_hooks
