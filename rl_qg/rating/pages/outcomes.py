"""What raters get when they are done: a code, the way back to the panel, or a page that says why it ends here."""

from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from rl_qg.rating.pages.rendering import Renderer
from rl_qg.rating.study.store import Store
from rl_qg.rating.study.store_records import COMPLETED, FULL, NO_CONSENT, SCREENED_OUT, Rater
from rl_qg.settings.rating import RateServeSettings

PAGES = {COMPLETED: "done", NO_CONSENT: "declined", SCREENED_OUT: "screened", FULL: "full"}
OWN_CODES = (COMPLETED,)  # of each assignment; the others are of the whole study, since nobody has a task


@dataclass(frozen=True)
class Outcome:
    """The code that a rater shows and the address to go back to; "" for none."""

    code: str
    url: str
    of_panel: bool = False  # the code is asked for on the page that the rater came from


class Outcomes:
    """Codes and ways back, by kind.

    Args:
        store: makes the codes that the settings do not name.
        settings: codes, addresses, and the panel whose people they are for.
        renderer: of pages.
    """

    def __init__(self, store: Store, settings: RateServeSettings, renderer: Renderer) -> None:
        self._store, self._settings, self._renderer = store, settings, renderer
        self._urls, self._codes = settings.completion_urls(), dict(settings.codes or {})

    def of(self, rater: Rater, kind: str, assignment: str | None = None) -> Outcome:
        """Code and address. Volunteers and the invited have a code for completed tasks alone, and nowhere to go."""
        of_panel = rater.panel == self._settings.panel
        if not of_panel and kind != COMPLETED:
            return Outcome("", "")
        code = self._codes.get(kind) or self._store.code(assignment if kind in OWN_CODES else None, kind)
        url = self._urls.get(kind, "") if of_panel else ""
        return Outcome(code, url.replace("{code}", quote(code, safe="")), of_panel)

    def leave(self, rater: Rater, kind: str, assignment: str | None = None) -> Response | None:
        """To the panel at once where the settings say so; else None."""
        if not self._settings.redirect:
            return None
        url = self.of(rater, kind, assignment).url
        return RedirectResponse(url, 303) if url else None

    def page(
        self, rater: Rater, kind: str, language: str, assignment: str | None = None, *, more: bool = False
    ) -> Response:
        """The last page: what it ends with, the code, and a link back."""
        texts, name = self._renderer.catalogue(language), PAGES[kind]
        return self._renderer.page(
            "done",
            language,
            heading=texts[f"{name}_heading"],
            text=texts[f"{name}_text"],
            outcome=self.of(rater, kind, assignment),
            more=more,
        )
