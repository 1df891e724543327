"""The question generator at inference: load a checkpoint, decode questions for examples.

Encoder-decoders (BART, T5, …) and causal models (GPT-2, Qwen, …) behave alike: `Policy` chooses by the checkpoint's
config.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from rewards.packed import STEP, can_pack, pack
from rl_qg.data.examples import QAExample
from rl_qg.generation.beam_search import beam_search, share_passages
from rl_qg.generation.causal_prompts import CausalPromptEncoder, positions_of
from rl_qg.generation.decoding import DecodingRules, SpecialTokens, choose, decode, uniforms
from rl_qg.generation.logprobs import shift_right, token_logprobs
from rl_qg.generation.prompts import Prompt, PromptEncoder, add_highlight
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import load_whole

ALIGNMENT = 64  # bytes; PyTorch's own allocations have it
# Rules that a checkpoint's generation config may ship: switched off.
PLAIN: dict[str, Any] = {
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "min_length": 0,
}


def load_generator(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder-decoder or a causal model, whichever its config says it is.

    Raises:
        InputError: the Hub or the folder cannot be reached, or holds no model that generates.
    """
    config, _ = _config_and_tokenizer(path)
    return load_seq2seq(path) if config.is_encoder_decoder else load_causal(path)


def load_seq2seq(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load any `AutoModelForSeq2SeqLM` with its tokenizer, from a local folder or the Hub (safetensors only).

    Raises:
        InputError: the Hub or the folder cannot be reached, or holds no seq2seq model.
    """
    config, tokenizer = _config_and_tokenizer(path)
    if not config.is_encoder_decoder:
        instead = "" if _only_fills_masks(config) else ", or train this one with algorithm=rloo or algorithm=grpo"
        raise InputError(
            f"model.path={path}: a {config.model_type} model is no seq2seq model; name one such as BART or T5{instead}"
        )
    model = _weights(AutoModelForSeq2SeqLM, path, config)
    if model.generation_config.decoder_start_token_id is None:
        model.generation_config.decoder_start_token_id = config.decoder_start_token_id or tokenizer.cls_token_id
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        model.generation_config.eos_token_id = tokenizer.sep_token_id
    return model, tokenizer


def load_causal(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load any `AutoModelForCausalLM` with its tokenizer, ready for generation: it pads on the left, with the end
    token where there is no padding token.

    Raises:
        InputError: the Hub or the folder cannot be reached, or holds no causal model.
    """
    config, tokenizer = _config_and_tokenizer(path)
    if config.is_encoder_decoder:
        raise InputError(
            f"model.path={path}: a {config.model_type} model is an encoder-decoder, which TRL cannot train; "
            "use algorithm=scst, or name a causal model such as gpt2"
        )
    if _only_fills_masks(config):
        raise InputError(f"model.path={path}: a {config.model_type} model is no causal model; name one such as gpt2")
    if tokenizer.eos_token_id is None:
        raise InputError(f"model.path={path}: its tokenizer has no end token (eos_token), so no question would end")
    model = _weights(AutoModelForCausalLM, path, config)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model, tokenizer


def _config_and_tokenizer(path: str) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    if Path(path).exists() and not (Path(path) / "config.json").exists():
        raise InputError(
            f"model.path={path}: no model folder (it has no config.json); name one that save_pretrained wrote"
        )
    try:
        return AutoConfig.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"model.path={path}: could not be reached ({_first_line(error)}); "
            "offline, name a local folder with model.path=FOLDER or run preset=quickstart"
        ) from None


def _weights(auto_class: Any, path: str, config: PreTrainedConfig) -> PreTrainedModel:
    load_whole()
    try:
        return auto_class.from_pretrained(path, config=config, use_safetensors=True, dtype=torch.float32)
    except ValueError:
        raise InputError(f"model.path={path}: a {config.model_type} model generates no text") from None
    except OSError as error:
        raise InputError(f"model.path={path}: weights cannot be loaded ({_first_line(error)})") from None


def _only_fills_masks(config: PreTrainedConfig) -> bool:
    """BERT and its kin, which the library would load as causal models all the same."""
    return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def _align(model: PreTrainedModel) -> None:
    """Give weights that are mapped from a file, at whatever place they have there, memory of their own.

    The last digits of a product of one row hang on where its matrix begins, and of the library's ways to load a model
    the one for several processes maps nothing: they would write other lines than one does.
    """
    for weight in model.parameters():
        if weight.data_ptr() % ALIGNMENT:
            weight.data = weight.data.clone()


@dataclass(frozen=True)
class Candidate:
    """A generated question and the sum of its tokens' log-probabilities (natural logarithm, end token included)."""

    question: str
    logprob: float


class Policy:
    """A generator in eval mode on one device.

    Args:
        path: its folder, or its name on the Hub.
        device: where it works.
        dtype: of its weights; probabilities are taken in float32 in any case.
        rows: how many questions it decodes at a time. From 64 on the linear layers of a CPU are packed
            (`rewards.packed`), which changes values by rounding alone.
    """

    def __init__(
        self, path: str | Path, *, device: torch.device, dtype: torch.dtype = torch.float32, rows: int = 1
    ) -> None:
        model, self.tokenizer = load_generator(str(path))
        add_highlight(self.tokenizer, model)
        self.model = model.to(device, dtype).eval()
        _align(self.model)
        if device.type == "cpu" and rows >= STEP and can_pack(self.model):
            pack(self.model)
        self.device = device
        decoder = EncoderDecoder if model.config.is_encoder_decoder else CausalDecoder
        self.decoder = decoder(self.model, self.tokenizer, Prompt.of(path, model))
        self.encoder = self.decoder.encoder

    @torch.inference_mode()
    def greedy(self, examples: Sequence[QAExample], *, max_new_tokens: int) -> list[str]:
        """The greedy question of each example; one batch."""
        return self._texts(self.decoder.greedy(self._batch(examples), max_new_tokens))

    @torch.inference_mode()
    def candidates(
        self,
        examples: Sequence[QAExample],
        count: int,
        *,
        max_new_tokens: int,
        top_p: float | None,
        temperature: float,
        seed: int = 0,
    ) -> list[list[Candidate]]:
        """`count` questions for each example, best first: every output of a beam search, or nucleus samples when
        `top_p` is given.

        The rules that a checkpoint's generation config may ship (n-gram blocking, forced tokens, length penalty) are
        switched off. Samples come from random numbers of `seed` and the example's id: they do not depend on the other
        examples.
        """
        batch = self._batch(examples)
        if top_p is None:
            tokens, logprobs = self.decoder.search(batch, count, max_new_tokens)
        else:
            draws = uniforms([example.id for example in examples], count, max_new_tokens, seed=seed, step=0)
            rules = DecodingRules(max_new_tokens, top_p=top_p, temperature=temperature)
            tokens, logprobs = self.decoder.sample(batch, draws.to(self.device), rules)
        rows = [Candidate(text, value) for text, value in zip(self._texts(tokens), logprobs.tolist(), strict=True)]
        groups = [rows[start : start + count] for start in range(0, len(rows), count)]
        return [sorted(group, key=lambda candidate: -candidate.logprob) if top_p else group for group in groups]

    def _batch(self, examples: Sequence[QAExample]) -> dict[str, Tensor]:
        return {name: tensor.to(self.device) for name, tensor in self.encoder.batch(examples).items()}

    def _texts(self, tokens: Tensor) -> list[str]:
        return [text.strip() for text in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]


class EncoderDecoder:
    """Decoding with one pass of the encoder. Batches are those of `PromptEncoder`."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> None:
        self.model = model
        self.encoder = PromptEncoder(tokenizer, prompt)
        self.shares_passages = share_passages(model)

    def greedy(self, batch: dict[str, Tensor], max_new_tokens: int) -> Tensor:
        """Greedy tokens (b, t)."""
        states = self.model.get_encoder()(**batch).last_hidden_state
        decoded = decode(self.model, states, batch["attention_mask"], DecodingRules(max_new_tokens)).greedy
        assert decoded is not None
        return decoded.tokens

    def search(self, batch: dict[str, Tensor], beams: int, max_new_tokens: int) -> tuple[Tensor, Tensor]:
        """Tokens (b · n, t) of all `beams` of a search, and the log-probability of each row."""
        states, mask = self.model.get_encoder()(**batch).last_hidden_state, batch["attention_mask"]
        if self.shares_passages:
            found = beam_search(self.model, states, mask, beams, max_new_tokens)
            return found.tokens, found.logprobs
        tokens = self.model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            **_beam_search(beams, max_new_tokens),
        )[:, 1:]
        return tokens, self._logprobs(states, mask, tokens)

    def sample(self, batch: dict[str, Tensor], draws: Tensor, rules: DecodingRules) -> tuple[Tensor, Tensor]:
        """Tokens (b · n, t) that `draws` (b, n, longest t) choose, and the log-probability of each row."""
        states, mask = self.model.get_encoder()(**batch).last_hidden_state, batch["attention_mask"]
        decoded = decode(self.model, states, mask, rules, draws=draws, greedy=False, logprobs=True).samples
        assert decoded is not None and decoded.logprobs is not None
        return decoded.tokens, decoded.logprobs

    def _logprobs(self, states: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
        """Log-probability of each row of `tokens` (b · n, t) under the plain model, n rows for each of b contexts."""
        special, copies = SpecialTokens.of(self.model), len(tokens) // len(states)
        logits = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states.repeat_interleave(copies, 0)),
            attention_mask=mask.repeat_interleave(copies, 0),
            decoder_input_ids=shift_right(tokens, special.start, special.pad),
        ).logits
        return _up_to_the_end(token_logprobs(logits, tokens), tokens, special.end)


class CausalDecoder:
    """Decoding behind the prompt. Batches are those of `CausalPromptEncoder`: padded on the left."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> None:
        self.model = model
        self.encoder = CausalPromptEncoder(tokenizer, prompt)
        self.end = tokenizer.eos_token_id

    def greedy(self, batch: dict[str, Tensor], max_new_tokens: int) -> Tensor:
        """Greedy tokens (b, t)."""
        rules: dict[str, Any] = {"max_new_tokens": max_new_tokens, "num_beams": 1, "do_sample": False, **PLAIN}
        return self.model.generate(**batch, **rules)[:, batch["input_ids"].shape[1] :]

    def search(self, batch: dict[str, Tensor], beams: int, max_new_tokens: int) -> tuple[Tensor, Tensor]:
        """Tokens (b · n, t) of all `beams` of a search, and the log-probability of each row."""
        tokens = self.model.generate(**batch, **_beam_search(beams, max_new_tokens))
        return self._with_logprobs(_repeated(batch, beams), tokens)

    def sample(self, batch: dict[str, Tensor], draws: Tensor, rules: DecodingRules) -> tuple[Tensor, Tensor]:
        """Tokens (b · n, t) that `draws` (b, n, longest t) choose, and the log-probability of each row."""
        rows = _repeated(batch, draws.shape[1])
        drawn = Drawn(rules.for_samples(), draws.flatten(0, 1), batch["input_ids"].shape[1])
        plain: dict[str, Any] = {"num_beams": 1, "do_sample": False, **PLAIN}  # `drawn` leaves it nothing to decide
        tokens = self.model.generate(
            **rows, **plain, max_new_tokens=rules.max_new_tokens, logits_processor=LogitsProcessorList([drawn])
        )
        return self._with_logprobs(rows, tokens)

    def _with_logprobs(self, rows: dict[str, Tensor], whole: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens behind the prompts, and the log-probability of each row under the plain model."""
        tokens = whole[:, rows["input_ids"].shape[1] :]
        return tokens, _up_to_the_end(token_logprobs(self.logits(rows, tokens), tokens), tokens, self.end)

    def logits(self, batch: dict[str, Tensor], tokens: Tensor) -> Tensor:
        """Logits (b, t, v) of the question `tokens` (b, t) behind their prompts."""
        mask = torch.cat((batch["attention_mask"], torch.ones_like(tokens)), 1)
        return self.model(
            input_ids=torch.cat((batch["input_ids"], tokens), 1),
            attention_mask=mask,
            position_ids=positions_of(mask),
            logits_to_keep=tokens.shape[1] + 1,
        ).logits[:, :-1]


class Drawn(LogitsProcessor):
    """Leaves `generate` one token for each row: the one that the row's random number draws from softmax(logits).

    Args:
        rules: what bends the logits first.
        uniform: (rows, longest t) random numbers in [0, 1).
        start: tokens of the prompt.
    """

    def __init__(self, rules: LogitsProcessorList, uniform: Tensor, start: int) -> None:
        self.rules = rules
        self.uniform = uniform
        self.start = start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits (rows, v) of which one in each row is finite."""
        chosen = choose(self.rules(input_ids, scores), self.uniform[:, input_ids.shape[1] - self.start])
        return torch.full_like(scores, -torch.inf).scatter(1, chosen.unsqueeze(-1), 0.0)


def _beam_search(beams: int, max_new_tokens: int) -> dict[str, Any]:
    """Options of `generate` for a search that returns every beam."""
    search = {"num_beams": beams, "num_return_sequences": beams, "do_sample": False, "early_stopping": False}
    return {"max_new_tokens": max_new_tokens, "length_penalty": 1.0, **PLAIN, **search}


def _repeated(batch: dict[str, Tensor], copies: int) -> dict[str, Tensor]:
    """Each row of a batch `copies` times, side by side."""
    return {name: value.repeat_interleave(copies, 0) for name, value in batch.items()}


def _up_to_the_end(logprobs: Tensor, tokens: Tensor, end: int) -> Tensor:
    """Sum (rows,) of the tokens' log-probabilities (rows, t) up to and including the first end token."""
    ended = (tokens == end).cumsum(-1) - (tokens == end).int() > 0
    return (logprobs * ~ended).sum(-1)
