"""Errors as problem JSON (RFC 9457, "Problem Details for HTTP APIs", 2023): status, title, one clear detail."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"
STATUSES = (400, 401, 404, 405, 413, 421, 422, 429, 503)
PLAIN_FAULTS = {
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "string_unicode": "a name of a field is not valid Unicode",
}


class ProblemError(Exception):
    """What is answered instead of a result: `detail` says what was wrong and what to do, in one sentence, and `errors`
    has for each fault of the request its place (`pointer`, RFC 6901) and what is wrong there (`detail`).
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers, self.errors = dict(headers or {}), [dict(error) for error in errors]

    def response(self) -> Response:
        return JSONResponse(self.to_dict(), status_code=self.status, headers=self.headers, media_type=MEDIA_TYPE)

    def to_dict(self) -> dict[str, Any]:
        title = HTTPStatus(self.status).phrase
        problem = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return problem | ({"errors": self.errors} if self.errors else {})


def wrong_field(name: str, detail: str) -> ProblemError:
    """The problem 422 of one field of a request; of a list, `name` is such as `answers/0`."""
    return ProblemError(422, f"{name}: {detail}", errors=[{"pointer": f"/{name}", "detail": detail}])


class ProblemFields(BaseModel):
    """The members of a problem, for the description of the interface."""

    type: str = "about:blank"
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["text: is missing"])
    errors: list[dict[str, str]] = Field(default=[], examples=[[{"pointer": "/text", "detail": "is missing"}]])


def problem_responses() -> dict[int | str, dict[str, Any]]:
    schema = {"schema": ProblemFields.model_json_schema()}
    return {status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}} for status in STATUSES}


def add_problem_handlers(application: FastAPI) -> None:
    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError | RequestValidationError)
        return (error if isinstance(error, ProblemError) else of_validation(error)).response()

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        allowed = (error.headers or {}).get("Allow", "another method")
        details = {
            400: "the body cannot be read as JSON",
            404: "there is no such address; GET /openapi.json lists them all",
            405: f"this address does not take {request.method}; use {allowed}",
        }
        detail = details.get(error.status_code, str(error.detail))
        return ProblemError(error.status_code, detail, headers=error.headers).response()

    application.add_exception_handler(ProblemError, problem)
    application.add_exception_handler(RequestValidationError, problem)
    application.add_exception_handler(HTTPException, http)


def of_validation(error: RequestValidationError) -> ProblemError:
    """A request that is no JSON (400), or whose fields are wrong (422). What was sent is not repeated."""
    found = error.errors()
    if any(fault["type"] == "json_invalid" for fault in found):
        return ProblemError(400, "the body is no valid JSON")
    if any(fault["type"] in ("model_attributes_type", "model_type") and len(fault["loc"]) == 1 for fault in found):
        return ProblemError(400, "send a JSON object, with Content-Type: application/json")
    if any(fault["type"] == "missing" and fault["loc"] == ("body",) for fault in found):
        return ProblemError(400, "the body is empty; send a JSON object, with Content-Type: application/json")
    errors = []
    for fault in found:  # a place such as ("body", "answers", 0, "text") is /answers/0/text
        parts = [str(part).replace("~", "~0").replace("/", "~1") for part in fault["loc"][1:]]
        pointer = "".join(f"/{part.encode(errors='replace').decode()[:80]}" for part in parts)
        text = PLAIN_FAULTS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
        errors.append({"pointer": pointer, "detail": text[:1].lower() + text[1:]})
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return ProblemError(422, f"{first['pointer'][1:] or 'body'}: {first['detail']}{more}", errors=errors[:20])
