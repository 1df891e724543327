"""Data for a benchmark (`rl-qg bench data`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import FRACTION, SEED, Section, key


@dataclass
class BenchSettings(Section):
    """Sources, how they are divided, and the seed of that. A source is a path, or a Hub data set (`name`, or
    `name:configuration`), of which each key reads the split of its name (`data`: train).
    """

    data: Any = key(None, "file(s) or Hub data set: the training data, and what validation and test are taken from")
    validation: Any = key(None, "file(s) or Hub data set; null: taken from data")
    test: Any = key(None, "file(s) or Hub data set; null: taken from data")
    split: str = key(
        "shares",
        "how data are divided: shares (see below), or squadshifts (half test, one sixth validation); "
        "with validation or test given, as many questions as it has are taken for the other",
        choices=("shares", "squadshifts"),
    )
    validation_share: float = key(0.1, "with split=shares: share of the questions", limits=FRACTION)
    test_share: float = key(0.1, "with split=shares: share of the questions", limits=FRACTION)
    clean: str = key(
        "qg_bench",
        "qg_bench (citation marks such as [3] and runs of white space are removed, as in QG-Bench) or none",
        choices=("qg_bench", "none"),
    )
    seed: int = key(0, "of the choice of paragraphs", limits=SEED)

    def faults(self) -> Iterator[str]:
        """Choices and limits, and shares that leave something to train on."""
        yield from super().faults()
        if self.validation_share + self.test_share >= 1:
            yield f"validation_share={self.validation_share} and test_share={self.test_share} leave nothing to train"
