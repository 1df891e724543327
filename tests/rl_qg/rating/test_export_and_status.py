"""The files of an export, and what is said of a study's progress."""

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.rating.plan_files import read_plan, write_plan_files
from rl_qg.rating.study.export import export_study, study_status
from rl_qg.rating.study.store import Store, open_store
from rl_qg.runtime.errors import InputError
from tests.full_disk import room_for
from tests.rl_qg.rating.studies import Clock, consenting_rater, rate_all, small_plan


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(study_url: str, clock: Clock) -> Store:
    return open_store(study_url, small_plan(), clock)


def rated(store: Store, clock: Clock) -> tuple[str, str]:
    """One rater has finished a task in two minutes, and another has begun one."""
    first = store.rater_of_panel("prolific", "5f1dCAFE", {})
    second = store.new_rater()
    for rater in (first, second):
        store.give_consent(rater, "1", "de")
    claimed = store.claim(first)
    assert claimed is not None
    for position in (1, 2, 3):
        store.shown(claimed.id, first, position)
        clock.now += 1.5
        store.save(claimed.id, first, position, {"clear": 10 * position})
        clock.now += 0.25
        store.save(claimed.id, first, position, {"answered": 3, "clear": 10 * position})
        clock.now += 0.25
        store.save(claimed.id, first, position, {"answered": 1})
    clock.now = claimed.started + 120
    store.submit(claimed.id, first)
    store.add_feedback(claimed.id, first, "gut")
    begun = store.claim(second)
    assert begun is not None
    store.save(begun.id, second, 2, {"clear": 77})
    return first, second


def test_the_files_of_an_export(store: Store, clock: Clock, tmp_path: Path) -> None:
    rated(store, clock)
    count, states = export_study(store, tmp_path / "out")
    assert (count, states) == (7, {"submitted": 1, "open": 1})
    ratings = lines(tmp_path / "out" / "ratings.jsonl")
    common = {"study": "small", "hit": "h0001", "item": "hash1-Ada", "passage": "hash1"}
    first = common | {"assignment": "a00001", "rater": "r0001", "state": "submitted"}
    assert ratings[:2] == [
        {
            **first,
            **{"position": 1, "kind": "ordinary", "systems": ["ce", "scst"], "original": None},
            **{"criterion": "clear", "value": 10, "first_ms": 1500, "last_ms": 1500, "changes": 0},
        },
        {
            **first,
            **{"position": 1, "kind": "ordinary", "systems": ["ce", "scst"], "original": None},
            **{"criterion": "answered", "value": 1, "first_ms": 1750, "last_ms": 2000, "changes": 1},
        },
    ]
    assert ratings[6] == {
        **common,
        **{"assignment": "a00002", "rater": "r0002", "state": "open", "position": 2, "kind": "degraded"},
        **{"systems": ["ce"], "original": 1, "criterion": "clear", "value": 77},
        **{"first_ms": 0, "last_ms": 0, "changes": 0},
    }
    with (tmp_path / "out" / "ratings.csv").open(encoding="utf-8", newline="") as stream:
        table = [*csv.DictReader(stream)]
    for row, record in zip(table, ratings, strict=True):
        plain = {name: "" if value is None else str(value) for name, value in record.items()}
        assert row == plain | {"systems": "|".join(record["systems"])}
    assert lines(tmp_path / "out" / "assignments.jsonl") == [
        {
            **{"assignment": "a00001", "hit": "h0001", "rater": "r0001", "state": "submitted"},
            **{"started": "2100-01-01T00:00:00Z", "submitted": "2100-01-01T00:02:00Z", "seconds": 120.0},
            **{"language": "de", "panel": "prolific"},
        },
        {
            **{"assignment": "a00002", "hit": "h0001", "rater": "r0002", "state": "open"},
            **{"started": "2100-01-01T00:02:00Z", "submitted": None, "seconds": None},
            **{"language": "de", "panel": "open"},
        },
    ]
    assert lines(tmp_path / "out" / "feedback.jsonl") == [{"rater": "r0001", "assignment": "a00001", "text": "gut"}]
    items = lines(tmp_path / "out" / "items.jsonl")
    assert Counter(item["hit"] for item in items) == {"h0001": 3, "h0002": 3, "h0003": 3}
    assert items[4]["question"] == "What does passage 2 tell (degraded 2)?"
    assert items[4]["context"][items[4]["answer_start"] :].startswith("Ada")
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert b"5f1dCAFE" not in written


def test_no_cell_of_an_export_is_a_formula_and_remarks_are_the_owners_alone(tmp_path: Path, clock: Clock) -> None:
    store = open_store(str(tmp_path / "study.db"), small_plan(name="=cmd()"), clock)
    rated(store, clock)
    out = tmp_path / "out"
    out.mkdir()
    (out / ".feedback.jsonl.part").touch(mode=0o644)  # as a kill leaves it
    export_study(store, out)
    with (out / "ratings.csv").open(encoding="utf-8", newline="") as stream:
        assert {row["study"] for row in csv.DictReader(stream)} == {"'=cmd()"}
    assert lines(out / "ratings.jsonl")[0]["study"] == "=cmd()"
    assert (out / "feedback.jsonl").stat().st_mode & 0o077 == 0


def test_the_plan_of_an_export_is_that_of_the_study(tmp_path: Path, clock: Clock) -> None:
    plan = small_plan()
    write_plan_files(
        tmp_path / "plan", {name: plan.settings[name] for name in plan.settings}, plan.protocol, plan.hits
    )
    store = open_store(str(tmp_path / "study.db"), read_plan(tmp_path / "plan"), clock)
    rated(store, clock)
    export_study(store, tmp_path / "out")
    written, exported = ((tmp_path / name / "plan.json").read_text() for name in ("plan", "out"))
    assert written == exported


def test_an_export_is_one_state_of_a_study_that_goes_on(store: Store, clock: Clock) -> None:
    _, second = rated(store, clock)
    with store.snapshot() as snapshot:
        ratings = snapshot.ratings()
        before = [next(ratings)]
        claimed = store.claim(second)
        assert claimed is not None
        rate_all(store, claimed.id, second)
        store.submit(claimed.id, second)
        store.add_feedback(claimed.id, second, "later")
        before += ratings
        assert [record["state"] for record in snapshot.assignments()] == ["submitted", "open"]
        assert [record["text"] for record in snapshot.feedback()] == ["gut"]
    assert len(before) == 7
    with store.snapshot() as snapshot:
        assert [record["state"] for record in snapshot.assignments()] == ["submitted", "submitted"]
        assert len([*snapshot.ratings()]) == 12


def test_the_command_exports_and_exports_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, file, out = Clock(), tmp_path / "study.db", tmp_path / "out"
    store = open_store(str(file), small_plan(), clock)
    rated(store, clock)
    for _ in range(2):
        with caplog.at_level("INFO"):
            run_command("rate", ["export", f"study={file}", f"output={out}"])
        assert "7 ratings of 2 assignments (1 submitted, 1 open)" in caplog.text
    names = ["assignments.jsonl", "feedback.jsonl", "items.jsonl", "plan.json", "ratings.csv", "ratings.jsonl"]
    assert sorted(path.name for path in out.iterdir()) == names
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with room_for(200), pytest.raises(OSError):
        run_command("rate", ["export", f"study={file}", f"output={out}"])
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_an_export_that_was_ended_between_its_files_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan, which tells whose export it is, appears first, and the ratings, which say that it is whole, last."""
    clock, file = Clock(), tmp_path / "study.db"
    rated(open_store(str(file), small_plan(), clock), clock)
    rename = Path.replace
    for number in (1, 5):
        out, done = tmp_path / f"out{number}", list[str]()

        def rename_some(source: Path, target: Path, done: list[str] = done, number: int = number) -> Path:
            if len(done) == number:
                raise KeyboardInterrupt
            done.append(target.name)
            return rename(source, target)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Path, "replace", rename_some)
            run_command("rate", ["export", f"study={file}", f"output={out}"])
        assert sorted(path.name for path in out.iterdir()) == sorted(done)
        assert done[0] == "plan.json" and "ratings.jsonl" not in done
        run_command("rate", ["export", f"study={file}", f"output={out}"])
        assert len([*out.iterdir()]) == 6 and len(lines(out / "ratings.jsonl")) == 7


def test_exports_that_cannot_be_made_are_one_line(tmp_path: Path) -> None:
    clock, file, other = Clock(), tmp_path / "study.db", tmp_path / "other.db"
    open_store(str(file), small_plan())
    store = open_store(str(other), small_plan(name="other"), clock)
    rated(store, clock)
    (tmp_path / "text").write_text("x")
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.json").write_text(json.dumps(dict(small_plan().settings)))
    run_command("rate", ["export", f"study={other}", f"output={tmp_path}/out"])
    for arguments, words in (
        ([f"study={file}", f"output={tmp_path}/new"], "nobody has rated anything yet"),
        ([f"study={file}", "output="], "output: is empty"),
        ([f"study={tmp_path}/none.db", f"output={tmp_path}/new"], "no such file"),
        ([f"study={file}", f"output={tmp_path}/text"], "is a file"),
        ([f"study={file}", f"output={tmp_path}/out"], "another study"),
        ([f"study={other}", f"output={tmp_path}/plan"], "holds another study, or its plan"),
        ([f"study={other}", f"output={tmp_path}/text/out"], "cannot be written"),
    ):
        with pytest.raises(InputError, match=words) as error:
            run_command("rate", ["export", *arguments])
        assert "\n" not in str(error.value)
    assert not [*(tmp_path / "new").glob("*")]


def test_who_is_to_be_paid_is_a_file_apart(tmp_path: Path) -> None:
    clock, file, paid = Clock(), tmp_path / "study.db", tmp_path / "paid.csv"
    store = open_store(str(file), small_plan(), clock)
    first, _ = rated(store, clock)
    code = store.code("a00001", "completed")
    store.rater_of_panel("prolific", "=cmd()", {"session": "s1"})
    run_command("rate", ["export", f"study={file}", f"output={tmp_path}/out", f"payments={paid}"])
    with paid.open(encoding="utf-8", newline="") as stream:
        rows = [*csv.reader(stream)]
    assert rows == [
        ["rater", "panel", "identity", "state", "submitted", "surplus", "codes", "extra"],
        [first, "prolific", "5f1dCAFE", "consented", "1", "0", code, "{}"],
        ["r0003", "prolific", "'=cmd()", "arrived", "0", "0", "", '{"session": "s1"}'],
    ]
    assert paid.stat().st_mode & 0o077 == 0
    store.forget(first)
    run_command("rate", ["export", f"study={file}", f"output={tmp_path}/out", f"payments={paid}"])
    assert "5f1dCAFE" not in paid.read_text()
    with pytest.raises(InputError, match="name a file elsewhere"):
        run_command("rate", ["export", f"study={file}", f"output={tmp_path}/out", f"payments={tmp_path}/out/paid.csv"])
    paid.write_text("something else")
    with pytest.raises(InputError, match=r"paid.csv: is no table of payments and would be replaced"):
        run_command("rate", ["export", f"study={file}", f"output={tmp_path}/out", f"payments={paid}"])
    assert paid.read_text() == "something else"


# --- Status ---


def test_progress_counts_what_was_done(store: Store, clock: Clock) -> None:
    _, second = rated(store, clock)
    store.new_rater()
    store.decline(store.new_rater())
    progress = store.progress()
    assert progress["assignments"] == {"open": 1, "submitted": 1, "surplus": 0, "expired": 0, "returned": 0}
    assert progress["raters"] == {"arrived": 1, "consented": 2, "declined": 1}
    assert (progress["tasks"], progress["tasks_done"], progress["wanted"]) == (3, 0, 6)
    assert (progress["ratings"], progress["feedback"], progress["minutes"], progress["pay_per_hour"]) == (
        7,
        1,
        2.0,
        None,
    )
    assert progress["systems"] == {"ce": {"ordinary": 1, "degraded": 1, "repeat": 1}, "scst": {"ordinary": 1}}
    assert progress["next_expiry"] == clock.now + 1800
    assert progress["retention_until"] == progress["created"] + 30 * 86_400
    claimed = store.claim(second)
    assert claimed is not None
    clock.now = claimed.started + 600
    rate_all(store, claimed.id, second)
    store.submit(claimed.id, second)
    assert (store.progress()["tasks_done"], store.progress()["minutes"]) == (1, 6.0)


def test_status_as_text_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock, file = Clock(), tmp_path / "study.db"
    store = open_store(str(file), small_plan(), clock)
    run_command("rate", ["status", f"study={file}"])
    assert "nobody has submitted a task yet" in capsys.readouterr().out
    rated(store, clock)
    store.pause()
    run_command("rate", ["status", f"study={file}"])
    text = capsys.readouterr().out
    for line in (
        "study small, since 2100-01-01T00:00:00Z (paused)",
        "tasks        0 of 3 done; of 6 wanted: 1 open, 1 submitted, 0 surplus, 0 expired, 0 returned",
        "raters       2 consented",
        "control      0 passed, 0 failed, 1 undecided, of 1 raters who submitted",
        "minutes      2.0 a task (median)",
        "system       ce: 1 ordinary, 1 repeat, 1 degraded",
        "next expiry  2100-01-01T00:32:00Z, of 1 open assignments",
        "raters kept  until 2100-01-31T00:00:00Z",
    ):
        assert line in text.splitlines()
    shown = []
    for given in ("json=true", "--json"):
        run_command("rate", ["status", f"study={file}", given])
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert shown[0]["assignments"]["submitted"] == 1
    assert shown[0]["control"]["of_raters"][0]["rater"] == "r0001"
    with pytest.raises(InputError, match="no such file"):
        run_command("rate", ["status", f"study={tmp_path}/none.db"])


def test_times_after_the_last_year_are_its_end(tmp_path: Path, clock: Clock) -> None:
    plan = small_plan()
    plan = replace(plan, settings={**plan.settings, "retention_days": 2**31 - 1})
    store = open_store(str(tmp_path / "study.db"), plan, clock)
    store.lease_s = 1e15
    store.claim(consenting_rater(store))
    status = study_status(store)
    assert status["retention_until"] == status["next_expiry"] == "9999-12-31T23:59:59Z"


@pytest.mark.parametrize("key", ["output", "payments"])
def test_a_folder_that_cannot_be_made_is_named(
    store: Store, clock: Clock, study_url: str, tmp_path: Path, key: str
) -> None:
    rated(store, clock)
    words = {"output": str(tmp_path / "ratings"), key: "/proc/x/y"}
    with pytest.raises(InputError, match=f"^{key}=/proc/x/y: cannot be written"):
        run_command("rate", ["export", f"study={study_url}", *(f"{name}={value}" for name, value in words.items())])
