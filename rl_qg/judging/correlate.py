"""Meta-evaluation: how far metrics agree with people who have rated the same questions.

    rl-qg correlate human=judgements.jsonl metrics=[bleu4,rouge_l,qrelscore] output=DIR

Writes `correlate.json`, `.txt`, `.html`, `disagreements.html`, and every table as CSV (`tables/`);
`docs/explanation/meta-evaluation.md` explains each number. Scores are kept in `scores/`: a command that was killed
goes on, and one with a further metric computes only that metric.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rewards.contract import Result, check_row_by_row, scored
from rl_qg.judging.analysis import (
    RatedQuestions,
    Selection,
    analyse,
    breakdown_tables,
    disagreement_page,
    disagreements,
    distribution_tables,
    mean_rows,
    pair_tables,
    replication_rows,
)
from rl_qg.judging.judgements import AUTHORS, Judgement, criteria_of, read_judgements
from rl_qg.judging.raters import ABOVE, NONE, OVERALL, WITH_CONTROLS, filter_rows, filtered, standardised, with_overall
from rl_qg.judging.tables import Plots, page_tables
from rl_qg.pages.results import Page, as_text, write_page, write_results
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.scoring.kept_scores import check_rows, direction_of, scores_of
from rl_qg.scoring.reward_scorer import Reward, signature_of
from rl_qg.settings import CorrelateSettings
from rl_qg.stats.intervals import Floats, PassageDraws, few_passages

# The best score of a question against a single reference, for a metric that would take several together.


BEST = "best"


def best_of_references(metric: Reward) -> Reward:
    """The metric against one reference at a time, of whose scores the best counts; itself where it reads none.

    BLEU, for one, counts an n-gram that any reference has: a question made of parts of two good references then scores
    above what either would give it.
    """
    if "references" not in getattr(metric, "needs", ("references",)):
        return metric
    check_row_by_row(metric)
    return BestReference(metric)


class BestReference:
    """See `best_of_references`. The parts of a result are those of the chosen reference."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric
        self.needs = getattr(metric, "needs", ("references",))
        self.higher_is_better = direction_of(metric) > 0
        self.signature = f"{signature_of(metric)}|references:{BEST}"

    def reset_cache(self) -> None:
        if hasattr(self.metric, "reset_cache"):
            self.metric.reset_cache()

    def score(
        self,
        questions: Sequence[str],
        contexts: Sequence[str] | None = None,
        *,
        answers: Sequence[str] | None = None,
        references: Sequence[Sequence[str]] | None = None,
    ) -> Result:
        """As `rewards.base.Metric.score`; of a question without a score against any reference it is None."""
        groups = references or []
        owners = [number for number, group in enumerate(groups) for _ in group]
        asked, passages, about = (
            None if column is None else [column[owner] for owner in owners]
            for column in (questions, contexts, answers)
        )
        single = [[text] for text in chain.from_iterable(groups)]
        result = scored(self.metric, asked or [], passages, answers=about, references=single)
        best: dict[int, int] = {}
        for at, owner in enumerate(owners):
            if owner not in best or self._is_better(result.scores[at], result.scores[best[owner]]):
                best[owner] = at
        chosen = [best[number] for number in range(len(questions))]
        parts = {name: [values[at] for at in chosen] for name, values in result.parts.items()}
        return Result([result.scores[at] for at in chosen], parts)

    def _is_better(self, score: float | None, other: float | None) -> bool:
        if score is None or other is None:
            return score is not None
        return score > other if self.higher_is_better else score < other


# A file of rated questions as the settings want it: without controls, filtered, on one scale, with `overall`.


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
    """Read rated questions; filter the ratings, put them on one scale, add `overall`, as the settings say."""
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


log = logging.getLogger(__name__)
GIVEN = "given by the authors of the data"
IN_FILES = ("differences", "disagreements")  # tables that are too long for the record
Tables = dict[str, list[dict[str, Any]]]


def correlate(
    metrics: Mapping[str, Reward],
    settings: CorrelateSettings,
    folder: Path,
    draw: Callable[[Tables], Plots] | None = None,
) -> dict[str, Any]:
    """Score the rated questions with every metric, compare, and write the results to `folder`; return the record.

    `draw` makes the drawings of the page from the tables, by name of the table and criterion.
    """
    if settings.references == BEST:
        metrics = {label: best_of_references(metric) for label, metric in metrics.items()}
    path = Path(settings.human).expanduser()
    ratings = prepared_ratings(path, settings, settings.criteria)
    judgements, criteria = ratings.judgements, ratings.criteria
    if all(len({judgement.human.get(name) for judgement in judgements} - {None}) < 2 for name in criteria):
        raise InputError(
            f"{path}: {len(judgements)} questions, and all ratings of {', '.join(criteria)} are equal: there is no "
            "order for a metric to agree with"
        )
    second = replication_of(ratings, settings)
    scores, signatures = _scores(metrics, settings, path, judgements, folder)
    draws = PassageDraws(
        [judgement.group for judgement in judgements], resamples=settings.resamples, seed=settings.seed
    )
    rated = RatedQuestions(judgements, scores, draws, settings.language, settings.standardise != NONE)
    tables, cases = _tables(rated, ratings, second, settings)
    record = _record(path, settings, rated, ratings, signatures, tables)
    page = Page(
        "correlate",
        path.name,
        [*_facts(record), *(second.facts if second else [])],
        page_tables(tables, criteria, draw(tables) if draw else {}),
        signatures,
        "All pairs of metrics, with p-values by bootstrap and by Williams' test, are in tables/differences.csv; the "
        "questions on which metrics and people differ most in disagreements.html.",
    )
    write_results(folder, "correlate", record, page, tables)
    if cases:
        write_page(
            folder, "disagreements", disagreement_page(path.name, cases, tables["disagreement_types"], signatures)
        )
    short = replace(page, tables=page.tables[: len(criteria)])
    log.info("%s\ndone: open %s", as_text(short), folder / "correlate.html")
    return record


def _scores(
    metrics: Mapping[str, Reward],
    settings: CorrelateSettings,
    path: Path,
    judgements: Sequence[Judgement],
    folder: Path,
) -> tuple[dict[str, Floats], dict[str, str]]:
    rows = [judgement.row for judgement in judgements]
    for label, metric in metrics.items():
        check_rows(label, metric, rows)
    scores: dict[str, Floats] = {}
    signatures: dict[str, str] = {}
    for label, metric in metrics.items():
        values = scores_of(label, metric, rows, folder / "scores", batch_size=settings.batch_size)
        scores[label] = direction_of(metric) * np.array([np.nan if value is None else value for value in values])
        signatures[label] = signature_of(metric) + ("" if direction_of(metric) > 0 else "  (sign reversed)")
    if settings.provided:
        for name in dict.fromkeys(name for judgement in judgements for name in judgement.metrics):
            scores[f"{AUTHORS}{name}"] = np.array([judgement.metrics.get(name, np.nan) for judgement in judgements])
        signatures |= {name: GIVEN for name in scores if name.startswith(AUTHORS)}
    if not scores:
        raise InputError(f"{path}: no metric to compare: name some in metrics=[…], or give the field metrics")
    return scores, signatures


def _tables(
    rated: RatedQuestions, ratings: PreparedRatings, second: Replication | None, settings: CorrelateSettings
) -> tuple[Tables, list[dict[str, Any]]]:
    criteria = ratings.criteria
    selection = Selection(settings.folds, settings.repeats, settings.max_selected, settings.seed, settings.select_on)
    tables = analyse(rated, criteria, selection, min_gap=settings.min_gap)
    tables |= breakdown_tables(rated, criteria, settings.sentences_of) | pair_tables(rated, criteria)
    tables |= {"means": mean_rows(rated, criteria), **distribution_tables(rated, criteria)}
    tables |= rating_quality(ratings, rated, second, settings)
    cases, tables["disagreement_types"] = disagreements(rated, criteria, settings.disagreements)
    tables["disagreements"] = [{key: value for key, value in case.items() if key != "context"} for case in cases]
    return tables, cases


def _record(
    path: Path,
    settings: CorrelateSettings,
    rated: RatedQuestions,
    ratings: PreparedRatings,
    signatures: Mapping[str, str],
    tables: Tables,
) -> dict[str, Any]:
    judgements = rated.judgements
    second = Path(settings.replication).expanduser() if settings.replication else None
    return {
        "human": {str(path): file_hash(path)},
        **({"replication_file": {str(second): file_hash(second)}} if second else {}),
        "settings": asdict(settings),
        "counts": {
            "questions": len(judgements),
            "passages": rated.draws.passages,
            "items": len({judgement.item for judgement in judgements}),
            "systems": len(rated.systems[0]),
            "without_rating": {
                name: int(np.isnan(rated.ratings(name)).sum())
                for name in ratings.criteria
                if np.isnan(rated.ratings(name)).any()
            },
            "without_score": {
                name: int(np.isnan(values).sum()) for name, values in rated.scores.items() if np.isnan(values).any()
            },
            **ratings.counts,
        },
        "signatures": dict(signatures),
        **{key: rows for key, rows in tables.items() if key not in IN_FILES},
        **{key: {"file": f"tables/{key}.csv", "rows": len(tables[key])} for key in IN_FILES},
    }


def _facts(record: Mapping[str, Any]) -> list[str]:
    counts, settings = record["counts"], record["settings"]
    facts = [
        f"{counts['questions']:,} questions on {counts['passages']:,} passages and {counts['items']:,} items by "
        f"{counts['systems']} systems; {settings['resamples']:,} draws of passages, seed {settings['seed']}."
    ]
    for key, what in (("without_rating", "without a rating"), ("without_score", "without a score")):
        if counts[key]:
            facts.append(f"Questions {what}: " + ", ".join(f"{name} {count:,}" for name, count in counts[key].items()))
    if settings["rater_filter"] != NONE:
        facts.append(
            f"Ratings with z {'above' if settings['rater_filter'] == ABOVE else 'beyond'} "
            f"{settings['filter_above']:g} among those of a question are left out, at most {settings['filter_most']} "
            "of a question."
        )
    if counts.get("controls"):
        facts.append(f"{counts['controls']:,} controls are left out.")
    if settings["standardise"] != NONE:
        facts.append(
            f"Ratings are z-scores of {counts['raters']:,} raters. Left out are the {counts['ratings_left_out']:,} "
            f"ratings of {counts['raters_without_spread']:,} raters without two different ratings."
        )
    return [*facts, *filter(None, [few_passages(counts["passages"])])]
