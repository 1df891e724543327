"""What the columns of a table hold."""

import csv
import io

import pytest

from rl_qg.pages.results import as_csv, column_kinds, joined_rows, text_table


@pytest.mark.parametrize(
    "cell", ["0.31 [0.30, 0.32]", "−0.5 [−0.7, −0.3] *", "–", "<0.0001", "1,200", "19 of 20 *", "2 ×", "", "+1.5"]
)
def test_a_column_of_numbers(cell: str) -> None:
    assert column_kinds([{"a": "1"}, {"a": cell}, {}]) == {"a": "num"}


@pytest.mark.parametrize("cell", ["offers", "Who wrote 1984?", "bleu4", "1 passage"])
def test_a_column_with_one_cell_of_words(cell: str) -> None:
    assert column_kinds([{"a": "1"}, {"a": cell}]) == {"a": "words"}


def test_no_cell_of_a_csv_file_is_a_formula() -> None:
    texts = [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "-1 +cmd|' /C calc'!A0",
        '+1%+HYPERLINK("x")',
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        '=HYPERLINK("x")',
    ]
    rows = [{"=name": text, "score": -0.5, "interval": "-0.5 [-0.7, -0.2]", "plain": "a = b"} for text in texts]
    read = list(csv.reader(io.StringIO(as_csv(rows), newline="")))
    assert read[0] == ["'=name", "score", "interval", "plain"]
    assert [line[0] for line in read[1:]] == [f"'{text}".replace("\r", "\n") for text in texts]
    assert all(line[1:] == ["-0.5", "-0.5 [-0.7, -0.2]", "a = b"] for line in read[1:])


def test_a_long_name_that_begins_with_a_number_is_recognised_at_once() -> None:
    assert column_kinds([{"a": "1" * 5000 + "x"}]) == {"a": "words"}  # took hours for 40 digits


def test_a_file_with_the_name_of_a_column_stands_beside_it() -> None:
    rows = [{"metric": "bleu4", "form": "corpus", "file": name, "value": name.upper()} for name in ("a", "form")]
    lines = joined_rows(rows, ("metric", "form"), lambda row: {row["file"]: row["value"]})
    (line,) = text_table(lines).splitlines()[2:]
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["bleu4", "corpus", "A", "FORM"]
