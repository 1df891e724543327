"""The language of the pages: catalogues, choice, and texts in other languages than the page's."""

import json
import re
from pathlib import Path

import pytest

from rl_qg.rating.pages.rendering import Catalogue, Renderer, chosen_language, direction_of, load_catalogues
from rl_qg.runtime.errors import InputError
from rl_qg.settings.web import RateServeSettings
from tests.rl_qg.rating.page_studies import RaterClient, page_plan, protocol, settings_of, study

FILES = Path(__file__).parents[3] / "rl_qg" / "rating" / "pages" / "page_files"
RIGHT_TO_LEFT = "في عام 1204 احترقت الطاحونة. أعادت آنا ويفر بناءها."


def test_catalogues_have_the_same_keys_and_places() -> None:
    """Read here without the code under test."""
    texts = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (FILES / "languages").glob("*.json")}
    assert set(texts) == {"ar", "de", "en", "es", "fr", "zh"}
    for code, catalogue in texts.items():
        assert [*catalogue] == [*texts["en"]], code
        for key, text in catalogue.items():
            assert text.strip(), (code, key)
            assert sorted(re.findall(r"{\w+}", text)) == sorted(re.findall(r"{\w+}", texts["en"][key])), (code, key)
            assert code == "en" or len(text) < 25 or text != texts["en"][key], (code, key)


def test_every_text_is_used_and_every_used_text_exists() -> None:
    code = ("server", "arrival", "items", "rendering", "security", "visits")
    sources = [*FILES.glob("*.html"), *(FILES.parent / f"{name}.py" for name in code)]
    written = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = set(re.findall(r"\bt\.(\w+)", written)) - {"language", "direction"}
    named |= set(re.findall(r'\b(?:t|texts|catalogue\(visit\.language\))\(\s*"(\w+)"', written)) | {"language_name"}
    pages = re.findall(
        r'(?:message\(|_refusal\(scope, |refused\(|NoSession: \(|Refused: \(|Closed: \()"(\w+)"', written
    )
    pages += [
        "done",
        "declined",
        "screened",
        "full",
        "missing_page",
        "closed",
        "forbidden",
        "other_browser",
        "crowded",
    ]
    named |= {f"{page}_{part}" for page in pages for part in ("heading", "text")}
    assert named == set(load_catalogues()["en"])


@pytest.mark.parametrize(
    ("asked", "accepts", "expected"),
    [
        (["de"], "fr", "de"),
        ([None, "xx", "ar"], "fr", "ar"),
        ([], "it, fr-CH;q=0.8, de;q=0.9", "de"),
        ([], "zh-Hans-CN", "zh"),
        ([], "de;q=0, es;q=nonsense, fr;q=0.1", "fr"),
        ([], "*", "en"),
        ([], "", "en"),
        (["../../etc"], "x" * 5000, "en"),
    ],
)
def test_the_language_of_a_page(asked: list[str | None], accepts: str, expected: str) -> None:
    assert chosen_language(["en", "de", "fr", "es", "ar", "zh"], asked, accepts, "en") == expected


def test_texts_say_their_own_language() -> None:
    local = Renderer(page_plan(protocol())).local
    assert local({"de": "Frage", "en": "question"}, "de").language == "de"
    assert local({"zh": "问题", "en": "question"}, "ar").direction == "ltr"
    assert local({"zh": "问题"}, "ar").language == "zh"
    assert local({}, "ar").text == ""
    assert [direction_of(code) for code in ("ar", "he-IL", "fa", "en", "zh")] == ["rtl", "rtl", "rtl", "ltr", "ltr"]
    assert Catalogue("ar", {"x": "{a} of {b}"})("x", a=1, b=2) == "1 of 2"


def test_the_chooser_the_address_and_the_browser_decide(tmp_path: Path) -> None:
    store = study(tmp_path, page_plan(protocol(practice=())))
    guest = RaterClient(store)
    assert '<html lang="de" dir="ltr">' in guest.get("/", **{"Accept-Language": "de-AT,en;q=0.5"}).page.text
    assert '<html lang="ar" dir="rtl">' in guest.get("/?lang=ar").page.text
    assert '<html lang="ar" dir="rtl">' in guest.get("/", **{"Accept-Language": "de"}).page.text, "the choice is kept"
    guest.begin()
    assert store.rater("r0001").language == "ar" and 'lang="ar" dir="rtl">السؤال سهل الفهم.' in guest.page.text
    assert 'tabindex="0" lang="en" dir="ltr">The mill' in guest.page.text, "the passage has its own language"
    guest.post(lang="fr", value_1=20, set_1=1)
    assert guest.path == "/task/a00001/1" and '<html lang="fr"' in guest.page.text
    assert store.ratings_of("a00001", "r0001") == {(1, "understandability"): 20}, "a choice of language loses nothing"
    guest.post("/task/a00001/1?lang=de", lang="es")
    assert '<html lang="es"' in guest.page.text, "the choice of the form comes before that of the address"


def test_a_right_to_left_passage_on_a_left_to_right_page(tmp_path: Path) -> None:
    plan = page_plan(protocol(practice=()), language="ar", context=RIGHT_TO_LEFT, answer="آنا ويفر", questions=["من؟"])
    guest = RaterClient(study(tmp_path, plan)).begin()
    assert '<html lang="en" dir="ltr">' in guest.page.text
    assert '<p class="question" lang="ar" dir="rtl">من؟</p>' in guest.page.text


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"public_url": "rate.example.org"}, "public_url=rate.example.org is no address"),
        ({"public_url": "https://example.org/rate"}, "has a path"),
        ({"public_url": "https://example.org:port"}, "is no address"),
        ({"completion_url": "javascript:alert(1)"}, "completion_url=javascript:alert(1) is no address"),
        ({"completion_url": "https://a.example/; script-src *"}, "is no address"),
        ({"completion_url": {"finished": "https://a.example"}}, "finished is not one of completed, no_consent"),
        ({"codes": "ABC"}, "codes=ABC is no mapping"),
        ({"codes": {"failed": "ABC"}}, "codes: failed is not one of completed, no_consent, screened_out, full"),
        ({"codes": {"completed": ""}}, "codes.completed has no value"),
        ({"redirect": True}, "redirect=true needs completion_url"),
        ({"panel_parameter": "a b"}, "panel_parameter=a b is no name"),
        ({"host": " "}, "host has no value"),
        ({"rate": 0.0}, "rate=0.0 must be above 0"),
        ({"invites": -1}, "invites=-1 must be at least 0"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, object], fault: str) -> None:
    with pytest.raises(InputError, match=re.escape(fault)):
        RateServeSettings(**given).check()  # type: ignore[arg-type]


def test_the_default_language_must_have_a_catalogue(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="language=it: there is en, ar, de"):
        RaterClient(study(tmp_path), settings_of(language="it"))
