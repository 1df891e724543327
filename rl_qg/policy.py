"""The question generator at inference: load a checkpoint, decode questions for examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from rl_qg.errors import InputError
from rl_qg.objectives import shift_right, token_logprobs
from rl_qg.prompts import Prompt, PromptEncoder, add_highlight
from rl_qg.qa_data import QAExample
from rl_qg.rollout import SpecialTokens, decode


def load_seq2seq(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load any `AutoModelForSeq2SeqLM` with its tokenizer, from a local folder or the Hub (safetensors only).

    Raises:
        InputError: the Hub or the folder cannot be reached, or holds no seq2seq model.
    """
    if Path(path).exists() and not (Path(path) / "config.json").exists():
        raise InputError(
            f"model.path={path}: no model folder (it has no config.json); name one that save_pretrained wrote"
        )
    try:
        config = AutoConfig.from_pretrained(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"model.path={path}: could not be reached ({_first_line(error)}); "
            "offline, name a local folder with model.path=FOLDER or run preset=quickstart"
        ) from None
    try:
        model = AutoModelForSeq2SeqLM.from_pretrained(path, config=config, use_safetensors=True, dtype=torch.float32)
    except ValueError:
        raise InputError(
            f"model.path={path}: a {config.model_type} model is no seq2seq model; name one such as BART or T5"
        ) from None
    except OSError as error:
        raise InputError(f"model.path={path}: weights cannot be loaded ({_first_line(error)})") from None
    if model.generation_config.decoder_start_token_id is None:
        model.generation_config.decoder_start_token_id = config.decoder_start_token_id or tokenizer.cls_token_id
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        model.generation_config.eos_token_id = tokenizer.sep_token_id
    return model, tokenizer


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


@dataclass(frozen=True)
class Candidate:
    """A generated question and the sum of its tokens' log-probabilities (natural logarithm, end token included)."""

    question: str
    logprob: float


class Policy:
    """A generator in eval mode on one device."""

    def __init__(self, path: str | Path, *, device: torch.device) -> None:
        model, self.tokenizer = load_seq2seq(str(path))
        add_highlight(self.tokenizer, model)
        self.model = model.to(device).eval()
        self.device = device
        self.encoder = PromptEncoder(self.tokenizer, Prompt.of(path, model))

    @torch.inference_mode()
    def greedy(self, examples: Sequence[QAExample], *, max_new_tokens: int) -> list[str]:
        """The greedy question of each example; one batch."""
        states, mask = self._encode(examples)
        decoded, _ = decode(self.model, states, mask, draws=None, max_new_tokens=max_new_tokens)
        return self._texts(decoded.tokens)

    @torch.inference_mode()
    def candidates(
        self,
        examples: Sequence[QAExample],
        count: int,
        *,
        max_new_tokens: int,
        top_p: float | None,
        temperature: float,
    ) -> list[list[Candidate]]:
        """`count` questions for each example, best first: every output of a beam search, or nucleus samples when
        `top_p` is given.

        The rules that a checkpoint's generation config may ship (n-gram blocking, forced tokens, length penalty) are
        switched off. Samples come from torch's global generator, which the caller seeds.
        """
        states, mask = self._encode(examples)
        search = (
            {"num_beams": count, "do_sample": False, "length_penalty": 1.0, "early_stopping": False}
            if top_p is None
            else {
                "num_beams": 1,
                "do_sample": True,
                "top_k": 0,
                "top_p": top_p,
                "temperature": temperature,
                "early_stopping": None,
            }
        )
        sequences = self.model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            num_return_sequences=count,
            max_new_tokens=max_new_tokens,
            no_repeat_ngram_size=0,
            repetition_penalty=1.0,
            forced_bos_token_id=None,
            forced_eos_token_id=None,
            **search,
        )[:, 1:]
        logprobs = self._logprobs(states.repeat_interleave(count, 0), mask.repeat_interleave(count, 0), sequences)
        texts = self._texts(sequences)
        rows = [Candidate(text, logprob) for text, logprob in zip(texts, logprobs.tolist(), strict=True)]
        groups = [rows[start : start + count] for start in range(0, len(rows), count)]
        return [sorted(group, key=lambda candidate: -candidate.logprob) if top_p else group for group in groups]

    def _encode(self, examples: Sequence[QAExample]) -> tuple[Tensor, Tensor]:
        batch = {name: tensor.to(self.device) for name, tensor in self.encoder.batch(examples).items()}
        return self.model.get_encoder()(**batch).last_hidden_state, batch["attention_mask"]

    def _logprobs(self, states: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
        special = SpecialTokens.of(self.model)
        logits = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            decoder_input_ids=shift_right(tokens, special.start, special.pad),
        ).logits
        ended = (tokens == special.end).cumsum(-1) - (tokens == special.end).int() > 0
        return (token_logprobs(logits, tokens) * ~ended).sum(-1)

    def _texts(self, tokens: Tensor) -> list[str]:
        return [text.strip() for text in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]
