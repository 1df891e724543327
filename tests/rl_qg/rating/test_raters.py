"""Raters: tokens, identities apart from everything else, and what is left when one is forgotten."""

import hashlib
import re
from contextlib import ExitStack
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.rating.study import database, raters as module
from rl_qg.rating.study.records import NotAllowed
from rl_qg.rating.study.store import Store, open_store
from rl_qg.runtime.errors import InputError
from tests.rl_qg.rating.studies import Clock, consenting_rater, events, rate_all, small_plan

IDENTITY = "5f1dCAFE5f1dCAFE5f1dCAFE"
DAY = 86_400


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(study_url: str, clock: Clock) -> Store:
    return open_store(study_url, small_plan(), clock)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


def bytes_of(path: Path) -> bytes:
    """Everything that a SQLite database has on disk."""
    return b"".join(part.read_bytes() for part in sorted(path.parent.glob(f"{path.name}*")))


def on_disk(url: str) -> bytes:
    """Everything that a study has on disk; of PostgreSQL without the log of the whole server."""
    if "://" not in url:
        return bytes_of(Path(url))
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    folder = Path(parse_qs(urlsplit(url).query)["host"][0], "data", "base")
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def finished(store: Store, rater: str, remark: str = "Write to ada@example.org") -> None:
    store.give_consent(rater, "1", "en")
    claimed = store.claim(rater)
    assert claimed is not None
    rate_all(store, claimed.id, rater)
    store.add_feedback(claimed.id, rater, remark)
    store.submit(claimed.id, rater)
    store.code(claimed.id, "completed")


def test_an_identity_is_one_rater_on_its_panel(store: Store) -> None:
    rater = store.rater_of_panel("prolific", IDENTITY, {"session": "1"})
    assert store.rater_of_panel("prolific", IDENTITY, {"session": "2"}) == rater
    assert store.rater_of_panel("prolific", f" {IDENTITY} ") == rater
    others = {
        store.rater_of_panel("sona", IDENTITY),
        store.rater_of_panel("prolific", IDENTITY.lower()),
        store.new_rater(),
    }
    assert rater not in others
    assert len(others) == 3
    for given in ("", " ", "\0", "x" * 201):
        with pytest.raises(InputError, match="participant"):
            store.rater_of_panel("prolific", given)


def test_sessions_end_and_expire(store: Store, clock: Clock) -> None:
    rater = store.new_rater()
    one, two = store.new_session(rater), store.new_session(rater)
    sessions = [store.session(token) for token in (one, two)]
    assert all(item is not None and item.rater == rater for item in sessions)
    assert len({item.csrf for item in sessions if item} | {one, two}) == 4
    assert store.session(one) == sessions[0]
    clock.now += 14 * DAY - 1
    assert store.session(two) is not None
    clock.now += 2
    assert store.session(two) is None
    for token in ("", "x", one + "x", "\ud800", "é" * 10_000):
        assert store.session(token) is None
    with pytest.raises(NotAllowed):
        store.new_session("r0099")
    newest = [store.new_session(rater) for _ in range(25)]
    assert [store.session(token) is not None for token in newest].count(True) == 20
    assert store.forget(rater)["sessions"] == 20


def test_a_clock_that_jumps_ahead_and_back_signs_nobody_out(store: Store, clock: Clock) -> None:
    raters = [store.new_rater() for _ in range(3)]
    tokens = [store.new_session(rater) for rater in raters]
    clock.now += 20 * DAY
    assert not any(map(store.session, tokens))
    store.new_session(raters[0])
    store.new_session(store.new_rater())
    clock.now -= 20 * DAY
    sessions = [store.session(token) for token in tokens]
    assert [session and session.rater for session in sessions] == raters


def test_an_invitation_is_one_rater(store: Store) -> None:
    first, second = store.add_invites(2)
    raters = [store.rater_of_invite(token) for token in (first, second, first)]
    assert raters[0] == raters[2] != raters[1]
    assert store.rater_of_invite(first[:-1]) is None
    assert [state for _, state in store.raters()] == ["arrived", "arrived"]


def test_no_token_is_in_the_database_and_an_identity_only_in_its_table(file: Path) -> None:
    store = open_store(str(file), small_plan())
    rater = store.rater_of_panel("prolific", IDENTITY, {"session": "s3ss10n"})
    session, (invite,) = store.new_session(rater), store.add_invites(1)
    held = bytes_of(file)
    for token in (session, invite):
        assert token.encode() not in held
        assert hashlib.sha256(token.encode()).hexdigest().encode() in held
    assert len(session) == 43  # 256 bits
    assert IDENTITY.encode() in held  # for payment
    assert hashlib.sha256(IDENTITY.encode()).hexdigest().encode() not in held  # guessed ids cannot be compared
    files = [*file.parent.glob(f"{file.name}*")]
    assert len(files) == 3 and not any(one.stat().st_mode & 0o077 for one in files), "-wal and -shm too"


# --- Forgetting ---


def test_a_forgotten_rater_leaves_ratings_under_a_pseudonym_that_leads_nowhere(store: Store) -> None:
    rater = store.rater_of_panel("prolific", IDENTITY)
    token = store.new_session(rater)
    finished(store, rater)
    done = store.forget(rater)
    assert (done["raters"], done["identities"], done["sessions"], done["feedback"]) == (1, 1, 1, 1)
    assert (done["events"], done["ratings"], done["kept_ratings"], done["codes"]) == (3, 0, 6, 1)
    assert store.session(token) is None
    assert events(store, rater) == []
    assert store.rater(rater).state == "forgotten"
    assert store.progress()["raters"] == {"forgotten": 1}
    assert (store.progress()["ratings"], store.progress()["feedback"]) == (6, 0)
    assert store.rater_of_panel("prolific", IDENTITY) != rater
    with pytest.raises(NotAllowed, match="forgotten"):
        store.claim(rater)
    again = store.forget(rater)
    assert (again["raters"], again["identities"], again["kept_ratings"]) == (0, 0, 6)


def test_forgotten_with_ratings_the_tasks_are_given_out_again(store: Store) -> None:
    rater = store.new_rater()
    finished(store, rater)
    done = store.forget(rater, ratings=True)
    assert (done["ratings"], done["kept_ratings"]) == (6, 0)
    progress = store.progress()
    assert (progress["ratings"], progress["assignments"]["submitted"], progress["raters"]) == (0, 0, {"forgotten": 1})
    claimed = store.claim(consenting_rater(store))
    assert claimed is not None
    assert claimed.hit.hit == "h0001"


def test_an_open_task_of_a_forgotten_rater_is_free(store: Store) -> None:
    rater = consenting_rater(store)
    claimed = store.claim(rater)
    assert claimed is not None
    store.forget(rater)
    assert store.progress()["assignments"]["returned"] == 1
    assert store.progress()["next_expiry"] is None


def test_nothing_of_a_forgotten_identity_is_left_on_disk(study_url: str, store: Store) -> None:
    names = [uuid4().hex for _ in range(3)]  # of no other study of the server
    kept, rater = store.rater_of_panel("prolific", "kept"), store.rater_of_panel("prolific", names[0], {"a": names[1]})
    finished(store, kept)
    finished(store, rater, names[2])
    assert all(name.encode() in on_disk(study_url) for name in names)
    store.forget(rater)
    assert not any(name.encode() in on_disk(study_url) for name in names)
    assert store.rater(kept).state == "consented" and store.progress()["ratings"] == 12


def test_nothing_of_a_remark_is_left_on_disk_whatever_else_was_written(file: Path) -> None:
    """Also where pages of the file were divided and joined."""
    store, drawn = open_store(str(file), small_plan(tasks=40, raters=1)), Random(3)
    claimed = [store.claim(consenting_rater(store)) for _ in range(30)]
    for _ in range(3):
        for number, one in enumerate(claimed):
            assert one is not None
            text = f"REMARK{number:03d} " + "y" * drawn.choice([5, 60, 300, 900, 1500, 5000])
            store.add_feedback(one.id, one.rater, text)
    for one in claimed[::2]:
        store.forget(one.rater)  # type: ignore[union-attr]
    left = {int(number) for number in re.findall(rb"REMARK(\d{3})", bytes_of(file))}
    assert left == {*range(1, 30, 2)}


def test_a_remark_is_deleted_when_its_rater_declines_also_while_somebody_reads(
    study_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCRUB_S", 0.1)
    for reads in (False, True):
        rater, name = consenting_rater(store), uuid4().hex
        claimed = store.claim(rater)
        assert claimed is not None
        store.add_feedback(claimed.id, rater, name)
        with ExitStack() as reading:
            if reads:
                assert reading.enter_context(store._database.read()).rows("SELECT id FROM hit")
            store.decline(rater)
            assert (name.encode() in on_disk(study_url)) == reads, "if somebody reads, until somebody is forgotten"
        assert store.rater(rater).declined
        store.forget(rater)
        assert name.encode() not in on_disk(study_url)


def test_a_file_that_others_could_read_is_closed_to_them(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(str(file), small_plan()).close()
    for plan in (small_plan(), None):  # as it is served, and by other commands
        file.chmod(0o644)
        store = open_store(str(file), plan)
        store.new_rater()
        parts = [*file.parent.glob(f"{file.name}*")]
        assert len(parts) == 3 and not any(part.stat().st_mode & 0o077 for part in parts)
        assert "study.db: others could read it" in caplog.text
        store.close()
    file.chmod(0o640)

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)  # of another user
    with pytest.raises(InputError, match=r"cannot be changed \(Operation not permitted\); as its owner run chmod 600"):
        open_store(str(file))


def test_a_code_that_the_panel_knows_is_forgotten_too(file: Path) -> None:
    store = open_store(str(file), small_plan())
    rater = store.rater_of_panel("prolific", IDENTITY)
    finished(store, rater)
    code = store.code("a00001", "completed").encode()
    assert code in bytes_of(file)
    store.forget(rater)
    assert code not in bytes_of(file)


def test_what_a_reader_keeps_on_disk_is_said_and_deleted_by_the_next_call(
    study_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.5)
    name = uuid4().hex
    rater = store.rater_of_panel("prolific", name)
    finished(store, rater)
    with store._database.read() as reader:
        assert reader.rows("SELECT id FROM hit")  # it could read the other tables too, as they were
        with pytest.raises(
            InputError, match=r"was deleted, but .* still holds it, since another process reads the da"
        ):
            store.forget(rater)
        assert name.encode() in on_disk(study_url)
    store.forget(rater)
    assert name.encode() not in on_disk(study_url)


def test_the_command_forgets_one_rater_and_says_how_much(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(str(file), small_plan())
    for identity in ("one", "two"):
        finished(store, store.rater_of_panel("prolific", identity))
    run_command("rate", ["forget", f"study={file}", "rater=r0001"])
    kept = capsys.readouterr().out
    assert kept.startswith(
        "raters forgotten: 1. Deleted: 1 identities, 0 sessions, 1 texts of feedback, 1 codes, 3 events"
    )
    assert "6 ratings stay" in kept
    run_command("rate", ["forget", f"study={file}", "rater=r0002", "--ratings"])
    assert "6 ratings" in capsys.readouterr().out
    assert store.progress()["ratings"] == 6
    for arguments, words in (
        (["rater=r0003"], "no such rater"),
        (["rater=ada"], "no such rater"),
        ([], "name one"),
        (["rater=r0001", "expired=true"], "name one"),
        (["expired=true"], "keeps its raters until"),
    ):
        with pytest.raises(InputError, match=words) as error:
            run_command("rate", ["forget", f"study={file}", *arguments])
        assert "\n" not in str(error.value)


def test_a_locked_database_is_one_line_of_a_command(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.1)
    store = open_store(str(file), small_plan())
    store.new_rater()
    with store._database.write(), pytest.raises(InputError, match=r"study\.db: others hold the database for too long"):
        run_command("rate", ["forget", f"study={file}", "rater=r0001"])


def test_all_are_forgotten_once_the_time_of_the_study_is_over(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long_ago = Clock(1_169_280_000)  # 2007-01-20
    store = open_store(str(file), small_plan(), long_ago)
    for identity in ("one", "two"):
        finished(store, store.rater_of_panel("prolific", identity))
    run_command("rate", ["status", f"study={file}"])
    assert "over since 2007-02-19T08:00:00Z" in capsys.readouterr().out
    run_command("rate", ["forget", f"study={file}", "--expired"])
    out = capsys.readouterr().out
    assert out.startswith("raters forgotten: 2. Deleted: 2 identities, 0 sessions, 2 texts of feedback, 2 codes, 6 ev")
    assert "12 ratings stay" in out
    assert store.progress()["raters"] == {"forgotten": 2}
