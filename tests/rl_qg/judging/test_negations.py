"""Negated questions: auxiliaries, do-support, and antonyms."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from rl_qg.judging.paraphrases import negate, replace_by_antonym, wordnet_antonyms
from rl_qg.runtime.errors import InputError


@pytest.mark.parametrize(
    ("question", "changed", "rule"),
    [
        ("Where was Ada Bell born?", "Where wasn't Ada Bell born?", "negated"),
        ("Is it true?", "Isn't it true?", "negated"),
        ("When did she not write?", "When did she not write?", None),
        ("Who did not come?", "Who did come?", "affirmed"),
        ("Who didn't come?", "Who did come?", "affirmed"),
        ("Why cannot it fly?", "Why can it fly?", "affirmed"),
        ("what can n't fly ?", "what can fly ?", "affirmed"),
        ("Name the river.", None, None),
        ("What kind of music?", None, None),
        ("What is not sold?", "What is sold?", "affirmed"),
        ("What did he NOT do?", "What did he do?", "affirmed"),
        ("What are in May 2010 the costs?", "What aren't in May 2010 the costs?", "negated"),
        ("The feast in May 2010 was called what?", "The feast in May 2010 wasn't called what?", "negated"),
        ("Where can he sell the will?", "Where can't he sell the will?", "negated"),
        ("The will of whom was read?", "The will of whom wasn't read?", "negated"),
        ("What may a school ask?", "What can't a school ask?", "negated"),
        ("What has a wing?", "What doesn't have a wing?", "negated"),
    ],
)
def test_negation(question: str, changed: str | None, rule: str | None) -> None:
    perturbation = negate(question)
    if rule is None and changed is not None:
        assert perturbation is not None and perturbation.question != question
    else:
        assert (perturbation and (perturbation.question, perturbation.rule)) == (changed and (changed, rule))


@pytest.mark.parametrize(
    ("question", "changed"),
    [
        (  # the example of QRelScore, Table 7
            "What controls wages in a purely capitalist mode of production?",
            "What doesn't control wages in a purely capitalist mode of production?",
        ),
        ("Who owns it?", "Who doesn't own it?"),
        ("Who wrote Grey Water?", "Who didn't write Grey Water?"),
        ("What company invented it?", "What company didn't invent it?"),
        ("Who married Will Smith?", "Who didn't marry Will Smith?"),
        ("Which United States president signed it?", "Which United States president didn't sign it?"),
        ("How many hundred men fought?", "How many hundred men didn't fight?"),
        ("What work of Luther's became popular?", "What work of Luther's didn't become popular?"),
        ("Which of armed gangs won?", "Which of armed gangs didn't win?"),
        ("What animals live in Lorn?", "What animals don't live in Lorn?"),
        ("What kinds of music?", None),
        ("What names appear?", "What names don't appear?"),  # a noun in -s, then the verb
        ("Into what regions far away?", None),
        ("What speed limits apply?", None),
        ("Which armed forces?", None),
    ],
)
def test_a_verb_alone_gets_do(question: str, changed: str | None) -> None:
    perturbation = negate(question)
    assert (perturbation and perturbation.question) == changed


def test_one_of_several_verbs_is_drawn() -> None:
    question = "What was the name of the man who could swim?"
    both = {"What wasn't the name of the man who could swim?", "What was the name of the man who couldn't swim?"}
    drawn = [negate(question, random.Random(seed)) for seed in range(20)]
    assert {change.question for change in drawn if change} == both
    assert drawn == [negate(question, random.Random(seed)) for seed in range(20)]
    first = negate(question)
    assert first is not None and first.before == "was"


@pytest.mark.parametrize(
    ("question", "changed"),
    [
        ("Who won the match?", "Who lost the match?"),
        ("What caused prices to rise?", "What caused prices to fall?"),
        ("When was the war ended?", "When was the war begun?"),
        ("What ended the war?", "What began the war?"),
        ("Who wins?", "Who loses?"),
        ("Who is winning?", "Who is losing?"),
        ("Where is Lorn?", None),
    ],
)
def test_antonyms_take_the_form_of_the_verb(question: str, changed: str | None) -> None:
    antonyms = {"win": ["lose"], "rise": ["fall"], "end": ["begin"], "be": ["seem"]}
    change = replace_by_antonym(question, lambda base: antonyms.get(base, []), random.Random(0))
    assert (change and (change.question, change.rule)) == (changed and (changed, "antonym"))


class Words:
    """A stub of nltk's WordNet: `win` (verb) against `lose`, and `book`, which is more often a noun."""

    def __init__(self) -> None:
        lose = SimpleNamespace(name=lambda: "lose")
        self._synsets = {("win", "v"): self._synset("win", 5, [lose]), ("book", "v"): self._synset("book", 1, [lose])}
        self._synsets["book", "n"] = self._synset("book", 9, [])

    @staticmethod
    def _synset(name, count, antonyms):
        lemma = SimpleNamespace(name=lambda: name, count=lambda: count, antonyms=lambda: antonyms)
        return [SimpleNamespace(lemmas=lambda: [lemma])]

    def get_version(self) -> str:
        return "toy"

    def synsets(self, word: str, kind: str):
        return self._synsets.get((word, kind), [])


def test_wordnet_gives_antonyms_of_what_is_mostly_a_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk", reason="nltk is optional")
    monkeypatch.setattr(nltk.corpus, "wordnet", Words())
    antonyms, version = wordnet_antonyms()
    assert version == "WordNet toy"
    assert (antonyms("win"), antonyms("book"), antonyms("other")) == (["lose"], [], [])


def test_without_wordnet_antonyms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk", reason="nltk is optional")

    def missing() -> str:
        raise LookupError("Resource wordnet not found.\nMore lines.")

    monkeypatch.setattr(nltk.corpus, "wordnet", SimpleNamespace(get_version=missing))
    with pytest.raises(InputError, match=r"antonyms need WordNet; pip install .* or negation=not") as error:
        wordnet_antonyms()
    assert "\n" not in str(error.value)


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_text_survives(text: str, seed: int) -> None:
    for change in (
        negate(text),
        negate(text, random.Random(seed)),
        replace_by_antonym(text, lambda base: [base + "s"], random.Random(seed)),
    ):
        if change is not None:
            assert change.before in text and change.after in change.question
