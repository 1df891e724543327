"""Candidate answers in languages other than English: dates, numbers with their units, and chunks between common words.

Chunks are the words between words of the closed classes of the language (`FUNCTION_WORDS`), as in Rose et al.,
"Automatic Keyword Extraction from Individual Documents" (2010). In Thai and Chinese, which have no spaces between
words, the text between such words; a syllable inside a longer word that looks like one cuts it too. In Korean a chunk
ends with a word that has a particle, which is left out (임종석이 -> 임종석). Of a Turkish name what follows its
apostrophe is left out (Ankara'da -> Ankara).
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby

from rewards.words import UNSPACED_LETTERS, combining_marks, lower
from rl_qg.text.language_words import FUNCTION_WORDS, MONTHS, NUMBERS, UNITS
from rl_qg.text.languages import CHARACTERS, LANGUAGES, without_ending
from rl_qg.text.spans import Token

LONGEST_CHUNK = 5  # words
LONGEST_RUN = 14  # characters of a chunk in Chinese, twice as many in Thai

Part = tuple[str, int, int, int]
"""Kind, start, end (one past the last) and the number of words of a candidate."""

_YEAR = r"(?:1\d{3}|20\d{2})"
_FIGURE = r"\d+(?:[.,]\d+)*"
_KOREAN_DATE = re.compile(
    r"(?:기원전\s?)?\d{1,4}년(?:\s?\d{1,2}월(?:\s?\d{1,2}일)?)?(?:대|경)?|\d{1,2}월(?:\s?\d{1,2}일)?|\d{1,2}세기(?:\s?[초중후]반)?"
)
_KOREAN_UNITS = (
    "개월|시간|미터|킬로미터|퍼센트|달러|여 명|여명|세기|[년월일명개회차세살원분초위점번권편곳마리대층주인척석조도]"
)
_KOREAN_NUMBER = re.compile(
    rf"(?:약\s)?{_FIGURE}\s?(?:[만억조천백]\s?)*(?:{_FIGURE}\s?[만천백]\s?)?(?:{_KOREAN_UNITS})?"
)
_CHINESE_NUMBER = re.compile(
    rf"(?:约|超过)?(?:{_FIGURE}\s?[万亿千百]*|[一二三四五六七八九十百千万亿两〇零]{{1,8}})\s?"
    r"(?:世纪|小时|分钟|公里|千米|英里|平方公里|美元|英镑|欧元|年代|[个名人年月日岁次份秒天米元种座场部位支家所条本层%倍])"
    r"(?:\d{1,2}月(?:\d{1,2}日)?)?"
)
_LATIN = re.compile(r"[A-Za-z][\w.&'’-]*(?: (?:[A-Za-z]|\d)[\w.&'’-]*)*")


def language_parts(text: str, sentences: Sequence[Sequence[Token]], language: str) -> Iterator[Part]:
    """Yield the candidates of a passage; of a language that is not known, none.

    Args:
        text: the passage.
        sentences: its words, by sentence (`rl_qg.text.spans.tokens`).
        language: a code.
    """
    known = LANGUAGES.get(language)
    if known is None or language == "en":
        return
    for match in _dates(language).finditer(text):
        yield "date", match.start(), match.end(), len(match.group().split())
    for match in _numbers(language).finditer(text):
        yield "number", match.start(), match.end(), len(match.group().split())
    if known.unit == CHARACTERS:
        if language in ("th", "zh"):
            yield from _chunks_without_spaces(text, language)
        return
    for sentence in sentences:
        if language == "vi":
            yield from _vietnamese_names(sentence)
        if language == "ko":
            yield from _korean_chunks(sentence)
        else:
            yield from _chunks(sentence, language)


def has_capitals(language: str) -> bool:
    """Return whether names are written with capitals; True where it is not known."""
    known = LANGUAGES.get(language)
    return known is None or bool(known.scripts & {"LATIN", "GREEK", "CYRILLIC"})


@cache
def _dates(language: str) -> re.Pattern[str]:
    if language == "ko":
        return _KOREAN_DATE
    if language not in MONTHS:
        return re.compile(r"(?!)")
    months = "|".join(sorted(MONTHS[language].split(), key=len, reverse=True))
    of = r"(?:de\s+|d'|del\s+)?"
    era = r"(?:(?:พ\.ศ\.|ค\.ศ\.)\s?)?" if language == "th" else ""
    return re.compile(
        rf"(?<!\d)(?:\d{{1,2}}\s?(?:\.|º|er|η|ης)?\s?{of})?(?:{months})(?![^\W\d_])(?:,?\s+{of}{era}\d{{3,4}}(?!\d))?"
        + (r"|(?:พ\.ศ\.|ค\.ศ\.)\s?\d{3,4}" if language == "th" else ""),
        re.IGNORECASE,
    )


@cache
def _numbers(language: str) -> re.Pattern[str]:
    """Figures or words of number, with the units after them."""
    if language == "ko":
        return _KOREAN_NUMBER
    if language == "zh":
        return _CHINESE_NUMBER
    marks = combining_marks()
    words, units = (
        "|".join(sorted(table.get(language, "\0").split(), key=len, reverse=True)) for table in (NUMBERS, UNITS)
    )
    if language == "vi":
        return re.compile(
            rf"(?<![\w.,])(?:{_FIGURE}|(?:{words})(?: (?:{words}))*)(?: (?:{units})(?!\w)){{1,2}}", re.IGNORECASE
        )
    if language == "th":
        return re.compile(rf"{_FIGURE}\s?(?:{units})+|(?:{words}|หนึ่ง|เอ็ด|ยี่)+(?:{units})")
    end = rf"(?![^\W_]|[{marks}])"
    return re.compile(
        rf"(?<![\w.,])(?:{_FIGURE}|(?:{words}){end}(?:[\s-](?:{words}){end})*)(?:[\s-](?:{units}){end}){{1,2}}"
        rf"|(?<![^\W_])(?:{words}){end}(?:[\s-](?:{words}){end})*",
        re.IGNORECASE,
    )


@cache
def closed_words(language: str) -> frozenset[str]:
    """The words between which chunks lie."""
    return frozenset(lower(FUNCTION_WORDS.get(language, ""), language).split())


def _chunks(sentence: Sequence[Token], language: str) -> Iterator[Part]:
    closed = closed_words(language)

    def is_open(token: Token) -> bool:
        return token.text[0].isalpha() and lower(token.text, language) not in closed

    for opened, group in groupby(sentence, is_open):
        run = list(group)
        if opened and len(run) <= LONGEST_CHUNK:
            yield "chunk" if len(run) > 1 else "word", run[0].start, end_of_name(run[-1], language), len(run)


def end_of_name(token: Token, language: str) -> int:
    """Where a word ends without what follows its apostrophe, of a Turkish name (Ankara'da); else where it ends."""
    cut = re.search("['’]", token.text) if language == "tr" else None
    return token.end if cut is None else token.start + cut.start()


def _vietnamese_names(sentence: Sequence[Token]) -> Iterator[Part]:
    """Words with capitals and at most three without between them: a name begins with its kind, Đại lộ Kearney."""
    closed = closed_words("vi")
    capitals = [index for index, token in enumerate(sentence) if token.text[0].isupper()]
    begin = 0
    for number, index in enumerate(capitals):
        following = capitals[number + 1] if number + 1 < len(capitals) else None
        between = sentence[index + 1 : following] if following is not None else ()
        joined = following is not None and len(between) <= 3
        if not joined or any(not word.text.isalpha() or lower(word.text, "vi") in closed for word in between):
            first, last = sentence[capitals[begin]], sentence[index]
            size = index - capitals[begin] + 1
            if 1 < size <= 2 * LONGEST_CHUNK:
                yield "name", first.start, last.end, size
            begin = number + 1


_PREDICATE = re.compile(r"(?:다|며|고|하는|하여|해서|했던|되는|된|한|할|하게|적인|있는|없는|으로써|면서|지만|자|던)$")


def _korean_chunks(sentence: Sequence[Token]) -> Iterator[Part]:
    """Words up to one with a particle, which is cut off; predicates and adverbs (-다, -고, -하는) begin anew."""
    run: list[Token] = []
    for token in sentence:
        if not token.text[0].isalnum() or token.text in closed_words("ko"):
            yield from _korean_run(run, run[-1].end if run else 0)
            run = []
            continue
        bare = without_ending(token.text, "ko")
        if bare == token.text and _PREDICATE.search(token.text):
            run = []
            continue
        run.append(token)
        if bare != token.text:
            yield from _korean_run(run, token.start + len(bare))
            run = []
    yield from _korean_run(run, run[-1].end if run else 0)


def _korean_run(run: Sequence[Token], end: int) -> Iterator[Part]:
    """The last words of a run, three at most: what stands before is mostly an adverb."""
    kept = run[-3:]
    if len(kept) > 1:
        yield "chunk", kept[0].start, end, len(kept)
    for token in kept:
        last = end if token is kept[-1] else token.end
        if last - token.start > 1:
            yield "word", token.start, last, 1


@cache
def _between(language: str) -> re.Pattern[str]:
    closed = "|".join(sorted(FUNCTION_WORDS[language].split(), key=len, reverse=True))
    return re.compile(rf"(?:{closed})(?![{combining_marks()}])")


def _chunks_without_spaces(text: str, language: str) -> Iterator[Part]:
    thai = language == "th"
    for run in re.finditer(rf"[{UNSPACED_LETTERS}]+" if thai else "[\u4e00-\u9fff·•]+", text):
        at = run.start()
        cuts = [*_between(language).finditer(run.group()), None]
        for cut in cuts:
            end = run.end() if cut is None else run.start() + cut.start()
            if 1 < end - at <= LONGEST_RUN * (1 + thai):
                yield "chunk" if len(cuts) == 1 or not thai else "word", at, end, 2
            at = run.end() if cut is None else run.start() + cut.end()
    for match in _LATIN.finditer(text):
        if match.group()[0].isupper():
            yield "name", match.start(), match.end(), len(match.group().split())
