"""What the columns of a table hold."""

import pytest

from rl_qg.text.tables import column_kinds


@pytest.mark.parametrize(
    "cell", ["0.31 [0.30, 0.32]", "−0.5 [−0.7, −0.3] *", "–", "<0.0001", "1,200", "19 of 20 *", "2 ×", "", "+1.5"]
)
def test_a_column_of_numbers(cell: str) -> None:
    assert column_kinds([{"a": "1"}, {"a": cell}, {}]) == {"a": "num"}


@pytest.mark.parametrize("cell", ["offers", "Who wrote 1984?", "bleu4", "1 passage"])
def test_a_column_with_one_cell_of_words(cell: str) -> None:
    assert column_kinds([{"a": "1"}, {"a": cell}]) == {"a": "words"}
