"""The language of the pages: texts from catalogues, which language a visitor gets, and texts with their language."""

import json
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from rl_qg.rating.protocol import Texts
from rl_qg.runtime.errors import InputError

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
        """`ltr` or `rtl`."""
        return direction_of(self.language)

    def __call__(self, key: str, **values: object) -> str:
        """A text with its places filled."""
        return self[key].format(**values)


@dataclass(frozen=True)
class LocalText:
    """A text and the language that it is in, which may differ from the page's."""

    text: str
    language: str

    @property
    def direction(self) -> str:
        """`ltr` or `rtl`."""
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
    """The catalogues of a folder (`page_files/languages`), by language code, `en` first.

    Raises:
        InputError: one lacks a key or has one more than the first, or a text has other places.
    """
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
    """The names between braces in a text."""
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
