"""Read QA examples: which records of a source are usable, what was repaired or dropped, and why.

`rl_qg.data.formats` parses the files. `rl_qg.data.streaming` reads the same examples without holding them in memory.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rewards.errors import first_line
from rl_qg.data import formats
from rl_qg.data.examples import Answer, QAExample, Role, examples_hash
from rl_qg.data.layouts import FACTS, RecordOptions, parallel_files, parallel_records, records, rows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash

CONVERTED = "refs/convert/parquet"
"""The revision that holds the Hub's own conversion of a data set."""
REPORTED_IDS = 1000
SHOWN_FAULTS = 3  # of malformed records, in a line of the log
_CHANGES = ("repaired", "answers_dropped", "duplicate_ids")


def raw_records(
    source: str, split: str, *, unlabelled: bool = False, hotpotqa_context: str = FACTS
) -> Iterator[formats.RawRecord]:
    """The records of a file, or of one split of a Hub data set (`name` or `name:configuration`); a missing id becomes
    `<file stem>-<row>`. Options are those of `rl_qg.data.layouts.RecordOptions`.
    """
    options = RecordOptions(unlabelled, hotpotqa_context)
    if formats.is_hub_name(source):
        stem = f"{source.rsplit('/')[-1].replace(':', '-')}-{split}"
        return records(_hub_rows(source, split), stem, options)
    path = formats.existing_file(source)
    if (files := parallel_files(path)) is not None:
        return parallel_records(files)
    stem, kind = formats.stem_and_kind(path)
    if not kind:
        raise InputError(f"{source}: unknown kind of file; use {formats.KINDS}")
    return records(rows(path, options), stem, options)


def _hub_rows(name: str, split: str) -> Iterator[tuple[str, int, Any]]:
    import datasets  # slow to import, and needed only for the Hub

    match = formats.HUB_NAME.fullmatch(name)
    assert match is not None  # as `is_hub_name` says
    configuration = [match["configuration"]] if match["configuration"] else []
    load = partial(datasets.load_dataset, match["name"], *configuration, split=split)
    try:
        try:
            data = load()
        except RuntimeError as error:  # lmqg's data sets are scripts, which `datasets` runs no longer
            if "scripts are no longer supported" not in str(error):
                raise
            # There each configuration is a folder.
            data = datasets.load_dataset(
                match["name"], data_dir=match["configuration"] or None, split=split, revision=CONVERTED
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name}: no file of that name, and the Hub data set's split {split!r} cannot be read "
            f"({first_line(error)}); "
            f"to work offline give data.{split}=FILE (SQuAD .json, .jsonl or .parquet) or use preset=quickstart"
        ) from None
    yield from ((f"{name}: {split} row {number}", number, row) for number, row in enumerate(data, 1))


@dataclass(frozen=True)
class QAData:
    """Examples that are safe to use: unique ids, a context, at least one answer, every answer at its offset.

    `report` counts what reading did. `read` = `kept` + the counts under `dropped` (by reason). About kept records:
    `repaired` (an offset was corrected), `answers_dropped` (a misplaced answer was left out, others remain) and
    `duplicate_ids` (renamed to `<id>-2`, `<id>-3`, ...). Each holds `count` and the first 1,000 `ids`. A record with a
    wrong field is dropped as a malformed one; if any was, `malformed` has the first 1,000 faults (file, position,
    field). `hashes` maps each source to the SHA-256 of its file, or of its examples when it came from the Hub.
    """

    examples: list[QAExample]
    report: dict[str, Any]
    hashes: dict[str, str]

    def summary(self) -> str:
        return report_line(self.report)


def read_examples(
    sources: str | Path | Sequence[str | Path],
    *,
    role: Role,
    allow_unlabelled: bool = False,
    impossible: bool = False,
    hotpotqa_context: str = FACTS,
) -> QAData:
    """Read QA examples from one source or several, in order: files (SQuAD v1.1 or v2, HotpotQA or MS MARCO `.json`;
    flat or QG-Bench columns in `.jsonl` or `.parquet`; JSON also as `.gz`; parallel text files) or Hub data sets, of
    which the split `role` is read.

    `allow_unlabelled` keeps records without a question, `impossible` questions without answers, such as SQuAD 2.0's.
    `hotpotqa_context` is what the passage of a HotpotQA question is (`rl_qg.data.layouts.CONTEXTS`). An answer that is
    not at its offset is moved when its text occurs once in the context. Records that cannot be used are dropped and
    counted. Raises `InputError` where a file is missing or cannot be parsed, or a source has no usable record.
    """
    names = source_names(sources, f"data.{role}")
    if not names:
        raise InputError(f"no {role} data given: set data.{role}=FILE or to the name of a Hub data set")
    checker, examples, hashes = RecordChecker(impossible=impossible), list[QAExample](), dict[str, str]()
    for name in names:
        records = raw_records(name, role, unlabelled=allow_unlabelled, hotpotqa_context=hotpotqa_context)
        usable = list(checker.usable_examples(name, records, allow_unlabelled))
        examples += usable
        hashes[name] = examples_hash(usable) if formats.is_hub_name(name) else file_hash(Path(name).expanduser())
    return QAData(examples=examples, report={"role": role, "sources": names, **checker.report()}, hashes=hashes)


def source_names(sources: Any, key: str) -> list[str]:
    """The names in a setting that holds one or a list of them; `InputError` names its `key` where it holds others."""
    if not sources:
        return []
    several = isinstance(sources, Iterable) and not isinstance(sources, str | Path | Mapping)
    names = list(sources) if several else [sources]
    for name in names:
        if not isinstance(name, str | Path):
            shown = dict(name) if isinstance(name, Mapping) else name
            raise InputError(f"{key}={shown!r:.60}: is neither a file nor a list of files")
    return [str(name) for name in names]


def report_line(report: Mapping[str, Any]) -> str:
    kept = f"{report['role']} data: {report['kept']:,} of {report['read']:,} records"
    changes = [f"{name.replace('_', ' ')} {report[name]['count']:,}" for name in _CHANGES if report[name]["count"]]
    drops = [f"dropped {part['count']:,} ({reason})" for reason, part in report["dropped"].items()]
    return "; ".join([kept, *changes, *drops, *_first_faults(report.get("malformed", ()))])


def malformed_line(source: Any, faults: Sequence[str]) -> str:
    return "; ".join([f"{source}: malformed records left out: {len(faults):,}", *_first_faults(faults)])


def _first_faults(faults: Sequence[str]) -> list[str]:
    return [*faults[:SHOWN_FAULTS], *(["…"] if len(faults) > SHOWN_FAULTS else [])]


def without_malformed(
    source: Any, records: Iterable[formats.RawRecord], faults: list[str]
) -> Iterator[formats.RawRecord]:
    """The records of a source that could be read; what is wrong with the others is added to `faults`. Raises
    `InputError` at the end, if none could be read but some could not.
    """
    read, before = 0, len(faults)
    for record in records:
        if record.unusable == formats.MALFORMED_RECORD:
            faults.append(record.fault)
        else:
            read += 1
            yield record
    if not read and len(faults) > before:
        raise InputError(_no_good_record(source, len(faults) - before, faults[before]))


def _no_good_record(source: Any, read: int, fault: str) -> str:
    return fault if read == 1 else f"{source}: all {read:,} records are malformed; {fault}"


class RecordChecker:
    """Turns records into examples, and counts what it repairs and drops. With the `new_ids` that an earlier checker of
    the same records gave to duplicates, by position among the kept records, it need not remember all ids itself.
    """

    def __init__(self, new_ids: Mapping[int, str] | None = None, *, impossible: bool = False) -> None:
        self._impossible = impossible
        self.read = self.kept = 0
        self.changes: dict[str, dict[str, Any]] = {name: {"count": 0, "ids": []} for name in _CHANGES}
        self.dropped: dict[str, dict[str, Any]] = {}
        self.malformed: list[str] = []  # what is wrong with the first of them
        self.new_ids: dict[int, str] = {}
        self._given_new_ids = new_ids
        self._seen_ids: set[str] = set()
        self._copies: dict[str, int] = {}  # how often a repeated id was seen

    def usable_examples(
        self, source: str, records: Iterable[formats.RawRecord], allow_unlabelled: bool
    ) -> Iterator[QAExample]:
        """Yield the examples among the records of a source; raise `InputError` at its end if there was none."""
        read, drops, fault = 0, Counter[str](), ""
        for record in records:
            read += 1
            fault = fault or record.fault
            if record.fault and len(self.malformed) < REPORTED_IDS:
                self.malformed.append(record.fault)
            self.read += 1
            result = self._check(record, allow_unlabelled, source)
            if isinstance(result, str):
                drops[result] += 1
                _count(self.dropped.setdefault(result, {"count": 0, "ids": []}), record.id)
            else:
                self.kept += 1
                yield result
        if fault and drops[formats.MALFORMED_RECORD] == read:
            raise InputError(_no_good_record(source, read, fault))
        if read == drops.total():
            counts = "; ".join([f"{read} read", *(f"{count} dropped ({reason})" for reason, count in drops.items())])
            named = f"; {fault}" if fault else ""
            raise InputError(f"{source}: no usable record: {counts}{named}; check the file, or give another")

    def _check(self, record: formats.RawRecord, allow_unlabelled: bool, source: str) -> QAExample | str:
        if reason := _reason_to_drop(record, allow_unlabelled, self._impossible):
            return reason
        results = [_located_answer(text, start, record.context) for text, start in record.answers]
        answers = tuple(result for result in results if isinstance(result, Answer))
        if results and not answers:
            return next(result for result in results if isinstance(result, str))
        if any((answer.text, answer.start) not in record.answers for answer in answers):
            _count(self.changes["repaired"], record.id)
        if len(answers) < len(results):
            _count(self.changes["answers_dropped"], record.id)
        own = (self._unique_id(record.id), record.title, record.context, record.question, answers)
        return QAExample(*own, source=source, multi_hop=record.multi_hop, language=record.language)

    def _unique_id(self, key: str) -> str:
        if self._given_new_ids is not None:
            return self._given_new_ids.get(self.kept, key)
        unique, number = key, self._copies.get(key, 1)
        while unique in self._seen_ids:
            number += 1
            unique = f"{key}-{number}"
        if unique != key:
            self._copies[key] = number
            _count(self.changes["duplicate_ids"], key)
            self.new_ids[self.kept] = unique
        self._seen_ids.add(unique)
        return unique

    def report(self) -> dict[str, Any]:
        faults = {"malformed": self.malformed} if self.malformed else {}
        counts = {"read": self.read, "kept": self.kept, **self.changes, "dropped": dict(sorted(self.dropped.items()))}
        return copy.deepcopy(counts | faults)


def _count(ids: dict[str, Any], key: str) -> None:
    ids["count"] += 1
    if len(ids["ids"]) < REPORTED_IDS:
        ids["ids"].append(key)


def _reason_to_drop(record: formats.RawRecord, allow_unlabelled: bool, allow_impossible: bool) -> str:
    impossible = allow_impossible and not record.answers and record.unusable in ("", formats.IMPOSSIBLE)
    if record.unusable and not impossible:
        return record.unusable
    if not record.context.strip():
        return "no context"
    if not record.question.strip() and (impossible or not allow_unlabelled):
        return "no question"
    if not impossible and not any(text.strip() for text, _ in record.answers):
        return "no answer"
    texts = (record.id, record.title, record.context, record.question, *(text for text, _ in record.answers))
    return "" if all(map(formats.is_unicode, texts)) else "broken characters"


def _located_answer(text: str, start: int, context: str) -> Answer | str:
    if not text.strip():
        return "no answer"
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    position = formats.find_once(text, context)
    if position >= 0:
        return Answer(text, position)
    return "answer not in context" if position == -1 else "answer misplaced and ambiguous"
