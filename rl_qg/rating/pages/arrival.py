"""The way of a rater to the task: landing, consent, instructions, practice; where it leads next, and how it ends."""

import hmac
import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from rl_qg.rating.pages.rendering import shown_item
from rl_qg.rating.pages.security import equal_secrets
from rl_qg.rating.pages.visits import SIGNATURE, NoSession, Routes, Visit, redirect, values_of
from rl_qg.rating.study.records import COMPLETED, FULL, NO_CONSENT, SCREENED_OUT, NotYours
from rl_qg.runtime.errors import InputError

PAGES = {COMPLETED: "done", NO_CONSENT: "declined", SCREENED_OUT: "screened", FULL: "full"}
NOT_FILLED_IN = re.compile(r"\{\{|\$\{|^%\w+%$")  # placeholders of panels, which stand for nobody


def outcome(visit: Visit, kind: str, assignment: str | None = None) -> dict[str, Any]:
    """The `code` that a rater shows, on the page that the rater came from if it is `of_panel`, and the address to go
    back to (`url`); "" for none. Volunteers and the invited have a code for completed tasks alone, and nowhere to go.
    """
    settings = visit.site.settings
    of_panel = visit.known.panel == settings.panel
    if not of_panel and kind != COMPLETED:
        return {"code": "", "url": "", "of_panel": False}
    # Of completed tasks each has a code; other codes are of the whole study, since nobody has a task.
    own = assignment if kind == COMPLETED else None
    code = (settings.codes or {}).get(kind) or visit.store.code(own, kind)
    url = settings.completion_urls().get(kind, "") if of_panel else ""
    return {"code": code, "url": url.replace("{code}", quote(code, safe="")), "of_panel": of_panel}


def leave(visit: Visit, kind: str, assignment: str | None = None) -> Response | None:
    """To the panel at once where the settings say so; else None."""
    url = outcome(visit, kind, assignment)["url"] if visit.site.settings.redirect else ""
    return redirect(url) if url else None


def last_page(visit: Visit, kind: str, assignment: str | None = None, *, more: bool = False) -> Response:
    shown: dict[str, Any] = {part: visit.texts[f"{PAGES[kind]}_{part}"] for part in ("heading", "text")}
    return visit.page("done", outcome=outcome(visit, kind, assignment), more=more, **shown)


def landing(visit: Visit) -> Response:
    """Whoever is known goes on; else a button for volunteers, or the word that a link is needed."""
    if visit.rater and not visit.rater.forgotten:
        return redirect("/next")
    return visit.page("landing", open=visit.site.settings.volunteers, minutes=visit.site.renderer.minutes)


def begin(visit: Visit) -> Response:
    if visit.rater and not visit.rater.forgotten:
        return redirect("/next")
    if not visit.site.settings.volunteers:
        raise NoSession
    return visit.begin_session(visit.store.new_rater())


def from_panel(visit: Visit) -> Response:
    """The rater of an id, which others may know: in the browser that came first, or where the panel has signed it."""
    given, settings = visit.request.query_params, visit.site.settings
    if visit.request.path_params["study"] != visit.store.plan.study or not settings.panel_parameter:
        return visit.message("missing_page", 404)
    identity = given.get(settings.panel_parameter, "").strip()
    extra = {name: given[name][:200] for name in settings.panel_extra if name in given}
    if NOT_FILLED_IN.search(identity):
        return visit.message("invite", 400)
    secret = visit.site.panel_secret.encode()
    signature = hmac.new(secret, identity.encode(errors="replace"), "sha256").hexdigest()
    if secret and not equal_secrets(given.get(SIGNATURE, ""), signature):
        return visit.message("invite", 403)
    own = visit.rater.id if visit.rater else ""
    try:
        rater = visit.store.rater_of_panel(settings.panel, identity, extra, stranger_to=None if secret else own)
    except InputError:  # nothing was filled in for the parameter, or something too long
        return visit.message("invite", 400)
    if visit.rater and visit.rater.id == rater:
        return redirect("/next")
    return visit.begin_session(rater, only=not secret)


def invited(visit: Visit) -> Response:
    rater = visit.store.rater_of_invite(visit.request.path_params["token"])
    return visit.message("invite", 404) if rater is None else visit.begin_session(rater)


def place_of(visit: Visit) -> str:
    """The address of the page that the rater has to see next."""
    rater = visit.known
    if rater.declined:
        return "/declined"
    if rater.consent_version != visit.protocol.consent_version:
        return "/consent"
    if rater.practice == "failed":
        return "/screened"
    if rater.practice is None:
        answered = len(_answered(visit))
        return f"/practice/{answered + 1}" if answered else "/instructions"
    return "/task"


def _has_consented(visit: Visit) -> bool:
    return not visit.known.declined and visit.known.consent_version == visit.protocol.consent_version


def consent(visit: Visit) -> Response:
    protocol = visit.protocol
    if visit.known.declined or _has_consented(visit):
        return redirect(place_of(visit))
    says_days = all("{retention_days}" in text for text in protocol.consent.values())
    return visit.page(
        "consent",
        consent=protocol.consent,
        version=protocol.consent_version,
        minutes=visit.site.renderer.minutes,
        days=None if says_days else visit.store.plan.retention_days,
    )


def answer_consent(visit: Visit) -> Response:
    """Yes to the version that was shown, or no, also by going back to this page before a task is submitted."""
    rater, version = visit.known, visit.protocol.consent_version
    if visit.form.get("answer") == "decline":
        if any(one.submitted is not None for one in visit.store.assignments_of(rater.id)):
            return redirect("/next")  # what was submitted is the owner's to delete (`rl-qg rate forget`)
        visit.store.decline(rater.id)
        return leave(visit, NO_CONSENT) or redirect("/declined")
    if visit.form.get("answer") == "agree" and visit.form.get("version") == version:
        visit.store.give_consent(rater.id, version, visit.language)
    return redirect("/next")


def declined(visit: Visit) -> Response:
    return last_page(visit, NO_CONSENT) if visit.known.declined else redirect(place_of(visit))


def instructions(visit: Visit) -> Response:
    if not _has_consented(visit):
        return redirect(place_of(visit))
    is_understood = visit.known.practice is not None
    return visit.page("instructions", instructions=visit.protocol.instructions, understood=is_understood)


def understood(visit: Visit) -> Response:
    """To the first practice question, or where there is none to the task."""
    rater = visit.known
    if rater.practice is None and not visit.protocol.practice:
        visit.store.set_practice(rater.id, {}, True)
        return redirect("/next")
    return redirect("/practice/1" if rater.practice is None and not _answered(visit) else "/next")


def practice(visit: Visit) -> Response:
    """A practice question; once it is rated, with what one would say of it."""
    number, answered = _practised(visit), _answered(visit)
    if number > len(answered) + 1 or (visit.known.practice and str(number) not in answered):
        return redirect(place_of(visit))
    return _shown_practice(visit, number, answered.get(str(number)), fixed=str(number) in answered)


def answer_practice(visit: Visit) -> Response:
    """Keep what was said of a practice question; the first answer counts. After the last one: passed or not."""
    number, answered, every = _practised(visit), _answered(visit), visit.protocol.practice
    here = redirect(f"/practice/{number}")
    if visit.known.practice or len(answered) != number - 1:
        return here
    values, moved = values_of(visit.form, visit.protocol.criteria)
    visit.store.check_values(values)
    missing = [criterion.name for criterion in visit.protocol.criteria if criterion.name not in values]
    if visit.form.get("lang"):
        return _shown_practice(visit, number, values)
    if missing:
        return _shown_practice(visit, number, values, missing=missing, moved=moved)
    answered[str(number)] = values
    passed = None
    if number == len(every):  # enough questions were rated as expected, in all criteria that expect something
        as_expected = [
            all(low <= answered[str(at)][name] <= high for name, (low, high) in one.expected.items())
            for at, one in enumerate(every, 1)
            if one.expected
        ]
        passed = not as_expected or fmean(as_expected) >= visit.protocol.practice_passes
    visit.store.set_practice(visit.known.id, answered, passed)
    return here


def screened(visit: Visit) -> Response:
    if visit.known.practice != "failed":
        return redirect(place_of(visit))
    return leave(visit, SCREENED_OUT) or last_page(visit, SCREENED_OUT)


def _practised(visit: Visit) -> int:
    number = int(visit.request.path_params["number"])
    if not _has_consented(visit) or not 1 <= number <= len(visit.protocol.practice):
        raise NotYours("practice: not now")
    return number


def _answered(visit: Visit) -> dict[str, Mapping[str, int]]:
    return dict(visit.store.practice_values(visit.known.id) or {}) if visit.protocol.practice else {}


def _shown_practice(
    visit: Visit,
    number: int,
    values: Mapping[str, int] | None,
    *,
    fixed: bool = False,
    missing: Sequence[str] = (),
    moved: Mapping[str, int] | None = None,
) -> Response:
    protocol, statements = visit.protocol, visit.site.renderer.statements
    shown, total = protocol.practice[number - 1], len(protocol.practice)
    place = shown.context, shown.answer, shown.context.find(shown.answer)
    end = "/screened" if visit.known.practice == "failed" else "/task"
    return visit.page(
        "item",
        422 if missing else 200,
        form="" if fixed else "rating",
        fault=bool(missing),
        heading=visit.texts("practice_heading", position=number, total=total),
        total=total,
        done=number - 1 + fixed,
        is_practice=True,
        is_test=protocol.practice_passes > 0,
        item=shown_item("", *place, shown.question, protocol.language),
        statements=statements(values or {}, missing=missing, fixed=fixed, moved=moved),
        action=f"/practice/{number}",
        comment=shown.comment if fixed else None,
        after=f"/practice/{number + 1}" if number < total else end,
    )


ROUTES: Routes = (
    ("GET", "/", landing),
    ("POST", "/begin", begin),
    ("GET", "/s/{study:path}", from_panel),
    ("GET", "/invite/{token}", invited),
    ("GET", "/next", lambda visit: redirect(place_of(visit))),
    ("GET", "/consent", consent),
    ("POST", "/consent", answer_consent),
    ("GET", "/declined", declined),
    ("GET", "/instructions", instructions),
    ("POST", "/instructions", understood),
    ("GET", "/practice/{number:int}", practice),
    ("POST", "/practice/{number:int}", answer_practice),
    ("GET", "/screened", screened),
)
