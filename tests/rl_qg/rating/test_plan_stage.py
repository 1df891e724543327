"""The whole stage: files of a plan, what is printed, and what is refused."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.rating.plan_files import HITS, PLAN, StudyPlan, read_plan
from rl_qg.rating.planning.plan import write_plan
from rl_qg.rating.protocol import TaskRecipe, load_protocol
from rl_qg.rating.study.store import open_store
from rl_qg.runtime.errors import InputError
from rl_qg.settings import RatePlanSettings
from rl_qg.settings.yaml_files import CONFIGS
from tests.rl_qg.rating.page_studies import RaterClient, settings_of


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Two systems that ask about the same passages as people."""
    examples = list(synthetic_examples(4, seed=1, prefix="dev"))
    write_squad(tmp_path / "dev.json", examples)
    for number, name in enumerate(("ce", "scst")):
        with (tmp_path / f"{name}.jsonl").open("w") as stream:
            for place, example in enumerate(examples):
                answer = example.answers[0]
                words = example.question.split()
                question = example.question if place == number else " ".join(words[number + 1 :] + words[: number + 1])
                row = {"id": example.id, "title": example.title, "context": example.context, "question": question}
                stream.write(json.dumps(row | {"answer": answer.text, "answer_start": answer.start}) + "\n")
    return {"questions": [f"{tmp_path}/ce.jsonl", f"{tmp_path}/scst.jsonl"], "gold": f"{tmp_path}/dev.json"}


def plan(files: dict[str, Any], output: Path, protocol: str = "qascore", **options: Any) -> StudyPlan:
    settings = RatePlanSettings(**files, output=str(output), protocol=protocol, **options)
    settings.check()
    write_plan(settings, load_protocol(protocol, CONFIGS / "protocol"))
    return read_plan(output)


def test_what_is_written_can_be_read_and_is_the_same_again(
    files: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = plan(files, tmp_path / "one", study="mine", items=6)
    record = json.loads((tmp_path / "one" / PLAN).read_text())
    lines = (tmp_path / "one" / HITS).read_bytes()
    assert record["hits_sha256"] == sha256(lines).hexdigest()
    assert (record["hits"], record["items"]) == (6, sum(len(hit.items) for hit in first.hits))
    assert record["ratings"] == 4 * record["items"]
    assert record["systems"]["human"]["ordinary"] == 6
    assert (first.study, first.raters_per_hit, record["language"]) == ("mine", 1, "en")
    before = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    plan(files, tmp_path / "one", study="mine", items=6)
    assert {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()} == before
    again = plan(files, tmp_path / "two", study="mine", items=6)
    assert again.sha256 == first.sha256
    assert plan(files, tmp_path / "three", study="mine", items=6, seed=14).sha256 != first.sha256
    capsys.readouterr()


def test_the_summary(files: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(files, tmp_path / "plan", raters=2, items=8, pay_per_hour=7.5, language="de")
    text = capsys.readouterr().out
    assert text.startswith("plan by the protocol qascore: 8 tasks")
    assert "raters: from 2, who rate every task, to 16 with one task each" in text
    assert "at 7.5 USD an hour" in text
    assert "left out: passages with their answer that were not drawn" in text
    assert "note: ce gets 16 ratings of each criterion; 385 are recommended" in text
    assert "Prolific asks for 8 USD an hour" in text
    assert "the practice questions of the protocol are in en" in text
    assert "smallest difference that is found with probability 0.8 (simulated, with 45% of the tasks counted)" in text
    record = found.settings
    hours = record["cost"]["hours"]
    assert hours == pytest.approx(16 * record["minutes"] / 60, abs=0.1)
    assert record["cost"]["total"] == pytest.approx(7.5 * 16 * 30 * record["items"] / 8 / 20 / 60, abs=0.01)
    assert record["detectable"]["pass_rate"] == 0.45


def test_tasks_too_short_for_the_control_are_named(
    files: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks of three systems have one or two degraded questions each; with one system there is nothing to compare."""
    plan(files, tmp_path / "plan", items=6)
    degraded = sum(item.kind == "degraded" for hit in read_plan(tmp_path / "plan").hits for item in hit.items)
    assert f"fewer than {-(-5 * 6 // degraded)} of these tasks" in capsys.readouterr().out
    plan({"questions": files["questions"][:1]}, tmp_path / "one", items=6)
    assert "none; there are no two systems for a comparison" in capsys.readouterr().out


def test_numbers_in_the_texts_for_raters(files: dict[str, Any], tmp_path: Path) -> None:
    """The consent says once how long data are kept, and no page has a place that was not filled in."""
    made = plan(files, tmp_path / "plan", retention_days=77, items=4)
    with closing(open_store(str(tmp_path / "study.db"), made)) as store:
        guest = RaterClient(store, settings_of()).get("/").post("/begin")
        assert guest.path == "/consent" and guest.text.count("77 days after") == 1 and "{" not in guest.text
        guest.post("/consent", answer="agree", version="1")
        minutes = round(made.protocol.minutes_per_hit)
        assert f"It takes about {minutes} minutes. You may close the page" in guest.text and "{" not in guest.text


def test_a_plan_without_a_question_of_a_system(tmp_path: Path) -> None:
    row = {"id": "1", "context": "Ada built it.", "answer": "Ada", "question": "Who built it?"}
    (tmp_path / "human.jsonl").write_text(json.dumps(row) + "\n")
    of_people = replace(load_protocol("qrelscore", CONFIGS / "protocol"), recipe=TaskRecipe("items", 6, 0, 0, 2, 1))
    settings = RatePlanSettings(questions={"human": str(tmp_path / "human.jsonl")}, output=str(tmp_path / "plan"))
    with pytest.raises(InputError, match="none of a system beside people"):
        write_plan(settings, of_people)


@pytest.mark.parametrize("name", ["demo", "qrelscore", "qg-bench"])
def test_protocols_of_any_passages(name: str, files: dict[str, Any], tmp_path: Path) -> None:
    found = plan(files, tmp_path / "plan", name, items=12)
    kinds = {item.kind for hit in found.hits for item in hit.items}
    assert kinds == ({"ordinary", "repeat", "degraded"} if name == "demo" else {"ordinary"})
    assert found.settings["systems"]["ce"]["ordinary"] == 12
    assert found.settings["detectable"]["pass_rate"] == (0.45 if name == "demo" else 1)


def test_no_plan_is_written_that_could_not_be_read(files: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rate_plan: raters_per_hit=10001 is not a whole number from 1 to 10000"):
        plan(files, tmp_path / "plan", raters=10_001)
    assert not (tmp_path / "plan").exists()


def test_another_plan_is_not_overwritten(files: dict[str, Any], tmp_path: Path) -> None:
    plan(files, tmp_path / "plan", items=3)
    before = {path: path.read_bytes() for path in (tmp_path / "plan").iterdir()}
    with pytest.raises(InputError, match=r"holds another plan \(hits.jsonl differs\); name another folder"):
        plan(files, tmp_path / "plan", items=4)
    with pytest.raises(InputError, match=r"holds another plan \(plan.json differs\)"):
        plan(files, tmp_path / "plan", items=3, retention_days=2)
    assert {path: path.read_bytes() for path in (tmp_path / "plan").iterdir()} == before
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        plan(files, tmp_path / "file" / "plan", items=3)


def test_a_plan_may_be_in_the_home_folder(
    files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    settings = RatePlanSettings(**files, output="~/plan", protocol="qascore", items=3)
    write_plan(settings, load_protocol("qascore", CONFIGS / "protocol"))
    assert len(read_plan(tmp_path / "home" / "plan").hits) == 3 and not Path("~").exists()


@pytest.mark.parametrize("language", ["english", "auto", "other", ""])
def test_a_language_is_a_code(language: str) -> None:
    with pytest.raises(InputError, match=f"language={language}: give the code"):
        RatePlanSettings(language=language).check()


# --- Files that are not as they were written ---


def changed_line(edit: Callable[[dict[str, Any]], Any], plan_folder: Path) -> None:
    """Change the second task, and the hash of the tasks to match."""
    lines = (plan_folder / HITS).read_text().splitlines()
    record = json.loads(lines[1])
    edit(record)
    lines[1] = json.dumps(record)
    text = "\n".join(lines) + "\n"
    (plan_folder / HITS).write_text(text)
    settings = json.loads((plan_folder / PLAN).read_text())
    settings["hits_sha256"] = sha256(text.encode()).hexdigest()
    (plan_folder / PLAN).write_text(json.dumps(settings))


BROKEN: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda hit: hit.pop("language"), r"line 2: field 'language' is not a text: None"),
    (lambda hit: hit["items"].clear(), "line 2: a task without items"),
    (lambda hit: hit["items"][2].update(position=7), r"items\[3\]: position=7; positions count from 1"),
    (lambda hit: hit["items"][0].update(kind="odd"), r"items\[1\]: kind='odd' is not one of ordinary, repeat"),
    (lambda hit: hit["items"][0].update(passage=3), r"items\[1\]: passage=3; the task has 1 passages"),
    (lambda hit: hit["items"][0].update(systems=[]), "field 'systems' is not a list of names"),
    (lambda hit: hit["items"][0].update(answer_start=True), "field 'answer_start' is neither a whole number nor null"),
    (lambda hit: hit["items"][0].update(answer_start=3, answer="xyz"), "answer 'xyz' is not at offset 3"),
    (lambda hit: hit["items"][0].update(original=99), "original=99 is not the position of an ordinary item"),
    (lambda hit: hit["passages"][0].pop("context"), r"passages\[0\]: field 'context' is not a text"),
    (lambda hit: hit.update(hit="h0001"), "two tasks have one name"),
]


@pytest.mark.parametrize(("edit", "fault"), BROKEN, ids=[fault[-30:] for _, fault in BROKEN])
def test_a_broken_line_is_named(
    edit: Callable[[dict[str, Any]], Any], fault: str, files: dict[str, Any], tmp_path: Path
) -> None:
    plan(files, tmp_path / "plan", items=3)
    changed_line(edit, tmp_path / "plan")
    with pytest.raises(InputError, match=fault):
        read_plan(tmp_path / "plan")


def test_a_folder_without_a_plan(files: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no plan \(plan.json is missing\); make one with rl-qg rate plan"):
        read_plan(tmp_path / "nothing")
    found = plan(files, tmp_path / "plan", items=3)
    lines = (tmp_path / "plan" / HITS).read_text()
    (tmp_path / "plan" / HITS).write_text(lines.replace("h0002", "h0009"))
    with pytest.raises(InputError, match=r"is not the file that plan.json was written with"):
        read_plan(tmp_path / "plan")
    settings = json.loads((tmp_path / "plan" / PLAN).read_text())
    (tmp_path / "plan" / PLAN).write_text(json.dumps({**settings, "note": "\ud800"}))
    with pytest.raises(InputError, match="no valid Unicode"):
        read_plan(tmp_path / "plan")
    (tmp_path / "plan" / PLAN).write_text('{"format": 2}')
    with pytest.raises(InputError, match="not a plan of format 1"):
        read_plan(tmp_path / "plan")
    assert found.hits[0].items[0].position == 1
