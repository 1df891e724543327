"""`rl-qg rate analyse`: whose ratings count, which system people prefer, and how certain that is.

Writes `analysis.json`, `.txt` and `.html`, every table as CSV (`tables/`), and `judgements.jsonl` and
`judgements_references.jsonl`, which `rl-qg correlate` reads. The same ratings and settings give the same bytes.
`docs/explanation/human-evaluation.md` explains each number.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any

from rl_qg.judging.raters import OVERALL
from rl_qg.pages.results import Page, Plot, as_text, check_folder, template_lines, write_results
from rl_qg.rating.analysis import study as statistics
from rl_qg.rating.analysis.quality import UNTESTED, counts_of
from rl_qg.rating.analysis.tables import analysis_tables, systems_table
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash, write_json_lines, writing
from rl_qg.settings.web import RateAnalyseSettings
from rl_qg.stats.crossed import FEWEST_RATERS

log = logging.getLogger(__name__)
Tables = dict[str, list[dict[str, Any]]]
NAME = "analysis"
JUDGEMENTS = "judgements.jsonl"
WITH_REFERENCES = "judgements_references.jsonl"  # of systems alone, with the questions of people as references
_FOOTER = (
    "All numbers in full are in tables/*.csv and analysis.json. The formulas: docs/explanation/human-evaluation.md."
)


def write_analysis(settings: RateAnalyseSettings) -> dict[str, Any]:
    study = statistics.read_study(settings.ratings, settings)
    second = statistics.read_study(settings.replication, settings, key="replication") if settings.replication else None
    folder = check_folder(settings.output, "analysis", name=NAME, key="control")
    scores = statistics.scores_of_study(study, settings, seed=settings.seed)
    tables = statistics.tables_of(study, scores, settings)
    tables["left_out"] = [
        {"reason": why, "ratings": count} for why, count in statistics.left_out(study, scores).items()
    ]
    tables["replication"] = []
    said = _conclusion(scores, tables)
    if second is not None:
        tables["replication"], sentence = _replicated(scores, second, settings)
        said.append(sentence)
    judgements, note = _judgements(study, scores, settings)
    facts = [*said, *_facts(study, scores), note]
    record: dict[str, Any] = {
        "study": study.name,
        "files": {study.path.name: file_hash(study.path)}
        if second is None
        else {str(one.path): file_hash(one.path) for one in (study, second)},
        "settings": asdict(settings),
        "conclusion": said,
        "control": {**asdict(study.control), "criteria": study.control_criteria},
        "counts": {
            **counts_of(scores.controls),
            "ratings": study.rated.ratings,
            "ratings_that_count": scores.counted.ratings,
            "passages": len(scores.counted.passages),
            "shared_questions": statistics.shared_questions(scores.questions),
            "without_z": len(scores.z.without_spread),
            "feedback": study.feedback,
            "assignments": dict(study.states),
        },
        **tables,
    }
    page = Page("rate analyse", study.name, facts, analysis_tables(tables, study.control, _plots(tables)), {}, _FOOTER)
    write_results(folder, NAME, record, page, tables)
    _write_judgements(folder / JUDGEMENTS, judgements)
    _write_judgements(folder / WITH_REFERENCES, statistics.with_references(judgements))
    of_systems = [systems_table(tables["systems"])] if tables["systems"] else []
    short = Page("rate analyse", study.name, facts, of_systems, {})
    log.info("%s\ndone: open %s", as_text(short), folder / f"{NAME}.html")
    return record


def _conclusion(scores: statistics.StudyScores, tables: Tables) -> list[str]:
    if not len(scores.counted):
        return [
            "No scores: none of {raters} raters passed the control ({failed} failed, {undecided} with too few pairs); "
            "raters=all counts everybody.".format(**counts_of(scores.controls))
        ]
    if scores.systems is None:
        return ["No scores: no rater gave two different ratings, so there is no scale to put them on."]
    if not tables["pairs"]:
        names = scores.systems.systems
        one = f"all ratings are of one system ({names[0]})"
        what = one if len(names) == 1 else "no two systems were rated on all criteria"
        return [f"Nothing to compare: {what}."]
    said, pairs = statistics.conclusion(tables["pairs"]), len(tables["pairs"])
    if pairs > 1:
        certain = sum(map(statistics.is_certain, tables["pairs"]))
        said.append(f"Of {pairs} pairs of systems {certain} differ with p (Holm) < 0.05.")
    return [f"{one[0].upper()}{one[1:]}{'' if one.endswith('.') else '.'}" for one in said]


def _replicated(
    scores: statistics.StudyScores, second: statistics.RatedStudy, settings: RateAnalyseSettings
) -> tuple[list[dict[str, Any]], str]:
    others = statistics.scores_of_study(second, settings, seed=(settings.seed + 1) % 2**32)
    if scores.systems is None or others.systems is None:
        return [], f"Not compared with {second.name}: one of the two has no scores."
    rows = statistics.replication_of_scores(scores.systems, others.systems)
    values = {row["coefficient"]: row["value"] for row in rows if row["criterion"] == OVERALL}
    if not rows or any(value is None for value in values.values()):
        why = rows[-1].get("why", "not defined") if rows else "no criterion in common"
        return rows, f"Not compared with {second.name}: {why}."
    if not values:
        return rows, f"Overall scores are not compared with {second.name}: the criteria differ."
    text = "r {pearson:.3f}, ρ {spearman:.3f}, τ {kendall:.3f}".format(**values)
    return rows, f"Agreement with {second.name} on the systems: {text}."


def _facts(study: statistics.RatedStudy, scores: statistics.StudyScores) -> list[str]:
    systems = scores.systems
    is_rough = systems is not None and 1 < systems.values.clusters < 2 * FEWEST_RATERS
    return template_lines(
        "rl_qg.rating.analysis",
        "facts.txt",
        **counts_of(scores.controls),
        controls=scores.controls,
        untested=all(one.verdict == UNTESTED for one in scores.controls),
        rated=scores.counted,
        shared=statistics.shared_questions(scores.questions),
        note=systems.note if systems else "",
        fewest=min(systems.values.sizes.items(), key=itemgetter(1)) if systems and is_rough else None,
        states=study.states,
    )


def _judgements(
    study: statistics.RatedStudy, scores: statistics.StudyScores, settings: RateAnalyseSettings
) -> tuple[list[dict[str, Any]], str]:
    if not study.questions:
        return [], f"No {JUDGEMENTS}: a file of ratings alone has no texts of questions."
    try:
        lines, lost = statistics.judgement_lines(
            scores.counted, scores.z.values, study.questions, raw=settings.human == "raw"
        )
    except KeyError as error:
        hit, position = error.args[0]
        raise InputError(f"{study.path}: {hit} has no item {position} in items.jsonl; export the study anew") from None
    note = f"{JUDGEMENTS} has {len(lines):,} questions for rl-qg correlate"
    if referenced := len(statistics.with_references(lines)):
        note += f", {WITH_REFERENCES} {referenced:,} of systems with the human question as reference"
    return lines, note + (f"; {lost:,} without a score are left out." if lost else ".")


def _write_judgements(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with writing(path.parent):
        if lines:
            write_json_lines(path, lines)
        else:
            path.unlink(missing_ok=True)  # of an earlier analysis


def _plots(tables: Tables) -> list[Plot]:
    from rl_qg.pages.plots import ReportedMean, interval_plot

    rows = [row for row in tables["systems"] if row["criterion"] == OVERALL and row["value"] is not None]
    if not any(row["system"] != statistics.DEGRADED_ROW for row in rows):
        return []
    rows.sort(key=lambda row: (row["system"] == statistics.DEGRADED_ROW, -row["value"]))
    drawn = [
        (row["system"], "muted" if row["system"] == statistics.DEGRADED_ROW else "ce",
         ReportedMean(row["value"], row["low"], row["high"]), ())
        for row in rows
    ]  # fmt: skip
    return [Plot("Overall", "mean z with 95 % intervals", (), interval_plot(drawn, "systems", zero=True, unit="z"))]
