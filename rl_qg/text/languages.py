"""Languages and scripts: which one a text is in, and the rules that filters, answers and metrics take from it.

A language is named by its code (ISO 639-1), such as `de`. `LANGUAGES` are those of `languages.yaml`, which has their
words; rules that are not known are left out, and whoever leaves them out says so. Two words stand for no language:
`AUTO` (find out which it is) and `OTHER` (one without rules).
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby
from typing import Any

from rewards.words import is_unspaced, lower, separate_unspaced
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml
from rl_qg.text.words import follow_each_other, normalised_words, word_count

AUTO, OTHER = "auto", "other"
WORDS, CHARACTERS = "words", "characters"
ENOUGH = 2000  # characters of a text that its language is found from
SURE_LETTERS, SURE_WORDS = 10, 5  # from so many on, a text is surely in another language
log = logging.getLogger(__name__)
_SHARED = {"HIRAGANA": "KANA", "KATAKANA": "KANA", "KATAKANA-HIRAGANA": "KANA", "IDEOGRAPHIC": "CJK"}


@dataclass(frozen=True)
class Language:
    """What is known of a language, as `languages.yaml` explains it; of `endings` the longest come first."""

    name: str
    scripts: frozenset[str]
    per_word: float = 1.0
    unit: str = WORDS
    marks_questions: bool = True
    endings: tuple[str, ...] = ()


_FILE: Mapping[str, Mapping[str, Any]] = packaged_yaml(__file__, "languages.yaml")
LANGUAGES: Mapping[str, Language] = {
    code: Language(
        entry["name"],
        frozenset(entry["scripts"].split()),
        endings=tuple(sorted(entry.get("endings", "").split(), key=len, reverse=True)),
        **{name: entry[name] for name in ("per_word", "unit", "marks_questions") if name in entry},
    )
    for code, entry in _FILE.items()
}


def _words_of_each(name: str) -> dict[str, str]:
    return {code: entry[name] for code, entry in _FILE.items() if name in entry}


FUNCTION_WORDS, LETTERS = _words_of_each("function_words"), _words_of_each("letters")
QUESTION_WORDS, QUESTION_PARTS = _words_of_each("question_words"), _words_of_each("question_parts")
QUESTION_ENDINGS, MONTHS_OF = _words_of_each("question_endings"), _words_of_each("months")
NUMBERS_OF, UNITS_OF = _words_of_each("numbers"), _words_of_each("units")


def code_fault(code: str) -> str:
    """Return why a setting is no language; "" where it is a code of two or three letters, `auto` or `other`.

    >>> code_fault("english")
    'english is no code of a language: give one such as de, auto (found in the texts) or other'
    """
    if re.fullmatch("[a-z]{2,3}", code.casefold()) or code.casefold() in (AUTO, OTHER):
        return ""
    return f"{code} is no code of a language: give one such as de, {AUTO} (found in the texts) or {OTHER}"


_THREE_LETTERS = {three: code for code, entry in _FILE.items() for three in entry.get("codes", "").split()}


def code_of(name: str) -> str:
    """Return the code under which `LANGUAGES` has a language that is named with capitals, a region or three letters.

    >>> [code_of(name) for name in ("KO", "de_DE", "zh-TW", "tha_Thai", "eu")]
    ['ko', 'de', 'zh', 'th', 'eu']
    """
    first = re.split("[-_]", name.strip().casefold(), maxsplit=1)[0]
    return _THREE_LETTERS.get(first, first)


@lru_cache(1 << 8)
def known_code(name: str) -> str:
    """Return `code_of` what a user names. A warning, once, where it is none of `LANGUAGES` nor `auto` or `other`."""
    code = code_of(name)
    if code not in (AUTO, OTHER, *LANGUAGES):
        log.warning("language=%s: its rules are not known (those of %s are)", name, ", ".join(sorted(LANGUAGES)))
    return code


def language_of(texts: str | Iterable[str]) -> str:
    """Return the code of the language in which most of the texts are; "" where they do not tell.

    By the script, where one language of `LANGUAGES` is written in it. Among languages of one script that language
    that has most of the text's different words among its common ones (`FUNCTION_WORDS`) or with its own letters
    (`LETTERS`), if no other has as many. Latin names in text of another script do not count.

    >>> language_of("Wer hat das Buch geschrieben?"), language_of("誰が書いたか"), language_of("1984")
    ('de', 'ja', '')
    """
    if isinstance(texts, str):
        return _language_of_text(texts[:ENOUGH])
    votes: Counter[str] = Counter(_language_of_text(text[:ENOUGH]) for text in texts)
    del votes[""]
    return min(votes, key=lambda code: (-votes[code], code)) if votes else ""


@lru_cache(1 << 12)
def _language_of_text(text: str) -> str:
    points = _points(text)
    if len(points) < 2:
        return next(iter(points), "")
    (best, most), (_, second) = points.most_common(2)
    return best if most > second else ""


def _points(text: str) -> Counter[str]:
    """For each language of the script: its letters where it is alone, else words common in it or with its letters."""
    counts = scripts(text)
    others = {name: count for name, count in counts.items() if name != "LATIN" and 4 * count >= counts.total()}
    script, letters = max((others or counts or {"": 0}).items(), key=lambda item: (item[1], item[0]))
    if script == "CJK" and 10 * counts["KANA"] >= letters:
        script = "KANA"
    elif script == "CJK" and counts["HANGUL"] > letters / 2:
        script = "HANGUL"
    own = {"ko": "HANGUL", "ja": "KANA"}
    candidates = [code for code, known in LANGUAGES.items() if own.get(code, next(iter(known.scripts))) == script]
    if len(candidates) < 2:
        return Counter(dict.fromkeys(candidates, letters))
    points = Counter(dict.fromkeys(candidates, 0))
    for word in set(normalised_words(text)):  # a name may repeat an article: Los Angeles
        points.update({code: count for code, count in _points_of_word(word).items() if code in points})
    return points


@lru_cache(1 << 16)
def _points_of_word(word: str) -> dict[str, int]:
    """Of a word of a script, for each language that has it among its common ones, or one of its own letters."""
    points = {
        code: (word in _common_words(code)) + any(map(LETTERS.get(code, "").__contains__, word))
        for code in FUNCTION_WORDS
    }
    return {code: count for code, count in points.items() if count}


def check_language(texts: Iterable[str], name: str, language: str = "en") -> None:
    """Raise `InputError` if most of the texts, the passages of the document `name`, by their length, are surely not in
    the language of a model; what does not tell (a few words, names, numbers, code) passes.
    """
    votes = Counter[str]()
    for text in texts:
        votes[_other_language(text[:ENOUGH], language)] += len(text)
    found, count = next(iter(votes.most_common(1)), ("", 0))
    if found and 2 * count > votes.total():
        other, own = (LANGUAGES[code].name for code in (found, language))
        raise InputError(
            f"{name}: looks like {other}, and the model asks about {own} texts; name a model for {other} with "
            "model.path=…, or train one: rl-qg train model=prefix model.path=ENCODER data.train=QUESTIONS with an "
            "encoder and human questions of that language"
        )


@lru_cache(1 << 12)
def _other_language(text: str, language: str) -> str:
    """The language that a text is surely in, and not in `language`; else "". Surely: by most of its letters, or by
    many words in small letters, twice as many as speak for `language`; names, which have capitals, do not count.
    """
    found = _language_of_text(text)
    if not found or found == language:
        return ""
    counts, known = scripts(text), LANGUAGES[found]
    if not known.scripts & LANGUAGES[language].scripts:
        other = sum(counts[script] for script in known.scripts)
        return found if other >= SURE_LETTERS and 2 * other > counts.total() else ""
    points, words = _points(text), re.findall(r"[^\W\d_]{2,}", text)
    small = sum(word.islower() and word not in _common_words(found) for word in words)
    sure = points[found] >= SURE_WORDS and points[found] >= 2 * points[language] and 10 * small >= len(words)
    return found if sure else ""


@cache
def _common_words(code: str) -> frozenset[str]:
    whole = [word for word in QUESTION_WORDS.get(code, "").split() if not word.endswith("*")]
    return frozenset([*FUNCTION_WORDS[code].split(), *whole])


def length_in_words(text: str, language: str) -> float:
    """Return the length of a text in English words: its words, or characters, over those that say what one does.

    >>> length_in_words("誰がこの本を書いたか？", "ja"), length_in_words("Who wrote it?", "en")
    (4.166666666666667, 3.0)
    """
    known = LANGUAGES.get(language)
    return word_count(text) / (known.per_word if known else 1.0)


def has_question_word(text: str, language: str) -> bool:
    """Return whether a text has a word that asks or, in Korean and Japanese, ends as questions do; True in languages
    whose question words are not known (`knows_question_words`).
    """
    if language in QUESTION_PARTS:
        ending = text.rstrip(" ?？。.!！\"'”’」』)）")
        endings = tuple(QUESTION_ENDINGS.get(language, "\0").split())
        return any(part in text for part in QUESTION_PARTS[language].split()) or ending.endswith(endings)
    whole, beginnings = _question_words(language)
    found = normalised_words(lower(text, language))
    if language == "ar":  # and, so, by, for, as are written together with the next word
        found += [word[1:] for word in found if word[0] in "وفبلك"]
    return not whole or any(word in whole or word.startswith(beginnings) for word in found)


def knows_question_words(language: str) -> bool:
    return language in QUESTION_PARTS or language in QUESTION_WORDS


@cache
def _question_words(language: str) -> tuple[frozenset[str], tuple[str, ...]]:
    words = {word: normalised_words(word)[0] for word in QUESTION_WORDS.get(language, "").split()}
    whole = frozenset(word for entry, word in words.items() if not entry.endswith("*"))
    return whole, tuple(word for entry, word in words.items() if entry.endswith("*"))


def contains_text(part: str, whole: str, language: str) -> bool:
    """Return whether a text holds another one word for word (`contains_words`), by the rules of a language.

    In languages without spaces, whether the characters follow each other; a single character is no word there, while
    Latin words and figures are compared whole. A Korean word counts with any of its particles after it.

    >>> contains_text("서울", "서울은 어느 나라에 있나?", "ko"), contains_text("ISPARTA", "Isparta nerede?", "tr")
    (True, True)
    """
    known = LANGUAGES.get(language)
    part, whole = lower(part, language), lower(whole, language)
    if known is not None and known.unit == CHARACTERS:
        wanted, available = (separate_unspaced(" ".join(normalised_words(text))).split() for text in (part, whole))
        return follow_each_other(wanted, available) and not (len(wanted) == 1 and is_unspaced(wanted[0]))
    wanted, words = normalised_words(part), normalised_words(whole)
    if follow_each_other(wanted, words):
        return True
    endings = known.endings if known else ()
    for start in range(len(words) - len(wanted) + 1) if wanted and endings else ():
        *before, last = words[start : start + len(wanted)]
        ending = last.removeprefix(wanted[-1])
        if before == wanted[:-1] and last != ending and ending in endings:
            return True
    return False


def without_ending(word: str, language: str) -> str:
    """Return a Korean word without its particle, of at least one syllable; any other as it is."""
    known = LANGUAGES.get(language)
    for ending in known.endings if known else ():
        if word.endswith(ending) and len(word) > len(ending) + (len(ending) == 1):
            return word[: -len(ending)]
    return word


def scripts(text: str) -> Counter[str]:
    """The number of letters of each script in a text; combining marks do not count."""
    return Counter(script for script, letters in script_runs(text) for _ in letters)


def script_runs(text: str) -> Iterator[tuple[str, str]]:
    """Script and letters of each run of letters of one script: words, where a language separates them."""
    for script, letters in groupby(unicodedata.normalize("NFC", text).casefold(), _script):
        if script:
            yield script, "".join(letters)


def share_in(text: str, allowed: Collection[str], known: str = "") -> float:
    """The share of a text's letters that are in allowed scripts or in words of the text `known`; 1 without letters.

    >>> share_in("Кто основал NASA?", {"CYRILLIC"}, "НАСА (NASA) существует с 1958 года.")
    1.0
    """
    runs = list(script_runs(text))
    foreign = [run for run in runs if run[0] not in allowed]
    if foreign and known:
        of_known = set(script_runs(known))
        foreign = [run for run in foreign if run not in of_known]
    total, other = (sum(len(letters) for _, letters in some) for some in (runs, foreign))
    return (total - other) / total if total else 1.0


@cache
def _script(character: str) -> str:
    """The script of a letter: the first word of its Unicode name, but one for all kana, and one for CJK."""
    if not character.isalpha():
        return ""
    name = unicodedata.name(character, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ").split(" ")[0]
    return _SHARED.get(name, name)
