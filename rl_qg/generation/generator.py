"""The question generator at inference: decode questions for examples, or the texts of rows of other tasks.

Encoder-decoders (BART, T5, …) and causal models (GPT-2, Qwen, …) have the same interface, `CandidateGenerator`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from rewards.arithmetic import can_pack, pack, warn_if_slow
from rl_qg.data.examples import QAExample
from rl_qg.generation.beam_search import beam_search
from rl_qg.generation.decoding import (
    DecodingRules,
    Rollout,
    SpecialTokens,
    choose_tokens,
    decode,
    encode,
    uniform_draws,
    up_to_end,
    within_positions,
)
from rl_qg.generation.loading import load_generator
from rl_qg.generation.logprobs import about_labels, shift_right, token_logprobs
from rl_qg.generation.prompts import CausalPromptEncoder, Prompt, PromptEncoder, add_highlight, positions_of
from rl_qg.generation.sharing import share_passages

Tensors = dict[str, Tensor]
Item = TypeVar("Item")
LENGTH_STEP = 32  # tokens, see `CandidateGenerator.is_independent`
ALIGNMENT = 64  # bytes, as in memory that PyTorch allocates
# Switches off the decoding rules that the generation config of a checkpoint may contain.
NO_RULES: dict[str, Any] = {
    **{"no_repeat_ngram_size": 0, "repetition_penalty": 1.0, "min_length": 0},
    **{"encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0},
    **dict.fromkeys(["forced_bos_token_id", "forced_eos_token_id", "min_new_tokens", "bad_words_ids"]),
    **dict.fromkeys(["suppress_tokens", "begin_suppress_tokens", "sequence_bias", "guidance_scale"]),
    **dict.fromkeys(["exponential_decay_length_penalty", "watermarking_config", "max_time", "stop_strings"]),
}
# `generate` takes the most likely token; for samples, `DrawnTokens` leaves it only one.
GREEDY: dict[str, Any] = {"num_beams": 1, "do_sample": False, **NO_RULES}


@dataclass(frozen=True)
class Candidate:
    """A generated question, or text of another task, the sum of its tokens' log-probabilities (natural logarithm) and
    their number, the end token included in both. Where a reward orders candidates, also that of this one and the mean
    of all candidates of its answer; None where it failed.
    """

    question: str
    logprob: float
    tokens: int = 0
    reward: float | None = None
    reward_mean: float | None = None


class CandidateGenerator:
    """A generator in eval mode on one device.

    Args:
        path: its folder, or its name on the Hub.
        device: where it runs.
        dtype: of its weights; probabilities are computed in float32 in any case.
        engine: "own" (beams share the encoded passage) or "library" (`generate` of transformers). Causal models always
            use the library.
        independent: what is decoded for an example shall not depend on the other examples of its batch, to the last
            digit, on a CPU. Where that can be had (`is_independent`), it holds for inputs that are padded to the same
            length, a multiple of `LENGTH_STEP` tokens or the longest input: all linear layers are packed, so that a
            row is always multiplied alike, and rows that have ended stay in the batch.
        language: of examples that name none, for models with language codes; None: the one it was trained with.
        format: of inputs and texts, as `Prompt.of`; None: recognised.

    `task` is what the model was trained for (`rl_qg.generation.tasks.TASKS`).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        engine: str = "own",
        independent: bool = False,
        language: str | None = None,
        format: str | None = None,
    ) -> None:
        model, self.tokenizer = load_generator(str(path))
        prompt = Prompt.of(path, model, self.tokenizer, format=format)
        if language is not None:
            prompt = replace(prompt, language=language)
        add_highlight(self.tokenizer, model, prompt.task, prompt.format)
        self.task, self.device = prompt.task, device
        self.model = model.to(device, dtype).eval()
        # The last digits of a matrix product depend on the alignment of a weight, and the library maps weights from
        # the file only in runs with one process: without this, several processes would write other values.
        for weight in self.model.parameters():
            if weight.data_ptr() % ALIGNMENT:
                weight.data = weight.data.clone()
        warn_if_slow(dtype, device, "generate.precision=no")
        if device.type == "cpu" and can_pack(dtype):
            pack(self.model, every=independent, decodes=True)
        self.decoder: Decoder = (
            EncoderDecoder(self.model, self.tokenizer, prompt, engine=engine)
            if model.config.is_encoder_decoder
            else CausalDecoder(self.model, self.tokenizer, prompt)
        )
        self.encoder = self.decoder.encoder
        packed = not any(isinstance(module, torch.nn.Linear) for module in self.model.modules())
        shares = isinstance(self.decoder, EncoderDecoder) and self.decoder.shares_passages
        self._independent = independent and packed and shares
        if self._independent:  # pad inputs to full lengths, and keep rows that have ended
            self.decoder.compact, self.encoder.multiple = False, LENGTH_STEP

    @property
    def is_independent(self) -> bool:
        """Whether examples of one length do not depend on each other. Only with one thread: several divide a product
        by its number of rows (measured: with two, most log-probabilities differ in their last digits).
        """
        return self._independent and torch.get_num_threads() == 1

    @torch.inference_mode()
    def greedy(self, examples: Sequence[QAExample], *, max_new_tokens: int) -> list[str]:
        """The greedy question of each example, or text of each row of another task; one batch."""
        return self.encoder.decoded(self.decoder.greedy(self.batch(examples), max_new_tokens), examples)

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
        """`count` questions for each example, best first: all beams of a beam search, or nucleus samples if `top_p` is
        given. The decoding rules of a checkpoint's generation config (n-gram blocking, forced tokens, length penalty)
        are switched off. Samples depend on `seed` and the example's id, and not on the other examples.
        """
        batch = self.batch(examples)
        if top_p is None:
            tokens, logprobs = self.decoder.search(batch, count, max_new_tokens)
        else:
            draws = uniform_draws([example.id for example in examples], count, max_new_tokens, seed=seed, step=0)
            rules = DecodingRules(max_new_tokens, top_p=top_p, temperature=temperature)
            tokens, logprobs = self.decoder.sample(batch, draws.to(self.device), rules)
        rows = self._candidates(self.encoder.decoded(tokens, examples), tokens, logprobs)
        groups = [rows[start : start + count] for start in range(0, len(rows), count)]
        return [sorted(group, key=lambda candidate: -candidate.logprob) if top_p else group for group in groups]

    @torch.inference_mode()
    def likelihoods(self, examples: Sequence[QAExample]) -> list[Candidate]:
        """The question of each example as if the model had generated it; one batch."""
        targets = [torch.tensor(ids) for ids in self.encoder.targets(examples)]
        padded = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=self.decoder.end)
        tokens = padded.to(self.device)
        logprobs = self.decoder.token_logprobs(self.batch(examples), tokens).sum(-1)
        return self._candidates([example.question for example in examples], tokens, logprobs)

    def _candidates(self, texts: Sequence[str], tokens: Tensor, logprobs: Tensor) -> list[Candidate]:
        lengths = up_to_end(tokens, self.decoder.end).sum(-1)
        return [Candidate(*row) for row in zip(texts, logprobs.tolist(), lengths.tolist(), strict=True)]

    def batch(self, examples: Sequence[QAExample]) -> Tensors:
        """The encoded prompts of examples on the device: `input_ids` and `attention_mask`, both (b, s), and `starts`
        (b, p) where the model has language codes.
        """
        return {name: tensor.to(self.device) for name, tensor in self.encoder.batch(examples).items()}


class Decoder(ABC):
    """Decoding by the library's `generate`, up to the token `end`. Batches are those of `encoder`, and `rows` what
    `encoded` makes of them, one for each context or for each text about it.
    """

    compact = True  # whether rows that have ended leave the batch

    def __init__(self, model: PreTrainedModel, encoder: PromptEncoder, end: int) -> None:
        self.model, self.encoder, self.end = model, encoder, end

    @abstractmethod
    def encoded(self, batch: Tensors) -> Tensors:
        """What the model reads before the texts."""

    @abstractmethod
    def generate(self, rows: Tensors, **options: Any) -> Tensor:
        """The tokens (n, t) that the library's `generate` gives, without those before the text."""

    @abstractmethod
    def logits(self, rows: Tensors, tokens: Tensor) -> Tensor:
        """Logits (n, t, v) of `tokens` (n, t), a text for each row."""

    def greedy(self, batch: Tensors, max_new_tokens: int) -> Tensor:
        """Greedy tokens (b, t)."""
        return self.generate(self.encoded(batch), **GREEDY, max_new_tokens=max_new_tokens)

    def search(self, batch: Tensors, beams: int, max_new_tokens: int) -> tuple[Tensor, Tensor]:
        """Tokens (b · n, t) of all `beams` of a beam search, and the log-probability of each row."""
        rows = self.encoded(batch)
        tokens = self.generate(rows, **beam_options(beams, max_new_tokens))
        return tokens, self.logprobs(rows, tokens).sum(-1)

    def sample(self, batch: Tensors, draws: Tensor, rules: DecodingRules) -> tuple[Tensor, Tensor]:
        """Tokens (b · n, t) that `draws` (b, n, longest t) choose, and the log-probability of each row."""
        rows = _repeated(self.encoded(batch), draws.shape[1])
        drawn = LogitsProcessorList([DrawnTokens(rules.for_samples(), draws.flatten(0, 1))])
        tokens = self.generate(rows, **GREEDY, max_new_tokens=rules.max_new_tokens, logits_processor=drawn)
        return tokens, self.logprobs(rows, tokens).sum(-1)

    def token_logprobs(self, batch: Tensors, tokens: Tensor) -> Tensor:
        """Log-probability (b, t) of each of `tokens` (b, t) after those before it; 0 after the end token."""
        return self.logprobs(self.encoded(batch), tokens)

    def logprobs(self, rows: Tensors, tokens: Tensor) -> Tensor:
        """The same of `tokens` (b · n, t), n texts for each of b rows."""
        rows = _repeated(rows, len(tokens) // len(next(iter(rows.values()))))
        return token_logprobs(self.logits(rows, tokens), tokens) * up_to_end(tokens, self.end)


class EncoderDecoder(Decoder):
    """Decoding with one pass of the encoder. `engine` is `CandidateGenerator`'s; the library also finds the beams
    of models that `share_passages` does not support.

    Rows have the encoder's `states` (n, s, h), their `mask` (n, s), and `starts` (n, p), read before the questions.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: Prompt, *, engine: str = "own"
    ) -> None:
        super().__init__(model, PromptEncoder(tokenizer, prompt), SpecialTokens.of(model).end)
        self.library = engine == "library"
        self.shares_passages = not self.library and share_passages(model)

    def encoded(self, batch: Tensors) -> Tensors:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        states = encode(self.model, ids, mask)
        starts = SpecialTokens.of(self.model).starts(batch.get("starts"), states)
        return {"states": states, "mask": mask, "starts": starts}

    def greedy(self, batch: Tensors, max_new_tokens: int) -> Tensor:
        if self.library:
            return super().greedy(batch, max_new_tokens)
        decoded = self._decode(batch, DecodingRules(max_new_tokens)).greedy
        assert decoded is not None
        return decoded.tokens

    def search(self, batch: Tensors, beams: int, max_new_tokens: int) -> tuple[Tensor, Tensor]:
        if not self.shares_passages:
            return super().search(batch, beams, max_new_tokens)
        rows = self.encoded(batch)
        found = beam_search(self.model, rows["states"], rows["mask"], beams, max_new_tokens, starts=rows["starts"])
        return found.tokens, found.logprobs

    def sample(self, batch: Tensors, draws: Tensor, rules: DecodingRules) -> tuple[Tensor, Tensor]:
        if self.library:
            return super().sample(batch, draws, rules)
        decoded = self._decode(batch, rules, draws=draws, greedy=False, logprobs=True, compact=self.compact).samples
        assert decoded is not None and decoded.logprobs is not None
        return decoded.tokens, decoded.logprobs

    def _decode(self, batch: Tensors, rules: DecodingRules, **options: Any) -> Rollout:
        rows = self.encoded(batch)
        return decode(self.model, rows["states"], rows["mask"], rules, starts=rows["starts"], **options)

    def generate(self, rows: Tensors, **options: Any) -> Tensor:
        starts, encoded = rows["starts"], BaseModelOutput(last_hidden_state=rows["states"])
        options["max_new_tokens"] = within_positions(self.model, options["max_new_tokens"], starts, rows["states"])
        begun = {"decoder_input_ids": starts, "decoder_start_token_id": starts[:, 0].tolist()}
        tokens = self.model.generate(encoder_outputs=encoded, attention_mask=rows["mask"], **begun, **options)
        return tokens[:, starts.shape[1] :]

    def logits(self, rows: Tensors, tokens: Tensor) -> Tensor:
        logits = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=rows["states"]),
            attention_mask=rows["mask"],
            decoder_input_ids=shift_right(tokens, rows["starts"], SpecialTokens.of(self.model).pad),
        ).logits
        return about_labels(logits, tokens)


class CausalDecoder(Decoder):
    """Decoding after the prompt. Batches, and rows, are those of `CausalPromptEncoder`: padded on the left."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> None:
        super().__init__(model, CausalPromptEncoder(tokenizer, prompt), tokenizer.eos_token_id)

    def encoded(self, batch: Tensors) -> Tensors:
        return batch

    def generate(self, rows: Tensors, **options: Any) -> Tensor:
        options["max_new_tokens"] = within_positions(self.model, options["max_new_tokens"], read=rows["input_ids"])
        return self.model.generate(**rows, **options)[:, rows["input_ids"].shape[1] :]

    def logits(self, rows: Tensors, tokens: Tensor) -> Tensor:
        mask = torch.cat((rows["attention_mask"], torch.ones_like(tokens)), 1)
        return self.model(
            input_ids=torch.cat((rows["input_ids"], tokens), 1),
            attention_mask=mask,
            position_ids=positions_of(mask),
            logits_to_keep=tokens.shape[1] + 1,
        ).logits[:, :-1]


class DrawnTokens(LogitsProcessor):
    """Leaves `generate` one token for each row: the one that its random number in [0, 1), of `uniform` (rows, longest
    t), draws from softmax(logits) after the `rules`.
    """

    def __init__(self, rules: LogitsProcessorList, uniform: Tensor) -> None:
        self.rules, self.columns = rules, iter(uniform.unbind(1))

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits (rows, v) of which one in each row is finite."""
        chosen = choose_tokens(self.rules(input_ids, scores), next(self.columns))
        return torch.full_like(scores, -torch.inf).scatter(1, chosen.unsqueeze(-1), 0.0)


def beam_options(beams: int, max_new_tokens: int) -> dict[str, Any]:
    search = {"num_beams": beams, "num_return_sequences": beams, "do_sample": False, "early_stopping": False}
    return {"max_new_tokens": max_new_tokens, "length_penalty": 1.0, **NO_RULES, **search}


def _repeated(rows: Tensors, copies: int) -> Tensors:
    return {name: value.repeat_interleave(copies, 0) for name, value in rows.items()}


class Kept(list[Item]):
    """What is kept of the texts about one passage or unit, as written; `dropped` counts the others by reason."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped: Counter[str] = Counter()


@dataclass(frozen=True)
class WrittenPart:
    """What stands between two separators of a text. `logprob` is the sum of the log-probabilities of the part's
    `tokens` tokens after those of the parts before it (natural logarithm; the separator or end token after the part is
    included in both). `is_cut`: the text ends in this part without an end token.
    """

    text: str
    logprob: float
    tokens: int
    is_cut: bool


def text_parts(
    generator: CandidateGenerator, row: QAExample, ids: Tensor, logprobs: Tensor, separator: str
) -> list[WrittenPart]:
    """The parts between `separator` tokens, at least one, of the tokens `ids` (t,) that the generator has written for
    a row with these `logprobs` (t,).
    """
    marks = torch.tensor(generator.encoder.ids_of(separator), device=ids.device)
    ends: Sequence[int] = torch.isin(ids, marks).nonzero().flatten().tolist()
    has_end = bool((ids == generator.decoder.end).any())
    counted = up_to_end(ids, generator.decoder.end)
    parts, start = [], 0
    for end in (*ends, len(ids)):
        text = generator.encoder.decoded(ids[None, start:end], [row])[0]
        place = slice(start, end + 1)
        is_cut = end == len(ids) and not has_end
        parts.append(WrittenPart(text, float(logprobs[place].sum()), int(counted[place].sum()), is_cut))
        start = end + 1
    published = generator.encoder.format
    is_empty = len(parts) > 1 and not (parts[-1].text or parts[-1].is_cut)
    return parts[:-1] if is_empty and published and published.closed else parts
