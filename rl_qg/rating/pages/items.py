"""A task: its items one a screen, feedback, and the end."""

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.responses import Response
from starlette.routing import Route

from rl_qg.rating.pages.arrival import ArrivalPages, Outcomes
from rl_qg.rating.pages.rendering import shown_item
from rl_qg.rating.pages.visits import AUTOSAVE, Endpoints, Visit, redirect, values_of
from rl_qg.rating.study.records import COMPLETED, EXPIRED, FULL, RETURNED, Assignment, Closed, NotYours, Rater


class ItemPages:
    """Items, feedback and the end."""

    def __init__(self, endpoints: Endpoints, arrival: ArrivalPages, outcomes: Outcomes) -> None:
        self._endpoints, self._arrival, self._outcomes = endpoints, arrival, outcomes
        self._store, self._settings, self._renderer = endpoints.store, endpoints.settings, endpoints.renderer
        self._criteria = self._store.plan.protocol.criteria
        self._names = [criterion.name for criterion in self._criteria]

    def routes(self) -> list[Route]:
        page, task = self._endpoints.of, "/task/{assignment}"
        return [
            Route("/task", page(self.task), methods=["GET"]),
            Route(task + "/{position:int}", page(self.item), methods=["GET"]),
            Route(task + "/{position:int}", page(self.save_item), methods=["POST"]),
            Route(task + "/feedback", page(self.feedback), methods=["GET"]),
            Route(task + "/feedback", page(self.submit), methods=["POST"]),
            Route(task + "/done", page(self.done), methods=["GET"]),
        ]

    # --- Which task ---

    def task(self, visit: Visit) -> Response:
        """To the first item that is not rated: of the task that the rater has, or of a new one."""
        rater = visit.known
        if (place := self._arrival.place_of(rater)) != "/task":
            return redirect(place)
        finished = self._finished(rater)
        if self._may_have_more(finished) and (assignment := self._store.claim(rater.id)):
            unrated = self._unrated(assignment, self._store.ratings_of(assignment.id, rater.id))
            return redirect(f"/task/{assignment.id}/{unrated[0] if unrated else 'feedback'}")
        if finished:
            return redirect(f"/task/{finished[-1].id}/done")
        if self._store.is_paused():
            return self._renderer.message("paused", visit.language, 503, link="/task")
        return self._outcomes.leave(rater, FULL) or self._outcomes.page(rater, FULL, visit.language)

    def _finished(self, rater: Rater) -> list[Assignment]:
        return [one for one in self._store.assignments_of(rater.id) if one.is_finished]

    def _may_have_more(self, finished: list[Assignment]) -> bool:
        return self._settings.tasks_per_rater is None or len(finished) < self._settings.tasks_per_rater

    def _unrated(self, assignment: Assignment, ratings: Mapping[tuple[int, str], int]) -> list[int]:
        """The positions of items that lack a rating."""
        positions = [item.position for item in assignment.hit.items]
        return [at for at in positions if any((at, name) not in ratings for name in self._names)]

    def _assignment(self, visit: Visit) -> Assignment:
        """The assignment of the address; `NotYours` where it is another rater's or there is none, `Closed` where it
        was given back.
        """
        found = self._store.assignment(visit.request.path_params["assignment"], visit.known.id)
        if found.state == RETURNED:
            raise Closed(found.id)
        return found

    # --- Items ---

    def item(self, visit: Visit) -> Response:
        """One item, with what was said of it. Looking at it is a sign of life, which may give back an expired task."""
        rater, assignment = visit.known, self._assignment(visit)
        if assignment.is_finished:
            return redirect(f"/task/{assignment.id}/done")
        position = self._position(visit, assignment)
        if assignment.state == EXPIRED:
            self._store.save(assignment.id, rater.id, position, {})
            assignment = self._store.assignment(assignment.id, rater.id)
        elif position not in assignment.shown:
            self._store.shown(assignment.id, rater.id, position)
        ratings = self._store.ratings_of(assignment.id, rater.id)
        values = {name: ratings[position, name] for name in self._names if (position, name) in ratings}
        missing, moved = list[str](), dict[str, int]()
        if "missing" in visit.request.query_params:
            missing = [name for name in self._names if name not in values]
            _, moved = values_of(visit.request.query_params, self._criteria)
        total = len(assignment.hit.items)
        return self._renderer.page(
            "item",
            visit.language,
            csrf=visit.csrf,
            form="rating",
            fault=bool(missing),
            heading=self._renderer.catalogues[visit.language]("item_progress", position=position, total=total),
            total=total,
            done=total - len(self._unrated(assignment, ratings)),
            is_practice=False,
            is_test=False,
            expired=assignment.state == EXPIRED,
            item=shown_item(assignment.hit, assignment.hit.items[position - 1]),
            statements=self._renderer.statements(visit.language, values, missing=missing, moved=moved),
            action=f"/task/{assignment.id}/{position}",
            before=position > 1,
            comment=None,
            after="",
        )

    def save_item(self, visit: Visit) -> Response:
        """Keep what was said, then lead to the next item, back, or to what is missing."""
        rater, assignment = visit.known, self._assignment(visit)
        here, is_script = f"/task/{assignment.id}", visit.form.get("action") == AUTOSAVE
        if assignment.is_finished:
            if is_script:
                raise Closed(assignment.id)
            return redirect(f"{here}/done")
        position = self._position(visit, assignment)
        values, moved = values_of(visit.form, self._criteria)
        self._store.save(assignment.id, rater.id, position, values)
        if is_script:
            return Response(status_code=204)
        if visit.form.get("lang"):
            return redirect(f"{here}/{position}")
        if visit.form.get("action") == "back":
            return redirect(f"{here}/{max(1, position - 1)}")
        if position in self._unrated(assignment, self._store.ratings_of(assignment.id, rater.id)):
            stand = {f"value-{self._names.index(name) + 1}": value for name, value in moved.items()}
            return redirect(f"{here}/{position}?{urlencode({'missing': 1} | stand)}")
        return redirect(f"{here}/{position + 1 if position < len(assignment.hit.items) else 'feedback'}")

    def _position(self, visit: Visit, assignment: Assignment) -> int:
        position = int(visit.request.path_params["position"])
        if not 1 <= position <= len(assignment.hit.items):
            raise NotYours(assignment.id)
        return position

    # --- The end ---

    def feedback(self, visit: Visit) -> Response:
        rater, assignment = visit.known, self._assignment(visit)
        if assignment.is_finished:
            return redirect(f"/task/{assignment.id}/done")
        unrated = self._unrated(assignment, self._store.ratings_of(assignment.id, rater.id))
        return self._renderer.page(
            "feedback",
            visit.language,
            csrf=visit.csrf,
            form="feedback",
            fault=bool(unrated),
            assignment=assignment.id,
            total=len(assignment.hit.items),
            unrated=unrated,
            text=self._store.feedback_of(assignment.id, rater.id),
        )

    def submit(self, visit: Visit) -> Response:
        """Keep the feedback and end the task; the same again leads to the same page."""
        rater, assignment = visit.known, self._assignment(visit)
        here, text = f"/task/{assignment.id}", visit.form.get("text", "").strip()
        if not assignment.is_finished:
            if text:
                self._store.add_feedback(assignment.id, rater.id, text)
            if visit.form.get("action") == "back":
                return redirect(f"{here}/{len(assignment.hit.items)}")
            if visit.form.get("lang") or not self._store.submit(assignment.id, rater.id).done:
                return redirect(f"{here}/feedback")
        return self._outcomes.leave(rater, COMPLETED, assignment.id) or redirect(f"{here}/done")

    def done(self, visit: Visit) -> Response:
        rater, assignment = visit.known, self._assignment(visit)
        if not assignment.is_finished:
            return redirect("/task")
        more = self._may_have_more(self._finished(rater))
        return self._outcomes.page(rater, COMPLETED, visit.language, assignment.id, more=more)
