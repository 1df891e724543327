"""Transcripts: commands with bad input, and the line that each of them must end with.

A transcript is a text file: a line that begins with `$` is a command, the line below it is the last one that the
command writes to standard error. In that line `…` stands for any text: the reasons that libraries give change with
their versions. Lines that begin with `#` are headings.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ANY = "…"


@dataclass(frozen=True)
class Case:
    """A command, its last line, and where the transcript has it."""

    command: str
    line: str
    where: str

    def matches(self, text: str) -> bool:
        """Whether a line is the expected one."""
        return re.fullmatch(".*".join(map(re.escape, self.line.split(ANY))), text) is not None


def read_transcript(path: Path) -> list[Case]:
    """The cases of a file; raises `ValueError` for a command without its line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cases = []
    for number, line in enumerate(lines, 1):
        if not line.startswith("$ "):
            continue
        if number == len(lines) or not lines[number] or lines[number][0] in "$#":
            raise ValueError(f"{path}: line {number}: the command has no line below it")
        cases.append(Case(line[2:], lines[number], f"{path.name}:{number}"))
    return cases


def all_cases() -> list[Case]:
    """The cases of all transcripts."""
    return [case for path in sorted(FOLDER.glob("*.txt")) for case in read_transcript(path)]
