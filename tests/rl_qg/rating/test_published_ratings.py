"""Published results of human evaluation, recomputed.

`da_dialogue`: Ji et al., "Achieving Reliable Human Assessment of Open-Domain Dialogue Systems", ACL 2022, whose raw
ratings are public. QAScore's ratings are not: its tables are recomputed from the scores of systems (see
`tests/rl_qg/judging/test_published_tables.py` about their signs) and from the counts of its recipe.
"""

import csv
import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_qg.judging.raters import OVERALL
from rl_qg.rating.analysis.analyse import write_analysis
from rl_qg.rating.analysis.quality import PASSED, RaterControl, control_of_raters, summary_rows
from rl_qg.rating.analysis.ratings import NO_ORIGINAL, RatedItems
from rl_qg.rating.analysis.scores import (
    DIALOGUE_EVAL,
    QuestionScores,
    SystemScores,
    question_scores,
    system_scores,
    z_scores,
)
from rl_qg.rating.analysis.study import CERTAIN, agreement_rows, pair_rows, replication_of_scores
from rl_qg.rating.protocol import KINDS, RANK_SUM, RATINGS, Control
from rl_qg.settings.web import RateAnalyseSettings
from rl_qg.stats.correlation import row_correlations
from tests.rl_qg.judging.test_published_tables import (
    COEFFICIENTS,
    CRITERIA,
    HUMAN,
    QASCORE,
    RIVALS,
    SHARED,
    TABLE_2,
    TABLE_7,
)
from tests.rl_qg.rating.rating_rows import columns, rating

DIALOGUE = SHARED / "da_dialogue" / "ratings.csv.gz"
LMQG = SHARED / "lmqg_human" / "items.jsonl.gz"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the human judgements (../shared/data) are not here")
POSITIVE = ["interesting", "fun", "consistent", "fluent", "topic"]
SEVEN = ("robotic", "interesting", "fun", "consistent", "fluent", "repetitive", "topic")
RUNS = ("free_1", "free_2", "icebreaker")


@cache
def dialogue(run: str) -> tuple[RatedItems, dict[str, bool], np.ndarray]:
    """The ratings of a run, whether each worker passed, and the authors' z in place of the values."""
    records, passed, z = [], dict[str, bool](), list[dict[str, Any]]()
    with gzip.open(DIALOGUE, "rt", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["run"] != run:
                continue
            passed[row["worker"]] = row["passed"] == "1"
            kind = "degraded" if row["system"] == "QualityControl" else "ordinary"
            fields = {"rater": row["worker"], "assignment": row["assignment"], "kind": kind, "system": row["system"]}
            records += [{**fields, "criterion": name, "value": row[f"raw_{name}"]} for name in SEVEN]
            z += [{**fields, "criterion": name, "value": row[f"z_{name}"]} for name in SEVEN]
    return columns(records), passed, columns(z).values


@cache
def decisions(run: str) -> list[RaterControl]:
    return control_of_raters(dialogue(run)[0], Control(RANK_SUM, RATINGS), POSITIVE)


@cache
def of_passed(run: str, *, published_z: bool) -> tuple[QuestionScores, SystemScores]:
    """Scores from the ratings of the workers whom the authors passed, by our z or theirs."""
    every, passed, z = dialogue(run)
    good = np.array([passed[worker] for worker in every.raters])[every.rater]
    rated = every.kept(good)
    values = z[good] if published_z else z_scores(rated, DIALOGUE_EVAL).values
    questions = question_scores(rated, values)
    return questions, system_scores(rated, questions, resamples=100, seed=RUNS.index(run))


@needs_shared
@pytest.mark.parametrize(("run", "workers", "good"), [(RUNS[0], 248, 173), (RUNS[1], 246, 138), (RUNS[2], 246, 169)])
def test_the_authors_decision_on_every_worker(run: str, workers: int, good: int) -> None:
    _, passed, _ = dialogue(run)
    found = {one.rater: one for one in decisions(run)}
    assert len(found) == workers and sum(passed.values()) == good
    assert {name: one.verdict == PASSED for name, one in found.items()} == passed


@needs_shared
def test_the_criteria_that_enter_decide() -> None:
    rated, passed, _ = dialogue("free_1")
    found = control_of_raters(rated, Control(RANK_SUM, RATINGS), SEVEN)
    assert sum(one.verdict == PASSED for one in found) == 132 < sum(passed.values())
    rows = summary_rows(rated, decisions("free_1"), {})
    assert [(row["raters"], row["number"], row["tasks"]) for row in rows] == [
        ("passed", 173, 215), ("failed", 75, 89), ("all", 248, 304)
    ]  # fmt: skip


@needs_shared
@pytest.mark.parametrize(("run", "most"), [("free_1", 2e-6), ("icebreaker", 2e-6), ("free_2", 0.254)])
def test_z_of_every_rating(run: str, most: float) -> None:
    """In free_2 some workers' published z differ, for a reason not found."""
    rated, _, published = dialogue(run)
    z = z_scores(rated, DIALOGUE_EVAL).values
    gaps = np.abs(z - published)[~np.isnan(published) & ~np.isnan(z)]
    assert len(gaps) > 7 * 900 and gaps.max() < most


@needs_shared
def test_the_study_replicates_itself() -> None:
    """Published r: .969."""
    scores = [of_passed(run, published_z=True)[1] for run in RUNS[:2]]
    values = {
        row["coefficient"]: row["value"] for row in replication_of_scores(*scores) if row["criterion"] == OVERALL
    }
    assert [values[name] for name in COEFFICIENTS] == pytest.approx([0.969, 0.903, 0.733], abs=0.0005)


@needs_shared
def test_the_study_replicates_itself_with_our_z() -> None:
    first, second, third = (of_passed(run, published_z=False)[1] for run in RUNS)
    rows = {(row["criterion"], row["coefficient"]): row for row in replication_of_scores(first, second)}
    assert [rows[OVERALL, name]["value"] for name in COEFFICIENTS] == pytest.approx([0.968, 0.903, 0.733], abs=0.0005)
    published = dict(interesting=0.952, fun=0.924, consistent=0.901, fluent=0.959, topic=0.951, robotic=0.658)
    for criterion, r in {**published, "repetitive": 0.936}.items():
        assert rows[criterion, "pearson"]["value"] == pytest.approx(r, abs=0.004)  # theirs is from their z
    other = {row["criterion"]: row["value"] for row in replication_of_scores(first, third)[::3]}
    assert other[OVERALL] == pytest.approx(0.985, abs=0.0005)
    systems = dict(
        A=0.534, B=0.419, A_p=0.318, C=0.262, C_p=0.189, B_p=0.173, D=-0.087, D_p=-0.201, E_p=-0.217, E=-0.243
    )
    assert {name: round(float(first.of(name).data), 3) for name in first.systems} == systems


@needs_shared
@pytest.mark.parametrize(("run", "pairs"), zip(RUNS, (36, 35, 33), strict=True))
def test_pairs_that_differ_by_the_published_test(run: str, pairs: int) -> None:
    rows = pair_rows(*of_passed(run, published_z=False))
    assert len(rows) == 45 and sum(row["p_rank_sum"] < CERTAIN for row in rows) == pairs


@needs_shared
def test_kappa_of_the_ratings_of_lmqg() -> None:
    """On the shared half of the items; names of raters are gone, so the n-th rating of a question is rater n's."""
    criteria = ("correctness", "grammaticality", "understandability")
    records = []
    with gzip.open(LMQG, "rt", encoding="utf-8") as stream:
        for line in stream:
            item: dict[str, Any] = json.loads(line)
            for at, question in enumerate(item["questions"]):
                records += [
                    rating(
                        f"r{number}", at + 1, value, system=question["system"], hit=f"h{item['item']}", criterion=name
                    )
                    for name in criteria
                    for number, value in enumerate(question[name])
                ]
    rated = columns(records)
    kappas = {row["criterion"]: row for row in agreement_rows(rated, resamples=1, seed=0) if "κ" in row["statistic"]}
    assert [kappas[name]["value"] for name in criteria] == pytest.approx([0.6085, 0.3210, 0.3589], abs=5e-5)
    assert {row["n"] for row in kappas.values()} == {1500}
    member = question_scores(rated, rated.values)
    means = {name: member.values[member.member[:, at] > 0].mean(axis=0) for at, name in enumerate(member.systems)}
    assert means["T5 Large"] == pytest.approx([2.790, 2.948, 2.925], abs=0.0005)
    assert means["LSTM"] == pytest.approx([1.205, 2.616, 2.370], abs=0.0005)


# --- QAScore ---


def test_tables_2_and_7_of_qascore(tmp_path: Path) -> None:
    """From files of ratings to the analysis: one rater gives every system its published scores, on another scale,
    which z takes away. Exceptions: rounding to three digits made ties in appropriateness (ρ .872, τ .759), and
    Q-BLEU's r are .726 and .725."""
    for run in (0, 1):
        rows = [
            {"rater": "r", "kind": "ordinary", "system": name, "criterion": criterion, "value": 50 + 100 * value}
            for name, runs in HUMAN.items()
            for criterion, value in zip(CRITERIA, runs[run][1:], strict=True)
        ]
        (tmp_path / f"{run}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    record = write_analysis(
        RateAnalyseSettings(
            ratings=str(tmp_path / "0.jsonl"),
            replication=str(tmp_path / "1.jsonl"),
            output=str(tmp_path / "out"),
            resamples=2,
        )
    )
    found = {(row["criterion"], row["coefficient"]): row["value"] for row in record["replication"]}
    for criterion, published in TABLE_7.items():
        values = [found[criterion, name] for name in COEFFICIENTS]
        expected = (published[0], 0.872, 0.759) if criterion == "appropriateness" else published
        assert values == pytest.approx(expected, abs=0.0012), criterion
    overall = {row["system"]: row["value"] for row in record["systems"] if row["criterion"] == OVERALL}
    x = np.array([[overall[name] for name in HUMAN]])
    ours = {"QAScore": QASCORE, **RIVALS}
    for metric, published in TABLE_2.items():
        of_systems = x if metric == "QAScore" else x[:, 1:]
        values = [float(one[0]) for one in row_correlations(of_systems, np.array([ours[metric]])).values()]
        # the overall score is that of the four criteria here, which have three digits each
        assert values == pytest.approx(published, abs=0.0021), metric


def recipe_of_qascore(tasks: int, good_tasks: int, workers: int, good_workers: int) -> RatedItems:
    """Tasks of 11 ordinary, 3 repeated and 6 degraded items by workers in turn, the good ones first. Human is repeated
    and degraded in each; of the ten others two are repeated and five degraded, drawn in turn."""
    rows = []
    names = ["Human", *(f"s{number}" for number in range(10))]
    for task in range(tasks):
        repeated = [0, 1 + task % 10, 1 + (task + 1) % 10]
        degraded = [0, *(1 + (task + shift) % 10 for shift in range(2, 7))]
        rows += [(task, 0, name, NO_ORIGINAL) for name in names]
        rows += [(task, 1, names[at], 20 * task + at) for at in repeated]
        rows += [(task, 2, names[at], 20 * task + at) for at in degraded]
    task, kind, _, original = (np.array(column) for column in zip(*rows, strict=True))
    of_good = np.arange(good_tasks) % good_workers
    others = good_workers + np.arange(tasks - good_tasks) % (workers - good_workers)
    rater = np.concatenate([of_good, others])[task]
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 30, (len(rows), 4)) + np.where((rater < good_workers) & (kind != 2), 50, 20)[:, None]
    hits = tuple(f"h{number}" for number in range(tasks))
    return RatedItems(
        criteria=CRITERIA, raters=tuple(f"r{number:03}" for number in range(workers)), tasks=hits, hits=hits,
        items=hits, passages=hits, rater=rater, task=task, hit=task, item=task, passage=task,
        question=np.arange(len(rows)), kind=kind, position=np.tile(np.arange(1, 21), tasks), original=original,
        systems=tuple((name,) for _, _, name, _ in rows), values=values, seconds=np.full(len(rows), np.nan),
        changes=np.full(len(rows), np.nan),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tasks", "good_tasks", "workers", "good_workers", "minutes", "human", "others", "ratings"),
    [
        (786, 334, 356, 123, (33.24, 26.93, 29.61), 668, 4008, 18704),
        (598, 282, 283, 105, (38.68, 25.79, 31.87), 564, 3384, 15792),
    ],
)
def test_the_counts_of_qascore(
    tasks: int, good_tasks: int, workers: int, good_workers: int, minutes: tuple[float, ...], human: int, others: int,
    ratings: int,
) -> None:  # fmt: skip
    """Tables 4, 5 and 6: 334 x 14 items x 4 criteria are 18,704 ratings; N of Human is 2 x 334, of the ten others
    together 12 x 334. Raters here are honest or click anywhere, so that the good ones pass."""
    assert KINDS[2] == "degraded"
    rated = recipe_of_qascore(tasks, good_tasks, workers, good_workers)
    controls = [
        replace(one, verdict="failed") if number >= good_workers else one  # who clicks anywhere may pass by chance
        for number, one in enumerate(control_of_raters(rated, Control(), CRITERIA))
    ]
    assert all(one.verdict == PASSED for one in controls[:good_workers])
    times = {f"h{task}": minutes[0] if task < good_tasks else minutes[1] for task in range(tasks)}
    rows = {row["raters"]: row for row in summary_rows(rated, controls, times)}
    assert rows["all"]["minutes"] == pytest.approx(minutes[2], abs=0.006)
    assert rows["passed"]["share"] == pytest.approx(good_workers / workers) and rows["passed"]["tasks"] == good_tasks
    counted = rated.of_raters(one.rater for one in controls if one.counts)
    scores = system_scores(counted, question_scores(counted, z_scores(counted).values), resamples=2, seed=0)
    shown = dict(zip(scores.systems, scores.shown.tolist(), strict=True))
    assert shown["Human"] == human and sum(shown.values()) - human == others
    assert int(scores.ratings.sum()) == ratings == good_tasks * 14 * 4
    assert dict(zip(scores.systems, scores.ratings.tolist(), strict=True))["Human"] == 4 * human


def test_shares_of_table_4() -> None:
    """34.55 % of the workers and 42.49 % of the tasks of run 1; 2.72, 1.94 and 2.21 tasks a worker."""
    rated = recipe_of_qascore(786, 334, 356, 123)
    controls = [
        RaterControl(name, 1, 1, None, None, None, PASSED if number < 123 else "failed")
        for number, name in enumerate(rated.raters)
    ]
    rows = {row["raters"]: row for row in summary_rows(rated, controls, {})}
    assert rows["passed"]["share"] == pytest.approx(0.3455, abs=5e-5)
    assert rows["passed"]["share_of_tasks"] == pytest.approx(0.4249, abs=5e-5)
    of_each = [rows[name]["tasks_a_rater"] for name in ("passed", "failed", "all")]
    assert of_each == pytest.approx([2.72, 1.94, 2.21], abs=0.005)
