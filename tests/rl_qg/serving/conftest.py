"""A browser, and pages of servers whose answers are known."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from fastapi import FastAPI

from tests.rl_qg.serving.page_server import KnownService, page_application, served

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDE = 1280


class Visit:
    """A page in the browser, with what it asked for and what it complained about."""

    def __init__(self, context: Any, address: str) -> None:
        self.context, self.address = context, address
        self.page = context.new_page()
        self.page.set_default_timeout(10_000)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.goto(address)

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def ask(self, text: str, number: int = 9) -> None:
        """Fill in the form, send it, and wait for the last question."""
        self.page.fill("#text", text)
        self.page.fill("#number", str(number))
        self.page.click("#ask-all")
        self.settled()

    def settled(self) -> None:
        """Wait until the request under way has its answer."""
        self.page.wait_for_selector("#stop", state="hidden")

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def focused(self) -> str:
        return self.page.evaluate("document.activeElement.id || document.activeElement.textContent")

    def check(self) -> None:
        """What holds for every visit: no error, no breach of the security policy, no request to another host."""
        answers = "Failed to load resource: the server responded with a status of"  # of tests with problems
        assert [
            line for line in self.complaints if not line.startswith((answers, "Failed to load resource: net::"))
        ] == []
        assert [url for url in self.requests if not url.startswith((self.address, f"blob:{self.address}"))] == []
        assert self.dialogs == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser, one of {', '.join(BROWSERS)}, on the search path")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def service() -> KnownService:
    return KnownService()


@pytest.fixture
def visit(browser: Any, service: KnownService) -> Iterator[Callable[..., Visit]]:
    """Open the page of a server of `service`, or of another application; `options` are those of the browser."""
    with ExitStack() as stack:
        visits = []

        def opened(application: FastAPI | None = None, width: int = WIDE, **options: Any) -> Visit:
            address = stack.enter_context(served(application or page_application(service)))
            context = browser.new_context(
                viewport={"width": width, "height": 900}, reduced_motion="reduce", accept_downloads=True, **options
            )
            stack.callback(context.close)
            visits.append(Visit(context, address))
            return visits[-1]

        yield opened
        for one in visits:
            one.check()


def select(page: Any, words: str) -> None:
    """Select the first place of words in the field of the text."""
    page.evaluate(
        """words => { const field = document.getElementById("text"), at = field.value.indexOf(words);
        field.focus(); field.setSelectionRange(at, at + words.length); }""",
        words,
    )
    page.wait_for_selector("#ask-selection[aria-disabled='false']")
