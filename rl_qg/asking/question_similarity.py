"""How alike the questions of a passage are, and how much of its sentences they cover: arrays for set selection."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from rewards.embedding.token_embeddings import TextEncoder
from rewards.frozen import FrozenModel
from rl_qg.asking.set_selection import Floats
from rl_qg.text.words import normalised_words

Similarity = Callable[[Sequence[str]], Floats]
"""From n questions to (n, n), symmetric, in [0, 1], with ones on the diagonal."""

WORDS = "words"


def word_similarity(questions: Sequence[str]) -> Floats:
    """Jaccard similarity of the sets of words: shared words over all words of both. It is positive semidefinite
    (Gower, "A general coefficient of similarity and some of its properties", 1971).
    """
    sets = _incidence([normalised_words(question) for question in questions])
    shared = sets @ sets.T
    sizes = sets.sum(1)
    either = sizes[:, None] + sizes - shared
    similarity = np.divide(shared, either, out=np.zeros_like(shared), where=either > 0)
    np.fill_diagonal(similarity, 1.0)
    return similarity


def word_coverage(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """How much of each question is about each sentence, (questions, sentences): its words that stand in any of them,
    each divided among those in which it stands. A row sums to 1, or is 0 where no word stands in a sentence.
    """
    texts = [normalised_words(text) for text in (*questions, *sentences)]
    sets = _incidence(texts)
    asked, said = sets[: len(questions)], sets[len(questions) :]
    holders = said.sum(0)
    divided = np.divide(said, holders, out=np.zeros_like(said), where=holders > 0)
    total = asked @ (holders > 0).astype(float)[:, None]
    return np.divide(asked @ divided.T, total, out=np.zeros((len(questions), len(sentences))), where=total > 0)


def _incidence(texts: Sequence[Sequence[str]]) -> Floats:
    """Which text has which word, (texts, words), 0 or 1."""
    known = {word: place for place, word in enumerate(dict.fromkeys(word for text in texts for word in text))}
    table = np.zeros((len(texts), len(known)))
    for row, text in enumerate(texts):
        table[row, [known[word] for word in text]] = 1.0
    return table


class SentenceVectors:
    """Cosine of the questions' vectors, the means of their tokens' last states, as in sentence-transformers; below 0
    counts as 0.

    Args:
        encoder: folder or Hub name, such as `sentence-transformers/all-MiniLM-L6-v2`.
        device: where it runs; None: the GPU if there is one.
        batch_size: questions per forward pass.

    Raises:
        MetricInputError: there is no such encoder.
    """

    def __init__(self, encoder: str | Path, *, device: str | torch.device | None = None, batch_size: int = 32) -> None:
        model = FrozenModel(encoder, "encoder", device=device, dtype="float32")
        layers = [int(model.model.config.num_hidden_layers)]
        self._encoder = TextEncoder(model, layers, batch_size=batch_size, name="similarity")

    @torch.inference_mode()
    def __call__(self, questions: Sequence[str]) -> Floats:
        """Similarities (n, n) of n questions."""
        if not questions:
            return np.zeros((0, 0))
        states = self._encoder.states([tokens.ids for tokens in self._encoder.tokens(questions)])
        vectors = torch.stack([state[0].mean(0) for state in states])
        unit = torch.nn.functional.normalize(vectors.double(), dim=1).cpu().numpy()
        similarity: Floats = np.clip(unit @ unit.T, 0.0, 1.0)
        np.fill_diagonal(similarity, 1.0)
        return similarity
