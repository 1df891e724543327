"""What stands for candidates in memory: a set of hashes, and the positions of equal keys."""

import random

import numpy as np
from hypothesis import given, strategies as st

from rl_qg.augmentation.candidates import KeySet, grouped


@given(st.lists(st.sampled_from([1, 2, 3, 1025, 2049, 2**64 - 1, 2**63 + 1]), max_size=40))
def test_a_set_of_hashes_knows_what_was_added(keys: list[int]) -> None:
    held, expected = KeySet(), set[int]()
    for key in keys:
        assert held.add(key) == (key not in expected)
        expected.add(key)
        assert len(held) == len(expected)


def test_it_knows_that_after_growing() -> None:
    rng, held = random.Random(0), KeySet()
    keys = [rng.randrange(1, 2**64) for _ in range(5000)]
    assert all(held.add(key) for key in keys) and not any(held.add(key) for key in keys)
    assert len(held) == 5000


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 3))
def test_positions_of_equal_keys(keys: list[int], smallest: int) -> None:
    expected = [[place for place, one in enumerate(keys) if one == key] for key in sorted(set(keys))]
    found = [group.tolist() for group in grouped(np.array(keys, dtype=np.uint64), smallest)]
    assert found == [places for places in expected if len(places) >= smallest]
