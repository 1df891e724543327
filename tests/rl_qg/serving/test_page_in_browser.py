"""The page of the server in headless Chromium, under its own security policy: what people do on it."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response

from rl_qg.data.splits import read_role
from rl_qg.serving.page import page_routes
from rl_qg.serving.problems import ProblemError
from rl_qg.serving.routes import asking_routes
from rl_qg.settings import DataSettings
from rl_qg.settings.web import ServeSettings
from tests.rl_qg.serving.conftest import Visit, select
from tests.rl_qg.serving.page_server import ANSWERS, TEXT, KnownService, page_application

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
pytestmark = pytest.mark.slow
Opened = Callable[..., Visit]

# An emoji of three code points (five UTF-16 units), a letter with two combining marks, letters beyond the first plane.
WIDE_LETTERS = "👩‍🚀 o\u0323\u0302 𝔐𝔦𝔩𝔩: in 1843 🔥 Ada Lovelace 🔥 wrote it, and 1843 was hot."


def test_questions_appear_as_they_are_made(visit: Opened, service: KnownService) -> None:
    service.held.clear()
    page = (shown := visit()).page
    page.fill("#text", TEXT)
    page.press("#text", "Control+Enter")
    page.wait_for_selector("#question-2")
    assert shown.texts(".asked") == ["What about 1204?", "What about Anna Weaver?"]
    assert page.inner_text("#status") == "2 questions so far …" and page.is_visible("#stop")
    service.held.set()
    shown.settled()
    assert shown.texts(".asked") == [f"What about {answer}?" for answer in ANSWERS]
    assert shown.texts(".value") == ["0.90", "0.60", "0.90", "0.60"]
    page.locator(".scores summary").first.click()
    assert shown.texts("#question-1 dt, #question-1 dd") == ["probability", "0.9", "round_trip", "1"]
    assert page.inner_text("#status").startswith("4 new questions. 4 of 5 pairs: ")
    assert [url.removeprefix(shown.address) for url in shown.requests if "/v1/" in url] == ["v1/pairs/stream"]


def test_answers_are_marked_in_place_and_focus_goes_there_and_back(visit: Opened) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    assert page.inner_text("#passage") == TEXT and shown.texts("mark") == ANSWERS
    page.focus("#question-2 .to-answer")
    page.keyboard.press("Enter")
    assert shown.focused() == "Anna Weaver" and shown.texts("mark.active") == ["Anna Weaver"]
    page.keyboard.press("Enter")
    assert shown.focused() == "question-2"
    page.keyboard.press("m")
    assert shown.focused() == "Anna Weaver"


def test_a_page_that_came_before_the_model_learns_its_name_and_its_warning(
    visit: Opened, service: KnownService
) -> None:
    service.name = ""
    page = (shown := visit()).page
    assert "Model: being loaded." in page.inner_text("header") and page.is_hidden("#warning")
    service.name, service.warning = "small", "small knows little"
    shown.ask(TEXT)
    assert "Model: small." in page.inner_text("header") and page.inner_text("#warning") == "small knows little"


def test_two_questions_of_overlapping_answers_share_their_marks(visit: Opened, service: KnownService) -> None:
    page = (shown := visit()).page
    shown.ask("Anna Weaver Smith lived in 1204.")
    select(page, "Weaver")
    page.click("#ask-selection")
    shown.settled()
    assert shown.texts("mark") == ["Anna ", "Weaver", " Smith", "1204"]
    both = page.locator("mark a", has_text="Weaver")
    both.press("Enter")
    assert shown.focused() == "question-1" and shown.texts("mark.active") == ["Anna ", "Weaver", " Smith"]
    both.press("Enter")
    assert shown.focused() == "question-3"


def test_places_are_those_of_the_server_for_letters_of_any_length(visit: Opened, service: KnownService) -> None:
    page = (shown := visit()).page
    shown.ask(WIDE_LETTERS)
    assert shown.texts("mark") == ["1843", "Ada Lovelace", "1843"] and page.inner_text("#passage") == WIDE_LETTERS
    for words in ("Lovelace", "1843 was", "𝔐𝔦𝔩𝔩", "o\u0323\u0302", "👩‍🚀"):
        assert unicodedata.is_normalized("NFC", words) == (words != "o\u0323\u0302")
        select(page, words)
        page.click("#ask-selection")
        shown.settled()
        (span,) = service.asked[-1].answers or ()
        assert (span.text, span.start) == (words, WIDE_LETTERS.index(words))
        assert shown.texts(".to-answer")[-1] == words
    page.click("#accept-open")
    for line in exported(shown, "jsonl").splitlines():
        pair = json.loads(line)
        assert WIDE_LETTERS[pair["answer_start"] :].startswith(pair["answer"])


def test_accept_edit_reject_and_undo_by_mouse(visit: Opened) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    page.click("#question-1 .accept")
    page.click("#question-2 .reject")
    assert page.inner_text("#tally") == "4 questions: 1 accepted, 1 rejected, 2 open."
    assert shown.texts("mark") == ["1204", "1340", "Thomas Miller"], "a rejected answer is not marked"
    page.click("#question-4 .edit")
    page.fill("#question-4 [name=question]", "Who paid?")
    page.fill("#question-4 [name=answer]", "Paul")
    page.click("#question-4 .editor .first")
    assert page.inner_text("#question-4 .editor .fault") == "“Paul” does not stand in the text like this."
    page.fill("#question-4 [name=answer]", "Miller")
    page.click("#question-4 .editor .first")
    assert shown.texts("#question-4 .asked, #question-4 .to-answer, #question-4 .chip") == [
        *("Who paid?", "Miller", "edited, accepted")
    ]
    assert shown.texts("mark")[-1] == "Miller"
    for tally in ("1 accepted, 1 rejected, 2", "1 accepted, 0 rejected, 3", "0 accepted, 0 rejected, 4"):
        page.click("#undo")
        assert page.inner_text("#tally") == f"4 questions: {tally} open."
    assert shown.texts(".asked")[3] == "What about Thomas Miller?" and shown.texts("mark") == ANSWERS
    page.click("#undo")
    assert shown.texts(".asked") == []
    assert page.is_hidden("#undo") and shown.focused() == "text"
    page.focus("#clear")
    page.keyboard.press("Control+z")
    assert page.inner_text("#status") == "There is nothing to undo."


def test_asking_again_keeps_what_was_decided(visit: Opened) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    page.click("#question-2 .accept")
    page.click("#ask-all")
    shown.settled()
    assert shown.texts(".to-answer") == ["Anna Weaver", "1204", "1340", "Thomas Miller"]
    assert page.inner_text("#tally").startswith("4 questions: 1 accepted")


def test_another_text_replaces_the_questions_and_undo_brings_them_back(visit: Opened) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    page.click("#question-2 .accept")
    shown.ask("In 1702 it fell.")
    assert shown.texts(".to-answer") == shown.texts("mark") == ["1702"]
    assert page.inner_text("#status") == "1 new question. Undo brings back those of the earlier text."
    page.click("#undo")
    assert shown.texts(".to-answer") == shown.texts("mark") == ANSWERS
    assert page.inner_text("#tally").startswith("4 questions: 1 accepted")


@pytest.mark.parametrize("button", ["#undo", "#clear"])
def test_a_request_that_is_undone_or_cleared_brings_nothing_more(
    visit: Opened, service: KnownService, button: str
) -> None:
    service.held.clear()
    page = (shown := visit()).page
    page.fill("#text", TEXT)
    page.click("#ask-all")
    page.wait_for_selector("#question-2")
    page.click(button)
    shown.settled()
    service.held.set()
    assert page.inner_text("#status").startswith(
        {"#undo": "Undone: the last request", "#clear": "All is cleared"}[button]
    )
    assert shown.texts(".asked") == [] and page.input_value("#text") == ("" if button == "#clear" else TEXT)
    page.fill("#text", TEXT)
    page.click("#ask-all")
    page.wait_for_selector("mark >> nth=3")
    assert shown.texts(".to-answer") == ANSWERS


def exported(shown: Visit, kind: str) -> str:
    shown.page.select_option("#format", kind)
    with shown.page.expect_download() as download:
        shown.page.click("#export")
    assert download.value.suggested_filename.startswith("preferences." if kind == "preferences" else "questions.")
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_accepted_questions_are_exported_in_every_format(visit: Opened) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    page.click("#export")
    assert page.inner_text("#export-fault") == "Accept a question first."
    page.click("#question-3 .accept")
    page.click("#question-4 .accept")
    kinds = page.locator("#format option").evaluate_all("options => options.map(option => option.value)")
    assert {"jsonl", "csv", "json", "anki", "gift", "preferences"} <= set(kinds)
    for kind in (kind for kind in kinds if kind != "preferences"):
        content = exported(shown, kind)
        assert "about 1340?" in content and "about Thomas Miller?" in content and "about 1204?" not in content
        assert page.inner_text("#export-fault") == ""


def test_what_a_person_decides_is_exported_as_preferences_and_as_training_data(visit: Opened, tmp_path: Path) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    page.click("#question-1 .accept")  # nothing to compare it with
    page.select_option("#format", "preferences")
    page.click("#export")
    page.wait_for_selector("#export-fault:has-text('no answer has a better and a worse question')")
    for question in ("Who held it?", "Who built it?"):
        page.click("#question-2 .edit")
        page.fill("#question-2 [name=question]", question)
        page.click("#question-2 .editor .first")
    (preference,) = map(json.loads, exported(shown, "preferences").splitlines())
    assert preference.pop("prompt").startswith(f"Passage: {TEXT}\nAnswer: Anna Weaver\n")
    assert preference == {"chosen": " Who built it?", "rejected": " What about Anna Weaver?", "margin": 1.0}
    page.click("#question-2 .reject")
    page.click("#export")
    page.wait_for_selector("#export-fault:has-text('no answer has a better and a worse question')")
    page.click("#question-2 .accept")
    kept = tmp_path / "kept.jsonl"
    kept.write_text(exported(shown, "jsonl"), encoding="utf-8")
    examples = read_role(DataSettings(train=str(kept)), "train").examples
    assert [one.question for one in examples] == ["What about 1204?", "Who built it?"]
    assert all(TEXT.startswith(answer.text, answer.start) for one in examples for answer in one.answers)


def explained(visit: Opened, service: KnownService, question: str, text: str) -> Any:
    """The page of a text, with the words that speak for its first question."""
    service.question = question
    (shown := visit()).ask(text)
    shown.page.click("#question-1 .why")
    shown.page.wait_for_selector("#question-1 .heat")
    return shown


def test_the_words_that_speak_for_a_question_are_shown_on_demand(visit: Opened, service: KnownService) -> None:
    page = (shown := explained(visit, service, "When was the 𝔐𝔦𝔩𝔩 hot, {}?", WIDE_LETTERS)).page
    assert page.inner_text("#question-1 .heat .passage") == WIDE_LETTERS
    assert set(shown.texts("#question-1 .heat .passage span")) == {"𝔐𝔦𝔩𝔩", "hot", "1843"}
    assert page.inner_text("#question-1 .heat-words").startswith("What counts most for shared words: 𝔐𝔦𝔩𝔩 (")
    assert page.get_attribute("#question-1 .why", "aria-expanded") == "true"
    page.click("#question-1 .why")
    assert page.is_hidden("#question-1 .heat")


def test_where_no_word_speaks_for_a_question_that_is_said(visit: Opened, service: KnownService) -> None:
    page = explained(visit, service, "Xyzzy?", TEXT).page
    said = "No word of the text speaks for this question by shared words"
    assert page.inner_text("#question-1 .heat-words").startswith(f"{said}: it may not be about this text")
    assert page.inner_text("#status").startswith(said)


def test_a_server_that_does_not_explain_has_no_button_for_it(visit: Opened, service: KnownService) -> None:
    told, older = visit(page_application(service, explain=False)), visit(application_that_cannot_explain(service))
    for shown in (told, older):
        shown.ask(TEXT)
    assert told.page.locator(".why:visible").count() == 0
    older.page.click("#question-1 .why")
    older.page.wait_for_selector("#question-1 .why", state="hidden")
    assert older.page.locator(".why:visible").count() == 0
    assert older.page.inner_text("#status") == "This server does not explain questions."


def application_that_cannot_explain(service: Any) -> FastAPI:
    """Its page believes that it can."""
    application = FastAPI()
    application.include_router(asking_routes(service, ServeSettings(explain=False)))
    application.include_router(page_routes(service, ServeSettings()))
    return application


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (ProblemError(413, "text: has 9 characters; divide the text"), "Text: has 9 characters; divide the text."),
        (ProblemError(422, "way: this model cannot end2end"), "Way: this model cannot end2end."),
        (ProblemError(429, "too often", headers={"Retry-After": "7"}), "Too often. Try again in 7 seconds."),
        (ProblemError(503, "too many wait", headers={"Retry-After": "1"}), "Too many wait. Try again in 1 second."),
        (ProblemError(500, "the model failed"), "The model failed."),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
@pytest.mark.parametrize("passages", [0, 1], ids=["at once", "after a passage"])
def test_a_problem_is_one_line_and_costs_no_work(
    visit: Opened, service: KnownService, problem: ProblemError, line: str, passages: int
) -> None:
    service.problem, service.passages_before = problem, passages
    page = (shown := visit()).page
    shown.ask(TEXT)
    assert page.inner_text("#fault") == (line if not passages else line.split(" Try again")[0])
    assert shown.texts(".to-answer") == ANSWERS[: 2 * passages] and page.input_value("#text") == TEXT
    service.problem = None
    page.click("#ask-all")
    page.wait_for_selector("mark >> nth=3")
    assert shown.texts(".to-answer") == ANSWERS and page.inner_text("#fault") == ""


def test_a_server_that_is_gone_costs_no_work(visit: Opened) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    page.click("#question-1 .accept")
    shown.context.set_offline(True)
    page.click("#ask-all")
    page.wait_for_selector("#fault:has-text('The server cannot be reached')")
    assert page.inner_text("#tally").startswith("4 questions: 1 accepted")
    page.click("#export")
    page.wait_for_selector("#export-fault:has-text('cannot be reached')")


def test_a_key_is_asked_for_and_never_stored(visit: Opened, service: KnownService) -> None:
    application, given = page_application(service), []

    @application.middleware("http")
    async def with_key(request: Request, go_on: Any) -> Response:
        given.append(request.headers.get("authorization"))
        if request.method == "POST" and given[-1] != "Bearer secret-of-sixteen":
            return ProblemError(401, "this server asks for a key").response()
        return await go_on(request)

    page = (shown := visit(application)).page
    assert page.is_hidden("#key-field")
    shown.ask(TEXT)
    assert page.inner_text("#fault") == "This server asks for a key." and shown.focused() == "api_key"
    page.fill("#api_key", "secret-of-sixteen")
    page.press("#api_key", "Enter")
    page.wait_for_selector("#question-4")
    shown.settled()
    page.click("#accept-open")
    assert len(exported(shown, "jsonl").splitlines()) == 4
    stored = page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])")
    assert "1204" in stored and "secret" not in stored
    page.reload()
    assert page.input_value("#api_key") == ""


def test_work_outlives_a_reload_until_it_is_cleared(visit: Opened) -> None:
    page = (shown := visit()).page
    page.select_option("#language", "fr")
    shown.ask(TEXT)
    page.click("#question-1 .accept")
    page.reload()
    assert page.input_value("#text") == TEXT and page.input_value("#language") == "fr"
    assert shown.texts(".to-answer") == shown.texts("mark") == ANSWERS
    assert page.inner_text("#tally").startswith("4 questions: 1 accepted")
    page.click("#clear")
    assert page.evaluate("sessionStorage.length") == 0 and page.input_value("#text") == ""
    assert page.locator(".asked").count() == 0
    page.reload()
    assert page.input_value("#text") == "" and page.locator(".asked").count() == 0


def test_clearing_can_be_undone(visit: Opened) -> None:
    page = (shown := visit()).page
    shown.ask(TEXT)
    page.click("#clear")
    assert shown.focused() == "text"
    page.focus("#clear")
    page.keyboard.press("Control+z")
    assert page.input_value("#text") == TEXT and shown.texts("mark") == ANSWERS


def test_a_request_can_be_stopped(visit: Opened, service: KnownService) -> None:
    service.held.clear()
    page = (shown := visit()).page
    page.fill("#text", TEXT)
    page.click("#ask-all")
    page.wait_for_selector("#question-2")
    page.click("#stop")
    shown.settled()
    assert page.inner_text("#status") == "Stopped. 2 new questions." and shown.texts(".to-answer") == ANSWERS[:2]
    assert shown.focused() == "ask-all" and page.inner_text("#fault") == ""
    service.held.set()
