"""The report's readers: scores of readers trained on gold, and on gold with questions of each generator."""

from collections.abc import Sequence
from typing import Any

from rl_qg.reports.estimates import estimate_cell, number_text
from rl_qg.reports.plots import interval_plot, reader_plot
from rl_qg.reports.run_files import OLDER_READER, SCORES, JsonObject, ReportedMean, ReportedRun

COLOURS = {"gold": "gold", "ce": "ce", "scst": "scst", OLDER_READER: "scst"}


def reader_label(run: ReportedRun, name: str) -> str:
    """What a reader was trained on."""
    if name == OLDER_READER:
        return "gold + generated"
    return "gold alone" if name == "gold" else f"gold + {run.words[name]}"


def equal_conditions(run: ReportedRun) -> str:
    """Updates and seeds of the readers, such as "657 updates each, 3 seeds"; empty without readers."""
    records = [run.qa[name] for name in run.readers]
    if not records:
        return ""
    updates = list(dict.fromkeys(record.count("updates") for record in records))
    seeds = max(len(record.list("seeds")) for record in records)
    parts = [f"{seeds} reader seed{'' if seeds == 1 else 's'}"]
    if None not in updates:
        counts = [f"{count:,}" for count in updates if count is not None]
        each = "each" if len(counts) == 1 and len(records) > 1 else ""
        parts.insert(0, f"{' / '.join(counts)} updates {each}".strip())
    return ", ".join(parts)


def training_sizes(run: ReportedRun) -> str:
    """Questions that each reader learned from, such as "learned from 1,200 questions (gold alone), 3,200 (gold + CE)".

    Says that they are not recorded where a reader's file does not have them; empty without readers.
    """
    sizes = {name: run.qa[name].count("features", "train", "examples") for name in run.readers}
    known = [f"{count:,} ({reader_label(run, name)})" for name, count in sizes.items() if count is not None]
    if not sizes:
        return ""
    if len(known) < len(sizes):
        return "number of questions learned from not recorded"
    first, *rest = known
    return ", ".join([f"learned from {first.replace(' (', ' questions (', 1)}", *rest])


def readers_view(run: ReportedRun, anchor: str) -> dict[str, Any] | None:
    """Rows of the readers' table, their differences, and the plot of each; None without readers."""
    readers = run.readers
    if not readers:
        return None
    pairs = [(later, earlier) for later, earlier in _pairs(readers)]
    differences = [
        (f"{reader_label(run, later)} − {reader_label(run, earlier)}", estimates)
        for later, earlier in pairs
        if any(estimates := [run.reader_difference(later, earlier, score) for score in SCORES])
    ]
    levels = [
        (f"{SCORES[score]}, {reader_label(run, name)}", COLOURS[name], estimate, _seed_scores(run.qa[name], score))
        for score in SCORES
        for name in readers
        if (estimate := run.reader_score(name, score))
    ]
    return {
        "rows": [_reader_row(run, name) for name in readers],
        "differences": [
            {"label": label, "scores": [estimate_cell(estimate, 1, signed=True) for estimate in estimates]}
            for label, estimates in differences
        ],
        "resampled": run.qa[readers[0]].resampled,
        "conditions": equal_conditions(run),
        "equal": _equal_updates(run),
        "levels": interval_plot(levels, anchor) if levels else None,
        "gains": _gains(run, pairs, anchor),
    }


def _equal_updates(run: ReportedRun) -> bool:
    """Whether all readers are known to have made as many updates."""
    updates = {run.qa[name].count("updates") for name in run.readers}
    return len(updates) == 1 and None not in updates


def picture(run: ReportedRun, anchor: str) -> Any:
    """The plot that answers the question of the run: EM and F1 of each reader, with intervals."""
    groups = {
        SCORES[score]: [
            (reader_label(run, name), COLOURS[name], estimate)
            for name in run.readers
            if (estimate := run.reader_score(name, score))
        ]
        for score in reversed(SCORES)
    }
    return reader_plot(groups, anchor) if any(groups.values()) else None


def _pairs(readers: Sequence[str]) -> list[tuple[str, str]]:
    """Every later reader with every earlier one; first each with gold."""
    return [(later, earlier) for number, earlier in enumerate(readers) for later in readers[number + 1 :]]


def _gains(run: ReportedRun, pairs: Sequence[tuple[str, str]], anchor: str) -> Any:
    rows: list[tuple[str, str, ReportedMean, Sequence[float]]] = []
    for later, earlier in pairs:
        if estimate := run.reader_difference(later, earlier, "f1"):
            short = {"gold": "gold", OLDER_READER: "generated"}
            words = [short.get(name, run.words.get(name, name)) for name in (later, earlier)]
            rows.append((" − ".join(words), "greedy" if estimate.excludes_zero else "muted", estimate, ()))
    return interval_plot(rows, f"{anchor} gains", zero=True) if rows else None


def _reader_row(run: ReportedRun, name: str) -> dict[str, Any]:
    record = run.qa[name]
    seeds = [row.get("seed") for row in record.list("seeds")]
    columns = [[number_text(value, 1) for value in _seed_scores(record, score)] for score in SCORES]
    return {
        "label": reader_label(run, name),
        "colour": COLOURS[name],
        "scores": [estimate_cell(run.reader_score(name, score), 1) for score in SCORES],
        "seeds": [(seed, scores) for seed, *scores in zip(seeds, *columns, strict=True)],
        "total": record.count("total"),
        "updates": record.count("updates"),
        "examples": record.count("features", "train", "examples"),
    }


def _seed_scores(record: JsonObject, score: str) -> list[float]:
    rows = record.list("seeds")
    values = [JsonObject(record.path, row).number(score) for row in rows]
    if None in values:
        raise record.error(("seeds", score), "a number for each seed", None)
    return [value for value in values if value is not None]
