"""The page of the server: a form, a script that asks the interface, and the same form for browsers without script."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from rl_qg.asking.documents import line_feeds
from rl_qg.asking.exports import ENDINGS, PREFERENCES, Row, export, json_lines, preferences, row_of
from rl_qg.asking.pairs import AskRequest, QAPair, QAPairs
from rl_qg.pages.results import page_environment
from rl_qg.runtime.files import packaged_yaml
from rl_qg.serving.gate import MOST_FIELDS
from rl_qg.serving.messages import PairOut, PairsRequest
from rl_qg.serving.problems import ProblemError
from rl_qg.serving.requests import ClientLeftError, ask_request, check_text, until_client_leaves
from rl_qg.serving.service import AskingService
from rl_qg.settings import ExportSettings
from rl_qg.settings.web import ServeSettings
from rl_qg.web.requests import described, form_of, is_of_own_page, page_files

log = logging.getLogger(__name__)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send `Origin: null` with a form
}
_TEXTS: Mapping[str, Mapping[str, str]] = packaged_yaml(__file__, "page.yaml")
LANGUAGES, FORMAT_NAMES = _TEXTS["languages"], _TEXTS["formats"]
TEXT_ENDINGS = (".txt", ".text", ".md", ".markdown")
MOST_EXPORTED = 50_000_000  # characters of a text, times its pairs: every row has the text


class FormFault(Exception):
    """A field of the form that cannot be used, and one line for people."""

    def __init__(self, field: str, line: str) -> None:
        super().__init__(line)
        self.field = field


@dataclass(frozen=True)
class FormValues:
    """The fields of the form, as they were typed."""

    text: str = ""
    number: str = "5"
    way: str = ""
    language: str = "en"
    min_score: str = ""
    about: str = ""


@dataclass(frozen=True)
class MarkedPart:
    """A part of a text: `numbers` (from 1) of the pairs whose answers cover it; for those of `first_of` the first."""

    text: str
    numbers: tuple[int, ...]
    first_of: tuple[int, ...]


def page_routes(service: AskingService, settings: ServeSettings, *, asks_key: bool = False) -> APIRouter:
    """The routes of the page: `GET /`, `POST /` (the form without script), `/page/…` (assets and exports).

    API keys are checked by `rl_qg.serving.gate`: with `asks_key`, a form whose request has no `state.key` is answered
    with 401. The script sends the key that the page asks for in a header, and the form without script as a field.
    """
    page = _Page(service, settings, asks_key)
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/", page.show, methods=["GET", "HEAD"])
    router.add_api_route("/", page.answer_form, methods=["POST"])
    router.add_api_route("/page/export", page.export, methods=["POST"])
    router.add_api_route("/page/{name}", page.asset, methods=["GET", "HEAD"])
    return router


def marked_parts(text: str, pairs: QAPairs) -> list[MarkedPart]:
    spans = {number: (pair.answer_start, pair.answer_end) for number, pair in enumerate(pairs, 1) if pair.answer}
    cuts = sorted({0, len(text), *(end for span in spans.values() for end in span)})
    parts = []
    for start, end in pairwise(cuts):
        covering = tuple(number for number, span in spans.items() if span[0] <= start and end <= span[1])
        parts.append(MarkedPart(text[start:end], covering, tuple(n for n in covering if spans[n][0] == start)))
    return parts


class SentPair(PairOut):
    """A pair that comes back for an export."""

    score: float | None  # type: ignore[assignment]  # None: a person has edited it


class _Page:
    def __init__(self, service: AskingService, settings: ServeSettings, asks_key: bool) -> None:
        self._service, self._settings, self._asks_key = service, settings, asks_key
        environment = page_environment("rl_qg.serving", "page_files/page.html", "page_files/question.html")
        self._template = environment.get_template("page_files/page.html")
        self._assets = page_files("rl_qg.serving")
        self._faults = {field: line.format(most=settings.max_questions) for field, line in _TEXTS["faults"].items()}

    async def show(self) -> Response:
        return self._rendered(FormValues())

    async def asset(self, name: str) -> Response:
        if name not in self._assets:
            raise ProblemError(404, f"the page has no file {name[:80]}")
        content, media_type = self._assets[name]
        return Response(content, media_type=media_type, headers=HEADERS | {"Cache-Control": "no-cache"})

    async def answer_form(self, request: Request) -> Response:
        """Answer the form with a whole page. What is wrong stands in it, and what was typed."""
        _check_origin(request)
        values = FormValues()
        try:
            form = await self._form(request)
            typed = {field.name: form[field.name] for field in fields(FormValues) if field.name in form}
            values = FormValues(**{name: line_feeds(one) for name, one in typed.items() if isinstance(one, str)})
            self._check_key(request)
            values = await self._with_file(form, values)
            asked = self._asked(values)
            found = await until_client_leaves(request, self._service.pairs(asked))
        except FormFault as fault:
            status = 401 if fault.field == "key" else 422
            return self._rendered(values, status, fault=str(fault), fault_field=fault.field)
        except ProblemError as problem:
            wait = problem.headers.get("Retry-After", "")
            line = _sentence(problem.detail) + (f" Try again in {wait} seconds." if wait.isdigit() else "")
            return self._rendered(values, problem.status, headers=problem.headers, fault=line)
        except ClientLeftError:
            raise
        except Exception as error:
            log.error("form", extra={"fields": {"error": described(error, message=self._settings.log_texts)}})
            return self._rendered(values, 500, fault="The model failed on this text: try another part of it.")
        told = f"{len(found)} question{'' if len(found) == 1 else 's'}."
        # Each pair also as it is on the wire, for exports and for the script.
        rows = [(PairOut.model_validate(pair).model_dump_json(), pair) for pair in found]
        result = {"rows": rows, "parts": marked_parts(asked.text, found)}
        result |= {"text": asked.text, "language": asked.language}
        return self._rendered(
            values, status=f"{told} {_sentence(found.reason)}" if found.reason else told, result=result
        )

    async def export(self, request: Request) -> Response:
        _check_origin(request)
        try:
            self._check_key(request)
        except FormFault as fault:
            raise ProblemError(401, str(fault)) from None
        form = await self._form(request)
        text, file_format = line_feeds(str(form.get("text", ""))), str(form.get("format", ""))
        check_text(text, self._settings)
        sent = [str(pair) for pair in form.getlist("pair")]
        if not sent:
            raise ProblemError(422, "no question is kept: keep at least one")
        if len(text) * len(sent) > MOST_EXPORTED:
            most = MOST_EXPORTED // len(text)
            raise ProblemError(413, f"{len(sent)} questions about so long a text; export at most {most} at a time")
        if file_format not in FORMAT_NAMES:
            raise ProblemError(422, f"format={file_format[:40]} is not one of {', '.join(FORMAT_NAMES)}")
        title = text.strip().partition("\n")[0][:60]

        def exported() -> str:
            rows = [_row(text, title, wire, number) for number, wire in enumerate(sent, 1)]
            if file_format != PREFERENCES:
                return export(rows, file_format)
            if found := preferences([row | {"score": row["score"] or 0.0} for row in rows], ExportSettings().prompt):
                return json_lines(found)
            raise ProblemError(422, "no answer has a better and a worse question: edit one, or reject one of several")

        endings = (f"questions{ending}" for ending, named in ENDINGS.items() if named == file_format)
        attachment = {"Content-Disposition": f'attachment; filename="{next(endings, "preferences.jsonl")}"'}
        return PlainTextResponse(await run_in_threadpool(exported), headers=HEADERS | attachment)

    def _check_key(self, request: Request) -> None:
        if self._asks_key and not getattr(request.state, "key", None):
            raise FormFault("key", self._faults["key"])

    async def _form(self, request: Request) -> FormData:
        try:
            return await form_of(request, 1, MOST_FIELDS, self._settings.max_body_bytes)
        except HTTPException as error:
            raise ProblemError(error.status_code, f"the form cannot be read: {error.detail}") from None

    async def _with_file(self, form: FormData, values: FormValues) -> FormValues:
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            return values
        if not file.filename.lower().endswith(TEXT_ENDINGS):
            kinds = "only .txt and .md files can be opened here"
            other = "save it as plain text; rl-qg ask reads .html and .pdf files"
            raise FormFault("file", f"{file.filename}: {kinds}; {other}.")
        try:
            text = (await file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise FormFault("file", f"{file.filename} is not text in UTF-8: save it as UTF-8.") from None
        return replace(values, text=line_feeds(text))

    def _asked(self, values: FormValues) -> AskRequest:
        about = values.about.strip()
        if values.language not in LANGUAGES:
            raise FormFault("language", self._faults["language"])
        try:
            body = PairsRequest.model_validate(
                {
                    "text": values.text,
                    "number": _number(int, values.number),
                    "language": values.language,
                    "way": values.way or None,
                    "min_score": _number(float, values.min_score) if values.min_score.strip() else None,
                    "answers": [{"text": about}] if about else None,
                }
            )
        except ValidationError as error:
            first = error.errors()[0]
            field = str(first["loc"][0])
            field = "about" if field == "answers" else field
            if "NUL" in first["msg"]:
                named = "Only about these words" if field == "about" else field.capitalize()
                raise FormFault(field, f"{named}: {first['msg'].removeprefix('Value error, ')}.") from None
            raise FormFault(field, self._faults[field]) from None
        if body.number > self._settings.max_questions:
            raise FormFault("number", self._faults["number"])
        if about not in values.text:
            raise FormFault("about", self._faults["about"])
        return ask_request(body, self._service, self._settings)

    def _rendered(
        self, values: FormValues, status_code: int = 200, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Response:
        """The page with what was typed; `more`: `fault` and `fault_field`, or `status` and `result`."""
        page = {
            "model": self._service.name or "being loaded",
            "warning": self._service.warning,
            "ways": {way: _TEXTS["ways"].get(way, way) for way in self._service.ways},
            "languages": LANGUAGES,
            "formats": FORMAT_NAMES,
            "most_characters": self._settings.max_characters,
            "most_questions": self._settings.max_questions,
            "explains": self._settings.explain,
            "asks_key": self._asks_key,
            "faults": self._faults,
            **{"typed": values, "fault": "", "fault_field": "", "status": "", "result": None, **more},
        }
        fixed = HEADERS | {"Cache-Control": "no-store"}
        return HTMLResponse(self._template.render(page=page), status_code, headers={**(headers or {}), **fixed})


def _check_origin(request: Request) -> None:
    """Refuse a form that another site's page has sent (cross-site request forgery)."""
    if not is_of_own_page(request.headers):
        raise ProblemError(403, "this form was sent by a page of another site; open the page of this server")


def _number(kind: type[int] | type[float], typed: str) -> Any:
    """A typed number; what is none stays a text, which the check of the request names."""
    try:
        return kind(typed)
    except ValueError:
        return typed


def _sentence(line: str) -> str:
    return line[:1].upper() + line[1:] + ("" if line.endswith((".", "!", "?")) else ".")


def _row(text: str, title: str, wire: str, number: int) -> Row:
    """A pair that the page has sent back, as a row; an edited one has no score, for the model has not seen it."""
    try:
        sent = SentPair.model_validate_json(wire)
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")  # what is no JSON has no place
        raise ProblemError(422, f"pair {number}: {fault}") from None
    if not sent.question.strip() or not sent.answer.strip():
        raise ProblemError(422, f"pair {number}: its question or its answer is blank")
    if sent.answer_start < 0 or not text.startswith(sent.answer, sent.answer_start):
        raise ProblemError(422, f"pair {number}: its answer is not in the text at character {sent.answer_start}")
    pair = QAPair(**sent.model_dump() | {"score": math.nan}, logprob=math.nan)
    row = row_of(pair, identity=str(number), title=title, context=text) | {"score": sent.score}
    del row["logprob"]  # the page does not know it
    return row
