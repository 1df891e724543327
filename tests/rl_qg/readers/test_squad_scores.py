"""Exact match and F1 against worked cases and against a slow reference that works letter by letter."""

import string
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rewards.words import answer_exact_match as exact_match, answer_f1 as f1, normalise_answer
from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.reading import read_examples
from rl_qg.readers.reader import score_predictions
from rl_qg.runtime.errors import InputError

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Denver Broncos!", "denver broncos"),
        ("  A\tcat\n and  an owl ", "cat and owl"),
        ("Theatre another banana", "theatre another banana"),  # articles as whole words only
        ("the a an The", ""),
        ("U.S.A.", "usa"),
        ("a.b", "ab"),  # punctuation goes first, so this 'a' is no article
        ("half-time", "halftime"),
        ("the-cat", "thecat"),
        ("$1,000.50", "100050"),
        ("?!...", ""),
        ("«Éa» 5°", "«éa» 5°"),  # only ASCII punctuation is removed
        ("a\u00a0cat", "cat"),  # a no-break space is white space
        ("", ""),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answer", "em", "precision", "recall"),
    [
        ("the Broncos", "Broncos.", 1, (1, 1), (1, 1)),
        ("Denver Broncos", "Broncos", 0, (1, 2), (1, 1)),
        ("Broncos", "Denver Broncos of Colorado", 0, (1, 1), (1, 4)),
        ("new new york", "new york city", 0, (2, 3), (2, 3)),  # a repeated word counts as often as in both
        ("new new york", "new new town", 0, (2, 3), (2, 3)),
        ("york new", "new york", 0, (2, 2), (2, 2)),  # order does not count for F1
        ("Rome", "Oslo", 0, (0, 1), (0, 1)),
        ("", "Oslo", 0, (0, 1), (0, 1)),
        ("Éa", "éa", 1, (1, 1), (1, 1)),
    ],
)
def test_scores(prediction: str, answer: str, em: int, precision: tuple[int, int], recall: tuple[int, int]) -> None:
    p, r = Fraction(*precision), Fraction(*recall)
    assert exact_match(prediction, answer) == em
    assert f1(prediction, answer) == pytest.approx(float(2 * p * r / (p + r)) if p + r else 0.0, abs=1e-12)


def test_two_empty_texts_are_an_exact_match_without_f1() -> None:
    assert (exact_match("the", "a!"), f1("the", "a!")) == (1.0, 0.0)


vocabulary = st.lists(st.sampled_from(["a", "the", "An", "cat", "Cat.", "cats", "5,5", "É", "-", "(dog)"]), max_size=6)


def slow_normalise(text: str) -> list[str]:
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    pieces, piece = [], ""
    for letter in kept + " ":
        if letter.isalnum() or letter == "_":
            piece += letter
        else:
            pieces += [" " if piece in ("a", "an", "the") else piece, letter]
            piece = ""
    return "".join(pieces).split()


def slow_f1(prediction: str, answer: str) -> Fraction:
    predicted, left = slow_normalise(prediction), slow_normalise(answer)
    size, shared = len(predicted) + len(left), 0
    for word in predicted:
        if word in left:
            left.remove(word)
            shared += 1
    return Fraction(2 * shared, size) if shared else Fraction(0)


vocabulary = st.lists(st.sampled_from(["a", "the", "An", "cat", "Cat.", "cats", "5,5", "É", "-", "(dog)"]), max_size=6)


@given(prediction=vocabulary, answer=vocabulary, space=st.sampled_from([" ", "  ", "\n", ".", "", " - "]))
def test_scores_agree_with_a_slow_reference(prediction: list[str], answer: list[str], space: str) -> None:
    mine, theirs = space.join(prediction), " ".join(answer)
    assert normalise_answer(mine) == " ".join(slow_normalise(mine))
    assert exact_match(mine, theirs) == (slow_normalise(mine) == slow_normalise(theirs))
    assert f1(mine, theirs) == pytest.approx(float(slow_f1(mine, theirs)), abs=1e-12)


def example(key: str, *answers: str) -> QAExample:
    return QAExample(key, "", "c", "q", tuple(Answer(answer, 0) for answer in answers))


def test_a_set_takes_the_best_answer_and_counts_what_is_missing() -> None:
    examples = [example("1", "Rome", "the city of Rome"), example("2", "Oslo"), example("3", "x"), example("4", "y z")]
    scores = score_predictions({"1": "city Rome", "2": "oslo!", "4": "z", "unknown": "x"}, iter(examples))
    assert scores.ids == ["1", "2", "3", "4"]
    assert scores.exact_matches == [0.0, 1.0, 0.0, 0.0]
    assert scores.f1s == pytest.approx([0.8, 1.0, 0.0, 2 / 3])  # 'city of Rome' beats 'Rome' (2/3)
    assert scores.missing == 1
    assert scores.exact_match == 25.0
    assert scores.f1 == pytest.approx(100 * (0.8 + 1 + 2 / 3) / 4)


def test_best_exact_match_and_best_f1_may_come_from_different_answers() -> None:
    scores = score_predictions({"1": "the"}, [example("1", "a", "cat")])
    assert (scores.exact_match, scores.f1) == (100.0, 0.0)


def test_no_examples() -> None:
    with pytest.raises(InputError, match="no examples to score"):
        score_predictions({"1": "x"}, [])


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared real data sets are not on this machine")
def test_people_scored_against_each_other_on_real_data() -> None:
    examples = read_examples(SHARED / "squad" / "dev_part1-v1.1.json.gz", role="validation").examples
    second = {e.id: e.answers[1].text for e in examples if len(e.answers) > 2}
    several = [QAExample(e.id, "", "c", "q", (e.answers[0], *e.answers[2:])) for e in examples if len(e.answers) > 2]
    scores = score_predictions(second, several)
    em = [max(slow_normalise(a.text) == slow_normalise(second[e.id]) for a in e.answers) for e in several]
    f1s = [float(max(slow_f1(second[e.id], a.text) for a in e.answers)) for e in several]
    assert scores.exact_match == pytest.approx(100 * sum(em) / len(em))
    assert scores.f1 == pytest.approx(100 * sum(f1s) / len(f1s))
    assert 75 < scores.exact_match < 85  # the SQuAD paper gives 77.0 and 86.8 for people on the whole set
    assert 85 < scores.f1 < 93
