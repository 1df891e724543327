"""Models of other families than those of the papers: every usable one scores as the slow reference does."""

import pytest
import torch
from transformers import (
    AlbertForMaskedLM,
    BertLMHeadModel,
    DistilBertForMaskedLM,
    Gemma2ForCausalLM,
    LlamaForCausalLM,
    XLNetConfig,
    XLNetLMHeadModel,
)

from rewards import BARTScore, MetricInputError, QAScore, QRelScore
from tests.rewards.conftest import TEXT, byte_level, word_piece
from tests.rewards.reference import answer_logprobs, global_relevance, local_relevance, translation_score
from tests.tiny_models import piece_tokenizer, save, tiny, tiny_t5


def xlnet_tokenizer():
    return piece_tokenizer(text=TEXT, pairs=False, model_max_length=40)


def xlnet():
    """Two layers, with weights and segment vectors large enough that scores differ clearly."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "dropout": 0.0, "initializer_range": 0.4}
    return XLNetLMHeadModel(XLNetConfig(vocab_size=len(xlnet_tokenizer()), **sizes)).eval()


@pytest.fixture(scope="module")
def backbones(tmp_path_factory):
    root = tmp_path_factory.mktemp("backbones")
    pieces, marks = word_piece(), byte_level({"bos_token": "<s>", "eos_token": "</s>"})
    ends = byte_level({"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})
    sizes = {"layers": 2, "spread": 0.4}
    causal = {**sizes, "positions": 48, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    gemma = {**causal, "query_pre_attn_scalar": 8, "final_logit_softcapping": 2.0}
    special = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    words = word_piece()
    words.add_special_tokens({"bos_token": "[CLS]", "eos_token": "[SEP]"})
    models = {
        "albert": (pieces, tiny(AlbertForMaskedLM, len(pieces), embedding_size=8, positions=40, **sizes)),
        "distilbert": (pieces, tiny(DistilBertForMaskedLM, len(pieces), positions=40, **sizes)),
        "xlnet": (xlnet_tokenizer(), xlnet()),
        "bert-decoder": (words, tiny(BertLMHeadModel, len(pieces), is_decoder=True, positions=48, **sizes)),
        "llama": (marks, tiny(LlamaForCausalLM, len(marks), **causal)),
        "gemma2": (marks, tiny(Gemma2ForCausalLM, len(marks), **gemma)),
        "t5": (ends, tiny_t5(len(ends), layers=2, spread=0.7, **special)),
    }
    return {name: save(root / name, *model) for name, model in models.items()}


@pytest.mark.parametrize("variant", ["official", "paper"])
@pytest.mark.parametrize("encoder", ["albert", "roberta", "distilbert", "xlnet"])
def test_encoders(backbones, folders, rows, encoder, variant):
    """ALBERT shares one layer and XLNet's attention has other names, so the library has to collect theirs."""
    folder = {**folders, **backbones}[encoder]
    metric = QRelScore(folder, folders["gpt2"], variant)
    assert (metric.local._blocks is None) == (encoder in ("albert", "xlnet"))
    want = [
        local_relevance(folder, question, context, variant=variant)
        for question, context in zip(rows["questions"][:4], rows["contexts"][:4], strict=True)
    ]
    assert metric.local.scores(rows["questions"][:4], rows["contexts"][:4]) == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("variant", ["official", "paper"])
@pytest.mark.parametrize(("decoder", "head"), [("llama", "lm_head"), ("gemma2", None), ("bert-decoder", "cls")])
def test_causal_models(backbones, folders, rows, decoder, head, variant):
    """Gemma 2 caps its logits after the head, so the head alone is not enough. A BERT may be made a decoder."""
    folder = backbones[decoder]
    metric = QRelScore(folders["bert"], folder, variant)
    assert metric.decoder._head == head
    want = [
        global_relevance(folder, question, context, variant=variant)
        for question, context in zip(rows["questions"][:4], rows["contexts"][:4], strict=True)
    ]
    assert metric.globally.scores(rows["questions"][:4], rows["contexts"][:4]) == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("model", ["bert", "distilbert"])
def test_masked_models(backbones, folders, rows, model):
    folder = {**folders, **backbones}[model]
    got = QAScore(folder).score(rows["questions"][:2], rows["contexts"][:2], answers=rows["answers"][:2])
    for row in range(2):
        want = answer_logprobs(
            folder,
            rows["questions"][row],
            rows["contexts"][row],
            rows["answers"][row],
            variant="paper",
            unit="token",
            limit=40,
        )
        assert got.parts["token_logprobs"][row] == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("direction", ["faithfulness", "f"])
def test_t5(backbones, rows, direction):
    got = BARTScore(backbones["t5"], direction).score(
        rows["questions"], rows["contexts"], references=rows["references"]
    )
    for row, question in enumerate(rows["questions"]):
        gold = rows["references"][row]
        if direction == "faithfulness":
            want = translation_score(backbones["t5"], rows["contexts"][row], question)
        else:
            pairs = [(reference, question) for reference in gold] + [(question, reference) for reference in gold]
            want = sum(translation_score(backbones["t5"], *pair) for pair in pairs) / len(pairs)
        assert got.scores[row] == pytest.approx(want, rel=1e-5)


def test_xlnet_is_no_causal_model(backbones, folders):
    """It reads both sides of a token, so the probability that it gives to one is not that after the tokens before."""
    with pytest.raises(MetricInputError, match="holds a model of type 'xlnet'; a GPT-2-like decoder is needed"):
        QRelScore(folders["bert"], backbones["xlnet"])


def test_an_encoder_without_readable_attention(folders, monkeypatch):
    import rewards.relevance.local_relevance

    monkeypatch.setattr(rewards.relevance.local_relevance, "_blocks_agree", lambda encoder, blocks: False)
    monkeypatch.setattr(rewards.relevance.local_relevance, "_collects_attention", lambda encoder: False)
    with pytest.raises(MetricInputError, match=r"the attention of .* cannot be read"):
        QRelScore(folders["bert"], folders["gpt2"])
