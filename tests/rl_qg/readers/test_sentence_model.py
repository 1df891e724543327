"""The network of sentence classifiers against the same sums written out in plain torch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, DistilBertModel, PreTrainedTokenizerBase

from rl_qg.readers.sentences import LABELS, SentenceCollator, SentenceLabeller, SentenceOptions, new_labeller
from rl_qg.runtime.errors import InputError
from tests.rl_qg.readers.toy_sentences import save_encoder
from tests.tiny_models import save, tiny
from tests.toy_reader import toy_tokenizer

PASSAGES = [
    ["the fox saw paris and ran", "a cat", "very very near the old horse", "the owl", "to rome"],
    ["a bee was near", "red and blue"],
    ["the city"],
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def options(kind: str, pooling: str = "cls", weights: tuple[float, ...] | None = None) -> SentenceOptions:
    count = len(LABELS[kind])
    return SentenceOptions(kind, pooling, 32, weights or (1.0,) * count, (0.5,) * count)


def build(encoder: Path, chosen: SentenceOptions) -> tuple[SentenceLabeller, PreTrainedTokenizerBase]:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = new_labeller(str(encoder), "model.path", tokenizer, chosen, seed=5).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.startswith("encoder."):
                weight.normal_(0, 0.5)  # so that every layer, and every bias, counts
    return model, tokenizer


def vectors(encoder: Path, tokenizer: PreTrainedTokenizerBase, sentence: str, pooling: str) -> Tensor:
    """The vector of one sentence, alone in its batch."""
    states = AutoModel.from_pretrained(encoder).eval()(**tokenizer(sentence, return_tensors="pt")).last_hidden_state[0]
    return states[0] if pooling == "cls" else states.mean(dim=0)


def linear(model: SentenceLabeller, layer: str, rows: Tensor) -> Tensor:
    weights = model.state_dict()
    return rows @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]


def one_direction(lstm: nn.LSTM, rows: Tensor, suffix: str) -> Tensor:
    """The states of one direction, by the equations of Hochreiter and Schmidhuber: (sentences, 150)."""
    weights = {name: getattr(lstm, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    state = cell = torch.zeros(150)
    states = []
    for row in rows:
        gates = weights["weight_ih"] @ row + weights["bias_ih"] + weights["weight_hh"] @ state + weights["bias_hh"]
        take, keep, new, show = gates.split(150)
        cell = keep.sigmoid() * cell + take.sigmoid() * new.tanh()
        state = show.sigmoid() * cell.tanh()
        states.append(state)
    return torch.stack(states)


def batch_of(tokenizer: PreTrainedTokenizerBase, passages: list[list[str]]) -> dict[str, Tensor]:
    return SentenceCollator(tokenizer.pad_token_id)(
        [{"input_ids": tokenizer(texts)["input_ids"]} for texts in passages]
    )


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", ["worthiness", "hierarchical", "types"])
@torch.no_grad()
def test_logits_are_those_of_the_paper_s_layers(encoder: Path, kind: str, pooling: str) -> None:
    model, tokenizer = build(encoder, options(kind, pooling))
    logits = model(**batch_of(tokenizer, PASSAGES))["logits"]
    assert logits.shape == (3, 5, len(LABELS[kind]))
    for number, texts in enumerate(PASSAGES):
        rows = torch.stack([vectors(encoder, tokenizer, text, pooling) for text in texts])
        if kind == "hierarchical":
            rows = linear(model, "compress", rows)
            back = one_direction(model.lstm, rows.flip(0), "_reverse").flip(0)
            rows = torch.cat([one_direction(model.lstm, rows, ""), back], dim=1)
            assert rows.shape == (len(texts), 300)
        hidden = linear(model, "dense", rows)
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))  # GELU
        expected = linear(model, "out", hidden)
        torch.testing.assert_close(logits[number, : len(texts)], expected, rtol=1e-4, atol=1e-4)
        assert (logits[number, len(texts) :] == 0).all()


@torch.no_grad()
def test_the_loss_weighs_positives_and_leaves_out_padding(encoder: Path) -> None:
    weights = tuple(float(n) for n in range(1, 10))
    model, tokenizer = build(encoder, options("types", weights=weights))
    labels = [torch.randint(0, 2, (len(texts), 9)).float() for texts in PASSAGES]
    items = [
        {"input_ids": tokenizer(texts)["input_ids"], "labels": rows}
        for texts, rows in zip(PASSAGES, labels, strict=True)
    ]
    result = model(**SentenceCollator(tokenizer.pad_token_id)(items))
    total, count = 0.0, 0
    for logits, rows in zip(result["logits"], labels, strict=True):
        for logit_row, row in zip(logits, rows, strict=False):
            for logit, label, weight in zip(logit_row.sigmoid().tolist(), row.tolist(), weights, strict=True):
                part = torch.tensor(logit if label else 1 - logit, dtype=torch.float64)
                total -= float(part.log()) * (weight if label else 1)
                count += 1
    assert count == 8 * 9
    assert float(result["loss"]) == pytest.approx(total / count, rel=1e-4)


@torch.no_grad()
def test_only_the_hierarchical_one_reads_other_sentences(encoder: Path) -> None:
    for kind, reads in (("worthiness", False), ("hierarchical", True)):
        model, tokenizer = build(encoder, options(kind))
        first, other = (
            model(**batch_of(tokenizer, [["the fox", text]]))["logits"][0, 0] for text in ("a cat", "to rome")
        )
        assert torch.allclose(first, other, atol=1e-5) is not reads


def test_new_layers_depend_on_the_seed_and_the_encoder_does_not(encoder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    made: list[Any] = [
        new_labeller(str(encoder), "k", tokenizer, options("worthiness"), seed).state_dict() for seed in (1, 1, 2)
    ]
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert not torch.equal(made[0]["dense.weight"], made[2]["dense.weight"])
    own = AutoModel.from_pretrained(encoder).state_dict()
    assert all(torch.equal(made[0][f"encoder.{name}"], own[name]) for name in own if not name.startswith("pooler"))
    assert not any("pooler" in name for name in made[0])


def test_an_encoder_without_a_pooler_and_one_that_cannot_be_loaded(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "attention_mask"])
    path = save(tmp_path / "distilbert", tokenizer, tiny(DistilBertModel, len(tokenizer)))
    model = new_labeller(path, "k", tokenizer, options("worthiness"), 0)
    assert model(**batch_of(tokenizer, PASSAGES))["logits"].shape == (3, 5, 1)
    (tmp_path / "distilbert" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match=r"^train_sentences\.model\.path=.* no encoder in this folder can be loaded"):
        new_labeller(path, "train_sentences.model.path", tokenizer, options("worthiness"), 0)
