"""Samplers: the best by a number, maximal marginal relevance against its definition, and every order of lines."""

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rl_qg.augmentation.augment import SAMPLERS, BestSampler, DiverseSampler
from rl_qg.settings import AugmentSettings
from rl_qg.text.words import normalised_words
from tests.questions import record


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    """Candidates of four passages, made of few words, some equally good."""
    draw = random.Random(seed)
    return [
        record(
            " ".join(draw.sample("who what where is was the a".split(), draw.randint(1, 5))),
            context=f"{draw.randrange(4)} London",
            id=f"q{number}",
            logprob=float(draw.randrange(6)),
        )
        for number in range(count)
    ]


def sample(name: str, lines: list[dict[str, Any]], count: int, **options: Any) -> list[str]:
    """The ids of the selected candidates."""
    sampler = SAMPLERS[name](AugmentSettings(num_samples=count, **options))
    for index, one in enumerate(lines):
        sampler.observe(index, one)
    return [lines[index]["id"] for index in sampler.selected()]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("count", [0, 1, 7, 30, 40])
def test_a_sample_has_the_given_size_and_does_not_depend_on_the_order(name: str, count: int) -> None:
    lines = drawn(30, 1)
    for number, one in enumerate(lines):
        one["question"] += f" {number}"  # otherwise equal ones could replace one another
    first = sample(name, lines, count)
    assert len(set(first)) == len(first) == min(count, 30)
    indices = [next(n for n, one in enumerate(lines) if one["id"] == key) for key in first]
    assert indices == sorted(indices)
    for seed in range(3):
        mixed = random.Random(seed).sample(lines, len(lines))
        assert set(sample(name, mixed, count)) == set(first)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_seed_decides_between_equal_candidates(name: str) -> None:
    lines = [record(f"who {n}", id=f"q{n}", context=f"{n} London") for n in range(30)]
    samples = [frozenset(sample(name, lines, 10, seed=seed)) for seed in range(3)]
    assert len(set(samples)) == 3


def test_the_reward_sampler_selects_the_best() -> None:
    lines = drawn(30, 2)
    chosen = set(sample("reward", lines, 12))
    worst = min(one["logprob"] for one in lines if one["id"] in chosen)
    assert all(one["logprob"] <= worst for one in lines if one["id"] not in chosen)
    assert list(BestSampler(AugmentSettings(num_samples=0)).selected()) == []


def slow_mmr(sampler: DiverseSampler, lines: list[dict[str, Any]], count: int, relevance: float) -> list[int]:
    """Carbonell and Goldstein's definition: in each step all candidates are compared with all selected ones."""
    order = sampler._ranking.best_first().tolist()  # the seed decides ties
    rank = {index: number for number, index in enumerate(order)}
    last = max(1, len(lines) - 1)

    def jaccard(one: int, other: int) -> float:
        if lines[one]["context"] != lines[other]["context"]:
            return 0.0
        first, second = set(normalised_words(lines[one]["question"])), set(normalised_words(lines[other]["question"]))
        return len(first & second) / len(first | second)

    selected: list[int] = []
    while len(selected) < min(count, len(lines)):

        def score(index: int) -> float:
            nearest = max((jaccard(index, other) for other in selected), default=0.0)
            return relevance * (1 - rank[index] / last) - (1 - relevance) * nearest

        remaining = [index for index in range(len(lines)) if index not in selected]
        selected.append(min(remaining, key=lambda index: (-score(index), rank[index])))
    return selected


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 25),
    count=st.integers(0, 25),
    relevance=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
)
def test_maximal_marginal_relevance_follows_its_definition(seed: int, size: int, count: int, relevance: float) -> None:
    lines = drawn(size, seed)
    sampler = DiverseSampler(AugmentSettings(num_samples=count, sample_relevance=relevance))
    for index, one in enumerate(lines):
        sampler.observe(index, one)
    assert list(sampler._selected_rows()) == slow_mmr(sampler, lines, count, relevance)


def test_high_relevance_selects_the_best_and_low_relevance_different_ones() -> None:
    lines = drawn(30, 3)
    assert sample("diverse", lines, 9, sample_relevance=1.0) == sample("reward", lines, 9)
    equal = [record("who is it", id=f"a{n}", logprob=5.0) for n in range(5)] + [record("why so", id="b")]
    assert "b" in sample("diverse", equal, 2, sample_relevance=0.1)
    assert "b" not in sample("reward", equal, 2)
