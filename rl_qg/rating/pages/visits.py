"""One request of a rater: who it is, in which language, and what is answered when something is wrong."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rl_qg.rating.pages.rendering import Renderer, Statement
from rl_qg.rating.pages.security import Cookies, same
from rl_qg.rating.study.raters import SESSION_S
from rl_qg.rating.study.records import Closed, NotAllowed, NotYours, Rater, Session, StoreFailed
from rl_qg.rating.study.store import Store
from rl_qg.runtime.errors import InputError
from rl_qg.settings.web import RateServeSettings
from rl_qg.web.requests import is_of_own_page

LANGUAGE_S = 365 * 86_400
MOST_FIELDS = 200
AUTOSAVE = "autosave"  # the value of `action` that a script sends: it gets a status, not a page


class FormRefused(Exception):
    """A form that no page of ours has sent: 403, without saying more."""


class NoSession(Exception):
    """Nobody is known by this browser."""


@dataclass
class Visit:
    """One request; `session` and `rater` are None for somebody unknown."""

    request: Request
    language: str
    form: Mapping[str, str] = field(default_factory=dict)
    session: Session | None = None
    rater: Rater | None = None

    @property
    def csrf(self) -> str:
        """What forms of the session send back."""
        return self.session.csrf if self.session else ""

    @property
    def known(self) -> Rater:
        """The rater.

        Raises:
            NoSession: there is none.
        """
        if self.rater is None or self.rater.forgotten:
            raise NoSession
        return self.rater


Handler = Callable[[Visit], Response]


class Endpoints:
    """Makes visits of requests, calls handlers in threads, and answers what they raise."""

    def __init__(self, store: Store, settings: RateServeSettings, renderer: Renderer) -> None:
        self.store, self.settings, self.renderer = store, settings, renderer
        self.cookies = Cookies(settings)

    def of(self, handler: Handler, *, checks_form: bool = True) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a handler, for Starlette. With `checks_form` a form must send back the secret of its
        session; else its origin alone is checked.
        """

        async def answer(request: Request) -> Response:
            form = await read_form(request) if request.method == "POST" else {}
            return await run_in_threadpool(self._answer, handler, request, form, checks_form)

        return answer

    def language_of(self, request: Request, form: Mapping[str, str] | None = None, rater: Rater | None = None) -> str:
        """The language of a page: of the form, the address, the cookie, the consent, else what the browser asks."""
        asked = [(form or {}).get("lang"), request.query_params.get("lang")]
        asked += [request.cookies.get(self.cookies.language), rater.language if rater else None]
        return self.renderer.language(asked, request.headers.get("accept-language", ""))

    def begin_session(self, rater: str, to: str = "/next") -> Response:
        response = redirect(to)
        self.cookies.set(response, self.cookies.session, self.store.new_session(rater), int(SESSION_S))
        return response

    def _answer(self, handler: Handler, request: Request, form: Mapping[str, str], checks_form: bool) -> Response:
        visit = Visit(request, self.language_of(request, form), form)
        try:
            response = self._handled(handler, visit, checks_form)
        except Exception as error:
            response = self._failed(visit, error)
        for chosen in (form.get("lang"), request.query_params.get("lang")):
            if chosen in self.renderer.catalogues:
                self.cookies.set(response, self.cookies.language, str(chosen), LANGUAGE_S)
        return response

    def _handled(self, handler: Handler, visit: Visit, checks_form: bool) -> Response:
        request, is_form = visit.request, visit.request.method == "POST"
        if is_form and not is_of_own_page(request.headers):
            raise FormRefused
        if token := request.cookies.get(self.cookies.session):
            visit.session = self.store.session(token)
        if visit.session:
            visit.rater = self.store.rater(visit.session.rater)
            visit.language = self.language_of(request, visit.form, visit.rater)
        if is_form and checks_form:
            if visit.session is None:
                raise NoSession
            if not same(visit.form.get("csrf", ""), visit.session.csrf):
                raise FormRefused
        return handler(visit)

    def _failed(self, visit: Visit, error: Exception) -> Response:
        """The page, or for a script the status, of an error."""
        answers: dict[type[Exception], tuple[str, int, str]] = {
            FormRefused: ("forbidden", 403, ""),
            NoSession: ("session", 401, ""),
            NotYours: ("missing_page", 404, "/next"),
            NotAllowed: ("missing_page", 404, "/next"),
            Closed: ("closed", 409, "/next"),
            InputError: ("forbidden", 400, ""),
        }
        is_script = visit.form.get("action") == AUTOSAVE
        if isinstance(error, StoreFailed):
            return Response(status_code=503) if is_script else self._unsaved(visit)
        if type(error) not in answers:
            raise error
        name, status, link = answers[type(error)]
        if is_script:
            return Response(status_code=status)
        return self.renderer.message(name, visit.language, status, link=link if visit.session else "")

    def _unsaved(self, visit: Visit) -> Response:
        """The database fails: a page that keeps what was typed, and sends it again by a button."""
        if visit.request.method != "POST":
            return self.renderer.message("failure", visit.language, 503)
        again = SimpleNamespace(path=visit.request.url.path, fields=[*visit.form.items()])
        response = self.renderer.message("unsaved", visit.language, 503, again=again)
        response.headers["Retry-After"] = "10"
        return response


def redirect(to: str) -> Response:
    return RedirectResponse(to, 303)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; of several of one name the last. What cannot be read, and files, are left out."""
    try:
        async with request.form(max_files=0, max_fields=MOST_FIELDS, max_part_size=64 * 1024) as form:
            return {name: value for name, value in form.multi_items() if isinstance(value, str)}
    except HTTPException:
        return {}


def values_of(form: Mapping[str, str], statements: Sequence[Statement]) -> dict[int, int]:
    """The values that a form has, by number of the statement. A slider counts when its box says that it was set."""
    return {
        one.number: value
        for one in statements
        if (value := _number(form, one)) is not None and (not one.is_slider or form.get(f"set-{one.number}"))
    }


def moved_of(form: Mapping[str, str], statements: Sequence[Statement]) -> dict[int, int]:
    """Where sliders were left that were moved and not set, by number of the statement (a browser without script)."""
    return {
        one.number: value
        for one in statements
        if one.is_slider and not form.get(f"set-{one.number}")
        if (value := _number(form, one)) is not None and one.lowest <= value <= one.highest and value != one.stands_at
    }


def _number(form: Mapping[str, str], one: Statement) -> int | None:
    given = form.get(f"value-{one.number}", "")
    if given and (not given.isascii() or not given.isdecimal() or len(given) > 6):
        raise InputError(f"statement {one.number}: {given[:20]!r} is no whole number")
    return int(given) if given else None
