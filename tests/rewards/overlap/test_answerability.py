"""Answerability and the Q-metrics against published numbers and numbers computed by hand, and their properties."""

import json

import pytest

from rewards import Answerability, MetricInputError, QMetric, load
from rewards.overlap.answerability import CLASSES, FUNCTION_WORDS, sort_words
from rewards.words import ptb
from tests.rewards.conftest import GOLDEN

FILE = GOLDEN / "fixtures" / "answerability_cases.jsonl"


@pytest.fixture(scope="module")
def cases():
    if not FILE.is_file():
        pytest.skip("the golden numbers (../shared/golden) are not here")
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_the_words_of_each_class(cases):
    assert set(cases[0]["words"]) == FUNCTION_WORDS
    pairs = [case for case in cases if case["type"] == "answerability"]
    assert len(pairs) == 15
    for case in pairs:
        for side in ("hypothesis", "reference"):
            for name, results in zip(CLASSES, sort_words(case[side], case["data_type"]), strict=True):
                assert sorted(results) == sorted(case["raw_classes"][side][name].split()), (case["id"], name)
                assert sorted(ptb(" ".join(results))) == sorted(case["ptb"][side][name].split()), (case["id"], name)
            assert " ".join(ptb(case[side])) == case["ptb"][side]["all"]


@pytest.mark.parametrize("name", ["squad_paper", "readme_example"])
@pytest.mark.parametrize("ngram", ["Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "ROUGE_L"])
def test_published_numbers(cases, name, ngram):
    metric = load(f"q_{ngram.lower().replace('bleu_', 'bleu')}", weights={"squad_paper": "squad"}.get(name, "readme"))
    pairs = [case for case in cases if case["type"] == "answerability"]
    result = metric.score([case["hypothesis"] for case in pairs], references=[[case["reference"]] for case in pairs])
    for at, case in enumerate(pairs):
        want = case["expected"]
        assert metric.delta == case["settings"][name]["delta"]
        assert {part: result.parts[part][at] for part in CLASSES} == pytest.approx(want["components"], abs=1e-9)
        assert result.parts["ngram"][at] == pytest.approx(want["ngram"][ngram], abs=1e-9)
        assert result.parts["answerability"][at] == pytest.approx(want["settings"][name]["answerability"], abs=1e-9)
        assert result.scores[at] == pytest.approx(want["settings"][name][ngram], abs=1e-9), case["id"]
    alone = Answerability(weights=metric.weights)
    rows = [case["hypothesis"] for case in pairs], [[case["reference"]] for case in pairs]
    assert alone.score(rows[0], references=rows[1]).scores == result.parts["answerability"]


def test_published_numbers_of_the_variant_for_sets(cases):
    metric = load("q_bleu1", matching="set", tokenize="none")
    for case in cases:
        if case["type"] != "answerability_set":
            continue
        cased = metric.score([case["hypothesis_truecased"]], references=[[case["reference_truecased"]]])
        want = case["expected"]
        assert {part: cased.parts[part][0] for part in CLASSES} == pytest.approx(want["components"], abs=1e-9)
        assert cased.parts["answerability"][0] == pytest.approx(want["answerability"], abs=1e-9)
        # The true-caser also joins words again ("senate 's"); BLEU is that of the text as it came.
        lower = metric.score([case["hypothesis"]], references=[[case["reference"]]]).parts["ngram"][0]
        assert lower == pytest.approx(want["bleu1"], abs=1e-9)
        assert 0.66 * want["answerability"] + 0.34 * lower == pytest.approx(want["qbleu1"], abs=1e-9)


def test_classes_by_hand():
    """Content 1/1 in both; entities: 1 of 1 against 1 of 2; type equal; function words: one each, different."""
    question, gold = "Who founded the Arlen?", "Who founded a New Arlen?"
    assert sort_words(question) == (["founded"], ["Arlen?"], ["Who"], ["the"])
    assert sort_words("In what year did it end?") == (["end?"], ["In"], ["what", "year"], ["in", "did", "it"])
    assert sort_words("Who acted in it?", "wikimovies")[0] == ["acted"]
    assert sort_words("") == ([], [], [], [])
    results = load("answerability").score([question], references=[[gold]])
    precision, recall = 2.718281828459045 ** (1 - 2), 1 / 2  # one word against two: brevity penalty; one of two words
    want = {"content": 1, "entity": 2 * precision * recall / (precision + recall), "type": 1, "function": 0}
    assert {name: results.parts[name][0] for name in CLASSES} == pytest.approx(want, abs=1e-7)
    assert results.scores[0] == pytest.approx(0.36 + 0.41 * want["entity"] + 0.20, abs=1e-7)


@pytest.mark.parametrize("option", [{"matching": "set"}, {"variant": "paper"}])
def test_a_repeated_word_counts_each_time_where_the_released_code_does(option):
    """Entities: P = 2/2, R = 2/1, F = 4/3; all other classes are empty in both, and 1."""
    metric = load("answerability", **option)
    recall = 1 - 0.41 + 0.41 * 2
    want = 1 + 0.41 / 3 if "matching" in option else 2 * recall / (1 + recall)
    assert metric.score(["Q? Q?"], references=[["Q?"]]).scores == pytest.approx([want])
    assert metric.bounds == (0.0, 2.0) and load("answerability").bounds == (0.0, 1.0)


QUESTIONS = ["Who founded Arlen?", "In what year did the mill on the Esk burn down?", "Why?", "", "built"]


@pytest.mark.parametrize("name", ["answerability", "q_bleu1", "q_bleu4", "q_rouge_l"])
def test_properties(name):
    """Between 0 and 1; best for a copy (of four words and more, for BLEU-4's sake); one more reference never hurts."""
    metric = load(name)
    pairs = [(one, other) for one in QUESTIONS for other in QUESTIONS]
    alone = metric.score([one for one, _ in pairs], references=[[other] for _, other in pairs])
    more = metric.score([one for one, _ in pairs], references=[[other, QUESTIONS[1]] for _, other in pairs])
    assert all(0 <= score <= 1 for score in alone.scores)
    if name in ("answerability", "q_rouge_l"):
        assert all(one <= both + 1e-12 for one, both in zip(alone.scores, more.scores, strict=True))
    assert metric.score([QUESTIONS[1]], references=[["Who?", QUESTIONS[1]]]).scores == pytest.approx([1.0], abs=1e-8)


CONTEXT = "In 1931 the mill on the Esk, built by Ida Koll, burned down. It was the oldest one."


def test_against_the_context():
    """By hand: words of the question that the passage has; "mill", after "what", belongs to the type."""
    questions = [
        "What mill did Ida Koll have built by 1931?",
        "Which dam did Tomas Brandt open?",
        "Did the mill burn?",
    ]
    metric = load("q_bleu1", against="context")
    assert metric.needs == {"contexts"}
    results = metric.score(questions, [CONTEXT] * 3)
    assert results.parts["type"] == [1.0, 1.0, 0.0]
    # "built", "1931?" and "Ida", "Koll"; "open?" and "Tomas", "Brandt"; "Did", and of "mill", "burn?" one
    assert results.parts["entity"] == [1.0, 0.0, 0.0]
    assert results.parts["content"] == [1.0, 0.0, 0.5]
    assert results.parts["function"] == pytest.approx([1 / 3, 0, 0.5])  # by, of did, have, by; did; the, of did, the
    assert results.parts["ngram"] == pytest.approx([6 / 9, 0, 2 / 4], abs=1e-8)  # mill, ida, koll, built, by, 1931
    assert "|matching:share_of_3|against:context|" in metric.signature


def test_against_the_context_a_class_without_words_gets_the_value_of_the_other():
    """One content word of at least three; a third of it for the missing entity."""
    results = load("answerability", against="context").score(
        ["Why built?", "Who was Ida Koll?", "Ends in what?"], [CONTEXT] * 3
    )
    assert results.parts["content"] == pytest.approx([1 / 3, 2 / 3, 0.0])
    assert results.parts["entity"] == pytest.approx([1 / 3, 2 / 3, 0.0])
    assert results.parts["type"] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["answerability", "q_bleu1", "q_bleu4", "q_rouge_l"])
def test_against_the_context_a_question_scores_above_other_texts(name):
    real = ["When did the mill on the Esk burn?", "Who built the oldest mill?", "Was the mill built by Ida Koll?"]
    none = ["", " ", "?", "...", "the", "mill", "Esk", "who", "Who?", "who who who", "mill mill mill", "Esk mill",
            "Who is it?", "谁?", "What mill?", "What mill mill mill?"]  # fmt: skip
    metric = load(name, against="context")
    scores = metric.score(real + none, [CONTEXT] * (len(real) + len(none))).scores
    assert all(0 <= score <= 1 for score in scores)
    assert min(scores[:3]) > max(scores[3:])
    assert scores[3:7] == [0.0] * 4


def test_against_the_context_a_copied_sentence_is_not_a_question():
    copied = CONTEXT.split(". ")[0]
    metric = load("answerability", against="context")
    real, copy, named = metric.score(
        ["Who built the mill on the Esk?", copied, "What " + copied], [CONTEXT] * 3
    ).scores
    assert copy == 0.0 < real
    assert named == pytest.approx(1.0)  # the metric cannot detect it; the docstring says so


NAMES = ["answerability", "q_bleu1", "q_bleu4", "q_rouge_l"]
EMPTY = ["", " \n", "?", "...", "¿?", "— !"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", [{}, {"matching": "set"}, {"tokenize": "none"}, {"weights": "readme"}])
def test_an_empty_question_scores_0_with_any_reference(name, options):
    """Classes that neither question has agree otherwise: 0.64 against "built"."""
    metric = load(name, **options)
    references = ["Who founded Arlen?", "built", "", "?"]
    rows = [(text, reference) for text in EMPTY for reference in references]
    results = metric.score([text for text, _ in rows], references=[[reference] for _, reference in rows])
    assert results.scores == [0.0] * len(rows)
    assert all(value == 0 for values in results.parts.values() for value in values)
    one = metric.score(["Why?", ""], references=[["Why?"], ["Why?"]]).scores
    assert one[0] > 0.3 and one[1] == 0.0  # also next to other rows


def test_a_word_in_another_script_is_not_an_empty_question():
    for text in ("谁", "¿Quién?", "कौन", "7", "٣"):
        assert load("answerability").score([text], references=[[text]]).scores[0] > 0.5


FRENCH = [f"Quel était le nom du moulin numéro {number} ?" for number in range(30)]
ENGLISH = [f"Did the mill of {number} burn?" for number in range(30)]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "rewards.overlap.answerability"]


@pytest.mark.parametrize("name", ["answerability", "q_bleu1"])
def test_questions_in_another_language_are_reported_once(caplog, name):
    metric = load(name)
    for texts in (FRENCH[:16] + ENGLISH[:14], FRENCH, FRENCH):
        metric.score(texts, references=[[text] for text in texts])
    assert len(warnings(caplog)) == 1
    assert "16 of 30 questions have no English question word" in warnings(caplog)[0]
    load(name, against="context").score(FRENCH, FRENCH)
    assert len(warnings(caplog)) == 2
    assert "|words:en|" in metric.signature


@pytest.mark.parametrize(
    "texts", [ENGLISH, FRENCH[:15] + ENGLISH[:15], FRENCH[:19], FRENCH[:19] * 3, ["?" * at for at in range(40)]]
)
def test_mostly_english_few_and_empty_questions_are_not_reported(caplog, texts):
    load("answerability").score(texts, references=[[text, str(at)] for at, text in enumerate(texts)])
    assert not warnings(caplog)


def test_meteor_as_the_ngram_metric():
    pytest.importorskip("nltk")
    metric, own = load("q_meteor"), load("meteor")
    rows = [QUESTIONS[1]], [["When did the mill burn?"]]
    result = metric.score(rows[0], references=rows[1])
    meteor = own.score(rows[0], references=rows[1]).scores[0]
    assert result.parts["ngram"] == [meteor]
    assert result.scores[0] == pytest.approx(0.66 * result.parts["answerability"][0] + 0.34 * meteor)


def test_against_the_context_the_ngram_metrics_leave_recall_out():
    """Three of four words in one run: METEOR is the precision times its penalty, ROUGE-L the precision."""
    pytest.importorskip("nltk")
    rows = ["who built the mill"], ["Ida built the mill in a year long ago."]
    meteor = load("q_meteor", against="context").score(*rows).parts["ngram"]
    assert meteor == [pytest.approx(3 / 4 * (1 - 0.5 * (1 / 3) ** 3))]
    assert load("q_rouge_l", against="context").score(*rows).parts["ngram"] == [3 / 4]


@pytest.mark.parametrize("ngram", ["bleu1", "rouge_l", "meteor"])
def test_the_variant_for_sets_compares_whole_questions_in_lower_case(ngram):
    pytest.importorskip("nltk")
    metric = QMetric(ngram, matching="set", tokenize="none")
    shout, plain = metric.score(["WHO BUILT IT", "who built it"], references=[["who BUILT it"]] * 2).parts["ngram"]
    assert shout == plain > 0.9 and "|ngram.case:lower|" in metric.signature


def test_the_f_of_weighted_sums_by_hand():
    """Equation 3 of the QAScore paper, with weights .36 .41 .20 .03.

    q: content founded, mill (2), entity Arlen (1), type who (1), function the (1); r: content founded (1), entities
    New, Arlen (2), type who (1), function a (1). h = 1, 1, 1, 0:
    P = .36 · 1/2 + .41 · 1/1 + .20 · 1/1 + 0 = .79; R = .36 · 1/1 + .41 · 1/2 + .20 · 1/1 + 0 = .765.
    """
    rows = ["Who founded the mill Arlen?"], [["Who founded a New Arlen?"]]
    paper, official = load("answerability", variant="paper"), load("answerability", matching="set")
    result = paper.score(rows[0], references=rows[1])
    assert (result.parts["precision"][0], result.parts["recall"][0]) == pytest.approx((0.79, 0.765))
    assert result.scores == pytest.approx([2 * 0.79 * 0.765 / (0.79 + 0.765)])
    assert [result.parts[name][0] for name in CLASSES] == pytest.approx([2 / 3, 2 / 3, 1.0, 0.0])
    summed = official.score(rows[0], references=rows[1]).scores
    assert summed == pytest.approx([0.36 * 2 / 3 + 0.41 * 2 / 3 + 0.20])  # .7133, and .7773 above
    assert paper.part_names == tuple(result.parts) and "|variant:paper|" in paper.signature


def test_classes_that_nobody_has_in_the_f_of_weighted_sums():
    """Neither question has an entity or a function word: .41 and .03 in both sums. Only r has content: 0 in both."""
    metric = load("answerability", variant="paper")
    result = metric.score(["Who", "Who", ""], references=[["Who wrote"], ["Who"], ["Who"]])
    assert result.parts["precision"] == pytest.approx([0.64, 1.0, 0.0])
    assert result.scores == pytest.approx([0.64, 1.0, 0.0])


def test_the_best_reference_in_the_f_of_weighted_sums():
    one, other = "Who founded a New Arlen?", "When did Arlen burn?"
    metric, question = load("answerability", variant="paper"), "Who founded the mill Arlen?"
    alone = [metric.score([question], references=[[text]]) for text in (one, other)]
    both = metric.score([question], references=[[other, one]])
    assert alone[0].scores[0] > alone[1].scores[0]
    assert both.scores == pytest.approx(alone[0].scores)
    assert {name: values[0] for name, values in both.parts.items()} == pytest.approx(
        {name: values[0] for name, values in alone[0].parts.items()}
    )


def test_the_weights_of_the_qrelscore_paper():
    metric = load("q_bleu4", weights="qrelscore")
    assert metric.weights == {"content": 0.1, "entity": 0.6, "type": 0.2, "function": 0.1}
    assert metric.delta == 0.7


@pytest.mark.parametrize("ngram", ["bleu1", "bleu4", "rouge_l", "meteor"])
def test_free_is_the_metric_with_the_context_as_the_reference(ngram):
    pytest.importorskip("nltk")
    questions = ["Who built the mill on the Esk?", "What did Ida Koll have built?", "", CONTEXT]
    free, plain = load(f"q_{ngram}_free"), load(f"q_{ngram}", weights="qrelscore")
    assert free.needs == {"contexts"}
    got = free.score(questions, [CONTEXT] * 4)
    want = plain.score(questions, references=[[CONTEXT]] * 4)
    assert got == want and len(set(got.scores)) == 4
    own = load(f"q_{ngram}", weights="qrelscore", against="context").score(questions[:2], [CONTEXT] * 2)
    assert all(one < other for one, other in zip(got.scores[:2], own.scores, strict=True))


def test_free_by_hand():
    """Type: who against nothing; content built, entities Ida, function words the: all in the context, which has more.

    The context "Ida built the mill in the town." has content built, mill, town; entity Ida; function the, in, the.
    BLEU-1 of one of three words: P = exp(1 - 3), R = 1/3. Of the type nothing: 0. Function: P = exp(1 - 3), R = 1/3.
    """
    precision, recall = 2.718281828459045**-2, 1 / 3
    part = 2 * precision * recall / (precision + recall)
    result = load("answerability", against="context_as_reference", weights="qrelscore").score(
        ["Who built the Ida"], ["Ida built the mill in the town."]
    )
    assert [result.parts[name][0] for name in CLASSES] == pytest.approx([part, 1.0, 0.0, part], abs=1e-7)
    assert result.scores == pytest.approx([0.1 * part + 0.6 + 0.1 * part], abs=1e-7)


def test_a_sign_between_spaces_is_a_content_word_as_in_the_released_code():
    """It has no PTB words: nothing in common where there is no other content word."""
    metric, texts = load("answerability"), ["Who is it ?", "Who is it?", "Who wrote it ?"]
    results = metric.score(texts, references=[[text] for text in texts])
    assert results.scores == pytest.approx([0.64, 1.0, 1.0], abs=1e-8)
    assert results.parts["content"] == pytest.approx([0.0, 1.0, 1.0], abs=1e-8)


def test_signatures_differ():
    kinds = [load("q_bleu1"), load("q_bleu2"), load("q_rouge_l"), load("q_bleu1", weights="readme"),
             load("q_bleu1", delta=0.5), load("q_bleu1", matching="set"), load("q_bleu1", against="context"),
             load("q_bleu1", data_type="wikimovies"), load("q_bleu1", matching="set", variant="paper"),
             load("q_bleu1_free")]  # fmt: skip
    assert len({metric.signature for metric in kinds}) == len(kinds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "vqa"}, "weights 'vqa' do not exist; use squad, readme, qrelscore or a mapping"),
        ({"weights": {"noun": 1.0}}, "no class 'noun'"),
        ({"weights": {"content": 0.9, "entity": 0.9}}, "must not be negative, and sum to 1"),
        ({"data_type": "imdb"}, "data_type 'imdb' does not exist"),
        ({"against": "answers"}, "against 'answers' does not exist"),
        ({"matching": ""}, "matching '' does not exist; use bleu or set"),
        ({"variant": "text"}, "variant 'text' does not exist; use official or paper"),
        ({"variant": "paper", "against": "context"}, "use against=context_as_reference with variant=paper"),
        ({"ngram": "bleu5"}, "ngram 'bleu5' does not exist"),
        ({"delta": 2}, "delta 2 is out of range"),
        ({"delta": "x"}, "delta 'x' is out of range"),
        ({"weights": [0.5, 0.5]}, r"weights \[0.5, 0.5\] are not a mapping of content"),
        ({"weights": {"content": "x"}}, "weights.content 'x' is out of range; give a number from 0 to 1"),
        ({"weights": {"content": float("nan")}}, "weights.content nan is out of range"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(MetricInputError, match=message):
        QMetric(**options)


def test_weights_that_leave_function_words_out_are_completed():
    assert Answerability({"content": 0.5, "entity": 0.25}).weights == {
        "content": 0.5,
        "entity": 0.25,
        "type": 0.0,
        "function": 0.25,
    }
