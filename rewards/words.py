"""Tokenisers of the overlap metrics, by the names that their signatures carry, and SQuAD's normalisation of answers.

Scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) would become one token in
most of these tokenisers. So all of them, except those named after another program, make each character of such a
script a token of its own, together with its combining marks.

`rl_qg.text.words` lists every other word splitter of the project and the reason for it.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, wraps
from itertools import chain, pairwise
from typing import TypeVar

from rewards.errors import MetricInputError, first_line, library, packaged

Words = tuple[str, ...]
Result = TypeVar("Result")

ENGLISH = packaged("english.toml")  # lists of English words, which the file explains

UNSPACED_LETTERS = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
    "\u3040-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese syllables, Han characters
    "\U00020000-\U0003ffff"  # rare Han characters
)  # characters of scripts written without spaces, as the inside of a character class

_UNSPACED = UNSPACED_LETTERS + "\u3000-\u303f\uff00-\uff9f"  # and punctuation and full-width forms among them

QUESTION_MARKS = "?\uff1f\u061f\u1367\u2047\u2048\u2049\u203d\u2e2e\ua60f\u037e"
"""Latin, full-width, Arabic, Ethiopic, doubled, with an exclamation mark, reversed, Vai, Greek. Greek texts mostly
have a semicolon, and the Armenian mark is inside the question word: `ends_as_question` knows both."""

_CLOSING = "\\s!\uff01\"'\u201c\u201d\u2018\u2019\u00ab\u00bb)\\]}\uff09\uff3d\uff5d\u300d\u300f\u300b"
_END_OF_QUESTION = re.compile(f"([{QUESTION_MARKS}]|;)[{_CLOSING}]*$")
_GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff]")
_ARMENIAN_MARK = "\u055e"

# Tokenisers cache texts: the candidates of a passage share references, and metrics share texts. Long ones are left
# out, which bounds memory: the words of a passage of 3,000 words take a quarter of a megabyte.
CACHED_TEXTS, CACHED_LENGTH = 1 << 14, 1000  # texts for each tokeniser, characters of a text


def cached_by_text(function: Callable[..., Result]) -> Callable[..., Result]:
    """Cache what a function of a text (its first argument) returns, unless the text is long."""
    cached = lru_cache(CACHED_TEXTS)(function)

    @wraps(function)
    def call(text: str, *options: str) -> Result:
        return (cached if len(text) <= CACHED_LENGTH else function)(text, *options)

    return call


TURKIC = frozenset({"tr", "az"})  # languages with a dotted and a dotless i: their capital I is not that of i

_TURKIC_CASE = str.maketrans({"I": "ı", "İ": "i"})


def lower(text: str, language: str = "") -> str:
    """Return a text in lower case by the rules of a language: I becomes ı and İ i in Turkish and Azerbaijani; in
    others İ becomes i without the second dot that Python leaves over it.

    >>> lower("ISPARTA, İzmir", "tr"), lower("ISPARTA, İzmir")
    ('ısparta, izmir', 'isparta, izmir')
    """
    if language in TURKIC:
        text = text.translate(_TURKIC_CASE)
    return text.lower() if text.isascii() else text.lower().replace("i\u0307", "i")


def tokenizer(name: str) -> Callable[[str], Words]:
    """Return a function that splits a text into words, by name.

    - ``13a+char``: mteval-v13a's rules (sacreBLEU's default), each character of a script without spaces alone.
    - ``intl+char``: the same with sacreBLEU's ``intl``, which splits off the punctuation of every script (¿ « ؟ ।).
    - ``ptb``: `ptb`, what the captioning scripts and most QG papers use.
    - ``words``: `words`, lower-cased letters and digits of any script. On ASCII the same as ``rouge_score``.
    - ``rouge_score``: lower-cased runs of a-z and 0-9, as in the package rouge-score; **drops every other letter**.
    - ``space``: split at each single space and nothing else (two spaces enclose an empty word).
    - ``ascii_space``: split at runs of ASCII white space, as programs do that split bytes.
    - any tokeniser of sacreBLEU: ``13a``, ``intl``, ``zh``, ``ja-mecab``, ``ko-mecab``, ``char``, ``none``, ...
    - any of these with ``+tr`` at its end: of the text in lower case by the rules of Turkish (`lower`).
    """
    plain, plus, language = (name := str(name)).rpartition("+")  # 13 is none, but may be given for 13a
    if plus and language in TURKIC:
        split = tokenizer(plain)
        return lambda text: split(lower(text, language))
    if plus and language == "char" and plain in ("13a", "intl"):
        split = _of_sacrebleu(plain)
        return lambda text: split(separate_unspaced(text))
    return _TOKENIZERS[name] if name in _TOKENIZERS else _of_sacrebleu(name)


def tokenizer_for(name: str, language: str) -> str:
    """Return the name of the tokeniser that does for a language what the tokeniser `name` does for English.

    >>> tokenizer_for("13a+char", "ar"), tokenizer_for("words", "tr"), tokenizer_for("ptb", "de")
    ('intl+char', 'words+tr', 'ptb')
    """
    if language in TURKIC and name in _LOWERING:
        return f"{name}+{language}"
    return "intl+char" if name == "13a+char" and language != "en" else name


@cached_by_text
def words(text: str) -> Words:
    """Return lower-cased runs of letters and digits, with their combining marks, of any script (NFC)."""
    text = text.lower()
    if text.isascii():
        return tuple(_ALNUM.findall(text))
    return tuple(_words_of_any_script().findall(separate_unspaced(unicodedata.normalize("NFC", text))))


@cached_by_text
def ptb(text: str) -> Words:
    """Return Penn-Treebank words, lower-cased, without punctuation, close to the captioning scripts' tokeniser.

    They run Stanford's PTBTokenizer (CoreNLP 3.4.1, Java) and drop the tokens '' ' `` ` . ? ! , : - -- ... ; but, as
    they compare in the wrong case, no bracket: those stay as ``-lrb-`` and so on. This function does the same with
    regular expressions; experiments/multi-question/README.md reports how often the two differ, and where. In addition,
    the marks that end or open a sentence in other scripts (Spanish, Greek, Armenian, Arabic, Urdu, Hindi, Amharic,
    full-width) are split off and dropped.
    """
    text = separate_unspaced(text).lower().translate(_PTB_SIGNS)
    for sign, pattern, replacement in _PTB:
        if sign in text:
            text = pattern.sub(replacement, text)
    return tuple(word for word in text.split() if word not in _PUNCTUATION)


def ends_as_question(text: str) -> bool:
    """Return whether a text ends in a question mark of any script; brackets and quotes may close after it."""
    mark = _END_OF_QUESTION.search(text)
    if mark is None or mark[1] != ";":
        return mark is not None or _ARMENIAN_MARK in text
    return 2 * len(_GREEK.findall(text)) > sum(map(str.isalpha, text))


def split_question_mark(text: str) -> tuple[str, str]:
    """Return a question without its marks at the end and the white space around it, and the last mark, or ""."""
    text = text.strip()
    return text.rstrip(QUESTION_MARKS + " "), text[-1:] if text.endswith(tuple(QUESTION_MARKS)) else ""


def normalise_answer(text: str) -> str:
    """Return an answer as ``evaluate-v1.1.py`` of SQuAD compares it (Source: Rajpurkar et al., 2016): lower case,
    without ASCII punctuation, then without the English articles a, an, the, then with single spaces.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def answer_exact_match(prediction: str, answer: str) -> float:
    return float(normalise_answer(prediction) == normalise_answer(answer))


def answer_f1(prediction: str, answer: str) -> float:
    """Return the F of normalised words, counted with repetition; 0 when none is shared, so when both are empty."""
    predicted, expected = normalise_answer(prediction).split(), normalise_answer(answer).split()
    shared = sum((Counter(predicted) & Counter(expected)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def case_of(tokenize: str, *, lowercase: bool = False) -> str:
    """Return in which case words are compared, ``lower`` or ``mixed`` (unchanged): for signatures."""
    name, _, language = tokenize.rpartition("+")
    return "lower" if lowercase or tokenize in _LOWERING or (name and language in TURKIC) else "mixed"


def libraries(tokenize: str, *, stem: bool = False) -> dict[str, str]:
    """Return the versions of the libraries that this tokeniser, and stemming, use: for signatures."""
    own = tokenize in _TOKENIZERS or tokenize.rpartition("+")[0] in _TOKENIZERS
    needed = {"sacrebleu": "words"} if not own else {}
    needed |= {"nltk": "stemming"} if stem else {}
    return {name: str(library(name, by, name).__version__) for name, by in needed.items()}


def stemmed(text_words: Sequence[str]) -> Words:
    """Return the words with those longer than 3 letters replaced by their Porter stem, as rouge-score does."""
    stem = porter_stem()
    return tuple(stem(word) if len(word) > 3 else word for word in text_words)


@cache
def porter_stem() -> Callable[[str], str]:
    return lru_cache(1 << 16)(library("nltk.stem.porter", "stemming", "nltk").PorterStemmer().stem)


def separate_unspaced(text: str) -> str:
    """Put spaces around each character of a script without spaces; its combining marks stay with it."""
    return text if text.isascii() else _unspaced().sub(r" \g<0> ", text)


def is_unspaced(word: str) -> bool:
    """Return whether a word is a character of a script without spaces, as `separate_unspaced` leaves it."""
    return not word.isascii() and _unspaced().match(word) is not None


@cache
def combining_marks() -> str:
    """Return all combining marks, as the inside of a character class: vowel signs of Hindi and Thai, vowels of Arabic,
    separate accents. Each belongs to the letter before it, and Python's `re` does not count it as part of a word.
    """
    ranges, begin = [], None
    for code in chain(range(0x300, 0x20000), range(0xE0000, 0xE0200)):  # Unicode has no marks elsewhere
        if unicodedata.category(chr(code))[0] == "M":
            begin = code if begin is None else begin
        elif begin is not None:
            ranges.append(f"{chr(begin)}-{chr(code - 1)}")
            begin = None
    return "".join(ranges)


@cache
def _words_of_any_script() -> re.Pattern[str]:
    return re.compile(rf"(?:[^\W_]|[{combining_marks()}])+")


@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}][{combining_marks()}]*")


@cache
def _of_sacrebleu(name: str) -> Callable[[str], Words]:
    library("sacrebleu", f"tokenize={name}", "sacrebleu")
    from sacrebleu.metrics import BLEU

    if name not in BLEU.TOKENIZERS:
        known = ", ".join([*_TOKENIZERS, "13a+char", "intl+char", *BLEU.TOKENIZERS])
        raise MetricInputError(f"tokenize={name}: no such tokeniser; known are {known}")
    try:
        split = BLEU(tokenize=name).tokenizer
    except (ImportError, RuntimeError) as error:
        raise MetricInputError(f"tokenize={name}: sacrebleu cannot build it: {first_line(error)}") from None

    def words_of(text: str) -> Words:
        text_words = tuple(split(text.rstrip()).split())
        if len(text) > CACHED_LENGTH:  # its tokenisers, and those that they use, cache 65,536 texts each
            for part in (split, *vars(split).values()):
                getattr(type(part).__call__, "cache_clear", lambda: None)()
        return text_words

    return cached_by_text(words_of)


_ALNUM = re.compile("[a-z0-9]+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PUNCTUATION = frozenset("'' ' `` ` . ? ! , : - -- ... ;".split())
_PTB_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201b\u00b4", "'"),
        **dict.fromkeys('"\u201c\u201d\u201e\u00ab\u00bb\u2047', " "),
        **dict.fromkeys("\u2012\u2013\u2014\u2015", " -- "),
        **{mark: f" {mark} " for mark in "$;#%*=|\u00a7\u00b0\u00b7\u2212"},
        **{bracket: f" -{name}- " for bracket, name in zip("()[]{}", "lrb rrb lsb rsb lcb rcb".split(), strict=True)},
        **{"\u00a3": " # ", "\u20ac": " $ ", "\u2026": " "},  # the treebank's pound and euro
        **dict.fromkeys("\u00a1\u00bf\u037e\u0589\u060c\u061b\u061f\u06d4\u0964\u0965\u1367", " "),
        **dict.fromkeys("\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f", " "),
    }
)
# A sign that must be in the text for the rule to apply, a pattern, and its replacement.
_PTB = [
    (sign, re.compile(pattern.replace("ABBREVIATIONS", "|".join(ENGLISH["treebank_abbreviations"].split()))), by)
    for sign, pattern, by in ENGLISH["treebank"]
]
_TOKENIZERS: dict[str, Callable[[str], Words]] = {
    "ptb": ptb,
    "words": words,
    "rouge_score": cached_by_text(lambda text: tuple(_ALNUM.findall(text.lower()))),
    "space": cached_by_text(lambda text: tuple(text.split(" "))),
    "ascii_space": cached_by_text(lambda text: tuple(word.decode() for word in text.encode().split())),
}
_LOWERING = _TOKENIZERS.keys() - {"space", "ascii_space"}

# Sentences of a text: the one rule that the project splits by.

ABBREVIATIONS = frozenset(ENGLISH["abbreviations"].split())

# Possessive, and tried at the first mark of a row alone: each character is looked at once. Tried at every mark, a row
# of n marks that nothing follows would take n² steps.
_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’)\]»]*+(?=\s)|[。！？।॥؟]+["'”’)\]」』»]*|\n\s*\n|\u2029""")

_GERMAN_DATE = re.compile(  # the full stop after a day, and the month
    r"\.\s+(?:Jan|Febr|März|April|Mai|Jun|Jul|August|Sept|Okto|Novem|Dezem)(?:uar|i|ember|ber)?\b"
)


def sentences(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence; they cover the text. Abbreviations and initials end no sentence, nor does
    a full stop before a small letter, unless the text has no capital, as Du et al.'s files: there words are tokens,
    and only a full stop which stands alone ends a sentence.
    """
    lower_cased = text.lower() == text
    tokens = lower_cased and (" . " in text or text.endswith(" ."))
    ends = [match.end() for match in _END.finditer(text) if _ends(text, match, lower_cased, tokens)]
    bounds = sorted({0, *ends, len(text)})
    return list(pairwise(bounds))


def sentence_texts(text: str) -> list[str]:
    """Return the sentences of a text without white space around them; a blank text is one empty sentence."""
    return [part for start, end in sentences(text) if (part := text[start:end].strip())] or [""]


def _ends(text: str, match: re.Match[str], lower_cased: bool, tokens: bool) -> bool:
    if match.group()[0] not in ".!?…":  # looking behind each of a row that is white space would take quadratic time
        return True
    index = match.end()
    while index < len(text) and text[index].isspace():  # slicing the rest at each sentence would, too
        index += 1
    after = text[index : index + 1]
    if (after.islower() and not lower_cased) or after in tuple(",;"):
        return False
    if tokens and match.group()[0] == "." and not text[match.start() - 1].isspace():
        return False
    if len(match.group().strip("\"'”’)]»")) > 1 or match.group()[0] != ".":
        return True
    index = match.start()
    while index and (text[index - 1].isalnum() or text[index - 1] in "._"):
        index -= 1
    before = text[index : match.start()]
    if before.isdigit() and len(before) <= 2 and _GERMAN_DATE.match(text, match.start()):
        return False
    single = len(before) == 1 and (before.isupper() or (lower_cased and before.isalpha()))  # as in John F. Kennedy
    return not single and before.casefold() not in ABBREVIATIONS
