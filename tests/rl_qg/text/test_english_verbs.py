"""Past tenses, by hand."""

import pytest

from rl_qg.text.english_verbs import is_past


@pytest.mark.parametrize("word", ["wrote", "caused", "called", "carried", "studied"])
def test_past_tenses(word: str) -> None:
    assert is_past(word)


@pytest.mark.parametrize("word", ["write", "carry", "studies", "red", "hundred", "written", "seed"])
def test_other_words(word: str) -> None:
    assert not is_past(word)
