"""Beam search of an encoder-decoder in which the beams of an example share the encoded passage.

The result is that of `generate(num_beams=n, num_return_sequences=n, early_stopping=False, length_penalty=1.0)`. There
every beam is a separate row: it has a copy of the keys and values of the passage, and all copies are copied again at
every token, when beams are reordered (measured with BART-base on a CPU, 16 examples of 8 beams: more than half of the
time). In this module

- the beams of an example are several queries over one copy of the passage's keys and values;
- the keys and values of generated tokens are never moved, and a mask marks those that belong to a beam;
- the first step is computed once for each example, and examples whose beams can no longer change leave the batch;
- the log-probability of a beam is summed during the search. Beams are chosen by a float32 log softmax as in
  `generate`, whose rounding errors accumulate (1e-4 over a question with a vocabulary of 30,000); the reported
  log-probabilities do not have them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_outputs import BaseModelOutput

from rl_qg.generation.decoding import COMPACT_BELOW, PATIENCE, SpecialTokens, up_to_end, within_positions

GROWTH = 16  # steps for which memory is allocated at once


@dataclass(frozen=True)
class Beams:
    """All beams of b examples, those of an example side by side, best mean log-probability first.

    `tokens` (b · n, t) without the start token, padding after the end; `logprobs` (b · n,), sums over the tokens, the
    end token included.
    """

    tokens: Tensor
    logprobs: Tensor


@torch.no_grad()
def beam_search(
    model: PreTrainedModel,
    encoder_states: Tensor,
    attention_mask: Tensor,
    beams: int,
    max_new_tokens: int,
    *,
    starts: Tensor | None = None,
) -> Beams:
    """Search with `beams` beams, n, for each context in one batch, by the model's distribution alone; all are
    returned.

    The model is an encoder-decoder in eval mode for which `sharing.share_passages` was true. `encoder_states`
    (b, s, h), `attention_mask` (b, s). `max_new_tokens` counts the end token. `starts` (b, p) is what the decoder
    reads before the questions; by default the start token.
    """
    special = SpecialTokens.of(model)
    starts = special.starts(starts, encoder_states)
    max_new_tokens = within_positions(model, max_new_tokens, starts, encoder_states)
    search = _Search(starts[:, -1], beams, max_new_tokens, special)
    cache = EncoderDecoderCache(Cache(layer_class_to_replicate=_BeamTokens), DynamicCache())
    states, mask = encoder_states, attention_mask[:, None, None].bool()

    def read(tokens: Tensor, keys: Tensor) -> Tensor:
        """Logits after the tokens (n, 1), which see the `keys` (b', n, keys) of their beams."""
        output = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            decoder_input_ids=tokens,
            decoder_attention_mask=keys[:, None],
            past_key_values=cache,
            use_cache=True,
        )
        return output.logits[:, -1].float()

    for column in starts[:, :-1].unbind(1):
        read(column.unsqueeze(1), search.ancestors)
        search.ancestors = torch.cat((search.ancestors, search.ancestors[..., :1]), -1)
    patience = 1 if states.device.type == "cpu" else PATIENCE
    for length in range(1, max_new_tokens + 1):
        search.step(read(search.last_tokens(), search.ancestors))
        if length % patience:
            continue
        kept = search.open.cpu().nonzero().squeeze(-1)
        if not len(kept):
            break
        if len(kept) <= COMPACT_BELOW * len(search.open):
            kept = kept.to(states.device, non_blocking=True)
            search.keep(kept)
            states, mask = states[kept], mask[kept]
            cache.self_attention_cache.batch_select_indices(kept)
            cache.cross_attention_cache.batch_select_indices(kept)
    return search.result()


_PER_EXAMPLE = "running logprobs ancestors open ended ended_scores ended_logprobs _indices".split()


class _Search:
    """The beams of a batch of examples, running and ended; b' of the b examples are still in the batch.

    `starts` (b,) are the tokens before the questions. `ancestors` (b', n, keys) marks the keys of an example that
    belong to each beam; before the first step, (b', 1, 1).
    """

    def __init__(self, starts: Tensor, beams: int, longest: int, special: SpecialTokens) -> None:
        examples, device = len(starts), starts.device
        self.beams, self.longest, self.special = beams, longest, special
        self.length = 0  # tokens of a running beam
        self.running = torch.full((examples, 1, longest + 1), special.pad, device=device)
        self.running[..., 0] = starts.unsqueeze(1)
        self.logprobs = torch.zeros(examples, 1, device=device)  # of the running beams
        self.ended = torch.full((examples, beams, longest), special.pad, device=device)
        self.ended_scores = torch.full((examples, beams), -torch.inf, device=device)  # per token
        self.ended_logprobs = torch.full((examples, beams), -torch.inf, device=device)
        self.open = torch.ones(examples, dtype=torch.bool, device=device)
        self.ancestors = torch.ones(examples, 1, 1, dtype=torch.bool, device=device)
        self._indices = torch.arange(examples, device=device)  # in the original batch
        self._results = (self.ended.clone(), self.ended_logprobs.clone())  # of examples that have left the batch

    def last_tokens(self) -> Tensor:
        """The token of each running beam that the model reads next, (b' · beams, 1)."""
        return self.running[..., self.length].view(-1, 1)

    def step(self, logits: Tensor) -> None:
        """Extend the beams by the most likely tokens, given the logits (b' · beams, v).

        At most n of 2n candidates end, so n of them can continue. As in `generate`, an ended candidate is kept only if
        it is among the best n.
        """
        self.length += 1
        beams, examples = self.beams, len(self.open)
        width = min(2 * beams, logits.shape[-1])
        best, tokens = logits.topk(width)  # of each row: no more can be among the best of the example
        best = best - logits.logsumexp(-1, keepdim=True)
        best = (best.view(examples, -1, width) + self.logprobs.unsqueeze(-1)).flatten(1)
        logprobs, chosen = best.topk(min(2 * beams, best.shape[1]))
        parents, tokens = chosen // width, tokens.view(examples, -1).gather(1, chosen)
        candidates = _of_parents(self.running, parents)
        candidates[..., self.length] = tokens
        ends = tokens == self.special.end
        done = ends | (self.length == self.longest)
        self._end(*(values[:, :beams] for values in (candidates[..., 1:], logprobs, done)))
        self.logprobs, continuing = logprobs.masked_fill(ends, -torch.inf).topk(beams)
        self.running = _of_parents(candidates, continuing)
        parents = parents.gather(1, continuing)
        new = torch.eye(beams, dtype=torch.bool, device=ends.device).expand(examples, -1, -1)
        self.ancestors = torch.cat((_of_parents(self.ancestors, parents), new), -1)
        # As in `generate`, the best running beam at its present length is taken as the best possible result, and
        # compared with the worst ended beam.
        hopeless = self.logprobs[:, 0] / self.length <= self.ended_scores[:, -1]
        self.open &= ~hopeless & (self.length < self.longest)

    def _end(self, candidates: Tensor, logprobs: Tensor, ends: Tensor) -> None:
        """Add candidates (b', n, t) that end to the ended beams of open examples; the best n are kept."""
        scores = (logprobs / self.length).masked_fill(~(ends & self.open.unsqueeze(-1)), -torch.inf)
        self.ended_scores, kept = torch.cat((self.ended_scores, scores), 1).topk(self.beams)
        self.ended = _of_parents(torch.cat((self.ended, candidates), 1), kept)
        self.ended_logprobs = torch.cat((self.ended_logprobs, logprobs), 1).gather(1, kept)

    def keep(self, kept: Tensor) -> None:
        """Remove all examples but those of these indices, which are open."""
        self._store()
        for name in _PER_EXAMPLE:
            setattr(self, name, getattr(self, name)[kept])

    def result(self) -> Beams:
        self._store()
        tokens, logprobs = self._results
        tokens = tokens.flatten(0, 1)
        return Beams(tokens[:, : int(up_to_end(tokens, self.special.end).any(0).sum())], logprobs.flatten())

    def _store(self) -> None:
        self._results[0][self._indices], self._results[1][self._indices] = self.ended, self.ended_logprobs


def _of_parents(values: Tensor, parents: Tensor) -> Tensor:
    """Rows of `values` (b, m, t) that `parents` (b, k) name: (b, k, t)."""
    return values.gather(1, parents.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


class _BeamTokens(DynamicLayer):
    """Keys and values of the tokens of all beams, (b, heads, keys, d): one for each token before the questions, then n
    for each step.

    They are not moved when beams are reordered. The sequence length that the model sees is that of one beam.
    """

    steps = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Add those of a step, (b · n, heads, 1, d); return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.examples, self.filled = len(key_states), 0
            self._memory = key_states.new_empty(2, *key_states.shape[:2], 0, key_states.shape[-1])
        new = torch.stack((key_states, value_states)).squeeze(-2)  # (2, b · n, heads, d)
        new = new.view(2, self._memory.shape[1], -1, *new.shape[2:]).transpose(2, 3)
        end = self.filled + new.shape[-2]
        if end > self._memory.shape[-2]:
            more = self._memory.new_empty(*self._memory.shape[:3], GROWTH * new.shape[-2], self._memory.shape[-1])
            self._memory = torch.cat((self._memory[..., : self.filled, :], more), -2)
        self._memory[..., self.filled : end, :] = new
        self.steps, self.filled = self.steps + 1, end
        self.keys, self.values = self._memory[..., :end, :]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.steps

    def batch_select_indices(self, indices: Tensor) -> None:
        self._memory = self._memory[:, indices]
        self.keys, self.values = self._memory[..., : self.filled, :]
