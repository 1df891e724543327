"""What a source of QA data holds: its layout is recognised, and its records are parsed.

Layouts: SQuAD and flat rows (`rl_qg.data.formats`), HotpotQA (`rl_qg.data.hotpotqa`), MS MARCO
(`rl_qg.data.ms_marco`), lmqg's pairs (`rl_qg.data.lmqg_pairs`) and parallel text files (`rl_qg.data.parallel_texts`).
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from rl_qg.data.formats import (
    FILE_NAME,
    RawRecord,
    Rows,
    existing_file,
    first_line,
    is_hub_name,
    json_line_rows,
    parquet_rows,
    parse_json,
    row_records,
    squad_records,
    whole_file,
)
from rl_qg.data.hotpotqa import FACTS, hotpotqa_records, is_hotpotqa
from rl_qg.data.lmqg_pairs import is_lmqg, lmqg_records
from rl_qg.data.ms_marco import is_ms_marco, ms_marco_records, ms_marco_rows
from rl_qg.data.parallel_texts import parallel_files, parallel_records
from rl_qg.runtime.errors import InputError


def raw_records(
    source: str, split: str, *, unlabelled: bool = False, hotpotqa_context: str = FACTS
) -> Iterator[RawRecord]:
    """Yield the records of a file, or of one split of a Hub data set; a missing id becomes `<file stem>-<row>`.

    Args:
        source: a path or a Hub name.
        split: of a Hub data set.
        unlabelled: records may lack the fields `question` and `answers`, and SQuAD paragraphs the field `qas`.
        hotpotqa_context: what the passage of a HotpotQA question is (`rl_qg.data.hotpotqa.CONTEXTS`).

    Raises:
        InputError: with file, position and field.
    """
    if is_hub_name(source):
        stem = f"{source.rsplit('/')[-1]}-{split}"
        return _from_rows(_hub_rows(source, split), stem, unlabelled, hotpotqa_context)
    path = existing_file(source)
    if (files := parallel_files(path)) is not None:
        return parallel_records(files)
    match = FILE_NAME.fullmatch(path.name)
    if match is None:
        raise InputError(f"{source}: unknown kind of file; use .json, .jsonl (both also .gz) or .parquet")
    if match["table"]:
        return _from_rows(parquet_rows(path), match["stem"], unlabelled, hotpotqa_context)
    if match["kind"].lower() == "jsonl":
        return _from_rows(json_line_rows(path), match["stem"], unlabelled, hotpotqa_context)
    return _from_document(path, match["stem"], unlabelled, hotpotqa_context)


def _from_document(path: Path, stem: str, unlabelled: bool, hotpotqa_context: str) -> Iterator[RawRecord]:
    root = parse_json(whole_file(path), f"{path}")
    yield from document_records(root, path, stem, unlabelled, hotpotqa_context)


def is_squad(root: Any) -> bool:
    """Whether a JSON value is read as SQuAD: an object that has no other layout."""
    return isinstance(root, dict) and not is_ms_marco(root)


def document_records(
    root: Any, path: Path, stem: str, unlabelled: bool = False, hotpotqa_context: str = FACTS
) -> Iterator[RawRecord]:
    """Yield the records of a file that is one JSON value, `root`; raise `InputError` if it has no known layout."""
    if is_hotpotqa(root):
        rows = ((f"{path}: [{number - 1}]", number, row) for number, row in enumerate(root, 1))
        yield from hotpotqa_records(rows, stem, hotpotqa_context)
    elif not isinstance(root, dict):
        hint = "; a list is read if its items have HotpotQA's fields" if isinstance(root, list) else ""
        raise InputError(f"{path}: expected a JSON object, got {type(root).__name__}{hint}")
    elif is_ms_marco(root):
        yield from ms_marco_records(ms_marco_rows(root, path), stem)
    else:
        yield from squad_records(root, path, stem, unlabelled)


def _from_rows(rows: Rows, stem: str, unlabelled: bool, hotpotqa_context: str) -> Iterator[RawRecord]:
    """The records of rows, which have the layout of the first."""
    rest = iter(rows)
    first = next(rest, None)
    everything = chain([] if first is None else [first], rest)
    if first is not None and is_hotpotqa([first[2]]):
        return hotpotqa_records(everything, stem, hotpotqa_context)
    if first is not None and is_ms_marco(first[2]):
        return ms_marco_records(everything, stem)
    if first is not None and is_lmqg(first[2]):
        return lmqg_records(everything, stem)
    return row_records(everything, stem, unlabelled)


def _hub_rows(name: str, split: str) -> Iterator[tuple[str, int, Any]]:
    import datasets  # slow to import, and needed only for the Hub

    try:
        data = datasets.load_dataset(name, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name}: no file of that name, and the Hub data set's split {split!r} cannot be read "
            f"({first_line(error)}); "
            f"to work offline give data.{split}=FILE (SQuAD .json, .jsonl or .parquet) or use preset=quickstart"
        ) from None
    yield from ((f"{name}: {split} row {number}", number, row) for number, row in enumerate(data, 1))
