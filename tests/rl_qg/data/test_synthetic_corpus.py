"""The embedded corpus: reproducible, with correct answers, and not solvable by one fixed question."""

import re
from collections import defaultdict

import pytest

from rl_qg.data.corpus import KINDS, read_facts, synthetic_examples
from rl_qg.data.examples import examples_hash
from rl_qg.data.splits import read_role
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings, WorldSettings


def test_same_arguments_give_the_same_text_and_others_do_not() -> None:
    first = list(synthetic_examples(30, seed=1))
    assert first == list(synthetic_examples(30, seed=1))
    assert {e.context for e in first}.isdisjoint(e.context for e in synthetic_examples(30, seed=2))
    assert {e.context for e in first}.isdisjoint(
        e.context for e in synthetic_examples(30, seed=1, prefix="validation")
    )


def test_more_passages_begin_with_the_same_ones() -> None:
    many, few = list(synthetic_examples(30, seed=1)), list(synthetic_examples(10, seed=1))
    assert many[: len(few)] == few


def test_every_answer_is_at_its_offset_and_every_id_is_unique() -> None:
    examples = list(synthetic_examples(300, seed=0))
    for item in examples:
        answer = item.answers[0]
        assert item.context[answer.start : answer.start + len(answer.text)] == answer.text
    assert len({item.id for item in examples}) == len(examples) > 1200


def test_questions_end_in_a_question_mark_and_never_contain_their_answer() -> None:
    for item in synthetic_examples(300, seed=0):
        assert item.question.endswith("?")
        assert not re.search(rf"\b{re.escape(item.answers[0].text)}\b", item.question)
        assert item.question[0].isupper()
        assert "{" not in item.question + item.context


def test_a_question_must_name_its_subject() -> None:
    """Most passages state one kind of fact about both subjects, so the relation alone gives no answer."""
    passages = defaultdict(list)
    for item in synthetic_examples(200, seed=0):
        passages[item.context].append(item)
    doubled = 0
    for items in passages.values():
        starts = [item.question.split()[0] for item in items]
        doubled += len(set(starts)) < len(starts)
    assert doubled > 0.8 * len(passages)
    kinds = {item.question.split()[0] for items in passages.values() for item in items}
    assert {"When", "Who", "Where", "What", "Which", "How", "In"} <= kinds


def test_the_corpus_is_the_one_of_all_reported_results() -> None:
    """Byte by byte: packaged miniatures and published numbers belong to this text."""
    known = "06a2dd3dda6caed0b5575c75a0e596956ecbf103873c289e01dce320c1733df9"
    assert examples_hash(synthetic_examples(120, seed=0, prefix="validation")) == known
    known = "e3bde9a20933def7e2382f5b960930671bc4b33f890fbdd3c2160652be3c1e10"
    assert examples_hash(synthetic_examples(300, seed=0)) == known


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_shared_facts_give_both_subjects_facts_of_the_same_kinds(share: float) -> None:
    contexts = dict.fromkeys(item.context for item in synthetic_examples(300, seed=1, shared_facts=share))
    same = 0
    for context in contexts:
        facts = read_facts(context)
        assert facts is not None
        first, second = ({fact.relation for fact in facts.facts if fact.subject == number} for number in (0, 1))
        same += first == second
    by_chance = 0.07 * (1 - share)  # measured: two draws of 2 or 3 relations of 4 or 5
    assert same / len(contexts) == pytest.approx(share + by_chance, abs=0.07)
    assert share < 1 or same == len(contexts)


def test_new_wordings_are_held_out_of_training_and_leave_the_passages_as_they_are() -> None:
    world = WorldSettings(80, 80, new_wordings=True)
    roles = {
        role: read_role(DataSettings("world", "world", world=world), role).examples for role in ("train", "validation")
    }
    plain = read_role(DataSettings("world", "world", world=WorldSettings(80, 80)), "validation").examples
    assert [(item.context, item.answers) for item in roles["validation"]] == [
        (item.context, item.answers) for item in plain
    ]
    forms = {role: {_form(item.context, item.question) for item in items} for role, items in roles.items()}
    assert not forms["train"] & forms["validation"]
    relations = sum(len(kind.relations) for kind in KINDS)
    assert len(forms["validation"]) == relations and relations < len(forms["train"]) <= 2 * relations


def _form(context: str, question: str) -> str:
    """The question without the names of its passage."""
    facts = read_facts(context)
    assert facts is not None
    for subject in facts.subjects:
        for text, slot in ((subject.name, "S"), (subject.origin, "O"), (subject.trade, "T")):
            question = re.sub(rf"\b{re.escape(text)}\b", slot, question)
    return question


def test_a_probability_outside_0_and_1_is_refused() -> None:
    with pytest.raises(InputError, match=r"shared_facts=1\.5 is not in"):
        WorldSettings(shared_facts=1.5).check()
