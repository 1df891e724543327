"""The question generator at inference: decode questions for examples, or the texts of rows of other tasks.

Encoder-decoders (BART, T5, …) and causal models (GPT-2, Qwen, …) have the same interface, `CandidateGenerator`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from rewards.arithmetic import STEP, can_pack, pack, warn_if_slow
from rl_qg.data.examples import QAExample
from rl_qg.generation.beam_search import beam_search
from rl_qg.generation.decoding import DecodingRules, SpecialTokens, choose_tokens, decode, uniform_draws
from rl_qg.generation.loading import load_generator
from rl_qg.generation.logprobs import about_labels, shift_right, token_logprobs
from rl_qg.generation.prompts import CausalPromptEncoder, Prompt, PromptEncoder, add_highlight, positions_of
from rl_qg.generation.sharing import share_passages

LENGTH_STEP = 32  # tokens, see `CandidateGenerator.is_independent`
ALIGNMENT = 64  # bytes, as in memory that PyTorch allocates
# Switches off the decoding rules that the generation config of a checkpoint may contain.
NO_RULES: dict[str, Any] = {
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "min_length": 0,
}
# `generate` takes the most likely token; for samples, `DrawnTokens` leaves it only one.
GREEDY: dict[str, Any] = {"num_beams": 1, "do_sample": False, **NO_RULES}


@dataclass(frozen=True)
class Candidate:
    """A generated question, or text of another task, the sum of its tokens' log-probabilities (natural logarithm) and
    their number, the end token included in both.
    """

    question: str
    logprob: float
    tokens: int = 0


class CandidateGenerator:
    """A generator in eval mode on one device.

    Args:
        path: its folder, or its name on the Hub.
        device: where it runs.
        dtype: of its weights; probabilities are computed in float32 in any case.
        rows: how many questions it decodes at a time. From 64 on the linear layers of a CPU are packed
            (`rewards.arithmetic`), which changes values only by rounding.
        engine: "own" (beams share the encoded passage) or "library" (`generate` of transformers). Causal models always
            use the library.
        independent: whether what is decoded for an example shall not depend on the other examples of its batch, to the
            last digit, on a CPU. Where that can be had (`is_independent`), it holds for inputs that are padded to the
            same length, a multiple of `LENGTH_STEP` tokens or the longest input: all linear layers are packed, so that
            a row is always multiplied alike, and rows that have ended stay in the batch.
        language: of examples that name none, for models with language codes; None: the one it was trained with.

    `task` is what the model was trained for (`rl_qg.generation.tasks.TASKS`).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        rows: int = 1,
        engine: str = "own",
        independent: bool = False,
        language: str | None = None,
    ) -> None:
        model, self.tokenizer = load_generator(str(path))
        prompt = Prompt.of(path, model)
        if language is not None:
            prompt = replace(prompt, language=language)
        add_highlight(self.tokenizer, model, prompt.task)
        self.task = prompt.task
        self.model = model.to(device, dtype).eval()
        _align(self.model)
        warn_if_slow(dtype, device, "generate.precision=no")
        if device.type == "cpu" and (rows >= STEP or independent) and can_pack(self.model):
            pack(self.model, every=independent)
        self.device = device
        self.decoder: EncoderDecoder | CausalDecoder
        if model.config.is_encoder_decoder:
            self.decoder = EncoderDecoder(self.model, self.tokenizer, prompt, engine=engine)
        else:
            self.decoder = CausalDecoder(self.model, self.tokenizer, prompt)
        self.encoder = self.decoder.encoder
        self._independent = independent and self._make_independent()

    @property
    def is_independent(self) -> bool:
        """Whether examples of one length do not depend on each other. Only with one thread: several divide a product
        by its number of rows (measured: with two, most log-probabilities differ in their last digits).
        """
        return self._independent and torch.get_num_threads() == 1

    def _make_independent(self) -> bool:
        """Pad inputs to full lengths and keep rows that have ended; whether that makes examples independent."""
        packed = not any(type(module) is torch.nn.Linear for module in self.model.modules())
        if not packed or not isinstance(self.decoder, EncoderDecoder) or not self.decoder.shares_passages:
            return False
        self.decoder.compact, self.encoder.multiple = False, LENGTH_STEP
        return True

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
        given.

        The decoding rules of a checkpoint's generation config (n-gram blocking, forced tokens, length penalty) are
        switched off. Samples are drawn with random numbers that depend on `seed` and the example's id: they do not
        depend on the other examples.
        """
        batch = self.batch(examples)
        if top_p is None:
            tokens, logprobs = self.decoder.search(batch, count, max_new_tokens)
        else:
            draws = uniform_draws([example.id for example in examples], count, max_new_tokens, seed=seed, step=0)
            rules = DecodingRules(max_new_tokens, top_p=top_p, temperature=temperature)
            tokens, logprobs = self.decoder.sample(batch, draws.to(self.device), rules)
        lengths = up_to_end(tokens, self.decoder.end).sum(-1)
        rows = [
            Candidate(text, value, length)
            for text, value, length in zip(
                self.encoder.decoded(tokens, examples), logprobs.tolist(), lengths.tolist(), strict=True
            )
        ]
        groups = [rows[start : start + count] for start in range(0, len(rows), count)]
        return [sorted(group, key=lambda candidate: -candidate.logprob) if top_p else group for group in groups]

    @torch.inference_mode()
    def likelihoods(self, examples: Sequence[QAExample]) -> list[Candidate]:
        """The question of each example as if the model had generated it; one batch."""
        targets = [torch.tensor(ids) for ids in self.encoder.targets(examples)]
        end = self.decoder.end
        tokens = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=end).to(self.device)
        logprobs = self.decoder.token_logprobs(self.batch(examples), tokens).sum(-1)
        return [
            Candidate(example.question, value, length)
            for example, value, length in zip(
                examples, logprobs.tolist(), up_to_end(tokens, end).sum(-1).tolist(), strict=True
            )
        ]

    def batch(self, examples: Sequence[QAExample]) -> dict[str, Tensor]:
        """The encoded prompts of examples on the device: `input_ids` and `attention_mask`, both (b, s), and `starts`
        (b, p) where the model has language codes.
        """
        return {name: tensor.to(self.device) for name, tensor in self.encoder.batch(examples).items()}


class EncoderDecoder:
    """Decoding with one pass of the encoder. Batches are those of `PromptEncoder`; `engine` is `CandidateGenerator`'s.

    The library is also used for the beams of models that `share_passages` does not support.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: Prompt, *, engine: str = "own"
    ) -> None:
        self.model = model
        self.encoder = PromptEncoder(tokenizer, prompt)
        self.end = SpecialTokens.of(model).end
        self.library = engine == "library"
        self.compact = True
        self.shares_passages = not self.library and share_passages(model)

    def greedy(self, batch: dict[str, Tensor], max_new_tokens: int) -> Tensor:
        """Greedy tokens (b, t)."""
        states, mask, starts = self._encoded(batch)
        if self.library:
            return self._generate(states, mask, starts, **GREEDY, max_new_tokens=max_new_tokens)
        decoded = decode(self.model, states, mask, DecodingRules(max_new_tokens), starts=starts).greedy
        assert decoded is not None
        return decoded.tokens

    def search(self, batch: dict[str, Tensor], beams: int, max_new_tokens: int) -> tuple[Tensor, Tensor]:
        """Tokens (b · n, t) of all `beams` of a beam search, and the log-probability of each row."""
        states, mask, starts = self._encoded(batch)
        if self.shares_passages:
            result = beam_search(self.model, states, mask, beams, max_new_tokens, starts=starts)
            return result.tokens, result.logprobs
        tokens = self._generate(states, mask, starts, **beam_options(beams, max_new_tokens))
        return tokens, self.logprobs(states, mask, tokens, starts)

    def sample(self, batch: dict[str, Tensor], draws: Tensor, rules: DecodingRules) -> tuple[Tensor, Tensor]:
        """Tokens (b · n, t) that `draws` (b, n, longest t) choose, and the log-probability of each row."""
        states, mask, starts = self._encoded(batch)
        if not self.library:
            options: dict[str, Any] = {"greedy": False, "logprobs": True, "compact": self.compact, "starts": starts}
            decoded = decode(self.model, states, mask, rules, draws=draws, **options).samples
            assert decoded is not None and decoded.logprobs is not None
            return decoded.tokens, decoded.logprobs
        repeated = [value.repeat_interleave(draws.shape[1], 0) for value in (states, mask, starts)]
        drawn = DrawnTokens(rules.for_samples(), draws.flatten(0, 1), start=starts.shape[1])
        tokens = self._generate(
            *repeated,
            **GREEDY,
            max_new_tokens=rules.max_new_tokens,
            logits_processor=LogitsProcessorList([drawn]),
        )
        return tokens, self.logprobs(states, mask, tokens, starts)

    def token_logprobs(self, batch: dict[str, Tensor], tokens: Tensor) -> Tensor:
        """Log-probability (b, t) of each of `tokens` (b, t) after those before it; 0 after the end token."""
        states, mask, starts = self._encoded(batch)
        return self._token_logprobs(states, mask, tokens, starts)

    def logprobs(self, states: Tensor, mask: Tensor, tokens: Tensor, starts: Tensor | None = None) -> Tensor:
        """Log-probability of each row of `tokens` (b · n, t) under the model, n rows for each of b contexts with the
        encoder's `states` (b, s, h) and `mask` (b, s), after `starts` (b, p), by default the start token.
        """
        starts = SpecialTokens.of(self.model).starts(starts, states)
        return self._token_logprobs(states, mask, tokens, starts).sum(-1)

    def _token_logprobs(self, states: Tensor, mask: Tensor, tokens: Tensor, starts: Tensor) -> Tensor:
        special, copies = SpecialTokens.of(self.model), len(tokens) // len(states)
        logits = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states.repeat_interleave(copies, 0)),
            attention_mask=mask.repeat_interleave(copies, 0),
            decoder_input_ids=shift_right(tokens, starts.repeat_interleave(copies, 0), special.pad),
        ).logits
        return _to_end(token_logprobs(about_labels(logits, tokens), tokens), tokens, special.end)

    def _encoded(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The encoder's output (b, s, h), its mask (b, s), and what the decoder reads before the questions (b, p)."""
        ids, mask = batch["input_ids"], batch["attention_mask"]
        states = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return states, mask, SpecialTokens.of(self.model).starts(batch.get("starts"), states)

    def _generate(self, states: Tensor, mask: Tensor, starts: Tensor, **options: Any) -> Tensor:
        encoded = BaseModelOutput(last_hidden_state=states)
        begun = {"decoder_input_ids": starts, "decoder_start_token_id": starts[:, 0].tolist()}
        return self.model.generate(encoder_outputs=encoded, attention_mask=mask, **begun, **options)[
            :, starts.shape[1] :
        ]


class CausalDecoder:
    """Decoding after the prompt. Batches are those of `CausalPromptEncoder`: padded on the left."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> None:
        self.model = model
        self.encoder = CausalPromptEncoder(tokenizer, prompt)
        self.end = tokenizer.eos_token_id

    def greedy(self, batch: dict[str, Tensor], max_new_tokens: int) -> Tensor:
        tokens = self.model.generate(**batch, **GREEDY, max_new_tokens=max_new_tokens)
        return tokens[:, batch["input_ids"].shape[1] :]

    def search(self, batch: dict[str, Tensor], beams: int, max_new_tokens: int) -> tuple[Tensor, Tensor]:
        tokens = self.model.generate(**batch, **beam_options(beams, max_new_tokens))
        return self._with_logprobs(_repeated(batch, beams), tokens)

    def sample(self, batch: dict[str, Tensor], draws: Tensor, rules: DecodingRules) -> tuple[Tensor, Tensor]:
        rows = _repeated(batch, draws.shape[1])
        start = batch["input_ids"].shape[1]
        drawn = LogitsProcessorList([DrawnTokens(rules.for_samples(), draws.flatten(0, 1), start)])
        tokens = self.model.generate(**rows, **GREEDY, max_new_tokens=rules.max_new_tokens, logits_processor=drawn)
        return self._with_logprobs(rows, tokens)

    def _with_logprobs(self, rows: dict[str, Tensor], whole: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens after the prompts, and the log-probability of each row under the model."""
        tokens = whole[:, rows["input_ids"].shape[1] :]
        return tokens, self.token_logprobs(rows, tokens).sum(-1)

    def token_logprobs(self, batch: dict[str, Tensor], tokens: Tensor) -> Tensor:
        return _to_end(token_logprobs(self.logits(batch, tokens), tokens), tokens, self.end)

    def logits(self, batch: dict[str, Tensor], tokens: Tensor) -> Tensor:
        """Logits (b, t, v) of the question `tokens` (b, t) after their prompts."""
        mask = torch.cat((batch["attention_mask"], torch.ones_like(tokens)), 1)
        return self.model(
            input_ids=torch.cat((batch["input_ids"], tokens), 1),
            attention_mask=mask,
            position_ids=positions_of(mask),
            logits_to_keep=tokens.shape[1] + 1,
        ).logits[:, :-1]


class DrawnTokens(LogitsProcessor):
    """Leaves `generate` one token for each row: the one that the row's random number draws from softmax(logits).

    Args:
        rules: are applied to the logits first.
        uniform: (rows, longest t) random numbers in [0, 1).
        start: number of tokens before the first generated one.
    """

    def __init__(self, rules: LogitsProcessorList, uniform: Tensor, start: int) -> None:
        self.rules = rules
        self.uniform = uniform
        self.start = start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits (rows, v) of which one in each row is finite."""
        chosen = choose_tokens(self.rules(input_ids, scores), self.uniform[:, input_ids.shape[1] - self.start])
        return torch.full_like(scores, -torch.inf).scatter(1, chosen.unsqueeze(-1), 0.0)


def beam_options(beams: int, max_new_tokens: int) -> dict[str, Any]:
    search = {"num_beams": beams, "num_return_sequences": beams, "do_sample": False, "early_stopping": False}
    return {"max_new_tokens": max_new_tokens, "length_penalty": 1.0, **NO_RULES, **search}


def _align(model: PreTrainedModel) -> None:
    """Copy weights that are mapped from a file at an address which is not aligned.

    The last digits of a matrix product depend on the alignment, and the library maps weights from the file only in
    runs with one process: without this, several processes would write other values.
    """
    for weight in model.parameters():
        if weight.data_ptr() % ALIGNMENT:
            weight.data = weight.data.clone()


def _repeated(batch: dict[str, Tensor], copies: int) -> dict[str, Tensor]:
    return {name: value.repeat_interleave(copies, 0) for name, value in batch.items()}


def up_to_end(tokens: Tensor, end: int) -> Tensor:
    """Which of the tokens (rows, t) are not after the first end token."""
    return (tokens == end).cumsum(-1) - (tokens == end).int() == 0


def _to_end(logprobs: Tensor, tokens: Tensor, end: int) -> Tensor:
    """The tokens' log-probabilities (rows, t) up to and including the first end token, and 0 after it."""
    return logprobs * up_to_end(tokens, end)


# Generated texts of several parts: the text, the log-probability and the tokens of each part.


@dataclass(frozen=True)
class WrittenPart:
    """What stands between two separators. `logprob` is the sum of the log-probabilities of the part's `tokens` tokens
    after those of the parts before it (natural logarithm; the separator or end token after the part is included in
    both). `is_cut`: the text ends in this part without an end token.
    """

    text: str
    logprob: float
    tokens: int
    is_cut: bool


def text_parts(
    generator: CandidateGenerator, row: QAExample, ids: Tensor, logprobs: Tensor, separator: str
) -> list[WrittenPart]:
    """The parts of a text that the generator has written for a row; at least one.

    Args:
        generator: that has written it.
        row: that it was written for.
        ids: its tokens (t,).
        logprobs: their log-probabilities (t,).
        separator: the token between parts.
    """
    ends: Sequence[int] = (ids == generator.tokenizer.convert_tokens_to_ids(separator)).nonzero().flatten().tolist()
    has_end = bool((ids == generator.decoder.end).any())
    counted = up_to_end(ids, generator.decoder.end)
    parts, start = [], 0
    for end in (*ends, len(ids)):
        text = generator.encoder.decoded(ids[None, start:end], [row])[0]
        place = slice(start, end + 1)
        is_cut = end == len(ids) and not has_end
        parts.append(WrittenPart(text, float(logprobs[place].sum()), int(counted[place].sum()), is_cut))
        start = end + 1
    return parts
