"""The way of a rater to the task: landing, consent, instructions, practice; and where it leads next."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.responses import Response
from starlette.routing import Route

from rl_qg.rating.pages.rendering import shown_practice
from rl_qg.rating.pages.visits import Endpoints, NoSession, Visit, redirect, values_of
from rl_qg.rating.plan_files import StudyPlan
from rl_qg.rating.protocol import Practice
from rl_qg.rating.study.records import COMPLETED, FULL, NO_CONSENT, SCREENED_OUT, NotYours, Rater
from rl_qg.runtime.errors import InputError

# --- What raters get when they are done: a code, the way back to the panel, or why it ends here ---

PAGES = {COMPLETED: "done", NO_CONSENT: "declined", SCREENED_OUT: "screened", FULL: "full"}


class Outcomes:
    """Codes and ways back, by kind."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._store, self._settings, self._renderer = endpoints.store, endpoints.settings, endpoints.renderer
        self._urls, self._codes = self._settings.completion_urls(), dict(self._settings.codes or {})

    def of(self, rater: Rater, kind: str, assignment: str | None = None) -> dict[str, Any]:
        """The `code` that a rater shows, on the page that the rater came from if it is `of_panel`, and the address to
        go back to (`url`); "" for none. Volunteers and the invited have a code for completed tasks alone, and nowhere
        to go.
        """
        of_panel = rater.panel == self._settings.panel
        if not of_panel and kind != COMPLETED:
            return {"code": "", "url": "", "of_panel": False}
        # Of completed tasks each has a code, other codes are of the whole study, since nobody has a task.
        code = self._codes.get(kind) or self._store.code(assignment if kind == COMPLETED else None, kind)
        url = self._urls.get(kind, "") if of_panel else ""
        return {"code": code, "url": url.replace("{code}", quote(code, safe="")), "of_panel": of_panel}

    def leave(self, rater: Rater, kind: str, assignment: str | None = None) -> Response | None:
        """To the panel at once where the settings say so; else None."""
        url = self.of(rater, kind, assignment)["url"] if self._settings.redirect else ""
        return redirect(url) if url else None

    def page(
        self, rater: Rater, kind: str, language: str, assignment: str | None = None, *, more: bool = False
    ) -> Response:
        """The last page: what it ends with, the code, and a link back."""
        texts, outcome = self._renderer.catalogues[language], self.of(rater, kind, assignment)
        shown: dict[str, Any] = {part: texts[f"{PAGES[kind]}_{part}"] for part in ("heading", "text")}
        return self._renderer.page("done", language, outcome=outcome, more=more, **shown)


NOT_FILLED_IN = re.compile(r"\{\{|\$\{|^%\w+%$")  # placeholders of panels, which stand for nobody


class ArrivalPages:
    """Landing, consent, instructions and practice."""

    def __init__(self, endpoints: Endpoints, outcomes: Outcomes) -> None:
        self._endpoints, self._outcomes = endpoints, outcomes
        self._store, self._settings, self._renderer = endpoints.store, endpoints.settings, endpoints.renderer
        self._plan: StudyPlan = endpoints.store.plan
        self._protocol = self._plan.protocol

    def routes(self) -> list[Route]:
        page = self._endpoints.of
        return [
            Route("/", page(self.landing), methods=["GET"]),
            Route("/begin", page(self.begin, checks_form=False), methods=["POST"]),
            Route("/s/{study:path}", page(self.from_panel), methods=["GET"]),
            Route("/invite/{token}", page(self.invited), methods=["GET"]),
            Route("/next", page(self.next), methods=["GET"]),
            Route("/consent", page(self.consent), methods=["GET"]),
            Route("/consent", page(self.answer_consent), methods=["POST"]),
            Route("/declined", page(self.declined), methods=["GET"]),
            Route("/instructions", page(self.instructions), methods=["GET"]),
            Route("/instructions", page(self.understood), methods=["POST"]),
            Route("/practice/{number:int}", page(self.practice), methods=["GET"]),
            Route("/practice/{number:int}", page(self.answer_practice), methods=["POST"]),
            Route("/screened", page(self.screened), methods=["GET"]),
        ]

    # --- Landing ---

    def landing(self, visit: Visit) -> Response:
        """Whoever is known goes on; else a button for volunteers, or the word that a link is needed."""
        if visit.rater and not visit.rater.forgotten:
            return redirect("/next")
        minutes = round(self._protocol.minutes_per_hit)
        return self._renderer.page("landing", visit.language, open=self._settings.volunteers, minutes=minutes)

    def begin(self, visit: Visit) -> Response:
        if visit.rater and not visit.rater.forgotten:
            return redirect("/next")
        if not self._settings.volunteers:
            raise NoSession
        return self._endpoints.begin_session(self._store.new_rater("open"))

    def from_panel(self, visit: Visit) -> Response:
        given, settings = visit.request.query_params, self._settings
        identity = given.get(settings.panel_parameter, "").strip() if settings.panel_parameter else ""
        if visit.request.path_params["study"] != self._plan.study or not settings.panel_parameter:
            return self._renderer.message("missing_page", visit.language, 404)
        extra = {name: given[name][:200] for name in settings.panel_extra if name in given}
        if NOT_FILLED_IN.search(identity):
            return self._renderer.message("invite", visit.language, 400)
        try:
            rater = self._store.rater_of_panel(settings.panel, identity, extra)
        except InputError:  # nothing was filled in for the parameter, or something too long
            return self._renderer.message("invite", visit.language, 400)
        return self._endpoints.begin_session(rater)

    def invited(self, visit: Visit) -> Response:
        rater = self._store.rater_of_invite(visit.request.path_params["token"])
        if rater is None:
            return self._renderer.message("invite", visit.language, 404)
        return self._endpoints.begin_session(rater)

    # --- Where next ---

    def next(self, visit: Visit) -> Response:
        return redirect(self.place_of(visit.known))

    def place_of(self, rater: Rater) -> str:
        """The address of the page that a rater has to see next."""
        if rater.declined:
            return "/declined"
        if rater.consent_version != self._protocol.consent_version:
            return "/consent"
        if rater.practice == "failed":
            return "/screened"
        if rater.practice is None:
            answered = len(self._answered(rater))
            return f"/practice/{answered + 1}" if answered else "/instructions"
        return "/task"

    # --- Consent ---

    def consent(self, visit: Visit) -> Response:
        rater = visit.known
        if rater.declined or rater.consent_version == self._protocol.consent_version:
            return redirect(self.place_of(rater))
        says_days = all("{retention_days}" in text for text in self._protocol.consent.values())
        return self._renderer.page(
            "consent",
            visit.language,
            csrf=visit.csrf,
            consent=self._renderer.local(self._protocol.consent, visit.language),
            version=self._protocol.consent_version,
            minutes=round(self._protocol.minutes_per_hit),
            days=None if says_days else self._plan.retention_days,
        )

    def answer_consent(self, visit: Visit) -> Response:
        """Yes to the version that was shown, or no, also by going back to this page before a task is submitted."""
        rater = visit.known
        if visit.form.get("answer") == "decline":
            if any(one.submitted is not None for one in self._store.assignments_of(rater.id)):
                return redirect("/next")  # what was submitted is the owner's to delete (`rl-qg rate forget`)
            self._store.decline(rater.id)
            return self._outcomes.leave(rater, NO_CONSENT) or redirect("/declined")
        if visit.form.get("answer") == "agree" and visit.form.get("version") == self._protocol.consent_version:
            self._store.give_consent(rater.id, self._protocol.consent_version, visit.language)
        return redirect("/next")

    def declined(self, visit: Visit) -> Response:
        rater = visit.known
        if not rater.declined:
            return redirect(self.place_of(rater))
        return self._outcomes.page(rater, NO_CONSENT, visit.language)

    # --- Instructions and practice ---

    def instructions(self, visit: Visit) -> Response:
        rater = visit.known
        if rater.declined or rater.consent_version != self._protocol.consent_version:
            return redirect(self.place_of(rater))
        shown = [self._renderer.local(text, visit.language) for text in self._protocol.instructions]
        understood = rater.practice is not None
        return self._renderer.page(
            "instructions", visit.language, csrf=visit.csrf, instructions=shown, understood=understood
        )

    def understood(self, visit: Visit) -> Response:
        """To the first practice question, or where there is none to the task."""
        rater = visit.known
        if rater.practice is None and not self._protocol.practice:
            self._store.set_practice(rater.id, {}, True)
            return redirect("/next")
        return redirect("/practice/1" if rater.practice is None and not self._answered(rater) else "/next")

    def practice(self, visit: Visit) -> Response:
        """A practice question; once it is rated, with what one would say of it."""
        rater, number, practice = self._practised(visit)
        answered = self._answered(rater)
        if number > len(answered) + 1 or (rater.practice and str(number) not in answered):
            return redirect(self.place_of(rater))
        return self._shown_practice(visit, number, practice, answered.get(str(number)), fixed=str(number) in answered)

    def answer_practice(self, visit: Visit) -> Response:
        """Keep what was said of a practice question; the first answer counts. After the last one: passed or not."""
        rater, number, practice = self._practised(visit)
        answered, here = self._answered(rater), redirect(f"/practice/{number}")
        if rater.practice or len(answered) != number - 1:
            return here
        values, moved = values_of(visit.form, self._protocol.criteria)
        self._store.check_values(values)
        missing = [criterion.name for criterion in self._protocol.criteria if criterion.name not in values]
        if visit.form.get("lang"):
            return self._shown_practice(visit, number, practice, values)
        if missing:
            return self._shown_practice(visit, number, practice, values, missing=missing, moved=moved)
        answered[str(number)] = values
        every = self._protocol.practice
        passed = None
        if number == len(every):  # enough questions were rated as expected, in all criteria that expect something
            as_expected = sum(
                all(low <= answered[str(at)][name] <= high for name, (low, high) in one.expected.items())
                for at, one in enumerate(every, 1)
            )
            passed = as_expected >= self._protocol.practice_passes * len(every)
        self._store.set_practice(rater.id, answered, passed)
        return here

    def screened(self, visit: Visit) -> Response:
        rater = visit.known
        if rater.practice != "failed":
            return redirect(self.place_of(rater))
        return self._outcomes.leave(rater, SCREENED_OUT) or self._outcomes.page(rater, SCREENED_OUT, visit.language)

    def _practised(self, visit: Visit) -> tuple[Rater, int, Practice]:
        rater, number = visit.known, int(visit.request.path_params["number"])
        consented = not rater.declined and rater.consent_version == self._protocol.consent_version
        if not consented or not 1 <= number <= len(self._protocol.practice):
            raise NotYours("practice: not now")
        return rater, number, self._protocol.practice[number - 1]

    def _answered(self, rater: Rater) -> dict[str, Mapping[str, int]]:
        """What a rater has said of practice questions so far, by their number as a text."""
        return dict(self._store.practice_values(rater.id) or {}) if self._protocol.practice else {}

    def _shown_practice(
        self,
        visit: Visit,
        number: int,
        practice: Practice,
        values: Mapping[str, int] | None,
        *,
        fixed: bool = False,
        missing: Sequence[str] = (),
        moved: Mapping[str, int] | None = None,
    ) -> Response:
        statements = self._renderer.statements(visit.language, values or {}, missing=missing, fixed=fixed, moved=moved)
        total, texts = len(self._protocol.practice), self._renderer.catalogues[visit.language]
        end = "/screened" if visit.known.practice == "failed" else "/task"
        return self._renderer.page(
            "item",
            visit.language,
            422 if missing else 200,
            csrf=visit.csrf,
            form="" if fixed else "rating",
            fault=bool(missing),
            heading=texts("practice_heading", position=number, total=total),
            total=total,
            done=number - 1 + fixed,
            is_practice=True,
            is_test=self._protocol.practice_passes > 0,
            expired=False,
            item=shown_practice(practice, self._protocol.language),
            statements=statements,
            action=f"/practice/{number}",
            before=False,
            comment=self._renderer.local(practice.comment, visit.language) if fixed else None,
            after=f"/practice/{number + 1}" if number < total else end,
        )
