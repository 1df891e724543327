"""Every kind of page in headless Chromium, on a phone and on a wide screen, light and dark, with hostile text.

The content security policy of the pages is switched off here: what the text contains must not run without it either.
"""

import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.pages.example_pages import write_pages

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python: pip install -e '.[dev]'")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"needs a browser, one of {', '.join(BROWSERS)}, on the search path"),
]

KINDS = (
    "report",
    "compare",
    "study",
    "evaluate",
    "sets",
    "correlate",
    "disagreements",
    "robustness",
    "separate",
    "explain",
)
PHONE, WIDE = 390, 1400
SCRIPTS_OF_THE_PAGE = {"explain": 2}
LAYOUT = Path(__file__).with_name("layout_check.js").read_text(encoding="utf-8")
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
# Of each text in a drawing, its contrast with the panel behind it: axe does not look at drawings.
TEXT_OF_DRAWINGS = """() => [...document.querySelectorAll("svg text")].map(text => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(part => part / 255)
      .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const [low, high] = [getComputedStyle(text).fill, getComputedStyle(text.closest(".panel")).backgroundColor]
    .map(light).sort((a, b) => a - b);
  return [text.textContent, high / low];
})"""
# Without the parts of drawings, which are thousands: `test_text_in_drawings_can_be_read` looks at their text.
RUN_AXE = """() => {
  document.querySelectorAll("svg > *").forEach(part => part.remove());
  return axe.run(document, { resultTypes: ["violations"] });
}"""
# Of each line in the page of sets, in the order of the questions that say whom they are paired with: the height of its
# first end and of that question's row, of its second end and of its partner's row.
LINES = """() => [...document.querySelectorAll(".matching")].map(group => {
  const box = group.querySelector("svg").getBoundingClientRect();
  const rows = group.querySelector("svg").viewBox.baseVal.height, lines = [...group.querySelectorAll("line")];
  const place = y => box.top + y / rows * box.height;
  const around = part => { const of = part.getBoundingClientRect(); return [of.top, of.bottom]; };
  return [...group.querySelectorAll(".left")].filter(one => one.innerText.includes("→")).map((question, number) => {
    const partner = group.querySelectorAll(".right")[question.innerText.split("→").pop().trim() - 1];
    const line = lines[number];
    return [place(line.y1.baseVal.value), ...around(question), place(line.y2.baseVal.value), ...around(partner)];
  });
})"""
OPEN_ALL = "() => document.querySelectorAll('details').forEach(one => { one.open = true; })"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pages = write_pages(tmp_path_factory.mktemp("pages"))
    assert set(pages) == set(KINDS)
    return {name: path.as_uri() for name, path in pages.items()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


class Shown:
    """A page in the browser, with the requests that it made and the dialogs that it opened."""

    def __init__(self, browser: Any, address: str, width: int, scheme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce"
        )
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dismiss)
        self.page.goto(address)

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@pytest.fixture
def show(browser: Any, addresses: dict[str, str]) -> Iterator[Any]:
    shown: list[Shown] = []

    def open_page(kind: str, width: int = PHONE, scheme: str = "light") -> Shown:
        shown.append(Shown(browser, addresses[kind], width, scheme))
        return shown[-1]

    yield open_page
    for one in shown:
        one.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "light"), (WIDE, "light"), (PHONE, "dark")])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_off_and_axe_finds_nothing(show: Any, kind: str, width: int, scheme: str) -> None:
    page = show(kind, width, scheme).page
    assert page.evaluate(LAYOUT) == []
    page.evaluate(OPEN_ALL)
    assert page.evaluate(LAYOUT) == []
    page.evaluate(AXE)
    found = page.evaluate(RUN_AXE)
    assert found["passes"], "axe has run"
    assert [_violation(one) for one in found["violations"]] == []


def _violation(found: dict[str, Any]) -> str:
    targets = [" ".join(map(str, node["target"])) for node in found["nodes"]]
    return f"{found['id']} ({len(targets)}): {'; '.join(targets[:3])}: {found['nodes'][0]['failureSummary']}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["report", "study", "correlate"])
def test_text_in_drawings_can_be_read(show: Any, kind: str, scheme: str) -> None:
    texts = show(kind, WIDE, scheme).page.evaluate(TEXT_OF_DRAWINGS)
    assert len(texts) > 10 and [text for text, contrast in texts if contrast < 4.5] == []


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_text_is_only_text(show: Any, addresses: dict[str, str], kind: str) -> None:
    shown = show(kind)
    shown.page.evaluate(OPEN_ALL)
    shown.page.wait_for_timeout(50)
    assert shown.dialogs == [] and shown.page.evaluate("() => window.attacked") is None
    assert shown.requests == [addresses[kind]]
    count = shown.page.locator
    assert count("script").count() == SCRIPTS_OF_THE_PAGE.get(kind, 0)
    assert count("img, iframe, object, embed, link, base, form, [autofocus], [onerror], [onfocus]").count() == 0
    assert "window.attacked = 1" in shown.page.inner_text("body"), "the page shows the hostile text"


@pytest.mark.parametrize("width", [PHONE, WIDE])
def test_lines_join_the_questions_that_are_paired(show: Any, width: int) -> None:
    """The ends of each line are in the rows of its question and of its partner, as the text beside it says."""
    groups = show("sets", width).page.evaluate(LINES)
    assert sum(map(len, groups)) > 8
    for lines in groups:
        for y1, top1, bottom1, y2, top2, bottom2 in lines:
            assert top1 <= y1 <= bottom1 and top2 <= y2 <= bottom2


def test_samples_show_their_questions_on_a_phone(show: Any) -> None:
    page = show("report", PHONE).page
    for cell in page.locator(".samples .question").all()[:6]:
        box = cell.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE and box["width"] > PHONE / 2
    first = page.locator(".samples tbody tr").first
    names = [line for line in first.inner_text().split("\n") if line in ("human", "CE")]
    assert names == ["human", "CE"], "each question says whose it is"


@pytest.mark.parametrize("width", [PHONE, WIDE])
def test_bars_keep_a_length_that_can_be_compared(show: Any, width: int) -> None:
    page = show("report", width).page
    assert page.locator(".funnel").count() == 1 and page.locator("table:has(td.stack)").count() == 2
    for groups, tracks in ((".funnel", ".bar"), ("table:has(td.stack)", "td.stack > span")):
        for group in page.locator(groups).all():
            boxes = [track.bounding_box() for track in group.locator(tracks).all()]
            assert len(boxes) == group.locator(".count, td.stack").count() > 1
            assert min(box["width"] for box in boxes) >= 90 and min(box["height"] for box in boxes) > 9
            assert len({box["width"] for box in boxes}) == 1, "so that lengths can be compared"
