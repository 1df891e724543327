"""Slow, plain versions of the metrics: one example at a time, float64, written from the descriptions alone."""

import math
from functools import lru_cache

import torch
from torch.nn.functional import cosine_similarity
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)


@lru_cache
def open_pair(auto, folder, **options):
    return AutoTokenizer.from_pretrained(folder), auto.from_pretrained(folder, **options).double().eval()


def tokens(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.no_grad()
def local_relevance(folder, question, context, *, variant, chunks):
    tokenizer, model = open_pair(AutoModel, folder, attn_implementation="eager")
    q, c = tokens(tokenizer, question), tokens(tokenizer, context)
    room = model.config.max_position_embeddings - 3 - len(q)
    if room < 1 or not c:
        return 0.0
    pieces = [c[at : at + room] for at in range(0, len(c), room)]
    pieces = pieces if chunks else pieces[:1]
    values = []
    for piece in pieces:
        ids = [tokenizer.cls_token_id, *q, tokenizer.sep_token_id, *piece, tokenizer.sep_token_id]
        types = [0] * (len(q) + 2) + [1] * (len(piece) + 1)
        out = model(torch.tensor([ids]), token_type_ids=torch.tensor([types]), output_attentions=True,
                    output_hidden_states=True)  # fmt: skip
        q_at, c_at = list(range(1, len(q) + 1)), list(range(len(q) + 2, len(ids) - 1))
        if variant == "official":
            q_at, c_at = q_at[:-1], c_at[:-1]
        if not q_at or not c_at:
            continue
        layers = []
        for attention, hidden in zip(out.attentions, out.hidden_states[1:], strict=True):
            row_scores = []
            for m in q_at:
                weights = [max(attention[0, head, m, n].item() for head in range(attention.shape[1])) for n in c_at]
                cosines = [cosine_similarity(hidden[0, m], hidden[0, n], dim=0).item() for n in c_at]
                if variant == "official":
                    row_scores.append(cosines[weights.index(max(weights))])
                else:
                    row_scores.append(max(w / sum(weights) * cos for w, cos in zip(weights, cosines, strict=True)))
            layers.append(sum(row_scores) / len(row_scores))
        values.append(sum(layers) / len(layers))
    return sum(values) / len(values) if values else 0.0


@torch.no_grad()
def causal(model, ids, start):
    """log p of ids[start:] given what stands before each."""
    logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [logprobs[at - 1, ids[at]].item() for at in range(start, len(ids))]


def global_relevance(folder, question, context, *, variant):
    tokenizer, model = open_pair(AutoModelForCausalLM, folder)
    limit, bos = model.config.n_positions, tokenizer.bos_token_id
    q, spaced = tokens(tokenizer, question), tokens(tokenizer, " " + context)

    def mean_probability(ids):
        logprobs = causal(model, [bos, *ids, bos], 1)
        return sum(math.exp(value) for value in logprobs) / len(logprobs)

    def gain(base, prompt):
        return max(0.0, (prompt - base) / abs(base))

    if variant == "official":
        plain, joined = tokens(tokenizer, context), tokens(tokenizer, question + " " + context)
        if max(len(plain), len(joined)) + 2 <= limit:
            return gain(mean_probability(plain), mean_probability(joined))
    room = limit - len(q) - (2 if variant == "official" else 1)
    if room < 1:
        return 0.0
    gains = []
    for at in range(0, len(spaced), room):
        piece = spaced[at : at + room]
        if variant == "official":
            gains.append(gain(mean_probability(piece), mean_probability(q + piece)))
        else:
            base = sum(causal(model, [bos, *piece], 1))
            gains.append(gain(base, sum(causal(model, [bos, *q, *piece], 1 + len(q)))))
    return sum(gains) / len(gains) if gains else 0.0


@torch.no_grad()
def answer_logprobs(folder, question, context, answer, *, variant, unit):
    tokenizer, model = open_pair(AutoModelForMaskedLM, folder)
    parts = [tokens(tokenizer, text) for text in (context, question, answer)]
    sep = tokenizer.sep_token_id
    ids = [*parts[0], sep, *parts[1], sep, *parts[2]]
    ids = ids[-(model.config.max_position_embeddings - 2) :]
    first = len(ids) - len(parts[2])
    groups = [[at] for at in range(first, len(ids))]
    if unit == "word":
        groups = []
        for at in range(first, len(ids)):
            if at == first or tokenizer.convert_ids_to_tokens(ids[at]).startswith("Ġ"):
                groups.append([])
            groups[-1].append(at)
    values = []
    for group in groups:
        masked = [tokenizer.mask_token_id if at in group else token for at, token in enumerate(ids)]
        logprobs = model(torch.tensor([masked])).logits[0].log_softmax(-1)
        if variant == "paper":
            values.append(sum(logprobs[at, ids[at]].item() for at in group))
        else:
            values.append(sum(logprobs[at, ids[at]].item() for at in range(len(ids))) / len(ids))
    return values


@torch.no_grad()
def translation_score(folder, source, target):
    tokenizer, model = open_pair(AutoModelForSeq2SeqLM, folder)
    bos, eos, limit = tokenizer.bos_token_id, tokenizer.eos_token_id, model.config.max_position_embeddings
    x, y = ([bos, *tokens(tokenizer, text)[: limit - 2], eos] for text in (source, target))
    out = model(torch.tensor([x]), decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id, *y[:-1]]]))
    logprobs = out.logits[0].log_softmax(-1)
    return sum(logprobs[at, token].item() for at, token in enumerate(y)) / len(y)
