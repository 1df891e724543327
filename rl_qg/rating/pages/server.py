"""A process that serves a study (`rl-qg rate serve`): one socket, uvicorn, and an orderly end on SIGTERM."""

import logging
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from rl_qg.rating.pages import admin, arrival, items
from rl_qg.rating.pages.security import RequestGate
from rl_qg.rating.pages.visits import SIGNATURE, Site
from rl_qg.rating.plan_files import read_plan
from rl_qg.rating.study.store import Store, opened_store
from rl_qg.runtime.errors import InputError
from rl_qg.settings.web import RateServeSettings
from rl_qg.web.requests import check_secret, local_names, read_secrets
from rl_qg.web.server import OrderlyServer, address_of, configuration, listen

VARIABLE = "RL_QG_ADMIN_TOKEN"
CLOSING_S = 10  # seconds that requests under way get after SIGTERM

log = logging.getLogger(__name__)


def create_app(store: Store, settings: RateServeSettings, admin_token: str) -> Starlette:
    """The application. The store stays open when it ends."""
    site = Site(store, settings, admin_token)
    renderer = site.renderer
    if settings.language not in renderer.catalogues:
        raise InputError(f"language={settings.language}: there is {', '.join(renderer.catalogues)}")

    async def asset(request: Request) -> Response:
        return renderer.asset(request.path_params["name"], request.headers.get("if-none-match", ""))

    def refusal(scope: Scope, name: str, status: int, **values: Any) -> Response:
        return renderer.message(name, site.language_of(Request(scope)), status, **values)

    async def missing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        name = "missing_page" if error.status_code == 404 else "forbidden"
        response = renderer.message(name, site.language_of(request), error.status_code)
        response.headers.update(error.headers or {})
        return response

    pages = [site.route(*one) for one in (*arrival.ROUTES, *items.ROUTES, *admin.ROUTES)]
    return Starlette(
        routes=[*pages, Route("/files/{name}", asset, methods=["GET"])],
        middleware=[Middleware(RequestGate, settings=settings, refusal=refusal)],
        exception_handlers={HTTPException: missing},
    )


def serve_study(settings: RateServeSettings) -> None:
    """Show the tasks of a plan to raters until SIGTERM; prints addresses and, unless it was given, the admin token."""
    settings.check()
    token, is_new = admin_token(settings.admin_token)
    if not settings.plan:
        raise InputError("plan: is empty; name the folder of rl-qg rate plan, as plan=plan")
    with opened_store(settings.study, read_plan(Path(settings.plan).expanduser())) as store:
        if settings.lease_minutes is not None:
            store.lease_s = 60 * settings.lease_minutes
        application = create_app(store, settings, token)
        bound = listen(settings.host, settings.port)
        bound.listen()  # whoever reads the address can connect at once, and is answered soon
        _print_addresses(store, settings, bound, token if is_new else "")
        served = configuration(application, settings.trusted_proxies, lifespan="off", closing_seconds=CLOSING_S)
        OrderlyServer(served).run(sockets=[bound])
        log.info("stopped")


def admin_token(path: str, environment: Mapping[str, str] = os.environ) -> tuple[str, bool]:
    """The token of the owner's page, of a file, of `RL_QG_ADMIN_TOKEN` or a new one; and whether it is new."""
    given, where = environment.get(VARIABLE, "").strip(), VARIABLE
    if path:
        where = f"admin_token={path}"
        given = read_secrets(path, "admin_token", "that holds the token").strip()
    elif not given:
        return secrets.token_urlsafe(32), True
    check_secret(given, where, "the token")
    return given, False


def panel_path(settings: RateServeSettings, study: str) -> str:
    """Where people of a panel come, with the panel's placeholders for who they are."""
    names = [settings.panel_parameter, *settings.panel_extra, *([SIGNATURE] if settings.panel_secret else [])]
    return f"/s/{quote(study, safe='')}?" + "&".join(f"{name}={{{{%{name}%}}}}" for name in names)


def _print_addresses(store: Store, settings: RateServeSettings, bound: socket.socket, token: str) -> None:
    address, study = settings.public_url.rstrip("/") or address_of(bound), store.plan.study
    lines = [f"rl-qg rate serve: study {study} at {address}"]
    if settings.panel_parameter:
        lines.append(f"panel {settings.panel}: {address}{panel_path(settings, study)}")
    lines += [f"invitation: {address}/invite/{invite}" for invite in store.add_invites(settings.invites)]
    lines.append(f"owner: {address}/admin" + (f" token {token}" if token else ""))
    print("\n".join(lines), flush=True)
    is_encrypted = settings.public_url.startswith("https://")
    if not local_names(settings.host) and not is_encrypted:
        where = "put a proxy with HTTPS before it, and set public_url"
        log.warning("host=%s: raters come without encryption; %s", settings.host, where)
    if is_encrypted and not settings.trusted_proxies:
        log.warning("public_url: by a proxy all raters have one address for limits, unless trusted_proxies names it")
