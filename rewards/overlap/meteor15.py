"""METEOR 1.5, the Java program that the captioning scripts call, through its standard input and output."""

import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from rewards.base import Inputs, MetricResult
from rewards.errors import MetricInputError
from rewards.options import path_of
from rewards.overlap.base import OverlapMetric
from rewards.signature import file_hash
from rewards.words import libraries, tokenizer

OPTIONS = ("-", "-", "-stdio", "-l", "en", "-norm")
"""As in the captioning scripts: texts come from standard input, English, words normalised by METEOR too."""

ROWS_AT_ONCE = 256
"""Rows whose counts are evaluated by one line."""

_GIVE = (
    "give the path of meteor-1.5.jar as the option jar (reward.jar=FILE, or {metric: meteor15, jar: FILE} in a list)"
)
_PACKAGE = "pip install --no-deps pycocoevalcap, about 100 MB, brings it"


class Meteor15(OverlapMetric):
    """METEOR 1.5 in English, 0 to 1: words aligned by form, stem, synonym and paraphrase, with tuned weights.

    Source: Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target Language",
    WMT 2014; called as the captioning scripts (Chen et al. 2015) do: ``java -Xmx2G -jar meteor-1.5.jar - - -stdio -l
    en -norm``, a line ``SCORE ||| reference ||| ... ||| question`` for each row, then ``EVAL ||| counts ||| ...`` for
    all of them. These are the METEOR numbers of most papers on question generation; `rewards.Meteor` is nltk's, which
    needs no Java and gives others. Several references: the best, as the program takes it.

    The program starts with the first score (it reads its tables of paraphrases in about ten seconds, with 2 GB of
    memory) and ends with the metric.

    Args:
        jar: ``meteor-1.5.jar``, with ``data/paraphrase-en.gz`` beside it; None takes that of the installed package
            pycocoevalcap.
        java: the program that runs it, Java 8 or later: a name on the search path, or a path.
        tokenize: any of `rewards.words.tokenizer`; the scripts give it ``ptb`` words.

    Raises:
        MetricInputError: Java, the jar or its data are missing, or the program ends or answers something else than
            numbers.
    """

    name = "meteor15"

    def __init__(self, jar: str | Path | None = None, *, java: str = "java", tokenize: str = "ptb") -> None:
        self.jar, self.tokenize = _jar(jar), tokenize
        tokenizer(tokenize)
        found = shutil.which(java) if isinstance(java, str | Path) else None
        if found is None:
            raise MetricInputError(
                f"meteor15: there is no program {java!r}; install Java 8 or later (apt-get install "
                "default-jre-headless), or name it by java="
            )
        self._command = [found, "-Xmx2G", "-jar", str(self.jar), *OPTIONS]
        self._program: subprocess.Popen[str] | None = None
        self._messages: IO[str] | None = None

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {
            "jar": f"{self.jar.name}@{file_hash(self.jar)}",
            "options": " ".join(OPTIONS[-3:]),
            "tokenize": self.tokenize,
            **libraries(self.tokenize),
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return one score for each question.

        Raises:
            MetricInputError: the program ends, or answers something else than numbers.
        """
        scores: list[float] = []
        every = list(zip(*self._rows(inputs), strict=True))
        for start in range(0, len(every), ROWS_AT_ONCE):
            rows = every[start : start + ROWS_AT_ONCE]
            counts = [self._ask(" ||| ".join(["SCORE", *map(_line, golds), _line(text)])) for text, golds in rows]
            self._write(" ||| ".join(["EVAL", *counts]))
            values = [self._read() for _ in (*rows, "all of them as one corpus")]
            try:
                scores += [float(value) for value in values[:-1]]
            except ValueError:
                raise MetricInputError(f"meteor15: {self.jar} answers {values[0]!r:.60}, not a number") from None
        return MetricResult(scores, {})

    def _ask(self, line: str) -> str:
        self._write(line)
        return self._read()

    def _write(self, line: str) -> None:
        stream = self._running().stdin
        assert stream is not None
        try:
            stream.write(line + "\n")
            stream.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _read(self) -> str:
        stream = self._running().stdout
        assert stream is not None
        line = stream.readline()
        if not line:
            raise self._ended()
        return line.strip()

    def _running(self) -> "subprocess.Popen[str]":
        """Return the program, started if it is not there yet."""
        if self._program is None:
            self._messages = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
            self._program = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,  # a file: a pipe that nobody reads could fill up
                encoding="utf-8",
            )
            weakref.finalize(self, _end, self._program)
        return self._program

    def _ended(self) -> MetricInputError:
        """Return the error of a program that ended by itself, with the last line that it wrote."""
        assert self._program is not None and self._messages is not None
        status = self._program.wait()
        self._messages.seek(0)
        said = [line.strip() for line in self._messages if line.strip()]
        return MetricInputError(
            f"meteor15: {' '.join(self._command[:4])} ended with status {status}: {said[-1] if said else 'no message'}"
        )


def _jar(given: str | Path | None) -> Path:
    """Return the jar, checked with its data."""
    if given is None:
        package = find_spec("pycocoevalcap")
        places = list(package.submodule_search_locations or ()) if package else []
        if not places:
            raise MetricInputError(f"meteor15: no jar; {_GIVE} ({_PACKAGE})")
        given = Path(places[0], "meteor", "meteor-1.5.jar")
    jar = path_of("meteor15", "jar", given).absolute()
    for needed in (jar, jar.parent / "data" / "paraphrase-en.gz"):
        if not needed.is_file():
            raise MetricInputError(f"meteor15: {needed} is no file; {_GIVE}, with data/ beside it ({_PACKAGE})")
    return jar


def _line(words: Sequence[str]) -> str:
    """Return words as a field of a line, in which ``|||`` separates fields."""
    return " ".join(" ".join(words).replace("|||", "").split())


def _end(program: "subprocess.Popen[str]") -> None:
    program.kill()
    program.wait()
    for stream in (program.stdin, program.stdout):
        if stream is not None:
            with suppress(OSError):  # a line that the program has not read
                stream.close()
