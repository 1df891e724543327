"""Words of a text for filters and lengths, and which splitter is for what.

Every place that splits text into words uses one of these:

- `rewards.words.words`: all scores of words without a splitter of their own: ROUGE-L, held-out n-grams, baselines.
- the other tokenisers of `rewards.words`: metrics that are defined, or were published, with them (BLEU, METEOR, ...).
- `rewards.words.normalise_answer`: answers, as SQuAD's script compares them (English articles).
- `normalised_words`: filters of questions, which ask whether two texts say the same; `word_count`: lengths.
- `rl_qg.text.spans.tokens`: words, numbers and signs with their positions, for rules that find answers.
- splitters of one rule, where it is: `rl_qg.text.question_types`, `rewards.overlap.answerability`,
  `rl_qg.scoring.wrong_questions`.

Sentences are split by `rewards.words` alone.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from rewards.words import combining_marks, separate_unspaced

_WORD = re.compile(rf"\d+(?:[.,:]\d+)+|\w+(?:[{combining_marks()}]+\w*)*")


def normalised_words(text: str) -> list[str]:
    """Split a text into words for comparison: case, punctuation and Unicode form (NFKC) do not count.

    Unlike `rewards.words.words`, a number keeps its inner separators (`1,000`, `5.5`, `10:30`), so that `5` is not a
    word of `5.5`, and a run of a script without spaces is one word: its characters often repeat and follow each other,
    which filters would take for repetition. Articles stay: without them the answer "The Who" would be a word of every
    question that begins with "who".
    """
    return [*_normalised_words(text)]


@lru_cache(1 << 4)  # the filters of a candidate all ask for the words of its question
def _normalised_words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def contains_words(part: str, whole: str) -> bool:
    """Return whether the words of `part` follow each other in `whole`; a part without words never does.

    >>> contains_words("art", "Who threw the party?"), contains_words("New York", "Is new york's mayor tall?")
    (False, True)
    """
    return follow_each_other(normalised_words(part), normalised_words(whole))


def follow_each_other(wanted: Sequence[str], available: Sequence[str]) -> bool:
    starts = range(len(available) - len(wanted) + 1)
    return bool(wanted) and any(available[start : start + len(wanted)] == wanted for start in starts)


def ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """The n-grams of a text's words, in their order; none where there are fewer than n words."""
    return list(zip(*(words[start:] for start in range(n)), strict=False))


def word_count(text: str) -> int:
    """Return the length of a text in words: pieces between white space that hold a letter or a digit.

    In scripts without spaces each character counts as a word.

    >>> word_count("Who wrote O'Neill's Faust ?"), word_count("誰が書いたか？")
    (4, 6)
    """
    return sum(any(map(str.isalnum, piece)) for piece in separate_unspaced(text).split())


def counted(number: int, noun: str) -> str:
    """A number with its noun, which has an s in the plural.

    >>> counted(1, "passage"), counted(1200, "pair"), counted(0, "page")
    ('1 passage', '1,200 pairs', '0 pages')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def occurrences(text: str, part: str) -> list[tuple[int, int]]:
    """Return start and end of each place where `part` stands in `text`, from the first to the last.

    Every run of white space counts as one space. Places where it stands as whole words are preferred: those inside
    other words are returned only if there are no others, as in scripts without spaces. Nothing for a blank part.
    """
    words = part.split()
    if not words:
        return []
    pattern = r"\s+".join(map(re.escape, words))
    places = [match.span(1) for match in re.finditer(f"(?=({pattern}))", text)]

    def inside_a_word(at: int) -> bool:
        return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()

    return [ends for ends in places if not any(map(inside_a_word, ends))] or places
