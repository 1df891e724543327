"""`rl-qg rate export`, `forget` and `status`: what leaves a study, what is deleted of it, and how far it is."""

import csv
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from rl_qg.pages.results import no_formula, text_template
from rl_qg.rating.analysis.quality import pass_rates
from rl_qg.rating.plan_files import PLAN
from rl_qg.rating.protocol import KINDS
from rl_qg.rating.study.records import NotAllowed
from rl_qg.rating.study.store import Store, opened_store
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, read_json, writing
from rl_qg.settings.web import RateExportSettings, RateForgetSettings, RateStatusSettings

# --- Who is to be paid: the one file that holds identities of raters, apart from every export ---

PAYMENT_COLUMNS = ("rater", "panel", "identity", "state", "submitted", "surplus", "codes", "extra")
RATINGS, TABLE, ITEMS = "ratings.jsonl", "ratings.csv", "items.jsonl"
ASSIGNMENTS, FEEDBACK = "assignments.jsonl", "feedback.jsonl"
LAST = 253_402_300_799  # 9999-12-31T23:59:59Z, in seconds since 1970
log = logging.getLogger(__name__)


def write_payments(store: Store, path: Path, export: Path) -> int:
    """Write a table of the raters whose identity is known, readable by its owner alone, and return how many they are.
    `export`: the folder of the export, which must not hold it.
    """
    if export.resolve() in path.resolve().parents or path.is_dir():
        raise InputError(f"payments={path}: identities are no part of an export; name a file elsewhere")
    if path.is_file() and not path.read_bytes().startswith(",".join(PAYMENT_COLUMNS).encode()):
        raise InputError(f"payments={path}: is no table of payments and would be replaced; name another file")
    rows = store.identities()
    with writing(path, "payments", "file"), atomic_writer(path, private=True) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(PAYMENT_COLUMNS)
        for one in rows:
            texts = {"codes": " ".join(one["codes"]), "extra": json.dumps(one["extra"], ensure_ascii=False)}
            writer.writerow([no_formula(str((one | texts)[name])) for name in PAYMENT_COLUMNS])
    return len(rows)


def write_export(settings: RateExportSettings) -> None:
    """Write an export: one state of the study, pseudonyms only. If asked, say apart from it who is paid."""
    if not settings.output:
        raise InputError("output: is empty; name a folder, as output=ratings")
    folder = Path(settings.output).expanduser()
    with opened_store(settings.study) as store:
        try:
            _check_folder(folder, store)
            ratings, states = export_study(store, folder)
            store.note("exported", ("ratings and identities " if settings.payments else "ratings ") + _user())
            if settings.payments:
                paid = write_payments(store, Path(settings.payments).expanduser(), folder)
                log.info("%d raters with their identities: %s", paid, settings.payments)
        except (PermissionError, NotADirectoryError, FileNotFoundError) as error:
            raise InputError(f"output={folder}: cannot be written ({error.strerror}); name another place") from None
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    log.info("%d ratings of %d assignments (%s)\ndone: %s", ratings, states.total(), counts, folder / RATINGS)


def _user() -> str:
    return f"by user {os.getuid()} in a shell"


def export_study(store: Store, folder: Path) -> tuple[int, Counter[str]]:
    """Write all files, the plan first and the ratings last; return the number of ratings, and assignments by state."""
    states, ratings = Counter[str](), 0
    with store.snapshot() as snapshot, ExitStack() as files:

        def file(name: str) -> TextIO:
            return files.enter_context(atomic_writer(folder / name, private=name == FEEDBACK))

        names = (RATINGS, TABLE, ITEMS, ASSIGNMENTS, FEEDBACK, PLAN)  # they are closed in the other order
        lines, table, items, assignments, feedback, plan = map(file, names)
        plan.write(json.dumps(store.plan.settings, ensure_ascii=False, indent=2) + "\n")
        for hit in store.plan.hits:
            for item in hit.items:
                texts = {"question": item.question, "context": hit.passages[item.passage].context}
                answer = {"answer": item.answer, "answer_start": item.answer_start}
                _write_line(items, {"hit": hit.hit, **hit.fields_of(item), **texts, **answer})
        for record in snapshot.assignments():
            states[record["state"]] += 1
            _write_line(assignments, record | {name: utc(record[name]) for name in ("started", "submitted")})
        for record in snapshot.feedback():
            _write_line(feedback, record)
        writer = csv.writer(table, lineterminator="\n")
        for record in snapshot.ratings():
            if not ratings:
                writer.writerow(record)
            _write_line(lines, record)
            writer.writerow(map(no_formula, {**record, "systems": "|".join(record["systems"])}.values()))
            ratings += 1
        if not ratings:
            raise InputError(f"study={store.place}: nobody has rated anything yet; nothing was written")
    return ratings, states


def _write_line(stream: TextIO, record: Mapping[str, Any]) -> None:
    stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def utc(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC, to the second; one after the year 9999 is the last second of it."""
    return None if seconds is None else datetime.fromtimestamp(min(seconds, LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_folder(folder: Path, store: Store) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output={folder}: is a file; name a folder")
    stored = read_json(folder / PLAN) if (folder / PLAN).is_file() else None
    is_used = stored is not None or (folder / RATINGS).exists()
    if is_used and stored != store.plan.settings:
        raise InputError(f"output={folder}: holds another study, or its plan; name another folder")


def forget_rater(settings: RateForgetSettings) -> None:
    """Delete one rater's data, or all raters' where they are `expired`, and print how much that was."""
    if bool(settings.rater) == settings.expired:
        raise InputError("rater: name one, as rater=r0007, or say expired=true for all of a study that is over")
    try:
        with opened_store(settings.study) as store:
            if settings.expired and store.now() < store.retention_until:
                until = utc(store.retention_until)
                raise InputError(f"expired: {store.place} keeps its raters until {until}, as its plan says")
            done = store.forget(None if settings.expired else settings.rater, settings.ratings, _user())
    except NotAllowed:
        raise InputError(f"rater={settings.rater}: the study has no such rater; exports name them, as r0007") from None
    kept = f"; {done['kept_ratings']} ratings stay, under a pseudonym that leads nowhere"
    print(
        f"raters forgotten: {done['raters']}. Deleted: {done['identities']} identities, {done['sessions']} sessions, "
        f"{done['feedback']} texts of feedback, {done['codes']} codes, {done['events']} events, "
        f"{done['ratings']} ratings" + (kept if done["kept_ratings"] else "")
    )


def print_status(settings: RateStatusSettings) -> None:
    with opened_store(settings.study) as store:
        status = study_status(store)
    if settings.json:
        print(json.dumps(status, ensure_ascii=False, indent=2))
    else:
        print(text_template("rl_qg.rating.study", "status.txt").render(status=status, kinds=KINDS), end="")


def study_status(store: Store) -> dict[str, Any]:
    progress = store.progress()
    with store.snapshot() as snapshot:
        passed = pass_rates(snapshot.ratings(), store.plan.protocol)
    times = {name: utc(progress[name]) for name in ("created", "retention_until", "next_expiry")}
    return progress | times | {"retention_over": store.now() >= store.retention_until, "control": passed}
