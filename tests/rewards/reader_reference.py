"""The reader metric step by step: one example at a time, windows by the tokenizer itself, sums of plain numbers."""

import math

import torch
from transformers import AutoModelForQuestionAnswering

from tests.rewards.reference import open_pair


@torch.no_grad()
def read(folder, question, context, *, max_length, stride, abstain):
    """For each token of the passage its characters, and log-probabilities to begin and to end the answer; then the
    log-probability of no answer.
    """
    tokenizer, model = open_pair(AutoModelForQuestionAnswering, folder)
    cut = {"truncation": "only_second", "max_length": max_length, "stride": stride, "return_overflowing_tokens": True}
    encoded, whole = tokenizer(question, context, **cut), tokenizer(question, context, return_offsets_mapping=True)
    places = [at for at, part in enumerate(whole.sequence_ids()) if part == 1]
    weights, nulls, first = ([0.0] * len(places), [0.0] * len(places)), [], 0
    for window, ids in enumerate(encoded["input_ids"]):
        names = [name for name in tokenizer.model_input_names if name in encoded]
        output = model(**{name: torch.tensor([encoded[name][window]]) for name in names})
        pair = [output.start_logits[0].tolist(), output.end_logits[0].tolist()]
        nulls.append([logits[ids.index(tokenizer.cls_token_id)] for logits in pair])
        inside = [at for at, part in enumerate(encoded.sequence_ids(window)) if part == 1]
        for token, at in enumerate(inside, first):
            assert ids[at] == whole["input_ids"][places[token]]
            for side in (0, 1):
                weights[side][token] += math.exp(pair[side][at])
        first += len(inside) - stride
    null = min(nulls, key=sum)
    totals = [sum(side) + abstain * math.exp(value) for side, value in zip(weights, null, strict=True)]
    tokens = [
        (*whole["offset_mapping"][at], math.log(begin / totals[0]), math.log(end / totals[1]))
        for at, begin, end in zip(places, *weights, strict=True)
    ]
    return tokens, sum(null) - sum(map(math.log, totals)) if abstain else -math.inf


def answer_logprob(tokens, context, answer):
    """The best place of an answer; -inf where there is none."""
    best = -math.inf
    for at in range(len(context) - len(answer) + 1):
        if context[at : at + len(answer)] == answer:
            inside = [token for token in tokens if token[1] > at and token[0] < at + len(answer)]
            best = max(best, inside[0][2] + inside[-1][3])
    return best


def predicted(tokens, no_answer, context, max_answer_length):
    """The most probable span's text; None where no answer is more probable."""
    spans = [
        (first[2] + last[3], -number, first[0], last[1])
        for number, first in enumerate(tokens)
        for last in tokens[number : number + max_answer_length]
    ]
    value, _, begin, stop = max(spans)
    return None if no_answer > value else context[begin:stop]
