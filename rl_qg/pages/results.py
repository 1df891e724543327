"""Results for people: tables as text and as one HTML page, with the same numbers as JSON and CSV."""

import base64
import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json, write_text, writing
from rl_qg.text.words import counted

# Rows as tables: CSV for other programs, Markdown for people.


Rows = Sequence[Mapping[str, Any]]
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # with which a formula begins, also in the full-width forms of East Asia
_SIGNED_NUMBER = re.compile(r"[-+][\d.,]+(e[-+]?\d+)?( \[[-−+\d., ]*\])?[ *%]*")
_NUMBERS = re.compile(r"(?:of|[\d.,;]|[-+−±–<>≥%×*\[\]()]|\s)*")  # "0.31 [0.30, 0.32] *", "19 of 20", "–"
SHARED = ("page_style.css", "page_tables.html")
MINUS = "\N{MINUS SIGN}"
NONE = "–"
Row = Mapping[str, Any]


def columns_of(rows: Rows) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def joined_rows(
    rows: Rows, columns: Sequence[str] | Mapping[str, str], cells: Callable[[Mapping[str, Any]], Mapping[str, str]]
) -> list[dict[str, str]]:
    """A line for all rows that are alike in `columns` (names or heading -> name), beside these the `cells` of each."""
    fields = columns if isinstance(columns, Mapping) else dict(zip(columns, columns, strict=True))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        first = {heading: row[name] for heading, name in fields.items()}
        own = {f"{name} " if name in fields else name: text for name, text in cells(row).items()}  # as of `form.jsonl`
        lines.setdefault(tuple(first.values()), first).update(own)
    return list(lines.values())


def column_kinds(rows: Rows) -> dict[str, str]:
    """Every column, and what is in it: `num` where all cells are numbers, intervals or counts, else `words`."""
    return {
        column: "num" if all(_NUMBERS.fullmatch(str(row.get(column, ""))) for row in rows) else "words"
        for column in columns_of(rows)
    }


def as_csv(rows: Rows) -> str:
    """Rows as CSV, with every column that any of them has.

    A text that a spreadsheet would compute as a formula, such as `=1+1` in somebody's file name, begins with an
    apostrophe; numbers stay as they are.
    """
    columns, stream = columns_of(rows), io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(no_formula, columns))
    writer.writerows([no_formula(row.get(column, "")) for column in columns] for row in rows)
    return stream.getvalue()


def no_formula(value: Any) -> Any:
    """A cell that no spreadsheet runs: foreign text gets an apostrophe where a formula would begin."""
    if not isinstance(value, str):
        return value
    begins = value.startswith(_FORMULA) and not _SIGNED_NUMBER.fullmatch(value)
    # The csv module does not quote a carriage return, which then ends the row.
    return ("'" if begins else "") + value.replace("\r\n", "\n").replace("\r", "\n")


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows of cells as a Markdown table, without a newline at its end."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


class _Cells(HTMLParser):
    """The texts of a table's cells, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1] and (text := " ".join(data.split())):
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {text}".strip()


def csv_address(table: str) -> str:
    """A table of a page as CSV, as a `data:` address, so that the page has it without another file or a script."""
    cells, stream = _Cells(), io.StringIO()
    cells.feed(table)
    csv.writer(stream, lineterminator="\n").writerows(map(no_formula, row) for row in cells.rows)
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(stream.getvalue().encode()).decode()}"


# HTML pages from packaged templates, all in one style; a page is one file that loads nothing.


@dataclass(frozen=True)
class Plot:
    """A drawing as SVG. `legend` has (label, CSS variable, whether drawn as dots) for each series."""

    title: str
    note: str
    legend: tuple[tuple[str, str, bool], ...]
    svg: Markup


def page_environment(package: str, *templates: str) -> Environment:
    """The templates of a package, with what all pages share: the style, included as `page_style.css`, and the tables,
    imported from `page_tables.html`.

    Text is escaped, half a surrogate pair is a question mark, and a name that a template does not know is an error.
    """
    files = dict.fromkeys(SHARED, "rl_qg.pages") | dict.fromkeys(templates, package)
    texts = {name: resources.files(owner).joinpath(name).read_text(encoding="utf-8") for name, owner in files.items()}

    def encodable(value: Any) -> Any:
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return value.encode(errors="replace").decode() if is_text else value

    options: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "finalize": encodable}
    environment = Environment(loader=DictLoader(texts), trim_blocks=True, lstrip_blocks=True, **options)
    environment.filters["column_kinds"] = column_kinds
    environment.filters["csv_address"] = csv_address
    return environment


def text_template(package: str, name: str) -> Template:
    """A packaged template of plain text or Markdown."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return Template(text, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)


def template_lines(package: str, name: str, **values: Any) -> list[str]:
    """The lines that a packaged template of plain text makes, such as the facts of a page."""
    return text_template(package, name).render(counted=counted, **values).splitlines()


@dataclass(frozen=True)
class Table:
    """A table as text, a text for each column of a row; `note` explains it. The page shows `plots` above it."""

    title: str
    rows: Sequence[Mapping[str, str]]
    note: str = ""
    plots: Sequence[Plot] = ()


@dataclass(frozen=True)
class Page:
    """The results of a command, for people."""

    command: str
    title: str
    facts: Sequence[str]
    tables: Sequence[Table]
    signatures: Mapping[str, str]
    footer: str = ""


def write_results(
    folder: Path, name: str, record: Mapping[str, Any], page: Page, plain: Mapping[str, Sequence[Row]]
) -> None:
    """Write `NAME.json` (everything), `NAME.txt` and `NAME.html` (tables), and `tables/*.csv` (numbers in full)."""
    with writing(folder):
        write_json(folder / f"{name}.json", record)
        for key, rows in plain.items():
            (table := folder / "tables" / f"{key}.csv").unlink(missing_ok=True)  # of an earlier run
            if rows:
                write_text(table, as_csv(rows))
        write_text(folder / f"{name}.txt", as_text(page))
    write_page(folder, name, page)


def write_page(folder: Path, name: str, page: Page) -> None:
    with writing(folder):
        write_text(folder / f"{name}.html", as_html(page))


def check_folder(output: str, example: str, *, name: str, key: str = "signatures") -> Path:
    """Make the folder for results, files called `name`; their JSON has `key` where the same command wrote it."""
    if not output:
        raise InputError(f"output has no value; name a folder, such as output={example}")
    folder = Path(output).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output={output}: cannot be a folder ({error.strerror}); name another") from None
    present = [file.name for ending in ("json", "txt", "html") if (file := folder / f"{name}.{ending}").exists()]
    record = None
    with suppress(InputError):
        record = read_json(folder / f"{name}.json")
    if present and not (isinstance(record, dict) and key in record):
        raise InputError(f"output={output}: {present[0]} in it is not of this command; name another folder")
    return folder


def as_text(page: Page) -> str:
    parts = [f"# {_line(page.title)}", *page.facts]
    for table in page.tables:
        parts += [f"## {_line(table.title)}", *([table.note] if table.note else []), text_table(table.rows)]
    if page.signatures:
        parts += ["## Signatures", "\n".join(f"- {name}: `{text}`" for name, text in page.signatures.items())]
    return "\n\n".join([*parts, *([page.footer] if page.footer else [])]) + "\n"


def text_table(rows: Sequence[Mapping[str, str]]) -> str:
    columns = columns_of(rows)
    lines = [
        [_line(cell).replace("|", "\\|") for cell in cells]
        for cells in (columns, *([row.get(column, "") for column in columns] for row in rows))
    ]
    # At least as wide as the rule below the heading: a hyphen, and a colon in all columns but the first.
    widths = [max(1 + bool(at), *(len(line[at]) for line in lines)) for at in range(len(columns))]
    rule = ["-" * (width - bool(at)) + ":" * bool(at) for at, width in enumerate(widths)]
    padded = [
        [cell.rjust(widths[at]) if at else cell.ljust(widths[at]) for at, cell in enumerate(line)]
        for line in (lines[0], rule, *lines[1:])
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def _line(text: str) -> str:
    return " ".join(text.split())


def as_html(page: Page) -> str:
    environment = page_environment("rl_qg.pages", "result_template.html")
    return environment.get_template("result_template.html").render(page=page)


def estimate_text(statistic: Row, digits: int = 3, *, signed: bool = False) -> str:
    """A value with its interval; a dash where it is not defined."""
    if statistic.get("value") is None:
        return NONE
    form = f"{'+' if signed else ''}.{digits}f"
    text = f"{statistic['value']:{form}}"
    if statistic.get("low") is not None:
        text += f" [{statistic['low']:{form}}, {statistic['high']:{form}}]"
    return text.replace("-", MINUS)


def p_text(p: float | None) -> str:
    """A p-value with four decimals; smaller ones as `<0.0001`."""
    return NONE if p is None else "<0.0001" if p < 0.0001 else f"{p:.4f}"
