"""The data of a study: each resource's gold questions and answer spans, and one validation file for all of them.

No passage has two roles. A validation passage never enters training, and the passages on which generators choose their
checkpoint are neither trained on nor evaluated on. The questions that this leaves out are counted.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_qg.data.examples import QAExample, examples_hash, passage_hash, report_limit, seeded_rank, write_squad
from rl_qg.data.splits import answer_spans, read_role, sample_labelled, take
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer, write_json
from rl_qg.settings import DataSettings, WorldSettings
from rl_qg.studies.study_file import Resource, Study

COMPLETE = "data.json"  # in each data folder, written last


@dataclass(frozen=True)
class ResourceData:
    """What the jobs of one resource read.

    Args:
        folder: of its files, gold.json and spans.jsonl.
        gold: human questions with their answers.
        spans: one example without a question for each answer that questions may be generated for.
        text: gold and the passages without questions, on which miniatures are pretrained.
    """

    name: str
    folder: Path
    gold: list[QAExample]
    spans: list[QAExample]
    text: list[QAExample]


@dataclass(frozen=True)
class StudyExamples:
    """All data of a study.

    Args:
        folder: of validation.json, development.json and sets.json.
        sets: the validation set of each validation question's id.
        counts: how many questions and passages there are, and how many were left out for what reason.
        sources: SHA-256 of each source.
    """

    folder: Path
    validation: list[QAExample]
    development: list[QAExample]
    sets: Mapping[str, str]
    resources: Mapping[str, ResourceData]
    counts: Mapping[str, Any]
    sources: Mapping[str, str]


def load_examples(study: Study, world: WorldSettings) -> StudyExamples:
    """Read and split everything; writes nothing. Data folders are named by a hash of what they hold.

    Raises:
        InputError: a source is wrong, or leaves nothing for a role.
    """
    data, root = study.data, study.output_dir / "data"
    held_out = _read_validation(study, world)
    train = read_role(DataSettings(train=data.train, world=world, hotpotqa_context=data.hotpotqa_context), "train")
    clean, shared = _without(train.examples, held_out.passages)
    clean, surplus = _limit_passages(clean, data.max_passages, data.seed)
    development, rest = _split_development(clean, data.development, data.seed)
    forbidden = held_out.passages | {passage_hash(example.context) for example in development}
    counts = held_out.counts | {
        "train_passages": len({passage_hash(example.context) for example in train.examples}),
        "train_questions_on_validation_passages_dropped": shared,
        "train_questions_beyond_max_passages_left_out": surplus,
        "development_questions": len(development),
        "reading": {"train": train.report},
    }
    resources = {}
    for name, resource in study.resources.items():
        resources[name], counts[f"resource {name}"] = _resource_data(name, resource, rest, forbidden, study, root)
    key = _hash([held_out.examples, development, sorted(held_out.sets.items())])
    folder, sources = root / f"validation-{key}", held_out.sources | train.hashes
    return StudyExamples(folder, held_out.examples, development, held_out.sets, resources, counts, sources)


def write_examples(examples: StudyExamples) -> None:
    """Write the data folders that are not there yet."""
    folder = examples.folder
    if not (folder / COMPLETE).exists():
        write_squad(folder / "validation.json", examples.validation)
        write_squad(folder / "development.json", examples.development)
        write_json(folder / "sets.json", dict(examples.sets))
        write_json(folder / COMPLETE, {"sources": dict(examples.sources)})
    for resource in examples.resources.values():
        if not (resource.folder / COMPLETE).exists():
            write_squad(resource.folder / "gold.json", resource.gold)
            _write_spans(resource.folder / "spans.jsonl", resource.spans)
            write_json(resource.folder / COMPLETE, {"gold": len(resource.gold), "spans": len(resource.spans)})


@dataclass
class _HeldOut:
    """The validation examples; `passages` are all those of the sets, also those that the sample leaves out."""

    examples: list[QAExample]
    sets: dict[str, str]
    counts: dict[str, Any]
    sources: dict[str, str]
    passages: set[str]


def _read_validation(study: Study, world: WorldSettings) -> _HeldOut:
    """All validation sets; with several, the ids of their questions begin with the set's name."""
    data = study.data
    held_out = _HeldOut([], {}, {"validation_questions": {}, "in_an_earlier_set_dropped": {}}, {}, set())
    for name, source in data.validation.items():
        split = read_role(
            DataSettings(train="", validation=source, world=world, hotpotqa_context=data.hotpotqa_context),
            "validation",
        )
        clean, repeated = _without(split.examples, held_out.passages)
        if not clean:
            raise InputError(f"{study.file}: data.validation.{name}: every passage is in an earlier set; leave it out")
        held_out.passages |= {passage_hash(example.context) for example in clean}
        sample = take(clean, data.max_validation, data.seed, "data.max_validation", f"questions of {name} are used")
        if len(data.validation) > 1:
            sample = [replace(example, id=f"{name}:{example.id}") for example in sample]
        held_out.examples += sample
        held_out.sets |= {example.id: name for example in sample}
        held_out.sources |= split.hashes
        held_out.counts["validation_questions"][name] = len(sample)
        held_out.counts["in_an_earlier_set_dropped"][name] = repeated
    return held_out


def _limit_passages(examples: list[QAExample], limit: int | None, seed: int) -> tuple[list[QAExample], int]:
    """The examples of at most `limit` passages, and how many are left out. Labelled ones have another seed."""
    if limit is None:
        return examples, 0
    passages = sorted({passage_hash(example.context) for example in examples})
    kept_keys = set(sorted(passages, key=lambda key: seeded_rank(seed + 2, key))[:limit])
    kept = _within(examples, kept_keys)
    report_limit("data.max_passages", limit, len(kept_keys), len(passages), "training passages are used")
    return kept, len(examples) - len(kept)


def _split_development(
    examples: list[QAExample], fraction: float, seed: int
) -> tuple[list[QAExample], list[QAExample]]:
    """Set whole passages apart; the rest are for the resources. The seed of the labelled passages is another."""
    if len({passage_hash(example.context) for example in examples}) < 2:
        raise InputError("data.train: one passage alone leaves none to choose checkpoints on; give more")
    chosen, _ = sample_labelled(examples, fraction, seed + 1)
    passages = {passage_hash(example.context) for example in chosen}
    return _within(examples, passages), _without(examples, passages)[0]


def _resource_data(
    name: str, resource: Resource, examples: list[QAExample], forbidden: set[str], study: Study, root: Path
) -> tuple[ResourceData, dict[str, int]]:
    """The data of a resource, with none of the `forbidden` passages, and its counts."""
    seed = study.data.seed
    gold, unlabelled = sample_labelled(examples, resource.fraction, seed, resource.unit)
    what = "training questions are used, and of the others passages and answers alone"
    report_limit(f"resources.{name}.fraction", resource.fraction, len(gold), len(examples), what)
    if resource.max_gold is not None:
        known = len(gold)
        gold, rest = _limit_gold(gold, resource, seed)
        report_limit(f"resources.{name}.max_gold", resource.max_gold, len(gold), known, what)
        unlabelled = [*unlabelled, *rest]
    if not gold:
        raise InputError(f"{study.file}: resources.{name}: no gold question is left; raise fraction or max_gold")
    dropped = 0
    for path in resource.unlabelled:
        more = read_role(DataSettings(train=path), "train", allow_unlabelled=True).examples
        clean, shared = _without(more, forbidden)
        dropped += shared
        unlabelled += [replace(example, id=f"{Path(path).stem}:{example.id}", question="") for example in clean]
    text = [*gold, *unlabelled]
    all_spans = answer_spans([replace(example, question="") for example in text])
    spans = take(all_spans, study.data.max_spans, seed, "data.max_spans", "answers are asked about")
    folder = root / f"{name}-{_hash([gold, spans])}"
    counts = {"gold": len(gold), "spans": len(spans), "spans_left_out": len(all_spans) - len(spans)}
    counts |= {"unlabelled_on_validation_or_development_passages_dropped": dropped}
    return ResourceData(name, folder, gold, spans, text), counts


def _limit_gold(gold: list[QAExample], resource: Resource, seed: int) -> tuple[list[QAExample], list[QAExample]]:
    """Keep whole passages (or questions, if these are the unit), in the order in which `sample_labelled` chooses them,
    while they hold at most `max_gold` questions; the other examples lose their question.
    """
    limit = resource.max_gold or 0
    if resource.unit == "questions":
        ranked = sorted((example.id for example in gold), key=lambda key: seeded_rank(seed, key))
        kept_ids = set(ranked[:limit])
        rest = [replace(example, question="") for example in gold if example.id not in kept_ids]
        return [example for example in gold if example.id in kept_ids], rest
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
    """The examples on other passages, and how many are left out."""
    examples = list(examples)
    kept = [example for example in examples if passage_hash(example.context) not in passages]
    return kept, len(examples) - len(kept)


def _within(examples: Iterable[QAExample], passages: set[str]) -> list[QAExample]:
    return [example for example in examples if passage_hash(example.context) in passages]


def _write_spans(path: Path, spans: Sequence[QAExample]) -> None:
    with atomic_writer(path) as stream:
        for span in spans:
            answer = {"text": span.answers[0].text, "answer_start": span.answers[0].start}
            record = {"id": span.id, "title": span.title, "context": span.context, "question": "", "answers": [answer]}
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def _hash(parts: Sequence[Any]) -> str:
    """Eight hexadecimal digits that stand for the content."""
    digest = hashlib.sha256()
    for part in parts:
        examples = bool(part) and isinstance(part[0], QAExample)
        digest.update((examples_hash(part) if examples else json.dumps(part)).encode())
    return digest.hexdigest()[:8]
