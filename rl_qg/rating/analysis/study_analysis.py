"""The statistics of a study, as tables of plain rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats, holm
from rl_qg.evaluation.meta.raters import OVERALL
from rl_qg.rating.analysis.comparisons import pair_rows
from rl_qg.rating.analysis.habits import habits_of_raters
from rl_qg.rating.analysis.mixed_model import fit_mixed_model
from rl_qg.rating.analysis.pass_tables import rater_rows, summary_rows
from rl_qg.rating.analysis.quality import RaterControl, control_of_raters, counted_raters
from rl_qg.rating.analysis.question_ratings import agreement_rows
from rl_qg.rating.analysis.ratings import RatedItems
from rl_qg.rating.analysis.scores import (
    QuestionScores,
    SystemScores,
    ZScores,
    question_scores,
    system_scores,
    without_noisy,
    z_scores,
)
from rl_qg.rating.analysis.study_files import RatedStudy
from rl_qg.rating.protocol import DEGRADED
from rl_qg.settings.rating import RateAnalyseSettings
from rl_qg.text.words import counted

Rows = list[dict[str, Any]]
NO_FILTER = "none"
DEGRADED_ROW = "degraded questions"  # in the table of systems


@dataclass(frozen=True)
class StudyScores:
    """Whose ratings count, their z-scores and the scores of systems. Without a rater who passed, `counted` has no
    rows, and without a z there are no `systems`.
    """

    controls: list[RaterControl]
    counted: RatedItems
    z: ZScores
    questions: QuestionScores
    systems: SystemScores | None


def scores_of_study(study: RatedStudy, settings: RateAnalyseSettings, *, seed: int) -> StudyScores:
    """Test the raters, leave out those who do not count, and score the systems."""
    controls = control_of_raters(study.rated, study.control, study.control_criteria)
    counted = study.rated.of_raters(counted_raters(controls, settings.raters))
    if settings.rater_filter != NO_FILTER:
        sides, threshold, most = settings.rater_filter, settings.filter_above, settings.filter_most
        counted = without_noisy(counted, sides=sides, threshold=threshold, most=most)
    z = z_scores(counted, settings.z)
    questions = question_scores(counted, z.values)
    if np.isnan(questions.values).all():
        return StudyScores(controls, counted, z, questions, None)
    systems = system_scores(counted, questions, resamples=settings.resamples, seed=seed)
    return StudyScores(controls, counted, z, questions, systems)


def tables_of(study: RatedStudy, scores: StudyScores, settings: RateAnalyseSettings) -> dict[str, Rows]:
    """Every table but that of the replication; empty where there is nothing to say."""
    habits = habits_of_raters(study.rated, seed=settings.seed)
    tables: dict[str, Rows] = {
        "summary": summary_rows(study.rated, scores.controls, study.minutes),
        "raters": rater_rows(scores.controls, habits, study.minutes, study.rated),
        "systems": [],
        "pairs": [],
        "pairs_by_criterion": [],
        "mixed_model": [],
        "agreement": agreement_rows(scores.counted, resamples=settings.resamples, seed=settings.seed),
    }
    if settings.rater_filter != NO_FILTER:
        before = study.rated.of_raters(scores.counted.raters)
        unfiltered = agreement_rows(before, resamples=settings.resamples, seed=settings.seed)
        tables["agreement"] = [{"ratings": "all", **row} for row in unfiltered] + [
            {"ratings": "filtered", **row} for row in tables["agreement"]
        ]
    if scores.systems is not None:
        tables["systems"] = system_rows(scores.systems, scores)
        tables["mixed_model"], contrasts = mixed_rows(scores)
        tables["pairs"] = _with_contrasts(pair_rows(scores.questions, scores.systems), contrasts)
        tables["pairs_by_criterion"] = [
            {"criterion": name, **row}
            for name in scores.systems.criteria
            for row in pair_rows(scores.questions, scores.systems, of=name)
        ]
    return tables


def system_rows(systems: SystemScores, scores: StudyScores) -> Rows:
    """The score of every system on every criterion and overall, with its interval; and the mean z of degraded
    questions, which is no system's.
    """
    rows = []
    criteria = (*systems.criteria, OVERALL)
    for at, name in enumerate(systems.systems):
        counts = {"shown": int(systems.shown[at]), "ratings": int(systems.ratings[at])}
        for criterion in criteria:
            statistic = systems.of(name, criterion).estimate(int(systems.questions[at]))
            rows.append({"system": name, "criterion": criterion, **statistic.to_dict(), **counts})
    z = scores.z.values[scores.counted.is_kind(DEGRADED)]
    z = z[~np.isnan(z).all(axis=1)]
    if len(z):
        means = _column_means(np.column_stack([z, z.mean(axis=1)]))
        rows += [
            {"system": DEGRADED_ROW, "criterion": criterion, "value": value, "low": None, "high": None, "n": len(z),
             "shown": len(z), "ratings": int(np.count_nonzero(~np.isnan(z)))}
            for criterion, value in zip(criteria, means, strict=True)
        ]  # fmt: skip
    return rows


def _column_means(values: Floats) -> list[float | None]:
    return [float(np.nanmean(column)) if not np.isnan(column).all() else None for column in values.T]


def mixed_rows(scores: StudyScores) -> tuple[Rows, Mapping[tuple[str, str], dict[str, Any]]]:
    """The mixed model of raw values of every criterion and overall: means of systems in points, standard deviations;
    and the contrasts of `overall` by two systems.
    """
    raw = question_scores(scores.counted, scores.counted.values)
    values = raw.with_overall()
    rows: Rows = []
    contrasts: dict[tuple[str, str], dict[str, Any]] = {}
    for column, criterion in enumerate((*raw.criteria, OVERALL)):
        model = fit_mixed_model(values[:, column], raw.member, raw.systems, raw.rater, raw.item)
        if model is None:
            continue
        spread = {"rater_sd": model.rater_sd, "item_sd": model.item_sd, "residual_sd": model.residual_sd}
        for at, name in enumerate(model.systems):
            if np.isfinite(model.means[at]):
                cells = {"mean": float(model.means[at]), "standard_error": model.error(at), "n": model.n}
                rows.append({"system": name, "criterion": criterion, **cells, **spread})
        if criterion == OVERALL:
            known = [at for at in range(len(model.systems)) if np.isfinite(model.means[at])]
            for first in known:
                for second in known:
                    if first != second:
                        value, error, p = model.contrast(first, second)
                        pair = model.systems[first], model.systems[second]
                        contrasts[pair] = {"mixed_difference": value, "mixed_error": error, "p_mixed": p}
    return rows, contrasts


def _with_contrasts(rows: Rows, contrasts: Mapping[tuple[str, str], Mapping[str, Any]]) -> Rows:
    found = [{**row, **contrasts.get((row["preferred"], row["to"]), {})} for row in rows]
    tested = [row for row in found if "p_mixed" in row]
    for row, corrected in zip(tested, holm([row["p_mixed"] for row in tested]), strict=True):
        row["p_mixed_holm"] = corrected
    return found


def left_out(study: RatedStudy, scores: StudyScores) -> dict[str, int]:
    """How many ratings are not in the scores, by reason."""
    counts = dict(scores.counted.left_out)
    kept = {*scores.counted.raters}
    values = np.count_nonzero(~np.isnan(study.rated.values), axis=1)
    for verdict in ("failed", "undecided"):
        names = [one.rater for one in scores.controls if one.verdict == verdict and one.rater not in kept]
        if names:
            own = np.array([rater in names for rater in study.rated.raters], dtype=bool)[study.rated.rater]
            counts[f"of {counted(len(names), 'rater')} who {_WHY[verdict]}"] = int(values[own].sum())
    if scores.z.ratings_left_out:
        reason = f"of {counted(len(scores.z.without_spread), 'rater')} without two different ratings, and so without z"
        counts[reason] = scores.z.ratings_left_out
    degraded = scores.z.values[scores.counted.is_kind(DEGRADED)]  # those without a z are counted above
    counts["of degraded questions, which enter no score"] = int(np.count_nonzero(~np.isnan(degraded)))
    return {reason: count for reason, count in counts.items() if count}


_WHY = {"failed": "failed the control", "undecided": "had too few pairs, or tasks, for the control"}


def shared_questions(scores: QuestionScores) -> int:
    """How many rated questions count for several systems."""
    scored = ~np.isnan(scores.values).all(axis=1)
    return int((scored & (scores.member.sum(axis=1) > 1)).sum())
