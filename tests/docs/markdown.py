"""Markdown files of the repository: their code blocks, commands, links and named paths."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "experiments").glob("*/README.md"),
        ROOT / "experiments/LOG.md",
    ],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^|\n)\n((?: {4}\S[^\n]*\n?)+)")
COMMENT = re.compile(r"\s{2,}#.*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of code: its language (empty for shell commands), its title and its text."""

    language: str
    title: str
    code: str


def blocks(path: Path) -> list[Block]:
    """All fenced blocks of a page."""
    found = []
    for match in FENCE.finditer(path.read_text(encoding="utf-8")):
        language, _, rest = match["info"].partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        found.append(Block(language, title[1] if title else "", match["code"]))
    return found


def commands(code: str) -> list[str]:
    """The command lines of a block, without comments at their ends; a line that ends in a backslash goes on."""
    lines = [COMMENT.sub("", line).strip() for line in re.sub(r"\\\n\s*", "", code).splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def indented_commands(path: Path) -> list[str]:
    """Commands in blocks that are set off by four spaces."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return [command for block in INDENTED.findall(text) for command in commands(block)]


def without_code(path: Path) -> str:
    """The text of a page without its blocks of code."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))
