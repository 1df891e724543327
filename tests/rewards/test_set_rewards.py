"""Rewards of sets against all assignments, scoring anew, and values worked by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pandas import DataFrame

from rewards import CoverageSetReward, MetricInputError, MultiSetReward, load, match_sets
from rewards.set_rewards import content_words, shares
from rewards.words import ptb

QUESTIONS = st.lists(st.lists(st.sampled_from("who wrote it when ?".split()), max_size=3).map(" ".join), max_size=4)
GOLD = st.lists(st.sampled_from(["who wrote it", "when", "it"]), min_size=1, max_size=3)
CONTEXT = "Ida Berg wrote the novel in Oslo. It was printed in 1932 by a small press. The manuscript is in Bergen."
THREE = ["Who wrote the novel?", "When was it printed?", "Where is the manuscript?"]


def by_all_assignments(questions, gold):
    """2 S / (m + n) with S from every way to choose pairs; repeated and empty questions match nothing."""
    rouge = load("rouge_l")
    distinct = {ptb(text): text for text in questions if ptb(text)}.values()
    size = max(len(distinct), len(gold))
    table = np.zeros((size, size))
    for row, text in enumerate(distinct):
        for column, other in enumerate(gold):
            table[row, column] = rouge.score([text], references=[[other]]).scores[0]
    best = max(
        sum(table[row, column] for row, column in enumerate(order)) for order in itertools.permutations(range(size))
    )
    return 2 * best / (len(questions) + len(gold))


@settings(max_examples=60, deadline=None)
@given(QUESTIONS, GOLD)
def test_multi_and_its_marginals_are_those_of_all_assignments(questions, gold):
    ((score, marginals),) = load("multi_set").marginals([questions], references=[gold])
    assert score == pytest.approx(by_all_assignments(questions, gold))
    rest = [questions[:at] + questions[at + 1 :] for at in range(len(questions))]
    want = [score - by_all_assignments(others, gold) for others in rest]
    assert marginals == pytest.approx(want)


def test_without_repetition_it_is_the_f_of_multi():
    predictions, references = [["who wrote it", "when"], ["it"]], [["who wrote this", "it", "when was it"], ["when"]]
    want = match_sets(load("q_bleu1"), predictions, references).f1
    assert MultiSetReward("q_bleu1").score_sets(predictions, references=references) == pytest.approx(want)


def test_multi_by_hand():
    """S = 2, m = 4, n = 3; without the question that nobody else asks S = 1 and m = 3."""
    questions = ["Who wrote the novel?", "When was it printed?", "who wrote the novel", " "]
    ((score, marginals),) = load("multi_set").marginals([questions], references=[THREE])
    assert score == pytest.approx(4 / 7)
    assert marginals == pytest.approx([4 / 7 - 4 / 6, 4 / 7 - 2 / 6, 4 / 7 - 4 / 6, 4 / 7 - 4 / 6])


BOTH = {
    "multi_set": lambda: MultiSetReward(),
    "question_set": lambda: CoverageSetReward(per_sentence=0.7),
}


@pytest.mark.parametrize("name", BOTH)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_holds_for_every_reward(name, data):
    reward = BOTH[name]()
    pool = [*THREE, "When was it printed ?", "Who is it?", "", "novel novel novel"]
    questions = data.draw(st.lists(st.sampled_from(pool), max_size=5))
    shuffled = data.draw(st.permutations(questions))
    contexts, gold = [CONTEXT], [THREE]
    ((score, marginals),) = reward.marginals([questions], contexts, gold)
    assert 0 <= score <= 1
    assert reward.score_sets([shuffled], contexts, gold) == pytest.approx([score])
    words = [ptb(text) for text in questions]
    for at, own in enumerate(words):
        anew = score - reward.score_sets([questions[:at] + questions[at + 1 :]], contexts, gold)[0]
        assert marginals[at] == pytest.approx(anew)
        if name == "multi_set" and (not own or words.count(own) > 1):
            assert marginals[at] <= 1e-12
    result = reward.result([questions], contexts, gold, credit="to_go")
    want = [score - reward.score_sets([questions[:at]], contexts, gold)[0] for at in range(len(questions))]
    assert result.credits[0] == pytest.approx(want)


@pytest.mark.parametrize("name", BOTH)
def test_a_set_without_questions_earns_nothing(name):
    sets = [[], [""], ["?", " "]]
    result = BOTH[name]().result(sets, [CONTEXT] * 3, [THREE] * 3, credit="marginal")
    assert result.scores == [0, 0, 0]
    assert result.credits == [[], [0], [0, 0]]
    assert result.parts["written"] == [0, 1, 2]
    assert math.isnan(result.parts["valid"][0]) and result.parts["valid"][1:] == [0, 0]
    assert BOTH[name]().score_sets([], [], []) == []


def test_coverage_by_hand():
    """Three good questions cover the three sentences; one covers a third of them, and is two too few."""
    result = load("question_set").result([THREE, THREE[:1]], [CONTEXT] * 2, [THREE] * 2)
    assert result.parts["quality"] == [1, 1]
    assert result.parts["distinct"] == pytest.approx([1, 1])
    assert result.parts["coverage"] == pytest.approx([1, 1 / 3])
    assert result.parts["count"] == pytest.approx([1, 1 - 0.5 * 2 / 3])
    assert result.scores == pytest.approx([1, (1 - 0.5 * 2 / 3) / 3])


def test_a_repeated_question_lowers_quality_and_number_alone():
    """The mean quality of three questions, of which one is repeated, and one more than the two wanted."""
    result = load("question_set").result([[*THREE[:2], THREE[0].lower()]], [CONTEXT], [THREE[:2]])
    parts = {name: values[0] for name, values in result.parts.items()}
    assert parts["quality"] == pytest.approx(2 / 3) and parts["count"] == pytest.approx(1 - 0.5 / 2)
    assert parts["coverage"] == pytest.approx(2 / 3) and parts["distinct"] == pytest.approx(1)


def test_alike_questions_lower_the_difference():
    alike = ["When was it printed?", "When was it printed there?"]
    (distinct,) = load("question_set").result([alike], [CONTEXT], [THREE]).parts["distinct"]
    assert 0 < distinct < 0.5


def test_a_question_belongs_to_the_sentence_with_most_of_its_words():
    context = "Ida came. Ida wrote a novel. Ida left."
    sentences = ["Ida came.", "Ida wrote a novel.", "Ida left."]
    got = shares(["Who is Ida?", "Which novel did Ida write?", "Why?"], context, sentences)
    assert got == pytest.approx(np.array([[1 / 3, 1 / 3, 1 / 3], [0, 1, 0], [0, 0, 0]]))
    # of a question about another sentence nothing belongs to the one that is to be covered
    assert shares(["Which novel did Ida write?", "Who is Ida?"], context, sentences[:1]) == pytest.approx(
        np.array([[0], [1 / 3]])
    )
    assert content_words("Which novel did Ida write?") == {"novel", "ida", "write"}


def test_sentences_to_cover_are_given_or_chosen():
    alone = CoverageSetReward(per_sentence=1)
    first = "Ida Berg wrote the novel in Oslo."
    result = alone.result([THREE[:1]], [CONTEXT], sentences=[[first]])
    assert (result.parts["coverage"], result.parts["count"]) == ([1], [1])
    chosen = CoverageSetReward(
        per_sentence=1, worthy=lambda groups: [["1932" in text for text in group] for group in groups]
    )
    assert chosen.result([THREE[1:2]], [CONTEXT]).scores == [1]
    assert chosen.result([THREE[:1]], [CONTEXT]).parts["coverage"] == [0]
    nothing = CoverageSetReward(per_sentence=1, worthy=lambda groups: [[False] * len(group) for group in groups])
    assert nothing.result([THREE], [CONTEXT]).parts["coverage"] == [1]


def test_quality_of_other_bounds_is_brought_into_range():
    class Words:
        """Number of words; a reward of somebody else."""

        bounds = None

        def score(self, questions, contexts, *, answers=None, references=None):
            assert answers is references is None
            return [float(len(text.split())) for text in questions]

    with pytest.raises(MetricInputError, match="quality has scores from -inf to inf; give quality_range="):
        CoverageSetReward(Words())
    reward = CoverageSetReward(Words(), quality_range=[2, 6])
    assert reward.result([["a b c", "d e f g h i j k"]], ["x"], [["q"]]).parts["quality"] == [(0.25 + 1) / 2]
    assert "quality_range:2..6" in reward.signature
    lower = CoverageSetReward(Words(), quality_range=[6, 2])
    assert lower.result([["a b c"]], ["x"], [["q"]]).parts["quality"] == [0.75]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MultiSetReward("form"), "form does not use references"),
        (lambda: MultiSetReward("cider"), "cider"),
        (lambda: MultiSetReward("no_such"), "multi_set: metric: unknown metric 'no_such'"),
        (lambda: MultiSetReward({"order": 2}), "names no metric"),
        (lambda: MultiSetReward(load("multi_set")), "multi_set: metric is"),
        (lambda: CoverageSetReward("rouge_l"), r"rouge_l needs references; use a metric of question and passage"),
        (lambda: CoverageSetReward("form"), "form needs answers"),
        (lambda: CoverageSetReward(beta=-1), "beta"),
        (lambda: CoverageSetReward(quality_range=[1]), r"is not \[low, high\]"),
        (lambda: CoverageSetReward(quality_range=[0, 1, 2]), r"quality_range \[0, 1, 2\] is not \[low, high\]"),
        (lambda: CoverageSetReward(quality_range="01"), r"quality_range '01' is not \[low, high\]"),
        (lambda: CoverageSetReward(quality_range={0, 1}), r"quality_range \{0, 1\} is not \[low, high\]"),
        (lambda: CoverageSetReward(quality_range=2), r"quality_range 2 is not \[low, high\]"),
        (lambda: CoverageSetReward(per_sentence=0), "per_sentence"),
        (lambda: load("multi_set").score_sets([["a"]]), "multi_set needs references"),
        (lambda: load("multi_set").score_sets([["a"]], references=[[]]), r"references\[0\] is empty"),
        (lambda: load("multi_set").score_sets(["a"], references=[["a"]]), r"predictions\[0\] is 'a'"),
        (lambda: load("multi_set").score_sets([["a"]], references=[["a"]] * 2), "1 sets but 2 references"),
        (lambda: load("question_set").score_sets([["a"]], ["c", "d"], [["a"]]), "1 sets but contexts"),
        (lambda: load("question_set").score_sets([["a"]], 5, [["a"]]), "1 sets but contexts"),
        (lambda: load("question_set").score_sets([["a"]], DataFrame({"a": ["c"]}), [["a"]]), "1 sets but contexts"),
        (lambda: load("multi_set", clip="no"), "clip 'no' is neither true nor false"),
        (lambda: load("multi_set").result([["a"]], references=[["a"]], credit="all"), "credit 'all' is not one of"),
        (lambda: load("weighted", parts={"multi_set": {}}), "scores sets of questions, and single ones are asked for"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_clear_line(build, message):
    with pytest.raises(MetricInputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


WORDS = st.sampled_from(["who wrote it?", "Who wrote it?", "WHO wrote it", "When was it?", "when was IT", "Why?", ""])


@given(st.lists(WORDS, min_size=1, max_size=5), st.sampled_from(["bleu4", "rouge_l"]))
@settings(deadline=None)
def test_no_question_that_is_asked_twice_has_a_marginal_above_0(questions, metric):
    """BLEU knows case, which the comparison of questions does not: either of two may have the larger score."""
    gold = ["Who wrote it?", "When was it made?"]
    ((_, marginals),) = load("multi_set", metric=metric).marginals([questions], references=[gold])
    keys = [ptb(question) for question in questions]
    for key, marginal in zip(keys, marginals, strict=True):
        assert keys.count(key) == 1 or marginal <= 1e-12


def test_a_copy_earns_nothing_with_beta_up_to_1():
    for beta in (0.0, 0.5, 1.0):
        reward = load("question_set", beta=beta)
        gold = [["Who wrote Faust?", "What did Goethe write?", "When?"]]
        ((_, marginals),) = reward.marginals([["Who wrote Faust?"] * 2], ["Goethe wrote Faust."], gold)
        assert max(marginals) <= 1e-12


def test_titles_cannot_be_given_to_sets():
    with pytest.raises(MetricInputError, match=r"question_set: faithfulness needs .*titles"):
        load("question_set", quality={"metric": "faithfulness", "titles": True})
