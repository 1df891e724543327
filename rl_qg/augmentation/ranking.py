"""Candidates from best to worst, in an order that hangs on what they say and never on where they stand."""

from array import array
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.augmentation.candidates import MEASURES
from rl_qg.data.examples import passage_hash, seeded_rank
from rl_qg.runtime.errors import InputError

Record = Mapping[str, Any]
RANDOM = "random"


class Ranking:
    """Collects candidates, 24 bytes each, and puts them in order: the higher `by`, the better.

    Args:
        by: a measure (the name of the filter that takes it), else a field of the questions file that holds a number,
            such as logprob; or `random`, the order of the seed alone.
        seed: decides between equals.
    """

    def __init__(self, by: str, seed: int) -> None:
        self.by, self.seed = by, seed
        self.places, self.ties = array("Q"), array("Q")
        self.values = array("d")

    def __len__(self) -> int:
        return len(self.places)

    def add(self, place: int, record: Record) -> None:
        """Take one candidate in; raise `InputError` when it lacks the number."""
        self.places.append(place)
        self.values.append(0.0 if self.by == RANDOM else number(record, self.by))
        self.ties.append(tie(record, self.seed))

    def best_first(self) -> NDArray[np.int64]:
        """Indices into `places`, in the order of `add`, from best to worst; those without a number last."""
        values = np.array(self.values, dtype=np.float64)
        falling = -np.where(np.isnan(values), -np.inf, values)
        return np.lexsort((np.array(self.places), np.array(self.ties), falling))


def number(record: Record, by: str) -> float:
    """A measure or a field of a candidate; NaN for null. Raises `InputError` when it has none of that name."""
    measures = record.get(MEASURES, {})
    value = measures[by] if by in measures else record.get(by, "")
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        known = [name for name, held in {**record, **measures}.items() if type(held) in (int, float)]
        raise InputError(f"no number under {by!r}; there is {', '.join(known) or 'none'}, and {RANDOM}")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"the number under {by!r} is too large: it has {len(str(abs(value)))} digits") from None


def tie(record: Record, seed: int) -> int:
    """8 bytes that decide between candidates as good as one another: of the seed and of what the candidate is."""
    return int.from_bytes(seeded_rank(seed, f"{record['id']}\0{record['candidate']}\0{record['question']}")[:8])


def passage_key(record: Record) -> int:
    """8 bytes that are equal for the same passage."""
    return int(passage_hash(record["context"])[:16], 16)


def answer_key(record: Record) -> int:
    """8 bytes that are equal for the same answer at the same place of the same passage."""
    text = f"{passage_hash(record['context'])} {record['answer_start']} {record['answer']}"
    return int.from_bytes(sha256(text.encode()).digest()[:8])
