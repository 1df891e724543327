"""Data of a benchmark: read, cleaned, divided by paragraph, written in two forms, with statistics.

The folder gets `train.json`, `validation.json` and `test.json` (SQuAD's form, with all answers), of each a `.jsonl` in
QG-Bench's schema (`rl_qg.data.examples`), `statistics.json` and `statistics.md`.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from rl_qg.data.examples import (
    Answer,
    QAExample,
    Role,
    by_key,
    passage_hash,
    seeded_rank,
    sentence_of,
    unified_row,
    write_squad,
)
from rl_qg.data.reading import read_examples, source_names
from rl_qg.pages.results import as_markdown
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_record, write_json, write_json_lines, write_text, writing
from rl_qg.settings import BenchSettings

# The cleaning of texts in QG-Bench: asahi417/lm-question-generation, `tests/dataset_preparation.py` at e53a89b.
LOST = "answer not at its place after cleaning"
_CITATION = re.compile(r"\[\d*\]")
_SPACE = re.compile(r"\s+")
TEXTS = ("paragraph", "sentence", "question", "answer")
ROLES: tuple[Role, ...] = ("train", "validation", "test")
STATISTICS = "statistics.json"
OWN = "bench_data"  # a key that no other program's file of that name has
log = logging.getLogger(__name__)


def clean_text(text: str) -> str:
    return _without_marks(text).strip()


def clean_example(example: QAExample) -> QAExample | str:
    """With clean texts and answers at their offsets, without lost ones; the reason where the first one is lost."""
    context, question = clean_text(example.context), clean_text(example.question)
    kept: list[Answer] = []
    for number, answer in enumerate(example.answers):
        text, spaces = clean_text(answer.text), len(answer.text) - len(answer.text.lstrip())
        start = len(_without_marks(example.context[: answer.start + spaces]).lstrip())
        if text and context.startswith(text, start):
            kept.append(Answer(text, start))
        elif number == 0:
            return LOST
    return replace(example, context=context, question=question, answers=tuple(kept)) if question else "no question"


def _without_marks(text: str) -> str:
    return _SPACE.sub(" ", _CITATION.sub("", text))


def split_statistics(examples: Sequence[QAExample]) -> dict[str, Any]:
    """Counts, and the mean lengths in characters over questions, as in QG-Bench (Table 1).

    `first_occurrence_wrong` counts the questions whose first answer stands at another place than where its text first
    occurs in the paragraph.
    """
    lengths: list[tuple[int, ...]] = []
    for example in examples:
        answer = example.answers[0]
        first, last = sentence_of(example.context, answer.start, answer.start + len(answer.text))
        lengths.append((len(example.context), last - first, len(example.question), len(answer.text)))
    return {
        "questions": len(examples),
        "paragraphs": len({passage_hash(example.context) for example in examples}),
        "articles": len({example.title for example in examples if example.title}),
        "mean_characters": {
            name: sum(column) / len(examples) for name, column in zip(TEXTS, zip(*lengths, strict=True), strict=True)
        },
        "first_occurrence_wrong": sum(
            example.context.find(example.answers[0].text) != example.answers[0].start for example in examples
        ),
    }


def statistics_table(splits: Mapping[str, Mapping[str, Any]]) -> str:
    columns = ["split", "questions", "paragraphs", "articles", *(f"{name} (mean characters)" for name in TEXTS)]
    rows = [
        [
            *(name, f"{part['questions']:,}", f"{part['paragraphs']:,}", f"{part['articles']:,}"),
            *(f"{part['mean_characters'][text]:.1f}" for text in TEXTS),
            f"{part['first_occurrence_wrong'] / part['questions']:.1%}",
        ]
        for name, part in splits.items()
    ]
    return as_markdown([*columns, "answer's text also before it"], rows)


def squadshifts_sizes(questions: int) -> dict[str, int]:
    """How many questions QG-Bench takes of a domain of SQuADShifts for test (half, rounded down) and validation (a
    third of the rest, rounded): amazon 4,942 and 1,648 of 9,885.
    """
    test = questions // 2
    return {"test": test, "validation": round(Fraction(questions - test, 3))}


def divide(examples: Sequence[QAExample], sizes: Mapping[str, int], seed: int) -> dict[str, list[QAExample]]:
    """Examples for each name in `sizes`, in their order, and the rest as `train`. No two parts share a paragraph.

    Paragraphs are taken in a random order that depends on their text and on `seed` alone. One that has more questions
    than the part still needs is left to the next part, so a part has its size unless every paragraph left has too
    many. A part that would be empty for that reason takes a paragraph with the fewest questions, and is larger.
    """
    keys = [passage_hash(example.context) for example in examples]
    counts = Counter(keys)
    left = sorted(counts, key=lambda key: seeded_rank(seed, key))
    role: dict[str, str] = {}
    for name, size in sizes.items():
        taken, needed = list[str](), size
        for key in left:
            if counts[key] <= needed:
                taken.append(key)
                needed -= counts[key]
        if size and not taken and len(left) > 1:
            taken = [min(left, key=lambda key: counts[key])]
        role |= dict.fromkeys(taken, name)
        left = [key for key in left if key not in role]
    parts = by_key((role.get(key, "train"), example) for example, key in zip(examples, keys, strict=True))
    return {name: parts.get(name, []) for name in ("train", *sizes)}


def write_bench_data(settings: BenchSettings, folder: Path) -> None:
    """Write all files to a folder."""
    sources = _sources(settings)
    noted = _check_folder(folder, sources, asdict(settings))
    parts, record = bench_splits(settings)
    for source, value in record["sha256"].items():
        if noted.get(source, value) != value:
            raise InputError(f"{source}: has changed since the splits in {folder} were made; name another output_dir")
    with writing(folder, "output_dir", "folder"):
        write_json(folder / STATISTICS, {OWN: False})  # from now on the files are ours, also after a kill
        for name in ROLES:
            _write_split(folder, name, parts.get(name, []))
        record["splits"] = {name: split_statistics(part) for name, part in parts.items()}
        table = statistics_table(record["splits"])
        write_text(folder / "statistics.md", f"{table}\n")
        write_json(folder / STATISTICS, {OWN: True, **record})
    log.info("%s\ndone: see %s", table, folder)


def bench_splits(settings: BenchSettings) -> tuple[dict[str, list[QAExample]], dict[str, Any]]:
    """The examples of each split that has some; what reading and cleaning counted, and the wanted sizes."""
    parts: dict[str, list[QAExample]] = {}
    record: dict[str, Any] = {"settings": asdict(settings), "reading": {}, "cleaning": {}, "sha256": {}}
    for role, source in _sources(settings).items():
        data = read_examples(source, role=role)
        log.info(data.summary())
        cleaned = [example if settings.clean == "none" else clean_example(example) for example in data.examples]
        parts[role] = [result for result in cleaned if not isinstance(result, str)]
        dropped = Counter(result for result in cleaned if isinstance(result, str))
        record["reading"][role], record["cleaning"][role] = data.report, dict(dropped)
        record["sha256"] |= data.hashes
        for reason, count in dropped.items():
            log.info("%s: %d records dropped (%s)", role, count, reason)
        if not parts[role]:
            named = ", ".join(source_names(source, role))
            raise InputError(f"{named}: no record is left after cleaning; see clean=none")
    record["shared_paragraphs_dropped"] = _drop_shared(parts)
    record["wanted"] = wanted = _wanted_sizes(settings, {name: len(part) for name, part in parts.items()})
    if wanted:
        parts |= divide(parts["train"], wanted, settings.seed)
        for name in ("train", *(name for name, size in wanted.items() if size)):
            if not parts[name]:
                named = ", ".join(source_names(settings.data, "data"))
                raise InputError(
                    f"{named}: too few paragraphs to divide: nothing is left for "
                    f"{name}; give more data, or {'other shares' if name == 'train' else f'{name}=FILE'}"
                )
    return {name: parts[name] for name in ROLES if parts.get(name)}, record


def _sources(settings: BenchSettings) -> dict[Role, Any]:
    named: dict[Role, Any] = {"train": settings.data, "validation": settings.validation, "test": settings.test}
    keys = {"train": "data"}
    given = {role: source for role, source in named.items() if source_names(source, keys.get(role, role))}
    if not given:
        raise InputError("data has no value; give file(s) or a Hub data set, such as data=squad.json")
    if settings.split == "squadshifts" and given.keys() != {"train"}:
        raise InputError("split=squadshifts divides data alone; leave out validation and test, or split")
    return given


def _wanted_sizes(settings: BenchSettings, sizes: dict[str, int]) -> dict[str, int]:
    """How many questions are to be taken of the training data for the splits that have no source."""
    if "train" not in sizes:
        return {}
    if settings.split == "squadshifts":
        return squadshifts_sizes(sizes["train"])
    if len(sizes) == 1:
        shares = {"test": settings.test_share, "validation": settings.validation_share}
        return {name: max(1, round(share * sizes["train"])) if share else 0 for name, share in shares.items()}
    missing = [name for name in ("test", "validation") if name not in sizes]
    return {missing[0]: sizes["validation" if missing[0] == "test" else "test"]} if missing else {}


def _drop_shared(parts: dict[str, list[QAExample]]) -> dict[str, int]:
    """Leave out of each split what is about a paragraph of a later one (the test data keep all); return how many."""
    later: set[str] = set()
    dropped: dict[str, int] = {}
    for name in reversed(ROLES):
        part = parts.get(name, [])
        keys = [passage_hash(example.context) for example in part]
        kept = [example for example, key in zip(part, keys, strict=True) if key not in later]
        later |= set(keys)
        if len(kept) < len(part):
            dropped[name] = len(part) - len(kept)
            log.info("%s: %d records dropped (paragraph of a later split)", name, dropped[name])
            if not kept:
                key = "data" if name == "train" else name
                raise InputError(f"{key}: every paragraph is also in a later split; name different files")
            parts[name] = kept
    return dropped


def _write_split(folder: Path, name: str, examples: list[QAExample]) -> None:
    """Write a split; delete what an earlier call wrote where there is none."""
    if not examples:
        for ending in ("json", "jsonl"):
            (folder / f"{name}.{ending}").unlink(missing_ok=True)
        return
    write_squad(folder / f"{name}.json", examples)
    shown = ProgressBar(examples, desc=name, unit="row", leave=False, delay=2)
    write_json_lines(folder / f"{name}.jsonl", map(unified_row, shown))


def _check_folder(folder: Path, sources: dict[Role, Any], settings: dict[str, Any]) -> dict[str, str]:
    """Raise `InputError` where files of somebody else, other splits, or the input would be written over; return the
    hashes of what the splits in the folder were made of.
    """
    names = [STATISTICS, "statistics.md", *(f"{role}.{ending}" for role in ROLES for ending in ("json", "jsonl"))]
    outputs = {(folder / name).resolve() for name in names}
    for source in (name for role, group in sources.items() for name in source_names(group, role)):
        if Path(source).expanduser().resolve() in outputs:
            raise InputError(f"output_dir={folder}: would write over the input {source}; name another folder")
    present = [path.name for path in outputs if path.exists()]
    record = read_record(folder / STATISTICS) if (folder / STATISTICS).exists() else {}
    if present and OWN not in record:
        raise InputError(
            f"output_dir={folder}: {sorted(present)[0]} in it is not of this command; name another folder"
        )
    if changed := [key for key, value in record.get("settings", {}).items() if settings.get(key) != value]:
        keys = ", ".join(changed)
        raise InputError(f"output_dir={folder}: holds splits of other settings ({keys}); name another folder")
    return record.get("sha256", {})
