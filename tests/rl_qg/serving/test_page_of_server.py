"""The page through the whole server: its gate, its queue, and the packaged model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_qg import QuestionGenerator
from rl_qg.asking.models import QUESTIONS
from rl_qg.data.corpus import synthetic_examples
from rl_qg.serving.application import create_app
from rl_qg.serving.service import AskingService
from rl_qg.settings.web import ServeSettings
from rl_qg.web.requests import APIKeys
from tests.rl_qg.serving.conftest import Visit
from tests.rl_qg.serving.fake_model import FakeModel

pytestmark = pytest.mark.slow
Opened = Callable[..., Visit]


def ready(service: AskingService) -> AskingService:
    service.start()
    assert service.wait(120)
    return service


def test_the_packaged_model_asks_about_a_passage(visit: Opened) -> None:
    passages = list(dict.fromkeys(example.context for example in synthetic_examples(2, seed=5, prefix="p")))
    text = "\n\n".join(passages)
    settings = ServeSettings(passage_characters=max(map(len, passages)))
    service = ready(AskingService(lambda: QuestionGenerator.from_pretrained(QUESTIONS), settings))
    page = (shown := visit(create_app(service))).page
    assert service.name in page.inner_text("header")
    shown.ask(text, 4)
    asked, answers = shown.texts(".asked"), shown.texts(".to-answer")
    assert len(asked) == 4 and all(question.endswith("?") for question in asked), page.inner_text("#fault")
    assert set(shown.texts("mark")) == set(answers) and all(answer in text for answer in answers)
    page.click("#question-1 .why")
    page.wait_for_selector("#question-1 .heat")
    assert page.inner_text("#question-1 .heat .passage") == text
    page.click("#accept-open")
    with page.expect_download() as download:
        page.click("#export")
    rows = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    assert [row["question"] for row in rows] == asked
    assert all(row["context"][row["answer_start"] :].startswith(row["answer"]) for row in rows)
    plain = visit(create_app(service), java_script_enabled=False)
    plain.page.fill("#text", text)
    plain.page.fill("#number", "4")
    plain.page.click("#ask-all")
    # Without a stream the pairs are chosen over the whole text, so they may be others.
    whole = plain.texts(".asked")
    assert len(whole) == 4 and all(question.endswith("?") for question in whole) and set(whole) & set(asked)


def test_keys_and_limits_of_the_server(visit: Opened) -> None:
    settings = ServeSettings(max_wait_ms=0.0, max_characters=60, max_questions=3)
    application = create_app(ready(AskingService(FakeModel, settings)), keys=APIKeys(["a-key-of-this-server"]))
    page = (shown := visit(application)).page
    shown.ask("In London in 1843.", 2)
    assert "asks for a key" in page.inner_text("#fault") and shown.focused() == "api_key"
    page.fill("#api_key", "a-key-of-this-server")
    page.press("#api_key", "Enter")
    page.wait_for_selector("#question-2")
    shown.settled()
    page.click("#question-1 .accept")
    shown.ask("In London. " * 6, 2)
    assert page.inner_text("#fault").startswith("Text: has 66 characters; this server takes at most 60")
    assert page.inner_text("#tally").startswith("2 questions: 1 accepted"), "a failed request costs nothing"
    page.fill("#text", "In London in 1843.")
    page.fill("#number", "4")
    page.click("#ask-all")
    assert page.inner_text("#fault") == "Questions: a whole number from 1 to 3."
