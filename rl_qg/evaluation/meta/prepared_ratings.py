"""A file of rated questions as the settings want it: without controls, filtered, on one scale, with `overall`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rl_qg.confidence_intervals import PassageDraws
from rl_qg.evaluation.meta.judgement_analysis import RatedQuestions
from rl_qg.evaluation.meta.judgements import Judgement, criteria_of, read_judgements
from rl_qg.evaluation.meta.raters import (
    NONE,
    OVERALL,
    WITH_CONTROLS,
    filter_rows,
    filtered,
    standardised,
    with_overall,
)
from rl_qg.evaluation.meta.system_means import replication_rows
from rl_qg.runtime.errors import InputError
from rl_qg.settings import CorrelateSettings

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class PreparedRatings:
    """Judgements whose `human` counts, their criteria, what was left out, and the judgements before the filter."""

    judgements: list[Judgement]
    criteria: list[str]
    counts: dict[str, int]
    unfiltered: list[Judgement] = field(repr=False)


def prepared_ratings(
    path: Path, settings: CorrelateSettings, criteria: Sequence[str] | None = None, *, key: str = "human"
) -> PreparedRatings:
    """Read a file of rated questions; filter its ratings, put them on one scale, add `overall`, as the settings say.

    Raises:
        InputError: a file that cannot be read, a criterion that nobody rated, ratings without what a step needs.
    """
    every = read_judgements(path, key=key, columns=asdict(settings.columns))
    unfiltered = [judgement for judgement in every if not judgement.control]
    controls = [judgement for judgement in every if judgement.control]
    if not unfiltered:
        raise InputError(f"{path}: all {len(controls)} questions are controls; nothing is left to correlate")
    names = criteria_of(unfiltered, criteria)
    judgements, counts = unfiltered, {"controls": len(controls)} if controls else {}
    if settings.rater_filter != NONE:
        sides, above, most = settings.rater_filter, settings.filter_above, settings.filter_most
        judgements = filtered(judgements, sides=sides, threshold=above, most=most)
    if settings.standardise != NONE:
        scaled = standardised(judgements, names, controls if settings.standardise == WITH_CONTROLS else ())
        judgements, counts = scaled.judgements, counts | scaled.counts()
    if settings.overall:
        judgements, names = with_overall(judgements, names), [*names, OVERALL]
    return PreparedRatings(judgements, names, counts, unfiltered)


@dataclass(frozen=True)
class Replication:
    """A second file of ratings with the criteria that are compared, and what the page says of it."""

    ratings: PreparedRatings
    facts: list[str]


def replication_of(first: PreparedRatings, settings: CorrelateSettings) -> Replication | None:
    """The file `replication`, filtered and on one scale as the first; None where the settings name none.

    Criteria of one file alone are not compared, and `overall` only where both files have the same criteria.

    Raises:
        InputError: a file that cannot be read; files without a criterion or a system in common.
    """
    if not settings.replication:
        return None
    path = Path(settings.replication).expanduser()
    own = [name for name in first.criteria if not (settings.overall and name == OVERALL)]
    others = criteria_of(read_judgements(path, key="replication", columns=asdict(settings.columns)))
    shared = [name for name in own if name in others]
    if not shared:
        raise InputError(
            f"replication={path}: it has no criterion of the first file; it has {', '.join(others)}, the first "
            f"{', '.join(own)}"
        )
    if shared != own:
        settings = replace(settings, overall=False)  # a mean of fewer criteria is another one
    try:
        second = prepared_ratings(path, settings, shared, key="replication")
    except InputError as error:
        raise InputError(f"replication={path}: {error}") from None
    systems, known = ({name for one in part.judgements for name in one.systems} for part in (first, second))
    if not systems & known:
        raise InputError(
            f"replication={path}: its questions and those of the first file have no system in common; give the field "
            "system in both, with the same names"
        )
    left_out = [name for name in first.criteria if name not in second.criteria]
    facts = [f"Not in {path.name}, and so not compared with it: {', '.join(left_out)}."] if left_out else []
    return Replication(second, facts)


def rating_quality(
    ratings: PreparedRatings, rated: RatedQuestions, second: Replication | None, settings: CorrelateSettings
) -> dict[str, Rows]:
    """The tables `rater_filter` and `replication`, empty where they are not asked for."""
    tables: dict[str, Rows] = {"rater_filter": [], "replication": []}
    if settings.rater_filter != NONE:
        tables["rater_filter"] = filter_rows(ratings.unfiltered, ratings.judgements, ratings.criteria, rated.draws)
    if second is not None:
        judgements = second.ratings.judgements
        groups = [judgement.group for judgement in judgements]
        draws = PassageDraws(groups, resamples=settings.resamples, seed=(settings.seed + 1) % 2**32)
        others = RatedQuestions(judgements, {}, draws, settings.language)
        tables["replication"] = replication_rows(rated, others, second.ratings.criteria)
    return tables
