"""Operations are counted as by hand, and their seconds on a GPU are those of the slowest of three limits."""

import pytest
import torch

from rl_qg.runtime.operations import BANDWIDTH, GPUS, LAUNCH, REACHED, OperationCounter


def test_products_and_attention_are_counted_as_by_hand() -> None:
    layer, x = torch.nn.Linear(100, 200), torch.randn(7, 100)
    q = torch.randn(2, 3, 30, 16, requires_grad=True)
    with OperationCounter() as forward, torch.inference_mode():
        layer(x)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    product, attention = 2 * 7 * 100 * 200, 2 * 2 * (2 * 3) * 30 * 30 * 16
    assert forward.counts["operations"] == product + attention
    with OperationCounter() as both:
        layer(x).sum().backward()  # forward, and the gradient of the weights: x needs none
        torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()  # five products instead of two
    assert both.counts["operations"] == 2 * product + 3.5 * attention


def test_tokens_are_those_of_the_vocabulary_not_their_positions() -> None:
    words, positions = torch.nn.Embedding(2000, 8), torch.nn.Embedding(512, 8)
    with OperationCounter() as counter:
        words(torch.zeros(3, 5, dtype=torch.long)) + positions(torch.arange(5))
    assert counter.counts["tokens"] == 15


def test_an_operation_takes_its_longest_part() -> None:
    gpu = GPUS["H100"]
    assert gpu.seconds(1, 1, half=True) == LAUNCH
    assert gpu.seconds(1e15, 1, half=True) == pytest.approx(1e15 / (REACHED * 989e12))
    assert gpu.seconds(1e15, 1, half=False) == pytest.approx(1e15 / (REACHED * 67e12))
    assert gpu.seconds(1, 1e12, half=False) == pytest.approx(1e12 / (BANDWIDTH * 3.35e12))
    x = torch.randn(64, 64, dtype=torch.bfloat16)
    with OperationCounter() as counter:
        (x @ x).view(-1)  # a view starts nothing
    assert counter.counts["H100"] == LAUNCH
