"""The data of a study: each resource's gold questions and answer spans, and one validation file for all of them.

No passage has two roles. A validation passage never enters training, and the passages on which generators choose their
checkpoint are neither trained on nor judged on; what this costs is counted.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_qg.data.examples import (
    QAExample,
    examples_hash,
    passage_hash,
    sample_labelled,
    seeded_rank,
    take,
    write_squad,
)
from rl_qg.data.splits import answer_spans, read_role
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer, read_json, write_json
from rl_qg.settings import DataSettings, WorldSettings
from rl_qg.studies.file import Resource, Study

DONE = "data.json"  # written last
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResourceData:
    """What the jobs of one resource read.

    Args:
        folder: where the files stand: gold.json, spans.jsonl.
        gold: questions whose answers are known.
        spans: one example for each answer that questions may be generated for.
        text: gold and the passages without questions, from which miniatures learn.
    """

    name: str
    folder: Path
    gold: list[QAExample]
    spans: list[QAExample]
    text: list[QAExample]


@dataclass(frozen=True)
class StudyExamples:
    """All data of a study; `sets` maps each validation question to its set, `counts` says what was left out."""

    folder: Path
    validation: list[QAExample]
    development: list[QAExample]
    sets: Mapping[str, str]
    resources: Mapping[str, ResourceData]
    counts: Mapping[str, Any]
    sources: Mapping[str, str]


def load_examples(study: Study, world: WorldSettings) -> StudyExamples:
    """Read and split everything; writes nothing. Folders are named by what they hold.

    Raises:
        InputError: a source is wrong, or leaves nothing for a role.
    """
    data = study.data
    validation, sets, counts, sources, held_out = _validation(study, world)
    train = read_role(DataSettings(train=data.train, world=world), "train")
    sources |= train.hashes
    clean, leaked = _without(train.examples, held_out)
    clean, surplus = _some(clean, data.max_passages, data.seed)
    development, rest = _development(clean, data.development, data.seed)
    apart = held_out | {passage_hash(example.context) for example in development}
    counts |= {
        "train_passages": len({passage_hash(example.context) for example in train.examples}),
        "train_questions_on_validation_passages_dropped": leaked,
        "train_questions_beyond_max_passages_left_out": surplus,
        "development_questions": len(development),
        "reading": {"train": train.report},
    }
    root = study.output_dir / "data"
    resources = {}
    for resource in study.resources:
        found, count = _resource(resource, rest, apart, study, root)
        resources[resource.name] = found
        counts[f"resource {resource.name}"] = count
    key = _hash([validation, development, sorted(sets.items())])
    return StudyExamples(root / f"validation-{key}", validation, development, sets, resources, counts, sources)


def write_examples(examples: StudyExamples) -> None:
    """Write what is not there yet."""
    folder = examples.folder
    if not (folder / DONE).exists():
        write_squad(folder / "validation.json", examples.validation)
        write_squad(folder / "development.json", examples.development)
        write_json(folder / "sets.json", dict(examples.sets))
        write_json(folder / DONE, {"sources": dict(examples.sources)})
    for resource in examples.resources.values():
        if not (resource.folder / DONE).exists():
            write_squad(resource.folder / "gold.json", resource.gold)
            _write_spans(resource.folder / "spans.jsonl", resource.spans)
            write_json(resource.folder / DONE, {"gold": len(resource.gold), "spans": len(resource.spans)})


def read_sets(folder: Path) -> dict[str, str]:
    """The validation set of each question id."""
    found: dict[str, str] = read_json(folder / "sets.json")
    return found


def _validation(
    study: Study, world: WorldSettings
) -> tuple[list[QAExample], dict[str, str], dict[str, Any], dict[str, str], set[str]]:
    """All validation examples under ids of their own, the set of each, counts, hashes, and every passage of the sets,
    those that the sample leaves out too.
    """
    data = study.data
    chosen: list[QAExample] = []
    sets: dict[str, str] = {}
    sources: dict[str, str] = {}
    counts: dict[str, Any] = {"validation_questions": {}, "in_an_earlier_set_dropped": {}}
    taken: set[str] = set()
    for name, source in data.validation.items():
        found = read_role(DataSettings(train="", validation=source, world=world), "validation")
        clean, doubled = _without(found.examples, taken)
        if not clean:
            raise InputError(f"{study.file}: data.validation.{name}: every passage is in an earlier set; leave it out")
        taken |= {passage_hash(example.context) for example in clean}
        part = [replace(example, id=f"{name}:{example.id}") for example in take(clean, data.max_validation, data.seed)]
        if len(data.validation) == 1:
            part = take(clean, data.max_validation, data.seed)
        chosen += part
        sets |= {example.id: name for example in part}
        sources |= found.hashes
        counts["validation_questions"][name] = len(part)
        counts["in_an_earlier_set_dropped"][name] = doubled
    return chosen, sets, counts, sources, taken


def _some(examples: list[QAExample], limit: int | None, seed: int) -> tuple[list[QAExample], int]:
    """The examples of at most `limit` passages, by another seed than that of the labelled ones; how many are left
    out.
    """
    if limit is None:
        return examples, 0
    passages = sorted({passage_hash(example.context) for example in examples})
    kept = set(sorted(passages, key=lambda key: seeded_rank(seed + 2, key))[: max(1, limit)])
    found = _within(examples, kept)
    return found, len(examples) - len(found)


def _development(examples: list[QAExample], share: float, seed: int) -> tuple[list[QAExample], list[QAExample]]:
    """Set whole passages apart; the rest are for the resources. Their seed is not that of the labelled passages."""
    if len({passage_hash(example.context) for example in examples}) < 2:
        raise InputError("data.train: one passage alone leaves none to choose checkpoints on; give more")
    apart, _ = sample_labelled(examples, share, seed + 1)
    passages = {passage_hash(example.context) for example in apart}
    return _within(examples, passages), _without(examples, passages)[0]


def _resource(
    resource: Resource, rest: list[QAExample], apart: set[str], study: Study, root: Path
) -> tuple[ResourceData, dict[str, int]]:
    seed = study.data.seed
    gold, unlabelled = sample_labelled(rest, resource.fraction, seed)
    if resource.max_gold is not None:
        gold, others = _at_most(gold, resource.max_gold, seed)
        unlabelled = [*unlabelled, *others]
    if not gold:
        raise InputError(
            f"{study.file}: resources.{resource.name}: no gold question is left; raise fraction or max_gold"
        )
    dropped = 0
    for path in resource.unlabelled:
        more = read_role(DataSettings(train=path), "train", allow_unlabelled=True).examples
        clean, doubled = _without(more, apart)
        dropped += doubled
        unlabelled += [replace(example, id=f"{Path(path).stem}:{example.id}", question="") for example in clean]
    text = [*gold, *unlabelled]
    every = answer_spans([replace(example, question="") for example in text])
    spans = take(every, study.data.max_spans, seed)
    folder = root / f"{resource.name}-{_hash([gold, spans])}"
    counts = {"gold": len(gold), "spans": len(spans), "spans_left_out": len(every) - len(spans)}
    counts |= {"unlabelled_on_validation_or_development_passages_dropped": dropped}
    return ResourceData(resource.name, folder, gold, spans, text), counts


def _at_most(gold: list[QAExample], limit: int, seed: int) -> tuple[list[QAExample], list[QAExample]]:
    """Keep whole passages, in the order in which `sample_labelled` chooses them, while they hold at most `limit`
    questions; the others lose their question.
    """
    sizes: dict[str, int] = {}
    for example in gold:
        key = passage_hash(example.context)
        sizes[key] = sizes.get(key, 0) + 1
    kept, total = set(), 0
    for key in sorted(sizes, key=lambda key: seeded_rank(seed, key)):
        if total + sizes[key] > limit:
            break
        kept.add(key)
        total += sizes[key]
    others, _ = _without(gold, kept)
    return _within(gold, kept), [replace(example, question="") for example in others]


def _without(examples: Iterable[QAExample], passages: set[str]) -> tuple[list[QAExample], int]:
    examples = list(examples)
    kept = [example for example in examples if passage_hash(example.context) not in passages]
    return kept, len(examples) - len(kept)


def _within(examples: Iterable[QAExample], passages: set[str]) -> list[QAExample]:
    return [example for example in examples if passage_hash(example.context) in passages]


def _write_spans(path: Path, spans: Sequence[QAExample]) -> None:
    with atomic_writer(path) as stream:
        for span in spans:
            answer = span.answers[0]
            record = {"id": span.id, "title": span.title, "context": span.context, "question": ""}
            record["answers"] = [{"text": answer.text, "answer_start": answer.start}]  # type: ignore[assignment]
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def _hash(parts: Sequence[Any]) -> str:
    """Eight digits that say what is in a folder."""
    digest = hashlib.sha256()
    for part in parts:
        examples = bool(part) and isinstance(part[0], QAExample)
        digest.update((examples_hash(part) if examples else json.dumps(part)).encode())
    return digest.hexdigest()[:8]
