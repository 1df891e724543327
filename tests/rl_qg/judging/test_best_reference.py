"""`references=best`: one reference at a time, and the best of their scores."""

import tempfile
from pathlib import Path

import pytest

import rewards
from rewards import MetricInputError
from rl_qg.commands.cli import run_command
from rl_qg.judging.correlate import best_of_references
from rl_qg.runtime.files import read_json
from rl_qg.scoring.kept_scores import MetricRow, scores_of


class Distance:
    """Letters that the question has more or less than its first reference."""

    needs = ("references",)
    higher_is_better = False
    signature = "distance"

    def score(self, questions, contexts=None, *, answers=None, references=None):
        assert all(len(group) == 1 for group in references)
        return [float(abs(len(text) - len(group[0]))) for text, group in zip(questions, references, strict=True)]


def test_the_best_of_each_reference_is_that_of_separate_calls() -> None:
    """Parts of two references are both in BLEU's counts, but in neither reference."""
    questions, references = ["who built the mill in may"] * 2, [["who built it", "it was the mill in may"], ["who"]]
    metric = rewards.load("bleu2")
    alone = [max(metric.score([questions[0]], references=[[text]]).scores[0] for text in references[0])]
    alone += metric.score(questions[:1], references=references[1:]).scores
    best = best_of_references(metric)
    assert best.score(questions, references=references).scores == pytest.approx(alone, abs=1e-12)
    assert metric.score(questions, references=references).scores[0] > alone[0] + 0.05
    assert best.signature == f"{metric.signature}|references:best" and best.needs == metric.needs


def test_the_best_distance_is_the_smallest() -> None:
    best = best_of_references(Distance())
    assert list(best.score(["abc", "a"], references=[["a", "abcd", "x" * 9], ["abcd"]]).scores) == [1.0, 3.0]
    assert not best.higher_is_better


def test_a_cache_is_cleared_where_the_metric_has_one() -> None:
    class Cached(Distance):
        cleared = 0

        def reset_cache(self) -> None:
            self.cleared += 1

    metric = Cached()
    best_of_references(metric).reset_cache()
    assert metric.cleared == 1
    best_of_references(Distance()).reset_cache()


def test_a_metric_without_references_is_left_alone_and_one_of_whole_files_is_refused() -> None:
    form = rewards.load("form")
    assert best_of_references(form) is form
    with pytest.raises(MetricInputError, match="its scores depend on all rows"):
        best_of_references(rewards.load("cider"))


def test_the_command_reads_a_table_and_takes_the_best(tmp_path: Path) -> None:
    lines = ["#TEXT\tREF\tGOOD", *(f"who {'x' * n} ?\twho {'x' * (n % 3)} ?\t{n}" for n in range(6))]
    (tmp_path / "h.tsv").write_text("\n".join(lines) + "\n")
    given = ["columns.question='#TEXT'", "columns.references=REF", "columns.human={good: GOOD}", "references=best"]
    given += ["metrics=[chrf]", "max_selected=0", "disagreements=0", "resamples=40", f"output={tmp_path / 'out'}"]
    run_command("correlate", [f"human={tmp_path / 'h.tsv'}", *given])
    record = read_json(tmp_path / "out" / "correlate.json")
    assert record["signatures"]["chrf"].endswith("|references:best") and record["counts"]["questions"] == 6


def test_a_reward_without_needs_gets_every_column() -> None:
    class Own:
        def score(self, questions, contexts, *, answers, references):
            return [float(len(c) + len(a)) for c, a in zip(contexts, answers, strict=True)]

    row = MetricRow("row 1", "Who?", "text", "me", ("a", "b"))
    assert scores_of("own", best_of_references(Own()), [row], Path(tempfile.mkdtemp()), batch_size=2) == [6.0]


def test_titles_are_repeated_for_each_reference() -> None:
    class Titled(Distance):
        needs = ("references", "titles")

        def score(self, questions, contexts=None, *, answers=None, references=None, titles=None):
            assert titles == ["one", "one", "two"]
            return super().score(questions, references=references)

    best = best_of_references(Titled())
    assert [*best.score(["a", "b"], references=[["a", "bb"], ["bb"]], titles=["one", "two"]).scores] == [0.0, 1.0]
