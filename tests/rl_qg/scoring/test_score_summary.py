"""Summaries of scores equal those of numpy, and the interval of very many is near the bootstrap over passages."""

import json
from pathlib import Path

import numpy as np
import pytest

from rl_qg.scoring import score_file as score_summary
from rl_qg.scoring.score_file import normal_interval, summarise_scores, summary_text
from rl_qg.stats.intervals import PassageDraws, mean_interval


def written(path: Path, scores: list[float | None], contexts: list[str] | None = None, field: str = "context") -> Path:
    rows = [{"question": "q", "score": score, "parts": {"p": score, "list": [1.0], "text": "t"}} for score in scores]
    for row, context in zip(rows, contexts or [], strict=contexts is not None):
        row[field] = context
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def skewed(n: int, seed: int = 0) -> list[float]:
    return (np.random.default_rng(seed).exponential(2.0, n) - 1e4).tolist()  # far from zero: sums of squares cancel


def test_summaries_agree_with_numpy(tmp_path: Path) -> None:
    values = skewed(501)
    summary = summarise_scores(written(tmp_path / "s.jsonl", [*values[:250], None, *values[250:], None]))
    score, array = summary["score"], np.array(values)
    assert (summary["rows"], summary["without_score"], score["n"]) == (503, 2, 501)
    assert (score["min"], score["max"]) == (array.min(), array.max())
    assert score["std"] == pytest.approx(array.std(ddof=1))
    for name, share in {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}.items():
        assert score[name] == np.quantile(array, share)
    interval = mean_interval(values, PassageDraws(range(501)))
    assert (score["mean"], score["low"], score["high"]) == (interval.mean, interval.low, interval.high)
    assert score["passages"] == 501
    assert score["interval"] == "95 %, percentile bootstrap over rows"
    assert summary["parts"] == {"p": {"mean": pytest.approx(array.mean()), "n": 501}}


@pytest.mark.slow
def test_very_many_scores_are_summarised_in_fixed_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For more scores than the sample holds: exact moments, an interval near the bootstrap, approximate quantiles."""
    values = sorted(skewed(6000))  # sorted, so the first ones are not a random sample
    path = written(tmp_path / "s.jsonl", [*values])
    exact = summarise_scores(path)["score"]
    monkeypatch.setattr(score_summary, "SAMPLE", 1500)
    sample_sizes: list[int] = []
    quantile = np.quantile
    monkeypatch.setattr(
        np, "quantile", lambda sample, *rest: sample_sizes.append(len(sample)) or quantile(sample, *rest)
    )
    score = summarise_scores(path)["score"]
    assert sample_sizes == [1500]
    assert score["interval"] == "95 %, normal approximation over rows" and score["n"] == 6000
    assert score["mean"] == pytest.approx(exact["mean"], rel=1e-12)
    assert (score["std"], score["min"], score["max"]) == (exact["std"], exact["min"], exact["max"])
    half = (exact["high"] - exact["low"]) / 2
    assert score["low"] == pytest.approx(exact["low"], abs=0.06 * half)
    assert score["high"] == pytest.approx(exact["high"], abs=0.06 * half)
    ranks = np.searchsorted(values, [score[name] for name in ("q05", "q25", "median", "q75", "q95")]) / 6000
    assert ranks == pytest.approx([0.05, 0.25, 0.5, 0.75, 0.95], abs=0.06)  # above 4 standard errors
    assert summarise_scores(path)["score"] == score  # the summary is deterministic


def test_the_normal_interval_follows_the_textbook_formula() -> None:
    values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]  # mean 5, squares 32
    interval = normal_interval(np.array([[value, 1] for value in values]))
    half = 2.364624 * (32 / 7) ** 0.5 / 8**0.5  # Student's quantile for 7 degrees of freedom
    assert (interval.mean, interval.n, interval.passages) == (5.0, 8, 8)
    assert (interval.low, interval.high) == (pytest.approx(5 - half), pytest.approx(5 + half))


def correlated(passages: int) -> tuple[list[float], list[str]]:
    """Three questions for each passage with similar scores; the rows of a passage are not adjacent."""
    rng = np.random.default_rng(4)
    values = rng.normal(size=passages) + rng.normal(0, 0.3, (3, passages))
    return values.ravel().tolist(), [f"passage {number}" for _ in range(3) for number in range(passages)]


@pytest.mark.parametrize("field", ["context", "paragraph", "text"])
def test_intervals_resample_passages_if_rows_have_a_context(tmp_path: Path, field: str) -> None:
    values, contexts = correlated(200)
    columns = {"context": "text"} if field == "text" else None
    score = summarise_scores(written(tmp_path / "s.jsonl", [*values], contexts, field), columns)["score"]
    interval = mean_interval(values, PassageDraws(contexts))
    assert (score["mean"], score["low"], score["high"]) == (interval.mean, interval.low, interval.high)
    assert (score["n"], score["passages"]) == (600, 200)
    assert score["interval"] == "95 %, percentile bootstrap over passages"
    rows = summarise_scores(written(tmp_path / "rows.jsonl", [*values]))["score"]
    assert score["high"] - score["low"] > 1.5 * (
        rows["high"] - rows["low"]
    )  # near √3, because scores of a passage are similar


@pytest.mark.slow
def test_the_interval_of_very_many_passages_is_near_the_bootstrap(tmp_path: Path, monkeypatch) -> None:
    values, contexts = correlated(1500)
    path = written(tmp_path / "s.jsonl", [*values], contexts)
    exact = summarise_scores(path)["score"]
    monkeypatch.setattr(score_summary, "PASSAGES", 100)
    score = summarise_scores(path)["score"]
    half = (exact["high"] - exact["low"]) / 2
    assert score["interval"] == "95 %, normal approximation over passages" and score["passages"] is None
    assert score["mean"] == pytest.approx(exact["mean"], rel=1e-12)
    assert score["low"] == pytest.approx(exact["low"], abs=0.06 * half)
    assert score["high"] == pytest.approx(exact["high"], abs=0.06 * half)


def test_summaries_of_one_score_and_of_none(tmp_path: Path) -> None:
    one = summarise_scores(written(tmp_path / "one.jsonl", [0.25]))
    assert (one["score"]["mean"], one["score"]["std"], one["score"]["median"]) == (0.25, 0.0, 0.25)
    none = summarise_scores(written(tmp_path / "none.jsonl", [None]))
    assert none == {"rows": 1, "without_score": 1, "score": None, "parts": {}}
    assert summary_text({"signature": "m|v:1", **none}) == "signature  m|v:1\nrows       1, 1 of them without a score"
    text = summary_text({"signature": "m|v:1", **one}).split("\n")
    assert (one["score"]["low"], one["score"]["high"]) == (None, None)
    assert text[2] == "mean       0.25  (one passage: no interval)"
    assert text[-1] == "parts      p 0.25"


def test_intervals_end_at_the_bounds_of_the_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, contexts = [1.0, 0.95, 0.4, 1.0], ["a", "b", "c", "d"]
    path = written(tmp_path / "s.jsonl", [*values], contexts)
    free, bound = (summarise_scores(path, bounds=bounds)["score"] for bounds in (None, (0.0, 1.0)))
    assert free["high"] > 1.0 == bound["high"] and bound["low"] == free["low"] < bound["mean"]
    table = np.column_stack([values, np.ones(4)])
    assert normal_interval(table).high > 1.0 == normal_interval(table, bounds=(-np.inf, 1.0)).high  # type: ignore[operator]
