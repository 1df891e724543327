"""BERTScore against the package bert-score, against a loop over tokens, and its properties."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st
from tokenizers import processors
from transformers import AlbertForMaskedLM, AutoModel, AutoTokenizer

from rewards import BERTScore, MetricInputError, load
from rewards.embedding import token_embeddings
from rewards.embedding.bertscore import PARTS, PUBLISHED_LAYERS, greedy_match
from rewards.embedding.token_embeddings import Embedded, Tokens
from tests.rewards.conftest import word_piece
from tests.tiny_models import save, tiny

TEXTS = ["Who founded the town of Arlen?", "Who built the first mill?", "When was it?", "the river Esk . . .", "the"]


@pytest.fixture(scope="module")
def albert(tmp_path_factory) -> str:
    """An encoder with one layer that is used several times: no layer can be removed."""
    pieces = word_piece()
    model = tiny(AlbertForMaskedLM, len(pieces), embedding_size=8, layers=3, positions=40, spread=0.4)
    return save(tmp_path_factory.mktemp("albert") / "albert", pieces, model)


def slow(folder: str, layer: int, one: str, other: str, idf: dict[int, float] | None = None) -> dict[str, float]:
    """Token by token, from the library's own hidden states."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def embed(text):
        lead = " " if "roberta" in folder else ""
        ids = tokenizer(lead + text.strip(), add_special_tokens=False)["input_ids"][: 54 if lead else 38]
        row = [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
        with torch.no_grad():
            states = model(torch.tensor([row]), output_hidden_states=True).hidden_states[layer][0]
        weights = [0.0, *[1.0] * len(ids), 0.0] if idf is None else [idf[token] for token in row]
        return states, weights

    (a, w_a), (b, w_b) = embed(one), embed(other)

    def side(x, w_x, y):
        best = [max(float(torch.cosine_similarity(u, v, dim=0)) for v in y) for u in x]
        return sum(w * value for w, value in zip(w_x, best, strict=True)) / sum(w_x)

    precision, recall = side(a, w_a, b), side(b, w_b, a)
    return {"precision": precision, "recall": recall, "f": 2 * precision * recall / (precision + recall)}


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("kind", ["bert", "roberta", "albert"])
def test_slow_reference(folders, albert, rows, kind, layer):
    folder = {**folders, "albert": albert}[kind]
    metric = BERTScore(folder, layer=layer, batch_size=4)
    assert metric._embed._is_last == (layer > 0 and (kind != "albert" or layer == 3))
    got = metric.score(rows["questions"], references=rows["references"])
    for row, question in enumerate(rows["questions"][:3]):
        result = [slow(folder, layer, question, reference) for reference in rows["references"][row]]
        for part in PARTS:
            assert got.parts[part][row] == pytest.approx(max(value[part] for value in result), abs=1e-5)
    assert got.scores == got.parts["f"]


@pytest.fixture(scope="module")
def marked(folders, tmp_path_factory) -> str:
    """The same BERT with a tokenizer that adds special tokens and has a maximum length, as the package needs it."""
    tokenizer = AutoTokenizer.from_pretrained(folders["bert"], model_max_length=40)
    tokenizer.backend_tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    model = AutoModel.from_pretrained(folders["bert"])
    for layer in model.encoder.layer:  # of a cosine below 0 the package makes 0 where another text is longer
        layer.output.LayerNorm.bias.data.fill_(1.5)
    return save(tmp_path_factory.mktemp("marked") / "bert", tokenizer, model)


@pytest.mark.parametrize("idf", [False, True])
@pytest.mark.parametrize("layer", [1, 2])
def test_the_package_gives_the_same(marked, rows, idf, layer):
    package = pytest.importorskip("bert_score")
    references = rows["references"]
    gold = [text for group in references for text in group]
    scorer = package.BERTScorer(
        model_type=marked,
        num_layers=layer,
        idf=idf,
        idf_sents=gold if idf else None,
        nthreads=0,
        device="cpu",
        use_fast_tokenizer=True,
    )
    want = scorer.score(rows["questions"], references)
    metric = BERTScore(marked, layer=layer, idf=gold if idf else None)
    got = metric.score(rows["questions"], references=references)
    for part, values in zip(PARTS, want, strict=True):
        assert got.parts[part] == pytest.approx(values.tolist(), abs=1e-5)


def test_idf_computed_by_hand_and_from_a_file(folders, tmp_path):
    texts = ["the town", "the mill", "the river"]
    tokenizer = AutoTokenizer.from_pretrained(folders["bert"])
    documents = [{*tokenizer(text)["input_ids"], 2, 3} for text in texts]
    vocabulary = range(len(tokenizer))
    idf = {token: math.log(4 / (1 + sum(token in words for words in documents))) for token in vocabulary}
    metric = BERTScore(folders["bert"], layer=1, idf=texts)
    question, reference = "Who built the mill in the town?", "the town on the river"
    got = metric.score([question], references=[[reference]])
    want = slow(folders["bert"], 1, question, reference, idf)
    assert {part: values[0] for part, values in got.parts.items()} == pytest.approx(want, abs=1e-5)
    file = tmp_path / "references.txt"
    file.write_text("\n".join(texts) + "\n\n", encoding="utf-8")
    from_file = BERTScore(folders["bert"], layer=1, idf=str(file))
    assert from_file.score([question], references=[[reference]]).scores == got.scores
    assert from_file.signature == metric.signature and "|idf:3@" in metric.signature
    assert BERTScore(folders["bert"], layer=1, idf=file).signature == metric.signature
    common = metric.score(["the"], references=[["the"]])  # idf 0: equal weights
    assert common.scores == pytest.approx([1.0], abs=1e-6)


def test_a_file_of_texts_is_cut_at_its_line_ends_alone(folders, tmp_path):
    texts = ["who wrote\u2028the book", "when\x0cwas it", "the\x85mill"]
    file = tmp_path / "references.txt"
    file.write_text("\r\n".join(texts), encoding="utf-8", newline="")
    one, other = (BERTScore(folders["bert"], idf=source).signature for source in (str(file), texts))
    assert one == other and "|idf:3@" in one


def test_rescaling_by_a_number_and_by_a_table(folders, tmp_path, rows):
    plain = BERTScore(folders["bert"], layer=1).score(rows["questions"], references=rows["references"])
    number = BERTScore(folders["bert"], layer=1, rescale=0.25).score(rows["questions"], references=rows["references"])
    assert number.scores == pytest.approx([(value - 0.25) / 0.75 for value in plain.scores])
    table = tmp_path / "baseline.tsv"
    table.write_text("LAYER,P,R,F\n0,0.1,0.1,0.1\n1,0.2,0.3,0.4\n", encoding="utf-8")
    metric = BERTScore(folders["bert"], layer=1, rescale=str(table), part="recall")
    got = metric.score(rows["questions"], references=rows["references"])
    for part, low in zip(PARTS, (0.2, 0.3, 0.4), strict=True):
        assert got.parts[part] == pytest.approx([(value - low) / (1 - low) for value in plain.parts[part]])
    assert got.scores == got.parts["recall"]
    assert "|rescale:0.2,0.3,0.4|" in metric.signature and metric.bounds == (-math.inf, 1.0)


@pytest.fixture(scope="module")
def metric(folders):
    return BERTScore(folders["bert"], layer=1, batch_size=3)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), min_size=1, max_size=6), st.randoms())
def test_any_text_in_any_order_with_any_other_rows(metric, pairs, order):
    """Bounded, 0 for empty texts, 1 for equal ones, and precision is the other side's recall."""
    questions, references = (list(side) for side in zip(*pairs, strict=True))
    there = metric.score(questions, references=[[text] for text in references])
    back = metric.score(references, references=[[text] for text in questions])
    assert there.parts["precision"] == pytest.approx(back.parts["recall"], abs=1e-5)
    assert all(-1 <= value <= 1 + 1e-6 for part in PARTS for value in there.parts[part])
    words = [bool(metric.encoder.ids([text.strip()])[0]) for text in questions]
    same = metric.score(questions, references=[[text] for text in questions])
    assert same.scores == pytest.approx([float(has) for has in words], abs=1e-5)
    shuffled = list(range(len(pairs)))
    order.shuffle(shuffled)
    again = metric.score([questions[at] for at in shuffled], references=[[references[at]] for at in shuffled])
    assert again.scores == pytest.approx([there.scores[at] for at in shuffled], abs=1e-5)


def test_matching_computed_by_hand_next_to_a_longer_pair():
    """Every cosine of the short pair is below 0: padding, whose cosine is 0, must not be a match."""

    def text(*vectors):
        return Embedded(Tokens(list(range(len(vectors))), []), torch.tensor([vectors], dtype=torch.float32))

    short = text((1.0, 0.0), (0.6, 0.8)), text((-2.0, 0.0))
    long = text((1.0, 0.0)), text(*[(0.0, 1.0)] * 5)
    weights = [(torch.tensor([1.0, 3.0]), torch.ones(1)), (torch.ones(1), torch.ones(5))]
    got = greedy_match([short, long], weights)
    assert got[0].tolist() == pytest.approx([(-1 * 1 - 0.6 * 3) / 4, -0.6, 0.0])  # F of a sum below 0
    assert got[1].tolist() == pytest.approx([0.0, 0.0, 0.0])
    signs = greedy_match(
        [(text((1.0, 0.0)), text((0.5, 0.75**0.5), (-1.0, 0.0)))], [(torch.ones(1), torch.tensor([0.6, 0.9]) / 1.5)]
    )
    assert signs[0].tolist() == pytest.approx([0.5, -0.4, -1.0])  # 2 * 0.5 * -0.4 / 0.1 is -4, and no cosine
    zero = greedy_match([short], [(torch.zeros(2), torch.ones(1))])
    assert zero.tolist() == [[0.0, 0.0, 0.0]]


def test_against_the_context(folders, rows, caplog):
    metric = BERTScore(folders["bert"], layer=1, against="context", part="precision")
    assert metric.needs == {"contexts"} and "|part:precision|against:context|" in metric.signature
    got = metric.score(rows["questions"], rows["contexts"])
    want = BERTScore(folders["bert"], layer=1).score(
        rows["questions"], references=[[text] for text in rows["contexts"]]
    )
    assert got.scores == pytest.approx(want.parts["precision"], abs=1e-6)
    assert metric.truncated == 2  # the two contexts that are longer than the encoder
    assert [text.partition(" than ")[0] for text in caplog.messages] == ["bertscore: a text is longer"] * 2  # of each


def test_blocks_bound_memory_and_change_nothing(folders, rows, monkeypatch):
    metric = BERTScore(folders["bert"], layer=2)
    want = metric.score(rows["questions"], references=rows["references"]).scores
    monkeypatch.setattr(token_embeddings, "NUMBERS_AT_ONCE", 16 * 30)
    sizes = []
    read = metric._embed.states
    monkeypatch.setattr(metric._embed, "states", lambda ids: sizes.append(sum(map(len, ids))) or read(ids))
    assert metric.score(rows["questions"], references=rows["references"]).scores == pytest.approx(want, abs=1e-6)
    assert len(sizes) > 3
    pair = max(len(ids.ids) for ids in metric._embed.tokens([*rows["questions"], *rows["contexts"]]))
    assert max(sizes) <= max(30, 2 * pair)


def test_each_distinct_text_is_read_once(folders, monkeypatch):
    metric, read = BERTScore(folders["bert"], layer=2), []
    original = metric._embed.states
    monkeypatch.setattr(metric._embed, "states", lambda ids: read.append(len(ids)) or original(ids))
    metric.score(["Who?", "When?", "Who?"], references=[["Where?", "Who?"], ["Where?"], ["When?"]])
    assert read == [3]


def test_the_published_layer_is_taken_by_name(folders, tmp_path):
    named = tmp_path / "google" / "bert_uncased"
    named.parent.mkdir()
    named.symlink_to(Path(folders["bert"]))
    assert BERTScore(str(named)).layer == 2  # unknown: the last
    published = tmp_path / "roberta-large"  # 17, which this one has not
    published.symlink_to(Path(folders["bert"]))
    assert BERTScore(str(published)).layer == 2


def test_the_published_layers_are_those_of_the_package():
    layers = pytest.importorskip("bert_score.utils").model2layers
    published = {name.rsplit("/", 1)[-1]: layer for name, layer in layers.items()}
    assert published.items() >= PUBLISHED_LAYERS.items() and len(PUBLISHED_LAYERS) == 22


def test_load_and_invalid_options(folders, tmp_path):
    assert load("bertscore", model=folders["bert"]).signature.startswith(
        "bertscore|part:f|against:references|layer:2|"
    )
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    (tmp_path / "table.tsv").write_text("LAYER,P,R,F\n9,0.1,0.1,0.1\n", encoding="utf-8")
    (tmp_path / "no table.txt").write_text(f"LAYER\n{'x' * 200_000}", encoding="utf-8")
    for options, message in [
        ({"rescale": tmp_path / "no table.txt"}, "no baselines of layer 2"),
        ({"part": "f1"}, "part 'f1' does not exist"),
        ({"against": "passage"}, "against 'passage' does not exist"),
        ({"layer": 5}, "layer 5 is out of range; give a whole number from 0 to 2"),
        ({"layer": 2.0}, "layer 2.0 is out of range; give a whole number from 0 to 2"),
        ({"idf": "/no/such.txt"}, "idf='/no/such.txt' cannot be read"),
        ({"idf": str(tmp_path / "empty.txt")}, "idf has no text"),
        ({"rescale": str(tmp_path / "table.tsv")}, "no baselines of layer 2"),
        ({"rescale": 1.0}, "is not a cosine below 1"),
        ({"rescale": [0.5]}, r"rescale \[0.5\] is out of range; give a number"),
        ({"rescale": tmp_path / "table.tsv"}, "no baselines of layer 2"),
        ({"idf": [1, 2]}, r"idf=\[1, 2\] is not a list of texts"),
        ({"idf": 5}, "idf=5 is not a list of texts"),
        ({"model": folders["gpt2"]}, "a BERT-like encoder is needed"),
    ]:
        with pytest.raises(MetricInputError, match=message) as caught:
            BERTScore(**{"model": folders["bert"], **options})
        assert "\n" not in str(caught.value)
