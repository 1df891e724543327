"""Where the data come from."""

from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, FRACTION, MISSING, SEED, SHARE, Section, key

WORLD = "world"
"""The value of `data.train` and `data.validation` that names the embedded corpus."""


@dataclass
class WorldSettings(Section):
    """Sizes of the embedded corpus (`rl_qg.data.synthetic_corpus`), used when `data.train` is `world`."""

    train_passages: int = key(600, "passages to train on", limits=COUNT)
    validation_passages: int = key(120, "passages to validate on", limits=COUNT)
    seed: int = key(0, "of the facts and their wording", limits=SEED)
    shared_facts: float = key(
        0.0,
        "probability that the second subject of a passage has facts of the same kinds as the first",
        limits=FRACTION,
    )
    new_wordings: bool = key(False, "ask about validation passages in wordings that no training question has")


@dataclass
class DataSettings(Section):
    """Sources of QA examples. A source is a path, a Hub data set name, or `world`."""

    train: Any = key(MISSING, "file(s), Hub data set, or world (the embedded corpus)")
    validation: Any = key(MISSING, "held-out file(s), Hub data set, or world")
    unlabelled: Any = key(None, "file(s) of passages without questions to learn on and to ask about: text, or QA data")
    max_train: int | None = key(None, "at most this many training examples (a seeded sample); null: all", limits=COUNT)
    max_validation: int | None = key(None, "at most this many validation examples; null: all", limits=COUNT)
    hotpotqa_context: str = key(
        "facts",
        "the passage of a HotpotQA question: its supporting sentences (facts), all sentences of their paragraphs, or "
        "all ten paragraphs",
        choices=("facts", "paragraphs", "all"),
    )
    labelled_fraction: float = key(
        1.0,
        "fraction of training passages whose questions are used; the rest gives only passages and answers",
        limits=SHARE,
    )
    labelled_unit: str = key(
        "passages",
        "what labelled_fraction is a fraction of: passages (with all their questions) or questions",
        choices=("passages", "questions"),
    )
    seed: int = key(0, "of the samples above", limits=SEED)
    world: WorldSettings = key(WorldSettings(), "the embedded corpus")
