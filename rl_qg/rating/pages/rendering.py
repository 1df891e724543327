"""Pages from templates: their language, what every page has, and what an item and its statements look like to them."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Template
from starlette.responses import HTMLResponse, Response

from rl_qg.pages.results import page_environment
from rl_qg.rating.plan_files import StudyPlan
from rl_qg.rating.protocol import Texts
from rl_qg.web.requests import page_files

RIGHT_TO_LEFT = frozenset({"ar", "arc", "ckb", "dv", "fa", "he", "ks", "ps", "sd", "ug", "ur", "yi"})


def direction_of(language: str) -> str:
    return "rtl" if language.split("-")[0].lower() in RIGHT_TO_LEFT else "ltr"


class Catalogue(dict[str, str]):
    """The texts of one language by key; an unknown key is a `KeyError`."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        self.language, self.direction = language, direction_of(language)

    def __call__(self, key: str, **values: object) -> str:
        return self[key].format(**values)


@dataclass(frozen=True)
class LocalText:
    """A text and the language that it is in, which may differ from the page's."""

    text: str
    language: str

    @property
    def direction(self) -> str:
        return direction_of(self.language)

    @property
    def paragraphs(self) -> list[str]:
        return [part.strip() for part in self.text.split("\n\n") if part.strip()]


@cache
def load_catalogues() -> dict[str, Catalogue]:
    """The texts of `page_files/languages`, by language code, `en` first."""
    folder = resources.files("rl_qg.rating.pages").joinpath("page_files", "languages")
    names = sorted((file.name for file in folder.iterdir()), key=lambda name: (name != "en.json", name))
    texts = {name.removesuffix(".json"): folder.joinpath(name).read_text(encoding="utf-8") for name in names}
    return {code: Catalogue(code, json.loads(text)) for code, text in texts.items()}


def chosen_language(known: Collection[str], asked: Iterable[str | None], accepts: str, default: str) -> str:
    """The first of `asked` that is known, else the best of Accept-Language (RFC 9110, 12.5.4), else `default`."""
    weighed = []
    for number, entry in enumerate(accepts[:1000].split(",")):
        tag, _, weight = entry.partition(";")
        try:
            quality = float(weight.strip().removeprefix("q=")) if weight.strip() else 1.0
        except ValueError:
            continue
        if quality > 0:
            weighed.append((-quality, number, tag.strip().split("-")[0].lower()))
    codes = (*asked, *(code for _, _, code in sorted(weighed)))
    return next((code for code in codes if code is not None and code in known), default)


class Renderer:
    """The pages of a study."""

    def __init__(self, plan: StudyPlan) -> None:
        self.protocol = plan.protocol
        self.minutes = max(1, round(plan.protocol.minutes_per_hit))  # of a task, in texts
        self._places = {"{minutes}": str(self.minutes), "{retention_days}": str(plan.retention_days)}
        self.catalogues = load_catalogues()
        self._languages = [(code, texts["language_name"]) for code, texts in self.catalogues.items()]
        self._templates = _templates()
        self._assets = _assets()

    def local(self, texts: Texts, language: str) -> LocalText:
        """A text in a language of the interface, else the protocol's own, else the first one given, with `{minutes}`
        and `{retention_days}`.
        """
        code = next((code for code in (language, self.protocol.language, *texts) if texts.get(code)), language)
        text = texts.get(code, "")
        for place, value in self._places.items():
            text = text.replace(place, value)
        return LocalText(text, code)

    def page(
        self,
        template: str,
        language: str,
        status: int = 200,
        *,
        csrf: str = "",
        form: str = "",
        fault: bool = False,
        **values: Any,
    ) -> Response:
        """A page of a template with its values. Its forms send back `csrf`; `form` is the id of the one whose fields
        must not be lost when another language is chosen; with `fault` the title begins with "Error".
        """
        page = {"title": self.local(self.protocol.title, language), "languages": self._languages}
        page |= {"csrf": csrf, "form": form, "fault": fault, "local": partial(self.local, language=language)}
        content = self._templates[template].render(t=self.catalogues[language], page=page, **values)
        return HTMLResponse(content, status)

    def message(
        self, name: str, language: str, status: int, *, link: str = "", again: Any = None, **values: Any
    ) -> Response:
        """A page that says one thing: the texts `NAME_heading` and `NAME_text`, with `values` in its places; with a
        button that leads to `link`, or sends a form `again` (its path and fields). Where one is to wait `seconds`, the
        header says so too.
        """
        texts = self.catalogues[language]
        shown = {"heading": texts(f"{name}_heading"), "text": texts(f"{name}_text", **values)}
        response = self.page("message", language, status, fault=status >= 400, link=link, again=again, **shown)
        if seconds := values.get("seconds"):
            response.headers["Retry-After"] = str(seconds)
        return response

    def statements(
        self,
        values: Mapping[str, int],
        *,
        missing: Collection[str] = (),
        fixed: bool = False,
        moved: Mapping[str, int] | None = None,
    ) -> list[dict[str, Any]]:
        """The criteria with what was said of them so far, by name. Where sliders were left that count for nothing,
        since their box was not ticked, they stand (`moved`); others stand in the middle until they are set.
        """
        stand = values if moved is None else {**moved, **values}
        return [
            {
                "number": number,  # in the names of fields
                "criterion": one,
                "value": values.get(one.name),  # None: nothing was said yet
                "stands_at": stand.get(one.name, one.middle),  # of a slider
                "missing": one.name in missing,
                "fixed": fixed,
            }
            for number, one in enumerate(self.protocol.criteria, 1)
        ]

    def asset(self, name: str, known: str) -> Response:
        """A file that pages load; 304 where the browser has it, 404 where there is none."""
        if name not in self._assets:
            return Response(status_code=404)
        content, kind, tag = self._assets[name]
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        if tag in known:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)


def shown_item(
    title: str, context: str, answer: str, start: int | None, question: str, language: str
) -> dict[str, str]:
    """What a rater sees of a question: neither its kind nor who asked. The passage is cut at both ends of the answer;
    without a place of it (None or -1) all is `before`, and nothing is marked. `language`: of passage and question.
    """
    start, end = (start, start + len(answer)) if answer and start is not None and start >= 0 else (len(context),) * 2
    return {
        **{"title": title, "before": context[:start], "answer": context[start:end], "after": context[end:]},
        **{"question": question, "language": language, "direction": direction_of(language)},
    }


@cache
def _templates() -> dict[str, Template]:
    folder = resources.files("rl_qg.rating.pages").joinpath("page_files")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".html"))
    environment = page_environment("rl_qg.rating.pages", *(f"page_files/{name}" for name in names))
    return {name.removesuffix(".html"): environment.get_template(f"page_files/{name}") for name in names}


@cache
def _assets() -> dict[str, tuple[bytes, str, str]]:
    """Content, media type and entity tag of each file that pages load, by its name."""
    files = page_files("rl_qg.rating.pages")
    return {name: (file, kind, f'"{sha256(file).hexdigest()[:16]}"') for name, (file, kind) in files.items()}
