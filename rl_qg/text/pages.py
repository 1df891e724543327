"""HTML pages from packaged templates, all in one style; a page is one file that loads nothing."""

from dataclasses import dataclass
from importlib import resources

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from rl_qg.text.tables import column_kinds

SHARED = ("page_style.css", "page_tables.html")


@dataclass(frozen=True)
class Plot:
    """A drawing as SVG. `legend` has (label, CSS variable, whether drawn as dots) for each series."""

    title: str
    note: str
    legend: tuple[tuple[str, str, bool], ...]
    svg: Markup


def page_environment(package: str, *templates: str) -> Environment:
    """The templates of a package, with what all pages share: the style, included as `page_style.css`, and the tables,
    imported from `page_tables.html`.

    Text is escaped, and a name that a template does not know is an error.
    """
    files = dict.fromkeys(SHARED, "rl_qg.text") | dict.fromkeys(templates, package)
    texts = {name: resources.files(owner).joinpath(name).read_text(encoding="utf-8") for name, owner in files.items()}
    environment = Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["column_kinds"] = column_kinds
    return environment
