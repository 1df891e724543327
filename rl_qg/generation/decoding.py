"""Rollouts: greedy and sampled questions decoded together, over one pass of the encoder.

Sampling is on-policy: tokens are drawn from the model's own distribution (no top-k, no repetition rules, no forced
tokens, whatever the checkpoint's generation config says), unless `DecodingRules` say otherwise. The random numbers of
a row depend on its example, so a rollout does not depend on how examples are distributed over batches or processes,
and a resumed run draws the same questions.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    EncoderDecoderCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)
from transformers.modeling_outputs import BaseModelOutput

from rl_qg.generation.logprobs import token_logprobs
from rl_qg.generation.sharing import is_sharing, sharing_passages, unread_mask

_warn_once = cache(logging.getLogger(__name__).warning)
LIKELIEST = 256  # tokens that mostly hold a nucleus: nine times as fast as sorting 30,522 (64 rows, one CPU core)
PATIENCE = 4  # tokens of an accelerator between two looks at which rows have ended, for each of which it waits
COMPACT_BELOW = 0.75  # ended rows are removed from the batch when at most this fraction of its rows is open


@dataclass(frozen=True)
class Decoded:
    """Generated tokens without the start token. `tokens` (n, t), padding after the end; `mask` (n, t), True up to and
    including the end token; `logprobs` (n,) of each row under the model without rules, None if not requested.
    """

    tokens: Tensor
    mask: Tensor
    logprobs: Tensor | None = None


@dataclass(frozen=True)
class Rollout:
    """Greedy questions (b, t) and samples (b · k, t), k side by side for a context; None if not requested."""

    greedy: Decoded | None
    samples: Decoded | None


@dataclass(frozen=True)
class SpecialTokens:
    """The three ids that decoding needs."""

    start: int
    end: int
    pad: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> "SpecialTokens":
        config: GenerationConfig = model.generation_config
        end = config.eos_token_id
        return cls(config.decoder_start_token_id, end[0] if isinstance(end, list) else end, config.pad_token_id)

    def starts(self, given: Tensor | None, like: Tensor) -> Tensor:
        """What the decoder reads before the questions: `given` (n, p), such as a language code, else the start token
        (n, 1); n rows and the device are those of `like`.
        """
        return torch.full((len(like), 1), self.start, device=like.device) if given is None else given


class Nucleus(LogitsProcessor):
    """Leaves the most likely tokens of the total probability `top_p`, as the library's does, which sorts the whole
    vocabulary; of equally likely ones all or none (Holtzman et al., "The curious case of neural text …", 2020).
    """

    def __init__(self, top_p: float) -> None:
        self.top_p = top_p

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(n, t), (n, v) -> (n, v), -inf for the others. What a row keeps does not depend on the other rows."""
        total = scores.logsumexp(-1, keepdim=True)
        # All tokens on an accelerator, which would have to say first whether some rows need more.
        count = LIKELIEST if scores.device.type == "cpu" else scores.shape[-1]
        least, is_whole = self._least(scores, total, count)
        if scores.shape[-1] > count and not is_whole.all():
            wide = ~is_whole
            least[wide], _ = self._least(scores[wide], total[wide], scores.shape[-1])
        return scores.masked_fill(scores < least, -torch.inf)

    def _least(self, scores: Tensor, total: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The lowest score in the nucleus, (n, 1), and whether it is among the `count` highest ones, (n,)."""
        highest, _ = scores.topk(min(count, scores.shape[-1]))
        shares = (highest - total).exp()
        inside = shares.cumsum(-1) - shares < self.top_p  # by the probability of those that are more likely
        return highest.masked_fill(~inside, torch.inf).amin(-1, keepdim=True), ~inside[:, -1]


@dataclass(frozen=True)
class DecodingRules:
    """Limits and rules of decoding. By default only a maximum length.

    Args:
        max_new_tokens: maximum length of a question in tokens, the end token included.
        min_new_tokens: no end token before this many tokens; for greedy and sampled questions.
        no_repeat_ngram: no n-gram of this size twice, 0 for off; for both.
        temperature, top_k, top_p: as in `generate`; for sampled questions only.
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    no_repeat_ngram: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def for_all(self, special: SpecialTokens, device: torch.device) -> LogitsProcessorList:
        """The rules for greedy and sampled rows, in the order of `generate`."""
        rules = LogitsProcessorList()
        if self.no_repeat_ngram:
            rules.append(NoRepeatNGramLogitsProcessor(self.no_repeat_ngram))
        if self.min_new_tokens:
            rules.append(MinNewTokensLengthLogitsProcessor(1, self.min_new_tokens, special.end, device=str(device)))
        return rules

    def for_samples(self) -> LogitsProcessorList:
        """The rules for sampled rows alone, in the order of `generate`."""
        temperature = [TemperatureLogitsWarper(float(self.temperature))] if self.temperature != 1.0 else []
        top_k = [TopKLogitsWarper(self.top_k)] if self.top_k else []
        top_p = [Nucleus(self.top_p)] if self.top_p < 1.0 else []
        return LogitsProcessorList([*temperature, *top_k, *top_p])


def uniform_draws(keys: Sequence[str], samples: int, length: int, *, seed: int, step: int) -> Tensor:
    """Random numbers in [0, 1), (len(keys), samples, length); those of an example depend on seed, step and its key."""
    rows = []
    for key in keys:
        digest = hashlib.sha256(f"{seed}|{step}|{key}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        rows.append(generator.random((samples, length), np.float32))
    return torch.from_numpy(np.stack(rows))


def choose_tokens(logits: Tensor, uniform: Tensor) -> Tensor:
    """Draw a token from softmax(logits) by inverting its distribution function. (n, v), (n,) -> (n,)."""
    probabilities = logits.float().softmax(-1)
    cumulative = probabilities.cumsum(-1)
    # Scaled by the last entry, which rounding may leave below 1: a larger draw would be beyond the last token.
    drawn = (uniform * cumulative[:, -1]).unsqueeze(-1)
    chosen = torch.searchsorted(cumulative, drawn, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    if logits.device.type == "cpu":
        return chosen
    # Sums in parallel need not rise at every token: a draw may meet one that is not possible.
    possible = probabilities.gather(1, chosen.unsqueeze(-1)).squeeze(-1) > 0
    return chosen.where(possible, probabilities.argmax(-1))


@torch.no_grad()
def encode(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
    """States (b, s, h) of contexts (b, s) with their mask."""
    return model.get_encoder()(input_ids=ids, attention_mask=unread_mask(model, mask)).last_hidden_state


@torch.no_grad()
def decode(
    model: PreTrainedModel,
    encoder_states: Tensor,
    attention_mask: Tensor,
    rules: DecodingRules,
    *,
    draws: Tensor | None = None,
    greedy: bool = True,
    logprobs: bool = False,
    compact: bool = True,
    starts: Tensor | None = None,
) -> Rollout:
    """Decode a greedy question (with `greedy`) and k sampled ones (with `draws`) for each context in one batch.

    All rows of a context begin with the same tokens, so the first step is computed once per context, and its cache of
    tokens is then copied to the rows. The keys and values of the cross attention stay one copy for each context, where
    the model can share them (`rl_qg.generation.sharing`), until rows that have ended are removed from the batch, which
    happens when they are enough to be worth copying the cache.

    The model is an encoder-decoder in eval mode (rollouts use no dropout). `encoder_states` (b, s, h),
    `attention_mask` (b, s), `draws` (b, k, max_new_tokens) in [0, 1). With `logprobs` the log-probabilities of the
    tokens are summed. With `compact` rows that have ended leave the batch, which saves time; the others are then
    computed in another way, which changes their last digits. `starts` (b, p) is what the decoder reads before the
    questions; by default the start token. Neither the rules nor the log-probabilities count these tokens (of the
    rules' history, the last stands for the start token).
    """
    rules = replace(rules, max_new_tokens=within_positions(model, rules.max_new_tokens, starts, encoder_states))
    special, device = SpecialTokens.of(model), encoder_states.device
    batch, samples = encoder_states.shape[0], 0 if draws is None else draws.shape[1]
    copies = samples + greedy
    for_all, for_samples = rules.for_all(special, device), rules.for_samples()
    uniform = None if draws is None else draws.to(device, non_blocking=True).flatten(0, 1)

    tokens = torch.full((batch * copies, rules.max_new_tokens + 1), special.pad, device=device)
    starts = special.starts(starts, encoder_states)
    tokens[:, 0] = starts[:, -1].repeat_interleave(copies)
    is_greedy = (torch.arange(batch * copies) % copies == 0) & greedy
    draw_of = (torch.cumsum(~is_greedy, 0) - 1).to(device, non_blocking=True)  # sampled row -> row of `uniform`
    open_rows = torch.ones(batch * copies, dtype=torch.bool, device=device)
    sums = torch.zeros(batch * copies, device=device) if logprobs else None
    # In the batch: open rows, and ended rows not yet removed; known to the host too, which then waits less often.
    known = torch.arange(batch * copies)
    rows = torch.arange(batch * copies, device=device)
    sampled = rows.view(batch, copies)[:, int(greedy) :].flatten()  # their indices in the batch
    patience = 1 if device.type == "cpu" else PATIENCE
    with sharing_passages(model):
        encoded = _Encoded(model, encoder_states, attention_mask, copies)
        cache = None
        for position in range(rules.max_new_tokens):
            last = starts if cache is None else tokens[rows, position : position + 1]
            output = encoded.step(last, cache)
            logits = output.logits[:, -1].float()
            if cache is None and copies > 1:
                logits = logits.repeat_interleave(copies, 0)
                encoded.repeat(output.past_key_values)
            cache = output.past_key_values
            plain = logits
            logits = for_all(tokens[rows, : position + 1], plain)
            chosen = logits.argmax(-1)
            if uniform is not None:
                history = tokens[rows[sampled], : position + 1]
                chosen[sampled] = choose_tokens(
                    for_samples(history, logits[sampled]), uniform[draw_of[rows[sampled]], position]
                )
            if sums is not None:
                sums[rows] += token_logprobs(plain, chosen) * open_rows[rows]
            tokens[rows, position + 1] = chosen.masked_fill(~open_rows[rows], special.pad)
            open_rows[rows] &= chosen != special.end
            if (position + 1) % patience:
                continue
            kept = open_rows[rows].cpu().nonzero().squeeze(-1)
            if not len(kept):
                break
            if compact and len(kept) <= COMPACT_BELOW * len(rows):
                known = known[kept]
                sampled = (~is_greedy[known]).nonzero().squeeze(-1).to(device, non_blocking=True)
                kept = kept.to(device, non_blocking=True)
                rows = rows[kept]
                encoded.keep(kept, cache)
    whole = tokens[:, 1 : position + 2].view(batch, copies, -1)
    totals = None if sums is None else sums.view(batch, copies)
    return Rollout(
        _ended(whole[:, :1], special, None if totals is None else totals[:, :1]) if greedy else None,
        _ended(whole[:, greedy:], special, None if totals is None else totals[:, greedy:]) if samples else None,
    )


def within_positions(
    model: PreTrainedModel, length: int, starts: Tensor | None = None, read: Tensor | None = None
) -> int:
    """`length`, or as many tokens as the decoder has positions for: beside `starts` (b, p), as in `decode`, and in a
    model of one sequence beside what it has `read` (b, s, …).
    """
    config = model.config
    limit = getattr(getattr(config, "decoder", config), "max_position_embeddings", None)  # of a pair the second one's
    taken = 0 if starts is None else starts.shape[1] - 1
    if read is not None and (not config.is_encoder_decoder or getattr(config, "one_sequence", False)):
        taken += read.shape[1]
    if limit is None or length <= limit - taken:
        return length
    fault = f"texts of up to {length} tokens are asked for, and the model can write {limit - taken}"
    _warn_once(f"{fault}: longer ones are cut")
    return max(1, limit - taken)


class _Encoded:
    """The encoded contexts of the rows in the batch, and the steps of the decoder over them.

    `shared` as long as `states` and `mask` have one row for each context and the batch has `copies` of each.
    """

    def __init__(self, model: PreTrainedModel, states: Tensor, mask: Tensor, copies: int) -> None:
        self.model, self.states, self.copies = model, states, copies
        self.shared = copies > 1 and is_sharing(model)
        # The library reads masks of two dimensions to see whether they mask anything, and waits for the accelerator.
        self.whole = is_sharing(model) and states.device.type != "cpu"
        self.mask = mask[:, None, None].bool() if self.shared or self.whole else mask

    def step(self, last: Tensor, cache: EncoderDecoderCache | None) -> Any:
        """The output of the model after the last tokens (n, 1) of all rows; in the first step those of `starts`."""
        own = None
        if self.whole and last.shape[1] == 1:
            length = 1 if cache is None else cache.get_seq_length() + 1
            own = torch.ones((len(last), 1, 1, length), dtype=torch.bool, device=last.device)
        return self.model(
            decoder_attention_mask=own,
            encoder_outputs=BaseModelOutput(last_hidden_state=self.states),
            attention_mask=self.mask,
            decoder_input_ids=last,
            past_key_values=cache,
            use_cache=True,
        )

    def repeat(self, cache: EncoderDecoderCache) -> None:
        """Make the rows of each context from its first step."""
        if self.shared:
            cache.self_attention_cache.batch_repeat_interleave(self.copies)
            return
        self.states, self.mask = (value.repeat_interleave(self.copies, 0) for value in (self.states, self.mask))
        cache.batch_repeat_interleave(self.copies)

    def keep(self, kept: Tensor, cache: EncoderDecoderCache) -> None:
        """Keep the rows of these indices. As contexts then have different numbers of rows, each gets its own copy."""
        source = kept // self.copies if self.shared else kept
        self.shared = False
        self.states, self.mask = self.states[source], self.mask[source]
        cache.self_attention_cache.batch_select_indices(kept)
        cache.cross_attention_cache.batch_select_indices(source)


def _ended(tokens: Tensor, special: SpecialTokens, logprobs: Tensor | None) -> Decoded:
    """Flatten tokens (b, k, t) to rows, mask those after the first end token, and drop columns without any token."""
    tokens = tokens.flatten(0, 1)
    mask = up_to_end(tokens, special.end)
    length = int(mask.any(0).sum())
    return Decoded(tokens[:, :length].contiguous(), mask[:, :length], None if logprobs is None else logprobs.flatten())


def up_to_end(tokens: Tensor, end: int) -> Tensor:
    """Which of the tokens (rows, t) are not after the first end token."""
    return (tokens == end).cumsum(-1) - (tokens == end).int() == 0


def concatenate(parts: Sequence[Rollout], pad: int) -> Rollout:
    if len(parts) == 1:
        return parts[0]
    greedy = [part.greedy for part in parts if part.greedy is not None]
    samples = [part.samples for part in parts if part.samples is not None]
    return Rollout(_stacked(greedy, pad), _stacked(samples, pad))


def _stacked(parts: Sequence[Decoded], pad: int) -> Decoded | None:
    if not parts:
        return None
    length = max(part.tokens.shape[1] for part in parts)

    def filled(rows: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(rows, (0, length - rows.shape[1]), value=value)

    known = [part.logprobs for part in parts if part.logprobs is not None]
    return Decoded(
        torch.cat([filled(part.tokens, pad) for part in parts]),
        torch.cat([filled(part.mask, 0) for part in parts]),
        torch.cat(known) if len(known) == len(parts) else None,
    )
