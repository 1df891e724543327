"""API keys and token buckets."""

import hmac
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rl_qg.runtime.errors import InputError
from rl_qg.web import requests as module
from rl_qg.web.requests import APIKeys, TokenBuckets, read_keys

KEY, OTHER = "a" * 20, "b" * 20


def test_keys_come_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"# of the page\n\n  {KEY}\n")
    keys = read_keys(str(tmp_path / "keys"), {"RL_QG_API_KEYS": f"{OTHER}, {KEY}"})
    assert [keys.number_of(key) for key in (OTHER, KEY, "c" * 20, "", "ä" * 20, "\ud800")] == [1, 2, *[None] * 4]
    assert not read_keys("", {})


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "has no key"),
        ("short", "key 1 must have"),
        (f"{KEY}\n{KEY} {KEY}", "key 2 must have"),
        ("ä" * 20, "ASCII"),
        ("a" * 201, "16 to 200"),
    ],
)
def test_bad_key_files_are_refused(tmp_path: Path, content: str, line: str) -> None:
    (tmp_path / "keys").write_text(content)
    with pytest.raises(InputError, match=line) as error:
        read_keys(str(tmp_path / "keys"), {})
    assert content == "" or content not in str(error.value)  # no key in a message
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(str(tmp_path), {})


def test_a_key_is_compared_with_all_keys_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, real = [], hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    keys = APIKeys([KEY, OTHER, "c" * 40])
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for given_key in (KEY, "x", "y" * 1000):
        keys.number_of(given_key)
    assert compared == [(32, 32)] * 9
    assert KEY not in str(vars(keys))


class SlowBucket:
    """What a bucket does, in fractions of a token and one step at a time."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst, self.taken = rate, burst, []  # type: float, int, list[float]

    def admits(self, now: float) -> bool:
        tokens, last = float(self.burst), 0.0
        for moment in self.taken:
            tokens, last = min(self.burst, tokens + (moment - last) * self.rate) - 1, moment
        admitted = min(self.burst, tokens + (now - last) * self.rate) >= 1 - 1e-9
        self.taken += [now] if admitted else []
        return admitted


@given(st.lists(st.integers(0, 8), max_size=30), st.integers(1, 4), st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_buckets_admit_what_a_slow_bucket_does(waits: list[int], burst: int, rate: float) -> None:
    now = 0.0
    buckets, slow = TokenBuckets(rate, burst, lambda: now), SlowBucket(rate, burst)
    for wait in waits:
        now += wait / 4
        seconds = buckets.wait("a")
        assert (seconds == 0) == slow.admits(now)
    assert buckets.wait("b") == 0  # another client has a bucket of its own


def test_the_wait_is_the_time_until_a_token() -> None:
    now = 0.0
    buckets = TokenBuckets(0.5, 1, lambda: now)
    assert [buckets.wait("a"), buckets.wait("a")] == [0, 2]
    now = 1.0
    assert buckets.wait("a") == 1
    now = 2.0
    assert buckets.wait("a") == 0


def test_who_looks_at_a_bucket_takes_nothing_out_of_it() -> None:
    buckets = TokenBuckets(0.5, 1, lambda: 0.0)
    assert [buckets.wait("a", take=take) for take in (False, False, True, False, True)] == [0, 0, 0, 2, 2]


def test_buckets_do_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BUCKETS", 10)
    buckets = TokenBuckets(1.0, 1, lambda: 0.0)
    for number in range(50):
        buckets.wait(str(number))
    assert len(buckets._buckets) == 10
