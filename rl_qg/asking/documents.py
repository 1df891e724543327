"""Documents: their text, its division into passages, and the formats of what was asked about them."""

import codecs
import logging
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from io import BytesIO
from itertools import compress, filterfalse, pairwise, starmap
from typing import Any

from rewards.errors import first_line
from rewards.words import is_unspaced
from rl_qg.data.formats import existing_file
from rl_qg.runtime.errors import InputError
from rl_qg.text.spans import PARAGRAPH_END, sentences, stripped
from rl_qg.text.words import counted

STANDARD_INPUT = "-"
# HTML elements that begin and end a paragraph, and those whose text nobody reads as a text.
BLOCKS = (
    "address article aside blockquote dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
    "header hr li main nav ol p pre section summary table td th tr ul"
).split()
HIDDEN = "head script style template noscript svg nav aside footer dialog button select textarea annotation".split()
HIDDEN_ROLES = "navigation banner contentinfo complementary dialog search".split()
SECTION_SIGNS = ("¶", "§", "#")  # links of headings to themselves
LONGEST_LINE = 160  # characters; where lines are longer, each is a paragraph
LONGEST_HEADING = 80  # characters
MOST_RUNNING_LINES = 3  # of the headers of a page, and of its footers
PARAGRAPH, SEPARATOR = "\n\n", "\u2029"  # between paragraphs; the second is Unicode's, of one character
FULL = 0.8  # of the width of a text, from which on a line that ends may be continued in the next

_SENTENCE_ENDS = ".!?…。！？।؟\"'”’»)]」』"
_WORD_END = re.compile(r"\s+")
_ITEM = re.compile(r"(?:\(?[a-z\d]{1,2}\)|\d{1,2}\.|[-*])\s|•")  # how an item of a list begins
# `[12]` after the end of a sentence; elsewhere it may be code.
_CITATION = re.compile(r"""((?:(?<=\w\w)[.!?]|[…。！？।؟])["'”’»)]?)(?:\[\^?\d{1,3}(?:[,–-] ?\d{1,3})*\])+(?=\s|\Z)""")
_FRONT_MATTER = re.compile(r"\A---\n(?=\w[\w-]*:)(?:(?!---\n).+\n)+---\n")
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)")  # of a page, perhaps
SOFT_HYPHEN = "\xad"
# What is printed for letters: words with it are other words for a model.
_PRINTED = {ord(SOFT_HYPHEN): ""} | {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
# Codecs of Python that no page is written in, some of which take quadratic time.
AS_BROWSERS = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
AS_BROWSERS |= {"euc_kr": "cp949", "iso8859-9": "cp1254"}  # what a label of the HTML standard means
OF_PYTHON = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7"})
_DECLARED = re.compile(r"""(?i)<(?:meta\b[^<>]*?\bcharset|\?xml\b[^<>]*?\bencoding)\s*=\s*["']?([\w.:-]+)""")

Sizes = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True)
class TextPassage:
    """A part of a text: `text` stands at character `start` of it."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def paragraphs(text: str) -> list[TextPassage]:
    """The paragraphs of a text, between blank lines; one that ends as no sentence does is part of the next."""
    return [TextPassage(text[start:end], start) for start, end in stripped(text, _paragraph_parts(text))]


def _paragraph_parts(text: str) -> list[tuple[int, int]]:
    """Start and end of each of the `paragraphs`, with the white space between them."""
    parts = _between(PARAGRAPH_END, text)
    ends = (end for start, end in parts if text[start:end].rstrip().endswith(tuple(_SENTENCE_ENDS)))
    return list(pairwise(sorted({0, *ends, len(text)})))


def with_full_stops(text: str, place: int) -> tuple[str, int]:
    """A text with a full stop after each heading and item, so that a model does not read it as the beginning of the
    next sentence; and where character number `place` then is.

    These are the paragraphs of at most `LONGEST_HEADING` characters that end with a letter or figure, before others.
    """
    pieces, moved = list[str](), place
    for start, end in pairwise([0, *(match.start() for match in PARAGRAPH_END.finditer(text)), len(text)]):
        part = text[start:end]
        heading = part.strip()
        stops = 0 < len(heading) <= LONGEST_HEADING and end < len(text) and heading[-1].isalnum()
        stops = stops and not is_unspaced(heading[-1])
        pieces.append(f"{part}." if stops else part)
        moved += stops and end <= place
    return "".join(pieces).replace(SEPARATOR, "\n"), moved


def cut_text(text: str, size_of: Sizes, limit: int) -> list[TextPassage]:
    """The passages of a text, in order, none of them blank: the whole text if it fits, else as many whole paragraphs
    as fit, of a paragraph that is too long as many whole sentences, and of such a sentence as many words (a single
    word may be larger than the limit).

    Passages do not overlap, hold all but white space of the text, and neither begin nor end with white space.
    `size_of` gives the sizes of several texts, such as their numbers of tokens; the size of a text is taken as the sum
    of those of its parts.
    """
    parts = stripped(text, _cut(text, 0, len(text), size_of, limit, 0))
    return [TextPassage(text[start:end], start) for start, end in parts]


def _cut(text: str, start: int, end: int, size_of: Sizes, limit: int, level: int) -> Iterator[tuple[int, int]]:
    """Neighbouring parts of one level (paragraphs, sentences, words) joined up to the limit."""
    if size_of([text[start:end]])[0] <= limit or level == len(_LEVELS):
        yield start, end
        return
    parts = [(start + first, start + last) for first, last in _LEVELS[level](text[start:end])]
    sizes = size_of([text[first:last] for first, last in parts])
    begin, filled = start, 0
    for (first, last), size in zip(parts, sizes, strict=True):
        if begin < first and filled + size > limit:
            yield begin, first
            begin, filled = first, 0
        if size > limit:
            yield from _cut(text, first, last, size_of, limit, level + 1)
            begin, filled = last, 0
        else:
            filled += size
    if begin < end:
        yield begin, end


def _between(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """The parts of a text between ends that a pattern finds; they cover it."""
    return list(pairwise(sorted({0, *(match.end() for match in pattern.finditer(text)), len(text)})))


_LEVELS: Sequence[Callable[[str], list[tuple[int, int]]]] = (_paragraph_parts, sentences, partial(_between, _WORD_END))


@dataclass(frozen=True)
class Document:
    """A text with its name, which is that of its file without the ending."""

    name: str
    text: str


def read_document(source: str) -> Document:
    """A file, or standard input (`-`), as text whose paragraphs end with a blank line. `InputError`: it has none."""
    if source == STANDARD_INPUT:
        source, name = "standard input", "stdin"
        text = _unwrapped(_plain(sys.stdin.buffer.read(), source))
    else:
        path = existing_file(source)
        name, reader = path.stem, _READERS.get(path.suffix.lower())
        if reader is None:
            known = ", ".join(_READERS)
            raise InputError(f"{source}: unknown kind of document; give {known}, or - for standard input")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{source}: cannot be read ({error.strerror}); check the file") from None
        text = reader(content, source)
    text = _CITATION.sub(r"\1", unicodedata.normalize("NFC", text).translate(_PRINTED))
    if not text.strip():
        raise InputError(f"{source}: holds no text; give another document")
    return Document(name, text)


def _unwrapped(text: str) -> str:
    """The text with the lines of each paragraph joined, and blank lines between paragraphs."""
    joined = "".join(" ".join(line.split()) + end for line, end in _lines(text))
    return re.sub(r"\n{3,}", "\n\n", joined).strip()


@lru_cache(1 << 4)  # each passage of a text asks for it
def with_separators(text: str) -> str:
    """The text with a space for each line end within a paragraph and a `SEPARATOR` for one that ends a paragraph and
    is not beside a blank line. So a text is read as a file of it, and every character keeps its place.
    """
    return "".join(line + (SEPARATOR if end == PARAGRAPH else end or " ") for line, end in _lines(text))[: len(text)]


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a text, each with what is to stand after it: a line feed beside a blank line.

    A line that ends although the next word would have had room ends a paragraph (a heading, a line of an address), but
    not before a small letter.
    """
    lines = text.split("\n")
    stripped_lines = [" ".join(line.split()) for line in lines]
    lengths = sorted(map(len, filter(None, stripped_lines)))
    width = lengths[len(lengths) * 9 // 10] if lengths else 0  # a few may be longer

    def end(line: str, following: str) -> str:
        if not line or not following:
            return "\n"
        unspaced = is_unspaced(following[0])
        needed = len(line) + (1 if unspaced else 1 + len(following.split()[0]))
        has_room = not following[0].islower() and (width > LONGEST_LINE or needed < FULL * width)
        if has_room or _ITEM.match(following):
            return PARAGRAPH
        return "" if line[-1] == SOFT_HYPHEN or (unspaced and is_unspaced(line[-1])) else " "

    return zip(lines, starmap(end, pairwise([*stripped_lines, ""])), strict=True)


def line_feeds(text: str) -> str:
    """The text with line feeds alone as line ends; browsers send forms with CR LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _plain(content: bytes, source: str, encoding: str = "utf-8") -> str:
    try:
        if codecs.lookup(encoding).name in OF_PYTHON:
            raise LookupError
        name = AS_BROWSERS.get(codecs.lookup(encoding).name, encoding)
        errors = "replace" if name == "cp1252" else "strict"  # five of its bytes mean nothing
        text = content.decode("utf-8-sig" if encoding == "utf-8" else name, errors)
    except UnicodeDecodeError as error:
        hint = "; save it as UTF-8" if encoding == "utf-8" else ", which it declares; correct that"
        raise InputError(f"{source}: not {encoding.upper()} text (byte {error.start}){hint}") from None
    except (LookupError, UnicodeError):  # the second: `undefined`, a codec that refuses every text
        raise InputError(f"{source}: declares the unknown encoding {encoding!r}; save it as UTF-8") from None
    if "\0" in text:
        raise InputError(f"{source}: no text (it has zero bytes); save it as UTF-8")
    return line_feeds(text)


def _markdown(content: bytes, source: str) -> str:
    parser = _library("markdown_it", "markdown-it-py").MarkdownIt("commonmark").enable("table")
    return _visible_text(parser.render(_FRONT_MATTER.sub("", _plain(content, source))), source)


def _html(content: bytes, source: str) -> str:
    marks = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    encoding = next((name for mark, name in marks.items() if content.startswith(mark)), None)
    declared = _DECLARED.search(content[:1024].decode("latin-1"))  # so far the HTML standard looks
    return _visible_text(_plain(content, source, encoding or (declared[1].lower() if declared else "utf-8")), source)


def _visible_text(html: str, source: str) -> str:
    """The text of a page, of its main part where it names one, without what is not read as text; elements in `BLOCKS`
    and rows of tables are paragraphs.
    """
    etree = _library("lxml.etree", "lxml")
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    page = etree.fromstring(html.encode() or b" ", parser)
    if any("depth" in error.message for error in parser.error_log):
        raise InputError(f"{source}: its elements are nested too deeply to be read; give its text as a .txt file")
    if page is None:
        return ""
    rows, main = _rows(page), _main(page)
    found = ("" if main is None else _text(main, rows)).strip("\0 \n\t") or _text(page, rows)
    return "\n\n".join(filter(None, (" ".join(part.split()) for part in found.split("\0"))))


def _main(page: Any) -> Any:
    """The first visible element `main`; None where there is none."""
    walk = _library("lxml.etree", "lxml").iterwalk(page, events=("start",))
    for _, element in walk:
        if _is_hidden(element):
            walk.skip_subtree()
        elif element.tag == "main":
            return element
    return None


def _is_hidden(element: Any) -> bool:
    style = "".join(element.get("style", "").split()).lower()
    # Wikipedia shows formulas although their own style says otherwise, and some pages show themselves by a script.
    shown = "display:none" not in style or element.tag == "body" or element.find("math") is not None
    to_itself = element.tag == "a" and element.get("href", "").startswith("#") and not len(element)
    shown &= not (to_itself and (element.text or "").strip() in SECTION_SIGNS)
    return element.tag in HIDDEN or element.get("role") in HIDDEN_ROLES or "hidden" in element.attrib or not shown


def _text(page: Any, rows: Mapping[Any, str]) -> str:
    """The text of an element with NUL characters at both ends of each block; `rows` have their text already."""
    parts: list[str] = []
    walk = _library("lxml.etree", "lxml").iterwalk(page, events=("start", "end"))
    for event, element in walk:
        is_start = event == "start"
        if element.tag in BLOCKS:
            parts.append("\0")
        if is_start and (element in rows or _is_hidden(element)):
            parts.append(rows.get(element, ""))
            walk.skip_subtree()
        elif is_start:
            parts.append(" " if element.tag == "br" else element.text or "")
        elif element is not page:
            parts.append(element.tail or "")
    return "".join(parts)


def _rows(page: Any) -> dict[Any, str]:
    """The rows of tables as sentences: `Weight: 2 kg.`, of more than two columns with their names. Not those of tables
    for the layout, which have blocks within their cells.
    """
    found: dict[Any, str] = {}
    for table in page.iter("table"):
        names: list[str] = []
        if any(block is not cell for cell in table.iter("td", "th") for block in cell.iter(BLOCKS)):
            continue
        for row in filterfalse(_is_hidden, table.iter("tr")):
            cells = list(row.iter("td", "th"))
            texts = [" ".join(_text(cell, {}).strip("\0").split()) for cell in cells]
            if len(cells) > 1 and all(cell.tag == "th" for cell in cells):
                names, found[row] = texts, ""
            elif len(cells) > 1:
                named = len(texts) > 2 and len(names) == len(texts)
                parts = [": ".join(pair) for pair in zip(names, texts, strict=True) if pair[1]] if named else texts[1:]
                found[row] = ("" if named else f"{texts[0]}: ") + "; ".join(parts) + "."
    return found


def _pdf(content: bytes, source: str) -> str:
    """The text of the pages; lines are joined, because a PDF has line ends where the line of the page ends."""
    pypdf = _library("pypdf", "pypdf")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns about every repair
    try:
        reader = pypdf.PdfReader(BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{source}: the PDF is encrypted; save it without a password")
        pages = _page_texts(reader.pages, source)
    except InputError:
        raise
    except Exception as error:  # pypdf raises errors of many types for broken files
        raise InputError(f"{source}: no PDF that can be read ({first_line(error)}); save it again") from None
    if not any(page.strip() for page in pages):
        number = counted(len(pages), "page")
        raise InputError(f"{source}: no text in its {number}, as in a scanned document; recognise its text first")
    # Half a character of a damaged font table is no Unicode text; it is shown as such.
    texts = (page.encode("utf-8", "replace").decode() for page in _without_running_lines(pages))
    # A paragraph may go on on the next page, and a hyphen divides words at the end of a line.
    lines = re.sub(r"(?<=[^\W\d_])[-\u2010]\n(?=[a-zß-ÿ\ufb00-\ufb06])", "\0\n", "\n".join(texts).replace("\0", ""))
    return _unwrapped(lines).replace("\0 ", "").replace("\0", "-")


def _without_running_lines(pages: Sequence[str]) -> list[str]:
    """Pages without headers, footers and numbers: lines at the same end of pages next to each other, or next but one,
    that are alike, or have a number that rises as that of the page. The first line of all may be a title.
    """
    lines = [[" ".join(line.split()) for line in page.strip().split("\n")] for page in pages]
    for end in (0, -1) * MOST_RUNNING_LINES:
        keys = [set(_kept_from_page_to_page(own[end], at)) for at, own in enumerate(lines)]
        near = [set().union(*keys[max(0, at - 2) : at], *keys[at + 1 : at + 3]) for at in range(len(keys))]
        running = [not own.isdisjoint(others) for own, others in zip(keys, near, strict=True)]
        running[0] = running[0] and (end == -1 or lines[0][0] not in near[0])
        for own in compress(lines, running):
            own[end] = ""
        lines = ["\n".join(own).strip("\n").split("\n") for own in lines]
    bare = ["\n".join(own) for own in lines]
    return bare if any(bare) else list(pages)


def _kept_from_page_to_page(line: str, page: int) -> Iterator[Any]:
    """What pages share if this line runs through them: itself, or itself with one of its numbers less the page's."""
    is_short = len(line) <= LONGEST_LINE
    if is_short and any(letter.isalpha() for letter in line):
        yield line
    for number in _NUMBER.finditer(line) if is_short else ():
        yield line[: number.start()], int(number[0]) - page, line[number.end() :]


MOST_PDF_BYTES, MOST_PDF_STEPS = 30_000_000, 4_000_000  # of what draws all pages: read in a minute or so


def _page_texts(pages: Sequence[Any], source: str) -> list[str]:
    """The text of each page of a PDF; refuses one whose pages share large or nested drawings, which may take hours."""
    size, steps, texts = 0, 0, []

    def step(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if size > MOST_PDF_BYTES or steps > MOST_PDF_STEPS:
            raise InputError(f"{source}: its pages take too long to be drawn; give its text as a .txt file")

    for page in pages:
        content = page.get_contents()
        size += len(content.get_data()) if content is not None else 0
        step()
        texts.append(page.extract_text(visitor_operand_before=step))
        step()  # pypdf passes over what is raised within a nested drawing
    return texts


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f'{package} is not installed; install it: pip install "rl-qg[documents]"') from None


_READERS: dict[str, Callable[[bytes, str], str]] = {
    **dict.fromkeys((".txt", ".text"), lambda content, source: _unwrapped(_plain(content, source))),
    **dict.fromkeys((".md", ".markdown"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    ".pdf": _pdf,
}
