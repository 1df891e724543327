"""The page of the owner of a study: how far it is, and pause, expiry and export."""

import io
import math
import tempfile
import zipfile
from functools import partial
from pathlib import Path

from starlette.responses import JSONResponse, Response

from rl_qg.rating.pages.security import equal_secrets
from rl_qg.rating.pages.visits import HEALTH, FormRefused, Handler, Routes, Visit, redirect
from rl_qg.rating.protocol import KINDS
from rl_qg.rating.study.export import export_study, study_status, utc
from rl_qg.rating.study.records import NotYours
from rl_qg.runtime.errors import InputError
from rl_qg.web.requests import network_of

LANGUAGE = "en"  # of this page
SIGNED_OUT = "signed out"


def health(visit: Visit) -> Response:
    """200 while the database answers; the caller turns its failure into 503."""
    visit.store.check()
    return JSONResponse({"status": "ok"})


def login(visit: Visit) -> Response:
    cookies, sessions = visit.site.cookies, visit.site.admin
    if seconds := math.ceil(sessions.attempts.wait(network_of(visit.request.scope))):
        return visit.site.renderer.message("busy", LANGUAGE, 429, seconds=seconds)
    if not sessions.opens(visit.form.get("token", "").strip()):
        return visit.site.renderer.page("admin_login", LANGUAGE, 403, fault=True)
    response, cookie = redirect("/admin"), sessions.new_cookie()
    visit.store.note("signed in", f"by session {sessions.name_of(cookie)}")
    cookies.set(response, cookies.admin, cookie, sessions.seconds)
    return response


def logout(visit: Visit) -> Response:
    visit.store.note(SIGNED_OUT, _by(visit))
    response = redirect("/admin")
    visit.site.cookies.delete(response, visit.site.cookies.admin)
    return response


def _cookie(visit: Visit) -> str:
    cookie = visit.request.cookies.get(visit.site.cookies.admin, "")
    return cookie if visit.site.admin.name_of(cookie) and not visit.store.is_noted(SIGNED_OUT, _by(visit)) else ""


def _by(visit: Visit) -> str:
    return f"by session {visit.site.admin.name_of(visit.request.cookies.get(visit.site.cookies.admin, ''))}"


def show(visit: Visit) -> Response:
    if not (cookie := _cookie(visit)):
        return visit.site.renderer.page("admin_login", LANGUAGE)
    status = study_status(visit.store)
    shown = [(one, (utc(one["lease_until"]) or "").replace("T", " ")[:16]) for one in visit.store.open_assignments()]
    present = {kind for kinds in status["systems"].values() for kind in kinds}
    return visit.site.renderer.page(
        "admin",
        LANGUAGE,
        csrf=visit.site.admin.csrf(cookie),
        study=status,
        kinds=[kind for kind in KINDS if kind in present],
        open=shown,
        next_expiry=shown[0][1][-5:] + " UTC" if shown else "",
        raters=visit.store.raters(),
        log=[(utc(at), *entry) for at, *entry in visit.store.log()],
        said=visit.request.query_params.get("said", ""),
    )


def pause(visit: Visit, paused: bool = True) -> Response:
    visit.store.pause(paused, _by(visit))
    return redirect(f"/admin?said={'paused' if paused else 'resumed'}")


def expire(visit: Visit) -> Response:
    try:
        ended = visit.store.expire(visit.form.get("assignment", ""), _by(visit))
    except NotYours:  # no name of an assignment
        ended = False
    return redirect(f"/admin?said={'expired' if ended else 'gone'}")


def let_in(visit: Visit) -> Response:
    visit.store.end_sessions(visit.form.get("rater", ""), _by(visit))
    return redirect("/admin?said=let_in")


def export(visit: Visit) -> Response:
    """The files of `rl-qg rate export`, zipped."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "ratings"
        try:
            export_study(visit.store, folder)
            visit.store.note("exported", f"ratings {_by(visit)}")
        except InputError:
            return redirect("/admin?said=empty")
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, f"ratings/{path.name}")
    attachment = {"Content-Disposition": 'attachment; filename="ratings.zip"'}
    return Response(content.getvalue(), media_type="application/zip", headers=attachment)


def _signed(handler: Handler) -> Handler:
    """A handler that only whoever has signed in reaches, by a form of the page."""

    def checked(visit: Visit) -> Response:
        if not (cookie := _cookie(visit)):
            return redirect("/admin")
        if not equal_secrets(visit.form.get("csrf", ""), visit.site.admin.csrf(cookie)):
            raise FormRefused
        return handler(visit)

    return checked


ROUTES: Routes = (
    ("GET", HEALTH, health),
    ("GET", "/admin", show),
    ("POST", "/admin/login", login),
    ("POST", "/admin/pause", _signed(pause)),
    ("POST", "/admin/resume", _signed(partial(pause, paused=False))),
    ("POST", "/admin/expire", _signed(expire)),
    ("POST", "/admin/let-in", _signed(let_in)),
    ("POST", "/admin/export", _signed(export)),
    ("POST", "/admin/logout", _signed(logout)),
)
