"""Tokenisers of the overlap metrics, by the names that their signatures carry.

Scripts that put no spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) would become one token
by most of these. So all but the tokenisers that are named after somebody's code make each of their characters, with
the marks that belong to it, a token of its own.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, wraps
from typing import Any, TypeVar

from rewards.errors import MetricInputError
from rewards.optional_imports import library

Words = tuple[str, ...]
Found = TypeVar("Found")

_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
    "\u3000-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese syllables, Han characters
    "\uff00-\uff9f\U00020000-\U0003ffff"  # full-width forms, rare Han characters
)
"""Characters of scripts written without spaces, with the punctuation that is used among them."""

KEPT_TEXTS = 1 << 14
"""How many texts each tokeniser remembers: the candidates of a passage share references, and metrics share texts."""

KEPT_LENGTH = 1000
"""Characters of the longest text that is remembered: with `KEPT_TEXTS` it bounds memory, not the number of texts alone
(the words of a passage of 3,000 words take a quarter of a megabyte)."""


def remembered(function: Callable[..., Found]) -> Callable[..., Found]:
    """Remember what a function of a text (its first argument) returned, unless the text is long."""
    kept = lru_cache(KEPT_TEXTS)(function)

    @wraps(function)
    def call(text: str, *options: str) -> Found:
        return (kept if len(text) <= KEPT_LENGTH else function)(text, *options)

    return call


def tokenizer(name: str) -> Callable[[str], Words]:
    """Return a function that cuts a text into words, by name.

    - ``13a+char``: mteval-v13a's rules (sacreBLEU's default), each character of a script without spaces alone. On text
      in other scripts the same as ``13a``.
    - ``ptb``: `ptb`, what the captioning scripts and most QG papers use.
    - ``words``: `words`, lower-cased letters and digits of any script. On ASCII the same as ``rouge_score``.
    - ``rouge_score``: lower-cased runs of a-z and 0-9, as in the package rouge-score; **drops every other letter**.
    - ``space``: cut at each single space; nothing else is done (two spaces enclose an empty word).
    - any tokeniser of sacreBLEU: ``13a``, ``intl``, ``zh``, ``ja-mecab``, ``ko-mecab``, ``char``, ``none``, ...

    Raises:
        MetricInputError: no such tokeniser, or the library it needs is missing.
    """
    if name == "13a+char":
        return _thirteen_a_by_character()
    if name in _OWN:
        return _OWN[name]
    return _of_sacrebleu(name)


@remembered
def words(text: str) -> Words:
    """Return lower-cased runs of letters and digits, with their combining marks, of any script (NFC)."""
    text = text.lower()
    if text.isascii():
        return tuple(_ALNUM.findall(text))
    return tuple(_any_word().findall(separate_unspaced(unicodedata.normalize("NFC", text))))


@remembered
def ascii_words(text: str) -> Words:
    """Return lower-cased runs of a-z and 0-9, as rouge-score's own tokeniser does."""
    return tuple(_ALNUM.findall(text.lower()))


@remembered
def at_spaces(text: str) -> Words:
    """Return the text cut at each single space."""
    return tuple(text.split(" "))


@remembered
def ptb(text: str) -> Words:
    """Return Penn-Treebank words, lower-cased, without punctuation, close to the captioning scripts' tokeniser.

    They run Stanford's PTBTokenizer (CoreNLP 3.4.1, Java) and drop the tokens '' ' `` ` . ? ! , : - -- ... ; but, as
    they compare in the wrong case, no bracket: those stay as ``-lrb-`` and so on. Here regular expressions do the same
    without Java; experiments/multi-question/README.md has how often the two differ, and where. Beyond them, the marks
    that end or open a sentence in other scripts (Spanish, Greek, Armenian, Arabic, Urdu, Hindi, Amharic, full-width)
    are split off and dropped as well: there they stick to a word, or count as words.
    """
    text = separate_unspaced(text).lower().translate(_PTB_SIGNS)
    for sign, pattern, replacement in _PTB:
        if sign in text:
            text = pattern.sub(replacement, text)
    return tuple(word for word in text.split() if word not in _PUNCTUATION)


def case_of(tokenize: str, *, lowercase: bool = False) -> str:
    """Return in which case words are compared, ``lower`` or ``mixed`` (as they come): for signatures."""
    return "lower" if lowercase or tokenize in _LOWERING else "mixed"


def libraries(tokenize: str, *, stem: bool = False) -> dict[str, str]:
    """Return the versions of the libraries that cut texts into words by this name, and stem them: for signatures."""
    found = {} if tokenize in _OWN else {"sacrebleu": str(library("sacrebleu", "words", "sacrebleu").__version__)}
    return {**found, **({"nltk": str(library("nltk", "stemming", "nltk").__version__)} if stem else {})}


def stemmed(found: Sequence[str]) -> Words:
    """Return the words with those longer than 3 letters replaced by their Porter stem, as rouge-score does.

    Raises:
        MetricInputError: nltk is missing.
    """
    stem = porter_stem()
    return tuple(stem(word) if len(word) > 3 else word for word in found)


@cache
def porter_stem() -> Callable[[str], str]:
    """Return nltk's Porter stemmer (its default mode), which remembers words."""
    return lru_cache(1 << 16)(library("nltk.stem.porter", "stemming", "nltk").PorterStemmer().stem)


def separate_unspaced(text: str) -> str:
    """Put spaces around each character of a script without spaces; its combining marks stay with it."""
    return text if text.isascii() else _unspaced().sub(r" \g<0> ", text)


@cache
def _of_sacrebleu(name: str) -> Callable[[str], Words]:
    library("sacrebleu", f"tokenize={name}", "sacrebleu")
    from sacrebleu.metrics import BLEU

    if name not in BLEU.TOKENIZERS:
        known = ", ".join([*_OWN, "13a+char", *BLEU.TOKENIZERS])
        raise MetricInputError(f"tokenize={name}: no such tokeniser; known are {known}")
    try:
        cut = BLEU(tokenize=name).tokenizer
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MetricInputError(f"tokenize={name}: sacrebleu cannot build it: {reason}") from None
    return remembered(lambda text: _cut_by_sacrebleu(cut, text))


def _cut_by_sacrebleu(cut: Any, text: str) -> Words:
    found = tuple(cut(text.rstrip()).split())
    if len(text) > KEPT_LENGTH:  # its tokenisers, and those that they use, remember 65,536 texts each
        for part in (cut, *vars(cut).values()):
            getattr(type(part).__call__, "cache_clear", lambda: None)()
    return found


@cache
def _thirteen_a_by_character() -> Callable[[str], Words]:
    plain = _of_sacrebleu("13a")
    return lambda text: plain(separate_unspaced(text))


_ALNUM = re.compile("[a-z0-9]+")
_PUNCTUATION = frozenset("'' ' `` ` . ? ! , : - -- ... ;".split())
_ABBREVIATIONS = (
    "mr|mrs|ms|dr|prof|gen|col|lt|sgt|capt|gov|sen|rep|rev|hon|pres|st|ste|mt|ft|jr|sr|no|vs|v|etc|al|inc|corp|co|ltd|bros"
    "|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|ave|blvd|rd|dept|univ|assn|ph\\.d|e\\.g|i\\.e|[a-z](?:\\.[a-z])*"
)
_PTB_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201b\u00b4", "'"),
        **dict.fromkeys('"\u201c\u201d\u201e\u00ab\u00bb\u2047', " "),
        **dict.fromkeys("\u2012\u2013\u2014\u2015", " -- "),
        **{mark: f" {mark} " for mark in "$;!?#%*=|\u00a7\u00b0\u00b7\u2212"},
        **{bracket: f" -{name}- " for bracket, name in zip("()[]{}", "lrb rrb lsb rsb lcb rcb".split(), strict=True)},
        **{"\u00a3": " # ", "\u20ac": " $ ", "\u2026": " "},  # the treebank's pound and euro
        **dict.fromkeys("\u00a1\u00bf\u037e\u0589\u060c\u061b\u061f\u06d4\u0964\u0965\u1367", " "),
        **dict.fromkeys("\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f", " "),
    }
)
_PTB = [
    (sign, re.compile(pattern), replacement)
    for sign, pattern, replacement in (
        ("--", "--+", " -- "),
        ("..", r"\.\.+", " "),
        ("&", r"(?<![a-z0-9])&|&(?![a-z0-9])", " & "),
        (",", r"(?<!\d),|,(?!\d)", " , "),
        (":", r"(?<!\d):|:(?!\d)", " : "),
        (".", rf"(?<![a-z0-9.])({_ABBREVIATIONS})\.(?=\s)", "\\1\x00"),  # an abbreviation keeps its period
        (".", r"\.(?=[\s']|$)", " . "),
        ("\x00", "\x00", "."),
        ("cannot", r"\bcannot\b", "can not"),
        ("'", "''", " "),
        ("'", r"(?<=s)'(?=\w\w)(?!ll|re|ve)", " ' "),  # a possessive that lost the space behind it
        ("'", r"(?<!\w)'(?!(?:\d\ds?|s|m|d|re|ve|ll|em|n't)\b)|'(?!\w)", " ' "),
        ("'", r"n't\b", " n't"),
        ("'", r"(?<=[\w.])'(s|m|d|re|ve|ll)\b", r" '\1"),
    )
]
"""What must be in the text, a pattern, and what takes its place."""


@cache
def _marks() -> str:
    """All combining marks, as the inside of a character class."""
    return "".join(
        re.escape(chr(code)) for code in range(0x300, sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"
    )


@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}][{_marks()}]*")


@cache
def _any_word() -> re.Pattern[str]:
    return re.compile(rf"(?:[^\W_]|[{_marks()}])+")


_OWN: dict[str, Callable[[str], Words]] = {
    "ptb": ptb,
    "words": words,
    "rouge_score": ascii_words,
    "space": at_spaces,
}
_LOWERING = _OWN.keys() - {"space"}
