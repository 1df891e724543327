"""The page by keyboard alone, for screen readers, on a phone, in the dark, and without JavaScript."""

import json
from collections.abc import Callable
from functools import partial
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rl_qg.asking.models import QUESTIONS, corpus_warning
from rl_qg.serving.problems import ProblemError
from tests.pages.hostile_texts import TEXT as HOSTILE
from tests.rl_qg.serving.conftest import WIDE, Visit
from tests.rl_qg.serving.page_server import KnownService
from tests.rl_qg.serving.test_page_in_browser import ANSWERS, TEXT, WIDE_LETTERS, select

pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python: pip install -e '.[dev]'")
pytestmark = pytest.mark.slow
Opened = Callable[..., Visit]

PHONE = 390
LAYOUT = (Path(__file__).parents[2] / "pages" / "layout_check.js").read_text(encoding="utf-8")
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
SCRIPT = '<script type="module" src="page/page.js"></script>'
RUN_AXE = "() => axe.run(document, {resultTypes: ['violations']})"
# What has the focus: its name for people, and whether its outline is seen.
FOCUS = """() => { const one = document.activeElement, style = getComputedStyle(one);
return [one.ariaLabel || one.labels?.[0]?.textContent || one.textContent,
        style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2]; }"""


def violations(page: Any) -> list[str]:
    """What axe and the check of the layout say against the page as it is now."""
    page.evaluate(AXE)
    found = page.evaluate(RUN_AXE)
    assert found["passes"], "axe has run"
    wrong = [
        f"{one['id']}: {one['nodes'][0]['target']}: {one['nodes'][0]['failureSummary']}" for one in found["violations"]
    ]
    return wrong + page.evaluate(LAYOUT)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, WIDE])
def test_axe_finds_nothing_and_nothing_is_cut_off(
    visit: Opened, service: KnownService, width: int, scheme: str
) -> None:
    service.warning = corpus_warning(QUESTIONS)
    # The policy of the page would not let axe in.
    page = (shown := visit(width=width, color_scheme=scheme, bypass_csp=True)).page
    assert page.get_by_role("note").all_inner_texts() == [service.warning]
    assert violations(page) == []
    shown.ask(f"{TEXT}\n\nIn 1702 {HOSTILE}\n\nMary Baker {WIDE_LETTERS}")
    select(page, "bridge")
    page.click("#question-1 .accept")
    page.click("#question-2 .reject")
    page.click("#question-3 .why")
    page.wait_for_selector("#question-3 .heat")
    page.click("#question-4 .edit")
    page.fill("#question-4 [name=answer]", "nowhere")
    page.click("#question-4 .editor .first")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert violations(page) == []
    service.problem = ProblemError(503, f"too many wait {'x' * 90}", headers={"Retry-After": "3"})
    page.click("#ask-all")
    shown.settled()
    page.evaluate("document.getElementById('key-field').hidden = false")
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, WIDE])
def test_axe_finds_nothing_without_script(visit: Opened, service: KnownService, width: int, scheme: str) -> None:
    """axe needs script: it looks at the page that a browser without it has got."""
    plain, looking = (
        visit(width=width, color_scheme=scheme, java_script_enabled=on, bypass_csp=on) for on in (False, True)
    )
    plain.page.fill("#text", TEXT)
    for way in (ANSWERS, None):
        service.problem = None if way else ProblemError(422, "not this text")
        plain.page.click("#ask-all")
        fulfil = partial(fulfil_with, plain.page.content().replace(SCRIPT, ""))
        looking.page.route(looking.address, fulfil)
        looking.page.goto(looking.address)
        assert looking.texts(".to-answer") == (way or [])
        assert violations(looking.page) == []


def fulfil_with(content: str, route: Any) -> None:
    route.fulfill(body=content, content_type="text/html; charset=utf-8")


def test_from_paste_to_export_by_keyboard_alone(visit: Opened) -> None:
    page = (shown := visit(permissions=["clipboard-read", "clipboard-write"])).page
    press = page.keyboard.press

    def tab_to(name: str) -> None:
        for _ in range(40):
            press("Tab")
            focused, outlined = page.evaluate(FOCUS)
            assert outlined, f"{focused}: the focus is not seen"
            if focused.startswith(name):
                return
        raise AssertionError(f"Tab does not lead to {name}")

    page.evaluate("text => navigator.clipboard.writeText(text)", TEXT)
    tab_to("Text")
    press("Control+v")
    tab_to("Questions")
    press("Control+a")
    page.keyboard.type("4")
    tab_to("Ask questions")
    press("Enter")
    page.wait_for_selector("#question-4")
    shown.settled()
    assert shown.focused() == "questions-title"
    tab_to("1204")  # the answer of the first question, a link to its mark
    press("a")
    press("ArrowDown")
    assert shown.focused() == "question-2"
    press("e")
    press("Control+a")
    page.keyboard.type("Who built it again?")
    press("Control+Enter")
    press("ArrowDown")
    press("r")
    press("u")
    press("w")
    page.wait_for_selector("#question-3 .heat")
    press("m")
    assert shown.focused() == "1340"
    press("Enter")
    press("ArrowDown")
    press("r")
    press("ArrowUp")
    press("ArrowUp")
    assert page.inner_text("#tally") == "4 questions: 2 accepted, 1 rejected, 1 open."
    for _ in range(40):
        press("Shift+Tab")
        if page.evaluate(FOCUS)[0] == "Export 2 accepted":
            break
    with page.expect_download() as download:
        press("Enter")
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["question"] for line in lines] == ["What about 1204?", "Who built it again?"]


def test_a_screen_reader_hears_names_states_and_news(visit: Opened, service: KnownService) -> None:
    service.held.clear()
    page = (shown := visit()).page
    page.fill("#text", TEXT)
    page.click("#ask-all")
    page.get_by_role("status").get_by_text("2 questions so far …").wait_for()
    service.held.set()
    shown.settled()
    page.get_by_role("status").get_by_text("4 new questions.").wait_for()
    assert [heading.inner_text() for heading in page.get_by_role("heading", level=3).all()] == shown.texts(".asked")
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].filter(h => h.checkVisibility()).map(h => +h.tagName[1])"
    )
    assert levels[0] == 1 and all(after - before <= 1 for before, after in pairwise(levels))
    item = page.get_by_role("listitem", name="What about 1340?")
    accept = item.get_by_role("button", name="Accept")
    assert accept.get_attribute("aria-pressed") == "false"
    accept.click()
    assert item.get_by_role("button", pressed=True).inner_text() == "Accept"
    mark = page.get_by_role("link", name="1340").last
    (described,) = mark.get_attribute("aria-describedby").split()
    assert page.inner_text(f"#{described}") == "What about 1340?"
    for one in page.locator("input:visible, select:visible, textarea:visible").all():
        assert one.evaluate("field => field.labels.length") == 1
    page.fill("#number", "0")
    page.click("#ask-all")
    page.get_by_role("alert").get_by_text("Questions: a whole number from 1 to 50.").wait_for()


def test_the_page_does_not_move_for_who_wants_no_motion(visit: Opened) -> None:
    page = visit().page
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.evaluate("matchMedia('(prefers-reduced-motion: reduce)').matches")


def test_buttons_are_large_enough_for_a_finger(visit: Opened) -> None:
    page = (shown := visit(width=PHONE, has_touch=True)).page
    shown.ask(TEXT)
    found = page.locator("button:visible, select:visible").all()
    heights = [(button.inner_text(), button.bounding_box()["height"]) for button in found]
    names = [name for name, _ in heights]
    assert "Ask questions" in names and names.count("Accept") == names.count("Edit") == len(ANSWERS)
    assert [one for one in heights if one[1] < 44] == []


def test_the_form_works_without_script(visit: Opened, service: KnownService) -> None:
    plain, scripted = visit(java_script_enabled=False), visit()
    scripted.ask(WIDE_LETTERS + "\n\n" + TEXT)
    page = plain.page
    assert page.locator("#ask-selection:visible, #clear:visible, #tools:visible, .decide:visible").count() == 0
    page.fill("#text", WIDE_LETTERS + "\n\n" + TEXT)
    page.fill("#number", "9")
    page.select_option("#language", "fr")
    page.click("#ask-all")
    for selector in (".asked", ".to-answer", "mark", ".value", ".passage"):
        assert [text.strip() for text in plain.texts(f"#result {selector}")] == [
            text.strip() for text in scripted.texts(f"#result {selector}") if text
        ]
    assert page.inner_text("#status") == "7 questions." and page.input_value("#language") == "fr"
    page.click("#question-2 .to-answer")
    assert page.url.endswith("#answer-2")
    page.click("mark >> nth=3 >> a")
    assert page.url.endswith("#question-4")
    page.uncheck("#question-1 [name=pair]")
    page.select_option("#kept-format", "jsonl")
    with page.expect_download() as download:
        page.click("text=Export the kept questions")
    kept = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    assert [pair["answer"] for pair in kept] == ["Ada Lovelace", "1843", *ANSWERS]
    assert all((WIDE_LETTERS + "\n\n" + TEXT)[pair["answer_start"] :].startswith(pair["answer"]) for pair in kept)


def test_faults_and_files_without_script(visit: Opened, service: KnownService) -> None:
    page = (shown := visit(java_script_enabled=False)).page
    page.fill("#number", "3")
    page.click("#ask-all")
    assert (
        page.inner_text("#fault") == "Give a text: paste it, or open a text file."
        and page.input_value("#number") == "3"
    )
    page.set_input_files("#file", {"name": "a.md", "mimeType": "text/plain", "buffer": TEXT.encode()})
    page.fill("#about", "bridge")
    page.click("#ask-all")
    assert shown.texts(".to-answer") == ["bridge"] and page.input_value("#text") == TEXT
    service.problem = ProblemError(503, "too many requests are waiting", headers={"Retry-After": "4"})
    page.click("#ask-all")
    assert page.inner_text("#fault") == "Too many requests are waiting. Try again in 4 seconds."


def test_a_form_that_was_sent_before_the_script_ran_is_taken_over(visit: Opened) -> None:
    page = (shown := visit()).page
    page.route("**/page/page.js", lambda route: route.abort())
    page.reload()
    page.fill("#text", TEXT)
    page.click("#ask-all")
    page.wait_for_selector("#kept")
    page.unroute("**/page/page.js")
    page.reload()  # sends the form again, as a browser does
    page.wait_for_selector("#tally:visible")
    assert shown.texts(".to-answer") == shown.texts("mark") == ANSWERS and page.locator("#kept").count() == 0
    page.click("#question-1 .accept")
    assert page.inner_text("#tally").startswith("4 questions: 1 accepted")
