"""Whether a search engine finds a question's own passage, among a collection, from the question alone."""

import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, batch_of, installed_version, library, path_of
from rewards.words import words

Scores = NDArray[np.float32]
Search = Callable[[Sequence[str]], Scores]  # questions -> scores of the passages, [questions, passages]

BM25 = "bm25"
_FORM = "give questions or passages as .jsonl with a field context on each line, or SQuAD .json (or .gz of either)"


class Retrievability(Metric):
    """The reciprocal rank of a question's own passage among a collection, in the order of a search engine.

    A question that stands alone finds its passage; "What does the author say about it?" finds any.

    Source: Dai et al., "Promptagator: Few-shot dense retrieval from 8 examples", ICLR 2023: of generated questions
    they keep those whose passage is found first (round-trip consistency).

    The rank is 1 and the number of other passages that score as high or higher: a question that shares no word with
    any passage has the last rank, not the first. Equal passages count once; white space does not distinguish them. A
    copied sentence is found most surely, so as a reward this belongs beside one that forbids copies
    (`rewards.form.QuestionForm`). Scores depend on the collection: the signature has its size and hash.

    Args:
        passages: the collection: a list of texts, or a file of questions or passages, as .jsonl with a field
            ``context`` on each line, or SQuAD .json; both may end in .gz. It must hold the passages of all questions.
        engine: ``"bm25"`` (Robertson et al., TREC-3, 1994, as Lucene computes it, k1 = 1.5, b = 0.75, on lower-cased
            words; needs bm25s), or folder or Hub name of an encoder: cosine of the means of its last states. Texts
            are cut at its longest input, and counted.

    Parts: ``rank`` (from 1), ``reciprocal_rank`` (the score).
    """

    name = "retrievability"
    bounds = (0.0, 1.0)
    part_names, lower_parts = ("rank", "reciprocal_rank"), ("rank",)

    def __init__(
        self,
        passages: Sequence[str] | str | Path | None = None,
        *,
        engine: str = BM25,
        batch_size: int = 32,
        device: Any = None,
        dtype: str = "float32",
    ) -> None:
        self.batch_size = batch_of(self.name, batch_size)
        if passages is None or (isinstance(passages, str) and not passages):
            raise MetricInputError(f"retrievability: passages has no value; {_FORM}")
        texts = passages_of(passages) if isinstance(passages, str | Path) else passages
        self._check_texts("passages", texts)
        self._texts = list(dict.fromkeys(map(_plain, texts)))
        if len(self._texts) < 2:
            raise MetricInputError(
                f"retrievability: passages has {len(self._texts)} passage(s), among which nothing is found; give the "
                "collection that a question's passage is searched in"
            )
        self._place = {text: place for place, text in enumerate(self._texts)}
        self.engine, self.dtype = engine, dtype
        self.encoder: Any = None
        if engine == BM25:
            self._search: Search = bm25(self._texts)
            return
        from rewards.embedding.token_embeddings import SentenceEncoder  # PyTorch
        from rewards.frozen import FrozenModel

        self.encoder = FrozenModel(engine, "encoder", device=device, dtype=dtype)
        self._embed = SentenceEncoder(self.encoder, batch_size=self.batch_size, name=self.name)
        self._search = self._embed.search(self._texts)

    def choices(self) -> Mapping[str, object]:
        digest = hashlib.sha256(json.dumps(self._texts).encode()).hexdigest()[:8]
        by = {"engine": self.engine, "bm25s": installed_version("bm25s")}
        if self.encoder is not None:
            by = {"engine": self.encoder.identity, "dtype": self.dtype}
        return {"passages": f"{len(self._texts)}@{digest}", **by}

    def compute(self, inputs: Inputs) -> MetricResult:
        own = [self._own(context, row) for context, row in zip(inputs.contexts, inputs.rows, strict=True)]
        ranks = [float(rank) for rank in ranks_of(self._search, inputs.questions, own)]
        reciprocal = [1 / rank for rank in ranks]
        return MetricResult(reciprocal, {"rank": ranks, "reciprocal_rank": [*reciprocal]})

    def _own(self, context: str, row: int) -> int:
        if (place := self._place.get(_plain(context))) is None:
            raise MetricInputError(
                f"retrievability: contexts[{row}] is none of the {len(self._texts)} passages: {context!r:.60}; "
                "passages must hold the passages of all questions"
            )
        return place


def ranks_of(search: Search, questions: Sequence[str], own: Sequence[int], at_once: int = 256) -> list[int]:
    """The rank of each question's passage, from 1, others with the same score before it; ``own`` are their places."""
    ranks: list[int] = []
    for start in range(0, len(questions), at_once):
        scores, places = search(questions[start : start + at_once]), np.asarray(own[start : start + at_once])
        ranks += (~(scores < scores[np.arange(len(places)), places][:, None])).sum(1).tolist()  # NaN: the last
    return ranks


def bm25(passages: Sequence[str]) -> Search:
    """A search by BM25 as Lucene computes it, on lower-cased words. Raises `MetricInputError` without bm25s."""
    index: Any = library("bm25s", "retrievability: engine=bm25", "'rl-qg[retrieval]'").BM25()
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells of each index
    index.index([[*words(text)] or [""] for text in passages], show_progress=False)
    known = index.vocab_dict

    def search(questions: Sequence[str]) -> Scores:
        scores = np.zeros((len(questions), len(passages)), np.float32)
        for row, question in enumerate(questions):
            if asked := [word for word in words(question) if word in known]:
                scores[row] = index.get_scores(asked)
        return scores

    return search


def passages_of(path: str | Path) -> list[str]:
    """The passages of a file, white space made single, in its order. Raises `MetricInputError` naming the line."""
    path = path_of("retrievability", "passages", path)
    where = f"retrievability: passages {str(path)!r}"
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
            text = file.read()
        if not path.name.removesuffix(".gz").endswith(".jsonl"):
            return [_plain(one["context"]) for article in json.loads(text)["data"] for one in article["paragraphs"]]
        texts = []
        for at, line in enumerate(text.split("\n"), 1):  # splitlines cuts inside texts: U+2028, form feeds
            where = f"retrievability: passages {str(path)!r}, line {at}"
            texts += [_plain(json.loads(line)["context"])] if line.strip() else []
        return texts
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise MetricInputError(f"{where} cannot be read ({error}); {_FORM}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MetricInputError(f"{where}: no context; {_FORM}") from None


def _plain(text: str) -> str:
    return " ".join(text.split())
