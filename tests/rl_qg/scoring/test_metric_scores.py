"""Scores of a metric are computed once, and used again only for the same metric and texts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rewards import MetricInputError, Product, Weighted, load
from rl_qg.judging.correlate import BestReference
from rl_qg.runtime.errors import InputError, LocalError
from rl_qg.scoring.kept_scores import MetricRow, check_rows, scores_of
from rl_qg.scoring.reward_scorer import RewardScorer
from tests.toy_metrics import WordCount
from tests.toy_scores import rows, score as score_table

ROWS = [MetricRow(f"f: line {k}", "w " * k, f"c{k}", None, (f"r{k}",)) for k in range(1, 8)]


def score(metric: Any, folder: Path, rows: list[MetricRow] = ROWS) -> list[float | None]:
    return scores_of("words", metric, rows, folder, batch_size=3)


def test_a_killed_run_continues_after_the_last_whole_line(tmp_path: Path) -> None:
    class Dies(WordCount):
        def score(self, questions, contexts, **columns) -> Any:
            if self.seen == 6:
                raise KeyboardInterrupt
            return super().score(questions, contexts, **columns)

    with pytest.raises(KeyboardInterrupt):
        score(Dies(), tmp_path)
    path = tmp_path / "words.jsonl"
    path.write_text(path.read_text() + '{"scores": [7.')  # a kill cut off the last line
    metric = WordCount()
    assert score(metric, tmp_path) == [1, 2, 3, 4, 5, 6, 7]
    assert metric.seen == 1
    assert score(metric, tmp_path) == [1, 2, 3, 4, 5, 6, 7] and metric.seen == 1


def test_scores_of_another_metric_or_other_texts_are_computed_again(tmp_path: Path) -> None:
    score(WordCount(), tmp_path)
    other = WordCount(sign=-1)
    assert score(other, tmp_path) == [-1, -2, -3, -4, -5, -6, -7] and other.seen == 7
    changed = WordCount(sign=-1)
    assert score(changed, tmp_path, [*ROWS[:-1], MetricRow("f", "one")])[-1] == -1 and changed.seen == 7
    unread = WordCount(sign=-1)  # the metric does not read the context
    score(unread, tmp_path, [*ROWS[:-1], MetricRow("f", "one", "another")])
    assert unread.seen == 0


def test_scores_of_a_metric_without_signature_are_computed_again(tmp_path: Path) -> None:
    class Unsigned(WordCount):
        def __init__(self, sign: int) -> None:
            super().__init__(sign, ["references"])
            del self.signature

    wraps = [lambda one: one, lambda one: Weighted({"part": one}), lambda one: Product({"sum": Weighted({"a": one})})]
    for at, wrap in enumerate([*wraps, BestReference]):
        score(wrap(Unsigned(1)), tmp_path / str(at))
        other = Unsigned(-1)
        assert score(wrap(other), tmp_path / str(at)) == [-1, -2, -3, -4, -5, -6, -7] and other.seen == 7
    kept = Weighted({"part": WordCount()})
    for _ in range(2):
        assert score(kept, tmp_path / "kept") == [1, 2, 3, 4, 5, 6, 7] and kept.parts["part"].metric.seen == 7


def test_scores_that_are_none_or_not_finite_become_none(tmp_path: Path) -> None:
    class Odd(WordCount):
        def score(self, questions, contexts, **columns) -> Any:
            return SimpleNamespace(scores=[2, None, float("nan"), float("-inf")][: len(questions)])

    assert score(Odd(), tmp_path) == [2, None, None, 2, None, None, 2]  # in batches of three


def test_a_metric_without_any_score_is_refused(tmp_path: Path) -> None:
    class Silent(WordCount):
        def score(self, questions, contexts, **columns) -> Any:
            return [None] * len(questions)

    with pytest.raises(
        InputError, match=r"metric words: no finite score for any of 7 rows, the first of them f: line 1"
    ):
        score(Silent(), tmp_path)


def test_an_invalid_row_or_score_is_one_line(tmp_path: Path) -> None:
    class Refuses(WordCount):
        def score(self, questions, contexts, **columns) -> Any:
            raise MetricInputError("answers[1] is empty")

    class Short(WordCount):
        def score(self, questions, contexts, **columns) -> Any:
            return SimpleNamespace(scores=[1.0])

    with pytest.raises(InputError, match=r"f: line 1 to f: line 3: metric words: answers\[1\] is empty"):
        score(Refuses(), tmp_path)
    with pytest.raises(InputError, match=r"metric words: .*Short: score returned 1 scores for 3 questions"):
        score(Short(), tmp_path)
    with pytest.raises(InputError, match="f: line 1: 'answer' is missing or no text, and metric m needs it"):
        check_rows({"m": WordCount(needs=("answers",))}, ROWS)
    check_rows({"m": WordCount(needs=("contexts", "references"))}, ROWS)


def test_a_metric_without_needs_gets_the_columns_that_every_row_has(tmp_path: Path) -> None:
    class Free:
        given: Any = None

        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            self.given = contexts, answers, references
            return SimpleNamespace(scores=[0.0] * len(questions))

    metric = Free()
    scores_of("free", metric, ROWS[:2], tmp_path, batch_size=9)
    assert metric.given == (["c1", "c2"], None, [("r1",), ("r2",)])


def test_a_metric_whose_scores_depend_on_all_rows_gets_them_in_one_batch(tmp_path: Path) -> None:
    texts = ["the old mill", "the river", "the mill", "a town", "the town"]
    references = [(text,) for text in ("the mill", "a river", "an old mill", "a new town", "town")]
    table = [MetricRow("f", text, None, None, group) for text, group in zip(texts, references, strict=True)]
    got = scores_of("cider", load("cider"), table, tmp_path, batch_size=2)
    assert got == load("cider").score(texts, references=references).scores
    assert got[:2] != load("cider").score(texts[:2], references=references[:2]).scores  # what a batch would give


def test_rows_that_are_scored_as_a_whole_are_not_halved_where_memory_runs_out(tmp_path: Path) -> None:
    class Large(WordCount):
        whole_set = True

        def score(self, questions: Any, *given: Any, **columns: Any) -> Any:
            if len(questions) > 1:
                raise MemoryError
            return super().score(questions, *given, **columns)

    with pytest.raises(
        LocalError, match="metric large: its scores depend on all 2 rows, which do not fit into memory"
    ):
        scores_of("large", Large(), ROWS[:2], tmp_path, batch_size=9)


def test_what_scores_batches_refuses_a_metric_whose_scores_depend_on_all_rows(tmp_path: Path) -> None:
    source, output = rows(tmp_path / "in.jsonl"), tmp_path / "scored.jsonl"
    for refused in (lambda: score_table(source, output, load("cider")), lambda: RewardScorer(load("cider"))):
        with pytest.raises(MetricInputError, match="cider: its scores depend on all rows of a call"):
            refused()
    assert not output.exists()
