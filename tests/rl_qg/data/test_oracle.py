"""The oracle of the embedded corpus: against hand-checked questions, spoilt questions, and hand-made cases."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rl_qg.data.corpus import KINDS, read_facts, synthetic_examples
from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.oracle import (
    BESIDE,
    PARAPHRASES,
    SUMS,
    VERDICTS,
    OracleJudgement,
    examine,
    judgements,
    share_differences,
    shares,
)
from rl_qg.stats.intervals import PassageDraws, mean_interval
from tests.questions import example

SAMPLE = Path(__file__).parent / "oracle_sample.jsonl"
PEOPLE = (
    "Ada Elmford, a painter, grew up in Ulmville. Ada Elmford was born in 1700. Ines Elmova was the teacher of Ada "
    "Elmford. A rival of this circle was Ivan Nordsen, a chemist from Dornton. Ivan Nordsen was born in 1700. "
    'Ivan Nordsen is remembered for "The Silent Harbor".'
)
WORKS = (
    'The novel "The Silent Harbor" was written by Ada Elmford. "The Silent Harbor" appeared in 1700. It is often '
    'paired with "The Hidden Harbor", a play by Ivan Nordsen. "The Hidden Harbor" is set in a coal mine. '
    '"The Hidden Harbor" appeared in 1800.'
)


def judge(question: str, item: QAExample) -> str | None:
    judgement = examine(question, item)
    return None if judgement is None else judgement.verdict


def about(context: str, answer: str, *, last: bool = False) -> QAExample:
    start = context.rindex(answer) if last else context.index(answer)
    return QAExample("x", "", context, "", (Answer(answer, start),))


def test_human_questions_are_right_unless_both_subjects_have_one_name() -> None:
    for item in synthetic_examples(400, seed=3):
        facts = read_facts(item.context)
        assert facts is not None
        expected = {"right"} if len({one.name for one in facts.subjects}) == 2 else {"right", "ambiguous"}
        assert judge(item.question, item) in expected, item


@pytest.mark.slow
def test_the_verdicts_on_human_questions_are_those_of_the_page() -> None:
    verdicts = Counter(judge(item.question, item) for item in synthetic_examples(3000, seed=0, prefix="train"))
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "oracle.md").read_text(encoding="utf-8")
    [said] = re.findall(
        r"- Human questions: of ([\d,]+) questions.*?\) ([\d,]+)\s+are `right`. The other (\d+)", page, re.S
    )
    assert [int(number.replace(",", "")) for number in said] == [
        verdicts.total(),
        verdicts["right"],
        verdicts["ambiguous"],
    ]


def test_hand_checked_questions_of_a_weak_generator() -> None:
    """120 questions of a generator trained on 2 % of the passages, greedy and sampled, judged by reading them.

    Two invented names are the first words of their questions, which are not looked at.
    """
    examples = {item.id: item for item in synthetic_examples(120, seed=0, prefix="validation")}
    examples |= {item.id: item for item in synthetic_examples(60, seed=7, prefix="fresh")}
    rows = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    judged = [examine(row["question"], examples[row["id"]]) for row in rows]
    assert len(rows) == 120 and {row["verdict"] for row in rows} == set(VERDICTS) - {"ambiguous", "other_subject"}
    assert sum(a.verdict == row["verdict"] for a, row in zip(judged, rows, strict=True) if a) >= 119
    assert all(
        a and (a.verdict == "right") == (row["verdict"] == "right") for a, row in zip(judged, rows, strict=True)
    )
    assert sum(a.unsupported == row["unsupported"] for a, row in zip(judged, rows, strict=True) if a) >= 118


def test_the_question_of_another_fact_is_wrong_and_says_in_what() -> None:
    count: Counter[str] = Counter()
    for item in synthetic_examples(300, seed=4):
        facts = read_facts(item.context)
        assert facts is not None
        one, other = facts.subjects
        fact = next(fact for fact in facts.facts if fact.start == item.answers[0].start)
        if one.name == other.name:
            continue
        kind = next(kind for kind in KINDS if kind.name == facts.kind)
        for relation in kind.relations:
            for subject, detailed in ((one, other), (other, one)):
                detail = kind.detail.format(s=subject.name, t=subject.trade, o=subject.origin)
                question = random.choice(relation.questions).format(s=subject.name, d=detail)
                same_subject = subject is facts.subjects[fact.subject]
                same = relation.name == fact.relation
                expected = "wrong_relation" if not same else "right" if same_subject else "other_subject"
                assert judge(question, item) == expected, question
                count[expected] += 1
                mixed = kind.detail.format(s=subject.name, t=detailed.trade, o=detailed.origin)
                if same and detailed.origin != subject.origin:
                    wrong = relation.questions[1].format(s=subject.name, d=mixed)
                    assert judge(wrong, item) == ("wrong_detail" if same_subject else "other_subject"), wrong
    assert min(count.values()) > 300 and len(count) == 3


def test_questions_that_are_cut_repeated_or_shuffled_are_ill_formed() -> None:
    rng = random.Random(0)
    left = {"cut": 0, "shuffled": 0}
    total = 0
    for item in synthetic_examples(150, seed=5):
        words = item.question.rstrip("?").split()
        cut = judge(" ".join(words[: len(words) // 2 - 1]), item)
        assert cut in ("ill_formed", "other_subject", "invented_name")
        assert judge(f"{item.question} {item.question}", item) == "ill_formed"
        assert judge(item.question[:-1] + " " + item.question, item) == "ill_formed"
        assert judge(" ".join(word for word in words for _ in range(2)), item) == "ill_formed"
        assert judge("", item) == judge("?", item) == "ill_formed"
        rng.shuffle(words)
        shuffled = judge(" ".join(words) + "?", item)
        total += 1
        left["cut"] += cut != "ill_formed"
        left["shuffled"] += shuffled != "ill_formed"
    assert max(left.values()) < 0.02 * total  # `Elmford Ada`, and `the bridge`, which may be a title


@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        ("What year was Ada Elmford born in?", "right"),
        ("In which year was Ada Elmford born?", "right"),
        ("Ada Elmford was born when?", "right"),
        ("what is ada elmford's date of birth", "right"),
        ("When   was “Ada Elmford” born ?", "right"),
        ("When was the painter from Ulmville born?", "right"),
        ("When was Ada born?", "right"),
        ("When was Elmford born?", "right"),
        ("When was the painter born?", "right"),
        ("When was Ivan Nordsen born?", "other_subject"),  # with the same value at another place
        ("When was the painter Ivan Nordsen born?", "other_subject"),  # before the detail, which is not his
        ("When was the chemist born?", "other_subject"),
        ("When was the chemist from Dornton born?", "other_subject"),
        ("When was Ines Elmova born?", "other_subject"),  # the teacher
        ("When was Ada Nordsen born?", "invented_name"),
        ("When was Karl Umbsen born?", "invented_name"),
        ("When was Karl born?", "invented_name"),
        ("When was the painter Karl Umbsen from Ulmville born?", "invented_name"),
        ("When was the chemist Ada Elmford born?", "wrong_detail"),
        ("When was the painter Ada Elmford from Dornton born?", "wrong_detail"),
        ("When was the chemist Ada Elmford from Dornton born?", "wrong_detail"),
        ("When was Ada Elmford from Holtstad born?", "wrong_detail"),
        ("When was the painter from Dornton born?", "wrong_detail"),
        ("When was the sculptor born?", "wrong_detail"),
        ("When was Ulmville founded?", "wrong_relation"),
        ("Who taught Ada Elmford?", "wrong_relation"),
        ("Who taught Karl Umbsen?", "wrong_relation"),
        ("Where did Ada Elmford come from?", "wrong_relation"),
        ("Which prize did Ada Elmford receive?", "wrong_relation"),
        ("Who taught her?", "ambiguous"),
        ("When was she born?", "ambiguous"),
        ("When was this person born?", "ambiguous"),
        ("When was born?", "ill_formed"),
        ("When was Ada Elmford?", "ill_formed"),
        ("When was Ada Ada Elmford born?", "ill_formed"),
        ("When was Ada Elmford from born?", "ill_formed"),
        ("When was the of Ada Elmford born?", "ill_formed"),
        ("When was AdaElmford born?", "ill_formed"),
        ("Ada Elmford was born in 1700.", "ill_formed"),
    ],
)
def test_paraphrases_and_ways_to_name_a_subject(question: str, verdict: str) -> None:
    assert judge(question, about(PEOPLE, "1700")) == verdict


def test_a_part_of_a_name_must_be_of_one_name_only() -> None:
    teacher = about(PEOPLE, "Ines Elmova")
    assert judge("Who taught Ada?", teacher) == "right"
    assert judge("Who taught Ines?", teacher) == "other_subject"
    year = about(WORKS, "1700")
    assert judge("When did The Silent appear?", year) == "right"
    assert judge("When did The Harbor appear?", year) == "ambiguous"
    assert judge("When did the novel appear?", year) == "right"
    assert judge("Where is The Harbor set?", about(WORKS, "a coal mine")) == "ambiguous"
    assert judge("When did the piece by Ivan Nordsen appear?", about(WORKS, "1800")) == "right"


def test_towns_and_companies_are_described_by_more_than_an_adjective() -> None:
    item = next(item for item in synthetic_examples(200, seed=5) if item.question.startswith("Who governs the castle"))
    assert judge("Who governs the castle?", item) == "ill_formed"
    assert judge("Who governs the castle town as mayor?", item) in ("right", "ambiguous")


def test_no_verdict_without_a_fact_of_the_corpus() -> None:
    assert judge("Who wrote it?", example("Faust is a play by Goethe.", "Goethe", "Who wrote Faust?")) is None
    assert judge("When was Ada Elmford born?", about(PEOPLE, "Ulmville")) is None


def test_every_relation_has_paraphrases() -> None:
    own = {(kind.name, relation.name) for kind in KINDS for relation in kind.relations}
    known = {(kind, relation) for kind, by_relation in PARAPHRASES.items() for relation in by_relation}
    assert own < known and {relation for _, relation in known - own} == {"origin", "trade"}


@pytest.mark.parametrize(
    ("question", "unsupported", "no_subject"),
    [
        ("When was Ada Elmford born?", False, False),
        ("When Was The Painter From Ulmville Born?", False, False),
        ("What is Elmford's date of birth?", False, False),
        ("When was the painter from Dornton born?", False, False),  # wrong, but of names of the passage
        ("When was Ada Nordsen born?", True, False),  # two words of the passage, no name of it
        ("When was Ivan Elmova born?", True, False),
        ("When was ada nordsen born?", True, False),  # the subject, also in lower case
        ("Ada Nordsen was born when?", True, False),  # and as the first word
        ("When was Ada Elmford from Holtstad born?", True, False),
        ("Who taught Karl Umbsen?", True, False),  # whatever the verdict is
        ("When was Ulmville Ada born?", True, False),  # neighbours in two sentences
        ("When did Ada Elmford born in 1700?", False, False),
        ("When did Ada Elmford born in 1701?", True, False),
        ("When did Ada Elmford born in 170?", True, False),
        ("When was she born?", False, True),
        ("Who taught this person?", False, True),
        ("When was born?", False, True),
        ("When was Karl?", True, False),
    ],
)
def test_names_and_numbers_that_the_passage_lacks(question: str, unsupported: bool, no_subject: bool) -> None:
    found = examine(question, about(PEOPLE, "1700"))
    assert found is not None and (found.unsupported, found.no_subject) == (unsupported, no_subject)


def test_numbers_with_commas_and_titles_in_quotes_are_whole() -> None:
    town = next(item for item in synthetic_examples(200, seed=5) if " people live in " in item.context)
    number = re.search(r"[\d,]+ people live in", town.context)
    assert number is not None
    for text, expected in ((number[0].split()[0], False), (number[0].split()[0][:-1], True)):
        found = examine(f"Why do {text} people live there?", town)
        assert found is not None and found.verdict == "ill_formed" and found.unsupported is expected
    for title, expected in (("The Silent Harbor", False), ("The Harbor", False), ("The Hidden Silent", True)):
        found = examine(f'Who wrote "{title}"?', about(WORKS, "1700"))
        assert found is not None and found.unsupported is expected, title


def test_what_a_question_has_beside_its_verdict_agrees_with_it() -> None:
    """Right questions have nothing unsupported, an invented name always is, and without a subject all is ambiguous."""
    rng = random.Random(0)
    seen: Counter[str] = Counter()
    items = list(synthetic_examples(250, seed=6))
    for item in items:
        facts = read_facts(item.context)
        assert facts is not None
        subjects = facts.subjects
        kind = next(kind for kind in KINDS if kind.name == facts.kind)
        stranger = read_facts(rng.choice(items).context)
        assert stranger is not None
        names = [one.name for one in (*subjects, *stranger.subjects)]
        parts = {"s": [*names, names[0].split()[0], "it"], "t": [one.trade for one in subjects]}
        parts["o"] = [one.origin for one in (*subjects, *stranger.subjects)]
        for form in (form for relation in kind.relations for form in relation.questions):
            drawn = {part: rng.choice(texts) for part, texts in parts.items()}
            question = form.format(s=drawn["s"], d=kind.detail.format(**drawn))
            found = examine(question, item)
            assert found is not None
            seen[found.verdict] += 1
            assert not (found.verdict == "right" and (found.unsupported or found.no_subject)), question
            assert found.unsupported or found.verdict != "invented_name", question
            assert not found.no_subject or found.verdict in ("ambiguous", "ill_formed"), question
            beyond = {"s": names[:2], "t": parts["t"], "o": parts["o"][:2]}
            if all(drawn[part] in known for part, known in beyond.items()):
                assert not found.unsupported, question
    assert set(seen) >= set(VERDICTS) - {"ill_formed"} and min(seen.values()) >= 10, seen


def test_human_questions_have_only_names_and_numbers_of_their_passage() -> None:
    for item in synthetic_examples(400, seed=8):
        found = examine(item.question, item)
        assert found is not None and not found.unsupported and not found.no_subject, item


def judged(*given: str | None) -> list[OracleJudgement | None]:
    """Judgements with these verdicts; those of invented names are unsupported too."""
    return [None if one is None else OracleJudgement(one, one == "invented_name", one == "ambiguous") for one in given]


def test_shares_are_means_over_questions_with_intervals_over_passages() -> None:
    given = judged("right", "right", None, "ambiguous", "invented_name", "right")
    draws = PassageDraws(["a", "a", "a", "b", "c", "c"], resamples=200)
    result = shares(given, draws)
    assert result is not None and tuple(result) == (*VERDICTS, *SUMS, *BESIDE)
    assert result["right"]["mean"] == pytest.approx(3 / 5) and result["right"]["n"] == 5
    column = np.array([1, 1, np.nan, 0, 0, 1])
    assert result["right"]["low"] == pytest.approx(max(0.0, mean_interval(column, draws).low))
    assert result["ill_formed"]["mean"] == result["ill_formed"]["low"] == 0
    # none in the data: 1 - 0.025^(1/n), of passages with 2, 1 and 2 questions n = 25/9
    assert result["ill_formed"]["high"] == pytest.approx(1 - 0.025 ** (9 / 25))
    assert result["unsupported"]["mean"] == result["no_subject"]["mean"] == pytest.approx(1 / 5)
    first = judged("right", None, "right", "right", "wrong_detail", "ill_formed")
    paired = share_differences(given, first, draws)
    assert paired is not None and paired["right"]["n"] == 4  # both have a verdict on four
    assert paired["right"]["mean"] == pytest.approx((0 - 1 + 0 + 1) / 4)
    assert paired["wrong_entity"]["mean"] == 0 and paired["invented_name"]["mean"] == pytest.approx(1 / 4)
    assert paired["unsupported"]["mean"] == pytest.approx(1 / 4)
    nothing = judged(*[None] * 6)
    assert shares(nothing, draws) is None and share_differences(given, nothing, draws) is None


def test_shares_sum_to_one_and_the_older_verdicts_are_sums() -> None:
    given = judged(*random.Random(1).choices(VERDICTS, weights=range(3, 10), k=300))
    result = shares(given, PassageDraws(range(300), resamples=50))
    assert result is not None
    mean = {name: value["mean"] for name, value in result.items()}
    assert sum(mean[verdict] for verdict in VERDICTS) == pytest.approx(1)
    older = ("right", "wrong_entity", "wrong_attribute", "ambiguous", "ill_formed")
    assert sum(mean[verdict] for verdict in older) == pytest.approx(1)
    assert mean["wrong_entity"] == pytest.approx(mean["other_subject"] + mean["invented_name"] + mean["wrong_detail"])
    assert mean["wrong_attribute"] == mean["wrong_relation"] > 0


def test_judgements_are_in_the_order_of_the_questions() -> None:
    items = [about(PEOPLE, "1700"), about(PEOPLE, "1700", last=True)]
    assert [judge("When was Ada Elmford born?", item) for item in items] == ["right", "other_subject"]
    found = judgements(["When was Ada Elmford born?", "When was Karl born?"], items)
    assert found == [OracleJudgement("right", False, False), OracleJudgement("invented_name", True, False)]
