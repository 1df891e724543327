"""The pages of raters, in one process: the whole way, and what happens beside it."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from rl_qg.rating.pages.server import create_app, panel_path
from rl_qg.rating.study.store import Store
from tests.rl_qg.rating.page_studies import ADMIN_TOKEN, RaterClient, page_plan, protocol, settings_of, study
from tests.rl_qg.rating.studies import Clock

NAMES = ("understandability", "relevancy", "answerability", "appropriateness")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = study(tmp_path, page_plan(protocol(practice=())))
    yield opened
    opened.close()


def statements_missing(guest: RaterClient) -> list[str]:
    return re.findall(r'<a href="#(value-\d+)">', guest.page.text)


def test_the_whole_way_of_a_volunteer(store: Store) -> None:
    guest = RaterClient(store).get("/")
    assert "about 30 minutes" in guest.text
    guest.post("/begin")
    assert guest.path == "/consent" and guest.text.count("deleted 90 days after") == 1 and "{" not in guest.text
    guest.post("/consent", answer="agree", version="1")
    assert guest.path == "/instructions" and store.rater("r0001").consent_version == "1"
    guest.post("/instructions")
    assert guest.path == "/task/a00001/1" and "Item 1 of 3" in guest.text
    assert '<mark><span class="hidden" lang="en">Expected answer: </span>Anna Weaver<' in guest.page.text
    guest.rate(70).rate(71).rate(72)
    assert guest.path == "/task/a00001/feedback"
    guest.post(text="All clear.\nSecond line", action="submit")
    assert guest.path == "/task/a00001/done" and len(guest.code) == 10
    assert "Copy it" not in guest.text, "a volunteer came from no page that asks for it"
    wanted = {(at, name): 69 + at for at in (1, 2, 3) for name in NAMES}
    assert store.ratings_of("a00001", "r0001") == wanted
    assert store.feedback_of("a00001", "r0001") == "All clear.\nSecond line"
    code = guest.code
    assert guest.get("/").path == "/task/a00001/done" and guest.code == code, "one task a rater, and the code again"


def test_a_consent_that_does_not_say_how_long_data_are_kept_is_completed(tmp_path: Path) -> None:
    given = protocol(consent={"en": "One {strange} part.\n\nAnother <part>."})
    guest = RaterClient(study(tmp_path, page_plan(given))).get("/").post("/begin")
    assert "are deleted 90 days after the study began" in guest.text
    assert "<p>One {strange} part.</p>\n<p>Another &lt;part&gt;.</p>" in guest.page.text


def test_pages_tell_neither_systems_nor_kinds(store: Store) -> None:
    guest = RaterClient(store).begin()
    for _ in range(3):
        assert not re.search("planted|degraded|ordinary|item-1|hash1", guest.page.text)
        guest.rate()


def test_a_slider_that_was_not_touched_is_not_fifty(store: Store) -> None:
    """Without a script a range always sends a value; the box beside it says whether it is meant."""
    guest = RaterClient(store).begin().post(value_1=50, value_2=50, set_2=1, value_3=83, value_4=50, action="next")
    assert guest.path == "/task/a00001/1" and guest.title.startswith("Error: ")
    assert statements_missing(guest) == ["value-1", "value-3", "value-4"]
    assert store.ratings_of("a00001", "r0001") == {(1, "relevancy"): 50}
    found = dict(re.findall(r'id="(value-\d)".*?value="(\d+)"', guest.page.text))
    assert found == {"value-1": "50", "value-2": "50", "value-3": "83", "value-4": "50"}, "sliders stay where they are"
    assert re.findall(r'id="(set-\d)"[^>]* checked', guest.page.text) == ["set-2"]
    assert 'id="missing" role="alert" tabindex="-1" autofocus' in guest.page.text


def test_back_shows_what_was_rated_and_saves_first(store: Store) -> None:
    guest = RaterClient(store).begin().rate(33)
    guest.post(value_1=90, set_1=1, value_2=50, value_3=50, value_4=50, action="back")
    assert guest.path == "/task/a00001/1"
    assert re.findall(r'name="value-\d".*?value="(\d+)"', guest.page.text) == ["33"] * 4
    assert store.ratings_of("a00001", "r0001")[2, "understandability"] == 90
    assert guest.rate(44).path == "/task/a00001/2", "back at an item, next leads on"
    assert store.ratings_of("a00001", "r0001")[1, "relevancy"] == 44


def test_resume_at_the_first_item_that_is_not_rated(store: Store, tmp_path: Path) -> None:
    link = "/s/mill?PROLIFIC_PID=p1&STUDY_ID=s&SESSION_ID=x"
    guest = RaterClient(store).begin(link).rate()
    guest.post(value_1=10, set_1=1, value_2=50, value_3=50, value_4=50, action="next")
    store.close()
    again = RaterClient(study(tmp_path, store.plan))  # a server that was restarted
    again.client.cookies = guest.client.cookies
    again.get(link)
    assert again.path == "/task/a00001/2"
    assert re.findall(r'name="value-\d".*?value="(\d+)"', again.page.text) == ["10", "50", "50", "50"]


def test_a_submission_twice_leads_to_the_same_page(store: Store) -> None:
    guest = RaterClient(store).begin().rate_all()
    forms = {"csrf": guest.csrf, "action": "submit"}
    pages = [guest.client.post("/task/a00001/feedback", data=forms) for _ in range(2)]
    codes = [re.search(r'id="code">(\w+)<', page.text)[1] for page in pages]  # type: ignore[index]
    assert codes[0] == codes[1] and store.progress()["assignments"]["submitted"] == 1
    late = guest.client.post(
        "/task/a00001/1", data={"csrf": forms["csrf"], "value-1": 1, "set-1": 1, "action": "next"}
    )
    assert late.url.path == "/task/a00001/done" and store.ratings_of("a00001", "r0001")[1, NAMES[0]] == 61


def test_a_page_reads_the_tasks_and_ratings_of_a_rater_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = RaterClient(store).begin().rate()
    read: list[str] = []

    def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (read.append(name), method(*given))[1]

    for name in ("ratings_of", "assignments_of"):
        monkeypatch.setattr(store, name, counted(name, getattr(store, name)))
    guest.get("/task/a00001/2")
    assert read == ["ratings_of"]
    guest.client.get("/task", follow_redirects=False)
    assert read[1:] == ["assignments_of", "ratings_of"]


def test_submitting_names_the_items_that_are_not_rated(store: Store) -> None:
    guest = RaterClient(store).begin().rate().get("/task/a00001/3").rate().get("/task/a00001/feedback")
    assert re.findall(r'href="(/task/[^"]+)"', guest.page.text) == ["/task/a00001/2"]
    guest.post(text="kept", action="submit")
    assert guest.path == "/task/a00001/feedback" and ">\nkept</textarea>" in guest.page.text
    assert store.progress()["assignments"]["submitted"] == 0


def test_two_tabs_of_one_task(store: Store) -> None:
    first = RaterClient(store).begin()
    fields = {"csrf": first.csrf, "action": "next"} | {f"set-{n}": 1 for n in range(1, 5)}
    for value in (20, 80):  # both tabs show item 1
        page = first.client.post("/task/a00001/1", data=fields | {f"value-{n}": value for n in range(1, 5)})
        assert page.url.path == "/task/a00001/2"
    assert set(store.ratings_of("a00001", "r0001").values()) == {80}


def test_autosave_answers_with_a_status(store: Store) -> None:
    guest = RaterClient(store).begin()
    guest.post(value_1=12, set_1=1, value_2=50, action="autosave")
    assert guest.status == 204 and store.ratings_of("a00001", "r0001") == {(1, NAMES[0]): 12}


def test_declining_ends_with_the_code_for_it(store: Store) -> None:
    settings = settings_of(codes={"no_consent": "NOPE1"}, completion_url="https://panel.example/done?cc={code}")
    guest = RaterClient(store, settings).get("/s/mill?PROLIFIC_PID=p7").post("/consent", answer="decline")
    assert guest.path == "/declined" and guest.code == "NOPE1"
    assert 'href="https://panel.example/done?cc=NOPE1"' in guest.page.text
    assert guest.get("/task").path == guest.get("/consent").path == guest.get("/instructions").path == "/declined"
    assert store.progress()["assignments"]["open"] == 0 and store.rater("r0001").declined


def test_declining_later_frees_the_task_and_deletes_what_was_rated_in_it(store: Store) -> None:
    guest = RaterClient(store).begin().rate()
    secret = guest.csrf
    guest.post("/consent", answer="decline")  # on the page that Back shows
    assert guest.path == "/declined" and "No rating of yours is kept" in guest.text
    assert store.progress()["ratings"] == 0
    assert guest.client.post("/task/a00001/1", data={"csrf": secret, "value-1": 5, "set-1": 1}).status_code == 409
    other = RaterClient(store).begin()
    assert store.assignment("a00002", "r0002").hit.hit == "h0001" and other.path == "/task/a00002/1"


def test_whoever_has_submitted_keeps_the_code_on_an_old_page_of_the_consent(store: Store) -> None:
    guest = RaterClient(store).begin("/s/mill?PROLIFIC_PID=p1").rate_all()
    secret = guest.csrf
    code = guest.post(action="submit").code
    assert "Copy it to the page" in guest.text
    guest.post("/consent", csrf=secret, answer="decline")
    assert (guest.path, guest.code) == ("/task/a00001/done", code) and not store.rater("r0001").declined


def test_redirects_to_the_panel_by_kind_of_outcome(store: Store) -> None:
    urls = {"completed": "https://panel.example/ok?c={code}", "no_consent": "https://panel.example/no"}
    settings = settings_of(completion_url=urls, codes={"completed": "A&B"}, redirect=True)
    guest = RaterClient(store, settings).begin("/s/mill?PROLIFIC_PID=p1").rate_all()
    assert "form-action 'self' https://panel.example;" in guest.page.headers["content-security-policy"]
    page = guest.client.post("/task/a00001/feedback", data={"csrf": guest.csrf}, follow_redirects=False)
    assert (page.status_code, page.headers["location"]) == (303, "https://panel.example/ok?c=A%26B")
    other = RaterClient(store, settings).get("/s/mill?PROLIFIC_PID=p2")
    page = other.client.post("/consent", data={"csrf": other.csrf, "answer": "decline"}, follow_redirects=False)
    assert page.headers["location"] == "https://panel.example/no"
    volunteer = RaterClient(store, settings).get("/").post("/begin").post("/consent", answer="decline")
    assert volunteer.path == "/declined" and volunteer.code == "", "only people of the panel go there"


def test_a_panel_with_parameters_of_its_own(store: Store) -> None:
    settings = settings_of(panel="connect", panel_parameter="participantId", panel_extra=["assignmentId"])
    first = RaterClient(store, settings).get("/s/mill?participantId=x1&assignmentId=7&other=8")
    assert first.path == "/consent" and store.rater("r0001").panel == "connect"
    first.get("/s/mill?participantId=x1")
    assert first.path == "/consent" and [rater for rater, _ in store.raters()] == ["r0001"], "the same person"
    unfilled = "/s/mill?participantId={{%25PROLIFIC_PID%25}}"
    refused = {"/s/mill": 400, "/s/mill?participantId=": 400, unfilled: 400, "/s/other?participantId=x1": 404}
    refused |= {"/s/mill?participantId=%25SURVEY_CODE%25": 400, "/s/mill?participantId=${e://Field/ID}": 400}
    for path, status in refused.items():
        assert RaterClient(store, settings).get(path).status == status
    assert RaterClient(store, settings_of(panel_parameter="")).get("/s/mill?PROLIFIC_PID=1").status == 404


def test_a_study_with_any_name_has_an_address(tmp_path: Path) -> None:
    plan = page_plan(protocol())
    store = study(tmp_path, replace(plan, settings={**plan.settings, "study": "Mill 1/2 & more?"}))
    path = panel_path(settings := settings_of(panel_extra=[]), store.plan.study)
    assert " " not in path
    assert RaterClient(store, settings).get(path.replace("{{%PROLIFIC_PID%}}", "p1")).path == "/consent"


def test_invitations(store: Store) -> None:
    token = store.add_invites(1)[0]
    closed = settings_of(volunteers=False)
    assert RaterClient(store, closed).get(f"/invite/{token}").path == "/consent"
    assert RaterClient(store, closed).get(f"/invite/{token}").path == "/consent" and len(store.raters()) == 1
    assert RaterClient(store, closed).get(f"/invite/{token[:-1]}").status == 404
    alone = RaterClient(store, closed).get("/")
    assert "by the link that you were given" in alone.text and alone.post("/begin").status == 401
    assert len(store.raters()) == 1


def test_nothing_left_and_paused(store: Store) -> None:
    RaterClient(store).begin(), RaterClient(store).begin()  # both tasks are given out
    third = RaterClient(store).begin()
    assert third.path == "/task" and "no task for you" in third.text
    store.expire("a00001")
    store.pause()
    paused = third.get("/task")
    assert paused.status == 503 and "a break" in paused.text and not paused.code, "nobody is sent away"
    store.pause(False)
    assert third.get("/task").path == "/task/a00003/1"


def test_several_tasks_of_one_rater(store: Store) -> None:
    guest = RaterClient(store, settings_of(tasks_per_rater=None)).begin().rate_all().post(action="submit")
    assert guest.path == "/task/a00001/done" and 'href="/task"' in guest.page.text
    guest.get("/task").rate_all().post(action="submit")
    assert guest.path == "/task/a00002/done"
    assert guest.get("/task").path == "/task/a00002/done", "none is left, so the last code is shown again"


def test_an_expired_task_that_somebody_else_has_can_still_be_finished(store: Store) -> None:
    late, other = RaterClient(store).begin().rate(), RaterClient(store)
    store.expire("a00001")
    other.begin()  # takes the same task
    assert other.path == "/task/a00002/1"
    late.get("/task/a00001/2")
    assert "The time for this task has run out" in late.text
    late.rate().rate().post(action="submit")
    assert late.path == "/task/a00001/done" and late.code
    other.rate_all().post(action="submit")
    assert store.progress()["assignments"] == {"open": 0, "submitted": 1, "expired": 0, "returned": 0, "surplus": 1}


def test_an_expired_task_that_nobody_has_goes_on_unnoticed(store: Store) -> None:
    guest = RaterClient(store).begin().rate()
    store.expire("a00001")
    assert "has run out" not in guest.get("/task/a00001/2").text
    assert store.assignment("a00001", "r0001").state == "open"


def test_a_clock_that_jumps_costs_nobody_the_pay_and_no_task_counts_twice(tmp_path: Path) -> None:
    """A lease is half an hour, so a jump ahead ends it: the next one gets the task too, and one of them is surplus."""
    clock, jumps = Clock(), cycle((0, 3600, -3600, 7200))
    store = study(tmp_path, page_plan(protocol(practice=()), tasks=2), lambda: clock() + next(jumps))
    application = create_app(store, settings_of(), ADMIN_TOKEN)
    first, second = (RaterClient(store, application=application).begin() for _ in range(2))
    assert (first.path, second.path) == ("/task/a00001/1", "/task/a00002/1"), "the first lease has ended"
    for _ in range(3):
        first.rate()
        second.rate()
    assert all(guest.post(action="submit").code for guest in (first, second))
    with store.snapshot() as snapshot:
        done = [(one["hit"], one["state"]) for one in snapshot.assignments()]
        assert sorted(done) == [("h0001", "submitted"), ("h0001", "surplus")] and len([*snapshot.ratings()]) == 24
    assert RaterClient(store, application=application).begin().path == "/task/a00003/1"
    store.close()


def test_a_new_version_of_the_consent_is_asked_for(store: Store) -> None:
    guest = RaterClient(store).get("/").post("/begin")
    assert guest.post("/consent", answer="agree", version="0").path == "/consent", "an old page agrees to nothing"
    store.give_consent("r0001", "0", "en")
    assert guest.get("/task").path == "/consent"


def test_choices_and_practice_with_comments(tmp_path: Path) -> None:
    given = protocol("qrelscore")
    store = study(tmp_path, page_plan(given))
    guest = (
        RaterClient(store).get("/").post("/begin").post("/consent", answer="agree", version="1").post("/instructions")
    )
    total = len(given.practice)
    for number, practice in enumerate(given.practice, 1):
        assert guest.path == f"/practice/{number}" and f"Practice {number} of {total}" in guest.text
        assert practice.comment["en"] not in guest.text
        guest.post(value_1=given.criteria[0].anchors[0][0], action="next")
        assert guest.status == 422 and statements_missing(guest) == ["value-2", "value-3"]
        assert len(re.findall(r" checked>", guest.page.text)) == 1, "what was given is kept"
        guest.rate()
        assert practice.comment["en"] in guest.text and "disabled" in guest.page.text
        assert guest.rate().status == 200, "the first answer counts"
        assert guest.get("/next").path == ("/task/a00001/1" if number == total else f"/practice/{number + 1}")
    assert [*store.practice_values("r0001")] == [str(number) for number in range(1, total + 1)]
    assert guest.get("/instructions").status == 200 and 'href="/task"' in guest.page.text


def test_practice_that_is_a_test_screens_out(tmp_path: Path) -> None:
    given = protocol("qg-bench", practice_passes=1.0)
    assert all(practice.expected for practice in given.practice)
    store = study(tmp_path, page_plan(given))
    settings = settings_of(codes={"screened_out": "SCREEN"})
    for identity, passes in (("good", True), ("bad", False)):
        guest = RaterClient(store, settings).get(f"/s/mill?PROLIFIC_PID={identity}")
        guest.post("/consent", answer="agree", version="1").post("/instructions")
        for number, practice in enumerate(given.practice, 1):
            values = {f"value_{at}": one.highest for at, one in enumerate(given.criteria, 1)}
            for at, one in enumerate(given.criteria, 1):
                if one.name in practice.expected:
                    low, _ = practice.expected[one.name]
                    values[f"value_{at}"] = low if passes else one.lowest + (low == one.lowest)
            guest.post(f"/practice/{number}", **values)
            assert guest.path == f"/practice/{number}" and guest.status == 200
            assert ("Begin the task" in guest.text) == (passes and number == len(given.practice))
            guest.get("/next")
        assert (guest.path, guest.code) == (("/task/a00001/1", "") if passes else ("/screened", "SCREEN"))
    assert store.progress()["assignments"]["open"] == 1


def test_exactly_the_share_of_a_test_passes(tmp_path: Path) -> None:
    """7 of 25 are 0.28, but 25 * 0.28 is more than 7."""
    plain = protocol("qg-bench")
    wrong, right = (replace(plain.practice[0], expected={"correctness": (value, value)}) for value in (1, 3))
    given = replace(plain, practice=(*[right] * 7, *[wrong] * 18), practice_passes=0.28)
    guest = RaterClient(study(tmp_path, page_plan(given))).get("/").post("/begin")
    guest.post("/consent", answer="agree", version="1").post("/instructions")
    for number in range(1, 26):
        guest.post(f"/practice/{number}", **{f"value_{at}": 3 for at in range(1, len(given.criteria) + 1)})
    assert guest.get("/next").path == "/task/a00001/1"


@pytest.mark.parametrize(("correctness", "end"), [(3, "/task/a00001/1"), (1, "/screened")])
def test_practice_that_expects_nothing_is_no_test(tmp_path: Path, correctness: int, end: str) -> None:
    """The first of four questions is the one that is a test; three others as expected would be more than half."""
    plain = protocol("qg-bench")
    first, *others = [replace(one, expected={}) for one in plain.practice]
    given = replace(plain, practice=(replace(first, expected={"correctness": (3, 3)}), *others), practice_passes=0.5)
    guest = RaterClient(study(tmp_path, page_plan(given))).get("/").post("/begin")
    guest.post("/consent", answer="agree", version="1").post("/instructions")
    for number in range(1, len(given.practice) + 1):
        guest.post(f"/practice/{number}", **{f"value_{at}": correctness for at in range(1, len(given.criteria) + 1)})
        guest.get("/next")
    assert guest.path == end
