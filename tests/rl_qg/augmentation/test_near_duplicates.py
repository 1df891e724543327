"""Near duplicates: the fast search finds what comparing everything with everything finds."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_qg.augmentation.candidates import Candidates
from rl_qg.augmentation.funnel import FilterResources, Funnel
from rl_qg.augmentation.near_duplicates import NearDuplicates, TokenSets, shingles, similar_to_earlier, similarity
from rl_qg.data.examples import Answer, QAExample
from tests.questions import PASSAGE, record, write_questions

texts = st.lists(st.frozensets(st.sampled_from("abcdefgh"), min_size=1), max_size=25)


def slow(sets: list[frozenset[str]], threshold: float, fixed: int) -> list[tuple[int, int]]:
    """`similar_to_earlier` by its definition."""
    kept: list[int] = []
    pairs = []
    for number, tokens in enumerate(sets):
        similar = [other for other in kept if len(tokens & sets[other]) / len(tokens | sets[other]) >= threshold]
        if similar and number >= fixed:
            pairs.append((number, min(similar)))
        else:
            kept.append(number)
    return pairs


@given(sets=texts, threshold=st.sampled_from([0.1, 0.25, 0.5, 0.6, 0.75, 0.8, 1.0]), fixed=st.integers(0, 5))
def test_the_prefix_filter_misses_nothing(sets: list[frozenset[str]], threshold: float, fixed: int) -> None:
    tokens = TokenSets()
    for one in sets:
        tokens.add(one)
    tokens.sort_by_rarity()
    assert list(similar_to_earlier(tokens, range(len(sets)), threshold, fixed)) == slow(sets, threshold, fixed)


@given(sets=texts)
def test_sorting_by_rarity_keeps_the_sets_and_uses_one_order_for_all(sets: list[frozenset[str]]) -> None:
    tokens = TokenSets()
    for one in sets:
        tokens.add(one)
    before = [set(tokens[number]) for number in range(len(tokens))]
    tokens.sort_by_rarity()
    assert [set(tokens[number]) for number in range(len(tokens))] == before
    counts = {token: sum(token in one for one in before) for one in before for token in one}
    for number in range(len(tokens)):
        members = list(tokens[number])
        assert members == sorted(members, key=lambda token: (counts[token], token))


def test_similarity_of_worked_cases() -> None:
    assert similarity([1, 2, 3], [2, 3, 4, 5]) == 2 / 5
    assert similarity([1], [1]) == 1
    assert similarity([1], [2]) == 0


def test_shingles() -> None:
    assert shingles("Who is it? Who is it!", 1) == {"who", "is", "it"}
    assert shingles("Who is it?", 2) == {"who is", "is it"}
    assert shingles("Who is", 3) == {"who is"}


@pytest.mark.parametrize("threshold", [0.5, 0.7])
def test_the_filter_misses_no_pair(tmp_path: Path, threshold: float) -> None:
    draw = random.Random(1)
    words = [f"w{number}" for number in range(30)]
    sets = [frozenset(draw.sample(words[: draw.randint(12, 30)], draw.randint(4, 11))) for _ in range(300)]
    lines = [record(" ".join(one), candidate=at) for at, one in enumerate(sets)]  # the first is the best
    _, left = outcome(tmp_path, lines, threshold=threshold)
    assert left == {f"q-{at}" for at in range(300)} - {f"q-{at}" for at, _ in slow(sets, threshold, 0)}


def outcome(tmp_path: Path, lines: list[dict[str, Any]], **options: Any) -> tuple[dict[str, int], set[str]]:
    """The counts, and `id-candidate` of the kept candidates."""
    gold = [QAExample("g", "", PASSAGE, "When did Ada meet Charles Babbage?", (Answer("Ada", 0),))]
    filters = [NearDuplicates(**options)]
    funnel = Funnel(filters, Candidates(write_questions(tmp_path / "q.jsonl", lines)), FilterResources(gold=gold))
    funnel.apply(filters[0])
    left: set[str] = set()
    funnel.read_through(lambda index, one: left.add(f"{one['id']}-{one['candidate']}"))
    return funnel.counts, left


LINES = [
    record("Where did Ada meet Charles?", candidate=3),
    record("Where did Ada meet Charles then?", candidate=1),  # 5 of 6 words: 0.83
    record("When did Ada Lovelace meet Charles Babbage?", candidate=0),  # 6 of 7 of the human one
    record("Where did Ada meet Charles?", context="Ada and Charles met in London.", id="other", candidate=4),
]


def test_the_better_of_two_is_kept_and_human_questions_come_first(tmp_path: Path) -> None:
    counts, left = outcome(tmp_path, LINES)
    assert counts == {"near duplicate of gold": 1, "near duplicate of candidate": 1}
    assert left == {"q-1", "other-4"}
    assert outcome(tmp_path, LINES, by="candidate")[1] == {"q-3", "other-4"}
    assert outcome(tmp_path, LINES, gold=False) == ({"near duplicate of candidate": 1}, {"q-0", "q-1", "other-4"})
    assert outcome(tmp_path, LINES, within="all")[1] == {"q-1"}
    assert outcome(tmp_path, LINES, threshold=0.84)[1] == {"q-1", "q-3", "other-4"}
    assert outcome(tmp_path, LINES, threshold=1.0)[1] == {"q-0", "q-1", "q-3", "other-4"}
    assert len(outcome(tmp_path, LINES, shingle=3)[1]) == 4


@pytest.mark.parametrize("within", ["passage", "all"])
def test_the_order_of_lines_does_not_matter(tmp_path: Path, within: str) -> None:
    draw = random.Random(0)
    lines = [
        record(
            " ".join(draw.sample("who what where is was the a city".split(), 5)),
            context=f"{PASSAGE} {number % 3}",
            id=f"q{number % 3}",
            candidate=number,
            logprob=float(draw.randrange(3)),
        )
        for number in range(80)
    ]
    first = outcome(tmp_path, lines, within=within)
    assert 0 < len(first[1]) < 80
    for _ in range(3):
        draw.shuffle(lines)
        assert outcome(tmp_path, lines, within=within) == first
