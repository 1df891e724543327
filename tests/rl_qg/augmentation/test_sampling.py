"""Samples: the best by a number, and maximal marginal relevance against its definition; no order of lines matters."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_qg.augmentation.sampling import SAMPLERS, Best, Diverse
from rl_qg.text.words import normalised_words
from tests.questions import record


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    """Candidates of four passages, made of few words, some as good as others."""
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
    """The ids of the chosen ones."""
    settings = {"seed": 0, "by": "logprob", "relevance": 0.5, **options}
    sampler = SAMPLERS[name](count, *settings.values())
    for place, one in enumerate(lines):
        sampler.see(place, one)
    return [lines[place]["id"] for place in sampler.chosen()]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("count", [0, 1, 7, 30, 40])
def test_a_sample_is_as_large_as_can_be_and_hangs_on_no_order(name: str, count: int) -> None:
    lines = drawn(30, 1)
    for number, one in enumerate(lines):
        one["question"] += f" {number}"  # or equal ones could stand for one another
    first = sample(name, lines, count)
    assert len(set(first)) == len(first) == min(count, 30)
    places = [next(n for n, one in enumerate(lines) if one["id"] == key) for key in first]
    assert places == sorted(places)
    for seed in range(3):
        mixed = random.Random(seed).sample(lines, len(lines))
        assert set(sample(name, mixed, count)) == set(first)


@pytest.mark.parametrize("name", SAMPLERS)
def test_seeds_differ_where_candidates_are_equal(name: str) -> None:
    lines = [record(f"who {n}", id=f"q{n}", context=f"{n} London") for n in range(30)]
    found = [frozenset(sample(name, lines, 10, seed=seed)) for seed in range(3)]
    assert len(set(found)) == 3


def test_the_best_are_the_best() -> None:
    lines = drawn(30, 2)
    chosen = set(sample("reward", lines, 12))
    worst = min(one["logprob"] for one in lines if one["id"] in chosen)
    assert all(one["logprob"] <= worst for one in lines if one["id"] not in chosen)
    assert Best(0, 0).chosen() == []


def slow_mmr(sampler: Diverse, lines: list[dict[str, Any]], count: int, relevance: float) -> list[int]:
    """Carbonell and Goldstein's definition: all candidates compared with all that were taken, each time."""
    order = sampler._ranking.best_first().tolist()  # ties are the seed's
    rank = {index: number for number, index in enumerate(order)}
    last = max(1, len(lines) - 1)

    def likeness(one: int, other: int) -> float:
        if lines[one]["context"] != lines[other]["context"]:
            return 0.0
        first, second = set(normalised_words(lines[one]["question"])), set(normalised_words(lines[other]["question"]))
        return len(first & second) / len(first | second)

    taken: list[int] = []
    while len(taken) < min(count, len(lines)):

        def score(index: int) -> float:
            near = max((likeness(index, other) for other in taken), default=0.0)
            return relevance * (1 - rank[index] / last) - (1 - relevance) * near

        left = [index for index in range(len(lines)) if index not in taken]
        taken.append(min(left, key=lambda index: (-score(index), rank[index])))
    return taken


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 25),
    count=st.integers(0, 25),
    relevance=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
)
def test_maximal_marginal_relevance_is_that_of_the_definition(
    seed: int, size: int, count: int, relevance: float
) -> None:
    lines = drawn(size, seed)
    sampler = Diverse(count, 0, "logprob", relevance)
    for place, one in enumerate(lines):
        sampler.see(place, one)
    assert list(sampler._in_turn()) == slow_mmr(sampler, lines, count, relevance)


def test_relevance_alone_takes_the_best_and_difference_alone_what_is_new() -> None:
    lines = drawn(30, 3)
    assert sample("diverse", lines, 9, relevance=1.0) == sample("reward", lines, 9)
    equal = [record("who is it", id=f"a{n}", logprob=5.0) for n in range(5)] + [record("why so", id="b")]
    assert "b" in sample("diverse", equal, 2, relevance=0.1)
    assert "b" not in sample("reward", equal, 2)
