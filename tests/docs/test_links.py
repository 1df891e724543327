"""Links and paths in the documentation, in comments and in messages lead somewhere."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT, without_code

LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<path>[^)\s#]*)(?:#(?P<anchor>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
NAMED_PAGE = re.compile(r"\bdocs/[\w/-]+\.(?:md|png)\b")
NAMED_PATH = re.compile(r"`((?:rl_qg|rewards|configs|experiments|tests|docs)/[\w./<>*-]*)`")
SOURCES = ("rl_qg", "rewards", "configs", "experiments", "tests")
OUTLINES = ("CONTRIBUTING.md", "docs/architecture.md")


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = [] if page.suffix != ".md" else HEADING.findall(without_code(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert not [link[0] for link in LINK.finditer(without_code(page)) if not leads_somewhere(page, link)]


def leads_somewhere(page: Path, link: re.Match[str]) -> bool:
    target = (page.parent / link["path"]).resolve() if link["path"] else page
    return target.is_relative_to(ROOT) and target.exists() and link["anchor"] in (None, *anchors(target))


def test_pages_named_in_sources_exist() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), page)
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yaml", ".md", ".html", ".sh")
        for page in NAMED_PAGE.findall(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert not {(source, page) for source, page in named if not (ROOT / page).exists()}


@pytest.mark.parametrize("page", OUTLINES)
def test_paths_named_in_the_outlines_exist(page: str) -> None:
    named = set(NAMED_PATH.findall((ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > 20
    assert not {path for path in named if not list(ROOT.glob(re.sub(r"<\w+>", "*", path.rstrip("/"))))}


def test_names_in_contributing_are_where_it_says() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)` of `([\w/]+\.py)`", text)
    assert {name for name, _ in named} >= {"METRICS", "FILTERS", "CandidateGenerator", "Settings"}
    assert not [(name, path) for name, path in named if name not in (ROOT / path).read_text(encoding="utf-8")]


def test_prose_lines_are_short() -> None:
    """Tables, commands, headings and comments may be longer."""
    long = []
    for page in PAGES:
        for number, line in enumerate(re.sub(r"<!--.*?-->", "", without_code(page), flags=re.DOTALL).splitlines(), 1):
            if len(line) >= 120 and not line.startswith(("|", "#", "    ", "![")):
                long.append(f"{page.relative_to(ROOT)}, without its code and comments, line {number}")
    assert not long
