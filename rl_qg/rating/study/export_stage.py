"""`rl-qg rate export`: the ratings of a study as files, also while raters are at work."""

import csv
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from rl_qg.rating.plan_files import PLAN, StudyPlan
from rl_qg.rating.study.payments import write_payments
from rl_qg.rating.study.progress_tables import Snapshot
from rl_qg.rating.study.store import Store, open_store
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer, read_json
from rl_qg.settings.rating import RateExportSettings

RATINGS, TABLE, ITEMS = "ratings.jsonl", "ratings.csv", "items.jsonl"
ASSIGNMENTS, FEEDBACK = "assignments.jsonl", "feedback.jsonl"
COLUMNS = (
    *("study", "hit", "assignment", "rater", "position", "kind", "systems", "item", "passage", "original"),
    *("criterion", "value", "first_ms", "last_ms", "changes", "state"),
)

log = logging.getLogger(__name__)


def write_export(settings: RateExportSettings) -> None:
    """Write the folder of an export: one state of the study, pseudonyms only. If asked, say apart from it who is paid.

    Raises:
        InputError: no output or no study is named, nobody has rated anything, or the folder has another study's
            export.
    """
    if not settings.output:
        raise InputError("output: is empty; name a folder, as output=ratings")
    folder = Path(settings.output).expanduser()
    store = open_store(settings.study)
    try:
        _check_folder(folder, store)
        ratings, states = export_study(store, folder)
        if settings.payments:
            paid = write_payments(store, Path(settings.payments).expanduser(), folder)
            log.info("%d raters with their identities: %s", paid, settings.payments)
    except (PermissionError, NotADirectoryError) as error:
        raise InputError(f"output={folder}: cannot be written ({error.strerror}); name another place") from None
    finally:
        store.close()
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    log.info("%d ratings of %d assignments (%s)\ndone: %s", ratings, states.total(), counts, folder / RATINGS)


def export_study(store: Store, folder: Path) -> tuple[int, Counter[str]]:
    """Write all files of a study; each appears when all are complete.

    Returns:
        how many ratings, and how many assignments by state.

    Raises:
        InputError: nobody has rated anything yet.
    """
    with store.snapshot() as snapshot, ExitStack() as files:

        def file(name: str) -> TextIO:
            return files.enter_context(atomic_writer(folder / name))

        json.dump(dict(store.plan.settings), file(PLAN), ensure_ascii=False, indent=2)
        _write_lines(file(ITEMS), items_of(store.plan))
        states = _write_assignments(file(ASSIGNMENTS), snapshot)
        _write_lines(file(FEEDBACK), snapshot.feedback())
        ratings = _write_ratings(file(RATINGS), file(TABLE), snapshot.ratings())
        if not ratings:
            raise InputError(f"study={store.place}: nobody has rated anything yet; nothing was written")
    return ratings, states


def items_of(plan: StudyPlan) -> Iterator[dict[str, Any]]:
    """Every item of every task, as a line of `items.jsonl`."""
    for hit in plan.hits:
        for item in hit.items:
            passage = hit.passages[item.passage]
            yield {
                "hit": hit.hit,
                "position": item.position,
                "kind": item.kind,
                "systems": [*item.systems],
                "item": item.item,
                "passage": passage.passage,
                "original": item.original,
                "question": item.question,
                "context": passage.context,
                "answer": item.answer,
                "answer_start": item.answer_start,
            }


def utc(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC, to the second."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _write_lines(stream: TextIO, records: Iterable[Mapping[str, Any]]) -> None:
    for record in records:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def _write_assignments(stream: TextIO, snapshot: Snapshot) -> Counter[str]:
    states: Counter[str] = Counter()
    for record in snapshot.assignments():
        states[record["state"]] += 1
        times = {name: utc(record[name]) for name in ("started", "submitted")}
        _write_lines(stream, [record | times])
    return states


def _write_ratings(lines: TextIO, table: TextIO, records: Iterable[Mapping[str, Any]]) -> int:
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    count = 0
    for record in records:
        _write_lines(lines, [record])
        writer.writerow({**record, "systems": "|".join(record["systems"])})
        count += 1
    return count


def _check_folder(folder: Path, store: Store) -> None:
    """Refuse to write over the ratings of another study."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output={folder}: is a file; name a folder")
    if (folder / RATINGS).exists() and read_json(folder / PLAN) != json.loads(json.dumps(dict(store.plan.settings))):
        raise InputError(f"output={folder}: has the ratings of another study; name another folder")
