"""Where a text stands in another: whole words first, any white space."""

import pytest

from rl_qg.text.words import occurrences


@pytest.mark.parametrize(
    ("text", "part", "expected"),
    [
        ("The art of a party is art.", "art", [(4, 7), (22, 25)]),
        ("a party", "art", [(3, 6)]),  # inside a word, since there is no other place
        ("in New\n  York now", "New York", [(3, 13)]),
        ("in New York", "New\tYork ", [(3, 11)]),
        ("aaa", "aa", [(0, 2), (1, 3)]),
        ("東京都に住む", "東京", [(0, 2)]),
        ("1,000 (about 1,000.5)", "1,000", [(0, 5), (13, 18)]),
        ("nothing", "", []),
        ("nothing", " \n", []),
        ("a.c abc", "a.c", [(0, 3)]),
    ],
)
def test_places(text: str, part: str, expected: list[tuple[int, int]]) -> None:
    assert occurrences(text, part) == expected
