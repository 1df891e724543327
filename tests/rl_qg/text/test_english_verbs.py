"""Past tenses, by hand."""

import pytest

from rl_qg.text.english import is_past


@pytest.mark.parametrize("word", ["wrote", "caused", "called", "tried", "varied"])
def test_past_tenses(word: str) -> None:
    assert is_past(word)


@pytest.mark.parametrize("word", ["write", "try", "varies", "red", "hundred", "written"])
def test_other_words(word: str) -> None:
    assert not is_past(word)
