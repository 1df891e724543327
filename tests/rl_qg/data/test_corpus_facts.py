"""Facts read back from the text of a passage are those that the corpus put into it."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from rl_qg.data.corpus import KINDS, CorpusFacts, read_facts, synthetic_examples
from rl_qg.data.examples import QAExample

RELATIONS = {(kind.name, relation.name): relation for kind in KINDS for relation in kind.relations}
DETAILS = {kind.name: kind.detail for kind in KINDS}


def read(context: str) -> CorpusFacts:
    facts = read_facts(context)
    assert facts is not None, context
    return facts


def by_passage(examples: list[QAExample]) -> list[list[QAExample]]:
    passages = defaultdict(list)
    for item in examples:
        passages[item.context].append(item)
    return list(passages.values())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_facts_are_those_of_the_examples_in_their_order(seed: int) -> None:
    for items in by_passage(list(synthetic_examples(20, seed=seed))):
        facts = read(items[0].context)
        assert [(fact.value, fact.start) for fact in facts.facts] == [
            (item.answers[0].text, item.answers[0].start) for item in items
        ]
        for fact, item in zip(facts.facts, items, strict=True):
            subject = facts.subjects[fact.subject]
            detail = DETAILS[facts.kind].format(s=subject.name, t=subject.trade, o=subject.origin)
            forms = RELATIONS[facts.kind, fact.relation].questions
            assert item.question in {form.format(s=subject.name, d=detail) for form in forms}


def test_pronouns_belong_to_the_subject_that_was_introduced_last() -> None:
    text = (
        "Ada Elmford, a painter, grew up in Ulmville. They was born in 1700. A rival of this circle was Ivan Nordsen, "
        'a chemist from Dornton. They is remembered for "The Silent Harbor". Ivan Nordsen was born in 1710.'
    )
    facts = read(text)
    assert [(fact.relation, facts.subjects[fact.subject].name, fact.value) for fact in facts.facts] == [
        ("birth", "Ada Elmford", "1700"),
        ("work", "Ivan Nordsen", "The Silent Harbor"),
        ("birth", "Ivan Nordsen", "1710"),
    ]
    assert [(one.trade, one.origin) for one in facts.subjects] == [("painter", "Ulmville"), ("chemist", "Dornton")]
    assert all(text[fact.start :].startswith(fact.value) for fact in facts.facts)


@pytest.mark.parametrize("change", ["", "Normandy is a region of France.", "cut", "added", "first half"])
def test_other_texts_have_no_facts(change: str) -> None:
    item = next(synthetic_examples(1, seed=0))
    text = {
        "cut": item.context[:-1],
        "added": item.context + " It rained.",
        "first half": item.context.split(". ")[0] + ".",
    }.get(change, change)
    assert read_facts(text) is None
    assert read_facts(replace(item, context=item.context).context) is not None
