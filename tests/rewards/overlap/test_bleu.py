"""BLEU, ROUGE-L, GLEU and chrF against the libraries they reproduce, a slow count, and their properties."""

import math
from collections import Counter
from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rewards import Bleu, Chrf, Gleu, MetricInputError, QMetric, RougeL, load
from rewards.overlap import base as counts
from rewards.overlap.base import lcs_length, ngram_overlap

QUESTIONS = [
    "Who founded the town of Arlen?",
    "Who founded Arlen, the town on the Esk?",
    "When did Tomas Brandt write 1,931.5 letters -- and why?",
    "the the the the",
    "Where?",
    "",
    "谁在1931年写了《灰色海岸》？",
    "Wer gründete die Stadt Arlen?",
    "a b a b a b a",
    "Which ads ran?",
    "Which ad ran?",
]
ROWS = [(text, [gold]) for text in QUESTIONS for gold in QUESTIONS] + [
    (text, [QUESTIONS[at], QUESTIONS[at - 3], QUESTIONS[at - 5]]) for text in QUESTIONS for at in range(3)
]
CANDIDATES = [row[0] for row in ROWS]
REFERENCES = [row[1] for row in ROWS]
STREAMS = [[group[at] if at < len(group) else None for group in REFERENCES] for at in range(3)]


def scores(metric):
    return metric.score(CANDIDATES, references=REFERENCES).scores


def corpus(metric):
    return float(metric.corpus(metric.statistics(CANDIDATES, REFERENCES).sum(0)))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("tokenize", ["13a", "zh", "none"])
def test_bleu_equals_sacrebleu(order, tokenize):
    from sacrebleu.metrics import BLEU

    metric = load(f"bleu{order}", tokenize=tokenize)
    theirs = BLEU(max_ngram_order=order, effective_order=True, tokenize=tokenize)
    want = [theirs.sentence_score(text, group).score / 100 for text, group in ROWS]
    assert scores(metric) == pytest.approx(want, abs=1e-12)
    whole = BLEU(max_ngram_order=order, tokenize=tokenize).corpus_score(CANDIDATES, STREAMS).score / 100
    assert corpus(metric) == pytest.approx(whole, abs=1e-12)


def test_corpus_bleu_leaves_no_order_out():
    """A corpus of one-word questions has no 4-gram: sacreBLEU's corpus score is 0 where its sentence scores are 1."""
    from sacrebleu.metrics import BLEU

    metric = load("bleu4")
    assert metric.score(["Where", "Why"], references=[["Where"], ["Why"]]).scores == pytest.approx([1.0, 1.0])
    whole = BLEU().corpus_score(["Where", "Why"], [["Where", "Why"]]).score
    assert float(metric.corpus(metric.statistics(["Where", "Why"], [["Where"], ["Why"]]).sum(0))) == whole == 0.0


@pytest.mark.parametrize("order", [1, 4])
def test_bleu_equals_nltk(order):
    from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu, sentence_bleu

    metric = Bleu(order, "nltk")
    smooth = {"weights": [1 / order] * order, "smoothing_function": SmoothingFunction().method1}
    words = [[text.split(" ") for text in group] for group in REFERENCES]
    want = [sentence_bleu(group, text.split(" "), **smooth) for text, group in zip(CANDIDATES, words, strict=True)]
    assert scores(metric) == pytest.approx(want, abs=1e-12)
    whole = corpus_bleu(words, [text.split(" ") for text in CANDIDATES], **smooth)
    assert corpus(metric) == pytest.approx(whole, abs=1e-12)


def slow_coco_bleu(candidate, references, order):
    """The formula of the captioning scripts, with dictionaries."""
    product = 1.0
    for n in range(1, order + 1):
        own = Counter(candidate[at : at + n] for at in range(len(candidate) - n + 1))
        gold = [Counter(text[at : at + n] for at in range(len(text) - n + 1)) for text in references]
        matches = sum(min(count, max(counts[ngram] for counts in gold)) for ngram, count in own.items())
        product *= (matches + 1e-15) / (max(0, len(candidate) - n + 1) + 1e-9)
    closest = min((abs(len(text) - len(candidate)), len(text)) for text in references)[1]
    ratio = (len(candidate) + 1e-15) / (closest + 1e-9)
    return product ** (1 / order) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_bleu_equals_the_captioning_scripts(order):
    from rewards.words import ptb

    want = [slow_coco_bleu(ptb(text), [ptb(gold) for gold in group], order) for text, group in ROWS]
    assert scores(load(f"coco_bleu{order}")) == pytest.approx(want, rel=1e-12, abs=1e-15)


def test_chrf_equals_sacrebleu():
    from sacrebleu.metrics import CHRF

    for options, theirs in (({}, {}), ({"char_order": 3, "beta": 1.0, "lowercase": True}, {"beta": 1})):
        theirs = {**theirs, "char_order": options.get("char_order", 6), "lowercase": bool(options)}
        metric = Chrf(**options)
        want = [CHRF(**theirs).sentence_score(text, group).score / 100 for text, group in ROWS]
        assert scores(metric) == pytest.approx(want, abs=1e-12)
        full = [row for row in ROWS if len(row[1]) == 3]  # its corpus score needs as many references everywhere
        texts, gold = [row[0] for row in full], [row[1] for row in full]
        whole = CHRF(**theirs).corpus_score(texts, [list(stream) for stream in zip(*gold, strict=True)]).score / 100
        assert float(metric.corpus(metric.statistics(texts, gold).sum(0))) == pytest.approx(whole, abs=1e-12)


def test_gleu_equals_nltk():
    from nltk.translate.gleu_score import corpus_gleu, sentence_gleu

    metric = Gleu(tokenize="none")
    words = [[text.split() for text in group] for group in REFERENCES]
    want = [sentence_gleu(group, text.split()) for text, group in zip(CANDIDATES, words, strict=True)]
    assert scores(metric) == pytest.approx(want, abs=1e-12)
    assert corpus(metric) == pytest.approx(corpus_gleu(words, [text.split() for text in CANDIDATES]), abs=1e-12)


@pytest.mark.parametrize("stem", [False, True])
def test_rouge_l_equals_rouge_score(stem):
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    theirs = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=stem)
    want = [theirs.score_multi(group, text)["rougeL"] for text, group in ROWS]
    result = RougeL(stem=stem, tokenize="rouge_score").score(CANDIDATES, references=REFERENCES)
    assert result.scores == pytest.approx([score.fmeasure for score in want], abs=1e-12)
    one = [at for at, group in enumerate(REFERENCES) if len(group) == 1]
    assert [result.parts["precision"][at] for at in one] == [want[at].precision for at in one]
    assert [result.parts["recall"][at] for at in one] == [want[at].recall for at in one]


def test_rouge_l_of_the_captioning_scripts_by_hand():
    """Largest precision (3/4, second reference) and recall (2/2, first) over references, beta 1.2."""
    result = load("coco_rouge_l").score(["who built a mill"], references=[["a mill", "who built that old mill"]])
    precision, recall = 3 / 4, 2 / 2
    assert result.parts == {"precision": [precision], "recall": [recall]}
    assert result.scores == [pytest.approx(2.44 * precision * recall / (recall + 1.44 * precision))]


def slow_lcs(first, second):
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@settings(max_examples=200, deadline=None)
@given(st.text("abc", max_size=40), st.text("abcd", max_size=40))
def test_longest_common_subsequence(first, second):
    assert lcs_length(first, second) == slow_lcs(first, second)


@pytest.mark.parametrize("sizes", [(600, 8), (600, 500), (8, 600)])
def test_tables_of_long_texts_are_not_cached(sizes):
    """Tables of more than 256 words are not cached, whichever side the long text is on."""
    draw = np.random.default_rng(0)
    first, second = (tuple(draw.integers(0, 9, size).tolist()) for size in sizes)
    kept = counts._positions.cache_info().currsize
    assert lcs_length(first, second) == slow_lcs(first, second)
    assert counts._positions.cache_info().currsize == kept + (min(sizes) <= 256)


WORDS = st.lists(st.sampled_from("abc"), max_size=8).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), min_size=1, max_size=6),
    largest=st.sampled_from([1 << 62, 100]),
    characters=st.booleans(),
)
def test_counts_of_a_block_are_those_of_each_row_alone(rows, largest, characters):
    """Whether n-grams keep their numbers or are renumbered, for words and for characters."""
    if characters:
        rows = [("".join(text), ["".join(gold) for gold in group]) for text, group in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rewards.overlap.base.LARGEST", largest)
        results = ngram_overlap([row[0] for row in rows], [row[1] for row in rows], 3)
    for at, (text, group) in enumerate(rows):
        for n in range(1, 4):
            own = Counter(text[i : i + n] for i in range(len(text) - n + 1))
            gold = [Counter(other[i : i + n] for i in range(len(other) - n + 1)) for other in group]
            clipped = sum(min(count, max(counts[ngram] for counts in gold)) for ngram, count in own.items())
            assert (results.matches[at, n - 1], results.candidate[at, n - 1]) == (clipped, sum(own.values()))
        assert results.closest[at] == min((abs(len(other) - len(text)), len(other)) for other in group)[1]


NAMES = ["bleu1", "bleu4", "coco_bleu1", "coco_bleu4", "rouge_l", "coco_rouge_l", "gleu", "chrf"]


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_fractions_and_a_copy_has_the_best_one(name):
    metric = load(name)
    results = scores(metric)
    assert all(0 <= score <= 1 for score in results)
    long = [text for text in QUESTIONS if len(text.split()) > 4]
    assert metric.score(long, references=[[text] for text in long]).scores == pytest.approx(
        [1.0] * len(long), abs=1e-8
    )
    more = metric.score(long, references=[[QUESTIONS[0], text, "Where?"] for text in long]).scores
    assert more == pytest.approx([1.0] * len(long), abs=1e-8)


@pytest.mark.parametrize("name", ["rouge_l", "gleu"])
def test_symmetry(name):
    metric = load(name)
    pairs = [(one, other) for one in QUESTIONS for other in QUESTIONS]
    there = metric.score([one for one, _ in pairs], references=[[other] for _, other in pairs]).scores
    back = metric.score([other for _, other in pairs], references=[[one] for one, _ in pairs]).scores
    assert there == pytest.approx(back, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_without_spaces_is_not_one_word(name):
    """Half of a Chinese question in common scores neither 0 nor 1, with every metric's default tokeniser."""
    result = load(name).score(["谁在北京写了《灰色海岸》这本书？"], references=[["谁在上海写了《灰色海岸》这本书？"]])
    assert 0.3 < result.scores[0] < 0.99


def test_statistics_add_up_in_blocks(monkeypatch):
    metric = load("bleu4")
    whole = metric.statistics(CANDIDATES, REFERENCES)
    monkeypatch.setattr("rewards.overlap.base.ROWS_AT_ONCE", 7)
    assert np.array_equal(metric.statistics(CANDIDATES, REFERENCES), whole)
    draws = whole[np.random.default_rng(0).integers(0, len(whole), (5, len(whole)))].sum(1)
    assert metric.corpus(draws).tolist() == [float(metric.corpus(draw)) for draw in draws]
    assert metric.statistics([], []).shape == (0, whole.shape[1])


def test_signatures_name_everything_that_changes_a_score():
    assert (
        load("bleu4").signature == "bleu|order:4|variant:sacrebleu|smooth:exp|tokenize:13a+char|case:mixed|"
        f"sacrebleu:{version('sacrebleu')}|version:0.1.0"
    )
    different = [load("bleu4"), load("bleu3"), load("coco_bleu4"), load("bleu4", tokenize="intl"),
                 load("bleu4", lowercase=True), load("bleu4", brevity=False), load("rouge_l"),
                 load("rougeL", stem=True), load("rouge_l", beta=2.0)]  # fmt: skip
    assert len({metric.signature for metric in different}) == len(different)
    assert load("rouge_l").signature == load("rougeL").signature


def test_the_signature_says_the_case_in_which_words_are_compared():
    """`ptb`, `words` and `rouge_score` lower-case by themselves, so the option changes neither score nor signature."""
    for tokenize in ("ptb", "words", "rouge_score", "13a+char", "13a", "space"):
        plain, lower = Bleu(1, tokenize=tokenize), Bleu(1, tokenize=tokenize, lowercase=True)
        same = plain.score(["WHO"], references=[["who"]]).scores == [pytest.approx(1.0)]
        assert ("|case:lower|" in plain.signature) == same == (plain.signature == lower.signature)
        assert ("|case:mixed|" in plain.signature) != same and "|case:lower|" in lower.signature
    assert "|case:lower|" in load("coco_bleu4").signature


def test_signatures_name_the_library_that_splits_or_stems():
    cuts, stems = f"|sacrebleu:{version('sacrebleu')}|", f"|nltk:{version('nltk')}|"
    for metric in (Bleu(), Bleu(tokenize="intl"), Gleu(), RougeL(tokenize="13a"), QMetric("bleu1", tokenize="13a")):
        assert metric.signature.count(cuts) == 1 and stems not in metric.signature
    assert stems in RougeL(stem=True).signature
    for name in ("coco_bleu4", "rouge_l", "chrf", "answerability"):
        assert "sacrebleu:" not in (signature := load(name).signature).replace("variant:sacrebleu", "")
        assert stems not in signature


def test_rouge_l_whose_recall_has_no_weight_is_the_precision():
    assert RougeL(beta=0).score(["a b"], references=[["a b c d"]]).scores == [1.0]
    assert "|beta:0.0|" in RougeL(beta=0).signature


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Bleu(0), "order 0 is out of range"),
        (lambda: Bleu(4, "nist"), "variant 'nist' does not exist"),
        (lambda: Bleu(tokenize="moses"), "tokenize=moses: no such tokeniser"),
        (lambda: RougeL("sacre"), "variant 'sacre' does not exist"),
        (lambda: Bleu(2.5), "order 2.5 is out of range; give a whole number from 1 to 9"),
        (lambda: Bleu("4"), "order '4' is out of range"),
        (lambda: Bleu(True), "order True is out of range"),
        (lambda: RougeL(beta=-1), "rouge_l: beta -1 is out of range; give a number from 0"),
        (lambda: Chrf(0), "chrf: char_order 0 is out of range; give a whole number from 1"),
        (lambda: Chrf(2.5), "char_order 2.5 is out of range"),
        (lambda: Chrf(beta=float("nan")), "beta nan is out of range"),
        (lambda: Chrf(beta=1e200), r"beta 1e\+200 is out of range"),
        (lambda: RougeL(beta=1e200), r"beta 1e\+200 is out of range"),
        (lambda: RougeL(tokenize=13), "tokenize=13: no such tokeniser; known are"),
        (lambda: RougeL(stem="no"), "rouge_l: stem 'no' is neither true nor false"),
        (lambda: Bleu(lowercase="no"), "bleu: lowercase 'no' is neither true nor false"),
        (lambda: Bleu(brevity="no"), "bleu: brevity 'no' is neither true nor false"),
        (lambda: Chrf(lowercase="no"), "chrf: lowercase 'no' is neither true nor false"),
        (lambda: load("bleu4").score(["q"], ["c"]), "bleu needs references"),
        (
            lambda: load("bleu4").score(["q"], references=[[]]),
            r"references\[0\] is empty; give at least one gold question",
        ),
        (lambda: load("bleu4").statistics(["q"], ["gold"]), r"references\[0\] is one text; give a list"),
    ],
)
def test_bad_input_is_one_line(build, message):
    with pytest.raises(MetricInputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
