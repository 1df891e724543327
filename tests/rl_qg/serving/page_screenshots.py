"""Pictures of the page for the documentation: the packaged generator on a passage of the embedded corpus.

python -m tests.rl_qg.serving.page_screenshots
"""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from rl_qg import QuestionGenerator
from rl_qg.asking.models import QUESTIONS
from rl_qg.data.corpus import synthetic_examples
from rl_qg.serving.application import create_app
from rl_qg.serving.service import AskingService
from rl_qg.settings.web import ServeSettings
from tests.rl_qg.serving.page_server import served

DOCS = Path(__file__).parents[3] / "docs"


def main() -> None:
    """Write docs/page.png (wide, light) and docs/page-phone.png (phone, dark)."""
    text = next(iter(synthetic_examples(1, seed=6))).context
    service = AskingService(lambda: QuestionGenerator.from_pretrained(QUESTIONS), ServeSettings())
    service.start()
    assert service.wait(120)
    with served(create_app(service)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        for name, width, height, scheme in (("page", 1180, 1240, "light"), ("page-phone", 390, 844, "dark")):
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
            )
            page.goto(address)
            page.fill("#text", text)
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
