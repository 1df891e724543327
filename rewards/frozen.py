"""Frozen models: loaded once, never trained, run in batches of similar length."""

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING
from transformers.utils import logging as transformers_logging

from rewards.arithmetic import can_pack, pack, unpack, warn_if_slow
from rewards.errors import MetricInputError, UnreachableModel, first_line
from rewards.pretrained import ModelFault, check_tokenizer, check_weights, explained, lacking, load_weights
from rewards.signature import model_identity

logger = logging.getLogger(__name__)

# Token classifiers whose head has a tanh layer before its linear one, as the predictor of the KPQA paper: Lee et al.,
# NAACL 2021, appendix C.1 (BERT with one fully-connected layer of 768 units and tanh, then a softmax layer).

TOKEN_HEAD = "token_head"  # key of a model's `config.json`: `linear` (where it is missing too) or `tanh`
HEADS = ("linear", "tanh")


def token_classifier(config: Any) -> Any:
    """Return the class, with `from_pretrained`, of token classifiers of a configuration."""
    plain: Any = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING[type(config)]
    head = getattr(config, TOKEN_HEAD, HEADS[0])
    if head not in HEADS:
        raise ModelFault(f"its head {head!r} is not one of {', '.join(HEADS)}")
    if head == "linear":
        return plain

    class WithTanhHead(plain):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            if not isinstance(getattr(self, "classifier", None), nn.Linear):
                raise ModelFault(f"a {plain.__name__} has no linear head that one with a tanh layer could replace")
            width = config.hidden_size
            layers = {"dense": nn.Linear(width, width), "tanh": nn.Tanh(), "out": nn.Linear(width, config.num_labels)}
            self.classifier = nn.Sequential(OrderedDict(layers))
            self.post_init()  # initialises the new layers

    WithTanhHead.__name__ = WithTanhHead.__qualname__ = f"{plain.__name__}WithTanhHead"
    return WithTanhHead


# Vocabulary logits computed at a time; bounds memory for any vocabulary and batch. On a CPU more is slower, since each
# larger block needs newly allocated memory (measured: 16 MiB a third faster than 64).
LOGITS_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 26}

# Tokens times hidden size in one forward pass. On a CPU a pass of about a thousand tokens at BERT's size is the
# fastest, however many rows it has; on a GPU the bound only limits the memory of very long texts.
NUMBERS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}

_KINDS = {
    "encoder": ("AutoModel", "MASKED_LM", "a BERT-like encoder"),
    "masked": ("AutoModelForMaskedLM", "MASKED_LM", "a masked language model"),
    "causal": ("AutoModelForCausalLM", "CAUSAL_LM", "a GPT-2-like decoder"),
    "seq2seq": ("AutoModelForSeq2SeqLM", "SEQ_TO_SEQ_CAUSAL_LM", "a BART-like encoder-decoder"),
    "tagger": ("AutoModelForTokenClassification", "TOKEN_CLASSIFICATION", "a token classifier"),
    "reader": ("AutoModelForQuestionAnswering", "QUESTION_ANSWERING", "an extractive reader"),
    "regressor": ("AutoModelForSequenceClassification", "SEQUENCE_CLASSIFICATION", "a classifier of texts"),
}  # kinds of models: the library's class, the task of its list of architectures, and what messages call it

# Encoders that the library lists as causal: trained on tokens in random order, they see both sides of a token.
_READ_BOTH_WAYS = {"xlnet"}

_device: ContextVar[torch.device | None] = ContextVar("device", default=None)


class CountsCuts:
    """What reads texts that may be too long for a model."""

    truncated = 0  # how many were cut so far

    def note_cut(self, count: int, warning: str, *values: object) -> None:
        """Count texts that are cut, and log the first time that some are."""
        if count and not self.truncated:
            logger.warning(warning, *values)
        self.truncated += count

    def note_long(self, name: str, lengths: Iterable[int], limit: int) -> bool:
        """Note the texts of these lengths that are cut at so many tokens; return whether there are any."""
        cut = sum(length > limit for length in lengths)
        warning = "%s: a text is longer than %d tokens and is cut (logged once; the count is in `truncated`)"
        self.note_cut(cut, warning, name, limit)
        return cut > 0


def longest_input(model: Any, tokenizer: Any) -> int:
    """Longest sequence the position embeddings of a model allow, special tokens included."""
    limit = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    if limit <= 0:  # -1 in XLNet, which has no limit of its own
        limit = int(tokenizer.model_max_length)
    for module_name, module in model.named_modules():
        if module_name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return limit - module.padding_idx - 1  # RoBERTa: rows up to the padding index are unused
    return limit


class FrozenModel(CountsCuts):
    """A tokenizer and a model in eval mode without gradients, from a local folder or a Hub name.

    Args:
        name: local folder (``config.json``, ``*.safetensors``, tokenizer files) or Hub name.
        kind: ``encoder``, ``masked``, ``causal``, ``seq2seq``, ``tagger``, ``reader`` or ``regressor``.
        device: where to run, and where inputs and outputs are; None takes that of `loading_on`, else the current GPU
            if there is one, else the CPU.
        dtype: name of a torch floating-point type, or ``tf32`` (`rewards.base.Metric`).
        weights: a torch file (state dict) with other weights for this model.
    """

    def __init__(
        self,
        name: str | Path,
        kind: str,
        *,
        device: str | torch.device | None,
        dtype: str,
        weights: Path | None = None,
    ) -> None:
        self.name = os.path.expanduser(str(name))
        config = _load_config(self.name, kind)
        self.tokenizer: Any = load_tokenizer(self.name)
        number = getattr(torch, "float32" if dtype == "tf32" else str(dtype), None)
        if not isinstance(number, torch.dtype) or not number.is_floating_point:
            raise MetricInputError(f"dtype {dtype!r} does not exist; use float32, tf32, bfloat16 or float16")
        options: dict[str, Any] = {"attn_implementation": "eager"} if kind == "encoder" else {}
        self.model: Any = _load_model(self.name, kind, config=config, dtype=number, **options)
        if weights is not None:
            with _named(str(weights)):
                load_weights(self.model, weights)
        with _named(self.name):
            check_tokenizer(self.tokenizer)
            check_weights(self.model, self.tokenizer)
        self.device: torch.device
        self._dispatched = False
        if device is None and (device := _device.get()) is None:
            device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, TypeError) as error:  # unknown, or not in this machine
            raise MetricInputError(f"device {str(device)!r} cannot be used: {first_line(error)}") from None
        self._put(device)

    def need_special_tokens(self, metric: str) -> None:
        """Raise `MetricInputError` where a text gets no special tokens around it."""
        if self.tokenizer.cls_token_id is None or self.tokenizer.sep_token_id is None:
            raise MetricInputError(f"{metric}: {self.name!r} has no special tokens around a text; use BERT or RoBERTa")

    def to(self, device: str | torch.device) -> None:
        if torch.device(device) == self.device:
            return
        if self._dispatched:
            raise MetricInputError(
                f"{self.name!r} is distributed over devices and cannot move; build the metric again"
            )
        self._put(device)

    def plain(self) -> nn.Module:
        """Return the model with the library's own layers, not packed for the CPU."""
        unpack(self.model)
        self.model.tie_weights(recompute_mapping=False)  # packing copied the embeddings for the head
        return self.model

    def dispatch(self, device: str | torch.device, distribute: Callable[[nn.Module], object]) -> None:
        """Run on ``device`` with weights that need not all be there: ``distribute`` moves the plain model's weights,
        and ensures that a layer's are on ``device`` when it runs.
        """
        distribute(self.plain())
        self.device = torch.device(device)
        self._dispatched = True

    def _put(self, device: str | torch.device) -> None:
        """Move the model; on a CPU its linear layers get oneDNN's layout."""
        self.plain().to(device)
        self.device = self.model.device
        warn_if_slow(self.model.dtype, self.device, "dtype=float32 (reward.dtype=float32)")
        if self.device.type == "cpu" and can_pack(self.model.dtype):
            pack(self.model)
            # What is not packed is copied: loaded weights are views of their file, and one keeps all of it in memory.
            for parameter in self.model.parameters():
                parameter.data = parameter.data.clone()
            for module in self.model.modules():
                for name, buffer in module.named_buffers(recurse=False):
                    setattr(module, name, buffer.clone())

    @property
    def tokens_at_once(self) -> int:
        """Largest number of tokens in one forward pass (one row if that is longer)."""
        width = int(getattr(self.model.config, "hidden_size", None) or 768)
        return max(1, NUMBERS_AT_ONCE.get(self.device.type, 1 << 24) // width)

    @property
    def vocabulary(self) -> int:
        return int(self.model.config.vocab_size)

    @cached_property
    def max_tokens(self) -> int:
        return longest_input(self.model, self.tokenizer)

    def states(self, **inputs: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Run a language model; return hidden states [rows, length, width] and the head that turns them into logits.

        Where the logits are not the output of a module (Gemma's are capped), the states are the logits themselves.
        """
        if self._head is None:
            return self.model(**inputs).logits, lambda logits: logits
        return self.model.base_model(**inputs).last_hidden_state, getattr(self.model, self._head)

    @cached_property
    def _head(self) -> str | None:
        """Name of the module that turns hidden states into logits, found by running it; None if there is none."""
        probe = torch.arange(4, device=self.device)[None]
        with torch.inference_mode():
            wanted, hidden = self.model(probe).logits, self.model.base_model(probe)[0]
            for name in ("lm_head", "cls", "embed_out"):
                head = getattr(self.model, name, None)
                if isinstance(head, torch.nn.Module) and torch.allclose(head(hidden), wanted, atol=1e-5):
                    return name
        return None

    @cached_property
    def identity(self) -> str:
        """``name@hash``: the Hub revision, or a hash of the folder's contents."""
        return model_identity(self.name, self.model.config)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text without special tokens; a repeated text is tokenised once."""
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return []
        encoded = self.tokenizer(distinct, add_special_tokens=False, return_attention_mask=False, verbose=False)
        ids = dict(zip(distinct, encoded["input_ids"], strict=True))
        return [ids[text] for text in texts]

    def pad(self, rows: Sequence[Sequence[int]], value: int = 0) -> tuple[Tensor, Tensor]:
        """Return ids [rows, longest] padded with ``value`` on the right, and the lengths [rows]."""
        longest = max(map(len, rows))
        ids = on_device([[*row, *[value] * (longest - len(row))] for row in rows], self.device)
        return ids, on_device([len(row) for row in rows], self.device)

    def batch(self, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> dict[str, Tensor]:
        """Return the arguments of one pass: padded ids, their mask, and token types if the model has them."""
        ids, lengths = self.pad(rows, self.tokenizer.pad_token_id or 0)
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        arguments = {"input_ids": ids, "attention_mask": mask.long()}
        if types is not None and (getattr(self.model.config, "type_vocab_size", 0) or 0) > 1:
            arguments["token_type_ids"] = self.pad(types)[0]
        return arguments


@contextmanager
def loading_on(device: str | torch.device) -> Iterator[None]:
    """Load models that are built inside, of metrics that name no device, on this one."""
    before = _device.set(torch.device(device))
    try:
        yield
    finally:
        _device.reset(before)


def batches_by_length(lengths: Sequence[int], batch_size: int, max_tokens: int) -> Iterator[list[int]]:
    """Yield positions, longest first so that little is padded, in groups of at most ``batch_size`` rows and, padding
    included, ``max_tokens`` tokens (but at least one row).
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(order):
        rows = min(batch_size, max(1, max_tokens // max(1, lengths[order[start]])))
        yield order[start : start + rows]
        start += rows


def best_of_rows(values: Tensor, owners: Sequence[int], rows: int) -> Tensor:
    """Return the largest value among the pairs of each row, [rows, …], from values of pairs, [pairs, …]."""
    best = torch.full((rows, *values.shape[1:]), float("-inf"), dtype=values.dtype)
    index = torch.tensor(owners).view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    return best.scatter_reduce_(0, index, values, "amax")


def flat_positions(positions: Sequence[Sequence[int]], ids: Tensor) -> Tensor:
    """Return the indices of each row's positions among all ids, [rows, width] flattened, row after row.

    Known on the host, which would wait for the device to learn how many entries of a mask are true.
    """
    width = ids.shape[1]
    index = [row * width + position for row, of_row in enumerate(positions) for position in of_row]
    return on_device(index, ids.device)


def on_device(numbers: Any, device: torch.device) -> Tensor:
    """Return whole numbers as a tensor on a device; the host does not wait for what runs there."""
    return torch.tensor(numbers, dtype=torch.long).to(device, non_blocking=True)


def target_logprobs(
    head: Callable[[Tensor], Tensor], hidden: Tensor, targets: Tensor, *, vocabulary: int, exact: bool = False
) -> Tensor:
    """Return log p(target) of token ids [positions] from hidden states [positions, width], applying the head in
    chunks.

    ``exact`` normalises in float64, which the difference of two close probabilities needs, and takes several times as
    long; logarithms in float32 are off by up to 1e-6.
    """
    parts = []
    size = max(1, LOGITS_AT_ONCE.get(hidden.device.type, 1 << 24) // vocabulary)
    for states, ids in zip(hidden.split(size), targets.split(size), strict=True):
        logits = head(states).to(torch.float64 if exact else torch.float32)
        parts.append(logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1))
    return torch.cat(parts)


def causal_logprobs(
    lm: FrozenModel, rows: Sequence[list[int]], starts: Sequence[int], *, batch_size: int, exact: bool = False
) -> list[Tensor]:
    """Return, per row, log p(token | tokens before it) for the tokens from ``start`` on (float64, on the CPU).

    Rows must begin with a token that is not scored. Padding is on the right, where causal attention ignores it.
    ``exact`` as in `target_logprobs`.
    """
    scores: list[Tensor] = [torch.empty(0)] * len(rows)
    for batch in batches_by_length([len(row) for row in rows], batch_size, lm.tokens_at_once):
        ids, _ = lm.pad([rows[at] for at in batch])
        hidden, head = lm.states(input_ids=ids, use_cache=False)
        read = [range(max(1, starts[at]), len(rows[at])) for at in batch]
        index = flat_positions(read, ids)
        states, targets = hidden.flatten(0, 1)[index - 1], ids.flatten()[index]
        logprobs = target_logprobs(head, states, targets, vocabulary=lm.vocabulary, exact=exact).cpu().double()
        for at, values in zip(batch, logprobs.split([*map(len, read)]), strict=True):
            scores[at] = values
    return scores


def _load_config(name: str, kind: str) -> Any:
    _, task, what = _KINDS[kind]
    mapping = getattr(transformers, f"MODEL_FOR_{task}_MAPPING")
    folder = Path(name)
    if folder.is_absolute() or name.startswith((".", "~")) or folder.exists():
        fault = "" if folder.is_dir() else "does not exist"
        for part, pattern in {"config.json": "config.json", "safetensors weights": "*.safetensors"}.items():
            if not fault and not any(path.is_file() for path in folder.glob(pattern)):
                fault = f"has no {part}"
        if fault:
            raise MetricInputError(f"model folder {name!r} {fault}; give a folder with {what}, or a Hub name")
    config = _load("configuration", name, transformers.AutoConfig)
    both_ways = type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING or config.model_type in _READ_BOTH_WAYS
    ahead = kind == "causal" and both_ways and not getattr(config, "is_decoder", False)  # it sees later tokens
    fits = both_ways if kind == "encoder" else type(config) in mapping and not ahead
    if not fits or (kind != "seq2seq" and config.is_encoder_decoder):
        raise MetricInputError(f"{name!r} holds a model of type {config.model_type!r}; {what} is needed")
    return config


def _load_model(name: str, kind: str, **options: Any) -> Any:
    name_of_class, _, what = _KINDS[kind]
    auto: Any = getattr(transformers, name_of_class)
    if kind == "tagger":
        with _named(name):
            auto = token_classifier(options["config"])
    with quiet():  # missing weights are checked here
        model, report = _load("weights", name, auto, use_safetensors=True, output_loading_info=True, **options)
    if missing := [key for key in lacking(model, report) if not key.startswith("pooler.")]:
        raise MetricInputError(f"{name!r} lacks the weights {missing[0]!r} (of {len(missing)}); {what} is needed")
    return model.eval().requires_grad_(False)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library from its loading bar, and from reporting heads that are new or unused."""
    level, bar = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bar:
            transformers_logging.enable_progress_bar()


def load_tokenizer(name: str | Path) -> Any:
    return _load("tokenizer", os.path.expanduser(str(name)), transformers.AutoTokenizer)


def _load(part: str, name: str, auto: Any, **options: Any) -> Any:
    """Call the ``from_pretrained`` of a class; its errors for a bad name or folder become one line."""
    try:
        with explained(name):
            return auto.from_pretrained(name, trust_remote_code=False, **options)
    except ModelFault as fault:
        if Path(name).is_dir() or not fault.unreachable:
            raise MetricInputError(f"cannot load the {part} of {name!r}: {fault}") from fault
        raise UnreachableModel(  # the errors of the libraries, a page of them, say no more
            f"cannot load the {part} of {name!r}: there is no such folder, and the Hugging Face Hub has no such model "
            f"or cannot be reached ({fault}); offline, name a local folder"
        ) from None


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except ModelFault as fault:
        raise MetricInputError(f"{name!r} cannot be used: {fault}") from None
