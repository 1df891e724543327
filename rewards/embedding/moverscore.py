"""MoverScore: the cost of moving the words of one text to those of another in the space of their embeddings.

Source: Zhao, Peyrard, Liu, Gao, Meyer, Eger, "MoverScore: Text Generation Evaluating with Contextualized Embeddings
and Earth Mover Distance", EMNLP 2019, section 3 (the word mover's distance over n-grams: the smallest cost <C, F> of a
flow F whose rows and columns sum to the n-grams' masses; masses and points of n-grams by idf; power means of layers),
and its released code (AIPHES/emnlp19-moverscore: `moverscore.py`, `moverscore_v2.py`).
"""

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rewards.base import Inputs, Metric, MetricResult
from rewards.embedding.token_embeddings import Embedded, TextEncoder, WordWeights, needs_of
from rewards.errors import MetricInputError, batch_of, library, one_of
from rewards.frozen import FrozenModel, best_of_rows

_POOLED_LAYERS = 5
_SIGNS = frozenset(string.punctuation)
_WORD_MARKS = "Ġ▁"


class MoverScore(Metric):
    """One minus the cost of the optimal transport between the n-grams of two texts.

    Every n-gram has a mass (the sum of its tokens' weights, all masses of a text adding up to 1) and a point (the mean
    of its tokens' embeddings by these weights, normalised to length 1). The cost of moving mass between two n-grams
    grows with the distance of their points; the cheapest transport is found exactly (POT: ``pip install
    'rl-qg[mover]'``). Tokens that continue a word, single ASCII punctuation signs and ``stop_words`` are left out; the
    encoder's special tokens are used, as in the released codes. With several references the largest score (the
    released code takes one).

    - ``variant="official"``, `moverscore.py`, which computed the paper's numbers: the last five layers, each token's
      vector at length 1, their minimum, mean and maximum concatenated (power means with p = -inf, 1, inf);
      squared Euclidean distance; score = 1 - cost, in [-3, 1]. ``n`` is 1 or 2.
    - ``variant="v2"``, `moverscore_v2.py`, which its authors recommend for speed: the last layer, Euclidean distance,
      score = 1 / (1 + cost), in [1/3, 1]. Its ``n_gram`` is never read, so ``n`` is 1.

    Equal texts score 1; the score is symmetric. Differences from the paper: it takes the Euclidean distance, its code
    (`official`) the square. From the released codes: idf is one table for both sides; masses add up to 1 exactly
    (there 1 / (1 + 1e-5 / w) in `official`); the tokenizer says which tokens continue a word, so other vocabularies
    work; texts are cut at the model's length. Their BERT fine-tuned on MNLI is not on the Hub as safetensors, and the
    numbers depend on the encoder.

    Cost: one forward pass for each distinct text, and a transport problem for each pair on one CPU core, of cubic cost
    in the number of words at worst: 0.3 ms for two questions of 10 words, 2 ms for two passages of 110 (measured).

    Args:
        idf: texts, or a file with one per line, whose document frequencies weight the tokens; None for equal weights.
        stop_words: tokens that are left out, as the model's vocabulary writes them.
    """

    name = "moverscore"

    def __init__(
        self,
        model: str = "bert-base-uncased",
        n: int = 1,
        variant: Literal["official", "v2"] = "official",
        *,
        idf: Sequence[str] | str | Path | None = None,
        stop_words: Sequence[str] = (),
        against: Literal["references", "context"] = "references",
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        one_of(self.name, "variant", variant, ("official", "v2"))
        if isinstance(n, bool | float) or n not in ((1, 2) if variant == "official" else (1,)):
            raise MetricInputError(f"moverscore: n={n} does not exist; use 1, or 2 with variant='official'")
        self.needs = needs_of(against, self.name)
        self.n, self.variant, self.against = n, variant, against
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        if isinstance(stop_words, str):
            raise MetricInputError(f"moverscore: stop_words {stop_words!r:.40} is one text; give a list of words")
        self.stop_words = frozenset(stop_words)
        self._transport = library("ot", "moverscore", "'rl-qg[mover]'").emd2
        self.bounds = (-3.0, 1.0) if variant == "official" else (1 / 3, 1.0)
        self.encoder = FrozenModel(model, "encoder", device=device, dtype=dtype)
        depth = int(self.encoder.model.config.num_hidden_layers)
        layers = range(max(1, depth - _POOLED_LAYERS + 1), depth + 1) if variant == "official" else [depth]
        self._embed = TextEncoder(self.encoder, list(layers), batch_size=batch_size, name=self.name)
        self._weights = WordWeights(idf, self._embed, marks=1.0, name=self.name)

    def choices(self) -> Mapping[str, object]:
        layers = self._embed.layers
        return {
            "n": self.n,
            "variant": self.variant,
            "against": self.against,
            "layers": f"{layers[0]}..{layers[-1]}",
            "idf": self._weights.description,
            "stop_words": ",".join(sorted(self.stop_words)) or "none",
            "model": self.encoder.identity,
            "dtype": self.dtype,
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        pairs, owners = inputs.pairs(self.against)
        values = torch.zeros(len(pairs), dtype=torch.float64)
        for positions, embedded in self._embed.blocks(pairs):
            grams = {text: self._grams(item) for text, item in embedded.items()}
            for at in positions:
                values[at] = self._score(*(grams[text] for text in pairs[at]))
        return MetricResult(best_of_rows(values, owners, len(inputs.questions)).tolist(), {})

    def _grams(self, text: Embedded) -> tuple[Tensor, Tensor]:
        """Return the masses [n-grams], float64, and the points [n-grams, width] of a text, on the CPU."""
        kept = self._kept(text)
        weights = torch.ones(2) if text.tokens.is_empty else self._weights(text.tokens)
        weights = weights.double()[kept]
        if not weights.any():  # every token with a weight was left out
            weights = torch.ones_like(weights)
        states = text.states[0, kept]
        if self.variant == "official":  # the power means of the paper with p = -inf, 1 and inf
            unit = normalize(text.states[:, kept], dim=-1)
            states = torch.cat([unit.amin(0), unit.mean(0), unit.amax(0)], -1)
        size = min(self.n, len(kept))
        windows = weights.unfold(0, size, 1)
        # A window without any weight has no mass, so its point does not matter, but must be finite.
        fractions = windows / windows.sum(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        points = (states.cpu().double().unfold(0, size, 1) * fractions[:, None]).sum(-1)
        mass = windows.sum(1)
        return mass / mass.sum(), normalize(points, dim=-1)

    def _kept(self, text: Embedded) -> list[int]:
        """Return the positions that are used: special tokens, and first tokens of words other than punctuation."""
        ids, words = text.tokens.ids, text.tokens.words
        pieces = self.encoder.tokenizer.convert_ids_to_tokens(ids[1:-1])
        kept = [0]
        for index, piece in enumerate(pieces):
            continues = index > 0 and words[index] == words[index - 1]
            if not continues and piece.strip(_WORD_MARKS) not in _SIGNS and piece not in self.stop_words:
                kept.append(index + 1)
        return [*kept, len(ids) - 1]

    def _score(self, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> float:
        squared = (2 - 2 * first[1] @ second[1].T).clamp_min(0)
        distance = squared if self.variant == "official" else squared.sqrt()
        cost = float(self._transport(first[0].numpy(), second[0].numpy(), distance.numpy()))
        return 1 - cost if self.variant == "official" else 1 / (1 + cost)
