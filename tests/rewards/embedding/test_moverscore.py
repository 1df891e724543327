"""MoverScore against the released codes' steps written out with a linear program, and its properties."""

import math
import string

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog
from transformers import AutoModel, AutoTokenizer

from rewards import MetricInputError, MoverScore, load
from rewards.embedding.token_embeddings import Embedded

KINDS = [("official", 1), ("official", 2), ("v2", 1)]


def transport(one: np.ndarray, other: np.ndarray, cost: np.ndarray) -> float:
    """The cheapest transport as a linear program: a variable for each pair, sums of rows and columns given."""
    rows, columns = cost.shape
    sums = [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    result = linprog(cost.ravel(), A_eq=np.vstack(sums), b_eq=np.concatenate([one, other]), method="highs")
    assert result.success
    return float(result.fun)


def slow(folder: str, one: str, other: str, variant: str, n: int, idf=None, stop_words=()) -> float:
    """One pair as `moverscore.py` and `moverscore_v2.py` have it, for WordPiece."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    left_out = {*string.punctuation, *stop_words}

    def grams(text):
        ids = [tokenizer.cls_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"][:38]]
        ids.append(tokenizer.sep_token_id)
        pieces = tokenizer.convert_ids_to_tokens(ids)
        kept = [k for k, piece in enumerate(pieces) if "##" not in piece and piece not in left_out]
        with torch.no_grad():
            layers = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[1:][-5:]
        states = torch.stack(layers)[:, 0].double()
        unit = states / states.norm(dim=-1, keepdim=True)
        whole = torch.cat([unit.min(0).values, unit.mean(0), unit.max(0).values], -1)
        vectors = (whole if variant == "official" else states[-1])[kept].numpy()
        weights = np.array([1.0 if idf is None else idf[ids[k]] for k in kept])
        size = min(n, len(kept))
        masses, points = [], []
        for start in range(len(kept) - size + 1):
            part = weights[start : start + size]
            masses.append(part.sum())
            mean = (part[:, None] * vectors[start : start + size]).sum(0) / max(part.sum(), 1e-12)
            points.append(mean / max(np.linalg.norm(mean), 1e-12))
        return np.array(masses) / np.sum(masses), np.array(points)

    (m_one, p_one), (m_other, p_other) = grams(one), grams(other)
    distance = np.array([[np.linalg.norm(a - b) for b in p_other] for a in p_one])
    if variant == "official":
        return 1 - transport(m_one, m_other, distance**2)
    return 1 / (1 + transport(m_one, m_other, distance))


@pytest.mark.parametrize(("variant", "n"), KINDS)
def test_slow_reference(folders, rows, variant, n):
    got = MoverScore(folders["bert"], n, variant).score(rows["questions"], references=rows["references"])
    for row, question in enumerate(rows["questions"]):
        want = max(slow(folders["bert"], question, text, variant, n) for text in rows["references"][row])
        assert got.scores[row] == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize(("variant", "n"), KINDS)
def test_slow_reference_with_idf_and_stop_words(folders, rows, variant, n):
    texts = [text for group in rows["references"] for text in group] + rows["contexts"]
    tokenizer = AutoTokenizer.from_pretrained(folders["bert"])
    documents = [{2, 3, *tokenizer(text, add_special_tokens=False)["input_ids"][:38]} for text in texts]
    idf = {
        token: math.log((len(texts) + 1) / (1 + sum(token in words for words in documents)))
        for token in range(len(tokenizer))
    }
    options = {"stop_words": ("the", "and")}
    metric = MoverScore(folders["bert"], n, variant, idf=texts, against="context", **options)
    got = metric.score(rows["questions"][:3], rows["contexts"][:3])
    for row in range(3):
        question, context = rows["questions"][row], rows["contexts"][row]
        want = slow(folders["bert"], question, context, variant, n, idf=idf, **options)
        assert got.scores[row] == pytest.approx(want, abs=1e-5)
    assert metric.truncated == 1
    assert "|stop_words:and,the|" in metric.signature and "|idf:13@" in metric.signature


@pytest.fixture(scope="module", params=KINDS, ids=str)
def metric(request, folders):
    return MoverScore(folders["bert"], request.param[1], request.param[0], batch_size=3)


TEXT = st.text(alphabet="the mill.Who?#x ", max_size=30) | st.text(max_size=20)


@settings(max_examples=15)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5), st.randoms())
def test_scores_are_bounded_symmetric_and_independent_of_other_rows(metric, pairs, order):
    questions, references = (list(side) for side in zip(*pairs, strict=True))
    there = metric.score(questions, references=[[text] for text in references]).scores
    assert all(metric.bounds[0] - 1e-6 <= value <= 1 + 1e-6 for value in there)
    back = metric.score(references, references=[[text] for text in questions]).scores
    assert there == pytest.approx(back, abs=1e-5)
    same = metric.score(questions, references=[[text] for text in questions]).scores
    assert same == pytest.approx([1.0] * len(pairs), abs=1e-6)
    positions = list(range(len(pairs)))
    order.shuffle(positions)
    again = metric.score([questions[at] for at in positions], references=[[references[at]] for at in positions])
    assert again.scores == pytest.approx([there[at] for at in positions], abs=1e-5)


@pytest.mark.parametrize("text", ["", "?", "...", "the" * 60])
def test_texts_without_words(metric, text):
    got = metric.score([text, "Who built the mill?"], references=[["Who built the mill?"], [text]]).scores
    assert all(map(math.isfinite, got))
    assert got[0] == pytest.approx(got[1], abs=1e-5)


def test_parts_of_words_are_recognised_in_other_vocabularies(folders):
    """A byte-level vocabulary has no ##: the tokenizer says which tokens continue a word."""
    metric = MoverScore(folders["roberta"])
    [tokens] = metric._embed.tokens(["Who founded Arlen?"])
    pieces = metric.encoder.tokenizer.convert_ids_to_tokens(tokens.ids)
    assert len(pieces) > 6
    embedded = Embedded(tokens, *metric._embed.states([tokens.ids]))
    kept = [pieces[at] for at in metric._kept(embedded)]
    assert kept[0] == "<s>" and kept[-1] == "</s>"
    assert [piece[0] for piece in kept[1:-1]] == ["Ġ"] * 3  # one a word, and no question mark


def test_load_and_invalid_options(folders, monkeypatch):
    assert load("moverscore", model=folders["bert"], n=2).signature.startswith(
        "moverscore|n:2|variant:official|against:references|layers:1..2|idf:none|"
    )
    for options, message in [
        ({"variant": "paper"}, "variant 'paper' does not exist"),
        ({"n": 3}, "n=3 does not exist"),
        ({"n": 1.0}, "n=1.0 does not exist"),
        ({"n": True}, "n=True does not exist"),
        ({"n": 2, "variant": "v2"}, "use 1, or 2 with variant='official'"),
        ({"against": "answer"}, "against 'answer' does not exist"),
        ({"stop_words": "the"}, "stop_words 'the' is one text; give a list of words"),
    ]:
        with pytest.raises(MetricInputError, match=message):
            MoverScore(folders["bert"], **options)
    monkeypatch.setitem(__import__("sys").modules, "ot", None)
    with pytest.raises(MetricInputError, match=r"pip install 'rl-qg\[mover\]'"):
        MoverScore(folders["bert"])
