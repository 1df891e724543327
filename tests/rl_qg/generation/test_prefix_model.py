"""The prefix model against one pass of its encoder over passage and question, with the mask of UniLM."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, BertModel, ElectraModel, PreTrainedModel, RobertaModel

from rl_qg.generation.loading import load_generator
from rl_qg.generation.prefix_model import ANSWER, PASSAGE, QUESTION, PrefixLM
from tests.tiny_models import save, tiny_prefix, word_tokenizer

HIGHLIGHT = 6
PASSAGES = torch.tensor([[0, 7, HIGHLIGHT, 8, 9, HIGHLIGHT, 10, 2], [0, HIGHLIGHT, 11, HIGHLIGHT, 2, 1, 1, 1]])
MASK = PASSAGES.ne(1).long()
ASKED = torch.tensor([[4, 12, 13, 14], [4, 15, 16, 2]])
PARTS = torch.tensor([[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]])
ENCODERS: list[type[PreTrainedModel]] = [BertModel, RobertaModel, ElectraModel]


def model_of(encoder: type[PreTrainedModel], **sizes: Any) -> PrefixLM:
    model = tiny_prefix(20, encoder, layers=2, pad_token_id=1, **sizes)
    model.config.highlight_token_id = HIGHLIGHT
    special = model.generation_config
    special.decoder_start_token_id, special.pad_token_id, special.eos_token_id = 4, 1, 2
    return model


def in_one_pass(model: PrefixLM, row: int) -> torch.Tensor:
    """Logits after each token of the question, from the library's own encoder over the whole sequence."""
    passage, question = PASSAGES[row][MASK[row] == 1], ASKED[row]
    s, t = len(passage), len(question)
    mask = torch.ones(s + t, s + t, dtype=torch.bool).tril()
    mask[:s] = False
    mask[:s, :s] = True
    stack = copy.deepcopy(model.stack)
    stack.set_attn_implementation("eager")
    parts = torch.cat((PARTS[row, :s], torch.full((t,), QUESTION)))
    first = 2 if isinstance(stack, RobertaModel) else 0
    hidden = stack(
        inputs_embeds=(model.get_input_embeddings()(torch.cat((passage, question))) + model.parts(parts))[None],
        position_ids=torch.arange(first, first + s + t)[None],
        attention_mask=torch.zeros(1, 1, s + t, s + t).masked_fill(~mask, torch.finfo(torch.float32).min),
    ).last_hidden_state
    read, asked = hidden[0].split((s, t))
    probabilities = model.head(model.norm(model.transform(asked))).softmax(-1)
    copied = model.copy_gate(asked).sigmoid()
    keys, queries = model.copy_key(read), model.copy_query(asked)
    for step in range(t):
        places = [place for place in range(s) if passage[place] != HIGHLIGHT]
        fits = torch.stack([queries[step] @ keys[place] / keys.shape[-1] ** 0.5 for place in places]).softmax(0)
        probabilities[step] *= 1 - copied[step]
        for place, fit in zip(places, fits, strict=True):
            probabilities[step, passage[place]] += copied[step, 0] * fit
    return probabilities.log()


@torch.no_grad()
@pytest.mark.parametrize("encoder", ENCODERS)
def test_logits_are_those_of_one_pass_with_the_mask_of_a_prefix_model(encoder: type[PreTrainedModel]) -> None:
    assert (PASSAGE, ANSWER) == (0, 1)
    model = model_of(encoder)
    expected = torch.stack([in_one_pass(model, row) for row in range(2)])
    for learns in (False, True):  # the passage is read by other kernels
        with torch.set_grad_enabled(learns):
            found = model(input_ids=PASSAGES, attention_mask=MASK, decoder_input_ids=ASKED).logits
        torch.testing.assert_close(found.detach(), expected, rtol=1e-5, atol=1e-5)
    assert found.std() > 0.1


def test_tokens_one_at_a_time_have_the_logits_of_all_at_once() -> None:
    model = model_of(BertModel)
    given = {"attention_mask": MASK, "encoder_outputs": model.get_encoder()(PASSAGES, MASK)}
    cache, logits = None, []
    for column in ASKED.split(1, 1):
        output = model(decoder_input_ids=column, past_key_values=cache, **given)
        cache = output.past_key_values
        logits.append(output.logits)
    expected = model(decoder_input_ids=ASKED, **given).logits
    torch.testing.assert_close(torch.cat(logits, 1), expected, rtol=1e-5, atol=1e-5)


def test_where_the_answer_is_marked_matters() -> None:
    model = model_of(BertModel)
    marked = model(input_ids=PASSAGES, attention_mask=MASK, decoder_input_ids=ASKED).logits
    model.parts.weight.data[ANSWER] = 0
    unmarked = model(input_ids=PASSAGES, attention_mask=MASK, decoder_input_ids=ASKED).logits
    assert (marked - unmarked).abs().max() > 0.01


def test_labels_are_read_one_place_later() -> None:
    model = model_of(BertModel)
    labels = torch.cat((ASKED[:, 1:], torch.tensor([[2], [-100]])), 1)
    found = model(input_ids=PASSAGES, attention_mask=MASK, labels=labels)
    expected = model(input_ids=PASSAGES, attention_mask=MASK, decoder_input_ids=ASKED).logits
    torch.testing.assert_close(found.logits, expected)
    logprobs = expected.log_softmax(-1)
    wanted = [logprobs[i, j, labels[i, j]] for i in range(2) for j in range(4) if labels[i, j] >= 0]
    torch.testing.assert_close(found.loss, -torch.stack(wanted).mean())


def test_a_saved_model_is_the_same_with_a_larger_vocabulary_too(tmp_path: Path) -> None:
    model = model_of(BertModel)
    model.resize_token_embeddings(23, mean_resizing=False)
    expected = model(input_ids=PASSAGES, attention_mask=MASK, decoder_input_ids=ASKED).logits
    loaded, _ = load_generator(save(tmp_path, word_tokenizer("a b c"), model))
    assert isinstance(loaded, PrefixLM) and loaded.head.weight is loaded.get_input_embeddings().weight
    found = loaded.eval()(input_ids=PASSAGES, attention_mask=MASK, decoder_input_ids=ASKED).logits
    assert found.equal(expected) and found.shape[-1] == 23


@pytest.mark.parametrize("encoder", ENCODERS)
def test_an_encoder_gives_all_weights_of_the_stack(encoder: type[PreTrainedModel], tmp_path: Path) -> None:
    stack = copy.deepcopy(model_of(encoder, seed=3).stack)
    stack.config.is_decoder = False
    stack.half().save_pretrained(tmp_path)
    model = PrefixLM.from_encoder(str(tmp_path), AutoConfig.from_pretrained(tmp_path))
    assert {value.dtype for value in model.state_dict().values() if value.is_floating_point()} == {torch.float32}
    for name, value in stack.state_dict().items():
        assert model.stack.state_dict()[name].equal(value), name
    assert model.head.weight is model.get_input_embeddings().weight
    assert model.transform.weight.equal(torch.eye(*model.transform.weight.shape))
    assert model.parts.weight[PASSAGE].eq(0).all() and model.parts.weight[ANSWER].ne(0).any()


@torch.no_grad()
def test_tokens_are_copied_as_they_are_under_autocast() -> None:
    """Ids above 256 have more bits than a number of bfloat16."""
    torch.manual_seed(0)
    model = tiny_prefix(40_000, BertModel, layers=1, pad_token_id=1).eval()
    model.copy_gate.bias.fill_(20.0)  # everything is copied
    passage = torch.tensor([[0, 2034, 28_977, 30_001, 39_999, 257, 2]])
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=passage, decoder_input_ids=torch.tensor([[4, 9]])).logits
    copied = logits.exp().sum(1)[0] > 1e-3
    assert {*copied.nonzero().flatten().tolist()} == {*passage[0].tolist()}
