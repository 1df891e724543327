"""Candidate answers by rule, without a model: dates, numbers, names, acronyms, titles, noun chunks.

The answers in SQuAD are, in this order of frequency, noun phrases, other entities, persons, numbers, dates and places
(Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016, table 2). Chunks are the words
between words of the closed classes, as in Rose et al., "Automatic Keyword Extraction from Individual Documents"
(2010); in English if a determiner, preposition or verb comes before them. Dates, numbers and titles are found in any
script, names in scripts with capitals. In Japanese and Chinese, text in Katakana, in Latin letters or within quotation
marks is found, in Japanese also compounds of Kanji. The patterns are in `answer_rules.yaml`.

The scores order the kinds by how often people chose such answers (`experiments/answers`).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise

from rewards.words import ABBREVIATIONS, UNSPACED_LETTERS, combining_marks, lower
from rl_qg.runtime.files import packaged_yaml
from rl_qg.text.english import (
    AUXILIARIES,
    CLOSED,
    CONJUNCTIONS,
    DETERMINERS,
    JOINING,
    MONTHS,
    NOT_AFTER_NAMES,
    NUMBERS,
    PARTICLES,
    PREPOSITIONS,
    PRONOUNS,
    UNITS,
    VERBS,
    WEEKDAYS,
    is_english,
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
from rl_qg.text.spans import PARAGRAPH_END, Span, Token, select_spans, sentences, tokens

VERSION = 7  # increase it when the proposed spans change: files begun with other rules are then refused
SCORES = {"date": 7.0, "number": 6.0, "title": 5.2, "acronym": 5.1, "name": 5.0, "chunk": 2.0, "word": 1.0}
SEVERAL = 0.5  # added for several words: they are more specific and rarely a part of a longer phrase
HEADING = 5.0  # taken away where a paragraph ends as no sentence does: headings, items, addresses
REPEATED = 2.0  # added in languages without capitals: people ask about it three times as often as about other words
CHUNKS = ("chunk", "word")
LONGEST_TITLE = 6  # words
LONGEST_CHUNK = 5  # words
LONGEST_RUN = 14  # characters of a chunk in Chinese, twice as many in Thai
Sentences = Sequence[Sequence[Token]]

_PATTERNS: dict[str, list[str]] = packaged_yaml(__file__, "answer_rules.yaml")


def _pattern(name: str, flags: int = 0, **parts: str) -> re.Pattern[str]:
    parts |= {part: _PATTERNS[part][0] for part in ("day", "figure", "year")}
    text = "|".join(_PATTERNS[name])
    return re.compile(re.sub(r"<(\w+)>", lambda match: parts[match[1]], text), flags)


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_DATE = _pattern("date", months=_any_of(month.capitalize() for month in MONTHS))
_COMPOUND = _pattern("compound", days=_any_of(day.capitalize() for day in WEEKDAYS))
_ENDS = tuple(".!?…;:\"'”’»。！？।؟")  # of paragraphs that are more than a heading, an item, or a line of an address
_SPOKEN = re.compile(r".*\b[^\W\dA-Z]+[,.!?…]", re.DOTALL)  # what stands within quotation marks and is no title
_MONTH_ALONE = re.compile(r"may|mar|sun|sat|march", re.IGNORECASE)
_NUMBER = _pattern("number", unspaced=UNSPACED_LETTERS, units=_any_of(map(re.escape, UNITS)))
_MARKER = re.compile(r"(?:^|\n)[^\S\n]*\d{1,2}[.)]\Z|\(\d{1,2}\)\Z")  # the number of a heading, an item, a reference
_TITLE = _pattern("title")
_LATIN = re.compile(r"[A-Za-z][\w.&'’-]*(?: (?:[A-Za-z]|\d)[\w.&'’-]*)*")
_KATAKANA = re.compile(r"[ァ-ヺー]+(?:[・＝][ァ-ヺー]+)*")
_KANJI = re.compile(r"[\u4e00-\u9fff々]{2,6}")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa]")
_KOREAN_PREDICATE = _pattern("korean_predicate")


def rule_spans(text: str, limit: int | None = None, language: str = AUTO) -> list[Span]:
    """The answers that the rules propose in a passage, best first: at most `limit` (None: all).

    They are ordered by `SCORES`, plus `SEVERAL` for several words; then the longer, then the earlier comes first.
    `language` is a code, `other` (rules for any language alone), or `auto`: that which the passage is in.
    """
    words = [tokens(text, start, end) for start, end in sentences(text)]
    english = language == "en" or (
        language == AUTO and is_english(token.text for sentence in words for token in sentence)
    )
    code = "en" if english else language_of(text) if language == AUTO else language
    of_language = list(_of_language(text, words, code))
    chunks = [span for span in of_language if span.kind in CHUNKS]
    spans = [*_patterns(text), *(span for span in of_language if span.kind not in CHUNKS)]
    inside = _seen_inside(words)
    for sentence in words:
        spans += _numbers_in_words(sentence)
        spans += _names(sentence, inside, english, code)
        if english:
            chunks += _english_chunks(sentence)
    return select_spans(text, _sentences_first(text, [*_longest(text, spans), *chunks]), limit)


def _sentences_first(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """The spans; those outside sentences with a lower score."""
    starts = [0, *(match.end() for match in PARAGRAPH_END.finditer(text))]
    ends = [text[start:end].rstrip().endswith(_ENDS) for start, end in pairwise([*starts, len(text)])]
    for span in spans:
        inside = len(starts) == 1 or ends[bisect_right(starts, span.start) - 1]
        yield span if inside else replace(span, score=span.score - HEADING)


def _longest(text: str, spans: Iterable[Span]) -> list[Span]:
    """The spans that are not inside longer ones (`50` in `Super Bowl 50`); `Monday` to `Friday`, as parts, are one."""
    found = list[Span]()
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        before = found[-1] if found else None
        last = max(before.start, text.rfind(" ", before.start, before.end) + 1) if before else 0  # its last word
        if before and span.kind == before.kind and _COMPOUND.fullmatch(text, last, span.end):
            found[-1] = _span(span.kind, before.start, span.end, 2)
        elif before is None or span.end > before.end:
            found.append(span)
    return found


def _span(kind: str, start: int, end: int, words: int = 1) -> Span:
    return Span(start, end, kind, SCORES[kind] + (SEVERAL if words > 1 else 0.0))


def _matches(kind: str, pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        yield _span(kind, match.start(), match.end(), len(match.group().split()))


def _patterns(text: str) -> Iterator[Span]:
    for span in _matches("date", _DATE, text):
        if not _MONTH_ALONE.fullmatch(text[span.start : span.end].strip(" .")):
            yield span
    for match in _NUMBER.finditer(text):
        end, words = match.end(), 1
        if _MARKER.search(text[max(0, match.start() - 20) : match.end() + 1]):
            continue
        while following := re.match(r"[ -]([^\W\d_]+|%)", text[end : end + 20]):
            if following[1].casefold() not in UNITS and following.group() != "-old":
                break
            end, words = end + following.end(), words + 1
        yield _span("number", match.start(), end, words)
    for match in _TITLE.finditer(text):
        assert match.lastindex is not None  # what is inside the marks
        words = len(match[match.lastindex].split())
        if words <= LONGEST_TITLE and not _SPOKEN.fullmatch(match[match.lastindex]):  # longer ones are direct speech
            yield _span("title", *match.span(match.lastindex), words)
    yield from (span for span in _matches("name", _KATAKANA, text) if span.end - span.start > 2)
    if _KANA.search(text):  # Japanese; in Chinese a run of characters is not a word
        yield from _matches("chunk", _KANJI, text)


def _numbers_in_words(sentence: Sequence[Token]) -> Iterator[Span]:
    """`twenty-five`, `three million years`."""

    def is_number(token: Token) -> bool:
        return all(part in NUMBERS for part in token.text.casefold().removesuffix("-one").split("-"))

    index = 0
    while index < len(sentence):
        first = index
        while index < len(sentence) and is_number(sentence[index]):
            index += 1
        if index == first:
            index += 1
            continue
        while index < len(sentence) and sentence[index].text.casefold() in UNITS:
            index += 1
        yield _span("number", sentence[first].start, sentence[index - 1].end, index - first)


def _is_capital(token: Token) -> bool:
    return token.text[0].isupper()


def _seen_inside(words: Sentences) -> dict[str, bool]:
    """Whether each word has a capital within sentences, because every first word of a sentence has one."""
    seen: dict[str, bool] = {}
    for token in (token for sentence in words for token in sentence[1:] if token.text[0].isalpha()):
        key = token.text.casefold()
        seen[key] = seen.get(key, True) and _is_capital(token)
    return seen


def _names(sentence: Sequence[Token], inside: dict[str, bool], english: bool, language: str) -> Iterator[Span]:
    first = next((index for index, token in enumerate(sentence) if token.text[0].isalnum()), 0)
    index = 0
    while index < len(sentence):
        if not _begins_name(sentence[index], index == first, inside, english, sentence[index + 1 : index + 3]):
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
            span = _span("word" if syllable else "name", part[0].start, _without_suffix(part[-1], language), len(part))
            doubtful = english and index == first and len(part) == 1 and part[0].text.casefold() not in inside
            yield replace(span, score=SCORES["chunk"]) if doubtful else span
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
    if not any(token.text[0].isalnum() for token in following) or following[0].text.casefold() in NOT_AFTER_NAMES:
        return False
    return _is_capital(following[0]) or (english and word not in VERBS and not word.endswith(("ing", "ed", "ly", "s")))


def _end_of_name(sentence: Sequence[Token], begin: int) -> int:
    """The index after the last word of the name that begins at `begin`; particles count if a capital follows."""
    end = begin + 1
    while end < len(sentence):
        token, before = sentence[end], sentence[end - 1].text
        word = token.text.casefold()
        if (_is_capital(token) and word not in PRONOUNS) or (token.text.isdigit() and len(token.text) < 4):
            end += 1
        elif (
            token.text == "." and (len(before) <= 2 or before.casefold() in ABBREVIATIONS) and end + 1 < len(sentence)
        ):
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


def _without_suffix(token: Token, language: str) -> int:
    """Where a word ends without what follows its apostrophe, of a Turkish name (Ankara'da); else where it ends."""
    cut = re.search("['’]", token.text) if language == "tr" else None
    return token.end if cut is None else token.start + cut.start()


def _english_chunks(sentence: Sequence[Token]) -> Iterator[Span]:
    """Runs of words of the open classes after a determiner, preposition, conjunction or verb."""

    def is_open(token: Token) -> bool:
        return token.text[0].isalpha() and token.text.casefold() not in CLOSED and not _is_capital(token)

    before = ""
    for opened, group in groupby(sentence, is_open):
        run = list(group)
        for part in _without_verbs(run, before) if opened else ():
            if len(part) <= LONGEST_CHUNK:
                yield _span("chunk" if len(part) > 1 else "word", part[0].start, part[-1].end, len(part))
        before = run[-1].text.casefold()


def _without_verbs(run: list[Token], before: str) -> Iterator[list[Token]]:
    """The parts of a run between its verbs; after a pronoun, an auxiliary or `to`, its first word is a verb."""
    verbal = before in PRONOUNS or before in AUXILIARIES - {"is", "are", "was", "were", "has", "have", "had"}
    verbal = verbal or before == "to"
    verbs = [
        index
        for index, token in enumerate(run)
        if (index == 0 and verbal) or _is_verb(token.text.casefold(), index, index == len(run) - 1, before)
    ]
    for earlier, later in pairwise([-1, *verbs, len(run)]):
        if part := run[earlier + 1 : later]:
            yield part


def _is_verb(word: str, index: int, is_last: bool, before: str) -> bool:
    if word.endswith("ly") or (word in VERBS and not (index == 0 and before in DETERMINERS)):
        return True
    if not word.endswith(("ed", "ing")):
        return False
    modifies = not is_last and (index > 0 or before in DETERMINERS or before in PREPOSITIONS | CONJUNCTIONS | {","})
    names = word.endswith("ing") and is_last and (before in DETERMINERS or index > 0)
    return not (modifies or names)


def _of_language(text: str, words: Sentences, language: str) -> Iterator[Span]:
    """The candidates by the rules of a language other than English; none of one that is not known. Where no capitals
    tell names, chunks that the passage repeats come first.
    """
    known = LANGUAGES.get(language)
    if known is None or language == "en":
        return
    for kind, pattern in (("date", _dates(language)), ("number", _numbers(language))):
        if pattern is not None:
            yield from _matches(kind, pattern, text)
    chunks: Iterable[Span] = ()
    if known.unit != CHARACTERS:
        chunks = (span for sentence in words for span in _chunks(sentence, language))
    elif language in ("th", "zh"):
        chunks = _chunks_without_spaces(text, language)
    has_capitals = bool(known.scripts & {"LATIN", "GREEK", "CYRILLIC"})
    for span in chunks:
        part = language == "th" and span.kind == "word"  # what stands between common words is rarely a word
        again = span.kind in CHUNKS and not (has_capitals or part) and text.count(text[span.start : span.end]) > 1
        yield replace(span, score=span.score + REPEATED) if again else span


@cache
def _dates(language: str) -> re.Pattern[str] | None:
    if language == "ko":
        return _pattern("date_ko")
    if language not in MONTHS_OF:
        return None
    era = r"(?:พ\.ศ\.|ค\.ศ\.)\s?" if language == "th" else ""
    optional = f"(?:{era})?" if era else ""
    months = _any_of(MONTHS_OF[language].split())
    dates = _pattern("date_of_language", re.IGNORECASE, of=r"(?:de\s+|d'|del\s+)?", months=months, era=optional)
    return re.compile(rf"{dates.pattern}|{era}\d{{3,4}}", re.IGNORECASE) if era else dates


@cache
def _numbers(language: str) -> re.Pattern[str]:
    numbers, units = (_any_of(table.get(language, "\0").split()) for table in (NUMBERS_OF, UNITS_OF))
    own = f"number_{language}"
    if own in _PATTERNS:
        return _pattern(own, re.IGNORECASE if language == "vi" else 0, numbers=numbers, units=units)
    end = rf"(?![^\W_]|[{combining_marks()}])"
    return _pattern("number_of_language", re.IGNORECASE, numbers=numbers, units=units, end=end)


@cache
def _closed_words(language: str) -> frozenset[str]:
    return frozenset(lower(FUNCTION_WORDS.get(language, ""), language).split())


def _chunks(sentence: Sequence[Token], language: str) -> Iterator[Span]:
    if language == "vi":
        yield from _vietnamese_names(sentence)
    if language == "ko":
        yield from _korean_chunks(sentence)
        return
    closed = _closed_words(language)

    def is_open(token: Token) -> bool:
        return token.text[0].isalpha() and lower(token.text, language) not in closed

    for opened, group in groupby(sentence, is_open):
        run = list(group)
        if opened and len(run) <= LONGEST_CHUNK:
            kind = "chunk" if len(run) > 1 else "word"
            yield _span(kind, run[0].start, _without_suffix(run[-1], language), len(run))


def _vietnamese_names(sentence: Sequence[Token]) -> Iterator[Span]:
    """Words with capitals and at most three without between them: a name begins with its kind, Đại lộ Kearney."""
    closed = _closed_words("vi")
    capitals = [index for index, token in enumerate(sentence) if _is_capital(token)]
    first = 0  # of the capitals of this name
    for last, index in enumerate(capitals):
        if last + 1 < len(capitals):
            between = sentence[index + 1 : capitals[last + 1]]
            if len(between) <= 3 and all(
                word.text.isalpha() and lower(word.text, "vi") not in closed for word in between
            ):
                continue
        size = index - capitals[first] + 1
        if 1 < size <= 2 * LONGEST_CHUNK:
            yield _span("name", sentence[capitals[first]].start, sentence[index].end, size)
        first = last + 1


def _korean_chunks(sentence: Sequence[Token]) -> Iterator[Span]:
    """Words up to one with a particle, cut off (임종석이 -> 임종석); predicates, adverbs (-다, -고, -하는) part."""
    run: list[Token] = []
    for token in sentence:
        if not token.text[0].isalnum() or token.text in _closed_words("ko"):
            yield from _korean_run(run)
            run = []
            continue
        bare = without_ending(token.text, "ko")
        if bare != token.text:
            yield from _korean_run([*run, replace(token, end=token.start + len(bare))])
        run = [] if bare != token.text or _KOREAN_PREDICATE.search(token.text) else [*run, token]
    yield from _korean_run(run)


def _korean_run(run: Sequence[Token]) -> Iterator[Span]:
    """The last words of a run, three at most: what stands before is mostly an adverb."""
    kept = run[-3:]
    if len(kept) > 1:
        yield _span("chunk", kept[0].start, kept[-1].end, len(kept))
    yield from (_span("word", token.start, token.end) for token in kept if token.end - token.start > 1)


def _chunks_without_spaces(text: str, language: str) -> Iterator[Span]:
    """The text between common words; a syllable inside a longer word that looks like one cuts it too."""
    thai = language == "th"
    closed = re.compile(rf"(?:{_any_of(FUNCTION_WORDS[language].split())})(?![{combining_marks()}])")
    for run in re.finditer(rf"[{UNSPACED_LETTERS}]+" if thai else "[\u4e00-\u9fff·•]+", text):
        cuts = [match.span() for match in closed.finditer(text, *run.span())]
        edges = [run.start(), *(place for cut in cuts for place in cut), run.end()]
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if 1 < end - start <= LONGEST_RUN * (1 + thai):
                yield _span("chunk" if not cuts or not thai else "word", start, end, 2)
    yield from (span for span in _matches("name", _LATIN, text) if text[span.start].isupper())
