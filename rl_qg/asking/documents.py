"""The text of documents: plain text, Markdown, HTML, PDF, and standard input."""

import codecs
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import Any

from rl_qg.data.formats import existing_file, first_line
from rl_qg.runtime.errors import InputError
from rl_qg.text.words import counted

STANDARD_INPUT = "-"
BLOCKS = (
    *("address", "article", "aside", "blockquote", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption"),
    *("figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p"),
    *("pre", "section", "summary", "table", "td", "th", "tr", "ul"),
)
"""HTML elements that begin and end a paragraph."""

HIDDEN = ("head", "script", "style", "template", "noscript", "svg", "nav", "button", "select", "textarea")
"""HTML elements whose text nobody reads as a text."""


@dataclass(frozen=True)
class Document:
    """A text with its name, which is that of its file without the ending."""

    name: str
    text: str


def read_document(source: str) -> Document:
    """The text of a file, or of standard input (`-`). Paragraphs end with a blank line.

    Raises:
        InputError: there is no such file; it is of another kind, broken, encrypted or not in its encoding; it holds
            no text; or the library that reads it is not installed.
    """
    if source == STANDARD_INPUT:
        return _checked("standard input", "stdin", _plain(sys.stdin.buffer.read(), "standard input"))
    path = existing_file(source)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{source}: unknown kind of document; give {', '.join(_READERS)}, or - for standard input")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror}); check the file") from None
    return _checked(source, path.stem, reader(content, source))


def _checked(source: str, name: str, text: str) -> Document:
    if not text.strip():
        raise InputError(f"{source}: holds no text; give another document")
    return Document(name, text)


def _plain(content: bytes, source: str, encoding: str = "utf-8") -> str:
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        hint = "; save it as UTF-8" if encoding == "utf-8" else ", which it declares; correct that"
        raise InputError(f"{source}: not {encoding.upper()} text (byte {error.start}){hint}") from None
    except (LookupError, UnicodeError):  # the second: `undefined`, a codec that refuses every text
        raise InputError(f"{source}: declares the unknown encoding {encoding!r}; save it as UTF-8") from None
    if "\0" in text:
        raise InputError(f"{source}: no text (it has zero bytes); save it as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _markdown(content: bytes, source: str) -> str:
    parser = _library("markdown_it", "markdown-it-py").MarkdownIt("commonmark").enable("table")
    return _visible_text(parser.render(_plain(content, source)))


def _html(content: bytes, source: str) -> str:
    dammit = _library("bs4.dammit", "beautifulsoup4")
    marks = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    encoding = next((name for mark, name in marks.items() if content.startswith(mark)), None)
    encoding = encoding or dammit.EncodingDetector.find_declared_encoding(content, is_html=True) or "utf-8"
    return _visible_text(_plain(content, source, encoding.lower()))


def _visible_text(html: str) -> str:
    """The text of a page, without what is not read as text; elements in `BLOCKS` are paragraphs."""
    soup = _library("bs4", "beautifulsoup4").BeautifulSoup(html, "html.parser")
    for element in soup.find_all(HIDDEN):
        element.decompose()
    for element in soup.find_all("br"):
        element.replace_with(" ")
    for element in soup.find_all(BLOCKS):
        element.insert_before("\0")
        element.append("\0")
    paragraphs = (" ".join(part.split()) for part in soup.get_text().split("\0"))
    return "\n\n".join(filter(None, paragraphs))


def _pdf(content: bytes, source: str) -> str:
    """The text of the pages; lines are joined, because a PDF has line ends where the page ends."""
    pypdf = _library("pypdf", "pypdf")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns about every repair
    try:
        reader = pypdf.PdfReader(BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{source}: the PDF is encrypted; save it without a password")
        pages = [page.extract_text() for page in reader.pages]
    except InputError:
        raise
    except Exception as error:  # pypdf raises errors of many types for broken files
        reason = first_line(error) or type(error).__name__
        raise InputError(f"{source}: no PDF that can be read ({reason}); save it again") from None
    if not any(page.strip() for page in pages):
        number = counted(len(pages), "page")
        raise InputError(f"{source}: no text in its {number}, as in a scanned document; recognise its text first")
    # Half a character of a damaged font table is no Unicode text; it is shown as such.
    texts = (page.encode("utf-8", "replace").decode() for page in pages)
    return "\n\n".join(filter(None, (_without_line_ends(text) for text in texts)))


def _without_line_ends(page: str) -> str:
    """Lines joined, and words that a hyphen divides at the end of a line; blank lines stay."""
    joined = re.sub(r"(?<=[^\W\d_])-\n(?=[a-zß-ÿ])", "", page.replace("\0", ""))
    return "\n\n".join(filter(None, (" ".join(part.split()) for part in re.split(r"\n\s*\n", joined))))


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f'{package} is not installed; install it: pip install "rl-qg[documents]"') from None


_READERS: dict[str, Callable[[bytes, str], str]] = {
    **dict.fromkeys((".txt", ".text"), _plain),
    **dict.fromkeys((".md", ".markdown"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    ".pdf": _pdf,
}
