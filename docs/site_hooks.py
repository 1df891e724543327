"""What the site adds to the files of `docs/`: pages made from the code, and what lies outside `docs/` but is linked.

A page with `<!-- commands -->` or `<!-- settings -->` gets the text made from the catalogue of commands and from the
settings. A file of the repository that a page links to (an experiment, the changelog) becomes part of the site under
its own path, so that the links work on the site as they do in the repository.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
PAGES_OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "experiments/LOG.md")  # named in the navigation


def on_files(files: Files, config: Any) -> Files:
    """Add what is linked, and what the added pages link to in turn."""
    waiting = [*PAGES_OUTSIDE, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/"):
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            linked = set(_linked(path, (ROOT / path).read_text(encoding="utf-8"))) - known
            known |= linked
            waiting += linked
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in what is made from the code, and point links to where the site has their files."""
    for mark, text in GENERATED.items():
        if mark in markdown:
            markdown = markdown.replace(mark, text())
    source = _repository_path(page.file.src_uri)

    def on_the_site(link: re.Match[str]) -> str:
        target = _target(source, link["path"]).removeprefix("docs/")
        return os.path.relpath(target, Path(page.file.src_uri).parent) + (link["anchor"] or "")

    return LINK.sub(on_the_site, markdown)


def commands_text() -> str:
    """Every command with its purpose, its example and the sections of the settings that it reads."""
    from rl_qg.commands.catalogue import COMMANDS

    parts = []
    for name, command in COMMANDS.items():
        parts += [f"## rl-qg {name}", f"{command.purpose[0].upper()}{command.purpose[1:]}."]
        parts += [f"```\n{command.example}\n```"]
        if command.arguments:
            parts += [f"Arguments: {command.arguments}."]
        else:
            parts += [f"Sections of the settings: {', '.join(f'`{section}`' for section in command.sections)}."]
    return "\n\n".join(parts)


def settings_text() -> str:
    """The choices of each group, and every key with its default and its comment, as `--help` prints them."""
    from rl_qg.commands.catalogue import GROUPS, offered
    from rl_qg.settings import Settings, describe

    groups = "\n".join(f"| `{group}` | {', '.join(offered(group))} |" for group in GROUPS)
    parts = [f"## Groups\n\n| group | choices |\n| --- | --- |\n{groups}"]
    for name in Settings.__dataclass_fields__:
        parts.append(f"## {name}\n\n```yaml\n{describe(name)}\n```")
    return "\n\n".join(parts)


def trainer_options_text() -> str:
    """What `SelfCriticalConfig` adds to the training arguments of transformers: names, defaults, meanings."""
    from transformers import Seq2SeqTrainingArguments

    from rl_qg.training.config import SelfCriticalConfig

    rows = [
        f"| `{option.name}` | `{option.default}` | {option.metadata['help']} |"
        for option in sorted(fields(SelfCriticalConfig), key=lambda option: option.name)
        if "help" in option.metadata and option.name not in Seq2SeqTrainingArguments.__dataclass_fields__
    ]
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows])


GENERATED: dict[str, Callable[[], str]] = {
    "<!-- commands -->": commands_text,
    "<!-- settings -->": settings_text,
    "<!-- trainer options -->": trainer_options_text,
}


def _linked(path: str, markdown: str) -> Iterator[str]:
    """Files of the repository, outside `docs/`, that a page links to."""
    for link in LINK.finditer(markdown):
        target = _target(path, link["path"])
        if not target.startswith("docs/") and (ROOT / target).is_file():
            yield target


def _target(path: str, link: str) -> str:
    """The path in the repository that a link on a page leads to."""
    return os.path.normpath(Path(path).parent / link)


def _repository_path(page: str) -> str:
    """The path in the repository of a page of the site: below `docs/`, if there is such a file."""
    return f"docs/{page}" if (ROOT / "docs" / page).exists() else page
