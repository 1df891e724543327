"""Pictures of the pages for raters for the documentation, in docs/rating/.

python -m tests.rl_qg.rating.page_screenshots
"""

import io
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from rl_qg.rating.pages.server import create_app
from tests.rl_qg.rating.page_studies import ADMIN_TOKEN, RaterClient, page_plan, protocol, settings_of, study
from tests.rl_qg.rating.studies import Clock
from tests.rl_qg.serving.page_server import served

FOLDER = Path(__file__).parents[3] / "docs" / "rating"
COLOURS = 48  # enough for flat pages, and a fifth of the bytes
PLACES = (72, 81, 64, 77)
DESKTOP = {"viewport": {"width": 1080, "height": 700}}
ARABIC = "احترقت الطاحونة في ألدن عام 1204. أعادت آنا ويفر بناءها بحجارة الجسر القديم، وطحن أبناؤها الحبوب فيها."


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        plan = page_plan(protocol("qascore"), items=20, tasks=6)
        walk(browser, plan, DESKTOP | {"color_scheme": "light"}, "", owner=True)
        phone = {"viewport": {"width": 390, "height": 760}, "has_touch": True, "color_scheme": "dark"}
        walk(browser, plan, phone, "phone-")
        arabic = page_plan(
            protocol("qascore"),
            items=20,
            language="ar",
            context=ARABIC,
            answer="آنا ويفر",
            questions=["من أعاد بناء الطاحونة؟"],
        )
        walk(browser, arabic, DESKTOP | {"locale": "ar"}, "right-to-left-")
        choices = page_plan(protocol("qrelscore"), items=20)
        walk(browser, choices, DESKTOP, "choices-", pages=("item",))
        browser.close()


def walk(
    browser: Any, plan: Any, options: dict[str, Any], prefix: str, *, pages: tuple[str, ...] = (), owner: bool = False
) -> None:
    """Go through the whole of a task; keep the pages named, or all."""
    has_chinese = bool(subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=False).stdout.strip())
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(1_792_000_000.0)
        store = study(Path(folder), plan, clock)
        application: Any = create_app(store, settings_of(), ADMIN_TOKEN)
        with served(application) as address:
            page = browser.new_context(reduced_motion="reduce", **options).new_page()

            def keep(name: str) -> None:
                if not has_chinese:
                    page.evaluate("document.querySelectorAll('footer [lang=zh]').forEach(one => one.remove())")
                if not pages or name in pages:
                    save(page.screenshot(), FOLDER / f"{prefix}{name}.png")

            page.goto(address)
            page.click("form button")
            keep("consent")
            page.click("[value=agree]")
            keep("instructions")
            page.click("form button")
            practise(page, keep)
            rater = store.raters()[0][0]
            for position in range(1, 9):
                store.save("a00001", rater, position, {one.name: one.highest for one in plan.protocol.criteria})
            page.goto(f"{address}task")
            rate(page, 2)
            page.wait_for_timeout(800)  # saved
            keep("item")
            page.click("#rating button.first")
            page.wait_for_selector("#missing")
            keep("missing")
            clock.now += 17 * 60
            for position in range(9, 21):
                store.save("a00001", rater, position, {one.name: one.highest for one in plan.protocol.criteria})
            page.goto(f"{address}task")
            page.fill("#text", "Item 6 has two answers in the text.")
            keep("feedback")
            page.click("button.first")
            page.wait_for_selector("#code")
            keep("code")
            if owner:
                for _ in range(2):
                    RaterClient(store, application=application).begin().rate()
                    clock.now += 240
                page.goto(f"{address}admin")
                page.fill("#token", ADMIN_TOKEN)
                page.click("button.first")
                page.wait_for_selector("dl")
                keep("owner")
        store.close()


def practise(page: Any, keep: Any) -> None:
    """Rate the practice questions; the first is kept with its comment."""
    while "/practice/" in page.url:
        rate(page, 9)
        page.click("#rating button.first")
        page.wait_for_selector("#rating a.first")
        if page.url.endswith("/1"):
            page.locator(".notice").scroll_into_view_if_needed()
            keep("practice")
        page.click("#rating a.first")
        page.wait_for_load_state()


def rate(page: Any, most: int) -> None:
    """Set so many of the sliders, or choose."""
    for number, place in enumerate(PLACES[:most], 1):
        field = page.locator(f"#value-{number}")
        if not field.count():
            return
        if field.get_attribute("type") == "radio":
            field.check()
        else:
            field.fill(str(place))


def save(picture: bytes, path: Path) -> None:
    """Write a picture with few colours."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


if __name__ == "__main__":
    main()
