"""One request of a rater: who it is, in which language, and what is answered when something is wrong."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rl_qg.rating.pages.rendering import Catalogue, Renderer, chosen_language
from rl_qg.rating.pages.security import LONGEST_BODY, AdminSessions, Cookies, equal_secrets
from rl_qg.rating.protocol import Criterion, Protocol
from rl_qg.rating.study import database
from rl_qg.rating.study.raters import SESSION_S
from rl_qg.rating.study.records import Closed, NotAllowed, NotYours, Rater, Session, StoreFailed, Suspicious
from rl_qg.rating.study.store import Store
from rl_qg.runtime.errors import InputError
from rl_qg.settings.web import RateServeSettings
from rl_qg.web.requests import check_secret, form_of, is_of_own_page, network_of, read_secrets

HEALTH, HEALTH_S = "/healthz", 2.0  # its path, and how long it waits for the database
SIGNATURE = "signature"  # the parameter of a panel's address that has it
LANGUAGE_S = 365 * 86_400
MOST_FIELDS = 200
AUTOSAVE = "autosave"  # the value of `action` that a script sends: it gets a status, not a page
OWN_CHECKS = ("/begin", "/admin")  # forms of somebody who is not known yet, and those of the owner


class FormRefused(Exception):
    """A form that no page of ours has sent: 403, without saying more."""


class NoSession(Exception):
    """Nobody is known by this browser."""


# The message, the status and the way on after an error.
ANSWERS: Mapping[type[Exception], tuple[str, int, str]] = {
    FormRefused: ("forbidden", 403, ""),
    NoSession: ("session", 401, ""),
    NotYours: ("missing_page", 404, "/next"),
    NotAllowed: ("missing_page", 404, "/next"),
    Closed: ("closed", 409, "/next"),
    InputError: ("forbidden", 400, ""),
}


class Site:
    """What all pages of a study need. It makes visits of requests, calls handlers in threads, answers errors."""

    def __init__(self, store: Store, settings: RateServeSettings, admin_token: str) -> None:
        self.store, self.settings, self.renderer = store, settings, Renderer(store.plan)
        self.cookies, self.admin = Cookies(settings), AdminSessions(admin_token)
        self._of_health = CapacityLimiter(1)
        self._addresses = dict[str, str]()  # where each rater was last, for as long as the process lives
        self.panel_secret = ""
        if path := settings.panel_secret:
            self.panel_secret = read_secrets(path, "panel_secret", "that holds the secret").strip()
            check_secret(self.panel_secret, f"panel_secret={path}", "the secret")

    def beside(self, rater: Rater) -> set[str]:
        here = self._addresses.get(rater.id)
        return {one for one, address in list(self._addresses.items()) if address == here}

    def route(self, method: str, path: str, handler: "Handler") -> Route:
        """A route, for Starlette. A form must send back the secret of its session; of those of `OWN_CHECKS` the origin
        alone is checked. A request waits for a thread and for the database until its deadline; that of health has a
        thread of its own.
        """
        checks_form = not path.startswith(OWN_CHECKS)
        is_health = path == HEALTH
        limiter = self._of_health if is_health else None

        async def answer(request: Request) -> Response:
            form: dict[str, str] = {}  # of several fields of one name the last
            if method == "POST":
                with suppress(HTTPException):  # one that cannot be read is empty; files are left out
                    fields = (await form_of(request, 0, MOST_FIELDS, LONGEST_BODY)).multi_items()
                    form = {name: value for name, value in fields if isinstance(value, str)}
            with database.deadline(HEALTH_S if is_health else database.WAIT_S):
                return await to_thread.run_sync(self._answer, handler, request, form, checks_form, limiter=limiter)

        return Route(path, answer, methods=[method])

    def language_of(self, request: Request, form: Mapping[str, str] | None = None, rater: Rater | None = None) -> str:
        """The language of a page: of the form, the address, the cookie, the consent, else what the browser asks."""
        asked = [(form or {}).get("lang"), request.query_params.get("lang")]
        asked += [request.cookies.get(self.cookies.language), rater.language if rater else None]
        accepts, default = request.headers.get("accept-language", ""), self.settings.language
        return chosen_language(self.renderer.catalogues, asked, accepts, default)

    def _answer(self, handler: "Handler", request: Request, form: Mapping[str, str], checks_form: bool) -> Response:
        visit = Visit(self, request, self.language_of(request, form), form)
        try:
            self._recognise(visit, checks_form)
            response = handler(visit)
        except Exception as error:
            response = self._failed(visit, error)
        if visit.language in (form.get("lang"), request.query_params.get("lang")):
            self.cookies.set(response, self.cookies.language, visit.language, LANGUAGE_S)
        return response

    def _recognise(self, visit: "Visit", checks_form: bool) -> None:
        """Find out who it is, and refuse a form that is of nobody's page."""
        request, is_form = visit.request, visit.request.method == "POST"
        if is_form and not is_of_own_page(request.headers):
            raise FormRefused
        if token := request.cookies.get(self.cookies.session):
            visit.session = self.store.session(token)
        if visit.session:
            visit.rater = self.store.rater(visit.session.rater)
            visit.language = self.language_of(request, visit.form, visit.rater)
            self._addresses[visit.rater.id] = network_of(request.scope)
        if is_form and checks_form:
            if visit.session is None:
                raise NoSession
            if not equal_secrets(visit.form.get("csrf", ""), visit.session.csrf):
                raise FormRefused

    def _failed(self, visit: "Visit", error: Exception) -> Response:
        """The page, or for a script the status, of an error."""
        if isinstance(error, StoreFailed):
            name, status, link = "failure", 503, ""
        elif isinstance(error, Suspicious):
            self.store.warn(*error.args)
            name, status, link = error.args[0], 403, "/task"
        elif type(error) in ANSWERS:
            name, status, link = ANSWERS[type(error)]
        else:
            raise error
        if visit.form.get("action") == AUTOSAVE:
            return Response(status_code=status)
        if status == 503 and visit.request.method == "POST":  # a page that keeps what was typed, to send it again
            again = SimpleNamespace(path=visit.request.url.path, fields=[*visit.form.items()])
            response = visit.message("unsaved", status, again=again)
            response.headers["Retry-After"] = "10"
            return response
        return visit.message(name, status, link=link if visit.session else "")


@dataclass
class Visit:
    """One request; `session` and `rater` are None for somebody unknown."""

    site: Site
    request: Request
    language: str
    form: Mapping[str, str]
    session: Session | None = None
    rater: Rater | None = None

    @property
    def store(self) -> Store:
        return self.site.store

    @property
    def protocol(self) -> Protocol:
        return self.site.store.plan.protocol

    @property
    def texts(self) -> Catalogue:
        return self.site.renderer.catalogues[self.language]

    @property
    def known(self) -> Rater:
        """The rater; `NoSession` where there is none."""
        if self.rater is None or self.rater.forgotten:
            raise NoSession
        return self.rater

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page whose forms send back the secret of the session; see `Renderer.page`."""
        secret = {"csrf": self.session.csrf if self.session else ""}
        return self.site.renderer.page(template, self.language, status, **(secret | values))

    def message(self, name: str, status: int, **values: Any) -> Response:
        return self.site.renderer.message(name, self.language, status, **values)

    def begin_session(self, rater: str, *, only: bool = False) -> Response:
        response, cookies = redirect("/next"), self.site.cookies
        cookies.set(response, cookies.session, self.store.new_session(rater, only=only), int(SESSION_S))
        return response


Handler = Callable[[Visit], Response]
Routes = Sequence[tuple[str, str, Handler]]  # method, path


def redirect(to: str) -> Response:
    return RedirectResponse(to, 303)


def values_of(form: Mapping[str, str], criteria: Sequence[Criterion]) -> tuple[dict[str, int], dict[str, int]]:
    """The values by criterion, and where sliders stand whose box does not say that they were set (without script)."""
    values, moved = dict[str, int](), dict[str, int]()
    for number, one in enumerate(criteria, 1):
        given = form.get(f"value-{number}", "")
        if given and not re.fullmatch(r"-?\d{1,6}", given, re.ASCII):
            raise InputError(f"statement {number}: {given[:20]!r} is no whole number")
        if given and (not one.is_slider or form.get(f"set-{number}")):
            values[one.name] = int(given)
        elif given and one.lowest <= int(given) <= one.highest and int(given) != one.middle:
            moved[one.name] = int(given)
    return values, moved
