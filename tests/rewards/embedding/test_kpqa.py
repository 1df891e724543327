"""KPQA against the numbers of the published code and of computations by hand, for answers and for questions."""

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, strategies as st
from transformers import (
    AutoModel,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertForTokenClassification,
    RobertaForTokenClassification,
)

from rewards import MetricInputError, load
from rewards.embedding.kpqa import KPQA, bleu1_kpqa, paper_bleu1, paper_rouge_l, rouge_l_kpqa
from tests.rewards.conftest import GOLDEN, ROBERTA, roberta_tokenizer, word_piece
from tests.tiny_models import save, tiny

METRICS = ("bleu1", "rouge_l", "bertscore")
GOLDEN_NAMES = {"bleu1": "bleu1_kpqa", "rouge_l": "rougeL_kpqa", "bertscore": "bertscore_kpqa"}
LABELS = {"id2label": {0: "keyphrase", 1: "other"}, "label2id": {"keyphrase": 0, "other": 1}}


@pytest.fixture(scope="module")
def predictors(tmp_path_factory) -> dict[str, str]:
    """A BERT (40 positions) and a RoBERTa (no segments) that tag tokens; weights are random and far from equal."""
    root = tmp_path_factory.mktemp("predictors")
    pieces, bytes_ = word_piece(), roberta_tokenizer()
    sizes = {"layers": 2, "spread": 0.5, **LABELS}
    bert = tiny(BertForTokenClassification, len(pieces), positions=40, **sizes)
    roberta = tiny(RobertaForTokenClassification, len(bytes_), positions=58, **ROBERTA, **sizes)
    return {"bert": save(root / "bert", pieces, bert), "roberta": save(root / "roberta", bytes_, roberta)}


def slow_weights(folder: str, condition: str | None, text: str) -> list[float]:
    """Weights of one text as the released code takes them: one at a time, through the library's own tokenizer."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForTokenClassification.from_pretrained(folder)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    body = tokenizer(text, add_special_tokens=False)["input_ids"]
    front = [] if condition is None else [*tokenizer(condition, add_special_tokens=False)["input_ids"], sep]
    arguments = {"input_ids": torch.tensor([[cls, *front, *body, sep]])}
    if model.config.type_vocab_size > 1:
        after = [0] * (len(body) + 1) if condition is None else [1] * (len(body) + 1)
        arguments["token_type_ids"] = torch.tensor([[0 if condition is None else 1, *[0] * len(front), *after]])
    with torch.no_grad():
        probabilities = model.eval()(**arguments).logits.softmax(-1)[0, :, 0]
    return probabilities[len(front) + 1 : -1].tolist()


# --- The published numbers ---


@pytest.fixture(scope="module")
def cases() -> list[dict]:
    path = GOLDEN / "fixtures" / "kpqa_cases.jsonl"
    if not path.is_file():
        pytest.skip("the golden numbers (../shared/golden) are not here")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def golden_predictor(cases, tmp_path_factory) -> str:
    """The golden encoder with a head that is never used: the cases contain the weights."""
    folder = GOLDEN / "models" / "tiny-bert"
    model = AutoModelForTokenClassification.from_pretrained(folder, **LABELS)
    return save(tmp_path_factory.mktemp("golden") / "predictor", AutoTokenizer.from_pretrained(folder), model)


@pytest.mark.parametrize("metric", METRICS)
def test_published_numbers(cases, golden_predictor, metric):
    """Tokens and weights of both texts are given: in one case equal texts have different weights."""
    kpqa = KPQA(golden_predictor, metric, condition="none")
    for case in cases:
        texts, tokens = [case["hyp"], *case["refs"]], [case["hyp_tokens"], *case["ref_tokens"]]
        ids = kpqa._weigh.tokens(texts)
        assert [kpqa.predictor.tokenizer.convert_ids_to_tokens(row) for row in ids] == tokens, case["id"]
        text, *references = zip(ids, [case["hyp_weights"], *case["ref_weights"]], strict=True)
        got = kpqa._values([(texts[0], other) for other in texts[1:]], [(text, other) for other in references])
        want = case["expected"][GOLDEN_NAMES[metric]]
        assert [value[2] for value in got] == pytest.approx(want["per_reference"], abs=1e-5), case["id"]
        assert max(value[2] for value in got) == pytest.approx(want["max"], abs=1e-5), case["id"]


def test_a_longest_common_subsequence_computed_by_hand():
    """h = a b c, r = b a c. The table's matches carry r's weights: b c or a c."""
    text, reference = ([1, 2, 3], [0.5, 0.25, 0.25]), ([2, 1, 3], [0.6, 0.1, 0.3])
    precision, recall, f = rouge_l_kpqa(text, reference)
    assert (precision, recall) == pytest.approx((0.9 / 1.0, 0.9 / 1.0))
    assert f == pytest.approx(0.9)
    heavy = rouge_l_kpqa(([1], [0.1]), ([1], [0.9]))
    assert heavy == pytest.approx((9.0, 1.0, 1.8))  # more than 1, as released


def test_bleu1_computed_by_hand():
    """h = a a b, weights .2 .4 .6; r = a b b b: a once at mean .3, b once at .6; 3 tokens against 4."""
    got = bleu1_kpqa(([1, 1, 2], [0.2, 0.4, 0.6]), [1, 2, 2, 2])
    assert got == pytest.approx((0.3 + 0.6) / 1.2 * math.exp(1 - 4 / 3), rel=1e-6)


# --- The paper's equations ---


def test_the_papers_bleu1_computed_by_hand():
    """h = a a b c, weights .2 .4 .6 .3; r = a b b b d: no brevity penalty, no clipping.

    Printed: (.2·1 + .4·1 + .6·3 + .3·0) / 1.5 = 2.4 / 1.5. Each token once: (.2 + .4 + .6) / 1.5.
    """
    text, reference = ([1, 1, 2, 3], [0.2, 0.4, 0.6, 0.3]), [1, 2, 2, 2, 4]
    assert paper_bleu1(text, reference) == pytest.approx(2.4 / 1.5)
    assert paper_bleu1(text, reference, once=True) == pytest.approx(1.2 / 1.5)
    assert paper_bleu1(([1], [0.2]), [1, 2, 3, 4]) == pytest.approx(1.0)  # released: exp(-3)
    assert paper_bleu1(([], []), [1]) == paper_bleu1(([1], [0.0]), [1]) == paper_bleu1(([1], [0.5]), []) == 0.0


def test_the_papers_rouge_l_computed_by_hand():
    """h = a b c, weights .5 .2 .3; r = b a c, weights .1 .1 .6. Longest: a c and b c; a c is heavier: .5 + .3.

    P = .8 / 1, R = .8 / .8 = 1. beta = P / R = .8: F = 1.64 · .8 / (1 + .64 · .8) = 1.312 / 1.512,
    and with beta = 1 it is 1.6 / 1.8.
    """
    text, reference = ([1, 2, 3], [0.5, 0.2, 0.3]), ([2, 1, 3], [0.1, 0.1, 0.6])
    assert paper_rouge_l(text, reference) == pytest.approx((0.8, 1.0, 1.312 / 1.512))
    assert paper_rouge_l(text, reference, 1.0) == pytest.approx((0.8, 1.0, 1.6 / 1.8))
    assert paper_rouge_l(text, reference, 0.0)[2] == pytest.approx(0.8)  # the precision
    assert rouge_l_kpqa(text, reference)[:2] == pytest.approx((0.7, 0.7 / 0.8))  # released: the reference's weights
    assert paper_rouge_l(([1], [0.9]), ([1], [0.3]), 1.0) == pytest.approx((1.0, 3.0, 1.5))  # only recall exceeds 1
    assert paper_rouge_l(([1], [0.5]), ([2], [0.5])) == paper_rouge_l(([], []), ([1], [0.5])) == (0.0, 0.0, 0.0)


def test_length_comes_before_weight_in_a_longest_common_subsequence():
    """h = a b c with a heaviest; r = b c a: the longest is b c (.1 + .2), though a alone weighs .7."""
    assert paper_rouge_l(([1, 2, 3], [0.7, 0.1, 0.2]), ([2, 3, 1], [1.0, 1.0, 1.0]))[0] == pytest.approx(0.3)


WEIGHTED = st.lists(st.tuples(st.integers(0, 3), st.floats(0.05, 1)), min_size=1, max_size=6)


@given(WEIGHTED, WEIGHTED)
def test_the_papers_rouge_l_against_every_subsequence(text, reference):
    """The heaviest of the longest common subsequences, found by trying all."""
    tokens, weights = zip(*text, strict=True)
    gold = [token for token, _ in reference]

    def is_in_reference(chosen):
        rest = iter(gold)
        return all(tokens[at] in rest for at in chosen)

    every = (at for size in range(len(tokens) + 1) for at in itertools.combinations(range(len(tokens)), size))
    longest = max((len(at), sum(weights[k] for k in at)) for at in every if is_in_reference(at))
    other = (gold, [weight for _, weight in reference])
    precision, recall, f = paper_rouge_l((list(tokens), list(weights)), other)
    assert precision == pytest.approx(longest[1] / sum(weights))
    assert recall == pytest.approx(longest[1] / sum(other[1]))
    if longest[1]:  # Lin's beta in the equation, simplified
        p, r = precision, recall
        assert f == pytest.approx((r * r + p * p) * r * p / (r**3 + p**3))


def test_the_papers_variant_through_the_metric(predictors):
    """Each value from the weights in `parts`; where they are all used, the largest over references."""
    rows = (["Ida mill Ida"], ["Who?"])
    references = [["Ida Ida", "the mill"]]
    for metric, compute in (
        ("bleu1", lambda text, gold: (0, 0, paper_bleu1(text, gold[0]))),
        ("rouge_l", paper_rouge_l),
    ):
        kpqa = KPQA(predictors["bert"], metric, variant="paper")
        got = kpqa.score(*rows, references=references)

        def weighed(text, kpqa=kpqa):
            return kpqa._weigh.tokens([text])[0], slow_weights(predictors["bert"], "Who?", text)

        want = max((compute(weighed(rows[0][0]), weighed(text)) for text in references[0]), key=lambda value: value[2])
        assert got.scores == pytest.approx([want[2]], abs=1e-5)
        if metric == "rouge_l":
            assert (got.parts["precision"][0], got.parts["recall"][0]) == pytest.approx(want[:2], abs=1e-5)
        assert "|variant:paper|" in kpqa.signature
        empty = kpqa.score(["", "Ida"], ["Who?"] * 2, references=[["Ida"], [""]])
        assert empty.scores == [0.0, 0.0]
    once = KPQA(predictors["bert"], "bleu1", variant="paper", repeats="once").score(*rows, references=references)
    assert 0 < once.scores[0] <= 1 < kpqa.bounds[1]


def test_the_papers_bertscore_matches_no_special_token(predictors):
    """Written out: cosines of the tokens alone, weights of the predictor."""
    folder, condition = predictors["bert"], "Who built it?"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    texts = ["Ida Koll built the mill", "the mill on the river"]
    states, weights = [], []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        row = torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]])
        with torch.no_grad():
            layer = model(row, output_hidden_states=True).hidden_states[1][0, 1:-1]
        states.append(layer / layer.norm(dim=-1, keepdim=True))
        weights.append(torch.tensor(slow_weights(folder, condition, text)))
    cosine = states[0] @ states[1].T
    precision = float((cosine.max(1).values * weights[0]).sum() / weights[0].sum())
    recall = float((cosine.max(0).values * weights[1]).sum() / weights[1].sum())
    rows = ([texts[0], "", "Ida"], [condition] * 3)
    references = [[texts[1]], ["Ida"], [""]]
    paper = KPQA(folder, variant="paper").score(*rows, references=references)
    assert (paper.parts["precision"][0], paper.parts["recall"][0]) == pytest.approx((precision, recall), abs=1e-5)
    assert paper.scores == pytest.approx([2 * precision * recall / (precision + recall), 0.0, 0.0], abs=1e-5)
    official = KPQA(folder).score(*rows, references=references)
    assert all(one >= other - 1e-6 for one, other in zip(official.scores, paper.scores, strict=True))


TOKENS = st.lists(st.integers(0, 5), max_size=12)


@given(TOKENS, TOKENS, st.floats(0.05, 1))
def test_equal_weights_give_the_plain_metrics(text, reference, weight):
    """With one weight for every token the weighted metrics are the plain ones."""
    table = [[0] * (len(reference) + 1) for _ in range(len(text) + 1)]
    for i, one in enumerate(text):
        for j, other in enumerate(reference):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    common = table[-1][-1]
    got = rouge_l_kpqa((text, [weight] * len(text)), (reference, [weight] * len(reference)))
    want = (common / len(text), common / len(reference)) if text and reference else (0.0, 0.0)
    assert got[:2] == pytest.approx(want)
    matched = sum(min(text.count(token), reference.count(token)) for token in set(text))
    short = math.exp(1 - len(reference) / len(text)) if 0 < len(text) < len(reference) else float(bool(text))
    bleu = bleu1_kpqa((text, [weight] * len(text)), reference)
    assert bleu == pytest.approx(short * matched / len(text) if text else 0.0, abs=1e-6)


# --- The metric ---


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("condition", ["context", "answer", "none"])
def test_weights_are_those_of_the_predictor_text_by_text(predictors, kind, condition):
    questions = ["Ida Koll founded the town.", "in 1204", "the river Esk near the mill"]
    contexts = ["Who founded the town?", "When?", "Where did the river flow, and when was it built?"]
    answers = ["Ida", "1204 was it", "the river"]
    metric = KPQA(predictors[kind], "bleu1", condition=condition, batch_size=2)
    got = metric.score(questions, contexts, answers=answers, references=[["Ida Koll"]] * 3)
    given_conditions = {"context": contexts, "answer": answers, "none": [None] * 3}[condition]
    for row, (text, given_condition) in enumerate(zip(questions, given_conditions, strict=True)):
        want = slow_weights(predictors[kind], given_condition, text)
        assert got.parts["weights"][row] == pytest.approx(want, abs=1e-5)
    assert metric.needs == {"references"} | {"context": {"contexts"}, "answer": {"answers"}, "none": set()}[condition]


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_bertscore_kpqa_written_out(predictors, kind):
    folder = predictors[kind]
    text, references, condition = "Ida Koll built the mill", ["the mill on the river", "Ida Koll"], "Who built it?"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def embed(words):
        ids = tokenizer(words, add_special_tokens=False)["input_ids"]
        row = torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]])
        with torch.no_grad():
            states = model(row, output_hidden_states=True).hidden_states[1][0]
        weights = torch.tensor([0, *slow_weights(folder, condition, words), 0])
        return states / states.norm(dim=-1, keepdim=True), weights

    values = []
    for reference in references:
        (one, w_one), (other, w_other) = embed(text), embed(reference)
        cosine = one @ other.T
        precision = float((cosine.max(1).values * w_one).sum() / w_one.sum())
        recall = float((cosine.max(0).values * w_other).sum() / w_other.sum())
        values.append((2 * precision * recall / (precision + recall), precision, recall))
    got = KPQA(folder).score([text, "?"], [condition, "x"], references=[references, ["a"]])
    assert got.scores[0] == pytest.approx(max(values)[0], abs=1e-5)
    assert (got.parts["precision"][0], got.parts["recall"][0]) == pytest.approx(max(values)[1:], abs=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_scores_do_not_depend_on_other_rows(predictors, metric, rows):
    kpqa = KPQA(predictors["bert"], metric, batch_size=3)
    together = kpqa.score(rows["questions"], rows["contexts"], references=rows["references"])
    assert all(map(math.isfinite, together.scores))
    for row in range(len(rows["questions"])):
        alone = kpqa.score(
            rows["questions"][row : row + 1], rows["contexts"][row : row + 1], references=[rows["references"][row]]
        )
        assert alone.scores == pytest.approx([together.scores[row]], abs=1e-6)
    assert kpqa.truncated > 0  # two contexts are longer than the predictor
    same = kpqa.score(rows["questions"], rows["contexts"], references=[[text] for text in rows["questions"]])
    assert same.scores == pytest.approx([1.0] * 6, abs=1e-5)


def test_a_weight_moves_the_score_towards_its_token(predictors):
    """The sum over h of weight times match: scores follow the weights that the predictor gives."""
    kpqa = KPQA(predictors["bert"], "bleu1")
    got = kpqa.score(["Ida mill"], ["Who?"], references=[["Ida was here"]])
    weights = got.parts["weights"][0]
    ids = kpqa._weigh.tokens(["Ida mill", "Ida"])
    matched = sum(weight for weight, token in zip(weights, ids[0], strict=True) if token in ids[1])
    penalty = math.exp(1 - len(kpqa._weigh.tokens(["Ida was here"])[0]) / len(ids[0]))
    assert got.scores == pytest.approx([matched / sum(weights) * min(1, penalty)], abs=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_texts_without_words_and_very_long_ones(predictors, metric):
    kpqa = KPQA(predictors["bert"], metric)
    empty = kpqa.score(["", "Ida", " "], ["Who?", "", ""], references=[["Ida"], [""], [""]])
    assert empty.scores == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)
    long = kpqa.score(["the mill " * 200], ["Who? " * 200], references=[["the mill " * 200]])
    assert long.scores == pytest.approx([1.0], abs=1e-5)
    assert len(long.parts["weights"][0]) == 40 - 3


def test_names_signature_and_invalid_options(predictors, folders):
    metric = load("rouge_l_kpqa", model=predictors["bert"], condition="none")
    assert metric.signature.startswith("kpqa|metric:rouge_l|condition:none|model:bert@")
    assert "|encoder:bert@" in load("bertscore_kpqa", model=predictors["bert"]).signature
    for options, message in [
        ({"metric": "bleu4"}, "metric 'bleu4' does not exist"),
        ({"variant": "text"}, "variant 'text' does not exist; use official or paper"),
        ({"beta": 1.0, "metric": "rouge_l"}, "beta is an option of variant=paper with metric=rouge_l; leave it out"),
        ({"variant": "paper", "metric": "rouge_l", "beta": -1}, "beta -1 is out of range"),
        ({"variant": "paper", "metric": "rouge_l", "beta": 1e200}, r"beta 1e\+200 is out of range"),
        ({"variant": "paper", "metric": "bleu1", "repeats": "all"}, "repeats 'all' does not exist; use each or once"),
        ({"variant": "paper", "repeats": "once"}, "repeats is an option of variant=paper with metric=bleu1"),
        ({"condition": "question"}, "condition 'question' does not exist"),
        ({"encoder": folders["roberta"]}, "another vocabulary"),
        ({"layer": 3}, "layer 3 is out of range; give a whole number from 0 to 2"),
        ({"model": folders["bert"]}, "lacks the weights 'classifier"),
        ({"model": "/no/folder"}, "does not exist"),
        ({"model": None}, "kpqa: no predictor; give model=, a folder of rl-qg train-kpqa"),
    ]:
        with pytest.raises(MetricInputError, match=message) as caught:
            KPQA(**{"model": predictors["bert"], **options})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_weights_of_any_pair_come_with_their_tokens(predictors, kind):
    """One text at a time through the library's own tokenizer; the condition of the metric has no effect."""
    folder = predictors[kind]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts, questions = (
        ["Ida Koll founded the mill.", "", "the river Esk", "the river Esk"],
        ["Who?", "?", "", "Where?"],
    )
    metric = KPQA(folder, "bleu1", condition="answer", batch_size=2)
    for conditions in (questions, None):
        got = metric.weights(texts, conditions)
        assert [[token for token, _ in row] for row in got] == [tokenizer.tokenize(text) for text in texts]
        for row, text, condition in zip(got, texts, conditions or [None] * 4, strict=True):
            assert [weight for _, weight in row] == pytest.approx(slow_weights(folder, condition, text), abs=1e-5)
    assert [len(row) for row in metric.weights(["the mill " * 200])] == [metric.predictor.max_tokens - 3]
    assert metric.weights([]) == []
    for wrong, message in [
        (("Ida", None), "texts is one text; give a list"),
        ((["Ida"], "Who?"), "conditions is one text; give a list"),
        ((["Ida"], ["Who?", "?"]), "1 texts but 2 conditions; give one of each per row"),
        ((["Ida", None], None), r"texts\[1\] is NoneType, not text"),
    ]:
        with pytest.raises(MetricInputError, match=message):
            metric.weights(*wrong)


@pytest.mark.parametrize("reads_question", [True, False, None])
def test_a_predictor_must_be_used_as_it_was_trained(predictors, tmp_path, reads_question):
    """One without the key, as the released one, is accepted with a condition and without."""
    model = AutoModelForTokenClassification.from_pretrained(predictors["bert"])
    if reads_question is not None:
        model.config.reads_question = reads_question
    folder = save(tmp_path / "predictor", AutoTokenizer.from_pretrained(predictors["bert"]), model)
    with_question = "was trained with questions.*use condition=context or answer, or .* train_kpqa.question=false"
    without = "was trained without questions.*use condition=none, or .* train_kpqa.question=true"
    weighing = []
    for condition in ("context", "answer", "none"):
        if reads_question is None or reads_question == (condition != "none"):
            weighing.append(KPQA(folder, "bleu1", condition=condition))
            continue
        with pytest.raises(MetricInputError, match=with_question if reads_question else without) as caught:
            KPQA(folder, "bleu1", condition=condition)
        assert "\n" not in str(caught.value)
    for conditions in (["Who?"], None):
        if reads_question is None or reads_question == (conditions is not None):
            want = slow_weights(folder, conditions and conditions[0], "Ida Koll")
            [row] = weighing[0].weights(["Ida Koll"], conditions)
            assert [weight for _, weight in row] == pytest.approx(want, abs=1e-5)
            continue
        with pytest.raises(MetricInputError, match=with_question if reads_question else without):
            weighing[0].weights(["Ida Koll"], conditions)


def test_an_encoder_shorter_than_the_predictor_raises(predictors, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(predictors["bert"])
    for size in (39, 40):
        encoder = tiny(BertForTokenClassification, len(tokenizer), positions=size)
        folder = save(tmp_path / str(size), tokenizer, encoder)
        if size == 40:
            assert KPQA(predictors["bert"], encoder=folder).encoder.max_tokens == 40
            continue
        with pytest.raises(MetricInputError, match="reads 39 tokens, the predictor 40; give one that reads as many"):
            KPQA(predictors["bert"], encoder=folder)


def test_a_predictor_with_other_labels_raises_and_released_labels_are_accepted(predictors, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(predictors["bert"])
    scores = {}
    for name, labels in {
        "O K": ["O", "K"],
        "K O": ["K", "O"],
        "none": ["LABEL_0", "LABEL_1"],
        "x": ["A", "B"],
    }.items():
        model = AutoModelForTokenClassification.from_pretrained(predictors["bert"])
        model.config.id2label = dict(enumerate(labels))
        folder = save(tmp_path / name, tokenizer, model)
        if name == "x":
            with pytest.raises(MetricInputError, match="labels a, b and none for keyphrases"):
                KPQA(folder)
        else:
            got = KPQA(folder, "bleu1").score(["Ida Koll"], ["Who?"], references=[["Ida"]])
            scores[name] = torch.tensor(got.parts["weights"][0])
    assert torch.allclose(scores["K O"], scores["none"])
    assert torch.allclose(scores["K O"], 1 - scores["O K"], atol=1e-6)
