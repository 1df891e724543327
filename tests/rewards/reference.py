"""Slow, plain versions of the metrics: one example at a time, float64, written from the descriptions alone."""

import math
from functools import lru_cache

import torch
from scipy.optimize import linprog
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


VARIANTS = {
    "official": {"attention": "hard", "last_tokens": "skip", "long_context": "truncate",
                 "confidence": "probability", "scope": "sequence"},
    "paper": {"attention": "weighted", "last_tokens": "keep", "long_context": "chunk",
              "confidence": "log_likelihood", "scope": "context"},
}  # fmt: skip


def transported(products):
    """The largest sum of flow times product with row sums 1/M and column sums 1/N, by linear programming."""
    rows, columns = len(products), len(products[0])
    constraints, sums = [], []
    for m in range(rows):
        constraints.append([1.0 if at // columns == m else 0.0 for at in range(rows * columns)])
        sums.append(1 / rows)
    for n in range(columns):
        constraints.append([1.0 if at % columns == n else 0.0 for at in range(rows * columns)])
        sums.append(1 / columns)
    flat = [-value for row in products for value in row]
    return -linprog(flat, A_eq=constraints, b_eq=sums, method="highs").fun


def weigh(attended, kind):
    if kind == "hard":
        return [1.0 if at == attended.index(max(attended)) else 0.0 for at in range(len(attended))]
    return [value / sum(attended) for value in attended] if kind == "weighted" else attended


@torch.no_grad()
def local_relevance(folder, question, context, *, variant, aggregation="max", layers=None, power=1.0, **switches):
    chosen = {**VARIANTS[variant], **switches}
    tokenizer, model = open_pair(AutoModel, folder, attn_implementation="eager")
    q, c = tokens(tokenizer, question), tokens(tokenizer, context)
    limit = model.config.max_position_embeddings - (2 if model.config.model_type == "roberta" else 0)
    limit = tokenizer.model_max_length if limit < 0 else limit
    room = limit - 3 - len(q)
    if room < 1 or not c:
        return 0.0
    pieces = [c[at : at + room] for at in range(0, len(c), room)]
    pieces = pieces if chosen["long_context"] == "chunk" else pieces[:1]
    by_piece = []
    for piece in pieces:
        ids = [tokenizer.cls_token_id, *q, tokenizer.sep_token_id, *piece, tokenizer.sep_token_id]
        types = [0] * (len(q) + 2) + [1] * (len(piece) + 1)
        has_types = getattr(model.config, "type_vocab_size", 0) > 1 or model.config.model_type == "xlnet"
        typed = {"token_type_ids": torch.tensor([types])} if has_types else {}
        out = model(torch.tensor([ids]), **typed, output_attentions=True, output_hidden_states=True)
        q_at, c_at = list(range(1, len(q) + 1)), list(range(len(q) + 2, len(ids) - 1))
        if chosen["last_tokens"] == "skip":
            q_at, c_at = q_at[:-1], c_at[:-1]
        if not q_at or not c_at:
            continue
        by_layer = []
        for number in layers or range(1, len(out.attentions) + 1):
            attention, hidden = out.attentions[number - 1], out.hidden_states[number]
            products = []
            for m in q_at:
                attended = [max(attention[0, head, m, n].item() for head in range(attention.shape[1])) for n in c_at]
                cosines = [cosine_similarity(hidden[0, m], hidden[0, n], dim=0).item() for n in c_at]
                weights = weigh(attended, chosen["attention"])
                products.append([w * cos for w, cos in zip(weights, cosines, strict=True)])
            if aggregation == "mover":
                by_layer.append(transported(products))
            elif aggregation == "mean" or chosen["attention"] == "hard":
                by_layer.append(sum(map(sum, products)) / len(products))
            else:
                by_layer.append(sum(map(max, products)) / len(products))
        by_piece.append(by_layer)
    if not by_piece:
        return 0.0
    means = [sum(values) / len(values) for values in zip(*by_piece, strict=True)]
    if power == 1:
        return sum(means) / len(means)
    means = [max(0.0, value) for value in means]
    return (sum(value**power for value in means) / len(means)) ** (1 / power)


@torch.no_grad()
def causal(model, ids, start):
    """log p of ids[start:] given the tokens before it."""
    logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [logprobs[at - 1, ids[at]].item() for at in range(start, len(ids))]


def global_relevance(folder, question, context, *, variant, gain="relative", clip_gain=True, **switches):
    chosen = {**VARIANTS[variant], **switches}
    tokenizer, model = open_pair(AutoModelForCausalLM, folder)
    limit, bos, eos = model.config.max_position_embeddings, tokenizer.bos_token_id, tokenizer.eos_token_id
    q, spaced = tokens(tokenizer, question), tokens(tokenizer, " " + context)

    def confidence(ids, start):
        logprobs = causal(model, ids, start)
        if chosen["confidence"] == "log_likelihood":
            return sum(logprobs)
        return sum(math.exp(value) for value in logprobs) / len(logprobs)

    def gained(base, prompt):
        value = (prompt - base) / abs(base) if gain == "relative" else prompt - base
        return max(0.0, value) if clip_gain else value

    whole = chosen["scope"] == "sequence"
    if whole:
        plain, joined = tokens(tokenizer, context), tokens(tokenizer, question + " " + context)
        if max(len(plain), len(joined)) + 2 <= limit:
            return gained(confidence([bos, *plain, eos], 1), confidence([bos, *joined, eos], 1))
    end = [eos] if whole else []
    room = limit - len(q) - 1 - len(end)
    if room < 1:
        return 0.0
    gains = []
    for at in range(0, len(spaced), room):
        piece = spaced[at : at + room]
        base = confidence([bos, *piece, *end], 1)
        gains.append(gained(base, confidence([bos, *q, *piece, *end], 1 if whole else 1 + len(q))))
    return sum(gains) / len(gains) if gains else 0.0


@torch.no_grad()
def answer_logprobs(folder, question, context, answer, *, variant, unit, truncation="beginning", limit=None):
    tokenizer, model = open_pair(AutoModelForMaskedLM, folder)
    parts = [tokens(tokenizer, text) for text in (context, question, answer)]
    sep = tokenizer.sep_token_id
    ids = [*parts[0], sep, *parts[1], sep, *parts[2]]
    limit = limit or model.config.max_position_embeddings - 2
    if len(ids) > limit and truncation == "answer" and answer in context:
        room = limit - (len(ids) - len(parts[0]))
        middle = (len(tokens(tokenizer, context.split(answer)[0])) +
                  len(tokens(tokenizer, context.split(answer)[0] + answer))) / 2  # fmt: skip
        start = max(0, min(math.floor(middle - room / 2), len(parts[0]) - room))
        ids = [*parts[0][start : start + room], *ids[len(parts[0]) :]]
    ids = ids[-limit:]
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
    bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    limit = getattr(model.config, "max_position_embeddings", None) or 10**6
    x, y = (
        [*bos, *tokens(tokenizer, text)[: limit - len(bos) - 1], tokenizer.eos_token_id] for text in (source, target)
    )
    out = model(torch.tensor([x]), decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id, *y[:-1]]]))
    logprobs = out.logits[0].log_softmax(-1)
    return sum(logprobs[at, token].item() for at, token in enumerate(y)) / len(y)
