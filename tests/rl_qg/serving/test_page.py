"""The routes of the page, as a program sees them: headers, escaping, forms of other sites, faults of the form."""

import csv
import io
import json
import re
from collections.abc import Iterator
from html import unescape
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rl_qg.asking.exports import ENDINGS as FORMATS, format_of
from rl_qg.asking.pairs import AnswerSpan, QAPair, QAPairs
from rl_qg.serving import page as module
from rl_qg.serving.page import marked_parts
from rl_qg.serving.problems import ProblemError
from tests.pages.hostile_texts import ENDINGS, IMAGE, SCRIPT
from tests.rl_qg.serving.page_server import KnownService, page_application

TestClient = pytest.importorskip("starlette.testclient", reason="needs fastapi and httpx").TestClient

TEXT = "The mill burned in 1204. Anna Weaver built it again."
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAIR = {
    "question": "When did it burn?",
    "answer": "1204",
    "answer_start": 19,
    "score": 0.9,
    "reason": "",
    "scores": {},
}


@pytest.fixture
def service() -> KnownService:
    return KnownService()


@pytest.fixture
def client(service: KnownService) -> Iterator[Any]:
    with TestClient(page_application(service)) as one:
        yield one


def fault(page: str) -> str:
    (line,) = re.findall(r'id="fault" role="alert">(.*?)</p>', page, re.DOTALL)
    return unescape(line)


def test_every_answer_has_the_policy(client: Any) -> None:
    for answer in (client.get("/"), client.post("/", data={"text": TEXT}), client.get("/page/page.js")):
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/").headers["cache-control"] == "no-store"


def test_pages_have_no_inline_script_or_style_and_name_no_other_host(client: Any) -> None:
    page = client.post("/", data={"text": TEXT}).text
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|//", page)
    assert re.findall(r"<script[^>]*>[^<]*", page) == ['<script type="module" src="page/page.js">']


def test_assets_are_files_of_the_page_alone(client: Any) -> None:
    folder = resources.files("rl_qg.serving").joinpath("page_files")
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for file in folder.iterdir():
        kind = kinds.get(file.name.rpartition(".")[2])
        answer = client.get(f"/page/{file.name}")
        assert answer.status_code == (200 if kind else 404), file.name
        if kind:
            assert answer.headers["content-type"] == f"{kind}; charset=utf-8" and answer.content == file.read_bytes()
    for name in ("page.html", "../page.py", "..%2Fpage.py", "__init__.py", ""):
        assert client.get(f"/page/{name}").status_code == 404


def test_the_form_is_answered_with_marks_and_questions(client: Any, service: KnownService) -> None:
    sent = {"text": TEXT, "number": "3", "way": "end2end", "language": "de", "min_score": "0.5"}
    page = client.post("/", data=sent).text
    asked = service.asked[-1]
    assert (asked.text, asked.number, asked.way) == (TEXT, 3, "end2end")
    assert (asked.language, asked.min_score, asked.answers) == ("de", 0.5, None)
    assert "What about 1204?" in page and "What about Anna Weaver?" in page
    marks = re.findall(
        r'<mark><span id="(.*?)"></span><a href="#(.*?)" aria-describedby="(.*?) ">(.*?)</a></mark>', page
    )
    assert marks == [
        ("answer-1", "question-1", "title-1", "1204"),
        ("answer-2", "question-2", "title-2", "Anna Weaver"),
    ]


def test_words_of_the_text_are_asked_about_where_they_first_stand(client: Any, service: KnownService) -> None:
    assert "What about mill?" in client.post("/", data={"text": TEXT, "about": " mill ", "number": "3"}).text
    assert service.asked[-1].answers == (AnswerSpan("mill", 4),) and service.asked[-1].number == 1


def test_lines_end_as_they_do_on_the_page(client: Any, service: KnownService) -> None:
    """Browsers send forms with CR LF."""
    client.post("/", data={"text": "The mill.\r\n\r\nIt burned in 1204."})
    assert service.asked[-1].text == "The mill.\n\nIt burned in 1204."


def test_nothing_to_ask_about_is_said(client: Any) -> None:
    page = client.post("/", data={"text": "no years here"}).text
    assert "0 questions. Nothing in the text can be asked about." in page


def test_hostile_text_and_questions_are_escaped(client: Any, service: KnownService) -> None:
    attack = SCRIPT + IMAGE + ENDINGS
    service.question = attack.replace("{", "(").replace("}", ")") + " {}?"
    page = client.post("/", data={"text": f"{attack} 1204", "about": f"{attack}"}).text
    assert "<script>window" not in page and "<img" not in page and page.count("</textarea>") == 2
    assert unescape(page).count("<script>window") >= 4


@pytest.mark.parametrize(
    ("sent", "field", "line"),
    [
        ({"text": ""}, "text", "Give a text: paste it, or open a text file."),
        ({"text": "\n "}, "text", "Give a text: paste it, or open a text file."),
        ({"text": "a\0b"}, "text", "Text: has a NUL character; remove it."),
        ({"about": "a\0b"}, "about", "Only about these words: has a NUL character; remove it."),
        ({"number": "0"}, "number", "Questions: a whole number from 1 to 50."),
        ({"number": "51"}, "number", "Questions: a whole number from 1 to 50."),
        ({"number": "many"}, "number", "Questions: a whole number from 1 to 50."),
        ({"min_score": "nan"}, "min_score", "Minimum score: a number from 0 to 1, or nothing."),
        ({"min_score": "-1"}, "min_score", "Minimum score: a number from 0 to 1, or nothing."),
        ({"way": "magic"}, "way", "This model has no such way: choose one of the list."),
        ({"language": "xx"}, "language", "Language: choose one of the list."),
        ({"about": "castle"}, "about", "These words do not stand in the text like this: copy them from it."),
    ],
)
def test_a_wrong_field_is_named_and_what_was_typed_stays(
    client: Any, service: KnownService, sent: dict[str, str], field: str, line: str
) -> None:
    answer = client.post("/", data={"text": TEXT, "about": "mill"} | sent)
    assert answer.status_code == 422 and fault(answer.text) == line and not service.asked
    (wrong,) = re.findall(r'<\w+ id="(\w+)"[^>]*aria-invalid', answer.text)
    assert wrong == field
    if "text" not in sent:
        assert TEXT in answer.text


def test_forms_of_another_charset_are_refused_by_one_line(client: Any, service: KnownService) -> None:
    """Python decodes 1 MB of punycode in ten minutes, and what `undefined` raises was a failure of the server."""
    body = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\n' + TEXT.encode() + b"\r\n--b--\r\n"
    for charset in ("punycode", "undefined", "unicode_escape"):
        headers = {"Content-Type": f"multipart/form-data; boundary=b; charset={charset}"}
        answer = client.post("/", content=body, headers=headers)
        assert (answer.status_code, fault(answer.text)) == (400, "The form cannot be read: send it as UTF-8.")
        assert client.post("/page/export", content=body, headers=headers).status_code == 400
    assert not service.asked


def test_problems_of_the_server_keep_their_status(client: Any, service: KnownService) -> None:
    service.problem = ProblemError(503, "the server is shutting down", headers={"Retry-After": "2"})
    assert str(service.problem) == "the server is shutting down"  # in a log
    answer = client.post("/", data={"text": TEXT})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert fault(answer.text) == "The server is shutting down. Try again in 2 seconds." and TEXT in answer.text
    assert client.post("/", data={"text": "a" * 50_001}).status_code == 413
    assert client.post("/", data={"text": TEXT, "way": "multitask"}).status_code == 422


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),  # a program, not a browser
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://testserver"}, 403),
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "http://testserver.example"}, 403),
        ({"Origin": "http://testserver:81"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),  # no address
    ],
)
@pytest.mark.parametrize("path", ["/", "/page/export"])
def test_forms_of_other_sites_are_refused(
    client: Any, service: KnownService, headers: dict[str, str], status: int, path: str
) -> None:
    sent = {"text": TEXT, "format": "jsonl", "pair": json.dumps(PAIR)}
    assert client.post(path, data=sent, headers=headers).status_code == status
    assert len(service.asked) == (status == 200 and path == "/")


@pytest.mark.parametrize("name_of_format", FORMATS.values())
def test_pairs_come_back_as_a_file(client: Any, name_of_format: str) -> None:
    other = PAIR | {"question": "Who built it again?", "answer": "Anna Weaver", "answer_start": 25}
    sent = {"text": TEXT, "format": name_of_format, "pair": [json.dumps(PAIR), json.dumps(other)]}
    answer = client.post("/page/export", data=sent)
    assert answer.status_code == 200
    name = answer.headers["content-disposition"].removeprefix('attachment; filename="').removesuffix('"')
    assert format_of(name) == name_of_format
    assert all(words in answer.text for words in ("When did it burn?", "1204", "Who built it again?", "Anna Weaver"))


def test_the_better_and_the_worse_question_of_an_answer_come_back_as_a_preference(client: Any) -> None:
    sent = {"text": TEXT, "format": "preferences", "pair": [json.dumps(PAIR | {"score": 1})]}
    assert client.post("/page/export", data=sent).status_code == 422
    sent["pair"].append(json.dumps(PAIR | {"question": "When, when did it burn?", "score": 0}))
    answer = client.post("/page/export", data=sent)
    assert answer.headers["content-disposition"] == 'attachment; filename="preferences.jsonl"'
    row = json.loads(answer.text)
    assert (row["chosen"], row["rejected"], row["margin"]) == (" When did it burn?", " When, when did it burn?", 1)
    assert row["prompt"] == f"Passage: {TEXT}\nAnswer: 1204\nQuestion:"


def test_exported_offsets_are_those_of_the_text(client: Any) -> None:
    sent = {"text": TEXT.replace(". ", ".\r\n"), "format": "jsonl", "pair": json.dumps(PAIR)}
    (row,) = map(json.loads, client.post("/page/export", data=sent).text.splitlines())
    assert row["context"] == TEXT.replace(". ", ".\n") and row["title"] == "The mill burned in 1204."
    assert row["context"][row["answer_start"] :].startswith("1204")
    assert (row["question"], row["score"], "logprob" in row) == ("When did it burn?", 0.9, False)


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        ({"pair": []}, "no question is kept: keep at least one"),
        ({"format": "docx"}, "format=docx is not one of"),
        ({"pair": "[1"}, "pair 1: Invalid JSON"),
        ({"pair": "[1]"}, "pair 1: Input should be an object"),
        ({"pair": json.dumps({**PAIR, "answer_start": 20})}, "pair 1: its answer is not in the text at character 20"),
        (
            {"pair": json.dumps({**PAIR, "answer_start": -33})},
            "pair 1: its answer is not in the text at character -33",
        ),
        (
            {"pair": json.dumps({**PAIR, "answer": "", "answer_start": 0})},
            "pair 1: its question or its answer is blank",
        ),
        ({"pair": json.dumps({**PAIR, "question": " "})}, "pair 1: its question or its answer is blank"),
        ({"pair": json.dumps({"question": "Who?"})}, "pair 1: answer: Field required"),
    ],
)
def test_other_exports_are_refused_with_a_line(client: Any, sent: dict[str, Any], detail: str) -> None:
    answer = client.post("/page/export", data={"text": TEXT, "format": "jsonl", "pair": json.dumps(PAIR)} | sent)
    assert answer.status_code == 422 and answer.json()["detail"].startswith(detail)


def test_a_pair_that_a_person_has_edited_is_exported_without_a_score(client: Any) -> None:
    edited = PAIR | {"score": None, "scores": {}}
    sent = {"text": TEXT, "format": "jsonl", "pair": json.dumps(edited)}
    assert client.post("/page/export", data=sent).json()["score"] is None
    [line] = csv.DictReader(io.StringIO(client.post("/page/export", data=sent | {"format": "csv"}).text))
    assert line["score"] == "" and line["answer"] == "1204"


def test_exports_that_repeat_a_long_text_too_often_are_refused(client: Any) -> None:
    text = TEXT + "a" * (50_001 - len(TEXT))
    sent = {"text": text, "format": "jsonl", "pair": json.dumps(PAIR)}
    assert client.post("/page/export", data=sent).status_code == 413
    sent = {"text": text[:-1], "format": "jsonl", "pair": [json.dumps(PAIR)] * 3}
    assert client.post("/page/export", data=sent).status_code == 200
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_EXPORTED", 100_000)
        refused = client.post("/page/export", data=sent)
    assert refused.status_code == 413 and "at most 2 at a time" in refused.json()["detail"]


def test_an_unexpected_error_is_a_line_in_the_page(client: Any, service: KnownService) -> None:
    service.problem = RuntimeError(f"secret {TEXT}")  # type: ignore[assignment]
    answer = client.post("/", data={"text": TEXT})
    assert answer.status_code == 500 and TEXT in answer.text and "secret" not in answer.text
    assert fault(answer.text) == "The model failed on this text: try another part of it."


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 29), st.integers(1, 9)), max_size=5))
def test_parts_are_the_text_and_cover_each_answer(text: str, spans: list[tuple[int, int]]) -> None:
    pairs = QAPairs(
        QAPair("?", text[start : start + length], start, 1.0, 0.0) for start, length in spans if start < len(text)
    )
    parts = marked_parts(text, pairs)
    assert "".join(part.text for part in parts) == text
    for number, pair in enumerate(pairs, 1):
        covered = [part for part in parts if number in part.numbers]
        assert "".join(part.text for part in covered) == pair.answer
        assert [number in part.first_of for part in covered] == [True, *[False] * (len(covered) - 1)]
