"""What stands before the pages: hosts, rates, bodies of limited size, headers that browsers heed, and the log.

The log has one line for each request: method, route, status, seconds. It has no address of a client, no query string
(which holds who somebody is on a panel) and no token of a path: of a path the route alone.
"""

import hmac
import logging
import math
import secrets
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_qg.settings.web import RateServeSettings
from rl_qg.web import requests as web

log = logging.getLogger(__name__)
LONGEST_BODY = 64 * 1024  # bytes
LONGEST_WAIT = 20.0  # seconds, for a body
ADMIN_S = 8 * 3600  # of the owner's session
LONGEST_PATH = 1000  # characters; Python reads no number of more than 4300 digits
UNLIMITED = ("/files/", "/healthz")  # of the rates; a page takes four files to show


class RequestGate:
    """Refuses what comes too often, is too long or was meant for another host; `refusal` makes the page for it."""

    def __init__(self, app: ASGIApp, settings: RateServeSettings, refusal: Callable[..., Response]) -> None:
        self._app, self._refusal = app, refusal
        self._hosts = hosts_of(settings)
        self._cookie = Cookies(settings).session
        self._of_session = web.TokenBuckets(settings.rate, settings.burst)
        self._of_address = web.TokenBuckets(settings.address_rate, settings.address_burst)
        self._headers = web.SECURITY | {
            "Content-Security-Policy": content_policy(settings),
            "Referrer-Policy": "same-origin",  # with no-referrer, browsers send `Origin: null` with a form
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        entry: dict[str, Any] = {"method": scope["method"], "status": None}
        send = web.noted(send, entry, self._headers)
        try:
            await self._answer(scope, receive, send)
        except Exception as error:
            entry["error"] = web.described(error)
            if entry["status"] is None:
                await self._refusal(scope, "failure", 500)(scope, receive, send)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            level = logging.ERROR if "error" in entry else logging.INFO
            if route in ("/healthz", "/files/{name}") and (entry["status"] or 500) < 400:
                level = logging.DEBUG
            fields = {"route": route, **entry, "seconds": round(time.monotonic() - begun, 4)}
            log.log(level, "request", extra={"fields": fields})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp | None = None
        refused = partial(self._refusal, scope)
        if self._hosts is not None and not web.is_answered(scope, self._hosts):
            answer = refused("missing_page", 421)
        elif len(scope["path"]) > LONGEST_PATH:
            answer = refused("missing_page", 404)
        elif seconds := math.ceil(self._wait(scope)):
            answer = refused("busy", 429, seconds=seconds)
        else:
            try:
                body = await web.whole_body(scope, receive, LONGEST_BODY, LONGEST_WAIT)
            except web.BodyTooLongError:
                answer = refused("large", 413)
            except TimeoutError:
                answer = response = refused("failure", 400)
                response.headers["Connection"] = "close"
            else:
                if body is not None:
                    answer, receive = self._app, web.once(body, receive)
        if answer is not None:
            await answer(scope, receive, send)

    def _wait(self, scope: Scope) -> float:
        """Seconds until the address or the session may ask again."""
        if scope["path"].startswith(UNLIMITED):
            return 0.0
        wait = self._of_address.wait(web.network_of(scope))
        token = cookie_parser(Headers(scope=scope).get("cookie", "")).get(self._cookie)
        return self._of_session.wait(token) if token and not wait else wait


class Cookies:
    """Names and attributes of cookies: not for scripts or forms of other sites, over HTTPS where the pages are."""

    def __init__(self, settings: RateServeSettings) -> None:
        self._secure = settings.public_url.startswith("https://")
        prefix = "__Host-" if self._secure else ""
        self.session, self.language, self.admin = (f"{prefix}rating{of}" for of in ("", "-language", "-admin"))

    def set(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(name, value, max_age=seconds, path="/", httponly=True, samesite="lax", secure=self._secure)

    def delete(self, response: Response, name: str) -> None:
        response.delete_cookie(name, path="/", httponly=True, samesite="lax", secure=self._secure)


class AdminSessions:
    """Who has shown the admin token: a cookie that says until when, and a name of the session, signed with a key that
    follows from the token. So another process with the same token knows it too, also after a restart. `seconds`: how
    long a session lasts; `attempts`: those to sign in, of each address.
    """

    seconds = ADMIN_S

    def __init__(self, token: str, clock: Callable[[], float] = time.time) -> None:
        self._key = sha256(b"rl-qg rating admin\n" + token.encode()).digest()
        self._hash, self._clock = sha256(token.encode()).digest(), clock
        self.attempts = web.attempts()

    def opens(self, given: str) -> bool:
        """Whether this is the token; takes the same time for all that are wrong."""
        return hmac.compare_digest(sha256(given.encode(errors="replace")).digest(), self._hash)

    def new_cookie(self) -> str:
        session = f"{int(self._clock()) + self.seconds}.{secrets.token_hex(4)}"
        return f"{session}.{self._sign('session', session)}"

    def name_of(self, cookie: str) -> str:
        """The name of the session of a cookie; "" where it is forged or over."""
        session, _, signature = cookie.rpartition(".")
        until, _, name = session.partition(".")
        known = hmac.compare_digest(signature.encode(errors="replace"), self._sign("session", session).encode())
        return name if known and until.isdecimal() and int(until) > self._clock() else ""

    def csrf(self, cookie: str) -> str:
        return self._sign("csrf", cookie)

    def _sign(self, use: str, value: str) -> str:
        return hmac.new(self._key, f"{use}\n{value}".encode(errors="replace"), sha256).hexdigest()


def equal_secrets(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in constant time; an empty one equals nothing."""
    return bool(expected) and hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def content_policy(settings: RateServeSettings) -> str:
    """The Content-Security-Policy of every page: files of this server alone, nothing inline. Browsers apply
    `form-action` to redirects after a form too, so a panel to which forms redirect is named.
    """
    targets = ["'self'"]
    if settings.redirect:
        for url in settings.completion_urls().values():
            parts = urlsplit(url)
            targets.append(f"{parts.scheme}://{parts.netloc}")
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        f"form-action {' '.join(dict.fromkeys(targets))}; base-uri 'none'; frame-ancestors 'none'"
    )


def hosts_of(settings: RateServeSettings) -> frozenset[str] | None:
    """The names in the header `Host` that are answered: those of this machine where the server listens on it alone
    and behind no proxy, and that of public_url; None: all.
    """
    names = web.local_names(settings.host)
    if not names or settings.trusted_proxies:
        return None
    public = web.name_in(urlsplit(settings.public_url).netloc) if settings.public_url else ""
    return names | ({public} if public else set())
