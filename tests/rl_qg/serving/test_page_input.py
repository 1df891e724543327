"""What people give to the page in headless Chromium: words that they select or type, files, hostile text."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.pages.hostile_texts import TEXT as HOSTILE
from tests.rl_qg.serving.conftest import Visit
from tests.rl_qg.serving.page_server import ANSWERS, TEXT, KnownService

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
pytestmark = pytest.mark.slow
Opened = Callable[..., Visit]


def test_a_selection_by_keyboard_is_asked_about(visit: Opened, service: KnownService) -> None:
    page = (shown := visit()).page
    page.fill("#text", TEXT)
    page.click("#ask-selection", force=True)
    assert "Select words in the text first" in page.inner_text("#fault") and shown.focused() == "text"
    page.keyboard.press("Control+Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    for _ in range(5):
        page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector("#selection:text-is('Selected: “mill”')")
    page.keyboard.press("Control+Shift+Enter")
    page.wait_for_selector("#question-1")
    shown.settled()
    (span,) = service.asked[-1].answers or ()
    assert (span.text, span.start) == ("mill", 4) and shown.texts("mark") == ["mill"]
    assert service.asked[-1].number == 1, "no more are missing"


def test_a_selection_by_mouse_in_the_marked_text_is_asked_about(visit: Opened, service: KnownService) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    box = page.evaluate(
        """() => { const node = document.getElementById("passage").lastChild, range = document.createRange();
        const at = node.data.indexOf("bridge"); range.setStart(node, at); range.setEnd(node, at + 6);
        const {x, y, width, height} = range.getBoundingClientRect(); return {x, y, width, height}; }"""
    )
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.click("#ask-passage")
    page.wait_for_selector("#question-5")
    shown.settled()
    (span,) = service.asked[-1].answers or ()
    assert (span.text, span.start) == ("bridge", TEXT.index("bridge"))
    assert shown.texts(".to-answer") == [*ANSWERS, "bridge"], "the others stay"


def test_words_can_be_typed_to_ask_about_them(visit: Opened, service: KnownService) -> None:
    page = (shown := visit()).page
    page.fill("#about", "brigde")
    shown.ask(TEXT)
    assert "do not stand in the text" in page.inner_text("#fault") and shown.focused() == "about"
    page.fill("#about", "bridge")
    page.press("#about", "Enter")
    page.wait_for_selector("#question-1")
    assert shown.texts(".to-answer") == ["bridge"] and page.inner_text("#fault") == ""
    page.fill("#about", "art")
    shown.ask("The party of art")
    (span,) = service.asked[-1].answers or ()
    assert span.start == 13, "a word, not a part of one"


def test_the_choices_are_sent(visit: Opened, service: KnownService) -> None:
    page = (shown := visit()).page
    assert shown.texts("#way option") == ["best for the model", "answers, then questions", "all pairs at once"]
    page.select_option("#way", "end2end")
    page.select_option("#language", "de")
    page.fill("#min_score", "0.75")
    shown.ask(TEXT, 3)
    asked = service.asked[-1]
    assert (asked.number, asked.way, asked.language, asked.min_score) == (3, "end2end", "de", 0.75)
    assert shown.texts(".to-answer") == ["1204", "1340"]
    assert page.get_attribute("#passage", "lang") == page.get_attribute(".asked", "lang") == "de"


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("text", " \n", "Give a text: paste it, or open a text file."),
        ("number", "0", "Questions: a whole number from 1 to 50."),
        ("number", "2.5", "Questions: a whole number from 1 to 50."),
        ("min_score", "2", "Minimum score: a number from 0 to 1, or nothing."),
    ],
)
def test_a_wrong_field_is_named(visit: Opened, service: KnownService, field: str, value: str, line: str) -> None:
    page = (shown := visit()).page
    page.fill("#text", TEXT)
    page.fill(f"#{field}", value)
    page.click("#ask-all")
    assert page.inner_text("#fault") == line and shown.focused() == field
    assert page.get_attribute(f"#{field}", "aria-invalid") == "true" and not service.asked


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("paper.pdf", b"%PDF-1.7", "paper.pdf: only .txt and .md files can be opened here."),
        ("old.txt", "Müller".encode("latin-1"), "old.txt is not text in UTF-8: save it as UTF-8."),
        ("long.txt", b"a" * 300_000, "long.txt is longer than 50,000 characters: open a part of it."),
    ],
)
@pytest.mark.parametrize("dropped", [False, True], ids=["chosen", "dropped"])
def test_other_files_say_what_to_do(visit: Opened, name: str, content: bytes, line: str, dropped: bool) -> None:
    page = visit().page
    page.fill("#text", TEXT)
    give_file(page, name, content, dropped)
    page.wait_for_selector(f'#fault:has-text("{line}")')
    assert page.input_value("#text") == TEXT


@pytest.mark.parametrize("dropped", [False, True], ids=["chosen", "dropped"])
def test_a_text_file_is_opened(visit: Opened, dropped: bool) -> None:
    page = (shown := visit()).page
    page.fill("#text", "before")
    give_file(page, "notes.MD", "\ufeffIn 1843\r\nAda Lovelace 🔥".encode(), dropped)
    sync_api.expect(page.locator("#text")).to_have_value("In 1843\nAda Lovelace 🔥")
    assert page.inner_text("#status") == "notes.MD is open: 22 characters."
    page.focus("#clear")
    page.keyboard.press("Control+z")
    assert page.input_value("#text") == "before" and shown.texts(".asked") == []


def give_file(page: Any, name: str, content: bytes, dropped: bool) -> None:
    if not dropped:
        page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": content})
        return
    data = page.evaluate_handle(
        """([name, bytes]) => { const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], name)); return data; }""",
        [name, list(content)],
    )
    page.dispatch_event("h1", "drop", {"dataTransfer": data})


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_hostile_text_is_only_text(visit: Opened, service: KnownService, script: bool) -> None:
    service.question = HOSTILE.replace("{", "(").replace("}", ")") + " {}?"
    text = f"{HOSTILE} Anna Weaver: {HOSTILE}"
    page = (shown := visit(java_script_enabled=script, bypass_csp=True)).page
    page.fill("#text", text)
    page.click("#ask-all")
    page.wait_for_selector("#question-1")
    assert "window.attacked = 1" in page.inner_text("#question-1 .asked")
    assert page.inner_text("#passage").strip() == text and "Anna Weaver" in shown.texts("mark")
    assert page.locator("script").count() == 1
    count = page.locator("img, iframe, object, embed, base, [autofocus], [onerror], [onfocus], main script").count()
    assert count == 0
    if script:
        page.click("#question-1 .why")
        page.wait_for_selector("#question-1 .heat")
        assert page.evaluate("window.attacked") is None


def test_texts_from_right_to_left_are_shown_so(visit: Opened, service: KnownService) -> None:
    service.question = "מתי {}?"
    page = (shown := visit()).page
    shown.ask("הטחנה נשרפה ב 1204 ונבנתה שוב.\n\nThe mill burned in 1340.")
    direction = "element => element.matches(':dir(rtl)') ? 'rtl' : 'ltr'"
    assert [page.locator(one).first.evaluate(direction) for one in ("#text", "#passage", ".asked")] == ["rtl"] * 3
    assert shown.texts("mark") == ["1204", "1340"]
