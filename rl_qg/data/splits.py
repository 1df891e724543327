"""Which examples play which role in a run: gold, unlabelled and validation. Every stage derives the same split from
the same settings.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rl_qg.data import synthetic_corpus as world
from rl_qg.data.examples import (
    QAData,
    QAExample,
    Role,
    examples_hash,
    leakage,
    passage_hash,
    read_examples,
    report_line,
    sample_labelled,
    take,
)
from rl_qg.data.formats import FoundRecord, found_records, is_unicode
from rl_qg.data.passages import Passages, passage_key
from rl_qg.data.streaming import ExampleStream, Source, as_found, span_key, stream_examples
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings, WorldSettings

WORLD = "world"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Splits:
    """The examples of one run.

    Args:
        gold: training examples whose questions are known; CE, SCST and the gold reader learn from these.
        unlabelled: training passages with answers but no questions (see `data.labelled_fraction`); only generation
            reads them.
        validation: held-out examples; nothing learns from them.
        held_out: the keys (`passage_key`) of all validation passages, sampled or not.
        leakage: the check that no training passage is a validation passage.
        hashes: SHA-256 of each data file.
        report: what the readers counted.
    """

    gold: list[QAExample]
    unlabelled: list[QAExample]
    validation: list[QAExample]
    held_out: frozenset[bytes] = frozenset()
    leakage: Mapping[str, Any] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)


def load_splits(settings: DataSettings) -> Splits:
    """Read both roles, drop training passages that are also validation passages, and set the unlabelled passages
    apart.
    """
    more = source_names(settings.unlabelled)
    train, validation = read_role(settings, "train"), read_role(settings, "validation")
    shared = leakage(train.examples, validation.examples)
    leaked = set(shared.shared_hashes)
    clean = [example for example in train.examples if passage_hash(example.context) not in leaked]
    check = {
        "train_passages": shared.train_passages,
        "validation_passages": shared.validation_passages,
        "shared_passages": shared.shared,
        "train_examples_dropped": len(train.examples) - len(clean),
    }
    log.info(
        "leakage check: %(train_passages)d training and %(validation_passages)d validation passages, "
        "%(shared_passages)d shared; %(train_examples_dropped)d training examples dropped",
        check,
    )
    if not clean:
        raise InputError("data.train: every passage is also in data.validation; name different files")
    clean = take(clean, settings.max_train, settings.seed)
    gold, unlabelled = sample_labelled(clean, settings.labelled_fraction, settings.seed)
    return Splits(
        gold=gold,
        unlabelled=unlabelled,
        validation=take(validation.examples, settings.max_validation, settings.seed),
        held_out=frozenset(passage_key(example.context) for example in validation.examples),
        leakage=check,
        hashes={**train.hashes, **validation.hashes, **(Passages(more).hashes if more else {})},
        report={"train": train.report, "validation": validation.report},
    )


def load_training(settings: DataSettings) -> list[QAExample]:
    """The training examples alone, for commands that know no validation data; questions may be missing."""
    train = read_role(settings, "train", allow_unlabelled=True)
    return take(train.examples, settings.max_train, settings.seed)


def training_spans(settings: DataSettings) -> ExampleStream:
    """What `answer_spans(load_training(settings))` returns, as a stream: any number of examples."""
    source = _source(settings, "train")
    options: dict[str, Any] = {"role": "train", "allow_unlabelled": True, "spans": True}
    options |= {"limit": settings.max_train, "seed": settings.seed}
    if source == WORLD:
        corpus = Source(f"{WORLD} (train)", lambda: map(as_found, _world_examples(settings.world, "train")))
        stream = ExampleStream([corpus], **options)
    else:
        stream = stream_examples(source, **options)
    log.info(report_line(stream.report))
    return stream


def read_role(settings: DataSettings, role: Role, *, allow_unlabelled: bool = False) -> QAData:
    """All examples of one role, from files, the Hub or the embedded corpus; what reading did is logged."""
    source = _source(settings, role)
    data = (
        _world(settings.world, role)
        if source == WORLD
        else read_examples(source, role=role, allow_unlabelled=allow_unlabelled)
    )
    log.info(data.summary())
    return data


def source_names(sources: Any) -> list[str]:
    """The sources of a setting that holds one, several or none."""
    return [str(source) for source in (sources if isinstance(sources, list | tuple) else [sources] if sources else [])]


def _source(settings: DataSettings, role: Role) -> Any:
    source = settings.train if role == "train" else settings.validation
    if not source:
        raise InputError(f"data.{role} has no value; name a file, such as data.{role}=dev.json")
    return source


def _world_examples(sizes: WorldSettings, role: Role) -> Iterator[QAExample]:
    passages = sizes.train_passages if role == "train" else sizes.validation_passages
    return world.examples(passages, seed=sizes.seed, prefix=role)


def _world(sizes: WorldSettings, role: Role) -> QAData:
    examples = list(_world_examples(sizes, role))
    none = {"count": 0, "ids": []}
    counts: dict[str, Any] = {
        "role": role,
        "sources": [WORLD],
        "read": len(examples),
        "kept": len(examples),
        "dropped": {},
    }
    report = {**counts, "repaired": none, "answers_dropped": none, "duplicate_ids": none}
    return QAData(examples=examples, report=report, hashes={f"{WORLD} ({role})": examples_hash(examples)})


def answer_spans(examples: Sequence[QAExample]) -> list[QAExample]:
    """One example for each distinct answer span, in order: two questions with the same answer ask the generator for
    the same thing.
    """
    seen: set[bytes] = set()
    spans = []
    for example in examples:
        if (key := span_key(example)) not in seen:
            seen.add(key)
            spans.append(example)
    return spans


def with_more_spans(known: Sequence[QAExample], files: Sequence[str], held_out: Collection[bytes]) -> ExampleStream:
    """The spans of the training data, then those of files with answers, each span once; passages of `held_out` (keys
    of `passage_key`) are left out of the files and counted, and no question of theirs is read.
    """
    for name in files:
        left_out = sum(_stands_in(held_out, record) for record in found_records(name, "train", unlabelled=True))
        if left_out:
            log.info("%s: %d records are about passages of data.validation and are left out", name, left_out)
    given = Source("data.train", lambda: map(as_found, known))
    others = [Source(name, partial(_without, name, held_out), Path(name).expanduser()) for name in files]
    stream = ExampleStream([given, *others], role="train", allow_unlabelled=True, spans=True)
    log.info("%d distinct answers to ask about, %d of them in the training data", len(stream), len(known))
    return stream


def _without(name: str, held_out: Collection[bytes]) -> Iterator[FoundRecord]:
    for record in found_records(name, "train", unlabelled=True):
        if not _stands_in(held_out, record):
            yield replace(record, question="")


def _stands_in(held_out: Collection[bytes], record: FoundRecord) -> bool:
    """Whether a record's passage is a validation passage; what is no Unicode is left to be counted as such."""
    return is_unicode(record.context) and passage_key(record.context) in held_out
