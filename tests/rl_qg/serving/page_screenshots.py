"""Pictures of the page for the documentation, with a made-up text.

python -m tests.rl_qg.serving.page_screenshots
"""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.rl_qg.serving.page_server import KnownService, page_application, served

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (
    "The lighthouse of Sorvik was built in 1846 on a rock two miles from the shore. Marta Hole, who planned it, had "
    "never seen the sea before.\n\nFor sixty years its lamp burned oil of fish. In 1908 the keeper, Anders Lund, put "
    "in a lamp of gas, and ships saw the light from twenty miles. A storm broke the stairs in 1931. Since then the "
    "lighthouse has been empty, and terns nest on its gallery."
)
QUESTIONS = {
    "1846": "When was the lighthouse of Sorvik built?",
    "Marta Hole": "Who planned the lighthouse on the rock?",
    "1908": "In which year did the keeper put in a lamp of gas?",
    "Anders Lund": "Which keeper put in a lamp of gas?",
    "1931": "When did a storm break the stairs?",
}


def main() -> None:
    """Write docs/page.png (wide, light) and docs/page-phone.png (phone, dark)."""
    service = KnownService()
    service.questions = QUESTIONS
    with served(page_application(service)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        for name, width, height, scheme in (("page", 1180, 1240, "light"), ("page-phone", 390, 844, "dark")):
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
            )
            page.goto(address)
            page.fill("#text", TEXT)
            page.click("#ask-all")
            page.wait_for_selector("#question-5")
            page.click("#question-1 .accept")
            page.click("#question-2 .reject")
            page.click("#question-3 .why")
            page.wait_for_selector("#question-3 .heat")
            page.focus("#question-3 .why")
            if scheme == "dark":
                page.focus("#question-3 .to-answer")
                page.evaluate("document.getElementById('question-2').scrollIntoView()")
            else:
                page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=DOCS / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
