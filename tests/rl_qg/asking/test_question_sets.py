"""Sets of questions: what each selection takes from a pool, by hand, and a generator from text to set."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rl_qg.asking.set_pool import PassagePool, SentenceVectors, word_coverage, word_similarity
from rl_qg.asking.sets import SetGenerator, choose
from rl_qg.generation.sets import UnitPool
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.errors import InputError
from rl_qg.text.spans import sentence_spans
from tests.rl_qg.asking.set_pools import AGAIN, CONTEXT, FIRE, GROUPS, MILL, OTTO, SENTENCES, WHEN, asked, pool
from tests.rl_qg.generation.test_question_pool import tiny

TINY_CONTEXT = "W1 w2 w3 . W4 w5 . W6 w7 w8 w9 ."
ANSWERABLE = [0.6, 0.9, 0.95, 0.4, 0.7]


def taken(found: Any) -> list[str]:
    return [question.question for question in found.questions]


def texts(*questions: Any) -> list[str]:
    return [question.question for question in questions]


# --- arrays


def test_similarity_and_coverage_by_hand() -> None:
    similarity = word_similarity(["Who built the mill?", "who built a mill", "", "When?"])
    assert similarity[0, 1] == 3 / 5 and similarity[0, 2] == 0 == similarity[0, 3]
    assert np.diagonal(similarity).tolist() == [1.0] * 4
    # Of three words "the" is divided between both sentences; "mill" is of the first and "sold" of the second.
    coverage = word_coverage(["who sold the mill", "who sold it", "why"], ["Ada built the mill", "He sold the field"])
    assert coverage == pytest.approx(np.array([[0.5, 0.5], [0, 1], [0, 0]]))


@pytest.mark.parametrize("seed", range(5))
def test_word_similarity_is_positive_semidefinite(seed: int) -> None:
    draws = np.random.default_rng(seed)
    questions = [" ".join(draws.choice(list("abcdefgh"), draws.integers(1, 7))) for _ in range(30)]
    assert np.linalg.eigvalsh(word_similarity(questions)).min() > -1e-9


def test_sentence_vectors_of_an_encoder() -> None:
    similar = SentenceVectors(SHIPPED / "bert", device="cpu")
    found = similar(["Who built it?", "Who built it?", "Rome, 1204"])
    assert found[0, 1] == pytest.approx(1) and found[0, 2] == pytest.approx(found[2, 0]) and found[0, 2] < 0.999
    assert similar([]).shape == (0, 0)


def test_a_question_of_two_units_stays_with_the_more_probable_one() -> None:
    group = UnitPool()
    group += [asked(1, "who built the MILL", 0.95), FIRE]
    group.dropped["incomplete"] = 2
    found = PassagePool.of(CONTEXT, [[MILL, WHEN], group])
    assert found.texts == ["When was the mill built?", "who built the MILL", "When did it burn?"]
    assert found.dropped == {"incomplete": 2, "repeated": 1} and found.size == 6


# --- choices


def test_selections_by_hand() -> None:
    plain, read = pool(), pool(ANSWERABLE)
    assert taken(choose(plain, "all", None)) == texts(MILL, WHEN, AGAIN, FIRE, OTTO)
    assert taken(choose(plain, "all", 4)) == texts(MILL, WHEN, FIRE, OTTO)  # first of each unit, then a second one
    assert taken(choose(plain, "top1", None)) == texts(MILL, FIRE, OTTO)
    assert taken(choose(plain, "top1", 2)) == texts(MILL, FIRE)
    assert taken(choose(read, "rank", 5)) == texts(AGAIN, WHEN, OTTO, MILL)  # .4 is answerable less often than not
    assert taken(choose(read, "rank", 1)) == texts(AGAIN)
    assert taken(choose(read, "top1", None)) == texts(MILL, FIRE, OTTO)
    # Relative qualities 1, .67, .56, .89, .5: a second question about the first sentence adds a share of quality.
    assert taken(choose(plain, "coverage", "auto")) == texts(MILL, FIRE, OTTO)
    assert taken(choose(plain, "coverage", 4)) == texts(MILL, FIRE, OTTO, WHEN)
    unworthy = pool(worthy=[True, False, False])
    assert taken(choose(unworthy, "coverage", "auto")) == texts(MILL)


def test_every_selection_gives_distinct_questions_and_counts_the_others() -> None:
    for select in ("all", "rand", "top1", "mmr", "coverage"):
        found = choose(pool(), select, 3)
        assert len(set(taken(found))) == len(found.questions) == 3, select
        assert found.pool == 5 == 3 + sum(found.dropped.values()) and found.reason == ""
        assert [question.rank for question in found.questions] == [0, 1, 2]


def test_random_choice_depends_on_seed_and_passage_alone() -> None:
    first = [taken(choose(pool(), "rand", 2, seed=seed)) for seed in range(8)]
    assert first == [taken(choose(pool(), "rand", 2, seed=seed)) for seed in range(8)]
    assert len({tuple(one) for one in first}) > 2
    other = [choose(PassagePool(f"{CONTEXT} ", pool().questions), "rand", 2, seed=seed) for seed in range(8)]
    assert first != [taken(one) for one in other]


def test_what_a_question_carries() -> None:
    (first, *_) = choose(pool(ANSWERABLE), "rank", 4).questions
    assert CONTEXT[first.start : first.end] == "Ada built the mill in 1204."
    assert (first.type, first.score, first.scores) == ("who", 0.95, {"probability": 0.5, "answerability": 0.95})
    assert first.reason == "number 1 by rank, about sentence 1"
    assert choose(pool(), "all", 1).questions[0].score == 0.9


def test_the_reason_of_a_small_set() -> None:
    found = choose(pool(ANSWERABLE), "rank", 9)
    assert found.reason == "4 of 9 questions: 5 were generated; not answerable from the passage (1)"
    assert choose(pool([0.1] * 5), "rank", "auto").questions == []
    none = PassagePool.of(CONTEXT, [], worthy=[False] * 3)
    assert choose(none, "coverage", 5).reason == "no sentence is worth a question"
    assert choose(pool(), "coverage", "auto").reason == ""


# --- from text to set


class ShortIsAnswerable:
    """p(impossible) is .1 of a question of at most five words, else .9."""

    def impossible(self, questions: Sequence[str], contexts: Sequence[str]) -> list[float]:
        assert len(questions) == len(contexts)
        return [0.1 if len(question.split()) <= 5 else 0.9 for question in questions]


class FirstSentence:
    """A classifier by which the first sentence alone is worth a question."""

    kind = "worthiness"

    def worthy(self, paragraphs: Sequence[Sequence[str]]) -> list[list[bool]]:
        return [[not number for number in range(len(sentences))] for sentences in paragraphs]

    def types(self, paragraphs: Sequence[Sequence[str]]) -> list[list[list[str]]]:
        return [[["who", "why"] for _ in sentences] for sentences in paragraphs]


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny(tmp_path_factory.mktemp("one2one"), granularity="sentence", mode="one2one")


def test_a_set_from_a_text(generator: Any) -> None:
    made = SetGenerator(generator, name="tiny", reader=ShortIsAnswerable())
    assert made.strategy == "sentence_one2one"
    contexts = [TINY_CONTEXT, "W8 w1 . W2 ."]
    first, second = made.sets(contexts, number=3, seed=1)
    places = sentence_spans(TINY_CONTEXT)
    assert {(question.start, question.end) for question in first.questions} <= set(places)
    assert len(first.questions) == 3 and all(len(question.question.split()) <= 5 for question in first.questions)
    assert second == made.sets(contexts[1:], number=3, seed=1)[0]  # whatever else is asked about
    assert taken(made.sets(contexts, number=3, seed=2)[0]) != taken(first)
    top = made.sets(contexts, number=None)[0]  # auto: the greedy question of each sentence
    assert [(question.start, question.end) for question in top.questions] == places[: len(top.questions)]
    assert first.to_dict()["questions"][0] == vars(first.questions[0])
    assert made.sets([]) == []


def test_classifiers_choose_sentences_and_types(generator: Any, tmp_path: Path) -> None:
    stand_in: Any = FirstSentence()
    made = SetGenerator(generator, worthiness=stand_in)
    (found,) = made.sets([TINY_CONTEXT], number=4)
    assert {(question.start, question.end) for question in found.questions} == {sentence_spans(TINY_CONTEXT)[0]}
    typed = SetGenerator(tiny(tmp_path, granularity="type", mode="one2one"), worthiness=stand_in, types=stand_in)
    (found,) = typed.sets([TINY_CONTEXT], number=None, select="all")
    assert {question.type for question in found.questions} == {"who", "why"}


def test_what_a_selection_lacks_is_one_line(generator: Any) -> None:
    made = SetGenerator(generator, name="tiny")
    for options, message in (
        ({"select": "rank"}, "select=rank: orders by answerability; give reader="),
        ({"select": "learned"}, "select=learned: give selector="),
        ({"select": "mmr", "number": "auto"}, "number=auto: select=mmr needs a number"),
        ({"select": "best"}, "select=best is not one of auto, all"),
        ({"number": 0}, "number=0 must be at least 1"),
        ({"number": "many"}, "number='many' is neither"),
        ({"number": True}, "number=True is neither"),
    ):
        with pytest.raises(InputError, match=message):
            made.sets([CONTEXT], **options)
    with pytest.raises(InputError, match=r"model\.path=q: was trained with model\.task=questions and writes no sets"):
        prompt = SimpleNamespace(task="questions", granularity="", mode="")
        SetGenerator(SimpleNamespace(encoder=SimpleNamespace(prompt=prompt)), name="q")  # type: ignore[arg-type]


def test_pools_come_back_from_json() -> None:
    for given in (pool(), pool(ANSWERABLE, [True, True, False])):
        back = PassagePool.from_dict(given.to_dict())
        assert back.to_dict() == given.to_dict() and (back.asked == given.asked).all()
    assert [*map(len, GROUPS)] == [3, 1, 1] and len(SENTENCES) == 3
