"""Decomposable attention (DecAtt): a small classifier of two texts that aligns their words.

Source: Parikh et al., "A Decomposable Attention Model for Natural Language Inference" (EMNLP 2016), section 3. Their
word vectors are GloVe's, fixed; here they are learned with the rest, and there is no intra-sentence attention. As
there, words that the training data do not have share 100 random vectors, by a hash.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

WIDTH = 200  # of the three networks
EMBEDDING = 100
UNKNOWN = 100  # vectors of unknown words
FEWEST = 2  # times that a word is in the training texts
PADDING = 0
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class Vocabulary:
    """Numbers of words, lower case: 0 is padding, the next `UNKNOWN` are of words that the training texts lack."""

    def __init__(self, texts: Iterable[str]) -> None:
        counts = Counter(word for text in texts for word in _words(text))
        known = sorted(word for word, count in counts.items() if count >= FEWEST)
        self._number = {word: 1 + UNKNOWN + index for index, word in enumerate(known)}

    def __len__(self) -> int:
        return 1 + UNKNOWN + len(self._number)

    def numbers(self, texts: Sequence[str], longest: int) -> Tensor:
        """Words of each text, at most `longest`, padded: (texts, words)."""
        rows = [torch.tensor([self._of(word) for word in _words(text)[:longest]] or [1]) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)

    def _of(self, word: str) -> int:
        return self._number.get(word, 1 + zlib.crc32(word.encode()) % UNKNOWN)


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text.casefold())


class DecomposableAttention(nn.Module):
    """Attend, compare, aggregate (equations 1 to 5 of the paper); two classes."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, EMBEDDING, padding_idx=PADDING)
        self.project = nn.Linear(EMBEDDING, WIDTH, bias=False)
        self.attend = _network(WIDTH)
        self.compare = _network(2 * WIDTH)
        self.aggregate = nn.Sequential(_network(2 * WIDTH), nn.Linear(WIDTH, 2))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits (pairs, 2) of numbers of words (pairs, words)."""
        a, b = self.project(self.embedding(first)), self.project(self.embedding(second))
        seen_a, seen_b = (first != PADDING)[:, :, None], (second != PADDING)[:, :, None]
        aligned = self.attend(a) @ self.attend(b).transpose(1, 2)  # e, equation 1
        beta = aligned.masked_fill(~seen_b.transpose(1, 2), -torch.inf).softmax(2) @ b
        alpha = aligned.masked_fill(~seen_a, -torch.inf).softmax(1).transpose(1, 2) @ a
        of_a = (self.compare(torch.cat([a, beta], 2)) * seen_a).sum(1)
        of_b = (self.compare(torch.cat([b, alpha], 2)) * seen_b).sum(1)
        logits: Tensor = self.aggregate(torch.cat([of_a, of_b], 1))
        return logits


def _network(width: int) -> nn.Sequential:
    layers = (nn.Dropout(0.2), nn.Linear(width, WIDTH), nn.ReLU(), nn.Dropout(0.2), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(*layers)
