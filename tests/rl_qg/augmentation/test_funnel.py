"""The funnel: the order of filters, counts and errors; the key of a question."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_qg.augmentation.candidates import Candidates, question_key
from rl_qg.augmentation.funnel import FilterResources, Funnel, Record, RowFilter, Rules, SetFilter
from rl_qg.runtime.errors import InputError
from tests.questions import record, write_questions


def test_a_question_key_depends_on_passage_and_words() -> None:
    key = question_key("One  passage.", "Who is it?")
    assert len(key) == 16
    assert key == question_key("One\npassage. ", "who is IT ?")
    others = [("Two passage.", "Who is it?"), ("One passage.", "Who it is?"), ("One passage. who", "is it?")]
    assert len({key, *(question_key(*other) for other in others)}) == 4


class Long(RowFilter):
    """Drops questions of more than `limit` words, and records the questions it has seen."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tested: list[str] = []

    def rules(self) -> Rules:
        def rejects(record: Record) -> bool:
            self.tested.append(record["question"])
            return len(record["question"].split()) > self.limit

        return {f"over {self.limit}": rejects}


class AllButFirst(SetFilter):
    """Keeps the first question in alphabetical order."""

    reasons = ("not the first",)

    def prepare(self, resources: FilterResources) -> None:
        self.seen: list[tuple[str, int]] = []

    def observe(self, index: int, record: Record) -> None:
        self.seen.append((record["question"], index))

    def dropped(self) -> Iterator[tuple[int, str]]:
        for _, index in sorted(self.seen)[1:]:
            yield index, self.reasons[0]


def funnel(tmp_path: Path, questions: list[str], filters: list[RowFilter | SetFilter]) -> Funnel:
    lines = [record(question, candidate=number) for number, question in enumerate(questions)]
    return Funnel(filters, Candidates(write_questions(tmp_path / "q.jsonl", lines)), FilterResources())


def test_each_filter_sees_the_candidates_that_earlier_filters_have_kept(tmp_path: Path) -> None:
    long, last = Long(2), Long(1)
    steps = funnel(tmp_path, ["d d", "b b", "a a a", "c"], [long, AllButFirst(), last])
    for filter_ in steps.filters:
        steps.apply(filter_)
    left: list[str] = []
    steps.read_through(lambda index, record: left.append(record["question"]))
    assert steps.counts == {"over 2": 1, "not the first": 2, "over 1": 1}
    assert (steps.seen, steps.kept, left) == (4, 0, [])
    assert long.tested == ["d d", "b b", "a a a", "c"]
    assert last.tested == ["b b"]


def test_consecutive_row_filters_read_the_file_once_and_the_first_rejection_counts(tmp_path: Path) -> None:
    first, second = Long(2), Long(1)
    steps = funnel(tmp_path, ["a a a", "b b", "c"], [first, second])
    for filter_ in steps.filters:
        steps.apply(filter_)
    assert first.tested == []  # nothing has been read yet
    assert steps.marks() == bytes([0, 0, 1])
    assert steps.counts == {"over 2": 1, "over 1": 1}
    assert second.tested == ["b b", "c"]


def test_marks_know_the_row_filters_after_a_set_filter(tmp_path: Path) -> None:
    steps = funnel(tmp_path, ["b", "a a"], [AllButFirst(), Long(1)])
    for filter_ in steps.filters:
        steps.apply(filter_)
    assert steps.marks() == bytes([0, 0])


def test_the_prefix_of_a_filter_is_in_the_counts(tmp_path: Path) -> None:
    row_filter, set_filter = Long(1), AllButFirst()
    row_filter.prefix, set_filter.prefix = "mine: ", "best: "
    steps = funnel(tmp_path, ["b", "a", "c c"], [row_filter, set_filter])
    for filter_ in steps.filters:
        steps.apply(filter_)
    assert steps.counts == {"mine: over 1": 1, "best: not the first": 1}


def test_an_error_of_a_filter_names_the_line(tmp_path: Path) -> None:
    class Picky(RowFilter):
        def rules(self) -> Rules:
            def rejects(record: Record) -> bool:
                raise InputError("no number under 'score'")

            return {"picky": rejects}

    steps = funnel(tmp_path, ["a"], [Picky()])
    steps.apply(steps.filters[0])
    with pytest.raises(InputError, match=r"q\.jsonl: line 1: no number under 'score'"):
        steps.read_through()


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    for lines in (1, 3):
        steps = funnel(tmp_path, ["a", "b"], [AllButFirst()])
        steps.read_through()
        write_questions(tmp_path / "q.jsonl", [record("a")] * lines)
        with pytest.raises(InputError, match=r"q\.jsonl: has changed while it was read"):
            steps.read_through(lambda index, record: None)
