"""QA data as parallel text files, line N of one belonging to line N of the others: three layouts, known by name.

- Du, Shao, Cardie, "Learning to Ask" (ACL 2017): `src-NAME.txt` (sentences) or `para-NAME.txt` (paragraphs) with
  `tgt-NAME.txt` (questions). There are no answers.
- Zhou et al., "Neural Question Generation from Text: A Preliminary Study" (NLPCC 2017): `NAME.source.txt` (sentences),
  `NAME.target.txt` (questions) and `NAME.bio` (a tag B, I or O for each token: the answer).
- The files with which lmqg's NQG baseline was evaluated: `sentence-NAME.txt`, `question-NAME.txt`, `answer-NAME.txt`.

Each file may also be gzipped.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from rl_qg.data.formats import RawRecord, malformed_record, text_lines
from rl_qg.data.hotpotqa import first_place
from rl_qg.runtime.errors import InputError

log = logging.getLogger(__name__)
_IF_THERE = "?"  # before the name of a file that need not be there

# The file of the sentences or paragraphs -> the one of the questions, and the one of the answers if there is one.
_LAYOUTS = {
    r"src-(?P<name>.+)\.txt": ("tgt-{}.txt", ""),
    r"para-(?P<name>.+)\.txt": ("tgt-{}.txt", _IF_THERE + "src-{}.txt"),
    r"(?P<name>.+)\.source\.txt": ("{}.target.txt", "{}.bio"),
    r"sentence-(?P<name>.+)\.txt": ("question-{}.txt", "answer-{}.txt"),
}


@dataclass(frozen=True)
class ParallelFiles:
    """The files of one split; `tagged`: that of the answers has tags instead of texts."""

    name: str
    passages: Path
    questions: Path
    answers: Path | None
    tagged: bool


def parallel_files(path: Path) -> ParallelFiles | None:
    """The files that belong to a file of sentences or paragraphs; None if its name is not that of one.

    Raises:
        InputError: a file that belongs to it is missing.
    """
    name = path.name[:-3] if path.name.endswith(".gz") else path.name
    for pattern, (questions, answers) in _LAYOUTS.items():
        if match := re.fullmatch(pattern, name):
            return ParallelFiles(
                name=match["name"],
                passages=path,
                questions=_companion(path, questions.format(match["name"])),
                answers=_answers(path, answers.format(match["name"])),
                tagged=answers.endswith(".bio"),
            )
    return None


def parallel_records(files: ParallelFiles) -> Iterator[RawRecord]:
    """Yield one record a line, a malformed one where tags do not fit tokens; raise `InputError` where files have
    different lengths.
    """
    paths = [files.passages, files.questions, *([files.answers] if files.answers else [])]
    if files.answers and files.answers.name.startswith("src-"):
        log.warning("%s: has no answers; the sentences of %s stand for them", files.passages, files.answers.name)
    for number, lines in enumerate(zip_longest(*map(text_lines, paths)), 1):
        if None in lines:
            counts = ", ".join(f"{path.name} has {sum(1 for _ in text_lines(path)):,} lines" for path in paths)
            raise InputError(f"{files.passages.parent}: {counts}: line N of one must belong to line N of the others")
        passage, question, *rest = (line.strip() for line in lines)
        answers: tuple[tuple[str, int], ...] = ()
        if rest and files.tagged:
            tokens, tags = ([item for item in line.split(" ") if item] for line in (passage, rest[0]))
            passage = " ".join(tokens)
            try:
                answers = _tagged(tokens, tags, f"{files.answers}: line {number}")
            except InputError as error:
                yield malformed_record(f"{files.name}-{number}", error)
                continue
        elif rest:
            answers = ((rest[0], first_place(rest[0], passage)),)
        yield RawRecord(f"{files.name}-{number}", "", passage, question, answers)


def _tagged(tokens: Sequence[str], tags: Sequence[str], where: str) -> tuple[tuple[str, int], ...]:
    """The tokens from the first B on to the end of its I."""
    if len(tokens) != len(tags) or set(tags) - set("BIO"):
        raise InputError(f"{where}: {len(tags)} tags for {len(tokens)} tokens; give one of B, I, O for each")
    if "B" not in tags:
        return ()
    first = tags.index("B")
    last = first + 1
    while last < len(tags) and tags[last] == "I":
        last += 1
    return ((" ".join(tokens[first:last]), sum(len(token) + 1 for token in tokens[:first])),)


def _answers(path: Path, name: str) -> Path | None:
    if name.startswith(_IF_THERE):
        return _found(path, name.removeprefix(_IF_THERE))
    return _companion(path, name) if name else None


def _companion(path: Path, name: str) -> Path:
    if found := _found(path, name):
        return found
    raise InputError(f"{path}: {name} must lie beside it; the two belong together line by line")


def _found(path: Path, name: str) -> Path | None:
    return next((place for end in ("", ".gz") if (place := path.with_name(f"{name}{end}")).is_file()), None)
