"""The web application of a study: its pages behind their limits, for uvicorn or any other ASGI host."""

from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from rl_qg.rating.pages.admin_pages import AdminPages
from rl_qg.rating.pages.arrival_pages import ArrivalPages
from rl_qg.rating.pages.item_pages import ItemPages
from rl_qg.rating.pages.outcomes import Outcomes
from rl_qg.rating.pages.rendering import Renderer
from rl_qg.rating.pages.security import AdminSessions, RequestGate
from rl_qg.rating.pages.visits import Endpoints
from rl_qg.rating.study.store import Store
from rl_qg.runtime.errors import InputError
from rl_qg.settings.rating import RateServeSettings


def create_app(store: Store, settings: RateServeSettings, admin_token: str) -> Starlette:
    """The application.

    Args:
        store: of the study; stays open when the application ends.
        settings: what is shown to whom, and the limits.
        admin_token: opens `/admin`.

    Raises:
        InputError: the language of the settings has no catalogue, or a catalogue is incomplete.
    """
    renderer = Renderer(store.plan, settings.language)
    if settings.language not in renderer.catalogues:
        raise InputError(f"language={settings.language}: there is {', '.join(renderer.catalogues)}")
    endpoints = Endpoints(store, settings, renderer)
    outcomes = Outcomes(store, settings, renderer)
    arrival = ArrivalPages(endpoints, outcomes)

    async def asset(request: Request) -> Response:
        return renderer.asset(request.path_params["name"], request.headers.get("if-none-match", ""))

    def refusal(scope: Scope, name: str, status: int, values: Mapping[str, Any]) -> Response:
        return renderer.message(name, endpoints.language_of(Request(scope)), status, **values)

    async def missing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        name = "missing_page" if error.status_code == 404 else "forbidden"
        response = renderer.message(name, endpoints.language_of(request), error.status_code)
        response.headers.update(error.headers or {})
        return response

    return Starlette(
        routes=[
            *arrival.routes(),
            *ItemPages(endpoints, arrival, outcomes).routes(),
            *AdminPages(endpoints, AdminSessions(admin_token)).routes(),
            Route("/files/{name}", asset, methods=["GET"]),
        ],
        middleware=[Middleware(RequestGate, settings=settings, refusal=refusal)],
        exception_handlers={HTTPException: missing},
    )
