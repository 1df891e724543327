"""Meta-evaluation: how far metrics agree with people who have rated the same questions.

    rl-qg correlate human=judgements.jsonl metrics=[bleu4,rouge_l,qrelscore] output=DIR

Writes `correlate.json`, `.txt`, `.html`, and every table as CSV (`tables/`); `docs/explanation/meta-evaluation.md`
explains each number. Scores are kept in `scores/`: a command that was killed goes on, and one with a further metric
computes only that metric.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats, PassageDraws, few_passages
from rl_qg.evaluation.meta.judgement_analysis import RatedQuestions, Selection, analyse
from rl_qg.evaluation.meta.judgement_tables import judgement_tables
from rl_qg.evaluation.meta.judgements import Judgement, criteria_of, read_judgements
from rl_qg.evaluation.metric_scores import check_rows, direction_of, scores_of
from rl_qg.evaluation.result_pages import Page, as_text, write_results
from rl_qg.evaluation.reward_scorer import Reward, signature_of
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.settings import CorrelateSettings

log = logging.getLogger(__name__)
AUTHORS = "authors/"  # prefix of a metric whose values the authors of the data give
GIVEN = "given by the authors of the data"


def correlate(metrics: Mapping[str, Reward], settings: CorrelateSettings, folder: Path) -> dict[str, Any]:
    """Score the rated questions with every metric, compare, and write the results to `folder`; return the record.

    Raises:
        InputError: a file that cannot be read, a criterion that nobody rated, ratings that are all equal, a question
            without what a metric needs.
    """
    path = Path(settings.human).expanduser()
    judgements = read_judgements(path)
    criteria = criteria_of(judgements, settings.criteria)
    if all(len({judgement.human.get(name) for judgement in judgements} - {None}) < 2 for name in criteria):
        raise InputError(
            f"{path}: {len(judgements)} questions, and all ratings of {', '.join(criteria)} are equal: there is no "
            "order for a metric to agree with"
        )
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
    draws = PassageDraws(
        [judgement.group for judgement in judgements], resamples=settings.resamples, seed=settings.seed
    )
    rated = RatedQuestions(judgements, scores, draws, settings.language)
    selection = Selection(settings.folds, settings.repeats, settings.max_selected, settings.seed, settings.select_on)
    tables = analyse(rated, criteria, selection)
    record = _record(path, settings, rated, criteria, signatures, tables)
    page = Page(
        "correlate",
        path.name,
        _facts(record),
        judgement_tables(tables, criteria),
        signatures,
        "All pairs of metrics, with p-values by bootstrap and by Williams' test, are in tables/differences.csv.",
    )
    write_results(folder, "correlate", record, page, tables)
    short = replace(page, tables=page.tables[: len(criteria)])
    log.info("%s\ndone: open %s", as_text(short), folder / "correlate.html")
    return record


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
    criteria: Sequence[str],
    signatures: Mapping[str, str],
    tables: Mapping[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    judgements = rated.judgements
    return {
        "human": {str(path): file_hash(path)},
        "settings": asdict(settings),
        "counts": {
            "questions": len(judgements),
            "passages": rated.draws.passages,
            "items": len({judgement.item for judgement in judgements}),
            "systems": len(rated.systems[0]),
            "without_rating": {
                name: int(np.isnan(rated.ratings(name)).sum())
                for name in criteria
                if np.isnan(rated.ratings(name)).any()
            },
            "without_score": {
                name: int(np.isnan(values).sum()) for name, values in rated.scores.items() if np.isnan(values).any()
            },
        },
        "signatures": dict(signatures),
        **{key: rows for key, rows in tables.items() if key != "differences"},
        "differences": {"file": "tables/differences.csv", "rows": len(tables["differences"])},
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
    return [*facts, *filter(None, [few_passages(counts["passages"])])]
