"""Token embeddings of texts: what BERTScore, MoverScore and BERTScore-KPQA compare."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rewards.base import Pair
from rewards.errors import MetricInputError, number, one_of, path_of
from rewards.frozen import CountsCuts, FrozenModel, batches_by_length

NUMBERS_AT_ONCE = 1 << 26  # in embeddings (256 MiB in float32); a text needed later is encoded again
TEXTS_AT_ONCE = 1024  # whose states are held until their means are taken


@dataclass(frozen=True)
class Tokens:
    """The tokens of one text between the special tokens of its encoder."""

    ids: list[int]  # token ids, the special tokens at both ends included
    words: list[int]  # for each token between the special tokens the number of the word it belongs to

    @property
    def is_empty(self) -> bool:
        return len(self.ids) == 2


@dataclass(frozen=True)
class Embedded:
    """One text with its hidden states."""

    tokens: Tokens
    states: Tensor  # hidden states [layers, tokens with special tokens, width] in float32, on the encoder's device


class TextEncoder(CountsCuts):
    """Embeds each distinct text in one forward pass: ``<cls> text <sep>``, cut at the encoder's length with both
    special tokens kept. ``layers`` are those whose outputs are used, from 1; 0 is the embedding layer.

    White space at the ends of a text does not count. Byte-level vocabularies (RoBERTa) read it after a space, so that
    its first word is the same token as inside a sentence, as in bert-score.
    """

    def __init__(self, encoder: FrozenModel, layers: Sequence[int], *, batch_size: int, name: str) -> None:
        depth = int(encoder.model.config.num_hidden_layers)
        self.layers = tuple(int(number(name, "layer", one, low=0, high=depth, whole=True)) for one in layers)
        encoder.need_special_tokens(name)
        self.encoder, self.name = encoder, name
        self.batch_size = batch_size
        backend = getattr(encoder.tokenizer, "backend_tokenizer", None)
        self._lead = " " if "ByteLevel" in repr(getattr(backend, "pre_tokenizer", None)) else ""
        self._is_last = len(layers) == 1 and self.layers[0] > 0 and _remove_above(encoder, self.layers[0])

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        if not texts:
            return []
        tokenizer = self.encoder.tokenizer
        encoded = tokenizer(
            [self._lead + text.strip() if text.strip() else "" for text in texts],
            add_special_tokens=False,
            return_attention_mask=False,
            verbose=False,
        )
        tokens, room = [], self.encoder.max_tokens - 2
        self.note_long(self.name, map(len, encoded["input_ids"]), room)
        for row, ids in enumerate(encoded["input_ids"]):
            cut = self.marked(ids[:room])
            tokens.append(replace(cut, words=encoded.word_ids(row)[:room]) if tokenizer.is_fast else cut)
        return tokens

    def marked(self, ids: Sequence[int]) -> Tokens:
        """Return token ids as one text in which each token is a word."""
        tokenizer = self.encoder.tokenizer
        return Tokens([tokenizer.cls_token_id, *ids, tokenizer.sep_token_id], list(range(len(ids))))

    def blocks(
        self, pairs: Sequence[Pair], tokens: Mapping[str, Tokens] | None = None
    ) -> Iterator[tuple[list[int], dict[str, Embedded]]]:
        """Yield the positions of all pairs in order, with their texts' embeddings, in blocks of bounded memory."""
        if tokens is None:
            texts = list(dict.fromkeys(text for pair in pairs for text in pair))
            tokens = dict(zip(texts, self.tokens(texts), strict=True))

        def embedded(texts: Mapping[str, Tokens]) -> dict[str, Embedded]:
            states = self.states([item.ids for item in texts.values()])
            return {text: Embedded(item, state) for (text, item), state in zip(texts.items(), states, strict=True)}

        most = NUMBERS_AT_ONCE // (int(getattr(self.encoder.model.config, "hidden_size", 768)) * len(self.layers))
        block: list[int] = []
        pending: dict[str, Tokens] = {}
        size = 0  # tokens
        for position, pair in enumerate(pairs):
            if block and size + sum(len(tokens[text].ids) for text in {*pair} - pending.keys()) > most:
                yield block, embedded(pending)
                block, pending, size = [], {}, 0
            size += sum(len(tokens[text].ids) for text in {*pair} - pending.keys())
            pending |= {text: tokens[text] for text in pair}
            block.append(position)
        if block:
            yield block, embedded(pending)

    def states(self, rows: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the hidden states [layers, tokens, width] of each row of token ids, float32."""
        states: list[Tensor] = [torch.empty(0)] * len(rows)
        tokens = max(1, self.encoder.tokens_at_once)
        for batch in batches_by_length([len(row) for row in rows], self.batch_size, tokens):
            arguments = self.encoder.batch([rows[at] for at in batch])
            if self._is_last:
                hidden = self.encoder.model(**arguments).last_hidden_state.float()[None]
            else:
                every = self.encoder.model(**arguments, output_hidden_states=True).hidden_states
                hidden = torch.stack([every[number] for number in self.layers]).float()
            for index, at in enumerate(batch):
                states[at] = hidden[:, index, : len(rows[at])]
        return states


class SentenceEncoder(TextEncoder):
    """Turns texts into vectors of length 1: the mean of the last layer's states, special tokens included, as
    sentence-transformers does by default (Reimers and Gurevych, EMNLP 2019).
    """

    def __init__(self, encoder: FrozenModel, *, batch_size: int, name: str) -> None:
        super().__init__(encoder, [int(encoder.model.config.num_hidden_layers)], batch_size=batch_size, name=name)

    @torch.inference_mode()
    def vectors(self, texts: Sequence[str]) -> Tensor:
        """Return the vectors of texts, [texts, width], float32 on the CPU; of none [0, width]."""
        rows = [item.ids for item in self.tokens(texts)]
        found = torch.empty(len(rows), int(self.encoder.model.config.hidden_size))
        for start in range(0, len(rows), TEXTS_AT_ONCE):
            for at, states in enumerate(self.states(rows[start : start + TEXTS_AT_ONCE]), start):
                found[at] = states[0].mean(0).cpu()
        return normalize(found, dim=-1)

    def search(self, passages: Sequence[str]) -> Callable[[Sequence[str]], Any]:
        """A function from questions to their cosines with the passages, float32 [questions, passages]."""
        of_passages = cache(lambda: self.vectors(passages))  # made when something is asked
        return lambda questions: (self.vectors(questions) @ of_passages().T).numpy()


class WordWeights:
    """Weights of tokens by how rare they are in a collection of texts (inverse document frequency).

    ``idf(w) = log((M + 1) / (c(w) + 1))``, with c(w) of the M texts containing w (Zhang et al. 2020, section 3,
    plus-one smoothing as in bert-score and MoverScore). A special token is in every text and weighs 0. A text all of
    whose tokens weigh 0 gets equal weights, where the released codes divide by 0.

    Args:
        source: the texts, usually all references of a test set, or a file with one per line; None for no idf.
        encoder: its tokens are counted.
        marks: weight of the special tokens without idf: 0 in BERTScore, 1 in MoverScore.
        name: of the metric, for messages.
    """

    def __init__(
        self, source: Sequence[str] | str | Path | None, encoder: TextEncoder, *, marks: float, name: str
    ) -> None:
        self._marks = marks
        self._counts: Counter[int] = Counter()
        self._texts = 0
        self.description = "none"  # for the signature; else the number of texts and a hash of them
        if source is None:
            return
        if isinstance(source, str | Path):
            try:
                text = path_of(name, "idf", source).read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise MetricInputError(
                    f"{name}: idf={str(source)!r} cannot be read ({error}); give a text file with one per line"
                ) from None
            source = [line for line in text.split("\n") if line.strip()]  # splitlines cuts at U+2028, form feeds
        if not isinstance(source, Sequence) or not all(isinstance(text, str) for text in source):
            raise MetricInputError(
                f"{name}: idf={source!r:.40} is not a list of texts; give one, or a text file with one per line"
            )
        texts = list(source)
        if not texts:
            raise MetricInputError(f"{name}: idf has no text; give the references of a whole test set, or null")
        for start in range(0, len(texts), 4096):
            for tokens in encoder.tokens(texts[start : start + 4096]):
                self._counts.update(set(tokens.ids))
        encoder.truncated = 0  # counts the texts that are scored, not those of idf
        self._texts = len(texts)
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
        self.description = f"{len(texts)}@{digest}"

    def __call__(self, tokens: Tokens) -> Tensor:
        """Return one weight for each token of a text, special tokens included (float32); all 0 for an empty text."""
        if tokens.is_empty:
            return torch.zeros(2)
        even = torch.tensor([self._marks, *[1.0] * (len(tokens.ids) - 2), self._marks])
        if not self._texts:
            return even
        weights = [math.log((self._texts + 1) / (self._counts[token] + 1)) for token in tokens.ids]
        return torch.tensor(weights) if any(weights) else even


def needs_of(against: str, name: str) -> frozenset[str]:
    """Return the columns of a metric that compares questions with ``"references"`` or with the ``"context"``."""
    one_of(name, "against", against, ("references", "context"))
    return frozenset({"contexts" if against == "context" else "references"})


@torch.inference_mode()
def _remove_above(encoder: FrozenModel, layer: int) -> bool:
    """Remove the layers that are not used; return whether the encoder's output is now that of ``layer``.

    This is tested by running it: some encoders share one layer, or compute more after the last one.
    """
    probe: dict[str, Any] = {"input_ids": torch.arange(4, device=encoder.device)[None]}
    wanted = encoder.model(**probe, output_hidden_states=True).hidden_states[layer]

    def agrees() -> bool:
        return torch.allclose(encoder.model(**probe).last_hidden_state, wanted, atol=1e-5)

    depth = encoder.model.config.num_hidden_layers
    if layer == depth:
        return agrees()
    for module in encoder.model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            dropped = list(module[layer:])
            del module[layer:]
            with suppress(IndexError, KeyError):  # it needs all of its layers
                if agrees():
                    return True
            module.extend(dropped)
            break
    return False
