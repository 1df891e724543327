"""Meta-evaluation: how far metrics agree with people who have rated the same questions.

    rl-qg correlate human=judgements.jsonl metrics=[bleu4,rouge_l,qrelscore] output=DIR

Writes `correlate.json`, `.txt`, `.html`, `disagreements.html`, and every table as CSV (`tables/`);
`docs/explanation/meta-evaluation.md` explains each number. Scores are kept in `scores/`: a command that was killed
goes on, and one with a further metric computes only that metric.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats, PassageDraws, few_passages
from rl_qg.evaluation.meta.best_reference import BEST, best_of_references
from rl_qg.evaluation.meta.breakdowns import breakdown_tables, pair_tables
from rl_qg.evaluation.meta.disagreements import disagreement_page, disagreements
from rl_qg.evaluation.meta.distributions import distribution_tables
from rl_qg.evaluation.meta.judgement_analysis import RatedQuestions, Selection, analyse
from rl_qg.evaluation.meta.judgement_tables import judgement_tables
from rl_qg.evaluation.meta.judgements import AUTHORS, Judgement
from rl_qg.evaluation.meta.prepared_ratings import (
    PreparedRatings,
    Replication,
    prepared_ratings,
    rating_quality,
    replication_of,
)
from rl_qg.evaluation.meta.raters import ABOVE, NONE
from rl_qg.evaluation.meta.rating_tables import Plots, rating_tables
from rl_qg.evaluation.meta.system_means import mean_rows
from rl_qg.evaluation.metric_scores import check_rows, direction_of, scores_of
from rl_qg.evaluation.result_pages import Page, as_text, write_page, write_results
from rl_qg.evaluation.reward_scorer import Reward, signature_of
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.settings import CorrelateSettings

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

    Raises:
        InputError: a file that cannot be read, a criterion that nobody rated, ratings that are all equal, a second
            file that has nothing to compare, a question without what a metric needs.
        MetricInputError: `references=best`, and the score of a question depends on the others.
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
        [*judgement_tables(tables, criteria), *rating_tables(tables, criteria, draw(tables) if draw else {})],
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
    """The scores of every metric, higher for better, and its signature."""
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
        scores |= _provided(judgements)
        signatures |= {name: GIVEN for name in scores if name.startswith(AUTHORS)}
    if not scores:
        raise InputError(f"{path}: no metric to compare: name some in metrics=[…], or give the field metrics")
    return scores, signatures


def _tables(
    rated: RatedQuestions, ratings: PreparedRatings, second: Replication | None, settings: CorrelateSettings
) -> tuple[Tables, list[dict[str, Any]]]:
    """Every table as plain rows, and the disagreements with their passages."""
    criteria = ratings.criteria
    selection = Selection(settings.folds, settings.repeats, settings.max_selected, settings.seed, settings.select_on)
    tables = analyse(rated, criteria, selection, min_gap=settings.min_gap)
    tables |= breakdown_tables(rated, criteria, settings.sentences_of) | pair_tables(rated, criteria)
    tables |= {"means": mean_rows(rated, criteria), **distribution_tables(rated, criteria)}
    tables |= rating_quality(ratings, rated, second, settings)
    cases, tables["disagreement_types"] = disagreements(rated, criteria, settings.disagreements)
    tables["disagreements"] = [{key: value for key, value in case.items() if key != "context"} for case in cases]
    return tables, cases


def _provided(judgements: Sequence[Judgement]) -> dict[str, Floats]:
    names = dict.fromkeys(name for judgement in judgements for name in judgement.metrics)
    return {
        f"{AUTHORS}{name}": np.array([judgement.metrics.get(name, np.nan) for judgement in judgements])
        for name in names
    }


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
