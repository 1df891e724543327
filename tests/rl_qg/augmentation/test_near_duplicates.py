"""Near duplicates: the fast search finds what comparing everything with everything finds."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import AutoModel, BertModel

from rl_qg.augmentation import near_duplicates
from rl_qg.augmentation.candidates import Candidates
from rl_qg.augmentation.funnel import FilterResources, Funnel, SetFilter
from rl_qg.augmentation.near_duplicates import (
    BANDS,
    MISSED,
    NearDuplicates,
    SameMeaning,
    TokenSets,
    by_rarity,
    rows_of_bands,
    shingles,
    similar_by_minhash,
    similar_to_earlier,
    similarity,
)
from rl_qg.data.examples import Answer, QAExample
from tests.questions import PASSAGE, record, write_questions
from tests.tiny_models import piece_tokenizer, save, tiny

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
    assert list(similar_to_earlier(sets, threshold, fixed)) == slow(sets, threshold, fixed)


@given(sets=texts)
def test_numbers_by_rarity_stand_for_the_tokens(sets: list[frozenset[str]]) -> None:
    numbered = by_rarity(sets)
    assert [len(one) for one in sets] == [len(numbers) for numbers in numbered]
    assert all(list(numbers) == sorted(set(numbers)) for numbers in numbered)
    counts = Counter(number for numbers in numbered for number in numbers)
    assert [counts[number] for number in sorted(counts)] == sorted(counts.values())
    for one, numbers in zip(sets, numbered, strict=True):
        for other, others in zip(sets, numbered, strict=True):
            assert len(one & other) == len({*numbers} & {*others})


def tokens_of(sets: list[frozenset[str]]) -> TokenSets:
    tokens = TokenSets()
    for one in sets:
        tokens.add(one)
    return tokens


@given(sets=texts, held=st.integers(1, 60))
def test_sets_are_the_same_in_memory_and_in_a_file(sets: list[frozenset[str]], held: int) -> None:
    expected = tokens_of(sets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_duplicates, "HELD", held)
        stored = tokens_of(sets)
    assert [stored[number] for number in range(len(sets))] == [expected[number] for number in range(len(sets))]
    if sets:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(near_duplicates, "AT_ONCE", held)
            assert stored.reduced(np.add.reduceat).tolist() == [sum(one) % 2**64 for one in map(list, expected)]


@settings(max_examples=25)
@given(sets=texts, threshold=st.sampled_from([0.5, 0.6, 0.75, 0.8, 1.0]), fixed=st.integers(0, 5))
def test_minhash_finds_the_same_among_few_words(sets: list[frozenset[str]], threshold: float, fixed: int) -> None:
    """Not by chance in these sets: of eight words, whose hashes are always the same."""
    found, expected = similar_by_minhash(tokens_of(sets), threshold, fixed), slow(sets, threshold, fixed)
    assert [(number, max(other, fixed - 1)) for number, other in found] == [
        (number, max(other, fixed - 1)) for number, other in expected
    ]


@pytest.mark.parametrize("threshold", [0.3, 0.8, 0.95, 1.0])
def test_minhash_misses_no_more_than_it_says(threshold: float) -> None:
    """Pairs just at the threshold, in sets of 20 words: how many are missed is a binomial number."""
    rows, missed = rows_of_bands(threshold)
    assert missed == pytest.approx((1 - threshold**rows) ** BANDS) and (missed <= MISSED)
    shared = round(40 * threshold / (1 + threshold))
    sets = []
    for pair in range(2000):
        words = [f"{pair} {number}" for number in range(40 - shared)]
        sets += [frozenset(words[:20]), frozenset(words[20 - shared :])]
    found = {number for number, _ in similar_by_minhash(tokens_of(sets), shared / (40 - shared))}
    assert found <= set(range(1, 4000, 2)) and len(found) >= 2000 - 2 - 5


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


def outcome(
    tmp_path: Path, lines: list[dict[str, Any]], kind: type[SetFilter] = NearDuplicates, **options: Any
) -> tuple[dict[str, int], set[str]]:
    """The counts, and `id-candidate` of the kept candidates."""
    gold = [QAExample("g", "", PASSAGE, "When did Ada meet Charles Babbage?", (Answer("Ada", 0),))]
    filters = [kind(**options)]
    funnel = Funnel(filters, Candidates(write_questions(tmp_path / "q.jsonl", lines)), FilterResources(gold=gold))
    funnel.apply(filters[0])
    left: set[str] = set()
    funnel.read_through(lambda index, one: left.add(f"{one['id']}-{one['candidate']}"))
    return funnel.counts, left


def test_the_same_meaning_is_a_cosine_of_means(tmp_path: Path) -> None:
    """As the library's model says it, without batches: in each passage the human question, then the better ones."""
    words = "where when who did does ada meet charles babbage leave london then ?".split()
    tokenizer = piece_tokenizer(words, lowercase=True)
    encoder = save(tmp_path / "encoder", tokenizer, tiny(BertModel, len(tokenizer)))
    draw, passages = random.Random(2), (PASSAGE, "Ada and Charles met in London.")
    lines = [
        record(" ".join(draw.sample(words, 5)), id="q", context=passages[at % 2], answer="London", candidate=at)
        for at in range(40)
    ]
    gold = "When did Ada meet Charles Babbage?"
    model = AutoModel.from_pretrained(encoder).eval()

    def vector(text: str) -> Any:
        with torch.no_grad():
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].double().mean(0)
        return (mean / mean.norm()).numpy()

    vectors = {text: vector(text) for text in (gold, *(line["question"] for line in lines))}
    cosines = sorted(float(one @ other) for one in vectors.values() for other in vectors.values() if one is not other)
    gap = max(range(len(cosines) // 2, len(cosines) - 1), key=lambda at: cosines[at + 1] - cosines[at])
    assert cosines[gap + 1] - cosines[gap] > 1e-4  # the filter computes in float32, and in batches
    threshold = (cosines[gap] + cosines[gap + 1]) / 2
    for has_gold in (True, False):
        expected = set[str]()
        for at, passage in enumerate(passages):
            kept = [vectors[gold]] if has_gold and not at else []
            for line in (line for line in lines if line["context"] == passage):
                if all(one @ vectors[line["question"]] < threshold for one in kept):
                    kept.append(vectors[line["question"]])
                    expected.add(f"q-{line['candidate']}")
        counts, left = outcome(tmp_path, lines, SameMeaning, encoder=encoder, threshold=threshold, gold=has_gold)
        assert left == expected and 0 < len(left) < 40 and sum(counts.values()) == 40 - len(left)
        assert list(counts) == ["means what gold means", "means what a candidate means"][not has_gold :]


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


def test_a_search_by_minhash_is_noted_and_drops_what_the_exact_one_drops(tmp_path: Path) -> None:
    for options in ({}, {"by": "candidate"}, {"gold": False}, {"within": "all"}, {"threshold": 0.84}, {"shingle": 3}):
        exact, by_minhash = (outcome(tmp_path, LINES, **options, exact_up_to=limit) for limit in (4, 2))
        assert exact == by_minhash
    few, many = NearDuplicates(within="all", exact_up_to=4), NearDuplicates(within="all", exact_up_to=3)
    for filter_ in (few, many):
        filter_.prepare(FilterResources())
        for index, line in enumerate(LINES):
            filter_.observe(index, line)
        assert len(list(filter_.dropped())) == 2
    assert few.notes() == []
    assert "4 questions were compared by MinHash (64 bands of 10)" in many.notes()[0] and "0.07%" in many.notes()[0]


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
