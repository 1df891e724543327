"""An encoder as a question generator: one stack of layers reads the passage and writes the question (a prefix language
model: Dong et al. 2019, "Unified Language Model Pre-training for Natural Language Understanding and Generation").

The passage attends to itself, in both directions. The question attends to the passage's keys and values of the same
layer and to its own past. All weights but those of the head come from the encoder, so nothing like cross attention has
to be learned from nothing. A token of the question is written from the vocabulary or copied from the passage, with a
learned probability (See et al. 2017, "Get To The Point: Summarization with Pointer-Generator Networks", equation 9);
without this small encoders miscopy names of several tokens.

To the library the model is an encoder-decoder: what its encoder returns for a token are the keys and values of all
layers, the key by which it is copied, and the token itself.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    DynamicCache,
    EncoderDecoderCache,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from rl_qg.generation.logprobs import shift_right

ENCODERS = frozenset({"bert", "camembert", "electra", "roberta", "xlm-roberta"})  # whose layers pass options on
PREFIX = "after_a_prefix"  # name under which `prefix_attention` is registered
PASSAGE, ANSWER, QUESTION = range(3)  # rows of `parts`
DIGITS = (1, 256, 256**2)  # a token among the states is written in base 256, which bfloat16 represents exactly
Source = tuple[Tensor, Tensor, Tensor]  # keys and values (b, heads, s, d), and the mask (b or 1, 1, q or 1, s)


class PrefixConfig(PreTrainedConfig):
    """`stack`: the config of the encoder, whose layers read and write; `highlight_token_id`: of `<hl>`, which stands
    on both sides of the answer; `copies`: whether tokens are copied from the passage.
    """

    model_type = "prefix-lm"
    sub_configs: ClassVar = {"stack": AutoConfig}
    is_encoder_decoder: bool | None = True
    one_sequence: ClassVar = True  # places are counted on from the passage to the question
    stack: PreTrainedConfig | dict[str, Any] | None = None
    highlight_token_id: int = -1
    copies: bool = True
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(self.stack, dict):
            self.stack = AutoConfig.for_model(**self.stack)
        super().__post_init__(**kwargs)

    num_hidden_layers = property(lambda self: self.stack.num_hidden_layers)  # which the library's caches ask for
    max_position_embeddings = property(lambda self: self.stack.max_position_embeddings - self.stack.pad_token_id - 1)
    vocab_size = property(
        lambda self: self.stack.vocab_size, lambda self, size: setattr(self.stack, "vocab_size", size)
    )


def prefix_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    prefix: list[Source] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention to the tokens' own keys, and to those of the prefix, one softmax over both.

    `query` (r, heads, q, d). A source of b < r rows has one row for r / b rows of the query that stand side by side,
    each with one token (q = 1): beams, or samples, of one passage. Returns (r, q, heads, d).
    """
    # Fused where it is faster: its backward pass in bfloat16 on a CPU is not (`experiments/speed`).
    learns_in_bf16 = torch.is_grad_enabled() and query.dtype is torch.bfloat16 and query.device.type == "cpu"
    if prefix is None and not learns_in_bf16:
        fused = nn.functional.scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scaling)
        return fused.transpose(1, 2), None
    sources = [(key, value, attention_mask), *([] if prefix is None else [prefix[module.layer_idx]])]
    scores = torch.cat([_scores(query * scaling, keys, mask) for keys, _, mask in sources], -1)
    weights = nn.functional.dropout(scores.softmax(-1, dtype=torch.float32).to(query.dtype), dropout, module.training)
    parts = weights.split([keys.shape[2] for keys, _, _ in sources], -1)
    of_parts = [_grouped(part, len(values)) @ values for part, (_, values, _) in zip(parts, sources, strict=True)]
    return torch.stack([_ungrouped(part, len(query)) for part in of_parts]).sum(0).transpose(1, 2), None


def _scores(query: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    scores = _grouped(query, len(keys)) @ keys.transpose(2, 3)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return _ungrouped(scores, len(query))


def _grouped(values: Tensor, rows: int) -> Tensor:
    """(r, heads, 1, x) -> (rows, heads, r / rows, x)."""
    return values if len(values) == rows else values.squeeze(2).unflatten(0, (rows, -1)).transpose(1, 2)


def _ungrouped(values: Tensor, rows: int) -> Tensor:
    return values if len(values) == rows else values.transpose(1, 2).flatten(0, 1).unsqueeze(2)


AttentionInterface.register(PREFIX, prefix_attention)
AttentionMaskInterface.register(PREFIX, sdpa_mask)


class PassageReader(nn.Module):
    """The encoder's side: the keys and values of all layers, the key for copying and the digits of the token, side by
    side, (b, s, layers · 2 · h + h + 3).
    """

    def __init__(self, model: "PrefixLM") -> None:
        super().__init__()
        self._model = [model]  # in a list, so that it is no module of this one

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> BaseModelOutput:
        model, mask = self._model[0], torch.ones_like(input_ids) if attention_mask is None else attention_mask
        marks = input_ids == model.config.highlight_token_id
        inside = (marks.cumsum(-1) % 2 == 1) & ~marks
        parts = torch.where(inside, ANSWER, PASSAGE)
        positions, cache = (mask.long().cumsum(-1) - 1).clamp(min=0), DynamicCache()
        last = model.read(input_ids, parts, positions, mask[:, None, None].bool(), cache)
        states = [states.transpose(1, 2).flatten(2) for layer in cache.layers for states in (layer.keys, layer.values)]
        if model.config.copies:
            states += [model.copy_key(last), torch.stack([input_ids // size % 256 for size in DIGITS], -1).to(last)]
        return BaseModelOutput(last_hidden_state=torch.cat(states, -1))


class PrefixLM(PreTrainedModel, GenerationMixin):
    """A prefix language model. `forward` takes what an encoder-decoder of the library takes, `labels` included."""

    config_class = PrefixConfig
    base_model_prefix = "prefix"
    _supports_sdpa = True
    _supports_flash_attn = False
    _tied_weights_keys: ClassVar = {"head.weight": "stack.embeddings.word_embeddings.weight"}

    def __init__(self, config: PrefixConfig) -> None:
        super().__init__(config)
        assert isinstance(config.stack, PreTrainedConfig)
        config.stack.is_decoder = True  # its layers keep their keys and values
        self.stack = AutoModel.from_config(config.stack, attn_implementation=PREFIX, trust_remote_code=False)
        self.stack.pooler = None  # of BERT and RoBERTa, for sentences as a whole
        width = self.stack.get_input_embeddings().embedding_dim  # in ELECTRA not that of the layers
        self.parts = nn.Embedding(3, width)
        self.transform = nn.Linear(config.stack.hidden_size, width)
        self.norm = nn.LayerNorm(width, eps=config.stack.layer_norm_eps)
        self.head = nn.Linear(width, config.stack.vocab_size)
        if config.copies:
            self.copy_key, self.copy_query = (nn.Linear(config.stack.hidden_size, width) for _ in range(2))
            self.copy_gate = nn.Linear(config.stack.hidden_size, 1)
        self.reader = PassageReader(self)
        self.post_init()

    @classmethod
    def from_encoder(cls, path: str, stack: PreTrainedConfig) -> "PrefixLM":
        """A model whose stack is a pretrained encoder of this config; new parts start near 0, the head as identity."""
        stack.dtype = torch.float32  # in which it learns, whatever it was saved in
        stack.attention_probs_dropout_prob = 0.0  # its random numbers are a fourth of an update's time
        model = cls(PrefixConfig(stack=stack))
        pretrained = AutoModel.from_pretrained(path, trust_remote_code=False, dtype=torch.float32)
        model.stack.load_state_dict(pretrained.state_dict(), strict=False)
        with torch.no_grad():
            model.parts.weight.normal_(std=0.02)[PASSAGE] = 0
            nn.init.eye_(model.transform.weight)
        model.tie_weights()
        return model

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        return self.reader

    def get_input_embeddings(self) -> nn.Module:
        return self.stack.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.stack.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.head = new_embeddings

    def read(
        self,
        ids: Tensor,
        parts: Tensor,
        positions: Tensor,
        mask: Tensor,
        cache: Any,
        prefix: list[Source] | None = None,
    ) -> Tensor:
        """The last layer's states (b, n, h) of tokens; each sees what `mask` (b, 1, n or 1, keys) allows."""
        offset = getattr(self.stack.embeddings, "padding_idx", None)  # of RoBERTa, whose positions begin after it
        return self.stack(
            inputs_embeds=self.get_input_embeddings()(ids) + self.parts(parts),
            position_ids=positions + (0 if offset is None else offset + 1),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            prefix=prefix,
        ).last_hidden_state

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Logits (n, t, v) after each of the question's tokens so far.

        `decoder_attention_mask`: which own keys each token sees, (n, 1, t, keys); by default itself and those before.
        """
        if encoder_outputs is None:
            encoder_outputs = self.reader(input_ids=input_ids, attention_mask=attention_mask)
        states = encoder_outputs[0]
        if decoder_input_ids is None:
            assert labels is not None
            special = self.generation_config
            starts = torch.full_like(labels[:, :1], special.decoder_start_token_id)
            decoder_input_ids = shift_right(labels, starts, special.pad_token_id)
        if past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        prefix = self._prefix(states, attention_mask, past_key_values)
        lengths = prefix[0][2].flatten(1).sum(-1)
        rows, tokens = decoder_input_ids.shape
        past = past_key_values.self_attention_cache.get_seq_length()
        positions = lengths.repeat_interleave(rows // len(lengths))[:, None] + past
        positions = positions + torch.arange(tokens, device=positions.device)
        if decoder_attention_mask is None or decoder_attention_mask.dim() == 2:
            seen = torch.ones(tokens, past + tokens, dtype=torch.bool, device=states.device).tril(past)
            decoder_attention_mask = seen.expand(rows, 1, -1, -1)
        parts = torch.full_like(decoder_input_ids, QUESTION)
        hidden = self.read(
            decoder_input_ids, parts, positions, decoder_attention_mask, past_key_values.self_attention_cache, prefix
        )
        logits = self.head(self.norm(self.transform(hidden)))
        if self.config.copies:
            logits = self._with_copies(logits, hidden, states, prefix[0][2])
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, past_key_values=past_key_values, encoder_last_hidden_state=states
        )

    def _with_copies(self, logits: Tensor, hidden: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """Log-probabilities (r, t, v) of writing a token from the vocabulary or copying it from any of its places."""
        width = self.parts.embedding_dim
        keys, digits = states[:, None, :, -width - 3 :].split([width, 3], -1)
        # (b, 1, s); not by a product of matrices, which autocast would round to 8 bits
        tokens = sum(size * places for size, places in zip(DIGITS, digits.round().long().unbind(-1), strict=True))
        may_copy = mask & (tokens[:, None] != self.config.highlight_token_id)
        query = self.copy_query(hidden)[:, None] * keys.shape[-1] ** -0.5
        places = _scores(query, keys, may_copy)[:, 0].softmax(-1, dtype=torch.float32)
        copied = self.copy_gate(hidden).float().sigmoid()
        probabilities = logits.softmax(-1, dtype=torch.float32) * (1 - copied)
        tokens = tokens.repeat_interleave(len(hidden) // len(tokens), 0).expand_as(places)
        return probabilities.scatter_add_(-1, tokens, copied * places).clamp_min(1e-30).log()

    def _prefix(self, states: Tensor, mask: Tensor | None, cache: EncoderDecoderCache) -> list[Source]:
        """Keys and values of each layer, kept in the cache after the first step, and the mask (b, 1, 1, s)."""
        kept = cache.cross_attention_cache
        if not kept.get_seq_length():
            heads = self.stack.config.num_attention_heads
            layers, width = self.stack.config.num_hidden_layers, self.stack.config.hidden_size
            sizes = [width] * (2 * layers)
            parts = states[..., : sum(sizes)].split(sizes, -1)  # slices one by one would add up their gradients
            each = [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts]
            for layer in range(layers):
                kept.update(each[2 * layer], each[2 * layer + 1], layer)
        if mask is None:
            mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        mask = mask.reshape(len(mask), 1, 1, -1).bool()
        return [(layer.keys, layer.values, mask) for layer in kept.layers]


AutoConfig.register(PrefixConfig.model_type, PrefixConfig)
AutoModelForSeq2SeqLM.register(PrefixConfig, PrefixLM)
