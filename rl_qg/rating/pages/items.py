"""A task: its items one a screen, feedback, and the end."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from starlette.responses import Response

from rl_qg.rating.pages.arrival import last_page, leave, place_of
from rl_qg.rating.pages.rendering import shown_item
from rl_qg.rating.pages.visits import AUTOSAVE, Routes, Visit, redirect, values_of
from rl_qg.rating.study.records import COMPLETED, EXPIRED, FINISHED, FULL, RETURNED, Assignment, Closed, NotYours


def task(visit: Visit) -> Response:
    """To the first item that is not rated: of the task that the rater has, or of a new one."""
    if (place := place_of(visit)) != "/task":
        return redirect(place)
    finished = _finished(visit)
    if _may_have_more(visit, finished):
        beside, most = visit.site.beside(visit.known), visit.site.settings.address_tasks
        if assignment := visit.store.claim(visit.known.id, beside, most):
            unrated = _unrated(visit, assignment)
            return redirect(f"/task/{assignment.id}/{unrated[0] if unrated else 'feedback'}")
    if finished:
        return redirect(f"/task/{finished[-1].id}/done")
    if visit.store.is_paused():
        return visit.message("paused", 503, link="/task")
    return leave(visit, FULL) or last_page(visit, FULL)


def _finished(visit: Visit) -> list[Assignment]:
    return [one for one in visit.store.assignments_of(visit.known.id) if one.is_finished]


def _may_have_more(visit: Visit, finished: Sequence[Assignment]) -> bool:
    most = visit.site.settings.tasks_per_rater
    return most is None or len(finished) < most


def _unrated(visit: Visit, assignment: Assignment, ratings: Mapping[tuple[int, str], int] | None = None) -> list[int]:
    """The positions of items that lack a rating; `ratings`: of the assignment, where they have been read already."""
    if ratings is None:
        ratings = visit.store.ratings_of(assignment.id, visit.known.id)
    positions = [item.position for item in assignment.hit.items]
    return [at for at in positions if any((at, one.name) not in ratings for one in visit.protocol.criteria)]


def _assignment(visit: Visit) -> Assignment:
    """That of the address; `NotYours` where it is another rater's or none, `Closed` where it was given back."""
    found = visit.store.assignment(visit.request.path_params["assignment"], visit.known.id)
    if found.state == RETURNED:
        raise Closed(found.id)
    return found


def item(visit: Visit) -> Response:
    """One item, with what was said of it. Looking at it is a sign of life, which may give back an expired task."""
    rater, store, assignment = visit.known.id, visit.store, _assignment(visit)
    if assignment.is_finished:
        return redirect(f"/task/{assignment.id}/done")
    position = _position(visit, assignment)
    if assignment.state == EXPIRED:
        store.save(assignment.id, rater, position, {})
        assignment = store.assignment(assignment.id, rater)
    elif position not in assignment.shown:
        store.shown(assignment.id, rater, position)
    ratings = store.ratings_of(assignment.id, rater)
    values = {name: value for (at, name), value in ratings.items() if at == position}
    missing, moved = list[str](), dict[str, int]()
    if "missing" in visit.request.query_params:
        missing = [one.name for one in visit.protocol.criteria if one.name not in values]
        _, moved = values_of(visit.request.query_params, visit.protocol.criteria)
    hit, total = assignment.hit, len(assignment.hit.items)
    one = hit.items[position - 1]
    passage = hit.passages[one.passage]
    return visit.page(
        "item",
        form="rating",
        fault=bool(missing),
        heading=visit.texts("item_progress", position=position, total=total),
        total=total,
        done=total - len(_unrated(visit, assignment, ratings)),
        expired=assignment.state == EXPIRED,
        item=shown_item(passage.title, passage.context, one.answer, one.answer_start, one.question, hit.language),
        statements=visit.site.renderer.statements(values, missing=missing, moved=moved),
        action=f"/task/{assignment.id}/{position}",
        before=position > 1,
    )


def save_item(visit: Visit) -> Response:
    """Keep what was said, then lead to the next item, back, or to what is missing."""
    assignment = _assignment(visit)
    here, is_script = f"/task/{assignment.id}", visit.form.get("action") == AUTOSAVE
    if assignment.is_finished:
        if is_script:
            raise Closed(assignment.id)
        return redirect(f"{here}/done")
    position, criteria = _position(visit, assignment), visit.protocol.criteria
    values, moved = values_of(visit.form, criteria)
    visit.store.save(assignment.id, visit.known.id, position, values)
    if is_script:
        return Response(status_code=204)
    if visit.form.get("lang"):
        return redirect(f"{here}/{position}")
    if visit.form.get("action") == "back":
        return redirect(f"{here}/{max(1, position - 1)}")
    if position in _unrated(visit, assignment):
        stand = {f"value-{at}": moved[one.name] for at, one in enumerate(criteria, 1) if one.name in moved}
        return redirect(f"{here}/{position}?{urlencode({'missing': 1} | stand)}")
    return redirect(f"{here}/{position + 1 if position < len(assignment.hit.items) else 'feedback'}")


def _position(visit: Visit, assignment: Assignment) -> int:
    position = int(visit.request.path_params["position"])
    if not 1 <= position <= len(assignment.hit.items):
        raise NotYours(assignment.id)
    return position


def feedback(visit: Visit) -> Response:
    assignment = _assignment(visit)
    if assignment.is_finished:
        return redirect(f"/task/{assignment.id}/done")
    unrated = _unrated(visit, assignment)
    return visit.page(
        "feedback",
        form="feedback",
        fault=bool(unrated),
        assignment=assignment.id,
        total=len(assignment.hit.items),
        unrated=unrated,
        text=visit.store.feedback_of(assignment.id, visit.known.id),
    )


def submit(visit: Visit) -> Response:
    """Keep the feedback and end the task; the same again leads to the same page."""
    rater, assignment = visit.known.id, _assignment(visit)
    here, text = f"/task/{assignment.id}", visit.form.get("text", "").strip()
    if not assignment.is_finished:
        if text:
            visit.store.add_feedback(assignment.id, rater, text)
        if visit.form.get("action") == "back":
            return redirect(f"{here}/{len(assignment.hit.items)}")
        if visit.form.get("lang") or visit.store.submit(assignment.id, rater) not in FINISHED:
            return redirect(f"{here}/feedback")
    return leave(visit, COMPLETED, assignment.id) or redirect(f"{here}/done")


def done(visit: Visit) -> Response:
    assignment = _assignment(visit)
    if not assignment.is_finished:
        return redirect("/task")
    return last_page(visit, COMPLETED, assignment.id, more=_may_have_more(visit, _finished(visit)))


ROUTES: Routes = (
    ("GET", "/task", task),
    ("GET", "/task/{assignment}/{position:int}", item),
    ("POST", "/task/{assignment}/{position:int}", save_item),
    ("GET", "/task/{assignment}/feedback", feedback),
    ("POST", "/task/{assignment}/feedback", submit),
    ("GET", "/task/{assignment}/done", done),
)
