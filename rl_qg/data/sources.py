"""What a source of QA data holds: its layout is recognised, and its records are parsed.

Layouts: SQuAD and flat rows (`rl_qg.data.formats`), HotpotQA (`rl_qg.data.hotpotqa`), MS MARCO
(`rl_qg.data.ms_marco`), SubjQA (`rl_qg.data.subjqa`), lmqg's pairs (`rl_qg.data.lmqg_pairs`) and parallel text files
(`rl_qg.data.parallel_texts`).
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rl_qg.data.csv_tables import table_rows
from rl_qg.data.formats import (
    FILE_NAME,
    HUB_NAME,
    RawRecord,
    Rows,
    existing_file,
    first_line,
    is_hub_name,
    json_line_rows,
    parse_json,
    row_records,
    squad_records,
    whole_file,
)
from rl_qg.data.hotpotqa import FACTS, hotpotqa_records, is_hotpotqa
from rl_qg.data.lmqg_pairs import is_lmqg, lmqg_records
from rl_qg.data.ms_marco import is_ms_marco, ms_marco_records, ms_marco_rows
from rl_qg.data.parallel_texts import parallel_files, parallel_records
from rl_qg.data.parquet_files import parquet_rows
from rl_qg.data.subjqa import is_subjqa, subjqa_records
from rl_qg.runtime.errors import InputError

CONVERTED = "refs/convert/parquet"
"""The revision that holds the Hub's own conversion of a data set."""


def raw_records(
    source: str, split: str, *, unlabelled: bool = False, hotpotqa_context: str = FACTS
) -> Iterator[RawRecord]:
    """Yield the records of a file, or of one split of a Hub data set; a missing id becomes `<file stem>-<row>`.

    Args:
        source: a path, or a Hub name, with a configuration as `name:configuration`.
        split: of a Hub data set.
        unlabelled: records may lack the fields `question` and `answers`, and SQuAD paragraphs the field `qas`.
        hotpotqa_context: what the passage of a HotpotQA question is (`rl_qg.data.hotpotqa.CONTEXTS`).

    Raises:
        InputError: with file, position and field.
    """
    if is_hub_name(source):
        stem = f"{source.rsplit('/')[-1].replace(':', '-')}-{split}"
        return _from_rows(_hub_rows(source, split), stem, unlabelled, hotpotqa_context)
    path = existing_file(source)
    if (files := parallel_files(path)) is not None:
        return parallel_records(files)
    match = FILE_NAME.fullmatch(path.name)
    if match is None:
        raise InputError(f"{source}: unknown kind of file; use .json, .jsonl, .csv, .tsv (all also .gz) or .parquet")
    if match["table"]:
        return _from_rows(parquet_rows(path), match["stem"], unlabelled, hotpotqa_context)
    kind = match["kind"].lower()
    if kind != "json":
        rows = json_line_rows(path) if kind == "jsonl" else table_rows(path, kind)
        return _from_rows(rows, match["stem"], unlabelled, hotpotqa_context)
    return _from_document(path, match["stem"], unlabelled, hotpotqa_context)


def _from_document(path: Path, stem: str, unlabelled: bool, hotpotqa_context: str) -> Iterator[RawRecord]:
    root = parse_json(whole_file(path), f"{path}")
    yield from document_records(root, path, stem, unlabelled, hotpotqa_context)


def is_squad(root: Any) -> bool:
    """Whether a JSON value is read as SQuAD: an object that has no other layout, or a list of SQuAD's articles."""
    if isinstance(root, list):
        return any(isinstance(article, dict) and "paragraphs" in article for article in root)
    return isinstance(root, dict) and not is_ms_marco(root)


def document_records(
    root: Any, path: Path, stem: str, unlabelled: bool = False, hotpotqa_context: str = FACTS
) -> Iterator[RawRecord]:
    """Yield the records of a file that is one JSON value, `root`; raise `InputError` if it has no known layout."""
    if is_hotpotqa(root):
        rows = ((f"{path}: [{number - 1}]", number, row) for number, row in enumerate(root, 1))
        yield from hotpotqa_records(rows, stem, hotpotqa_context)
    elif not isinstance(root, dict) and not is_squad(root):
        hint = "; a list is read if its items have HotpotQA's fields, or are SQuAD's articles"
        hint = hint if isinstance(root, list) else ""
        raise InputError(f"{path}: expected a JSON object, got {type(root).__name__}{hint}")
    elif is_ms_marco(root):
        yield from ms_marco_records(ms_marco_rows(root, path), stem)
    else:
        yield from squad_records(root, path, stem, unlabelled)


def _from_rows(rows: Rows, stem: str, unlabelled: bool, hotpotqa_context: str) -> Iterator[RawRecord]:
    """The records of rows, which have the layout of the first that can be read."""
    rest, head = iter(rows), list[tuple[str, int, Any]]()
    for item in rest:
        head.append(item)
        if not isinstance(item[2], InputError):
            break
    first = head[-1][2] if head else None
    everything = chain(head, rest)
    if is_hotpotqa([first]):
        return hotpotqa_records(everything, stem, hotpotqa_context)
    if is_ms_marco(first):
        return ms_marco_records(everything, stem)
    if is_lmqg(first):
        return lmqg_records(everything, stem)
    if is_subjqa(first):
        return subjqa_records(everything, stem)
    return row_records(everything, stem, unlabelled)


def _hub_rows(name: str, split: str) -> Iterator[tuple[str, int, Any]]:
    import datasets  # slow to import, and needed only for the Hub

    match = HUB_NAME.fullmatch(name)
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
