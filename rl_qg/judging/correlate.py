"""Meta-evaluation: how far metrics agree with people who have rated the same questions.

Writes `correlate.json`, `.txt`, `.html`, `disagreements.html`, and every table as CSV (`tables/`);
`docs/explanation/meta-evaluation.md` explains each number. Scores are kept in `scores/`: a command that was killed
goes on, and one with a further metric computes only that metric.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from rewards.contract import Result, check_row_by_row, scored
from rl_qg.judging import analysis
from rl_qg.judging.judgements import AUTHORS, Judgement, criteria_of, read_judgements
from rl_qg.judging.raters import NONE, OVERALL, WITH_CONTROLS, filter_rows, filtered, standardised, with_overall
from rl_qg.judging.tables import NOTES, Plots, page_tables
from rl_qg.pages.results import Page, as_text, template_lines, write_page, write_results
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.scoring.kept_scores import check_rows, comparable_scores
from rl_qg.scoring.reward_scorer import Reward, direction_of, signature_of
from rl_qg.settings import CorrelateSettings
from rl_qg.stats.intervals import Floats, PassageDraws, few_passages

log = logging.getLogger(__name__)
BEST = "best"
GIVEN = "given by the authors of the data"
TAKEN = ("system", "questions", "criterion")  # what no criterion is called
IN_FILES = ("differences", "disagreements")  # tables that are too long for the record


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
        self.metric, self.metrics = metric, [metric]
        if hasattr(metric, "needs"):
            self.needs = metric.needs
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
        titles: Sequence[str] | None = None,
    ) -> Result:
        """As `rewards.base.Metric.score`; of a question without a score against any reference it is None."""
        groups = references or []
        single = [[text] for group in groups for text in group]
        asked, passages, about, named = (
            None if column is None else [text for text, group in zip(column, groups, strict=True) for _ in group]
            for column in (questions, contexts, answers, titles)
        )
        result = scored(self.metric, asked or [], passages, answers=about, references=single, titles=named)
        sign = 1 if self.higher_is_better else -1
        values = [-inf if score is None else sign * score for score in result.scores]
        chosen = [
            max(range(end - len(group), end), key=values.__getitem__)
            for group, end in zip(groups, accumulate(map(len, groups)), strict=True)
        ]
        parts = {name: [of_rows[at] for at in chosen] for name, of_rows in result.parts.items()}
        return Result([result.scores[at] for at in chosen], parts)


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
    """Rated questions without controls; filtered, on one scale, with `overall`, as the settings say."""
    every = read_judgements(path, key=key, columns=asdict(settings.columns))
    unfiltered = [judgement for judgement in every if not judgement.control]
    controls = [judgement for judgement in every if judgement.control]
    if not unfiltered:
        raise InputError(f"{path}: all {len(controls)} questions are controls; nothing is left to correlate")
    names = criteria_of(unfiltered, criteria)
    if taken := [name for name in names if name in TAKEN]:
        why = "is the name of another column of the results; rename it, or choose others with criteria=[…]"
        raise InputError(f"{path}: criterion {taken[0]!r} {why}")
    judgements, counts = unfiltered, {"controls": len(controls)} if controls else {}
    if settings.rater_filter != NONE:
        sides, above, most = settings.rater_filter, settings.filter_above, settings.filter_most
        judgements = filtered(judgements, sides=sides, threshold=above, most=most)
    if settings.standardise != NONE:
        others = controls if settings.standardise == WITH_CONTROLS else ()
        judgements, of_raters = standardised(judgements, names, others)
        counts |= of_raters
    if settings.overall:
        judgements, names = with_overall(judgements, names), [*names, OVERALL]
    return PreparedRatings(judgements, names, counts, unfiltered)


def _replication(first: PreparedRatings, settings: CorrelateSettings) -> PreparedRatings | None:
    """The file `replication`, treated as the first, on criteria of both (`overall`: if all are); None without one."""
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
    return second


def correlate(
    metrics: Mapping[str, Reward],
    settings: CorrelateSettings,
    folder: Path,
    draw: Callable[[dict[str, analysis.Rows]], Plots] | None = None,
) -> dict[str, Any]:
    """Score the rated questions and compare; write results to `folder`, drawn by `draw`; return the record."""
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
    second = _replication(ratings, settings)
    scores, signatures = _scores(metrics, settings, path, judgements, folder)
    rated = analysis.RatedQuestions(judgements, scores, _draws(judgements, settings, settings.seed), settings)
    tables, cases = _tables(rated, ratings, second)
    record = _record(path, rated, ratings, signatures, tables)
    few = few_passages(record["counts"]["passages"])
    facts = template_lines("rl_qg.judging", "correlate_facts.txt", few=few, **record)
    if second and (left_out := [name for name in criteria if name not in second.criteria]):
        facts.append(f"Not in {Path(settings.replication).name}, and so not compared with it: {', '.join(left_out)}.")
    shown = page_tables(tables, criteria, draw(tables) if draw else {})
    footer = NOTES["footer"].format(cases=NOTES["cases"] if cases else "")
    page = Page("correlate", path.name, facts, shown, signatures, footer)
    write_results(folder, "correlate", record, page, tables)
    (folder / "disagreements.html").unlink(missing_ok=True)  # of an earlier run
    if cases:
        differing = analysis.disagreement_page(path.name, cases, tables["disagreement_types"], signatures)
        write_page(folder, "disagreements", differing)
    short = replace(page, tables=page.tables[: len(criteria)])
    log.info("%s\ndone: open %s", as_text(short), folder / "correlate.html")
    return record


def _draws(judgements: Sequence[Judgement], settings: CorrelateSettings, seed: int) -> PassageDraws:
    return PassageDraws([judgement.group for judgement in judgements], resamples=settings.resamples, seed=seed)


def _scores(
    metrics: Mapping[str, Reward],
    settings: CorrelateSettings,
    path: Path,
    judgements: Sequence[Judgement],
    folder: Path,
) -> tuple[dict[str, Floats], dict[str, str]]:
    """The scores of each metric, and of those in the file where they are wanted, and its signature."""
    rows = [judgement.row for judgement in judgements]
    check_rows(metrics, rows)
    scores = comparable_scores(metrics, rows, folder / "scores", batch_size=settings.batch_size)
    signatures = {
        label: signature_of(metric) + ("" if direction_of(metric) > 0 else "  (sign reversed)")
        for label, metric in metrics.items()
    }
    if settings.provided:
        for name in dict.fromkeys(name for judgement in judgements for name in judgement.metrics):
            scores[f"{AUTHORS}{name}"] = np.array([judgement.metrics.get(name, np.nan) for judgement in judgements])
        signatures |= {name: GIVEN for name in scores if name.startswith(AUTHORS)}
    if not scores:
        raise InputError(f"{path}: no metric to compare: name some in metrics=[…], or give the field metrics")
    return scores, signatures


def _tables(
    rated: analysis.RatedQuestions, ratings: PreparedRatings, second: PreparedRatings | None
) -> tuple[dict[str, analysis.Rows], list[analysis.Row]]:
    settings, criteria = rated.settings, ratings.criteria
    tables = analysis.analyse(rated, criteria) | {"rater_filter": [], "replication": []}
    if settings.rater_filter != NONE:
        tables["rater_filter"] = filter_rows(ratings.unfiltered, ratings.judgements, criteria, rated.draws)
    if second is not None:
        draws = _draws(second.judgements, settings, (settings.seed + 1) % 2**32)
        others = analysis.RatedQuestions(second.judgements, {}, draws, settings)
        tables["replication"] = analysis.replication_rows(rated, others, second.criteria)
    cases, tables["disagreement_types"] = analysis.disagreements(rated, criteria)
    tables["disagreements"] = [{key: value for key, value in case.items() if key != "context"} for case in cases]
    return tables, cases


def _record(
    path: Path,
    rated: analysis.RatedQuestions,
    ratings: PreparedRatings,
    signatures: Mapping[str, str],
    tables: Mapping[str, analysis.Rows],
) -> dict[str, Any]:
    judgements, settings = rated.judgements, rated.settings
    second = Path(settings.replication).expanduser() if settings.replication else None
    of_criteria = {name: rated.ratings(name) for name in ratings.criteria}
    missing = [
        {name: int(np.isnan(values).sum()) for name, values in columns.items() if np.isnan(values).any()}
        for columns in (of_criteria, rated.scores)
    ]
    return {
        "human": {str(path): file_hash(path)},
        **({"replication_file": {str(second): file_hash(second)}} if second else {}),
        "settings": asdict(settings),
        "counts": {
            "questions": len(judgements),
            "passages": rated.draws.passages,
            "items": len({judgement.item for judgement in judgements}),
            "systems": len(rated.systems[0]),
            "without_rating": missing[0],
            "without_score": missing[1],
            **ratings.counts,
        },
        "signatures": dict(signatures),
        **{key: rows for key, rows in tables.items() if key not in IN_FILES},
        **{key: {"file": f"tables/{key}.csv", "rows": len(tables[key])} for key in IN_FILES},
    }
