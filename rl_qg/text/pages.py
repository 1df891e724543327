"""HTML pages from packaged templates, all in one style; a page is one file that loads nothing."""

from importlib import resources

from jinja2 import DictLoader, Environment, StrictUndefined

STYLE = "page_style.css"


def page_environment(package: str, *templates: str) -> Environment:
    """The templates of a package, and the style that each of them includes as `page_style.css`.

    Text is escaped, and a name that a template does not know is an error.
    """
    files = {STYLE: "rl_qg.text"} | dict.fromkeys(templates, package)
    texts = {name: resources.files(owner).joinpath(name).read_text(encoding="utf-8") for name, owner in files.items()}
    return Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
