"""Candidate answers by rule, without a model: dates, numbers, names, acronyms, titles, noun chunks.

The answers in SQuAD are, in this order of frequency, noun phrases, other entities, persons, numbers, dates and places
(Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016, table 2). Noun chunks are the
words between words of the closed classes, as in Rose et al., "Automatic Keyword Extraction from Individual Documents"
(2010), if a determiner, preposition or verb comes before them; they are found only in English. Dates, numbers and
titles are found in any script, names in scripts with capitals. In Japanese and Chinese, text in Katakana, in Latin
letters or within quotation marks is found, in Japanese also compounds of Kanji.

The scores order the kinds by how often people chose such answers (`experiments/answers`).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

from rewards.words import ABBREVIATIONS, UNSPACED_LETTERS, combining_marks, lower
from rl_qg.text.english import (
    AUXILIARIES,
    CLOSED,
    CONJUNCTIONS,
    DETERMINERS,
    JOINING,
    MONTHS,
    NUMBERS,
    PARTICLES,
    PREPOSITIONS,
    PRONOUNS,
    UNITS,
    VERBS,
    WEEKDAYS,
)
from rl_qg.text.languages import (
    AUTO,
    CHARACTERS,
    FUNCTION_WORDS,
    LANGUAGES,
    MONTHS_OF,
    NUMBERS_OF,
    UNITS_OF,
    language_of,
    without_ending,
)
from rl_qg.text.spans import Span, Token, select_spans, sentences, tokens

# Candidate answers in languages other than English: dates, numbers with their units, and chunks between common words.
#
# Chunks are the words between words of the closed classes of the language (`FUNCTION_WORDS`), as in Rose et al.,
# "Automatic Keyword Extraction from Individual Documents" (2010). In Thai and Chinese, which have no spaces between
# words, the text between such words; a syllable inside a longer word that looks like one cuts it too. In Korean a
# chunk ends with a word that has a particle, which is left out (임종석이 -> 임종석). Of a Turkish name what follows
# its apostrophe is left out (Ankara'da -> Ankara).


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
            yield from _chunks_of_language(sentence, language)


def has_capitals(language: str) -> bool:
    """Return whether names are written with capitals; True where it is not known."""
    known = LANGUAGES.get(language)
    return known is None or bool(known.scripts & {"LATIN", "GREEK", "CYRILLIC"})


@cache
def _dates(language: str) -> re.Pattern[str]:
    if language == "ko":
        return _KOREAN_DATE
    if language not in MONTHS_OF:
        return re.compile(r"(?!)")
    months = "|".join(sorted(MONTHS_OF[language].split(), key=len, reverse=True))
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
        "|".join(sorted(table.get(language, "\0").split(), key=len, reverse=True)) for table in (NUMBERS_OF, UNITS_OF)
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
    return frozenset(lower(FUNCTION_WORDS.get(language, ""), language).split())


def _chunks_of_language(sentence: Sequence[Token], language: str) -> Iterator[Part]:
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


VERSION = 3  # increase it when the proposed spans change: files begun with other rules are then refused
SCORES = {"date": 7.0, "number": 6.0, "title": 5.2, "acronym": 5.1, "name": 5.0, "chunk": 2.0, "word": 1.0}
SEVERAL = 0.5  # added for several words: they are more specific and rarely a part of a longer phrase
REPEATED = 2.0  # added in languages without capitals: people ask about it three times as often as about other words
LONGEST_TITLE = 6
ENGLISH = 0.2  # from this fraction of closed-class words on, a passage counts as English

_MONTH = "|".join(sorted((month.capitalize() for month in MONTHS), key=len, reverse=True))
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"\b(?:(?:{_DAY}\s+(?:of\s+)?)?(?:{_MONTH})\b\.?(?:\s+{_DAY}\b(?!\s*(?:{_MONTH})))?(?:,?\s+{_YEAR}\b)?"
    rf"|\d{{4}}-\d{{2}}-\d{{2}}"
    rf"|{_YEAR}\s*[–—-]\s*(?:{_YEAR}|\d{{2}})\b"
    rf"|(?:early|mid|late)?[- ]?{_YEAR}s\b|{_YEAR}(?:\s+(?:BCE?|CE|AD))?\b(?![.,]\d)|AD\s+\d+\b|\d+\s+(?:BCE?|AD|CE)\b"
    r"|(?:early|mid|late)?[- ]?\d{1,2}(?:st|nd|rd|th)[ -](?:century|centuries)(?:\s+BCE?)?)"
    r"|\d{2,4}年(?:\d{1,2}月(?:\d{1,2}日)?)?|\d{1,2}月\d{1,2}日"
)
_MONTH_ALONE = re.compile(r"may|mar|sun|sat|march", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?:[$€£¥₹]\s?)?(?<![\w.,])\d+(?:[.,]\d+)*(?:st|nd|rd|th)?(?:\s?[–-]\s?\d+(?:[.,]\d+)*)?(?:\s?(?:%|°[CF]?))?(?!\w)"
    rf"|\d+(?:[.,]\d+)*(?=[{UNSPACED_LETTERS}])(?:[万億亿千百]*(?:人|年|円|元|個|个|名|歳|岁|回|次|%)?)"
)
_TITLE = re.compile(
    r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|«([^»\n]{2,80})»|「([^」\n]{2,30})」|『([^』\n]{2,30})』|《([^》\n]{2,30})》"
)
_KATAKANA = re.compile(r"[ァ-ヺー]+(?:[・＝][ァ-ヺー]+)*")
_KANJI = re.compile(r"[\u4e00-\u9fff々]{2,6}")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa]")


def rule_spans(text: str, limit: int | None = None, language: str = AUTO) -> list[Span]:
    """The answers that the rules propose in a passage, best first: at most `limit` (None: all).

    They are ordered by `SCORES`, plus `SEVERAL` for several words; then the longer, then the earlier comes first.
    `language` is a code, `other` (rules for any language alone), or `auto`: that which the passage is in.
    """
    spans = [*_patterns(text), *_spaceless(text)]
    words = [tokens(text, start, end) for start, end in sentences(text)]
    english = language == "en" or (language == AUTO and _is_english(words))
    code = "en" if english else language_of(text) if language == AUTO else language
    parts = [_found(text, part, code) for part in language_parts(text, words, code)]
    chunks = [span for span in parts if span.kind in ("chunk", "word")]
    spans += [span for span in parts if span.kind not in ("chunk", "word")]
    inside = _seen_inside(words)
    for sentence in words:
        spans += _numbers_in_words(sentence)
        spans += _names(text, sentence, inside, english, code)
        if english:
            chunks += _chunks(sentence)
    return select_spans(text, [*_longest(spans), *chunks], limit)


def _longest(spans: list[Span]) -> Iterator[Span]:
    """The spans that are not inside longer ones: the number in `Super Bowl 50` is not an answer."""
    reached = -1
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.end > reached:
            yield span
            reached = span.end


def _span(kind: str, start: int, end: int, words: int = 1) -> Span:
    return Span(start, end, kind, SCORES[kind] + (SEVERAL if words > 1 else 0.0))


def _found(text: str, part: Part, language: str) -> Span:
    """The span of a part; without capitals to tell names, words that the passage repeats come first."""
    kind, start, end, words = part
    span = _span(kind, start, end, words)
    again = kind in ("chunk", "word") and not has_capitals(language) and text.count(text[start:end]) > 1
    return replace(span, score=span.score + REPEATED) if again else span


# --- Patterns for any language ---


def _patterns(text: str) -> Iterator[Span]:
    for match in _DATE.finditer(text):
        if not _MONTH_ALONE.fullmatch(match.group().strip(" .")):
            yield _span("date", match.start(), match.end(), len(match.group().split()))
    for match in _NUMBER.finditer(text):
        end, words = match.end(), 1
        while following := re.match(r"[ -]([^\W\d_]+|%)", text[end : end + 20]):
            if following[1].casefold() not in UNITS:
                break
            end, words = end + following.end(), words + 1
        yield _span("number", match.start(), end, words)
    for match in _TITLE.finditer(text):
        group = next(number for number, part in enumerate(match.groups(), 1) if part is not None)
        words = len(match[group].split())
        if words <= LONGEST_TITLE:  # longer ones are direct speech
            yield _span("title", match.start(group), match.end(group), words)


def _spaceless(text: str) -> Iterator[Span]:
    for match in _KATAKANA.finditer(text):
        if len(match.group()) > 2:
            yield _span("name", match.start(), match.end())
    if _KANA.search(text):  # Japanese; in Chinese a run of characters is not a word
        for match in _KANJI.finditer(text):
            yield _span("chunk", match.start(), match.end())


def _numbers_in_words(sentence: Sequence[Token]) -> Iterator[Span]:
    """`twenty-five`, `three million years`."""

    def is_number(token: Token) -> bool:
        return all(part in NUMBERS for part in token.text.casefold().split("-"))

    index = 0
    while index < len(sentence):
        end = index
        while end < len(sentence) and is_number(sentence[end]):
            end += 1
        if end > index:
            first = index
            while end < len(sentence) and sentence[end].text.casefold() in UNITS:
                end += 1
            yield _span("number", sentence[first].start, sentence[end - 1].end, end - first)
        index = max(end, index + 1)


# --- Names: words with capitals ---


def _is_capital(token: Token) -> bool:
    return token.text[0].isupper()


def _is_english(token_sentences: Sequence[Sequence[Token]]) -> bool:
    words = [token.text.casefold() for sentence in token_sentences for token in sentence if token.text[0].isalpha()]
    return bool(words) and sum(word in CLOSED for word in words) / len(words) >= ENGLISH


def _seen_inside(token_sentences: Sequence[Sequence[Token]]) -> dict[str, bool]:
    """Whether each word has a capital within sentences, because every first word of a sentence has one."""
    seen: dict[str, bool] = {}
    for sentence in token_sentences:
        for token in sentence[1:]:
            if token.text[0].isalpha():
                key = token.text.casefold()
                seen[key] = seen.get(key, True) and _is_capital(token)
    return seen


def _names(
    text: str, sentence: Sequence[Token], inside: dict[str, bool], english: bool, language: str
) -> Iterator[Span]:
    """Sequences of words with capitals, with the particles and numbers that belong to them."""
    first = next((index for index, token in enumerate(sentence) if token.text[0].isalnum()), 0)
    index = 0
    while index < len(sentence):
        if not _begins_name(sentence[index], index == first, inside, english, sentence[index + 1 : index + 2]):
            index += 1
            continue
        end = _end_of_name(sentence, index)
        part = sentence[index:end]
        if len(part) == 1 and part[0].text.casefold() in WEEKDAYS | MONTHS:
            yield _span("date", part[0].start, part[0].end)
        elif len(part) == 1 and re.fullmatch(r"[A-Z][A-Z0-9]{1,5}", part[0].text):
            yield _span("acronym", part[0].start, part[0].end)
        else:
            syllable = language == "vi" and len(part) == 1 and len(part[0].text) < 5  # of a longer name
            yield _span("word" if syllable else "name", part[0].start, end_of_name(part[-1], language), len(part))
        index = end


def _begins_name(
    token: Token, is_first: bool, inside: dict[str, bool], english: bool, following: Sequence[Token]
) -> bool:
    word = token.text.casefold()
    if not _is_capital(token) or word in CLOSED or word in NUMBERS or len(word) < 2:
        return False
    if not is_first:
        return True
    if word in inside:
        return inside[word]
    followed = bool(following) and _is_capital(following[0])
    return followed or (english and word not in VERBS and not word.endswith(("ing", "ed", "ly", "s")))


def _is_short(token: Token) -> bool:
    return len(token.text) <= 2 or token.text.casefold() in ABBREVIATIONS


def _end_of_name(sentence: Sequence[Token], begin: int) -> int:
    """The index after the last word of the name that begins at `begin`; particles count if a capital follows."""
    end = begin + 1
    while end < len(sentence):
        token = sentence[end]
        word = token.text.casefold()
        if (_is_capital(token) and word not in PRONOUNS) or (token.text.isdigit() and len(token.text) < 4):
            end += 1
        elif token.text == "." and _is_short(sentence[end - 1]) and end + 1 < len(sentence):
            if not _is_capital(sentence[end + 1]):  # John F. Kennedy, St. Louis
                break
            end += 2
        elif word in PARTICLES:
            ahead = end + 1
            while ahead < len(sentence) and ahead < end + 3 and sentence[ahead].text.casefold() in PARTICLES:
                ahead += 1
            joined = word in JOINING or ahead > end + 1
            if not joined or ahead >= len(sentence) or not _is_capital(sentence[ahead]):
                break
            end = ahead + 1
        else:
            break
    return end


# --- English noun chunks ---


def _is_open(token: Token) -> bool:
    word = token.text.casefold()
    return word[0].isalpha() and word not in CLOSED and not _is_capital(token)


def _chunks(sentence: Sequence[Token]) -> Iterator[Span]:
    """Runs of words of the open classes after a determiner, preposition, conjunction or verb."""
    runs = [(is_open, list(group)) for is_open, group in groupby(sentence, _is_open)]
    for number, (is_open, run) in enumerate(runs):
        if not is_open:
            continue
        before = runs[number - 1][1][-1].text.casefold() if number else ""
        after = runs[number + 1][1][0].text.casefold() if number + 1 < len(runs) else ""
        for part in _without_verbs(run, before, after):
            if len(part) <= LONGEST_CHUNK:
                yield _span("chunk" if len(part) > 1 else "word", part[0].start, part[-1].end, len(part))


def _without_verbs(run: list[Token], before: str, after: str) -> Iterator[list[Token]]:
    """Split a run at its verbs; after a pronoun, an auxiliary or `to`, its first word is a verb."""
    verbal = before in PRONOUNS or before in AUXILIARIES - {"is", "are", "was", "were", "has", "have", "had"}
    verbal = verbal or before == "to"
    part: list[Token] = []
    for index, token in enumerate(run):
        word = token.text.casefold()
        is_last = index == len(run) - 1
        if _is_verb(word, index, is_last, before, after) or (index == 0 and verbal):
            if part:
                yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _is_verb(word: str, index: int, is_last: bool, before: str, after: str) -> bool:
    if word.endswith("ly") or (word in VERBS and not (index == 0 and before in DETERMINERS)):
        return True
    if not word.endswith(("ed", "ing")):
        return False
    modifies = not is_last and (index > 0 or before in DETERMINERS or before in PREPOSITIONS | CONJUNCTIONS | {","})
    names = word.endswith("ing") and is_last and (before in DETERMINERS or index > 0)
    return not (modifies or names)
