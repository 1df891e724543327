"""Words and keys by worked cases and against a slow reference; the funnel's order, counts and errors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_qg.augmentation.candidates import Candidates
from rl_qg.augmentation.funnel import ChoiceFilter, Funnel, Record, Rule, RuleFilter, Work, question_key
from rl_qg.runtime.errors import InputError
from tests.questions import record, write_questions


def test_a_key_is_the_passage_and_the_words_of_the_question() -> None:
    key = question_key("One  passage.", "Who is it?")
    assert len(key) == 16
    assert key == question_key("One\npassage. ", "who is IT ?")
    others = [("Two passage.", "Who is it?"), ("One passage.", "Who it is?"), ("One passage. who", "is it?")]
    assert len({key, *(question_key(*other) for other in others)}) == 4


class Long(RuleFilter):
    """Drops questions of more than `limit` words, and notes which ones it was asked about."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.asked: list[str] = []

    def rules(self) -> list[Rule]:
        def rejects(record: Record) -> bool:
            self.asked.append(record["question"])
            return len(record["question"].split()) > self.limit

        return [Rule(f"over {self.limit}", rejects)]


class AllButFirst(ChoiceFilter):
    """Keeps the question that comes first in the alphabet."""

    reasons = ("not the first",)

    def begin(self, work: Work) -> None:
        self.seen: list[tuple[str, int]] = []

    def see(self, place: int, record: Record) -> None:
        self.seen.append((record["question"], place))

    def dropped(self) -> Iterator[tuple[int, str]]:
        for _, place in sorted(self.seen)[1:]:
            yield place, self.reasons[0]


def funnel(tmp_path: Path, questions: list[str], filters: list[RuleFilter | ChoiceFilter]) -> Funnel:
    lines = [record(question, candidate=number) for number, question in enumerate(questions)]
    return Funnel(filters, Candidates(write_questions(tmp_path / "q.jsonl", lines)), Work())


def test_each_filter_sees_what_the_ones_before_have_left(tmp_path: Path) -> None:
    long, last = Long(2), Long(1)
    made = funnel(tmp_path, ["d d", "b b", "a a a", "c"], [long, AllButFirst(), last])
    for one in made.filters:
        made.add(one)
    left: list[str] = []
    made.settle(lambda place, record: left.append(record["question"]))
    assert made.counts == {"over 2": 1, "not the first": 2, "over 1": 1}
    assert (made.seen, made.kept, left) == (4, 0, [])
    assert long.asked == ["d d", "b b", "a a a", "c"]
    assert last.asked == ["b b"]


def test_rules_in_a_row_read_the_file_once_and_the_first_that_rejects_counts(tmp_path: Path) -> None:
    first, second = Long(2), Long(1)
    made = funnel(tmp_path, ["a a a", "b b", "c"], [first, second])
    for one in made.filters:
        made.add(one)
    assert first.asked == []  # nothing is read before it has to be
    assert made.marks() == bytes([0, 0, 1])
    assert made.counts == {"over 2": 1, "over 1": 1}
    assert second.asked == ["b b", "c"]


def test_a_name_of_its_own_stands_in_the_counts(tmp_path: Path) -> None:
    short, choice = Long(1), AllButFirst()
    short.prefix, choice.prefix = "mine: ", "best: "
    made = funnel(tmp_path, ["b", "a", "c c"], [short, choice])
    for one in made.filters:
        made.add(one)
    assert made.counts == {"mine: over 1": 1, "best: not the first": 1}


def test_what_a_filter_finds_wrong_is_said_with_its_line(tmp_path: Path) -> None:
    class Picky(RuleFilter):
        def rules(self) -> list[Rule]:
            def rejects(record: Record) -> bool:
                raise InputError("no number under 'score'")

            return [Rule("picky", rejects)]

    made = funnel(tmp_path, ["a"], [Picky()])
    made.add(made.filters[0])
    with pytest.raises(InputError, match=r"q\.jsonl: line 1: no number under 'score'"):
        made.settle()


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    for lines in (1, 3):
        made = funnel(tmp_path, ["a", "b"], [AllButFirst()])
        made.settle()
        write_questions(tmp_path / "q.jsonl", [record("a")] * lines)
        with pytest.raises(InputError, match=r"q\.jsonl: has changed while it was read"):
            made.settle(lambda place, record: None)
