"""Unanswerable questions for readers that abstain."""

from collections import Counter
from dataclasses import replace

import pytest

from rl_qg.data.corpus import synthetic_examples
from rl_qg.readers.train_reader import with_unanswerable
from rl_qg.runtime.errors import InputError

EXAMPLES = list(synthetic_examples(60, seed=3, prefix="unanswerable"))


def test_the_examples_stay_and_the_added_ones_have_no_answer() -> None:
    mixed = with_unanswerable(EXAMPLES, 1.0, seed=0)
    added = mixed[len(EXAMPLES) :]
    originals = {f"{example.id}-unanswerable": example for example in EXAMPLES}

    assert mixed[: len(EXAMPLES)] == EXAMPLES
    assert len(added) > 0.9 * len(EXAMPLES)
    assert len({example.id for example in added}) == len(added)
    for example in added:
        original = originals[example.id]
        assert example.context == original.context and example.answers == ()
        assert example.question not in ("", "?", original.question)


def test_no_question_is_one_of_the_same_passage() -> None:
    asked: dict[str, set[str]] = {}
    for example in EXAMPLES:
        asked.setdefault(example.context, set()).add(example.question)
    added = with_unanswerable(EXAMPLES, 1.0, seed=0)[len(EXAMPLES) :]
    assert not [example.question for example in added if example.question in asked[example.context]]


def test_every_rule_is_used() -> None:
    """Words of the original question, in order or not, complete or not, tell which rule was at work."""
    everything = {example.question for example in EXAMPLES}
    originals = {f"{example.id}-unanswerable": example.question for example in EXAMPLES}
    kinds: Counter[str] = Counter()
    for example in with_unanswerable(EXAMPLES, 1.0, seed=1)[len(EXAMPLES) :]:
        words, before = example.question.rstrip("?").split(), originals[example.id].rstrip("?").split()
        if example.question in everything:
            kinds["other passage"] += 1
        elif sorted(words) == sorted(before):
            kinds["shuffled"] += 1
        elif words == before[: len(words)]:
            kinds["beginning"] += 1
        elif set(words) == set(before):
            kinds["repeated"] += 1
        elif set(words) < set(before):
            kinds["left out"] += 1
        elif words[1:] == before[1:]:
            kinds["other first word"] += 1
        elif len(replaced := _replaced(words, before)) == 1:
            new, old = (word.lstrip('"')[:1].isupper() for word in replaced[0])
            kinds["joined" if new != old else "other name" if new else "other word"] += 1
        else:
            kinds["joined"] += 1
    assert len(kinds) == 9 and min(kinds.values()) >= 5, kinds


def _replaced(words: list[str], before: list[str]) -> list[tuple[str, str]]:
    if len(words) != len(before):
        return []
    return [(new, old) for new, old in zip(words, before, strict=True) if new != old]


def test_the_share_and_the_seed_decide() -> None:
    half = len(with_unanswerable(EXAMPLES, 0.5, seed=0)) - len(EXAMPLES)
    assert 0.3 * len(EXAMPLES) < half < 0.7 * len(EXAMPLES)
    assert with_unanswerable(EXAMPLES, 0.5, seed=0) == with_unanswerable(EXAMPLES, 0.5, seed=0)
    assert with_unanswerable(EXAMPLES, 0.5, seed=0) != with_unanswerable(EXAMPLES, 0.5, seed=1)
    assert with_unanswerable(EXAMPLES, 0.0, seed=0) == EXAMPLES


@pytest.mark.parametrize("ending", ["？", ".", " ?", "??", "", "؟"])
def test_an_unchanged_question_is_never_called_unanswerable(ending: str) -> None:
    """Whatever ends the questions: it ends the made ones too, and tells nothing."""
    examples = [replace(example, question=example.question.rstrip("?") + ending) for example in EXAMPLES]
    bare = {example.id: example.question.rstrip("?？.؟ ").split() for example in examples}
    added = with_unanswerable(examples, 1.0, seed=0)[len(examples) :]
    assert len(added) > 0.9 * len(examples)
    mark = ending.strip()[-1:]
    for example in added:
        words = example.question.rstrip("?？.؟ ").split()
        assert words != bare[example.id.removesuffix("-unanswerable")]
        assert mark in ("", ".") or (example.question.endswith(mark) and not example.question.endswith(2 * mark))


def test_a_question_without_spaces_has_no_other_words() -> None:
    examples = [replace(example, question=f"谁建造了它{number}？") for number, example in enumerate(EXAMPLES)]
    own = {f"{example.id}-unanswerable": example.question for example in examples}
    assert all(example.question != own[example.id] for example in with_unanswerable(examples, 1.0, 0)[len(examples) :])


def test_questions_of_one_passage_alone_are_refused() -> None:
    with pytest.raises(InputError, match=r"qa\.unanswerable: questions of at least two passages"):
        with_unanswerable([example for example in EXAMPLES if example.context == EXAMPLES[0].context], 1.0, seed=0)
