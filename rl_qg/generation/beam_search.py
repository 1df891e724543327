"""Beam search of an encoder-decoder in which the beams of an example share what is the same for them.

The beams found are those of `generate(num_beams=n, num_return_sequences=n, early_stopping=False, length_penalty=1.0)`.
There every beam is an example of its own: it has a copy of the keys and values of the passage, and all copies are
copied again at every token, when beams change places (measured with BART-base on a CPU, 16 examples of 8 beams: more
than half of the time). Here

- the beams of an example are queries beside each other over one copy of the passage's keys and values;
- the keys and values of their own tokens stay where they were written, and a mask says which of them are a beam's;
- the first step is taken once for each example, and examples whose beams cannot change any more leave the batch;
- the log-probability of a beam is added up on the way. Beams are chosen by a float32 log softmax as `generate` has it,
  whose errors add up (1e-4 over a question with 30,000 tokens to choose from); what is reported is free of them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput

from rl_qg.generation.decoding import WORTH_DROPPING, SpecialTokens

SHARED = "beams_beside_each_other"  # our name among the library's attention functions
GROWTH = 16  # steps for which room is made at once
# Decoders that let keys have fewer rows than queries: tests/rl_qg/generation/test_beam_search.py compares each with `generate`.
FAMILIES = frozenset(
    {"bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "umt5"}
)
DECODERS = frozenset({"bert", "gpt2", "roberta"})  # of an `EncoderDecoderModel`


@dataclass(frozen=True)
class Beams:
    """All beams of b examples, those of an example side by side, best mean log-probability first.

    `tokens` (b · n, t) without the start token, padding after the end; `logprobs` (b · n,), sums over the tokens, the
    end token included.
    """

    tokens: Tensor
    logprobs: Tensor


def share_passages(model: PreTrainedModel) -> bool:
    """Make the model ready for `beam_search`; False, and the model as it was, where its kind is not known to work.

    Whatever else the model does stays as it is.
    """
    config = model.config
    known = config.model_type in FAMILIES or (
        config.model_type == "encoder-decoder" and config.decoder.model_type in DECODERS
    )
    if not known or config._attn_implementation != "sdpa":
        return False
    model.set_attn_implementation(SHARED)
    return True


@torch.no_grad()
def beam_search(
    model: PreTrainedModel, encoder_states: Tensor, attention_mask: Tensor, beams: int, max_new_tokens: int
) -> Beams:
    """Search with `beams` beams for each context in one batch; nothing but the model's distribution decides.

    Args:
        model: an encoder-decoder in eval mode for which `share_passages` was true.
        encoder_states: (b, s, h), the encoder's output.
        attention_mask: (b, s).
        beams: n, all of which come back.
        max_new_tokens: longest question in tokens, the end token included.
    """
    search = _Search(len(encoder_states), beams, max_new_tokens, SpecialTokens.of(model), encoder_states.device)
    cache = EncoderDecoderCache(Cache(layer_class_to_replicate=_TokensOfBeams), DynamicCache())
    states, mask = encoder_states, attention_mask[:, None, None].bool()
    while True:
        logits = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            decoder_input_ids=search.last_tokens(),
            decoder_attention_mask=search.ancestors[:, None],
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
        search.step(logits.float())
        still_open = int(search.open.sum())
        if still_open == 0:
            return search.result()
        if still_open <= WORTH_DROPPING * len(search.open):
            kept = search.drop_closed()
            states, mask = states[kept], mask[kept]
            cache.self_attention_cache.batch_select_indices(kept)
            cache.cross_attention_cache.batch_select_indices(kept)


_OF_EXAMPLES = (
    *("running", "scores", "logprobs", "ancestors", "open"),
    *("ended", "ended_scores", "ended_logprobs", "_places"),
)


class _Search:
    """The beams of a batch of examples, running and ended; b' of the b examples are still in the batch.

    `ancestors` (b', n, keys) marks which of an example's keys are those of a beam; in the first step, (b', 1, 1).
    """

    def __init__(self, examples: int, beams: int, longest: int, special: SpecialTokens, device: torch.device) -> None:
        self.beams, self.longest, self.special = beams, longest, special
        self.length = 0  # tokens of a running beam
        self.running = torch.full((examples, 1, longest + 1), special.pad, device=device)
        self.running[..., 0] = special.start
        self.scores = torch.zeros(examples, 1, device=device)  # of the running beams: what they are chosen by
        self.logprobs = torch.zeros(examples, 1, device=device)  # the same sums, of exacter terms
        self.ended = torch.full((examples, beams, longest), special.pad, device=device)
        self.ended_scores = torch.full((examples, beams), -torch.inf, device=device)  # per token
        self.ended_logprobs = torch.full((examples, beams), -torch.inf, device=device)
        self.open = torch.ones(examples, dtype=torch.bool, device=device)
        self.ancestors = torch.ones(examples, 1, 1, dtype=torch.bool, device=device)
        self._places = torch.arange(examples, device=device)  # in the batch that came in
        self._found = (self.ended.clone(), self.ended_logprobs.clone())  # of those that have left

    def last_tokens(self) -> Tensor:
        """The token of each running beam that the model reads next, (b' · beams, 1)."""
        return self.running[..., self.length].view(-1, 1)

    def step(self, logits: Tensor) -> None:
        """Lengthen the beams by the most likely tokens, given the logits (b' · beams, v).

        Of 2n candidates at most n end, so that n can go on. As in `generate`, only those among the best n that end
        are kept as ended.
        """
        self.length += 1
        beams, examples = self.beams, len(self.open)
        width = min(2 * beams, logits.shape[-1])
        best, tokens = logits.log_softmax(-1).topk(width)  # of each row: no more of them can be among the best of all
        exact = logits.gather(1, tokens) - logits.logsumexp(-1, keepdim=True)
        best = (best.view(examples, -1, width) + self.scores.unsqueeze(-1)).flatten(1)
        exact = (exact.view(examples, -1, width) + self.logprobs.unsqueeze(-1)).flatten(1)
        scores, chosen = best.topk(min(2 * beams, best.shape[1]))
        logprobs = exact.gather(1, chosen)
        parents, tokens = chosen // width, tokens.view(examples, -1).gather(1, chosen)
        candidates = _of_parents(self.running, parents)
        candidates[..., self.length] = tokens
        ends = tokens == self.special.end
        done = ends | (self.length == self.longest)
        self._end(*(values[:, :beams] for values in (candidates[..., 1:], scores, logprobs, done)))
        self.scores, going_on = scores.masked_fill(ends, -torch.inf).topk(beams)
        self.logprobs = logprobs.gather(1, going_on)
        self.running = _of_parents(candidates, going_on)
        parents = parents.gather(1, going_on)
        own = torch.eye(beams, dtype=torch.bool, device=ends.device).expand(examples, -1, -1)
        self.ancestors = torch.cat((_of_parents(self.ancestors, parents), own), -1)
        # The best running beam against the worst ended one, at the length that it has: `generate` takes it for the
        # best that can still come.
        hopeless = self.scores[:, 0] / self.length <= self.ended_scores[:, -1]
        self.open &= ~hopeless & (self.length < self.longest)

    def _end(self, candidates: Tensor, scores: Tensor, logprobs: Tensor, ends: Tensor) -> None:
        """Put candidates (b', n, t) that end among the ended ones of open examples; of all, the best n stay."""
        scores = (scores / self.length).masked_fill(~(ends & self.open.unsqueeze(-1)), -torch.inf)
        self.ended_scores, kept = torch.cat((self.ended_scores, scores), 1).topk(self.beams)
        self.ended = _of_parents(torch.cat((self.ended, candidates), 1), kept)
        self.ended_logprobs = torch.cat((self.ended_logprobs, logprobs), 1).gather(1, kept)

    def drop_closed(self) -> Tensor:
        """Take examples out that are not open any more; return the places of the others, (b',)."""
        self._set_aside()
        kept = self.open.nonzero().squeeze(-1)
        for name in _OF_EXAMPLES:
            setattr(self, name, getattr(self, name)[kept])
        return kept

    def result(self) -> Beams:
        """The beams of all examples that came in."""
        self._set_aside()
        tokens, logprobs = self._found
        length = int((tokens != self.special.pad).any(0).any(0).nonzero().max()) + 1
        return Beams(tokens[..., :length].flatten(0, 1), logprobs.flatten())

    def _set_aside(self) -> None:
        self._found[0][self._places], self._found[1][self._places] = self.ended, self.ended_logprobs


def _of_parents(values: Tensor, parents: Tensor) -> Tensor:
    """Rows of `values` (b, m, t) that `parents` (b, k) name: (b, k, t)."""
    return values.gather(1, parents.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


class _TokensOfBeams(DynamicLayer):
    """Keys and values of the tokens of all beams, (b, heads, keys, d): one of the start token, then n for each step.

    Nothing moves when beams change places. The length that the model is told is that of a beam.
    """

    steps = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write those of a step, (b · n, heads, 1, d); return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.examples, self.filled = len(key_states), 0
            self._room = key_states.new_empty(2, *key_states.shape[:2], 0, key_states.shape[-1])
        new = torch.stack((key_states, value_states)).squeeze(-2)  # (2, b · n, heads, d)
        new = new.view(2, self._room.shape[1], -1, *new.shape[2:]).transpose(2, 3)
        end = self.filled + new.shape[-2]
        if end > self._room.shape[-2]:
            more = self._room.new_empty(*self._room.shape[:3], GROWTH * new.shape[-2], self._room.shape[-1])
            self._room = torch.cat((self._room[..., : self.filled, :], more), -2)
        self._room[..., self.filled : end, :] = new
        self.steps, self.filled = self.steps + 1, end
        self.keys, self.values = self._room[..., :end, :]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Tokens of a beam."""
        return self.steps

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these examples."""
        self._room = self._room[:, indices]
        self.keys, self.values = self._room[..., : self.filled, :]


def _attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **options: Any
) -> tuple[Tensor, None]:
    """The library's attention; where `key` has one row for n of `query`, these are queries beside each other.

    (b · n, heads, 1, d), (b, heads, s, d), mask (b, 1, n or 1, s) -> (b · n, 1, heads, d).
    """
    examples, rows = len(key), len(query)
    if examples == rows:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    beams = rows // examples
    if options.get("position_bias") is not None and attention_mask.shape[-2] == beams:
        steps = (torch.arange(key.shape[-2], device=key.device) + beams - 1) // beams  # in which a key was written
        options["position_bias"] = options["position_bias"][..., steps]  # of T5: by the place in its beam
    query = query.view(examples, beams, *query.shape[1:]).squeeze(3).transpose(1, 2)
    attended, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return attended.reshape(rows, 1, *attended.shape[2:]), None


AttentionInterface.register(SHARED, _attention)
AttentionMaskInterface.register(SHARED, sdpa_mask)
