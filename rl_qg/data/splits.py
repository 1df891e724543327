"""Which examples play which role in a run: gold, unlabelled and validation.

Every stage derives the same split from the same settings.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rl_qg.data import reading
from rl_qg.data.corpus import Wordings, synthetic_examples
from rl_qg.data.examples import QAExample, Role, examples_hash, passage_hash, report_limit, seeded_rank
from rl_qg.data.formats import RawRecord, is_unicode
from rl_qg.data.layouts import FACTS
from rl_qg.data.passages import Passages, passage_key
from rl_qg.data.streaming import ExampleStream, RecordSource, as_raw_record, span_key, stream_examples
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings, WorldSettings
from rl_qg.settings.training import WORLD

TRAINING, VALIDATION = "training examples are used", "validation examples are used"
FEWEST = 10  # passages of each half of the validation data
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Splits:
    """The examples of one run. Keys of passages are those of `passage_key`."""

    gold: list[QAExample]  # training examples whose questions are known; CE, SCST and the gold reader learn from these
    # Training passages with answers but no questions (`data.labelled_fraction`, `data.unlabelled`): the self-critical
    # stage and generation read them, cross-entropy does not.
    unlabelled: list[QAExample]
    validation: list[QAExample]  # held-out examples; nothing learns from them
    held_out: frozenset[bytes] = frozenset()  # the keys of all validation passages, sampled or not
    leakage: Mapping[str, Any] = field(default_factory=dict)  # the check that no training passage is one of those
    hashes: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each data file
    report: Mapping[str, Any] = field(default_factory=dict)  # what the readers counted
    # The keys of the validation passages that evaluations during training read alone, where these choose a model.
    choosing: frozenset[bytes] = frozenset()
    choice: Mapping[str, Any] | None = None  # what chooses, and on which passages (`rl_qg.commands.runs`)

    @property
    def judging(self) -> list[QAExample]:
        """The validation examples that chose no model."""
        return [one for one in self.validation if passage_key(one.context) not in self.choosing]


def load_splits(settings: DataSettings, *, development: float = 0.0, whole_passages: bool = False) -> Splits:
    """Read both roles, drop training passages that are also validation passages, and select the unlabelled ones. With
    `whole_passages` the limits of both keep or leave out all questions of a passage.

    Without `data.train` there are no gold examples, if `data.unlabelled` names passages. Without `data.validation` the
    fraction `development` of the training passages, if it is not 0, is set aside as validation data.
    """
    if development and not settings.validation:
        return _set_aside(settings, development)
    none = reading.QAData([], {"role": "train", "sources": [], **reading.RecordChecker().report()}, {})
    train = none if not settings.train and settings.unlabelled else read_role(settings, "train")
    validation = read_role(settings, "validation")
    clean, check = _without_leakage(train.examples, validation.examples)
    sample = take_passages if whole_passages else take
    clean = sample(clean, settings.max_train, settings.seed, "data.max_train", TRAINING)
    gold, unlabelled = _labelled(clean, settings)
    files = reading.source_names(settings.unlabelled, "data.unlabelled")
    limit, key = settings.max_validation, "data.max_validation"
    return Splits(
        gold=gold,
        unlabelled=unlabelled,
        validation=sample(validation.examples, limit, settings.seed, key, VALIDATION),
        held_out=frozenset(passage_key(example.context) for example in validation.examples),
        leakage=check,
        hashes={**train.hashes, **validation.hashes, **(Passages(files).hashes if files else {})},
        report={"train": train.report, "validation": validation.report},
    )


def _set_aside(settings: DataSettings, fraction: float) -> Splits:
    train = read_role(settings, "train")
    sample = take(train.examples, settings.max_train, settings.seed, "data.max_train", TRAINING)
    chosen, _ = sample_labelled(sample, fraction, settings.seed + 1)  # the labelled passages have another seed
    held_out = frozenset(passage_key(example.context) for example in chosen)
    rest = [example for example in sample if passage_key(example.context) not in held_out]
    if not rest:
        raise InputError("data.train: no passage is left to train on; give more, or data.validation=FILE")
    log.info("no data.validation: %d of %d training questions are set aside as it", len(chosen), len(sample))
    gold, unlabelled = _labelled(rest, settings)
    return Splits(
        gold=gold,
        unlabelled=unlabelled,
        validation=take(chosen, settings.max_validation, settings.seed, "data.max_validation", VALIDATION),
        held_out=held_out,
        hashes=train.hashes,
        report={"train": train.report},
    )


def _labelled(examples: Sequence[QAExample], settings: DataSettings) -> tuple[list[QAExample], list[QAExample]]:
    fraction = settings.labelled_fraction
    gold, unlabelled = sample_labelled(examples, fraction, settings.seed, settings.labelled_unit)
    what = "training questions are used, and of the others passages and answers alone"
    report_limit("data.labelled_fraction", fraction, len(gold), len(examples), what)
    return gold, unlabelled


def _without_leakage(
    train: Sequence[QAExample], validation: Sequence[QAExample]
) -> tuple[list[QAExample], dict[str, int]]:
    found = leakage(train, validation)
    clean = [example for example in train if passage_hash(example.context) not in found.shared_hashes]
    check = {
        "train_passages": found.train_passages,
        "validation_passages": found.validation_passages,
        "shared_passages": found.shared,
        "train_examples_dropped": len(train) - len(clean),
    }
    log.info(
        "leakage check: %(train_passages)d training and %(validation_passages)d validation passages, "
        "%(shared_passages)d shared; %(train_examples_dropped)d training examples dropped",
        check,
    )
    if train and not clean:
        raise InputError("data.train: every passage is also in data.validation; name different files")
    return clean, check


def load_training(settings: DataSettings) -> list[QAExample]:
    """The training examples alone, for commands that have no validation data; questions may be missing."""
    train = read_role(settings, "train", allow_unlabelled=True)
    return take(train.examples, settings.max_train, settings.seed, "data.max_train", TRAINING)


def training_stream(
    settings: DataSettings, *, spans: bool = False, impossible: bool = False, unasked: bool = True
) -> ExampleStream:
    """What `load_training(settings)` returns, or with `spans` the `answer_spans` of it, as a stream that need not fit
    into memory; without what is `unasked`, the answers that nobody has asked about.
    """
    source = _source(settings, "train")
    options: dict[str, Any] = {"role": "train", "allow_unlabelled": unasked, "spans": spans, "impossible": impossible}
    options |= {"limit": settings.max_train, "seed": settings.seed}
    if source == WORLD:
        corpus = RecordSource(
            f"{WORLD} (train)", lambda: map(as_raw_record, _corpus_examples(settings.world, "train"))
        )
        stream = ExampleStream([corpus], **options)
    else:
        stream = stream_examples(source, **options, hotpotqa_context=settings.hotpotqa_context)
    log.info(reading.report_line(stream.report))
    kept: int = stream.report["kept"]
    used = min(kept, settings.max_train or kept)
    report_limit("data.max_train", settings.max_train, used, kept, TRAINING)
    if len(stream) < used:
        log.info("%s distinct answers in %s examples: each is asked about once", f"{len(stream):,}", f"{used:,}")
    return stream


def read_role(settings: DataSettings, role: Role, **kept: bool) -> reading.QAData:  # options of `read_examples`
    source = _source(settings, role)
    if source == WORLD:
        examples = list(_corpus_examples(settings.world, role))
        counts = {"read": len(examples), "kept": len(examples), "dropped": {}, **reading.RecordChecker().changes}
        report = {"role": role, "sources": [WORLD], **counts}
        data = reading.QAData(examples=examples, report=report, hashes={f"{WORLD} ({role})": examples_hash(examples)})
    else:
        data = reading.read_examples(source, role=role, hotpotqa_context=settings.hotpotqa_context, **kept)
    log.info(data.summary())
    return data


def _source(settings: DataSettings, role: Role) -> Any:
    source = settings.train if role == "train" else settings.validation
    if not source:
        raise InputError(f"data.{role} has no value; name a file, such as data.{role}=dev.json")
    return source


def _corpus_examples(sizes: WorldSettings, role: Role) -> Iterator[QAExample]:
    passages = sizes.train_passages if role == "train" else sizes.validation_passages
    wordings: Wordings = "all"
    if sizes.new_wordings:
        wordings = "training" if role == "train" else "held_out"
    return synthetic_examples(
        passages, seed=sizes.seed, prefix=role, shared_facts=sizes.shared_facts, wordings=wordings
    )


class Leakage(NamedTuple):
    """Passages that are in both sets, compared by `passage_hash`."""

    train_passages: int
    validation_passages: int
    shared: int
    shared_hashes: frozenset[str]


def leakage(train: Iterable[QAExample], validation: Iterable[QAExample]) -> Leakage:
    hashes = [{passage_hash(context) for context in {e.context for e in part}} for part in (train, validation)]
    shared = frozenset(hashes[0] & hashes[1])
    return Leakage(len(hashes[0]), len(hashes[1]), len(shared), shared)


def sample_labelled(
    examples: Sequence[QAExample], fraction: float, seed: int, unit: str = "passages"
) -> tuple[list[QAExample], list[QAExample]]:
    """Split into labelled and unlabelled examples, in their order; the latter lose their question.

    `fraction` of the passages (rounded, at least one) stays labelled, with all questions about them; with `unit`
    "questions", of the examples, whatever their passages: the QRelScore paper (section 3.3) samples a quarter of the
    data. For one seed what is labelled with a smaller fraction is labelled with a larger one. Raises `InputError` when
    `fraction` is not in (0, 1].
    """
    if not 0 < fraction <= 1:
        raise InputError(f"data.labelled_fraction={fraction} is not in (0, 1]")
    keys = [example.id if unit == "questions" else passage_hash(example.context) for example in examples]
    units = sorted(set(keys), key=lambda key: seeded_rank(seed, key))
    chosen = set(units[: max(1, round(fraction * len(units)))])
    pairs = list(zip(examples, keys, strict=True))
    labelled = [example for example, key in pairs if key in chosen]
    return labelled, [replace(example, question="") for example, key in pairs if key not in chosen]


def take(
    examples: Sequence[QAExample], limit: int | None, seed: int, key: str = "limit", what: str = "questions are used"
) -> list[QAExample]:
    """A seeded sample of at most `limit` examples (None: all), in their order; a line of the log says what the limit,
    named `key`, leaves. For one seed a smaller sample is part of a larger one.
    """
    if limit is not None and limit < 1:
        raise InputError(f"a limit of {limit} examples leaves none: give at least 1, or null for all")
    ranked = sorted(range(len(examples)), key=lambda i: seeded_rank(seed, examples[i].id))
    report_limit(key, limit, len(ranked[:limit]), len(ranked), what)
    return [examples[i] for i in sorted(ranked[:limit])]


def take_passages(
    examples: Sequence[QAExample], limit: int | None, seed: int, key: str = "limit", what: str = "questions are used"
) -> list[QAExample]:
    """The examples of a seeded sample of passages, in their order: so many passages that they have at most `limit`
    examples (None: all), and at least one; a line of the log says what the limit, named `key`, leaves.
    """
    passages = [passage_hash(example.context) for example in examples]
    counts, left = Counter(passages), len(examples) if limit is None else min(limit, len(examples))
    chosen: set[str] = set()
    for passage in sorted(counts, key=lambda passage: seeded_rank(seed, passage)):
        left -= counts[passage]
        if chosen and left < 0:
            break
        chosen.add(passage)
    taken = [example for example, passage in zip(examples, passages, strict=True) if passage in chosen]
    report_limit(key, limit, len(taken), len(examples), what)
    return taken


def choosing_passages(examples: Sequence[QAExample], seed: int) -> frozenset[bytes]:
    """The keys of a seeded half of the passages, rounded down; none where a half would have fewer than `FEWEST`."""
    passages = {passage_hash(one.context): passage_key(one.context) for one in examples}
    half = sorted(passages, key=lambda passage: seeded_rank(seed, passage))[: len(passages) // 2]
    return frozenset(passages[passage] for passage in half) if len(half) >= FEWEST else frozenset()


def answer_spans(examples: Sequence[QAExample]) -> list[QAExample]:
    """One example for each distinct answer span, in order: the generator reads no more of a question."""
    spans: dict[bytes, QAExample] = {}
    for example in examples:
        spans.setdefault(span_key(example), example)
    return list(spans.values())


def with_additional_spans(
    known: Sequence[QAExample], files: Sequence[str], held_out: Collection[bytes], hotpotqa_context: str = FACTS
) -> ExampleStream:
    """The spans of the training data, then those of files with answers, each span once.

    Passages of `held_out` (keys of `passage_key`) are left out of the files and counted; questions in the files are
    not used. Raises `InputError` where a file has no usable record, or passages of `held_out` alone.
    """
    read = partial(reading.raw_records, split="train", unlabelled=True, hotpotqa_context=hotpotqa_context)

    def is_held_out(record: RawRecord) -> bool:  # text that is not Unicode is dropped and counted later
        return is_unicode(record.context) and passage_key(record.context) in held_out

    def added_records(name: str) -> Iterator[RawRecord]:
        return (replace(record, question="") for record in read(name) if not is_held_out(record))

    for name in files:
        out = [is_held_out(record) for record in read(name)]
        left_out = sum(out)
        if out and left_out == len(out):
            raise InputError(f"{name}: all passages are also in data.validation; leave the file out, or name another")
        if left_out:
            log.info("%s: %d records are about passages of data.validation and are left out", name, left_out)
    training = [RecordSource("data.train", lambda: map(as_raw_record, known))] if known else []
    added = [RecordSource(name, partial(added_records, name), Path(name).expanduser()) for name in files]
    stream = ExampleStream([*training, *added], role="train", allow_unlabelled=True, spans=True)
    if faults := stream.report.get("malformed"):
        log.warning("%s", reading.malformed_line(", ".join(files), faults))
    log.info("%d distinct answers to ask about, %d of them in the training data", len(stream), len(known))
    return stream
