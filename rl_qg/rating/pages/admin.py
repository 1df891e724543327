"""The page of the owner of a study: how far it is, and pause, expiry and export."""

import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rl_qg.rating.pages.security import AdminSessions, same
from rl_qg.rating.pages.visits import Endpoints, FormRefused, Handler, Visit, redirect
from rl_qg.rating.protocol import KINDS
from rl_qg.rating.study.export import export_study, study_status, utc
from rl_qg.rating.study.records import NotYours
from rl_qg.rating.study.store import Store
from rl_qg.runtime.errors import InputError

LANGUAGE = "en"  # of this page
SAID = {
    "paused": "No more tasks are given out; whoever has one goes on.",
    "resumed": "Tasks are given out again.",
    "expired": "The lease has ended: the task goes to the next rater.",
    "gone": "This task is no longer open.",
    "empty": "Nobody has rated anything yet, so there is nothing to export.",
}


class AdminPages:
    """Sign in by the token, progress, and the buttons."""

    def __init__(self, endpoints: Endpoints, sessions: AdminSessions) -> None:
        self._endpoints, self._sessions = endpoints, sessions
        self._store: Store = endpoints.store
        self._renderer, self._cookies = endpoints.renderer, endpoints.cookies

    def routes(self) -> list[Route]:
        def page(handler: Handler) -> Any:
            return self._endpoints.of(handler, checks_form=False)  # sessions of its own

        posts = {"pause": self.pause, "resume": self.resume, "expire": self.expire, "export": self.export}
        return [
            Route("/healthz", page(self.health), methods=["GET"]),
            Route("/admin", page(self.show), methods=["GET"]),
            Route("/admin/login", page(self.login), methods=["POST"]),
            *(Route(f"/admin/{name}", page(self._signed(do)), methods=["POST"]) for name, do in posts.items()),
            Route("/admin/logout", page(self._signed(self.logout)), methods=["POST"]),
        ]

    def health(self, visit: Visit) -> Response:
        """200 while the database answers; the caller turns its failure into 503."""
        self._store.open_assignments()
        return JSONResponse({"status": "ok"})

    def login(self, visit: Visit) -> Response:
        if not self._sessions.opens(visit.form.get("token", "").strip()):
            return self._renderer.page("admin_login", LANGUAGE, 403, fault=True)
        response = redirect("/admin")
        self._cookies.set(response, self._cookies.admin, self._sessions.new_cookie(), self._sessions.seconds)
        return response

    def logout(self, visit: Visit) -> Response:
        response = redirect("/admin")
        self._cookies.delete(response, self._cookies.admin)
        return response

    def show(self, visit: Visit) -> Response:
        cookie = visit.request.cookies.get(self._cookies.admin, "")
        if not self._sessions.is_valid(cookie):
            return self._renderer.page("admin_login", LANGUAGE)
        status = study_status(self._store)
        open_now = self._store.open_assignments()
        shown = [(one, (utc(one["lease_until"]) or "").replace("T", " ")[:16]) for one in open_now]
        present = {kind for kinds in status["systems"].values() for kind in kinds}
        return self._renderer.page(
            "admin",
            LANGUAGE,
            csrf=self._sessions.csrf(cookie),
            study=status,
            control=status["control"],
            kinds=[kind for kind in KINDS if kind in present],
            open=shown,
            next_expiry=shown[0][1][-5:] + " UTC" if shown else "",
            raters=self._store.raters(),
            said=SAID.get(visit.request.query_params.get("said", ""), ""),
        )

    def pause(self, visit: Visit) -> Response:
        self._store.pause()
        return redirect("/admin?said=paused")

    def resume(self, visit: Visit) -> Response:
        self._store.pause(False)
        return redirect("/admin?said=resumed")

    def expire(self, visit: Visit) -> Response:
        try:
            ended = self._store.expire(visit.form.get("assignment", ""))
        except NotYours:  # no name of an assignment
            ended = False
        return redirect(f"/admin?said={'expired' if ended else 'gone'}")

    def export(self, visit: Visit) -> Response:
        """The files of `rl-qg rate export`, zipped."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "ratings"
            try:
                export_study(self._store, folder)
            except InputError:
                return redirect("/admin?said=empty")
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(folder.iterdir()):
                    archive.write(path, f"ratings/{path.name}")
        attachment = {"Content-Disposition": 'attachment; filename="ratings.zip"'}
        return Response(content.getvalue(), media_type="application/zip", headers=attachment)

    def _signed(self, handler: Handler) -> Callable[[Visit], Response]:
        """A handler that only whoever has signed in reaches, by a form of the page."""

        def checked(visit: Visit) -> Response:
            cookie = visit.request.cookies.get(self._cookies.admin, "")
            if not self._sessions.is_valid(cookie):
                return redirect("/admin")
            if not same(visit.form.get("csrf", ""), self._sessions.csrf(cookie)):
                raise FormRefused
            return handler(visit)

        return checked
