"""Dividing examples into training, validation and test data, by paragraph and by a seed."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from rl_qg.data.examples import QAExample, passage_hash, seeded_rank


def squadshifts_sizes(questions: int) -> dict[str, int]:
    """How many questions QG-Bench takes of a domain of SQuADShifts for test (half, rounded down) and validation (a
    third of the rest, rounded): amazon 4,942 and 1,648 of 9,885.
    """
    test = questions // 2
    return {"test": test, "validation": round(Fraction(questions - test, 3))}


def shared_sizes(questions: int, validation: float, test: float) -> dict[str, int]:
    """How many questions the shares are, rounded; at least one where the share is not 0."""
    shares = {"test": test, "validation": validation}
    return {name: max(1, round(share * questions)) if share else 0 for name, share in shares.items()}


def divide(examples: Sequence[QAExample], sizes: Mapping[str, int], seed: int) -> dict[str, list[QAExample]]:
    """Examples for each name in `sizes`, in their order, and the rest as `train`. No two parts share a paragraph.

    Paragraphs are taken in a random order that depends on their text and on `seed` alone. One that has more questions
    than the part still needs is left to the next part, so a part has its size unless every paragraph left has too
    many. A part that would be empty for that reason takes a paragraph with the fewest questions, and is larger.
    """
    keys = [passage_hash(example.context) for example in examples]
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    left = sorted(counts, key=lambda key: seeded_rank(seed, key))
    role: dict[str, str] = {}
    for name, size in sizes.items():
        taken = list[str]()
        needed = size
        for key in left:
            if counts[key] <= needed:
                taken.append(key)
                needed -= counts[key]
        if size and not taken and len(left) > 1:
            taken = [min(left, key=lambda key: counts[key])]
        role |= dict.fromkeys(taken, name)
        left = [key for key in left if key not in role]
    parts: dict[str, list[QAExample]] = {"train": [], **{name: [] for name in sizes}}
    for example, key in zip(examples, keys, strict=True):
        parts[role.get(key, "train")].append(example)
    return parts
