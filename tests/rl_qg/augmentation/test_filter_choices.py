"""Caps, balance and the best by reward: by hand, against slow versions, and for every order of lines."""

import math
import random
from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import PartialState
from hypothesis import given
from hypothesis import strategies as st

from rl_qg.augmentation.candidates import Candidates
from rl_qg.augmentation.funnel import ChoiceFilter, Funnel, Work
from rl_qg.augmentation.registry import build_filters
from rl_qg.augmentation.set_filters import Cap, RewardFilter, TypeBalance
from rl_qg.augmentation.stage import augment
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AugmentSettings
from rl_qg.text.question_types import question_type
from tests.questions import record, write_questions

OPENINGS = {"what": "What is", "who": "Who is", "where": "Where is", "other": "Name"}


def left(folder: Path, one: ChoiceFilter, lines: list[dict[str, Any]], seed: int = 0) -> set[tuple[str, int]]:
    """Id and candidate of what a filter leaves."""
    funnel = Funnel([one], Candidates(write_questions(folder / "q.jsonl", lines)), Work(seed=seed))
    funnel.add(one)
    found: set[tuple[str, int]] = set()
    funnel.settle(lambda place, kept: found.add((kept["id"], kept["candidate"])))
    assert funnel.kept == len(found)
    return found


def drawn(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Candidates of three passages with two answers each, some as good as others."""
    draw = random.Random(seed)
    lines = []
    for number in range(count):
        passage = draw.randrange(3)
        answer = draw.choice(["London", "Ada"])
        lines.append(
            record(
                f"{draw.choice(list(OPENINGS.values()))} number {number}?",
                answer,
                f"Passage {passage}: Ada lives in London.",
                id=f"{passage}-{answer}",
                candidate=number,
                logprob=float(draw.randrange(4)),
            )
        )
    return lines


@pytest.mark.parametrize("caps", [{"per_answer": 2}, {"per_context": 3}, {"per_answer": 2, "per_context": 3}])
def test_caps_are_kept_and_only_better_ones_are_preferred(tmp_path: Path, caps: dict[str, int]) -> None:
    lines = drawn(40)
    kept = left(tmp_path, Cap(**caps), lines)
    full: dict[str, Counter[str]] = {"per_answer": Counter(), "per_context": Counter()}
    keys = {"per_answer": lambda one: one["id"], "per_context": lambda one: one["context"]}
    for name, one in product(full, lines):
        full[name][keys[name](one)] += (one["id"], one["candidate"]) in kept
    for name, cap in caps.items():
        assert max(full[name].values()) == cap
    for one in lines:  # whatever is left out found no room: its answer or its passage is full, of no worse ones
        if (one["id"], one["candidate"]) not in kept:
            rivals = [
                [r for r in lines if key(r) == key(one) and (r["id"], r["candidate"]) in kept]
                for name, key in keys.items()
                if full[name][key(one)] == caps.get(name)
            ]
            assert any(min(r["logprob"] for r in some) >= one["logprob"] for some in rivals)


@pytest.mark.parametrize(
    "one",
    [
        Cap(per_answer=2, per_context=3),
        Cap(per_answer=1, by="random"),
        TypeBalance(max_share=0.26),
        TypeBalance(shares={"what": 0.5, "who": 0.5}, by="logprob"),
        RewardFilter(field="logprob", top_fraction=0.3),
    ],
    ids=repr,
)
def test_the_order_of_lines_does_not_matter(tmp_path: Path, one: ChoiceFilter) -> None:
    lines = drawn(40)
    first = left(tmp_path, one, lines)
    assert 0 < len(first) < 40
    for seed in range(3):
        assert left(tmp_path, one, random.Random(seed).sample(lines, len(lines))) == first


def test_the_seed_decides_between_equals(tmp_path: Path) -> None:
    lines = drawn(40)
    assert left(tmp_path, Cap(per_answer=1, by="random"), lines, 1) != left(
        tmp_path, Cap(per_answer=1, by="random"), lines, 2
    )


counts = st.dictionaries(st.sampled_from(list(OPENINGS)), st.integers(1, 9), min_size=1)


def balanced(balance: TypeBalance, there: dict[str, int]) -> Counter[str]:
    """What a balance keeps of so many candidates of each type."""
    lines = [
        record(f"{OPENINGS[kind]} it {number}?", candidate=number)
        for kind, count in there.items()
        for number in range(count)
    ]
    balance.begin(Work())
    for place, one in enumerate(lines):
        balance.see(place, one)
    gone = {place for place, _ in balance.dropped()}
    return Counter(question_type(one["question"]) for place, one in enumerate(lines) if place not in gone)


def best_total(there: dict[str, int], allowed: Any) -> int:
    """The size of the largest selection that is allowed, by trying all."""
    choices = [dict(zip(there, sizes, strict=True)) for sizes in product(*(range(n + 1) for n in there.values()))]
    return max((sum(one.values()) for one in choices if allowed(one, sum(one.values()))), default=0)


@given(there=counts, share=st.sampled_from([0.2, 0.34, 0.5, 0.7, 1.0]))
def test_no_type_has_more_than_its_share_and_no_larger_selection_has(there: dict[str, int], share: float) -> None:
    def allowed(one: dict[str, int], total: int) -> bool:
        return all(count <= share * total + 1e-9 for count in one.values())

    best = best_total(there, allowed)
    if not best:
        with pytest.raises(InputError, match=r"max_share=.* can be had of no selection of these types .*: raise it"):
            balanced(TypeBalance(max_share=share), there)
        return
    kept = balanced(TypeBalance(max_share=share), there)
    assert kept.total() == best
    assert allowed(dict(kept), kept.total())


def test_target_shares() -> None:
    balance = TypeBalance(shares={"what": 0.5, "who": 0.25, "where": 0.25})
    assert balanced(balance, {"what": 9, "who": 3, "where": 2, "other": 5}) == {"what": 4, "who": 2, "where": 2}
    assert balanced(balance, {"what": 9, "who": 3}) == {"what": 6, "who": 3}  # no where: 2 to 1 remains
    assert balanced(balance, {"other": 5}) == {}
    capped = TypeBalance(max_share={"what": 0.5})
    assert balanced(capped, {"what": 9, "who": 3, "other": 1}) == {"what": 4, "who": 3, "other": 1}


def test_thresholds_and_the_best_share_of_each_passage(tmp_path: Path) -> None:
    lines = [
        record(f"Is it {number}?", context=f"{passage}: London.", id=passage, candidate=number, score=score)
        for passage, scores in {"a": [0.1, 0.9, 0.5, None], "b": [0.2, 0.3]}.items()
        for number, score in enumerate(scores)
    ]
    assert left(tmp_path, RewardFilter(field="score"), lines) == {("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)}
    assert left(tmp_path, RewardFilter(field="score", min=0.3), lines) == {("a", 1), ("a", 2), ("b", 1)}
    assert left(tmp_path, RewardFilter(field="score", top_fraction=0.5), lines) == {("a", 1), ("a", 2), ("b", 1)}
    assert left(tmp_path, RewardFilter(field="score", top_fraction=0.01), lines) == {("a", 1), ("b", 1)}
    both = RewardFilter(field="score", min=0.2, top_fraction=0.5)
    assert left(tmp_path, both, lines) == {("a", 1), ("b", 1)}  # the share is of what is good enough
    with pytest.raises(InputError, match=r"line 1: no number under 'lrm'; there is .*score.*, and random"):
        left(tmp_path, RewardFilter(field="lrm"), lines)


class Length:
    """A metric: the length of a question; none for questions about nobody, and an error for those that say so."""

    signature = "length"
    calls = 0

    def score(self, questions: list[str], contexts: list[str], *, answers: Any = None, references: Any = None) -> Any:
        assert len(answers) == len(contexts) == len(questions)
        type(self).calls += len(questions)
        if any("error" in question for question in questions):
            raise ValueError("no")
        return SimpleNamespace(scores=[None if "nobody" in text else len(text) for text in questions], parts={})


def test_a_metric_measures_what_comes_to_it_once_and_its_failures_are_counted(tmp_path: Path) -> None:
    questions = ["Who is it now?", "Who is nobody?", "Who is an error?", "Who?", "Who is longer than that?"]
    path = write_questions(tmp_path / "q.jsonl", [record(text, candidate=n) for n, text in enumerate(questions)])
    rules: dict[str, Any] = {"length": {"min_words": 2}, "reward": {"metric": {"_target_": "x"}, "min": 10}}

    def run(**changes: Any) -> dict[str, Any]:
        filters = {**rules, "reward": {**rules["reward"], **changes}}
        return augment(
            path,
            [],
            tmp_path / "a.json",
            settings=AugmentSettings(filters=filters, sampling="reward", sample_by="reward", num_samples=1),
            state=PartialState(cpu=True),
            load_metric=lambda options: Length(),
        )

    Length.calls = 0
    report = run()
    assert report["dropped"] == {"empty": 0, "too short": 1, "too long": 0, "no reward": 2, "reward too low": 0}
    assert report["measures"]["reward"]["signature"] == "length"
    assert report["measures"]["reward"]["measured"] == 4
    assert '"synthetic-q-4"' in (tmp_path / "a.json").read_text()  # the longest
    calls = Length.calls
    assert run(min=20)["dropped"]["reward too low"] == 1  # another threshold asks the metric nothing
    assert Length.calls == calls
    run(metric={"_target_": "y"})
    assert Length.calls > calls
    assert len(list(tmp_path.glob("q.reward-*.jsonl"))) == 2


def test_a_metric_that_needs_references_is_refused(tmp_path: Path) -> None:
    path = write_questions(tmp_path / "q.jsonl", [record("Who is it?")])
    settings = AugmentSettings(filters={"reward": {"metric": {"_target_": "x"}}})
    needy = SimpleNamespace(needs={"references"}, score=None)
    with pytest.raises(InputError, match=r"augment\.filters\.reward: the metric compares with references"):
        augment(path, [], tmp_path / "a.json", settings=settings, load_metric=lambda options: needy)  # type: ignore[arg-type,return-value]


def test_nan_is_no_reward_in_a_ranking(tmp_path: Path) -> None:
    lines = [record("Is it?", candidate=0, logprob=math.nan), record("Is it so?", candidate=1, logprob=-9.0)]
    assert left(tmp_path, Cap(per_answer=1), lines) == {("q", 1)}


def test_two_filters_of_one_kind_have_names_of_their_own(tmp_path: Path) -> None:
    made = build_filters({"reward": {"field": "logprob"}, "fluent": {"kind": "reward", "field": "score", "min": 1}})
    assert [one.prefix + reason for one in made for reason in one.listed()] == [
        "no reward",
        "fluent: no reward",
        "fluent: reward too low",
    ]
