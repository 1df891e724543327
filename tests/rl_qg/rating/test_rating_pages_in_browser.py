"""The pages of raters in headless Chromium, under their own security policy: what people do on them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rl_qg.rating.pages.server import create_app
from rl_qg.rating.plan_files import StudyPlan
from rl_qg.rating.study.records import StoreFailed
from rl_qg.rating.study.store import Store, open_store
from tests.pages.hostile_texts import LONG_WORD, MARKS, MARKUP, PASSAGE, TEXT
from tests.rl_qg.rating.page_studies import ADMIN_TOKEN, page_plan, protocol, settings_of, study
from tests.rl_qg.rating.serving_study import served_study
from tests.rl_qg.serving.conftest import BROWSERS
from tests.rl_qg.serving.page_server import served

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
pytestmark = pytest.mark.slow
NAMES = ("understandability", "relevancy", "answerability", "appropriateness")
NEXT = "#rating button.first"
HOSTILE = TEXT.replace(LONG_WORD, f"{MARKS} {LONG_WORD}")
# The texts whose first letter stands right of their second one, other than those that have marks of direction.
TURNED = """() => {
  const turned = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, found = /[A-Za-z]{2}/.exec(node.data);
    if (!found || /[\\u202a-\\u202e\\u2066-\\u2069]/.test(node.data)) continue;
    const [first, second] = [0, 1].map(at => {
      const range = document.createRange();
      range.setStart(node, found.index + at);
      range.setEnd(node, found.index + at + 1);
      return range.getBoundingClientRect();
    });
    if (first.width && first.top === second.top && first.left > second.left) turned.push(node.data.slice(0, 40));
  }
  return turned;
}"""


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    import shutil

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser, one of {', '.join(BROWSERS)}, on the search path")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield playwright, browser
        browser.close()


class RaterBrowser:
    """A browser of one rater at a server, with what it complained about."""

    def __init__(self, context: Any, address: str, store: Store | None) -> None:
        self.context, self.address, self.store = context, address.rstrip("/"), store
        self.complaints: list[str] = []
        self.page = self.tab()

    def tab(self) -> Any:
        page = self.context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        return page

    def open(self, path: str = "/") -> Any:
        self.page.goto(self.address + path)
        return self.page

    def begin(self) -> Any:
        """Up to the first item, by mouse."""
        page = self.open()
        for button in ("form button", "button[value=agree]", "form button.first"):
            page.click(button)
        page.wait_for_url("**/task/*/1")
        return page

    def press_until(self, selector: str, page: Any = None) -> None:
        """Tab until an element has the focus."""
        for _ in range(40):
            (page or self.page).keyboard.press("Tab")
            if (page or self.page).evaluate("wanted => document.activeElement.matches(wanted)", selector):
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    def check_only_text(self, page: Any) -> None:
        """Nothing that a text holds has become a part of the page or has run, and it turns no word of the page."""
        assert page.evaluate("window.attacked") is None and page.evaluate(TURNED) == []
        count = page.locator(
            "img, iframe, object, embed, base, [autofocus], [onerror], [onfocus], main script"
        ).count()
        assert count == 0

    def ratings(self) -> dict[tuple[int, str], int]:
        assert self.store is not None
        return self.store.ratings_of("a00001", "r0001")


Opened = Callable[..., RaterBrowser]


@pytest.fixture
def visit(started: Any, tmp_path: Path) -> Iterator[Opened]:
    """Open a browser at a server of a plan; `options` are those of the browser."""
    with ExitStack() as stack:
        browsers = []

        def opened(plan: StudyPlan | None = None, **options: Any) -> RaterBrowser:
            store = study(tmp_path, plan or page_plan(protocol(practice=())))
            stack.callback(store.close)
            application: Any = create_app(store, settings_of(), ADMIN_TOKEN)
            address = stack.enter_context(served(application))
            context = started[1].new_context(
                **{"reduced_motion": "reduce", "viewport": {"width": 1200, "height": 800}} | options
            )
            stack.callback(context.close)
            browsers.append(RaterBrowser(context, address, store))
            return browsers[-1]

        yield opened
        for one in browsers:
            failed = "Failed to load resource: "  # of tests with refusals
            assert [line for line in one.complaints if not line.startswith(failed)] == []


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id"))


def test_a_whole_task_by_keyboard_alone(visit: Opened) -> None:
    page = (rater := visit()).open()
    for selector, to in (("form button", "consent"), ("[value=agree]", "instructions"), ("form button", "task/*/1")):
        rater.press_until(selector)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/{to}")
    assert page.get_attribute("#value-1", "aria-valuetext") == "not rated yet"
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#missing")
    assert focused(page) == "missing" and page.locator("#missing a").count() == 4
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert focused(page) == "value-1"
    wanted = {}
    for position in (1, 2, 3):
        for number, keys in enumerate((["ArrowRight"], ["Home"], ["End", "ArrowLeft"], ["Space"]), 1):
            if (position, number) != (1, 1):
                rater.press_until(f"#value-{number}")
            for key in keys:
                page.keyboard.press(key)
            wanted[position, NAMES[number - 1]] = (51, 0, 99, 50)[number - 1]
        assert page.locator("input.unset").count() == 0 and page.get_attribute("#value-1", "aria-valuetext") is None
        page.keyboard.press("Control+Enter")
        page.wait_for_url(f"**/task/a00001/{position + 1 if position < 3 else 'feedback'}")
    assert rater.ratings() == wanted, "also fifty, where it is meant"
    rater.press_until("#text")
    page.keyboard.type("By keyboard")
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/done")
    assert len(page.inner_text("#code")) == 10 and rater.store.feedback_of("a00001", "r0001") == "By keyboard"


def test_on_a_phone(visit: Opened, started: Any) -> None:
    device = started[0].devices["Pixel 7"]
    page = (
        rater := visit(page_plan(protocol(practice=()), context="Before it. " * 60 + "Anna Weaver built."), **device)
    ).begin()
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [412, 412]
    for number in range(1, 5):
        slider = page.locator(f"#value-{number}")
        box = slider.bounding_box()
        assert box["height"] >= 44
        slider.tap(position={"x": box["width"] * (0.5 if number == 1 else 0.2 * number), "y": box["height"] / 2})
    passage, progress = page.locator(".passage").bounding_box(), page.locator("#progress").bounding_box()
    assert progress["y"] < 0 <= passage["y"] + 1, "the passage stays in sight"
    small = page.locator("button, a:not(.skip), .choice, .confirm").evaluate_all(
        "all => all.filter(one => one.offsetHeight && one.offsetHeight < 44).map(one => one.outerHTML)"
    )
    assert small == []
    page.locator(NEXT).tap()
    page.wait_for_url("**/task/a00001/2")
    values = [rater.ratings()[1, name] for name in NAMES]
    assert values[0] == 50, "a tap on the middle is a rating"
    assert all(abs(value - target) <= 4 for value, target in zip(values[1:], (40, 60, 80), strict=True)), values


def test_a_long_question_leaves_room_for_the_statements_on_a_phone(visit: Opened, started: Any) -> None:
    plan = page_plan(protocol(practice=()), questions=["Who built the mill again " * 60 + "?"])
    page = visit(plan, **started[0].devices["Pixel 7"]).begin()
    page.locator("#value-4").scroll_into_view_if_needed()
    slider, shown = page.locator("#value-4").bounding_box(), page.locator(".shown").bounding_box()
    assert shown["height"] <= 0.47 * page.evaluate("innerHeight")
    page.locator("#value-4").tap()
    assert page.is_checked("#set-4") and slider["y"] >= shown["y"] + shown["height"]


def test_keys_lead_on_after_a_practice_question(visit: Opened) -> None:
    rater = visit(page_plan(protocol()))
    page = rater.open()
    for button in ("form button", "button[value=agree]", "form button.first"):
        page.click(button)
    page.wait_for_url("**/practice/1")
    for number in range(1, 5):
        page.press(f"#value-{number}", "ArrowRight")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("a.first")
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/practice/2")


def test_without_javascript(visit: Opened) -> None:
    page = (rater := visit(java_script_enabled=False)).begin()
    assert page.is_visible("#set-1") and "tick the box" in page.inner_text("#rating")
    page.fill("#value-1", "70")
    page.check("#set-1")
    page.fill("#value-2", "20")
    page.click(NEXT)
    page.wait_for_selector("#missing:focus")
    assert page.locator("#missing li").count() == 3
    assert [page.input_value(f"#value-{number}") for number in (1, 2, 3)] == ["70", "20", "50"]
    assert page.is_checked("#set-1") and not page.is_checked("#set-2")
    assert rater.ratings() == {(1, NAMES[0]): 70}
    for position in (1, 2, 3):
        for number in range(1, 5):
            page.fill(f"#value-{number}", str(10 * number))
            page.check(f"#set-{number}")
        page.click(NEXT)
        page.wait_for_url(f"**/{position + 1 if position < 3 else 'feedback'}")
    page.fill("#text", "No script here")
    page.click("button.first")
    page.wait_for_url("**/done")
    assert {value for (_, name), value in rater.ratings().items() if name == NAMES[2]} == {30}


def test_a_tab_closed_at_item_nine_and_opened_again(visit: Opened) -> None:
    page = (rater := visit(page_plan(protocol(practice=()), items=12))).begin()
    for position in range(1, 9):
        rater.store.save("a00001", "r0001", position, dict.fromkeys(NAMES, 40))
    page = rater.open("/task")
    assert page.url.endswith("/task/a00001/9") and page.inner_text("#progress") == "Item 9 of 12"
    page.fill("#value-2", "83")
    page.close()  # before the script has waited for more changes
    rater.page = rater.tab()
    page = rater.open("/")
    assert page.url.endswith("/task/a00001/9")
    page.wait_for_timeout(200)
    assert rater.ratings()[9, NAMES[1]] == 83
    page.reload()
    assert page.input_value("#value-2") == "83" and page.locator("input.unset").count() == 3


def test_two_tabs_of_one_rater(visit: Opened) -> None:
    first = (rater := visit()).begin()
    second = rater.tab()
    second.goto(first.url)
    for page, value in ((first, "30"), (second, "60")):
        for number in range(1, 5):
            page.fill(f"#value-{number}", value)
        page.click(NEXT)
        page.wait_for_url("**/task/a00001/2")
    assert rater.ratings() == dict.fromkeys(((1, name) for name in NAMES), 60)
    first.click("button[value=back]")
    first.wait_for_url("**/task/a00001/1")
    assert first.input_value("#value-4") == "60"


def test_a_double_click_on_submit(visit: Opened) -> None:
    page = (rater := visit()).begin()
    for position in (1, 2, 3):
        rater.store.save("a00001", "r0001", position, dict.fromkeys(NAMES, 40))
    page = rater.open("/task/a00001/feedback")
    page.dblclick("button.first", no_wait_after=True)
    page.wait_for_url("**/done")
    assert page.inner_text("#code") == rater.store.code("a00001", "completed")
    assert rater.store.progress()["assignments"]["submitted"] == 1


def test_arabic_runs_from_right_to_left(visit: Opened) -> None:
    page = (rater := visit(locale="ar")).begin()
    assert page.evaluate("[document.dir, getComputedStyle(document.querySelector('#value-1')).direction]") == [
        "rtl",
        "rtl",
    ]
    assert page.evaluate("getComputedStyle(document.querySelector('.passage .text')).direction") == "ltr"
    ends = [page.locator("#ends-1 span").nth(at).bounding_box()["x"] for at in (0, 1)]
    assert ends[0] > ends[1], "the low end stands on the right"
    box = page.locator("#value-1").bounding_box()
    page.mouse.click(box["x"] + 0.1 * box["width"], box["y"] + box["height"] / 2)
    assert int(page.input_value("#value-1")) > 85, "the left end is the high one"
    assert page.locator(".passage").bounding_box()["x"] > page.locator("#rating").bounding_box()["x"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click(NEXT)
    page.wait_for_selector("#missing")
    assert rater.ratings()[1, NAMES[0]] > 85


def test_hostile_text_is_only_text(visit: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """In questions, passages and remarks, also without the policy of the pages."""
    plan = page_plan(
        protocol(practice=()), questions=[HOSTILE], context=f"{PASSAGE} Anna Weaver {HOSTILE}", items=1, tasks=1
    )
    page = (rater := visit(plan, bypass_csp=True)).begin()
    assert page.inner_text(".question") == HOSTILE and MARKUP in page.inner_text(".passage")
    rater.check_only_text(page)
    for number in range(1, 5):
        page.fill(f"#value-{number}", "77")
    page.click(NEXT)
    page.wait_for_url("**/feedback")
    page.fill("textarea", HOSTILE)

    def full(*_: Any) -> None:
        raise StoreFailed(28, "full")

    with monkeypatch.context() as broken:
        broken.setattr(rater.store, "add_feedback", full)
        page.click("button.first")
        page.get_by_role("heading", name="This was not saved").wait_for()
        rater.check_only_text(page)
    page.click("button.first")
    page.wait_for_url("**/done")
    assert rater.store.feedback_of("a00001", "r0001") == HOSTILE
    rater.check_only_text(page)


def test_a_failing_database_loses_nothing(visit: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (rater := visit()).begin()

    def full(*_: Any) -> None:
        raise StoreFailed(28, "full")

    with monkeypatch.context() as broken:
        broken.setattr(rater.store, "save", full)
        for number in range(1, 5):
            page.fill(f"#value-{number}", "77")
        page.get_by_text("Not saved yet.").wait_for()
        page.click(NEXT)
        page.get_by_role("heading", name="This was not saved").wait_for()
    page.click("button.first")
    page.wait_for_url("**/task/a00001/2")
    assert rater.ratings() == dict.fromkeys(((1, name) for name in NAMES), 77)


def test_a_server_that_is_killed_between_autosave_and_submit(started: Any, tmp_path: Path) -> None:
    plan = page_plan(protocol(practice=()))
    context = started[1].new_context()
    with served_study(tmp_path, plan) as server:
        page = RaterBrowser(context, server.address, None).begin()
        for number in range(1, 4):
            page.fill(f"#value-{number}", "64")
        page.get_by_text("Saved.").wait_for()
        server.end(signal.SIGKILL)
    with served_study(tmp_path, port=server.port) as again:
        page.fill("#value-4", "12")  # the page is still there, and so is its session
        page.click(NEXT)
        page.wait_for_url("**/task/a00001/2")
        assert again.end() == 0
    store = open_store(str(tmp_path / "study.db"))
    values = [store.ratings_of("a00001", "r0001")[1, name] for name in NAMES]
    store.close()
    context.close()
    assert values == [64, 64, 64, 12]


class Rules:
    """axe on a page: all its rules, and in the dark scheme contrast again."""

    RUN = "rules => axe.run(rules).then(found => found.violations.map(one => one.id + ' ' + one.nodes[0].html))"

    def __init__(self) -> None:
        name = "axe_playwright_python.sync_playwright"
        self.script = pytest.importorskip(name, reason="needs axe-playwright-python").Axe().axe_script
        self.broken: list[str] = []
        self.seen: list[str] = []

    def check(self, page: Any, name: str) -> None:
        self.seen.append(name)
        page.evaluate(self.script)
        for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate(self.RUN, {"resultTypes": ["violations"]} | rules)
            self.broken += [f"{name} {scheme}: {line}" for line in found]


def test_no_page_breaks_a_rule_of_accessibility(visit: Opened) -> None:
    rules, given = Rules(), protocol("qg-bench", practice_passes=0.0)
    page = (rater := visit(page_plan(given))).open()
    rules.check(page, "landing")
    page.click("form button")
    rules.check(page, "consent")
    page.click("button[value=agree]")
    rules.check(page, "instructions")
    page.click("form button.first")
    rules.check(page, "practice")
    for _ in given.practice:
        for number in range(1, len(given.criteria) + 1):
            page.check(f"#value-{number}")
        page.click(NEXT)
        page.wait_for_selector("#rating a.first")
        if "comment" not in rules.seen:
            rules.check(page, "comment")
        page.click("#rating a.first")
    page.wait_for_url("**/task/a00001/1")
    rules.check(page, "item")
    page.click(NEXT)
    page.wait_for_selector("#missing")
    rules.check(page, "missing")
    for item in (1, 2, 3):
        rater.store.save("a00001", "r0001", item, {one.name: one.lowest for one in given.criteria})
    rater.open("/task")
    rules.check(page, "feedback")
    page.click("button.first")
    page.wait_for_selector("#code")
    rules.check(page, "done")
    rater.open("/nothing")
    rules.check(page, "nothing")
    assert rules.broken == [] and len(rules.seen) == 10


def test_the_page_of_the_owner_breaks_no_rule_of_accessibility(visit: Opened) -> None:
    rules, page = Rules(), (rater := visit()).begin()
    page = rater.open("/admin")
    page.fill("#token", "wrong")
    page.click("button.first")
    page.wait_for_selector("#fault")
    rules.check(page, "wrong token")
    page.fill("#token", ADMIN_TOKEN)
    page.click("button.first")
    page.wait_for_selector("dl")
    rules.check(page, "owner")
    assert rules.broken == [] and page.locator("td", has_text="a00001").count()


def test_sliders_break_no_rule_of_accessibility_in_arabic_either(visit: Opened) -> None:
    rules, page = Rules(), visit(locale="ar").begin()
    page.fill("#value-1", "10")
    rules.check(page, "item")
    page.click(NEXT)
    page.wait_for_selector("#missing")
    rules.check(page, "missing")
    assert rules.broken == []
