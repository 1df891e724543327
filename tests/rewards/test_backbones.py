"""Models of other families than the papers': every one that fits scores as the slow reference does."""

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from rewards import BARTScore, MetricInputError, QAScore, QRelScore
from tests.rewards.conftest import byte_level, save, word_piece
from tests.rewards.reference import answer_logprobs, global_relevance, local_relevance, translation_score

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def letters(specials: dict[str, str]) -> PreTrainedTokenizerFast:
    return byte_level(list(dict.fromkeys(specials.values())), specials)


@pytest.fixture(scope="module")
def backbones(tmp_path_factory):
    root = tmp_path_factory.mktemp("backbones")
    torch.manual_seed(7)
    pieces, marks = word_piece(), letters({"bos_token": "<s>", "eos_token": "</s>"})
    ends = letters({"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})
    spread = {"initializer_range": 0.4}
    causal = {**SIZES, "vocab_size": len(marks), "num_key_value_heads": 2, "max_position_embeddings": 48, **spread}
    causal |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    albert = AlbertConfig(vocab_size=len(pieces), embedding_size=8, max_position_embeddings=40, **SIZES, **spread)
    distilbert = DistilBertConfig(
        vocab_size=len(pieces), dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=40, **spread
    )
    t5 = T5Config(
        vocab_size=len(ends),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        initializer_factor=0.7,
    )
    return {
        "albert": save(root / "albert", pieces, AlbertForMaskedLM(albert)),
        "distilbert": save(root / "distilbert", pieces, DistilBertForMaskedLM(distilbert)),
        "llama": save(root / "llama", marks, LlamaForCausalLM(LlamaConfig(**causal))),
        "gemma2": save(
            root / "gemma2",
            marks,
            Gemma2ForCausalLM(
                Gemma2Config(**causal, head_dim=8, query_pre_attn_scalar=8, final_logit_softcapping=2.0)
            ),
        ),
        "t5": save(root / "t5", ends, T5ForConditionalGeneration(t5)),
    }


@pytest.mark.parametrize("variant", ["official", "paper"])
@pytest.mark.parametrize("encoder", ["albert", "roberta", "distilbert"])
def test_encoders(backbones, folders, rows, encoder, variant):
    """ALBERT shares one layer, so the library has to collect its attention."""
    folder = {**folders, **backbones}[encoder]
    metric = QRelScore(folder, folders["gpt2"], variant)
    assert (metric.local._blocks is None) == (encoder == "albert")
    want = [
        local_relevance(folder, question, context, variant=variant)
        for question, context in zip(rows["questions"][:4], rows["contexts"][:4], strict=True)
    ]
    assert metric.local.scores(rows["questions"][:4], rows["contexts"][:4]) == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("variant", ["official", "paper"])
@pytest.mark.parametrize("decoder", ["llama", "gemma2"])
def test_causal_models(backbones, folders, rows, decoder, variant):
    """Gemma 2 caps its logits behind the head, so the head alone would not do."""
    folder = backbones[decoder]
    metric = QRelScore(folders["bert"], folder, variant)
    assert metric.decoder._head == (None if decoder == "gemma2" else "lm_head")
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


def test_an_encoder_without_readable_attention(folders, monkeypatch):
    import rewards.relevance.local_relevance

    monkeypatch.setattr(rewards.relevance.local_relevance, "_blocks_agree", lambda encoder, blocks: False)
    monkeypatch.setattr(rewards.relevance.local_relevance, "_collects_attention", lambda encoder: False)
    with pytest.raises(MetricInputError, match=r"the attention of .* cannot be read"):
        QRelScore(folders["bert"], folders["gpt2"])
