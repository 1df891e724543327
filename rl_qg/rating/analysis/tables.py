"""The tables of `rl-qg rate analyse`, for people: their titles, columns and notes are in `tables.yaml`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rl_qg.judging.raters import OVERALL
from rl_qg.pages.results import MINUS, NONE, Plot, Rows, Table, estimate_text, joined_rows, p_text
from rl_qg.rating.analysis.study import DEGRADED_ROW
from rl_qg.rating.protocol import RATINGS, SIGNED_RANK, Control
from rl_qg.runtime.files import packaged_yaml
from rl_qg.stats.correlation import SYMBOLS

MOST_RATERS = 400  # rows of the table of raters; all are in tables/raters.csv
_TABLES: Mapping[str, Any] = packaged_yaml(__file__, "tables.yaml")


def analysis_tables(tables: Mapping[str, Rows], control: Control, plots: Sequence[Plot]) -> list[Table]:
    summary = tables["summary"]
    if all(row["minutes"] is None for row in summary):
        summary = [{name: row[name] for name in row if "minutes" not in name} for row in summary]
    shown = [
        systems_table(tables["systems"], plots),
        _pairs(tables["pairs"]),
        _table("summary", summary),
        _mixed(tables["mixed_model"]),
        _replication(tables.get("replication", ())),
        _agreement(tables["agreement"]),
        _raters(tables["raters"], control),
        _table("habits", tables["raters"][:MOST_RATERS]),
        _table("left_out", tables["left_out"]),
    ]
    return [table for table in shown if table.rows]


def _number(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:,.{digits}f}".replace("-", MINUS)


_FORMS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "count": "{:,}".format,
    "1 digit": partial(_number, digits=1),
    "2 digits": _number,
    "percent": lambda value: NONE if value is None else f"{100 * value:.1f} %",
    "p": p_text,
}


def _table(name: str, rows: Rows, note: str | None = None) -> Table:
    """A table whose columns are in `tables.yaml`; `note`: in place of the one there."""
    table = _TABLES[name]
    lines = []
    for row in rows:
        known = {heading: cell for heading, cell in table.get("where_known", {}).items() if cell[0] in row}
        columns = table["columns"] | known
        lines.append({heading: _FORMS[form](row.get(field)) for heading, (field, form) in columns.items()})
    return Table(table["title"], lines, table["note"] if note is None else note)


def _lines_table(name: str, lines: Sequence[Mapping[str, str]], more: str = "", plots: Sequence[Plot] = ()) -> Table:
    """A table of given lines; `more` is added to the note of `tables.yaml`."""
    return Table(_TABLES[name]["title"], lines, _TABLES[name]["note"] + more, plots)


def systems_table(rows: Rows, plots: Sequence[Plot] = ()) -> Table:
    """Scores of systems, the best first; degraded questions last."""
    overall = {row["system"]: row["value"] for row in rows if row["criterion"] == OVERALL and row["value"] is not None}
    names = dict.fromkeys(row["system"] for row in rows)
    lines = []
    for name in sorted(names, key=lambda name: (name == DEGRADED_ROW, -overall.get(name, -9e9))):
        own = [row for row in rows if row["system"] == name]
        line = {"system": name, "questions": f"{own[0]['n']:,}", "shown": f"{own[0]['shown']:,}"}
        own = [own[-1], *own[:-1]]  # overall first
        lines.append(line | {row["criterion"]: estimate_text(row, 3, signed=True) for row in own})
    return _lines_table("systems", lines, plots=plots)


def _pairs(rows: Rows) -> Table:
    return _table(
        "pairs",
        [
            {
                **row,
                "estimate": estimate_text({**row, "value": row["difference"]}, 3, signed=True),
                "signs": f"{row['higher']} / {row['equal']} / {row['lower']}",
            }
            for row in rows
        ],
    )


def _mixed(rows: Rows) -> Table:
    lines = joined_rows(
        rows, ["system"], lambda row: {row["criterion"]: f"{_number(row['mean'])} ± {_number(row['standard_error'])}"}
    )
    spread = next((row for row in rows if row["criterion"] == OVERALL), None)
    more = ""
    if spread:
        parts = [f"{what} {_number(sd)}" for what in ("rater", "item", "residual") if (sd := spread[f"{what}_sd"])]
        more = f" Standard deviations, overall: {', '.join(parts)}."
    return _lines_table("mixed_model", lines, more)


def _replication(rows: Rows) -> Table:
    lines = joined_rows(
        rows, ["criterion"], lambda row: {"systems": str(row["n"]), SYMBOLS[row["coefficient"]]: estimate_text(row)}
    )
    alone = max((row["only_first"] + row["only_second"] for row in rows), default=0)
    more = f" Up to {alone} systems are in one study alone and do not count." if alone else ""
    return _lines_table("replication", lines, more)


def _agreement(rows: Rows) -> Table:
    is_filtered = any("ratings" in row for row in rows)
    names = ["criterion", "ratings"] if is_filtered else ["criterion"]

    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        # An undefined κ counts questions of one rater too; α does not.
        counts = {"questions": f"{row['n']:,}"} if "α" in row["statistic"] else {}
        return {**counts, row["statistic"]: estimate_text(row)}

    lines = joined_rows(rows, names, cells)
    more = " Agreement of filtered ratings rises by construction." if is_filtered else ""
    return _lines_table("agreement", lines, more)


def _raters(rows: Rows, control: Control) -> Table:
    method = "signed ranks" if control.method == SIGNED_RANK else "rank sums"
    unit = "single ratings, as published" if control.unit == RATINGS else "means over criteria of each question"
    note = _TABLES["raters"]["note"].format(method=method, level=control.level, unit=unit)
    if len(rows) > MOST_RATERS:
        note += f" The first {MOST_RATERS} of {len(rows):,}; all are in tables/raters.csv."
    return _table("raters", rows[:MOST_RATERS], note)
