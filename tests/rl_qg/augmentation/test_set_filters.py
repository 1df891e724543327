"""Caps, balance of types and rewards: worked cases, slow reference implementations, and every order of lines."""

import json
import math
import random
from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import PartialState
from hypothesis import given, strategies as st

from rl_qg.augmentation.augment import augment, build_filters
from rl_qg.augmentation.candidates import Candidates
from rl_qg.augmentation.funnel import FilterResources, Funnel, SetFilter
from rl_qg.augmentation.set_filters import Cap, RewardFilter, TypeBalance
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AugmentSettings
from rl_qg.text.question_types import question_type
from tests.questions import record, write_questions

OPENINGS = {"what": "What is", "who": "Who is", "where": "Where is", "other": "Name"}


def left(folder: Path, filter_: SetFilter, lines: list[dict[str, Any]], seed: int = 0) -> set[tuple[str, int]]:
    """Id and candidate of each record that a filter keeps."""
    funnel = Funnel([filter_], Candidates(write_questions(folder / "q.jsonl", lines)), FilterResources(seed=seed))
    funnel.apply(filter_)
    kept: set[tuple[str, int]] = set()
    funnel.read_through(lambda index, line: kept.add((line["id"], line["candidate"])))
    assert funnel.kept == len(kept)
    return kept


def drawn(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Candidates of three passages with two answers each, some equally good."""
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
    for one in lines:  # the answer or passage of a dropped candidate is full of candidates that are not worse
        if (one["id"], one["candidate"]) not in kept:
            rivals = [
                [r for r in lines if key(r) == key(one) and (r["id"], r["candidate"]) in kept]
                for name, key in keys.items()
                if full[name][key(one)] == caps.get(name)
            ]
            assert any(min(r["logprob"] for r in group) >= one["logprob"] for group in rivals)


@pytest.mark.parametrize(
    "filter_",
    [
        Cap(per_answer=2, per_context=3),
        Cap(per_answer=1, by="random"),
        TypeBalance(max_share=0.26),
        TypeBalance(shares={"what": 0.5, "who": 0.5}, by="logprob"),
        RewardFilter(field="logprob", top_fraction=0.3),
    ],
    ids=repr,
)
def test_the_order_of_lines_does_not_matter(tmp_path: Path, filter_: SetFilter) -> None:
    lines = drawn(40)
    first = left(tmp_path, filter_, lines)
    assert 0 < len(first) < 40
    for seed in range(3):
        assert left(tmp_path, filter_, random.Random(seed).sample(lines, len(lines))) == first


def test_the_seed_decides_between_equal_candidates(tmp_path: Path) -> None:
    lines = drawn(40)
    assert left(tmp_path, Cap(per_answer=1, by="random"), lines, 1) != left(
        tmp_path, Cap(per_answer=1, by="random"), lines, 2
    )


counts = st.dictionaries(st.sampled_from(list(OPENINGS)), st.integers(1, 9), min_size=1)


def balanced(balance: TypeBalance, given_counts: dict[str, int]) -> Counter[str]:
    """How many candidates of each type a balance keeps."""
    lines = [
        record(f"{OPENINGS[kind]} it {number}?", candidate=number)
        for kind, count in given_counts.items()
        for number in range(count)
    ]
    balance.prepare(FilterResources())
    for index, one in enumerate(lines):
        balance.observe(index, one)
    dropped = {index for index, _ in balance.dropped()}
    return Counter(question_type(one["question"]) for index, one in enumerate(lines) if index not in dropped)


def best_total(given_counts: dict[str, int], allowed: Any) -> int:
    """The size of the largest allowed selection, by trying all."""
    sizes = product(*(range(count + 1) for count in given_counts.values()))
    selections = [dict(zip(given_counts, combination, strict=True)) for combination in sizes]
    return max((sum(one.values()) for one in selections if allowed(one, sum(one.values()))), default=0)


@given(given_counts=counts, fraction=st.sampled_from([0.2, 0.34, 0.5, 0.7, 1.0]))
def test_no_type_exceeds_its_fraction_and_no_larger_selection_is_allowed(
    given_counts: dict[str, int], fraction: float
) -> None:
    def allowed(selection: dict[str, int], total: int) -> bool:
        return all(count <= fraction * total + 1e-9 for count in selection.values())

    best = best_total(given_counts, allowed)
    if not best:
        with pytest.raises(InputError, match=r"no selection of these types satisfies max_share=.*: increase it"):
            balanced(TypeBalance(max_share=fraction), given_counts)
        return
    kept = balanced(TypeBalance(max_share=fraction), given_counts)
    assert kept.total() == best
    assert allowed(dict(kept), kept.total())


def test_given_fractions_of_types() -> None:
    balance = TypeBalance(shares={"what": 0.5, "who": 0.25, "where": 0.25})
    assert balanced(balance, {"what": 9, "who": 3, "where": 2, "other": 5}) == {"what": 4, "who": 2, "where": 2}
    assert balanced(balance, {"what": 9, "who": 3}) == {"what": 6, "who": 3}  # no where: 2 to 1 remains
    assert balanced(balance, {"other": 5}) == {}
    capped = TypeBalance(max_share={"what": 0.5})
    assert balanced(capped, {"what": 9, "who": 3, "other": 1}) == {"what": 4, "who": 3, "other": 1}


def test_thresholds_and_the_best_fraction_of_each_passage(tmp_path: Path) -> None:
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
    assert left(tmp_path, both, lines) == {("a", 1), ("b", 1)}  # a fraction of those above the threshold
    with pytest.raises(InputError, match=r"line 1: no number under 'lrm'; there is .*score.*, and random"):
        left(tmp_path, RewardFilter(field="lrm"), lines)


class Length:
    """A metric: the length of a question; no score for those with "nobody", an exception for those with "error"."""

    signature = "length"
    calls = 0

    def score(self, questions: list[str], contexts: list[str], *, answers: Any = None, references: Any = None) -> Any:
        assert len(answers) == len(contexts) == len(questions)
        type(self).calls += len(questions)
        if any("error" in question for question in questions):
            raise ValueError("no")
        return SimpleNamespace(scores=[None if "nobody" in text else len(text) for text in questions], parts={})


def test_numbers_of_a_metric_that_are_not_finite_are_null_in_its_file(tmp_path: Path) -> None:
    def score(questions: list[str], contexts: list[str], **_: Any) -> Any:
        parts = {"logit": [math.inf, -math.inf, math.nan][: len(questions)]}
        return SimpleNamespace(scores=[1.0] * len(questions), parts=parts)

    path = write_questions(tmp_path / "q.jsonl", [record(f"Who is {n}?", candidate=n) for n in range(3)])
    augment(
        path,
        [],
        tmp_path / "a.json",
        settings=AugmentSettings(filters={"reward": {"metric": {"_target_": "x"}}}),
        state=PartialState(cpu=True),
        load_metric=lambda options: SimpleNamespace(signature="x", score=score),
    )
    (file,) = tmp_path.glob("q.reward-*.jsonl")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in file.read_text().splitlines()]
    assert [line["parts"] for line in lines] == [{"logit": None}] * 3


def test_a_metric_scores_each_remaining_candidate_once_and_its_failures_are_counted(tmp_path: Path) -> None:
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
    assert run(min=20)["dropped"]["reward too low"] == 1  # another threshold needs no new scores
    assert Length.calls == calls
    run(metric={"_target_": "y"})
    assert Length.calls > calls
    assert len(list(tmp_path.glob("q.reward-*.jsonl"))) == 2


def test_a_metric_that_needs_references_is_refused(tmp_path: Path) -> None:
    path = write_questions(tmp_path / "q.jsonl", [record("Who is it?")])
    settings = AugmentSettings(filters={"reward": {"metric": {"_target_": "x"}}})
    metric = SimpleNamespace(needs={"references"}, score=None)
    with pytest.raises(InputError, match=r"augment\.filters\.reward: the metric compares with references"):
        augment(path, [], tmp_path / "a.json", settings=settings, load_metric=lambda options: metric)  # type: ignore[arg-type,return-value]


def test_a_metric_that_is_better_when_lower_is_refused(tmp_path: Path) -> None:
    """Else the worst of each passage would stay."""
    path = write_questions(tmp_path / "q.jsonl", [record("Who is it?")])
    settings = AugmentSettings(filters={"reward": {"metric": {"_target_": "x"}}})
    metric = SimpleNamespace(higher_is_better=False, score=None, signature="errors")
    with pytest.raises(InputError, match=r"augment\.filters\.reward: errors: is better when lower, "):
        augment(path, [], tmp_path / "a.json", settings=settings, load_metric=lambda options: metric)  # type: ignore[arg-type,return-value]


def test_nan_ranks_last(tmp_path: Path) -> None:
    lines = [record("Is it?", candidate=0, logprob=math.nan), record("Is it so?", candidate=1, logprob=-9.0)]
    assert left(tmp_path, Cap(per_answer=1), lines) == {("q", 1)}


def test_reasons_of_two_filters_of_one_kind_differ(tmp_path: Path) -> None:
    filters = build_filters({"reward": {"field": "logprob"}, "fluent": {"kind": "reward", "field": "score", "min": 1}})
    assert [filter_.prefix + reason for filter_ in filters for reason in filter_.active_reasons()] == [
        "no reward",
        "fluent: no reward",
        "fluent: reward too low",
    ]
