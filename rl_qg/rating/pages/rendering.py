"""Pages from templates: what every page has, and what an item and its statements look like to a template."""

import json
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from jinja2 import Template
from starlette.responses import HTMLResponse, Response

from rl_qg.pages.results import page_environment
from rl_qg.rating.plan_files import Hit, Item, StudyPlan
from rl_qg.rating.protocol import SLIDER, Criterion, Practice, Texts
from rl_qg.runtime.errors import InputError
from rl_qg.web.requests import page_files

# --- The language of the pages, and texts with their language ---

RIGHT_TO_LEFT = frozenset({"ar", "arc", "ckb", "dv", "fa", "he", "ks", "ps", "sd", "ug", "ur", "yi"})
FIRST = "en"  # the catalogue that the others are compared with


class Catalogue(dict[str, str]):
    """The texts of one language by key.

    An unknown key is a `KeyError`.
    """

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        self.language = language

    @property
    def direction(self) -> str:
        return direction_of(self.language)

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
        """The text at its blank lines."""
        return [part.strip() for part in self.text.split("\n\n") if part.strip()]


def direction_of(language: str) -> str:
    """Which way a language is written: `ltr` or `rtl`."""
    return "rtl" if language.split("-")[0].lower() in RIGHT_TO_LEFT else "ltr"


def local_text(texts: Texts, language: str, fallback: str) -> LocalText:
    """A text in a language; where it has none, in `fallback`, else in the first one given."""
    for code in (language, fallback, *texts):
        if texts.get(code):
            return LocalText(texts[code], code)
    return LocalText("", language)


def load_catalogues(folder: Traversable | None = None) -> dict[str, Catalogue]:
    """The catalogues of a folder (`page_files/languages`), by language code, `en` first."""
    folder = folder or resources.files("rl_qg.rating.pages").joinpath("page_files", "languages")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".json")),
        key=lambda file: (file.name != f"{FIRST}.json", file.name),
    )
    catalogues = {}
    for file in files:
        code = file.name.removesuffix(".json")
        catalogues[code] = Catalogue(code, json.loads(file.read_text(encoding="utf-8")))
    if FIRST not in catalogues:
        raise InputError(f"{folder}: has no {FIRST}.json, which the other languages are compared with")
    for code, catalogue in catalogues.items():
        _check(f"{folder}/{code}.json", catalogue, catalogues[FIRST])
    return catalogues


def chosen_language(known: Iterable[str], asked: Iterable[str | None], accepts: str, default: str) -> str:
    """The language of a page: the first of `asked` that is known, else the best of the header Accept-Language, else
    `default`.
    """
    codes = list(known)
    for code in asked:
        if code in codes:
            return str(code)
    for code in _accepted(accepts):
        if code in codes:
            return code
    return default


def _accepted(header: str) -> list[str]:
    """Language codes without regions of a header Accept-Language, best first (RFC 9110, 12.5.4)."""
    weighed = []
    for number, entry in enumerate(header[:1000].split(",")):
        tag, _, weight = entry.partition(";")
        try:
            quality = float(weight.strip().removeprefix("q=")) if weight.strip() else 1.0
        except ValueError:
            continue
        if quality > 0:
            weighed.append((-quality, number, tag.strip().split("-")[0].lower()))
    return [code for _, _, code in sorted(weighed)]


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def _check(where: str, catalogue: Catalogue, first: Catalogue) -> None:
    for key in [*first, *catalogue]:
        if key not in catalogue:
            raise InputError(f"{where}: lacks the text {key}; add it")
        if key not in first:
            raise InputError(f"{where}: has a text {key} that {FIRST}.json lacks; remove it, or add it there")
        if not catalogue[key].strip():
            raise InputError(f"{where}: the text {key} is blank; write it")
        if places(catalogue[key]) != places(first[key]):
            needed = ", ".join(sorted(places(first[key]))) or "none"
            raise InputError(f"{where}: the text {key} must have these places: {needed}")


# --- Pages ---

TEMPLATES = (
    *("shared", "base", "landing", "consent", "instructions", "item", "feedback", "done", "message"),
    *("admin", "admin_login"),
)


@dataclass(frozen=True)
class ShownItem:
    """A question and its passage, cut at both ends of the answer, in the language that they are written in."""

    title: str
    before: str
    answer: str
    after: str
    question: str
    language: str
    marked: bool

    @property
    def direction(self) -> str:
        return direction_of(self.language)


@dataclass(frozen=True)
class Statement:
    """One criterion with what was said of it: `value`, None for nothing yet."""

    number: int  # in the names of fields, from 1
    statement: LocalText
    is_slider: bool
    lowest: int
    highest: int
    low: LocalText
    high: LocalText
    anchors: tuple[tuple[int, LocalText], ...]
    value: int | None
    missing: bool = False
    fixed: bool = False
    moved: int | None = None  # where a slider was left that counts for nothing, since its box was not ticked

    @property
    def stands_at(self) -> int:
        """Where a slider stands: in the middle until it is moved."""
        middle = (self.lowest + self.highest) // 2
        return next((at for at in (self.value, self.moved) if at is not None), middle)


class Renderer:
    """The pages of a study. `default`: the language where a browser asks for none that there is."""

    def __init__(self, plan: StudyPlan, default: str) -> None:
        self.protocol, self.default = plan.protocol, default
        self._places = {
            "{minutes}": str(round(plan.protocol.minutes_per_hit)),
            "{retention_days}": str(plan.retention_days),
        }
        self.catalogues = load_catalogues()
        self._languages = [(code, texts["language_name"]) for code, texts in self.catalogues.items()]
        self._templates = _templates()
        self._assets = _assets()

    def language(self, asked: Iterable[str | None], accepts: str) -> str:
        return chosen_language(self.catalogues, asked, accepts, self.default)

    def local(self, texts: Mapping[str, str], language: str) -> LocalText:
        """A text of the protocol in a language of the interface, or in the protocol's own.

        `{minutes}` of a task and `{retention_days}` are filled in; other braces are left as they are.
        """
        found = local_text(texts, language, self.protocol.language)
        for place, value in self._places.items():
            found = replace(found, text=found.text.replace(place, value))
        return found

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
        """A page.

        Args:
            template: its name, without `.html`.
            language: of the interface.
            status: of HTTP.
            csrf: what its forms send back.
            form: the id of the form whose fields must not be lost when another language is chosen.
            fault: the title begins with "Error".
            values: of the template.
        """
        page = {"title": self.local(self.protocol.title, language), "languages": self._languages}
        page |= {"csrf": csrf, "form": form, "fault": fault}
        content = self._templates[template].render(t=self.catalogues[language], page=page, **values)
        return HTMLResponse(content, status)

    def message(
        self, name: str, language: str, status: int, *, link: str = "", again: Any = None, **values: Any
    ) -> Response:
        """A page that says one thing: the texts `NAME_heading` and `NAME_text` of the catalogue.

        Args:
            name: of the texts.
            language: of the interface.
            status: of HTTP.
            link: where a button leads.
            again: path and fields of a form that is sent again by a button.
            values: of places in the text.
        """
        texts = self.catalogues[language]
        shown = {"heading": texts(f"{name}_heading"), "text": texts(f"{name}_text", **values)}
        return self.page("message", language, status, fault=status >= 400, link=link, again=again, **shown)

    def statements(
        self,
        language: str,
        values: Mapping[str, int],
        *,
        missing: Iterable[str] = (),
        fixed: bool = False,
        moved: Mapping[int, int] | None = None,
    ) -> list[Statement]:
        """The criteria with what was said of them so far, by name; `moved`: where unset sliders stand, by number."""
        names = set(missing)
        return [
            replace(
                self._statement(number, one, language, values.get(one.name)),
                missing=one.name in names,
                fixed=fixed,
                moved=(moved or {}).get(number),
            )
            for number, one in enumerate(self.protocol.criteria, 1)
        ]

    def _statement(self, number: int, one: Criterion, language: str, value: int | None) -> Statement:
        return Statement(
            number=number,
            statement=self.local(one.statement, language),
            is_slider=one.scale == SLIDER,
            lowest=one.lowest,
            highest=one.highest,
            low=self.local(one.low, language),
            high=self.local(one.high, language),
            anchors=tuple((anchor, self.local(meaning, language)) for anchor, meaning in one.anchors),
            value=value,
        )

    def asset(self, name: str, known: str) -> Response:
        """A file that pages load; 304 where the browser has it, 404 where there is none."""
        if name not in self._assets:
            return Response(status_code=404)
        content, kind, tag = self._assets[name]
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        if tag in known:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)


def shown_item(hit: Hit, item: Item) -> ShownItem:
    """What a rater sees of an item: neither its kind nor who asked."""
    passage = hit.passages[item.passage]
    return _cut(passage.title, passage.context, item.answer, item.answer_start, item.question, hit.language)


def shown_practice(practice: Practice, language: str) -> ShownItem:
    """A practice question like an item; its answer is marked where it first stands."""
    start = practice.context.find(practice.answer) if practice.answer else -1
    return _cut("", practice.context, practice.answer, start if start >= 0 else None, practice.question, language)


def _cut(title: str, context: str, answer: str, start: int | None, question: str, language: str) -> ShownItem:
    if start is None or not answer:
        return ShownItem(title, context, "", "", question, language, marked=False)
    end = start + len(answer)
    return ShownItem(title, context[:start], context[start:end], context[end:], question, language, marked=True)


@cache
def _templates() -> dict[str, Template]:
    environment = page_environment("rl_qg.rating.pages", *(f"page_files/{name}.html" for name in TEMPLATES))
    return {name: environment.get_template(f"page_files/{name}.html") for name in TEMPLATES}


@cache
def _assets() -> dict[str, tuple[bytes, str, str]]:
    """Content, media type and entity tag of each file that pages load, by its name."""
    files = page_files("rl_qg.rating.pages")
    return {name: (file, kind, f'"{sha256(file).hexdigest()[:16]}"') for name, (file, kind) in files.items()}
